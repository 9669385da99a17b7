"""The expert tier's kernels at toy sizes: dispatch against the host's, fetch, the meeting in all its ways out."""

import pytest

from tests.gpu import checks_tier
from tests.gpu.checks_tier import Case, with_experts
from tests.gpu.geometry import TOY

FEW = with_experts(TOY, 40, 3, 32)
CASES = [
    Case(1, 256, 0, 0), Case(1, 0, 0, 0), Case(1, 128, 128, 2), Case(8, 20, 256, 64), Case(8, 128, 77, 3, 128), Case(5, 0, 256, 64, 256),
    Case(40, 100, 128, 5, 64), Case(4, 0, 256, 3),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_dispatch_is_that_of_the_host(case, card):
    checks_tier.check_dispatch(card, FEW, case, seed=case.n_rows)


@pytest.mark.parametrize(("n_jobs", "answered", "stopped"), [(4, True, False), (0, True, False), (4, False, True), (4, False, False)])
def test_a_meeting(n_jobs, answered, stopped, card):
    checks_tier.check_meeting(card, FEW, 2, n_jobs, answered, stopped)


def test_memory_and_fetch(card):
    checks_tier.check_memory_and_fetch(card, FEW)


@pytest.mark.parametrize("n_rows", [3, 100])
def test_the_log_of_routing(n_rows, card):
    checks_tier.check_routing_log(card, FEW, n_rows)


def test_tables(card):
    checks_tier.check_tables(card, FEW)
