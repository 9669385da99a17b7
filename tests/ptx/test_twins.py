"""The twins with a free order compile, differ from the kernels of the contract, and nothing but the benchmark can reach them."""

import pytest

from tests.ptx.catalogue import DENSE_ROWS, DENSE_TILES, _signature
from tests.ptx.compiled import compile_ptx, link, unrounded_operations, why_no_compiler
from tests.repo.source import modules

REASON = why_no_compiler()
CAPABILITY = (9, 0)
Q4_K = 12


def pairs():
    """Return name -> (kernel of the contract, twin, signature)."""
    from strata.bench.gpu import free_order
    from strata.cuda import float_rows, rows, tile_kernels
    from strata.cuda.seam import target_of
    from strata.cuda.tiles import CHUNK

    target = target_of(CAPABILITY)
    return {
        "rows": (rows.dense_rows(Q4_K, 1, target), free_order.dense_rows(Q4_K, 1, target), _signature(DENSE_ROWS)),
        "tiles": (tile_kernels.dense_tiles(Q4_K, CHUNK, target), free_order.dense_tiles(Q4_K, target), _signature(DENSE_TILES)),
        "floats": (
            float_rows.float_rows("BF16", 1, 1, True, target), free_order.one_float_row("BF16", target), _signature("u8 I I I f32 f32")
        ),
    }


@pytest.mark.ptx
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize("name", ["rows", "tiles", "floats"])
def test_a_twin_has_a_free_order_and_its_kernel_has_not(name):
    ours, twin, signature = pairs()[name]
    contract, free = compile_ptx(ours, signature, CAPABILITY), compile_ptx(twin, signature, CAPABILITY)
    assert unrounded_operations(contract) == []
    assert unrounded_operations(free) != []
    assert ".local" not in free
    assert link(free, CAPABILITY)[1].spill_store_bytes == 0


def test_nothing_but_the_benchmark_imports_the_twins():
    users = {module.name for module in modules("strata", "harness") if any("free_order" in name for name in module.imports())}
    assert users == {"strata.bench.gpu.tax"}
