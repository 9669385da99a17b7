"""What an octet is: eight consecutive groups of a weight row (256 weights), one group per lane.

    lane k of word vector j (j = 0..7) holds weights 4j .. 4j+3 of group k as four bytes

so that products with activations laid out alike (`pages`) add up within lanes: no sum of a group's products ever crosses
a lane.  A format's factory `build()` compiles the helper of an `OctetReader`:

    unpack(at) -> (words, d, s0, s1, offset)

at: the address where the octet's blocks start.  words: a tuple of eight WORDS; a byte is the weight's code plus `bias`,
unsigned and at most `largest`, or, where `is_signed`, the code itself as int8.  d, offset: FLOATS; s0, s1: WORDS, the
sub-scales of weights 0..15 and 16..31, as `formats.contract` says.  Where a row ends inside an octet, the lanes past its
end hold anything (`endings`).  Needs AVX2.  Does not know: activations, rows.
"""

from collections.abc import Callable
from dataclasses import dataclass

from strata.formats.contract import GROUP, WeightFormat

GROUPS = 8
"""Groups of an octet: the contract's lanes."""

OCTET_WEIGHTS = GROUPS * GROUP


def octet_bytes(form: WeightFormat) -> int:
    """Return the bytes of one octet; the blocks of every format fill it."""
    return OCTET_WEIGHTS // form.block_weights * form.block_bytes


@dataclass(frozen=True, slots=True)
class OctetReader:
    """How a format's octets are unpacked; see the module's docstring.

    `largest` bounds unsigned bytes, bias included; `has_scales` is False where s0 and s1 are 1 everywhere.  Signed weights from a
    table of sixteen `levels` can be unpacked as codes too, bytes 0..15 (`unpack_codes`).  No format has signed weights and s0 != s1.
    """

    unpack: Callable
    bias: int = 0
    largest: int = 127
    is_signed: bool = False
    has_scales: bool = True
    levels: tuple[int, ...] | None = None
    unpack_codes: Callable | None = None
