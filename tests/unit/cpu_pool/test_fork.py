"""Fork and join: each item exactly once, whatever the threads, the sizes and the company."""

import threading

import numpy as np
import pytest

from strata.cpu_pool.job import CODE, GRAIN, N_PIECES, ONE_UNCLAIMED, STATE
from strata.cpu_pool.team import Team
from tests.unit.cpu_pool.bodies import (
    count_rows, hammer, note_ranges, scale, try_to_claim, try_to_run, work_slowly,
)

GUARD = 16


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda n: f"{n} threads")
def team(request):
    with Team(request.param) as team:
        yield team


@pytest.mark.parametrize("grain", [1, 3, 64, 10_000])
@pytest.mark.parametrize("n_items", [0, 1, 2, 63, 1000])
def test_every_item_is_run_exactly_once_and_nothing_beside(team, n_items, grain):
    random = np.random.default_rng(n_items * 7 + grain)
    values = random.integers(-1000, 1000, n_items)
    out = np.full(n_items + 2 * GUARD, 5, np.int64)
    scale(team.control, values, out[GUARD:GUARD + n_items], 3, 2, True, grain)
    expected = np.full_like(out, 5)
    expected[GUARD:GUARD + n_items] = -(5 + values * 3 + 2)
    assert np.array_equal(out, expected)


def test_the_comparison_notices_an_item_that_was_run_twice(team):
    values, out = np.arange(100), np.zeros(100, np.int64)
    scale(team.control, values, out, 1, 1, False, 8)
    scale(team.control, values[:1], out[:1], 1, 1, False, 8)
    assert not np.array_equal(out, values + 1)


@pytest.mark.parametrize("grain", [-4, 0, 1, 7, 100, 1000])
def test_ranges_start_at_multiples_of_the_grain(team, grain):
    begins, ends = np.full(100, -1, np.int64), np.full(100, -1, np.int64)
    note_ranges(team.control, begins, ends, grain)
    used = max(grain, 1)
    assert np.array_equal(begins, np.arange(100) // used * used)
    assert np.array_equal(ends, np.minimum(begins + used, 100))


def test_ten_thousand_forks_with_changing_arguments_lose_nothing(team):
    counts = np.zeros(6, np.int64)
    hammer(team.control, counts, 10_000, 4)
    even, odd = sum(range(0, 10_000, 2)), sum(range(1, 10_000, 2))
    assert counts.tolist() == [even + odd] * 4 + [even] * 2


def test_a_fork_inside_a_fork_runs_inline(team):
    counts = np.zeros((9, 11), np.int64)
    count_rows(team.control, counts)
    assert np.array_equal(counts, np.ones((9, 11), np.int64))


def test_many_python_threads_may_fork_on_one_team_together(team):
    results = [np.zeros(6, np.int64) for _ in range(6)]
    submitters = [threading.Thread(target=hammer, args=(team.control, result, 3000, 4)) for result in results]
    for submitter in submitters:
        submitter.start()
    for submitter in submitters:
        submitter.join(60)
    even, odd = sum(range(0, 3000, 2)), sum(range(1, 3000, 2))
    assert [result.tolist() for result in results] == [[even + odd] * 4 + [even] * 2] * 6


def test_results_do_not_depend_on_the_number_of_threads():
    results = []
    for n_threads in (1, 2, 3):
        counts = np.arange(40)
        with Team(n_threads) as team:
            work_slowly(team.control, counts, 20_000)
        results.append(counts)
    assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])
    assert not np.array_equal(results[0], np.arange(40))


def test_workers_take_their_share_of_a_long_job():
    with Team(2) as team:
        for _ in range(20):
            work_slowly(team.control, np.arange(64), 100_000)
            if sum(team.n_pieces_by_workers) > 0:
                break
        assert team.n_pieces_by_workers[0] > 0


@pytest.mark.parametrize("n_running", [0, 1, 3])
def test_a_worker_that_comes_late_touches_neither_function_nor_arguments(n_running):
    with Team(1) as team:
        team.control[STATE] = n_running
        team.control[CODE:N_PIECES + 1] = 8  # an address that would end the process
        assert try_to_run(team.control) == 0
        assert team.control[STATE] == n_running


def test_a_claim_takes_one_piece_and_counts_as_running():
    with Team(1) as team:
        team.control[STATE], team.control[GRAIN] = 2 * ONE_UNCLAIMED + 1, 1
        assert (try_to_claim(team.control), team.control[STATE]) == (2, ONE_UNCLAIMED + 2)
        assert (try_to_claim(team.control), team.control[STATE]) == (1, 3)
        assert (try_to_claim(team.control), team.control[STATE]) == (0, 3)
