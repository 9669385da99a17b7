"""Tiles of experts by format on 9.0: no spills, and why formats share a tiling: their products are the same instructions."""

import re

import pytest

from strata.cuda.card.compiling import compile_ptx, link, why_no_compiler

REASON = why_no_compiler()
pytestmark = [pytest.mark.ptx, pytest.mark.skipif(REASON is not None, reason=str(REASON))]
CAPABILITY = (9, 0)
MEASURED = {"Q2_0": ("Q2_0", "Q4_0", "Q5_0", "Q8_0", "IQ4_NL"), "Q4_K": ("Q4_K", "Q5_K")}
ARITHMETIC = r"mma\.sync\S*|(?:add|mul|fma)\.rn\.f32"


def arithmetic_of(name: str) -> dict[str, int]:
    """Compile a format's tiles of experts; return how often each instruction of tensor cores and floats is there, and spilled bytes."""
    from strata.cuda.machine.seam import target_of
    from strata.cuda.packed.tile_choice import experts_tile
    from strata.cuda.packed.tile_kernels import expert_tiles
    from strata.formats.table import by_name
    from tests.ptx.catalogue import EXPERT_TILES, _signature

    type_id = by_name(name).type_id
    kernel = expert_tiles(type_id, experts_tile(CAPABILITY, type_id), target_of(CAPABILITY))
    ptx = compile_ptx(kernel, _signature(EXPERT_TILES), CAPABILITY)
    found = re.findall(ARITHMETIC, ptx)
    return {name: found.count(name) for name in sorted(set(found))} | {"spilled": link(ptx, CAPABILITY)[1].spill_store_bytes}


@pytest.mark.slow
def test_formats_of_low_tiles_have_the_arithmetic_of_the_measured_ones_and_no_spills():
    from strata.cuda.packed.tile_choice import EXPERTS_BY_FORMAT

    assert sorted(EXPERTS_BY_FORMAT[CAPABILITY]) == sorted(name for names in MEASURED.values() for name in names)
    for measured, names in MEASURED.items():
        wanted = arithmetic_of(measured)
        assert wanted["spilled"] == 0 and wanted["fma.rn.f32"] >= 96
        assert {name: arithmetic_of(name) for name in names} == dict.fromkeys(names, wanted)


def test_a_format_with_sub_scales_has_more():
    assert arithmetic_of("IQ4_XS")["mul.rn.f32"] > 96
