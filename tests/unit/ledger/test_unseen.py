"""Operations that an arm does not show: those between a point and the last ones that both arms recorded are named."""

from types import SimpleNamespace

import pytest

from harness.ledger.filters import Only
from harness.ledger.ledger import Ledger
from harness.ledger.points import POINTS, point_named
from harness.locate.search import Search
from harness.locate.unseen import unseen_before
from tests.unit.ledger.ledger_runs import recorded

GDN_LAYER, QSA_LAYER = 4, 3


@pytest.fixture(scope="module")
def whole():
    return recorded()


def without(*names: str):
    return recorded(ledger=Ledger(2, Only(points=frozenset(POINTS) - set(names))))


def test_what_both_arms_show_leaves_nothing_unseen(whole):
    for name in ("gdn.gated", "qsa.attended", "moe.output", "moe.residual", "indexer.pooled.read"):
        for layer in (GDN_LAYER, QSA_LAYER):
            assert unseen_before(point_named(name), layer, whole, whole) == ()


def test_a_chain_of_unseen_operations_is_named_in_order_of_dataflow(whole):
    other = without("gdn.conv", "gdn.scan", "gdn.memory.after")
    assert unseen_before(point_named("gdn.gated"), GDN_LAYER, whole, other) == (
        f"gated delta net: convolution and norms of q and k, layer {GDN_LAYER}",
        f"gated delta net: recurrent memory after the row, layer {GDN_LAYER}",
        f"gated delta net: recurrent scan, layer {GDN_LAYER}",
    )
    assert unseen_before(point_named("gdn.output"), GDN_LAYER, whole, other) == ()


def test_it_does_not_matter_which_arm_shows_less(whole):
    other = without("qsa.keys")
    point = point_named("qsa.k_codes.stored")
    assert unseen_before(point, QSA_LAYER, whole, other) == unseen_before(point, QSA_LAYER, other, whole)
    assert unseen_before(point, QSA_LAYER, other, whole) == (f"sparse attention: norm and rotation of the keys, layer {QSA_LAYER}",)


def search_on(*devices: str) -> Search:
    """A search whose last pass had these devices."""
    search = Search(SimpleNamespace(case=None))
    stages = [SimpleNamespace(stages=(SimpleNamespace(device=device),)) for device in devices]
    search._done.append(SimpleNamespace(events=SimpleNamespace(left=stages[0], right=stages[1])))
    return search


def test_the_reason_names_the_unseen_and_the_card():
    cause = SimpleNamespace(words="norm and gate, layer 5", unseen=("recurrent scan, layer 5",))
    assert search_on("host[0]", "cuda:0")._reason(cause) == "norm and gate, layer 5, or recurrent scan, layer 5, which cuda:0 does not show"
    assert search_on("host[0]", "cuda:0")._reason(SimpleNamespace(words="embedding", unseen=())) == "embedding"


def test_a_difference_that_does_not_come_again_may_lie_in_a_joined_launch_of_a_card():
    assert "joins operations" in search_on("cuda:1", "cuda:0")._not_again() and "cuda:0 and cuda:1" in search_on("cuda:1", "cuda:0")._not_again()
    assert "joins operations" not in search_on("host[0]", "host[0]")._not_again()
