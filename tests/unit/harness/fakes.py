"""Answers, outcomes and cases made by hand, so that comparison and verdicts are tested without an engine."""

from harness.arms import Arm
from harness.running import Outcome
from harness.suites.contract import Case, Suite
from harness.workload import Item, Workload
from strata.batch.requests import Answer, Emitted
from strata.windows.picks import LogitRow

PROMPT_TOKENS = 10


def answer(tokens, digests=None, finish="length", error="", margin=0.5) -> Answer:
    """An answer whose row i has hash digests[i] (default: made from the token)."""
    digests = digests or [f"d{token}" for token in tokens]
    rows = [LogitRow(digest, token, token + 1, 1.0 + margin, 1.0, True) for token, digest in zip(tokens, digests, strict=True)]
    emitted = [Emitted(PROMPT_TOKENS - 1 + i, token, row) for i, (token, row) in enumerate(zip(tokens, rows, strict=True))]
    return Answer(tuple(emitted), finish, error)


def outcome(name, answers, counters=None, effective=None) -> Outcome:
    """An outcome of an arm called `name`; by default its settings in force differ from every other name's."""
    return Outcome(Arm(name), tuple(answers), counters or {}, effective or {"way": name}, (), 0.0, 0.0)


def case(n_requests=1, features=("turns",), name="some-case") -> Case:
    """A case of n requests whose feature is the counter `turns`."""
    items = tuple(Item(f"chat-{i}", (1, 2, 3), 4) for i in range(n_requests))
    return Case(name, Workload(items), Arm("left"), Arm("right"), tuple(features))


def suite(name="some") -> Suite:
    """A suite without cases of its own."""
    return Suite(name, "a purpose", lambda scope: ())
