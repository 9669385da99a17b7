"""Records of different ways of running join by what they are about, and are equal where the engine is exact."""

import numpy as np
import pytest

from harness.ledger.join import compare, keys
from harness.ledger.ledger import Ledger
from harness.ledger.points import POINTS
from harness.ledger.records import NO_PART, read_records
from tests.unit.ledger.ledger_runs import LENGTHS, MAX_NEW, drafted, recorded, requests, run

WAYS = {
    "slots": dict(batch=3),
    "stages": dict(layer_split=(4, 8), split_device=(0, 0)),
    "groups": dict(devices="host,host", layer_split=(6,), batch=4, batch_groups=2),
    "chunks": dict(prefill=4),
    "all": dict(devices="host,host,host", layer_split=(2, 9), batch=3, batch_groups=3, prefill=5),
}
N_ROWS = sum(LENGTHS) + len(LENGTHS) * (MAX_NEW - 1)


@pytest.fixture(scope="module")
def alone():
    return recorded()


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_running_gives_equal_records(alone, way):
    other = recorded(**WAYS[way])
    events = compare(alone, other)
    assert len(events) == 0
    per_row = {name for name in other.names if not POINTS[name].is_state and name != "hand_off"}
    of_rows = sum(int((other.point == i).sum()) for i, name in enumerate(other.names) if name in per_row)
    assert events.n_compared >= of_rows > 100 * N_ROWS


def test_each_engine_of_requests_that_run_alone_has_its_own_ledger(alone):
    ledgers = [Ledger(2, requests={0: number}) for number in range(len(LENGTHS))]
    for request, ledger in zip(requests(), ledgers, strict=True):
        run([request], ledger)
    events = compare(alone, read_records(ledgers))
    assert (len(events), events.n_single) == (0, 0)


def test_requests_under_the_wrong_names_share_no_key(alone):
    ledger = Ledger(2, requests={0: 7, 1: 8, 2: 9})
    assert compare(alone, recorded(ledger=ledger)).n_compared == 0


@pytest.mark.parametrize("pattern", ["right", "wrong", "cycle", "mixed"])
def test_rows_of_verify_windows_join_with_decoded_ones(alone, pattern):
    ledger = Ledger(2)
    batch = run(drafted(pattern), ledger, batch=2)
    assert batch.counters["verify_windows"] > 0
    events = compare(alone, read_records([ledger]))
    assert len(events) == 0
    assert events.n_compared > 100 * N_ROWS


def test_rejected_rows_are_kept_marked_and_share_no_key_with_accepted_ones(alone):
    ledger = Ledger(1)
    batch = run(drafted("wrong"), ledger)
    records = read_records([ledger])
    kept, key = records.of_rows("kept"), keys(records)
    assert batch.counters["rows_rejected"] * 13 <= (~kept).sum()
    assert not set(key[~kept].tolist()) & set(key[kept].tolist())
    assert not set(key[~kept].tolist()) & set(keys(alone).tolist())


def test_right_drafts_leave_no_row_marked():
    ledger = Ledger(0)
    batch = run(drafted("right"), ledger)
    assert batch.counters["drafts_accepted"] > 0
    assert read_records([ledger]).of_rows("kept").all()


def test_experts_are_parts_of_their_row(alone):
    ids, hidden = (alone.names.index(name) for name in ("moe.ids", "moe.hidden"))
    n_used = 6
    assert (alone.point == hidden).sum() == n_used * (alone.point == ids).sum()
    parts = alone.part[alone.point == hidden]
    assert parts.min() >= 0 and parts.max() < 64
    assert (alone.part[alone.point == ids] == NO_PART).all()


def test_another_rounding_mode_differs_first_where_an_expert_has_a_lone_row(alone):
    events = compare(alone, recorded(rounding="grouped", batch=3))
    assert len(events) > 0
    first = events.right.names[events.right.point[events.b[0]]]
    assert first == "moe.hidden"


def test_a_changed_bit_is_one_event(alone):
    other = recorded()
    at = int(np.flatnonzero(other.point == other.names.index("gdn.z"))[40])
    other.hash[at, 0] ^= np.uint64(1)
    events = compare(alone, other)
    assert [(int(b), str(side)) for b, side in zip(events.b, events.side, strict=True)] == [(at, "both")]


@pytest.mark.parametrize(
    ("name", "origin", "back"),
    [("gdn.memory.read", "gdn.memory.after", 1), ("gdn.memory.stored", "gdn.memory.after", 0), ("hand_off", "moe.residual", 0)],
)
def test_a_copy_that_is_not_its_origin_breaks_a_law_in_its_arm(name, origin, back):
    left, right = recorded(), recorded(layer_split=(6,), split_device=(0,))
    (at,) = np.flatnonzero(right.point == right.names.index(name))[[-1]]
    right.hash[at, 1] ^= np.uint64(4)
    events = compare(left, right)
    broken = int(np.flatnonzero(events.side == "right")[0])
    assert events.b[broken] == at
    assert right.names[right.point[events.a[broken]]] == origin
    position = right.of_rows("position")
    assert position[events.a[broken]] == position[at] - back


@pytest.mark.parametrize("name", ["gdn.tail.read", "gdn.tail.stored", "ngram.tail.read", "ngram.tail.stored", "ngram.history.read", "ngram.history.stored"])
def test_every_line_of_a_tail_must_be_what_its_row_gave(name):
    records = recorded()
    mine = np.flatnonzero(records.point == records.names.index(name))
    positions = records.of_rows("position")
    for part in set(records.part[mine].tolist()):
        at = mine[(records.part[mine] == part) & (positions[mine] == positions[mine].max())][0]
        records.hash[at, 0] ^= np.uint64(2)
        events = compare(records, records)
        assert [int(b) for b, side in zip(events.b, events.side, strict=True) if side == "left"] == [at]
        records.hash[at, 0] ^= np.uint64(2)
