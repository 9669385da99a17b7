"""Kernels that tests/gpu/measure/chunk_variants.py compares with those in force: rounded operations, registers without spills."""

import pytest

from strata.cuda.card.compiling import compile_ptx, link, why_no_compiler
from tests.ptx.compiled import unrounded_operations

REASON = why_no_compiler()
pytestmark = [pytest.mark.ptx, pytest.mark.slow, pytest.mark.skipif(REASON is not None, reason=str(REASON))]
CAPABILITY = (9, 0)
WAYS = (
    "widened late", "widened late, kept first", "whole copies", "kept first", "whole copies, kept first", "stored late", "whole copies, kept first, stored late",
)


@pytest.mark.parametrize("way", WAYS)
def test_a_way_has_rounded_operations_and_no_spills(way):
    from strata.cuda.floats.float_short_tiles import short_tiles
    from strata.cuda.floats.float_tiles import float_tiles
    from strata.cuda.machine.seam import target_of
    from tests.gpu.measure.chunk_variants import OF_SHORT, OF_TILES
    from tests.ptx.catalogue import _signature

    variant, target = next(one for one in (*OF_TILES, *OF_SHORT) if one.name == way), target_of(CAPABILITY)
    with variant.in_force():
        kernels = (float_tiles("BF16", target), float_tiles("F16", target)) if variant in OF_TILES else (short_tiles("BF16", 320, target),)
    for kernel in kernels:
        ptx = compile_ptx(kernel, _signature("u8 I I I f32 f32"), CAPABILITY)
        assert unrounded_operations(ptx) == [] and ".local" not in ptx
        assert link(ptx, CAPABILITY)[1].spill_store_bytes == 0
