"""Pairwise covering: an order of random rows in which every pair of values of two dimensions comes early.

Greedy (after Cohen, Dalal, Fredman, Patton 1997): each row is the best of some candidates, made by taking the dimensions in
a drawn order and giving each the value that covers most pairs not seen yet, ties drawn.  Rows go on for ever; once all pairs
are covered the order starts anew.  Does not know: what the dimensions mean.
"""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence

CANDIDATES = 12
Pair = tuple[tuple[str, object], tuple[str, object]]


def all_pairs(dimensions: Mapping[str, Sequence]) -> set[Pair]:
    """Return every pair of values of two dimensions."""
    return {
        ((a, x), (b, y))
        for a, b in itertools.combinations(dimensions, 2)
        for x, y in itertools.product(dimensions[a], dimensions[b])
    }


def pairs_of(row: Mapping[str, object], names: Sequence[str]) -> set[Pair]:
    """Return the pairs that a row covers; `names` gives the order of dimensions."""
    return {((a, row[a]), (b, row[b])) for a, b in itertools.combinations(names, 2)}


def covering_rows(dimensions: Mapping[str, Sequence], seed: int) -> Iterator[dict[str, object]]:
    """Yield rows (dimension -> value) in pairwise-covering order, for ever."""
    draw, names = random.Random(seed), list(dimensions)
    while True:
        missing = all_pairs(dimensions)
        while missing:
            row = max((_candidate(dimensions, names, missing, draw) for _ in range(CANDIDATES)), key=lambda r: len(pairs_of(r, names) & missing))
            missing -= pairs_of(row, names)
            yield row


def _candidate(dimensions: Mapping[str, Sequence], names: list[str], missing: set[Pair], draw: random.Random) -> dict[str, object]:
    """Start from a pair that is missing, then give every other dimension the value that covers most."""
    row: dict[str, object] = dict(draw.choice(sorted(missing, key=repr)))
    for name in draw.sample(names, len(names)):
        if name not in row:
            values = draw.sample(list(dimensions[name]), len(dimensions[name]))
            row[name] = max(values, key=lambda value: _gain(row, name, value, names, missing))
    return row


def _gain(row: Mapping[str, object], name: str, value: object, names: list[str], missing: set[Pair]) -> int:
    place = names.index(name)
    return sum(
        (((other, row[other]), (name, value)) if names.index(other) < place else ((name, value), (other, row[other]))) in missing
        for other in row
    )
