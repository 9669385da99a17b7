"""Buffers of a card: prompt chunks of many sizes, programs whose buffers grew, and what an array takes."""

import pytest

from strata.cuda.card.compiling import why_no_compiler

REASON = why_no_compiler()


@pytest.mark.ptx
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_chunks_are_recorded_once_and_forgotten_when_others_have_come():
    from strata.cuda.card.blueprint import Blueprint
    from strata.cuda.memory.placed import place_stage
    from strata.cuda.stage.executor import CudaExecutor
    from strata.cuda.stage.lanes import MOST_WIDE
    from strata.model.model import load_model
    from strata.numerics.rounding import mode_named
    from strata.rows import Segment, Window
    from strata.windows.stage_pass import pass_blocks
    from tests.unit.model.fixture_files import FOLDER

    model, device = load_model(FOLDER), Blueprint((9, 0))
    placed = place_stage(device, model.weights, model.config, 0, 1)
    executor, recorded = CudaExecutor(device, model.config, placed, mode_named("canonical"), "f16", 1, 256), []

    def blocks(recorder, residual):
        recorded.append(recorder.n)
        return pass_blocks(recorder, residual)

    def read(n_rows: int, start: int = 0) -> None:
        executor.run_window(Window.of([Segment(0, start, (1,) * n_rows)], keep=True), None, blocks)

    read(96)
    before = len(recorded)
    for start in (0, 96):
        read(96, start)
    classes = len(recorded) - before
    assert classes <= 2, "the same chunk in a class of contexts is recorded once"
    for n_rows in range(20, 20 + 2 * MOST_WIDE):
        read(n_rows)
    assert len([purpose for purpose in device.taken if "chunk" in purpose]) == MOST_WIDE
    assert len(executor.programs.by_key) <= MOST_WIDE
    executor.close()
    assert not any("tables" in purpose or "sessions" in purpose or "buffers" in purpose for purpose in device.taken)


@pytest.mark.ptx
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_what_was_recorded_on_buffers_that_grew_is_freed_at_once():
    import gc
    import weakref

    from strata.cuda.card.blueprint import Blueprint
    from strata.cuda.memory.placed import place_stage
    from strata.cuda.stage import executor as room
    from strata.model.model import load_model
    from strata.numerics.rounding import mode_named
    from strata.rows import Segment, Window
    from strata.windows.stage_pass import pass_blocks
    from tests.unit.model.fixture_files import FOLDER

    model, device = load_model(FOLDER), Blueprint((9, 0))
    placed = place_stage(device, model.weights, model.config, 0, 2)
    executor, recorders = room.CudaExecutor(device, model.config, placed, mode_named("canonical"), "f16", 1, 256), []

    def blocks(recorder, residual):
        recorders.append(weakref.ref(recorder))
        return pass_blocks(recorder, residual)

    gc.collect()
    gc.disable()
    try:
        for n_rows in (1, 16, 200):
            executor.run_window(Window.of([Segment(0, 0, (1,) * n_rows)], keep=True), None, blocks)
        assert len(recorders) > 3, "buffers grew while windows were recorded"
        assert [one() for one in recorders] == [None] * len(recorders)
        assert [key[1] for key in executor.programs.by_key] == [200]
    finally:
        gc.enable()


@pytest.mark.ptx
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize(("wanted", "taken"), [(0, 512), (1, 512), (513, 1024), ((1 << 20) - 1, 1 << 20), (1 << 20, 1 << 21), ((1 << 21) + 1, 1 << 22)])
def test_an_array_takes_whole_pages_from_a_mebibyte_on(wanted, taken):
    from strata.cuda.card.device import allocated_bytes

    assert allocated_bytes(wanted) == taken
