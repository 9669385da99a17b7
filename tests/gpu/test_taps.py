"""Cards that are looked at: the ledger between host and card, and faults planted on a card that the search finds."""

from dataclasses import replace

import pytest

from harness.arms import Arm
from harness.faults.ulp import UlpFault, Where
from harness.ledger.join import compare
from harness.ledger.ledger import Ledger
from harness.ledger.records import read_records
from harness.locate.finding import LOCATED
from harness.locate.passes import Passes
from harness.locate.search import locate
from harness.suites.contract import Case
from strata.split.probes import Probes
from tests.gpu.checks_taps import HOST_ONLY
from tests.unit.ledger import ledger_runs
from tests.unit.ledger.ledger_runs import drafted, recorded, requests

CARD = {"devices": "cuda:0"}


@pytest.mark.parametrize("level", (1, 2))
@pytest.mark.parametrize(
    "settings", [CARD, {**CARD, "batch": 3}, {**CARD, "prefill": 7}, {**CARD, "kv": "int8"}, {"devices": "cuda:0,host", "layer_split": (6,)}]
)
def test_a_card_and_the_host_record_the_same(settings, level):
    host = recorded(level=level, **({"kv": settings["kv"]} if "kv" in settings else {}))
    card = recorded(level=level, **settings)
    events = compare(host, card)
    assert len(events) == 0 and events.n_compared > (19_000 if level == 2 else 300)
    if level == 2:
        assert set(host.names) - set(card.names) <= HOST_ONLY | {"indexer.pooled.read", "indexer.scores", "indexer.cells"}
    assert set(card.names) - set(host.names) <= {"hand_off"}


def test_a_long_prompt_shows_the_selection_of_cells():
    host, card = (recorded(requests((300,)), **settings) for settings in ({}, CARD))
    assert len(compare(host, card)) == 0
    assert {"indexer.pooled.read", "indexer.scores", "indexer.cells"} <= set(card.names)
    assert set(host.names) - set(card.names) <= HOST_ONLY


def test_rows_of_verify_windows_and_commits_are_the_hosts():
    asked = drafted("mixed")
    host, card = recorded(asked), recorded(asked, **CARD)
    assert {"gdn.memory.stored", "ngram.history.stored"} <= set(card.names)
    assert len(compare(host, card)) == 0


@pytest.mark.parametrize(
    "where",
    [
        Where("gdn.scan", layer=5, position=9), Where("attention.mixed", layer=2, position=13), Where("moe.hidden", layer=4, position=8, most=1),
        Where("qsa.k_codes.stored", layer=3, position=4), Where("gdn.memory.read", layer=6, position=13),
    ],
    ids=lambda where: where.point,
)
def test_a_fault_of_one_last_place_on_a_card_is_located(where):
    case = ledger_runs.case()
    case = Case("card", case.workload, case.left, Arm("card", replace(case.left.settings, **CARD, batch=2)), ())
    finding = locate(Passes(ledger_runs.shipped()[0], case, where), deep=True)
    assert finding.verdict == LOCATED and finding.n_planted > 0
    assert (finding.cause.point, finding.cause.layer, finding.cause.position) == (where.point, where.layer, where.position)
    assert finding.cause.element.ulps == 1


def test_a_change_is_computed_with():
    """The same fault on the host and on a card: all records are equal, the changed ones and what follows."""
    found = []
    for settings in ({}, CARD):
        ledger, fault = Ledger(2), UlpFault(Where("gdn.scan", layer=5, position=6))
        ledger_runs.run(requests(), Probes([fault, ledger]), **settings)
        assert fault.n_flips > 0
        found.append(read_records([ledger]))
    assert len(compare(*found)) == 0 and len(compare(found[1], recorded())) > 0
