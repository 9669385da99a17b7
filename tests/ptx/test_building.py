"""Filling a folder with several processes, and the list of kernels that a model needs."""

import numpy as np
import pytest

from strata.cuda.card.compiling import why_no_compiler
from tests.ptx.test_kernel_files import CAPABILITY, files, floats, forbid_compiling, scaled

REASON = why_no_compiler()
pytestmark = [pytest.mark.ptx, pytest.mark.skipif(REASON is not None, reason=str(REASON))]


@pytest.mark.parametrize("n_processes", [1, 3])
def test_a_folder_is_filled_and_serves(n_processes, tmp_path, monkeypatch):
    from strata.cuda.card.building import KernelFolder, build

    kernels = [(scaled(np.float32(factor)), floats()) for factor in (1, 2, 3, 4, 1)]
    target, shown = KernelFolder(tmp_path, True, CAPABILITY), []
    built = build(target, kernels, n_processes, lambda *progress: shown.append(progress))
    assert (built.n_wanted, built.n_there, built.n_compiled, built.failures) == (4, 0, 4, ())
    assert built.n_bytes == sum(path.stat().st_size for path in tmp_path.iterdir()) and shown
    again = build(target, kernels, n_processes, lambda *progress: None)
    assert (again.n_there, again.n_compiled, again.n_bytes) == (4, 0, built.n_bytes)
    forbid_compiling(monkeypatch)
    assert files(ready=tmp_path).get(scaled(np.float32(3)), floats(), CAPABILITY).cubin[:4] == b"\x7fELF"


@pytest.mark.parametrize("n_processes", [1, 2])
def test_a_kernel_that_fails_is_named_and_the_others_are_made(n_processes, tmp_path):
    from strata.cuda.card.building import KernelFolder, build

    kernels = [(scaled("no number"), floats()), (scaled(np.float32(2)), floats()), (scaled(np.float32(3)), floats())]
    built = build(KernelFolder(tmp_path, True, CAPABILITY), kernels, n_processes, lambda *progress: None)
    assert built.n_compiled == 2 and len(built.failures) == 1 and "scaled" in built.failures[0]


def test_the_plan_holds_every_kernel_of_windows_that_it_did_not_record():
    from strata.cli.engine_flags import FIXTURE
    from strata.cuda.card.blueprint import Blueprint
    from strata.cuda.memory.placed import place_stage
    from strata.cuda.stage.executor import CudaExecutor
    from strata.model.model import load_model
    from strata.numerics.rounding import mode_named
    from strata.rows import Segment, Window
    from strata.split.kernel_plan import needed_kernels
    from strata.windows.stage_pass import pass_blocks

    model = load_model(FIXTURE)
    config = model.config
    planned = set(needed_kernels(model.weights, config, CAPABILITY, ("f16",), 4, config.context_length, 512))
    assert len(planned) > 100
    device = Blueprint(CAPABILITY)
    for first, last in ((0, 5), (5, config.n_layers)):
        placed = place_stage(device, model.weights, config, first, last)
        executor = CudaExecutor(device, config, placed, mode_named("canonical"), "f16", 4, config.context_length)
        for segments, keep in (
            (((0, 7, 11),), True), (((0, 300, 57),), True), (((1, 0, 300),), True), (((0, 5, 1), (1, 900, 3), (3, 80, 2)), False),
            (((0, 5, 1), (2, 31, 1), (1, 3000, 1)), True), (((0, 3500, 100),), True), (((2, 70, 5),), False),
        ):
            window = Window.of([Segment(slot, start, (0,) * n) for slot, start, n in segments], keep)
            executor.record(window, first == 0, pass_blocks)
    assert device.needed and set(device.needed) <= planned


def test_a_window_runs_on_a_blueprint_and_computes_nothing():
    from strata.cli.engine_flags import FIXTURE
    from strata.cuda.card.blueprint import Blueprint
    from strata.cuda.memory.placed import place_stage
    from strata.cuda.stage.executor import CudaExecutor
    from strata.model.model import load_model
    from strata.numerics.rounding import mode_named
    from strata.rows import Segment, Window
    from strata.windows.stage_pass import run_stage

    model, device = load_model(FIXTURE), Blueprint(CAPABILITY)
    placed = place_stage(device, model.weights, model.config, 0, model.config.n_layers)
    executor = CudaExecutor(device, model.config, placed, mode_named("canonical"), "f16", 2, 256)
    window = Window.of([Segment(0, 0, (1, 2, 3)), Segment(1, 0, (4,))], keep=False)
    logits = run_stage(executor, window, None)
    executor.commit(window, np.array([2, 1], np.int32))
    assert logits.shape == (2, model.config.vocabulary) and not logits.any()
    assert len(device.needed) > 30 and executor.graphs.n_captures == 1


def test_a_blueprint_accounts_what_a_card_would_hold():
    from strata.cuda.card.blueprint import Blueprint

    device = Blueprint(CAPABILITY)
    array = device.empty("rows", 24, np.uint8)
    part = array[8:24].view(np.float32)
    assert (part.size, part.strides, part.dtype) == (4, (4,), np.float32)
    assert part.device_ctypes_pointer.value == array.device_ctypes_pointer.value + 8
    assert array.reshape(2, -1).shape == (2, 12) and device.taken == {"rows": 24}
    assert device.empty("more", 1, np.int8).device_ctypes_pointer.value >= array.device_ctypes_pointer.value + 24
