"""Hunting: plans in covering order until time or count runs out, or one differs; then shrinking it.

Plans follow from the seed alone.  Shrinking is Hypothesis's: it searches among plans that are nowhere less plain than the one
found, simplest first, for the smallest that still differs.  A plan that gives an error counts as found, too.
Does not know: the command line.
"""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.fuzz.covering import all_pairs, covering_rows, pairs_of
from harness.fuzz.plan import DIMENSIONS, Ask, Plan, case_of, complexity
from harness.judging import judge_case
from harness.running import Runner
from harness.suites.contract import Suite
from harness.verdicts import DIFFERS, ERROR, CaseResult
from harness.workload import Item

SUITE = Suite("fuzz", "random plans against each request alone", lambda scope: ())
FAILING = (DIFFERS, ERROR)
MOST_ASKS = 5
SHRINK_TRIES = 200


@dataclass(frozen=True, slots=True)
class Hunted:
    """One plan that ran, and how much of the pairs of values is covered so far (0..1)."""

    plan: Plan
    result: CaseResult
    covered: float


def plans(prompts: Sequence[Item], seed: int) -> Iterator[Plan]:
    """Yield random plans in pairwise-covering order, for ever."""
    draw = random.Random(f"asks {seed}")
    for row in covering_rows(DIMENSIONS, seed):
        n = draw.randint(1, MOST_ASKS)
        asks = (Ask(draw.randrange(len(prompts)), draw.choice((1, 2, 3, 7, 16, 31, 48)), draw.choice((1, 2, 5, 9, 16))) for _ in range(n))
        yield Plan(**row, asks=tuple(replace(ask, length=min(ask.length, len(prompts[ask.prompt].prompt))) for ask in asks))


def run_plan(plan: Plan, runner: Runner, prompts: tuple[Item, ...]) -> CaseResult:
    """Run one plan against each of its requests alone."""
    return judge_case(SUITE, case_of(plan, prompts, runner.model.config.n_layers), runner)


def hunt(runner: Runner, prompts: tuple[Item, ...], seed: int, seconds: float, count: int | None) -> Iterator[Hunted]:
    """Run plans until `count` have run or `seconds` are over; at least one runs.  The caller stops at the first that differs."""
    missing, n_pairs = all_pairs(DIMENSIONS), len(all_pairs(DIMENSIONS))
    ends = time.monotonic() + seconds
    for number, plan in enumerate(plans(prompts, seed), 1):
        result = run_plan(plan, runner, prompts)
        missing -= pairs_of({name: getattr(plan, name) for name in DIMENSIONS}, list(DIMENSIONS))
        yield Hunted(plan, result, 1 - len(missing) / n_pairs)
        if number == count or (count is None and time.monotonic() >= ends):
            return


def shrink(found: Plan, runner: Runner, prompts: tuple[Item, ...], seed: int) -> Plan:
    """Return the smallest plan that still fails as far as Hypothesis finds one; `found` itself where it finds none."""
    from hypothesis import HealthCheck, find, settings
    from hypothesis.errors import NoSuchExample

    def fails(plan: Plan) -> bool:
        return run_plan(plan, runner, prompts).verdict in FAILING

    options = settings(
        max_examples=SHRINK_TRIES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    try:
        smallest = find(reductions(found), fails, settings=options, random=random.Random(seed))
    except NoSuchExample:
        return found
    return min((smallest, found), key=complexity)


def reductions(plan: Plan):
    """Return a Hypothesis strategy of plans that take from a plan: each dimension plain or as it is, fewer and shorter requests."""
    from hypothesis import strategies as st

    def either(name: str):
        values = dict.fromkeys((DIMENSIONS[name][0], getattr(plan, name)))
        return st.sampled_from(list(values))

    asks = st.lists(st.sampled_from(range(len(plan.asks))), min_size=1, max_size=len(plan.asks), unique=True).flatmap(
        lambda kept: st.tuples(*(_smaller(plan.asks[i]) for i in sorted(kept)))
    )
    return st.builds(Plan, **{name: either(name) for name in DIMENSIONS}, asks=asks)


def _smaller(ask: Ask):
    from hypothesis import strategies as st

    lengths = st.sampled_from(sorted({1, 2, ask.length // 2 or 1, ask.length}))
    wanted = st.sampled_from(sorted({1, 2, ask.max_new // 2 or 1, ask.max_new}))
    return st.builds(Ask, prompt=st.just(ask.prompt), length=lengths, max_new=wanted)
