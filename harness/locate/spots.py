"""Spots: the first event of a pass, with everything that names it.

Does not know: passes, what is done about it.
"""

from dataclasses import dataclass

import numpy as np

from harness.ledger.join import BOTH, LEFT, RIGHT, Events
from harness.ledger.points import Point, point_named
from harness.ledger.records import Records


@dataclass(frozen=True, slots=True)
class Spot:
    """The first event of a pass: where it stands, and the indices of its records."""

    request: int
    position: int
    layer: int
    point: Point
    part: int
    event: int
    sides: str
    broken_in: tuple[str, ...]


def first_spot(events: Events) -> Spot | None:
    """Return the first event: of the request that the right arm (else the left) served first, in order of dataflow."""
    if not len(events):
        return None
    starts = np.flatnonzero(np.r_[True, events.request[1:] != events.request[:-1]])
    chosen = min(starts, key=lambda event: _age(events, int(event)))
    first = spot_of(events, int(chosen))
    others = [spot_of(events, event) for event in range(int(chosen), min(int(chosen) + 64, len(events)))]
    same = [s for s in others if (s.request, s.position, s.layer, s.point.name) == (first.request, first.position, first.layer, first.point.name)]
    compared = next((s for s in same if s.sides == BOTH), same[0])
    broken = tuple(dict.fromkeys(s.sides for s in same if s.sides != BOTH and s.part == compared.part))
    return Spot(
        compared.request, compared.position, compared.layer, compared.point, compared.part, compared.event, compared.sides, broken
    )


def _age(events: Events, event: int) -> tuple[int, int, int]:
    """When an event's record was computed in its arm: (engine's first stage, window, row)."""
    records, record = copy_of(events, event), int(events.b[event])
    stage = records.stages[int(records.owner[record])]
    at = int(records.row[record])
    return int(records.owner[record]) - stage.stage, int(stage.window[at]), int(stage.row[at])


def spot_of(events: Events, event: int) -> Spot:
    """Return one event as a spot."""
    records, record = copy_of(events, event), int(events.b[event])
    point = point_named(records.names[int(records.point[record])])
    return Spot(
        int(events.request[event]), int(events.position[event]), int(records.layer[record]), point, int(records.part[record]),
        event, str(events.side[event]), (),
    )


def copy_of(events: Events, event: int) -> Records:
    """Return the records that hold an event's second record: the right arm's, or the copy."""
    return events.left if events.side[event] == LEFT else events.right


def origin_of(events: Events, event: int) -> Records:
    """Return the records that hold an event's first record: the left arm's, or the origin."""
    return events.right if events.side[event] == RIGHT else events.left
