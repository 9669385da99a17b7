"""Recording: what a ledger takes, what a filter leaves out, and that observation changes nothing."""

import numpy as np
import pytest

from harness.ledger.filters import Only
from harness.ledger.ledger import Ledger
from harness.ledger.points import points_of_level
from harness.ledger.records import read_records
from strata.errors import SeenEnough
from strata.numerics.hashing import row_hashes
from strata.split.probes import Probes, SilentProbe
from tests.unit.ledger.ledger_runs import LENGTHS, MAX_NEW, drafted, recorded, requests, run

PIPELINED = dict(devices="host,host", layer_split=(6,), batch=4, batch_groups=2)


def bits(batch) -> list:
    return [(e.position, e.pick, e.row.digest) for answer in batch.answers for e in answer.emitted]


def contents(records, chosen) -> list:
    """What records say, without the order in which they came."""
    columns = (records.of_rows("prefix"), records.layer, records.part, records.hash[:, 0])
    return sorted(zip(*(column[chosen].tolist() for column in columns), strict=True))


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("settings", [dict(), PIPELINED, dict(kv="int8", prefill=4, batch=2)], ids=["plain", "pipelined", "int8-chunks"])
def test_a_ledger_changes_no_bit(level, settings):
    assert bits(run(requests(), Ledger(level), **settings)) == bits(run(requests(), **settings))


def test_a_ledger_changes_no_bit_of_windows_that_roll_back():
    plain, watched = run(drafted("mixed"), batch=2), run(drafted("mixed"), Ledger(2), batch=2)
    assert bits(plain) == bits(watched)
    assert plain.counters == watched.counters


def test_the_logits_recorded_are_those_of_the_answers():
    ledger = Ledger(0)
    batch = run(requests(), ledger, batch=3)
    records = read_records([ledger])
    got = {(r, p): f"{a:016x}{b:016x}" for r, p, (a, b) in zip(records.of_rows("request").tolist(), records.of_rows("position").tolist(), records.hash.tolist(), strict=True)}
    assert got == {(i, e.position): e.row.digest for i, answer in enumerate(batch.answers) for e in answer.emitted}


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_level_shows_its_points_only(level):
    assert set(recorded(level=level).names) <= points_of_level(level)


def test_filters_leave_exactly_what_they_name():
    only = Only(frozenset({2}), (3, 13), frozenset({5, 7}), frozenset({"gdn.scan", "moe.hidden", "qsa.k_codes.read"}))
    whole, part = recorded(batch=3), recorded(batch=3, ledger=Ledger(2, only))
    wanted = (whole.of_rows("request") == 2) & (whole.of_rows("position") >= 3) & (whole.of_rows("position") <= 13)
    wanted &= np.isin(whole.layer, [5, 7]) & np.isin(whole.point, [whole.names.index(name) for name in only.points])
    assert wanted.sum() > 30
    assert contents(part, slice(None)) == contents(whole, wanted)


@pytest.mark.parametrize("settings", [dict(batch=3), dict(batch=3, prefill=4), PIPELINED], ids=["slots", "chunks", "pipelined"])
def test_a_run_ends_when_all_that_is_wanted_has_passed(settings):
    only = Only(frozenset({1}), (2, 5))
    whole = recorded(ledger=Ledger(1, only), **settings)
    ledger = Ledger(1, only, may_stop=True)
    with pytest.raises(SeenEnough):
        run(requests(), ledger, **settings)
    assert np.array_equal(np.sort(read_records([ledger]).hash[:, 0]), np.sort(whole.hash[:, 0]))


def test_a_filter_that_the_run_never_passes_ends_with_the_run():
    run(requests(), Ledger(1, Only(frozenset({1}), (2, 300)), may_stop=True))


def test_elements_hash_to_what_is_recorded():
    only = Only(frozenset({0}), (8, 10), frozenset({1, 3, 5}))
    records = recorded(ledger=Ledger(3, only), batch=2, kv="int8")
    names = [records.names[i] for i in records.point]
    hashed = [i for i, name in enumerate(names) if name not in ("gdn.memory.after", "tokens")]
    assert sorted(records.elements) == hashed
    for record in hashed:
        values = records.elements[record].values
        assert np.array_equal(row_hashes(values.reshape(1, -1))[0], records.hash[record]), names[record]


def test_stages_are_told_apart_beside_the_key():
    records = recorded(level=1, devices="host,host", layer_split=(6,))
    stages = records.of_rows("position"), records.owner
    assert set(stages[1].tolist()) == {0, 1}
    assert [(stage.device, stage.first, stage.last) for stage in records.stages] == [("host[0]", 0, 6), ("host[1]", 6, 12)]


def test_probes_in_a_row_each_see_what_they_want():
    class Counting(SilentProbe):
        def __init__(self, *points):
            self.points, self.seen, self.begun = frozenset(points), [], 0

        def began(self, stage, window):
            self.begun += 1

        def see(self, stage, window, point, layer, values, place):
            self.seen.append(point)

    first, second = Counting("embed"), Counting("embed", "logits")
    run(requests(), Probes([first, second]))
    n_windows = len(LENGTHS) * MAX_NEW
    assert (first.begun, second.begun) == (n_windows, n_windows)
    assert first.seen == ["embed"] * n_windows
    assert second.seen == ["embed", "logits"] * n_windows
