"""Unseen operations: what lies between the first record that differs and the last that are equal, and that an arm did not show.

A host shows every operation.  A card shows those whose results lie in buffers of their own: what lies between two of them
may be at fault as well.  Does not know: how causes are chosen.
"""

import numpy as np

from harness.ledger.points import POINTS, TOKENS, Point, in_words
from harness.ledger.records import Records

NEVER_ON_CARDS = {"gdn": ("gdn.memory.after",), "qsa": ("qsa.keys",)}
"""By a layer's kind: points that every row has and that no card shows, so that two cards do not tell of them."""


def unseen_before(point: Point, layer: int, left: Records, right: Records) -> tuple[str, ...]:
    """Return, in words and in order of dataflow, the operations that a point is made from and that one arm did not show.

    Looks back from the point through its inputs, as far as points that both arms recorded.
    """
    a, b = (_shown(records, layer) for records in (left, right))
    common, known = a & b, a | b
    if devices_not_showing(left, right):
        known |= {name for kind, names in NEVER_ON_CARDS.items() if f"{kind}.output" in known for name in names}
    found: set[str] = set()
    waiting = [point.name]
    while waiting:
        for given in POINTS[waiting.pop()].inputs if point.name in POINTS else ():
            name = given.lstrip("=").partition("<")[0]
            if name in known - common - found and name not in (TOKENS, point.name):
                found.add(name)
                waiting.append(name)
    return tuple(in_words(name, layer) for name in POINTS if name in found)


def devices_not_showing(left: Records, right: Records) -> tuple[str, ...]:
    """Return the names of the arms' devices that are cards."""
    names = {stage.device for records in (left, right) for stage in records.stages}
    return tuple(sorted(name for name in names if name.startswith("cuda")))


def _shown(records: Records, layer: int) -> set[str]:
    """The points that an arm recorded at a layer."""
    return {records.names[number] for number in np.unique(records.point[records.layer == layer])}
