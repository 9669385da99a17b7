"""Batch against solo: a conversation's answer does not depend on who else is being served.

Every case compares conversations that ran alone, each in an engine of its own, with the same ones in slots: all at once,
arriving late, ending early or at stop tokens, with holes between, in another order, with int8 cells.
"""

from dataclasses import replace

from harness.arms import Arm, Schedule
from harness.scope import Scope
from harness.suites.contract import Case, Suite
from harness.workload import Workload

COMPANY, STOPPED = "windows_with_company", "stops"
ITEMS = 8
STOP_EVERY = 6
"""Every so-manieth token id ends a conversation, in the cases of stop tokens."""
EARLY_LENGTHS = (1, 40, 2, 7, 3, 30, 4, 8, 5, 6)
"""Tokens wanted in the case of early ends: short ones between long ones."""


def cases(scope: Scope) -> tuple[Case, ...]:
    """Return the cases for 2..8 slots, or for the slots asked for."""
    slots = scope.options.batch
    widest, few = slots or 8, slots or 4
    work = scope.workload(ITEMS)
    reverse = tuple(reversed(range(len(work.items))))
    return (
        *(_case(scope, f"slots-{n}", scope.workload(n + 1, n == widest), n, (COMPANY,)) for n in ([slots] if slots else range(2, 9))),
        *(
            _case(scope, f"late-{n}", work, n, (COMPANY, "late_admissions"), Schedule(_every(3, work)))
            for n in dict.fromkeys((few, widest))
        ),
        _case(scope, f"early-ends-{widest}", early(work), widest, (COMPANY, "early_ends", "windows_with_holes")),
        _case(scope, f"holes-{widest}", holes(work, widest), widest, (COMPANY, "early_ends", "windows_with_holes")),
        _case(scope, f"reverse-{few}", work, few, (COMPANY,), Schedule(_every(2, work), reverse)),
        _case(scope, f"stops-{few}", with_stops(work, scope), few, (COMPANY, "early_ends", STOPPED)),
        _case(scope, f"int8-{few}", scope.workload(few), few, (COMPANY,), kv=scope.options.kv or "int8"),
    )


def early(work: Workload) -> Workload:
    """Return the workload with short answers between long ones."""
    return work.with_lengths([min(length, item.max_new) for length, item in zip(EARLY_LENGTHS, work.items, strict=False)])


def with_stops(work: Workload, scope: Scope) -> Workload:
    """Return the workload whose conversations end at any of a share of the vocabulary, chosen by the seed."""
    stops = frozenset(range(scope.options.seed % STOP_EVERY, scope.config.vocabulary, STOP_EVERY))
    return Workload(tuple(replace(item, stop_tokens=stops) for item in work.items))


def holes(work: Workload, n_slots: int) -> Workload:
    """Return one conversation per slot, of which only the first and the last go on, the last one longest."""
    items = work.items[:n_slots]
    longest = max((item.max_new for item in items), default=0)
    lengths = [longest * 3 // 4, *[min(2, longest)] * (len(items) - 2), longest]
    return Workload(items).with_lengths(lengths[: max(1, len(items))])


def _every(windows: int, work: Workload) -> tuple[int, ...]:
    return tuple(windows * i for i in range(len(work.items)))


def _case(scope: Scope, name: str, work: Workload, slots: int, features: tuple[str, ...], schedule=Schedule(), **changes) -> Case:
    groups = scope.options.batch_groups
    together = scope.settings(batch=slots, batch_groups=1 if groups is None else groups, **changes)
    return Case(name, work, Arm("solo", scope.settings(**changes), alone=True), Arm(name, together, schedule=schedule), features)


SUITE = Suite("batch", "conversations in 2 to 8 slots against each one alone", cases)
