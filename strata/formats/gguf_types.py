"""Weight types that the gguf library does not know yet: the one place that tells it about them.

gguf (0.19) raises ValueError when it opens a file with a Q2_0 tensor.  One more member of its enum and one more entry of
its size table are enough for its reader, which then maps the tensor's bytes.  Importing this module does it.  Once a release
brings the type, nothing is done; a test notices, and this file can go.  Does not know: how to decode (q2_0.py).
"""

from strata.errors import ModelFileError
from strata.formats.q2_0 import FORMAT as Q2_0


def register_missing_types() -> bool:
    """Make gguf's reader accept Q2_0 tensors; return whether the type had to be added.

    Called at import; calling it again does nothing.  ModelFileError if gguf knows type 42 as something else.
    """
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    known = Q2_0.type_id in GGMLQuantizationType._value2member_map_
    if not known:
        _add_member(GGMLQuantizationType, Q2_0.name, Q2_0.type_id)
        GGML_QUANT_SIZES[GGMLQuantizationType(Q2_0.type_id)] = (Q2_0.block_weights, Q2_0.block_bytes)
    _check(GGMLQuantizationType(Q2_0.type_id), GGML_QUANT_SIZES)
    return not known


def _add_member(enumeration, name: str, value: int) -> None:
    """Add a member to an IntEnum after its creation, as the enum module itself records members."""
    member = int.__new__(enumeration, value)
    member._name_, member._value_ = name, value
    type.__setattr__(enumeration, name, member)
    enumeration._member_names_.append(name)
    enumeration._member_map_[name] = member
    enumeration._value2member_map_[value] = member


def _check(member, sizes) -> None:
    found, wanted = (member.name, sizes.get(member)), (Q2_0.name, (Q2_0.block_weights, Q2_0.block_bytes))
    if found != wanted:
        raise ModelFileError(
            f"gguf calls weight type {Q2_0.type_id} {found[0]} with (weights, bytes) {found[1]}",
            f"here it is {wanted[0]} with {wanted[1]}",
            "install the gguf release that this version was tested with (0.19)",
        )


register_missing_types()
