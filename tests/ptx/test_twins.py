"""The twins with a free order compile, differ from the kernels of the contract, and nothing but the benchmark can reach them."""

from types import SimpleNamespace

import pytest

from strata.cuda.card.compiling import compile_ptx, link, why_no_compiler
from tests.ptx.catalogue import _signature
from tests.ptx.compiled import unrounded_operations
from tests.repo.source import modules

REASON = why_no_compiler()
CAPABILITY = (9, 0)
N_OUT, N_IN = 10240, 2560
WORDS = {"uint8": "u8", "int8": "i8", "int32": "i32", "float32": "f32"}


class Array:
    """An array of a card that is not there: a type."""

    def __init__(self, dtype: str) -> None:
        self.dtype, self.size = dtype, 0


class Noted:
    """What is left of a launch where no card is: its kernel, shape and the types of its arguments."""

    def __init__(self, device, dispatcher, shape, arguments, programmatic: bool = False) -> None:
        self.dispatcher, self.shape = dispatcher, shape
        self.signature = _signature(" ".join(WORDS[str(a.dtype)] if isinstance(a, Array) else {"int32": "I", "int64": "L"}[str(a.dtype)] for a in arguments))


def pair(monkeypatch, n_rows: int) -> tuple[Noted, Noted]:
    """Return the launch of a packed product, and its twin."""
    from strata.bench.gpu.free_order import Freer
    from strata.cuda.machine.seam import target_of
    from strata.cuda.packed import products

    monkeypatch.setattr(products, "Launch", Noted)
    device = SimpleNamespace(target=target_of(CAPABILITY), card=SimpleNamespace(capability=CAPABILITY, multiprocessors=132))
    matrix = products.Packed(Array("uint8"), 12, N_OUT, N_IN)
    coded = products.Coded(Array("int8"), Array("int8"), Array("float32"), Array("int32"), n_rows, N_IN)
    arguments = (device, matrix, coded, n_rows, Array("float32"))
    return products.dense(*arguments), Freer().of(products.dense)(*arguments)


@pytest.mark.ptx
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize("n_rows", [1, 512])
def test_a_twin_of_a_packed_product_has_a_free_order_and_its_kernel_has_not(n_rows, monkeypatch):
    ours, twin = pair(monkeypatch, n_rows)
    assert (ours.shape, ours.signature) == (twin.shape, twin.signature)
    assert twin.dispatcher.py_func.__module__ == "strata.bench.gpu.free_order" != ours.dispatcher.py_func.__module__
    assert twin.dispatcher.targetoptions["launch_bounds"] == ours.dispatcher.targetoptions["launch_bounds"]
    contract, free = (compile_ptx(launch.dispatcher, launch.signature, CAPABILITY) for launch in (ours, twin))
    assert unrounded_operations(contract) == []
    assert unrounded_operations(free) != []
    assert ".local" not in free
    assert link(free, CAPABILITY)[1].spill_store_bytes <= link(contract, CAPABILITY)[1].spill_store_bytes


@pytest.mark.ptx
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_the_twin_of_a_float_product_has_a_free_order():
    from strata.bench.gpu.free_order import free_one_row
    from strata.cuda.machine.seam import target_of

    free = compile_ptx(free_one_row("BF16", 10240, target_of(CAPABILITY)), _signature("u8 I f32 f32"), CAPABILITY)
    assert unrounded_operations(free) != [] and ".local" not in free


def test_a_function_that_uses_nothing_of_the_arithmetic_is_not_copied():
    if REASON is not None:
        pytest.skip(REASON)
    from strata.bench.gpu.free_order import Freer
    from strata.cuda.packed import products, rows

    assert Freer().of(rows.grid_of) is rows.grid_of
    freer = Freer()
    assert freer.of(products.dense) is freer.of(products.dense) is not products.dense


def test_nothing_but_the_benchmark_imports_the_twins():
    users = {module.name for module in modules("strata", "harness") if any("free_order" in name for name in module.imports())}
    assert users == {"strata.bench.gpu.tax"}
