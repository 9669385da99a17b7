"""Memory of whole engines on a card: what is predicted, what the driver reports, and that nothing is left behind."""

import gc

import pytest

MOST_APART = 0.03
MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def model():
    from strata.model.model import load_model
    from tests.unit.model.fixture_files import FOLDER

    return load_model(FOLDER)


def test_predicted_and_reported_memory_of_an_engine_agree(model):
    from strata.batch.engine import Engine
    from strata.batch.requests import Request
    from strata.batch.settings import EngineSettings

    with Engine(model, EngineSettings(devices="cuda:0", batch=4)) as engine:
        engine.generate([Request(tuple(range(1, 80 + i)), 12) for i in range(4)])
        device = engine.stages[0].executor.device
        memory = device.memory()
        largest = sorted(device.taken.items(), key=lambda item: -item[1])[:6]
        print(f"predicted {memory.taken_bytes:,} reported {memory.reported_bytes:,}", largest)
        assert device.taken["kernels"] > 0
        assert abs(memory.taken_bytes - memory.reported_bytes) <= MOST_APART * memory.reported_bytes


def test_a_session_opened_and_closed_1000_times_leaks_nothing(model):
    from strata.cuda.device import CudaDevice
    from strata.cuda.executor import CudaExecutor
    from strata.cuda.placed import place_stage
    from strata.numerics.rounding import mode_named
    from strata.rows import Segment, Window
    from strata.windows.stage_pass import pass_blocks

    device = CudaDevice(0)
    placed = place_stage(device, model.weights, model.config, 0, model.config.n_layers)

    def opened_and_closed(with_windows: bool) -> None:
        executor = CudaExecutor(device, model.config, placed, mode_named("canonical"), "f16", 2, 256)
        if with_windows:
            for start, keep in ((0, True), (1, False), (1, True)):
                window = Window.of([Segment(0, start, (5,), 1)], keep=keep)
                executor.run_window(window, None, pass_blocks)
                if not keep:
                    executor.abandon(window)
        executor.close()

    for i in range(3):
        opened_and_closed(True)
    gc.collect()
    before, taken = device.memory(), dict(device.taken)
    for i in range(1000):
        opened_and_closed(i % 50 == 0)
    gc.collect()
    after = device.memory()
    print(f"reported before {before.reported_bytes:,}, after 1,000 sessions {after.reported_bytes:,}")
    assert {k: v for k, v in device.taken.items() if k != "graphs"} == {k: v for k, v in taken.items() if k != "graphs"}
    assert after.reported_bytes - before.reported_bytes < 2 * MEBIBYTE
    device.close()
