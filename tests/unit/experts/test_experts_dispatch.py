"""Dispatch: first-appearance order, who serves which expert, where entries land; against a plain second way to say it."""

import numpy as np
import pytest

from strata.experts.dispatch import dispatch, share_of
from strata.experts.residency import ABSENT

E, K = 12, 3


def plainly(ids, resident, fetchable, share, room):
    """(cached, fetched, jobs): lists of experts, in plain Python."""
    order = list(dict.fromkeys(int(e) for e in ids.reshape(-1)))
    missed = [e for e in order if e not in resident]
    last = missed[len(missed) - len(missed) * share // 256 :]
    fetched = [e for e in last if fetchable[e]][:room]
    return [e for e in order if e in resident], fetched, [e for e in missed if e not in fetched]


def drawn(seed: int):
    """ids [rows, K] without repeats in a row, a residency, what may be fetched, a share and the ring's room."""
    draw = np.random.default_rng(seed)
    ids = np.stack([draw.permutation(E)[:K] for _ in range(draw.integers(1, 9))]).astype(np.int32)
    slot_of = np.full(E, ABSENT, np.int32)
    resident = draw.permutation(E)[: draw.integers(0, E + 1)]
    slot_of[resident] = 100 + draw.permutation(len(resident))
    return ids, slot_of, draw.random(E) < 0.8, share_of(draw.random()), int(draw.integers(0, 5))


@pytest.mark.parametrize("seed", range(60))
def test_a_plan_is_what_the_rule_says(seed):
    ids, slot_of, fetchable, share, room = drawn(seed)
    plan = dispatch(ids, slot_of, fetchable, share, room)
    cached, fetched, jobs = plainly(ids, set(np.flatnonzero(slot_of >= 0)), fetchable, share, room)
    assert plan.experts.tolist() == cached + fetched + jobs
    assert (plan.n_cached, plan.n_fetched, plan.n_jobs) == (len(cached), len(fetched), len(jobs))
    assert plan.places.tolist() == [*slot_of[cached], *range(len(fetched)), *jobs]


@pytest.mark.parametrize("seed", range(60))
def test_every_entry_lies_with_its_expert_and_names_its_row(seed):
    ids, slot_of, fetchable, share, room = drawn(seed)
    plan = dispatch(ids, slot_of, fetchable, share, room)
    expert_of = np.repeat(plan.experts, np.diff(plan.starts))
    assert sorted(plan.entry_of.reshape(-1)) == list(range(ids.size))
    for (row, rank), entry in np.ndenumerate(plan.entry_of):
        assert (expert_of[entry], plan.rows[entry]) == (ids[row, rank], row)
    assert sum(plan.entries_by_place()) == ids.size
    assert all((np.diff(plan.rows[a:b]) > 0).all() for a, b in zip(plan.starts, plan.starts[1:], strict=False)), "rows ascend within a job"


def test_the_share_is_taken_from_the_last_missed_ones():
    ids = np.array([[0, 1, 2], [3, 4, 5]], np.int32)
    slot_of = np.full(E, ABSENT, np.int32)
    plan = dispatch(ids, slot_of, np.ones(E, np.bool_), share_of(0.55))
    assert plan.n_fetched == 6 * 141 // 256 == 3
    assert plan.experts.tolist() == [3, 4, 5, 0, 1, 2]


@pytest.mark.parametrize(("fraction", "share"), [(0.0, 0), (0.2, 51), (0.55, 141), (1.0, 256)])
def test_shares_are_256ths(fraction, share):
    assert share_of(fraction) == share


def test_a_ring_without_room_leaves_everything_to_the_pool():
    plan = dispatch(np.array([[0, 1, 2]], np.int32), np.full(E, ABSENT, np.int32), np.ones(E, np.bool_), 256, 0)
    assert (plan.n_cached, plan.n_fetched, plan.n_jobs) == (0, 0, 3)
