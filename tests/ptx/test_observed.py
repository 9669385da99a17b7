"""Observed windows of the shipped model on a blueprint: what is shown, and that every kernel of theirs can be prepared."""

import importlib.util

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="the package numba-cuda is not installed")
UNSEEN = {"gdn.memory.after", "qsa.keys", "indexer.raw.read"}
ELSEWHERE = {"tokens", "hand_off"}
WINDOWS = ((((0, 0, 3), (1, 0, 1)), False), (((0, 0, 1),), True), (((0, 300, 20),), True), (((0, 600, 300),), True))


def test_all_points_but_three_are_shown_and_programs_are_not_kept():
    from harness.ledger.points import POINTS
    from strata.cli.engine_flags import FIXTURE
    from strata.cuda.card.blueprint import Blueprint
    from strata.cuda.memory.placed import place_stage
    from strata.cuda.stage.executor import CudaExecutor
    from strata.model.model import load_model
    from strata.numerics.rounding import mode_named
    from strata.rows import Segment, Window
    from strata.windows.stage_pass import run_stage
    from tests.gpu.checks_taps import Every

    model, device = load_model(FIXTURE), Blueprint((9, 0))
    placed = place_stage(device, model.weights, model.config, 0, model.config.n_layers)
    executor = CudaExecutor(device, model.config, placed, mode_named("canonical"), "int8", 2, 1024)
    shown: set[str] = set()

    def observe(window, point, layer, values, place):
        """See a point, and change what may be changed: all that is copied back and made once more is prepared too."""
        shown.add(point)
        if values.size and point != "qsa.attended":
            values.reshape(-1).view(np.uint8)[:] ^= 1

    executor.observe, executor.watched = observe, Every()
    for segments, keep in WINDOWS:
        window = Window.of([Segment(slot, start, (1,) * n) for slot, start, n in segments], keep)
        run_stage(executor, window, None)
        if not keep:
            executor.commit(window, np.array([2, 1], np.int32))
    assert shown == set(POINTS) - UNSEEN - ELSEWHERE
    assert executor.graphs.n_captures == 0 and len(device.needed) > 60
