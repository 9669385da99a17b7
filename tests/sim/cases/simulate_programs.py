"""Programs of windows of the shipped model, recorded but not run: which launches there are, and which may start early."""

import numpy as np
import pytest

from strata.batch.engine import Engine
from strata.batch.settings import EngineSettings
from strata.cuda.card.launch import Launch
from strata.windows.stage_pass import run_stage
from tests.gpu.geometry import window_of
from tests.unit.harness.scopes import shipped


def recorded(monkeypatch, *windows) -> list[list[Launch]]:
    """Return the launches sent for each window; nothing is computed."""
    sent: list[Launch] = []
    monkeypatch.setattr(Launch, "go", lambda self, stream=None: sent.append(self))
    programs = []
    with Engine(shipped()[0], EngineSettings(devices="cuda:0", batch=8, context=1024, pipelined=False)) as engine:
        executor = engine.stages[0].executor
        for window in windows:
            sent.clear()
            run_stage(executor, window, None)
            programs.append(list(sent))
            if not window.keep:
                executor.commit(window, np.array([1] * len(window.segments), np.int32))
    return programs


def names(program) -> list[str]:
    return [launch.dispatcher.fn.__qualname__.split(".")[0] for launch in program]


@pytest.mark.parametrize("keep", [True, False])
def test_all_launches_of_a_decode_window_but_the_first_may_start_early(keep, monkeypatch):
    windows = [window_of(*((slot, 3, 1) for slot in range(n)), keep=keep) for n in (1, 2, 5, 8)] + [window_of((0, 3, 4), keep=keep)]
    for program in recorded(monkeypatch, *windows):
        assert [launch.programmatic for launch in program] == [False] + [True] * (len(program) - 1)


def test_a_prompt_chunk_is_sent_launch_by_launch(monkeypatch):
    (program,) = recorded(monkeypatch, window_of((0, 0, 20)))
    assert not any(launch.programmatic for launch in program)
    assert "prepare_kernel" in names(program) and "window_scan_kernel" not in names(program)


@pytest.mark.parametrize("n_rows", [1, 4])
def test_a_stream_read_takes_three_launches_and_the_delta_net_three(n_rows, monkeypatch):
    (program,) = recorded(monkeypatch, window_of((0, 3, n_rows)))
    floats = "float_one_row" if n_rows == 1 else "wide_rows"
    wanted = ["stream_kernel", floats, "read_mix_kernel", "joined_rows", "window_scan_kernel", "dense_rows"]
    assert names(program)[1 : 1 + 3 * len(wanted) // 2] == wanted + wanted[:3]
