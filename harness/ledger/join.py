"""Joining two arms' records, and the laws that hold within one arm.

Records with one key are compared; what only one arm has is counted, not compared.  Where a key comes more than once in an
arm, kept rows go before rejected ones and later ones before earlier ones.  A law says that one point shows the very bits of
another, some rows before: state lies as it was left, a hand-off receives what was sent.  An *event* is two records that
must be equal and are not.  Events of one request are in order of dataflow by (position, layer, point), so that of
complete records the first event is the cause of all that follow it: what it is made from comes before it and is equal.
Does not know: how arms are run, words.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from harness.ledger.points import POINTS, RESIDUALS, TOP, rank_of
from harness.ledger.prefixes import NONE, ancestors
from harness.ledger.records import NO_PART, Records
from strata.numerics.cpu import kernel
from strata.numerics.hashing import ONE, STRIDE_B, mix

LEFT, RIGHT, BOTH = "left", "right", "both"
LAYER_BITS, POINT_BITS = np.uint64(48), np.uint64(32)


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Pairs of records that differ: `side` says whose they are: `both` arms' record a (left) and b (right), or one arm's
    copy b and what it must equal, a.  Sorted by dataflow within each request."""

    left: Records
    right: Records
    side: np.ndarray
    a: np.ndarray
    b: np.ndarray
    request: np.ndarray
    position: np.ndarray
    n_compared: int
    n_single: int

    def __len__(self) -> int:
        return len(self.a)


def keys(records: Records) -> np.ndarray:
    """Return one key per record, uint64."""
    return _keyed(records.of_rows("prefix"), records.layer, _names(records.names)[records.point], records.part)


def _names(names: Iterable[str]) -> np.ndarray:
    """Numbers of points that are the same in all arms: the table's, then a hash of the name."""
    known = {name: i for i, name in enumerate(POINTS)}
    return np.array([known.get(name, len(known) + sum(name.encode()) % 30000) for name in names], np.int64)


def _keyed(prefix: np.ndarray, layer: np.ndarray, point: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Mix a row's prefix hash with what is recorded of it: a million records share a key by chance once in 10^7 runs."""
    what = ((layer.astype(np.uint64) + ONE) << LAYER_BITS) | (point.astype(np.uint64) << POINT_BITS) | (part.astype(np.uint32) + np.uint32(1))
    return mixed(prefix + what * STRIDE_B)


@kernel
def mixed(words):
    """Return SplitMix64's finaliser of each word."""
    out = np.empty_like(words)
    for i in range(words.shape[0]):
        out[i] = mix(words[i])
    return out


def _preferred(key: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return indices of one record per key, sorted by key."""
    order = np.argsort(key, kind="stable")
    if not kept.all():
        order = order[np.lexsort((kept[order], key[order]))]
    ordered = key[order]
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = ordered[1:] != ordered[:-1]
    return order[is_last]


def compare(left: Records, right: Records) -> Events:
    """Return the events of two arms: between them, and against the laws within each."""
    a, b, n_single = _pairs(left, right)
    differs = (left.hash[a] != right.hash[b]).any(axis=1)
    found = [(BOTH, left, right, a[differs], b[differs])]
    for side, records in ((LEFT, left), (RIGHT, right)):
        copies, origins = broken_laws(records)
        found.append((side, records, records, origins, copies))
    return _sorted(left, right, found, len(a), n_single)


def _pairs(left: Records, right: Records) -> tuple[np.ndarray, np.ndarray, int]:
    key_left, key_right = keys(left), keys(right)
    a, b = _preferred(key_left, left.of_rows("kept")), _preferred(key_right, right.of_rows("kept"))
    _, at_a, at_b = np.intersect1d(key_left[a], key_right[b], assume_unique=True, return_indices=True)
    return a[at_a], b[at_b], len(a) + len(b) - 2 * len(at_a)


def broken_laws(records: Records) -> tuple[np.ndarray, np.ndarray]:
    """Return (copies, origins): records of one arm that should be equal to an earlier one of it and are not."""
    if not len(records):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    key = keys(records)
    order = _preferred(key, records.of_rows("kept"))
    copies, wanted = _wanted(records)
    at = np.searchsorted(key[order], wanted)
    at[at == len(order)] = 0
    known = key[order][at] == wanted
    copies, origins = copies[known], order[at[known]]
    broken = (records.hash[copies] != records.hash[origins]).any(axis=1)
    return copies[broken], origins[broken]


def _wanted(records: Records) -> tuple[np.ndarray, np.ndarray]:
    """Return (records that are copies, the keys of what each must equal)."""
    numbers = _names(POINTS)
    of_name = dict(zip(POINTS, numbers, strict=True))
    copies, found = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    for number, name in enumerate(records.names):
        origin = POINTS[name].same_as if name in POINTS else ""
        if not origin:
            continue
        mine = np.flatnonzero(records.point == number)
        part = records.part[mine]
        age = np.where(part == NO_PART, 0, part) + name.endswith(".read")
        for owner, stage in enumerate(records.stages):
            own = records.owner[mine] == owner
            rows = ancestors(records.row[mine[own]], age[own], stage.parent)
            exists = rows != NONE
            chosen, rows = mine[own][exists], rows[exists]
            layer, point = records.layer[chosen], np.full(len(chosen), of_name.get(origin, 0))
            if origin == "residual":
                layer, point = layer - 1, np.full(len(chosen), of_name[RESIDUALS[-1]])
            elif origin in POINTS and POINTS[origin].where != "layer":
                layer = np.full(len(chosen), TOP)
            copies.append(chosen)
            found.append(_keyed(stage.prefix[rows], layer, point, np.full(len(chosen), NO_PART)))
    return np.concatenate(copies), np.concatenate(found)


def _sorted(left: Records, right: Records, found: list, n_compared: int, n_single: int) -> Events:
    side = np.concatenate([np.full(len(b), name, "<U5") for name, _, _, _, b in found])
    a, b = (np.concatenate([each[i] for each in found]) for i in (3, 4))
    request, position, column, rank, part = ([] for _ in range(5))
    for _, _, records, _, own in found:
        request.append(records.of_rows("request")[own])
        position.append(records.of_rows("position")[own])
        places = np.array([rank_of(records.names[p], int(n)) for p, n in zip(records.point[own], records.layer[own], strict=True)], np.int64)
        column.append(places.reshape(-1, 2)[:, 0])
        rank.append(places.reshape(-1, 2)[:, 1])
        part.append(records.part[own])
    request, position, column, rank, part = (np.concatenate(values) for values in (request, position, column, rank, part))
    order = np.lexsort((side == BOTH, part, rank, column, position, request))
    return Events(left, right, side[order], a[order], b[order], request[order], position[order], n_compared, n_single)
