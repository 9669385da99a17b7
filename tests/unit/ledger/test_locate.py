"""The search names the operation, layer, position and element of what was planted, and says so when there is nothing."""

import pytest

from harness.faults.ulp import Where
from harness.ledger.points import TABLE
from harness.locate.finding import DIFFERS, EQUAL, HAND_OFF, LOCATED, OPERATION, RACE, STATE, UNJUDGED
from harness.locate.passes import Passes
from harness.locate.search import locate
from strata.batch.engine import Engine
from tests.unit.ledger.ledger_runs import case, shipped

REQUEST, POSITION = 1, 8
"""The second request's second decoded row, in company."""


def found(where: Where | None, deep: bool = False, **arms):
    return locate(Passes(shipped()[0], case(**arms), where), deep)


def planted(point: str, layer: int = 5, **conditions) -> Where:
    return Where(point, **{"layer": layer, "position": POSITION, "request": REQUEST, "most": 1, **conditions})


def assert_names(finding, where: Where, kind: str) -> None:
    """The finding is exact: everything that the fault's description says, one unit in the last place, inputs equal."""
    cause = finding.cause
    assert (finding.verdict, finding.exit_code) == (LOCATED, 1), finding.reason
    assert (cause.point, cause.layer, cause.position, cause.request, cause.kind) == (where.point, where.layer, where.position, where.request, kind)
    assert where.part in (None, cause.part)
    assert (cause.element.ulps, cause.element.n_differing) == (1, 1)
    assert int(cause.element.left_bits, 16) ^ int(cause.element.right_bits, 16) == 1
    assert {state.state for state in cause.inputs} <= {"equal", "not recorded"}
    assert len(finding.passes) <= 5
    assert finding.n_planted >= 1


def test_a_fault_in_an_early_row_of_the_prompt_is_named_there():
    where = planted("gdn.beta", 2, position=1)
    assert_names(found(where), where, OPERATION)


def test_a_fault_that_only_windows_with_company_have_is_named_at_the_first_of_them():
    where = Where("moe.output", layer=4, min_segments=2, request=REQUEST)
    cause = found(where).cause
    assert (cause.point, cause.layer, cause.request, cause.position) == ("moe.output", 4, REQUEST, 7)
    assert (len(cause.left.company), len(cause.right.company)) == (1, 2)
    assert [(s.request, s.position, s.slot) for s in cause.right.company] == [(0, 12, 0), (1, 7, 1)]


def test_a_fault_of_one_stage_is_named_with_its_device():
    where = Where("gdn.gated", stage=1, request=0, position=3)
    cause = found(where, split_device=None, devices="host,host").cause
    assert (cause.point, cause.layer, cause.right.device, cause.right.stage, cause.right.layers) == ("gdn.gated", 6, "host[1]", 1, "6-11")
    assert (cause.left.device, cause.left.stage, cause.left.layers) == ("host[0]", 0, "0-11")


def test_the_expert_of_a_fault_is_named():
    finding = found(planted("moe.hidden.codes", 6))
    assert finding.cause.part_words == f"expert {finding.cause.part}"


def test_a_fault_of_chunks_is_named_by_the_state_that_only_one_arm_stores():
    where = planted("gdn.memory.read", 5, request=0, position=8)
    finding = found(where, batch=1, prefill=4)
    assert_names(finding, where, RACE)
    assert (finding.cause.sides, finding.cause.broken_in, finding.cause.left) == ("right", ("right",), None)
    assert (finding.cause.origin, finding.cause.origin_position) == ("gdn.memory.after", 7)


def test_state_that_was_stored_wrong_in_the_middle_of_a_prompt_is_named_without_its_element():
    finding = found(planted("gdn.memory.stored", 5, request=0, position=7), batch=1, prefill=4)
    assert (finding.cause.point, finding.cause.position, finding.cause.kind) == ("gdn.memory.stored", 7, STATE)
    assert finding.cause.element is None


def test_equal_arms_are_equal_at_every_level():
    finding = found(None)
    assert (finding.verdict, finding.exit_code) == (EQUAL, 0)
    assert [note.level for note in finding.passes] == [1, 2]
    assert finding.passes[1].n_compared > 30 * finding.passes[0].n_compared > 1000


def test_a_deep_search_needs_two_passes():
    where = planted("qsa.k", 7)
    finding = found(where, deep=True)
    assert_names(finding, where, OPERATION)
    assert [note.level for note in finding.passes] == [2, 3]


def test_a_fault_that_meets_no_row_is_not_judged():
    finding = found(planted("gdn.scan", 7))
    assert (finding.verdict, finding.exit_code) == (UNJUDGED, 2)
    assert "gdn.scan:layer=7" in finding.reason


def test_tokens_that_differ_though_no_operation_does_are_sought_behind_the_head(monkeypatch):
    generate = Engine.generate

    def swapped(engine, requests):
        batch = generate(engine, requests)
        if len(requests) == 2:
            object.__setattr__(batch, "answers", batch.answers[::-1])
        return batch

    monkeypatch.setattr(Engine, "generate", swapped)
    finding = found(None)
    assert (finding.verdict, finding.exit_code, finding.cause) == (DIFFERS, 1, None)
    assert "behind the head" in finding.reason


def test_the_first_token_that_differs_comes_with_its_margin():
    finding = found(Where("moe.ids", request=REQUEST), max_new=12)
    (difference,) = finding.tokens
    assert difference.request == REQUEST
    assert difference.token.left.token != difference.token.right.token
    assert difference.token.left.margin > 0


HASHED = ("tokens", "gdn.memory.after")
"""Points that are shown as hashes, or not at all: nothing there to flip."""
SCORED = ("indexer.pooled.read", "indexer.scores")
"""Points that have records only behind more cells than the selection takes."""


def place_of(point) -> Where:
    """A place where a point has a record, in a layer of its kind."""
    layer = -1 if point.where != "layer" else 1 if point.name.startswith("ngram") else 6 if point.name == "hand_off" else 5
    layer = 7 if point.name.startswith(("qsa", "indexer")) else layer
    completes_block = point.name in ("indexer.raw.read", "indexer.pooled.stored")
    position = 265 if point.name in SCORED else 11 if completes_block else POSITION
    return planted(point.name, layer, position=position, part=1 if "tail" in point.name or "history" in point.name else None)


@pytest.mark.parametrize("point", [point for point in TABLE if point.name not in HASHED], ids=lambda point: point.name)
def test_one_unit_in_the_last_place_is_named_at_every_point(point):
    where = place_of(point)
    kind = {"hand_off": HAND_OFF}.get(point.name, RACE if point.name.endswith(".read") else STATE if point.is_state else OPERATION)
    lengths = (9, 264) if point.name in SCORED else (12, 7)
    assert_names(found(where, lengths=lengths, max_new=6, left=dict(kv="int8"), kv="int8"), where, kind)
