"""A team's life: start, idle, close, being dropped, other processes."""

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from strata.cpu_pool.job import THREAD
from strata.cpu_pool.team import Team
from strata.errors import UsageError
from strata.split.devices import usable_cores
from tests.unit.cpu_pool.bodies import scale

ROOT = Path(__file__).parents[3]


def is_right(team) -> bool:
    values, out = np.arange(500), np.zeros(500, np.int64)
    scale(team.control, values, out, 3, 1, False, 7)
    return np.array_equal(out, values * 3 + 1)


def cpu_seconds_over(idle_seconds: float) -> float:
    before = time.process_time()
    time.sleep(idle_seconds)
    return time.process_time() - before


@pytest.mark.parametrize("n_threads", [0, -1, 1025])
def test_a_count_of_threads_out_of_range_is_refused(n_threads):
    with pytest.raises(UsageError, match=f"n_threads={n_threads}"):
        Team(n_threads)


def test_a_team_of_one_starts_no_thread():
    before = threading.active_count()
    with Team(1) as team:
        assert threading.active_count() == before
        assert is_right(team) and team.n_pieces_by_workers == ()


def test_closing_ends_the_threads_and_the_team_still_computes():
    before = threading.active_count()
    team = Team(3)
    assert threading.active_count() == before + 2
    assert is_right(team)
    team.close()
    assert threading.active_count() == before
    assert is_right(team)
    team.close()


def test_an_idle_team_is_closed_at_once_though_its_workers_sleep():
    team = Team(3)
    time.sleep(0.05)
    began = time.monotonic()
    team.close()
    assert time.monotonic() - began < 5


def test_a_dropped_team_stops_its_threads():
    before = threading.active_count()
    team = Team(2)
    assert is_right(team)
    del team
    gc.collect()
    assert threading.active_count() == before


def test_idle_workers_use_no_cpu_time():
    with Team(3) as team:
        assert is_right(team)
        time.sleep(0.02)
        assert cpu_seconds_over(0.3) < 0.03


def test_the_measure_of_cpu_time_notices_workers_that_spin():
    with Team(3, spin_us=10_000_000) as team:
        deadline = time.monotonic() + 10
        while sum(team.n_pieces_by_workers) == 0 and time.monotonic() < deadline:
            assert is_right(team)
        used = cpu_seconds_over(0.3)
        while used <= 0.03 and time.monotonic() < deadline:  # other programs may hold the cores
            used = cpu_seconds_over(0.3)
        assert used > 0.03


def test_pinned_workers_compute_the_same():
    with Team(2, pin=True) as team:
        assert is_right(team)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or usable_cores() < 2, reason="one core")
def test_a_worker_changes_cores_with_a_caller_that_comes_to_its_own():
    allowed = sorted(os.sched_getaffinity(0))[:2]
    try:
        os.sched_setaffinity(0, allowed)
        with Team(2, pin=True) as team:
            thread = int(team.control[THREAD])
            for _ in range(3):
                (own,) = os.sched_getaffinity(thread)
                os.sched_setaffinity(0, {own})
                assert is_right(team)
                assert os.sched_getaffinity(thread) == set(allowed) - {own}
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_child_after_an_os_fork_runs_inline_and_ends():
    with Team(2) as team:
        assert is_right(team)
        child = os.fork()
        if child == 0:
            right = is_right(team)
            team.close()
            os._exit(7 if right else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert is_right(team)


def test_a_forking_kernel_is_loaded_from_the_cache_by_a_second_process_that_leaves_its_team_open(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "STRATA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.unit.cpu_pool.bodies"]
    outputs = []
    for _ in range(2):
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, ended.stderr
        outputs.append(ended.stdout.strip())
    assert outputs == ["0 1 True", "1 0 True"]
