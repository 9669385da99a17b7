"""The catalogue of planted faults, and draws from it.

A new kind is a file with `faults()` and a place in `ROOMS`.  Does not know: how faults are tried.
"""

import random
from collections.abc import Iterable, Sequence

from harness.faults.catalogue import accept, arithmetic, card_tiers, drafts, draws, features, loans, observation, order, pool, requests, rows, scales, slots, stages, tiers
from harness.faults.fault import CONTROL, Fault
from strata.errors import UsageError

ROOMS = (rows, scales, order, accept, drafts, features, stages, slots, tiers, loans, pool, requests, draws, observation, arithmetic)


def catalogue(is_card: bool = False) -> dict[str, Fault]:
    """Return every fault by name; those that only a card has among them where they are to be planted on one."""
    return {fault.name: fault for room in (*ROOMS, *((card_tiers,) if is_card else ())) for fault in room.faults()}


def kinds(faults: Iterable[Fault]) -> tuple[str, ...]:
    """Return the kinds in order."""
    return tuple(dict.fromkeys(fault.kind for fault in faults))


def chosen(names: Sequence[str], of_kinds: Sequence[str], is_card: bool = False) -> list[Fault]:
    """Return the faults of some names (the control too) and kinds, all without any; raises UsageError for an unknown one."""
    found = catalogue(is_card)
    known = {**found, CONTROL.name: CONTROL}
    for name in names:
        if name not in known:
            raise UsageError(f"name={name}", "there is no such fault", "see strata-harness mutate --list")
    for kind in of_kinds:
        if kind not in kinds(found.values()):
            raise UsageError(f"kind={kind}", "there is no such kind", f"use one of {', '.join(kinds(found.values()))}")
    if not names and not of_kinds:
        return list(found.values())
    return [fault for fault in known.values() if fault.name in names or fault.kind in of_kinds]


def sample(faults: Sequence[Fault], n: int, seed: int) -> list[Fault]:
    """Draw n faults, the kinds in turn, and within each kind by the seed; explained survivors are left out."""
    draw = random.Random(seed)
    by_kind: dict[str, list[Fault]] = {}
    for fault in faults:
        if not fault.survives:
            by_kind.setdefault(fault.kind, []).append(fault)
    groups = list(by_kind.values())
    draw.shuffle(groups)
    for members in groups:
        draw.shuffle(members)
    taken: list[Fault] = []
    while len(taken) < n and any(groups):
        taken += [members.pop() for members in groups if members]
    return taken[:n]
