"""The kernels of `strata bench gpu`, for the catalogue: what generates weights and what measures a card's rates.

The twins with a free order are not here: they break the contract on purpose (test_twins.py).
"""

from collections.abc import Iterator

from tests.ptx.catalogue import Entry
from tests.ptx.operations import signature


def entries() -> Iterator[Entry]:
    """Yield every kernel of the benchmark."""
    from strata.bench.gpu import rates
    from strata.cuda.card import generate

    for name, build, text in (
        ("fill with weights", generate.fill_kernel, "u16 L I i32 i32 L"),
        ("read memory", rates.read_kernel, "i32 L i32"),
        ("tensor-core rate", rates.mma_kernel, "i32"),
        ("fused multiply-add rate", rates.fused_kernel, "f32"),
    ):
        yield Entry(name, build, signature(text), 96, True)
