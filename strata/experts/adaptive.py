"""The adaptive tier's choice: which experts change places in a round.  Pure functions over usage counts.

    usage        float64 [layers, experts]: routed entries of decode windows, times `decay` after every round
    candidates   of a layer: not resident, usage of `LEAST_USAGE` or more, hottest first
    victims      of the same layer: resident, coldest first
    pairs        candidate i takes the place of victim i while its usage >= the victim's + gain
    choice       the pairs of all layers together, by what they gain, the best `most`

A free slot is the best victim of all, of usage 0 and of no layer: free slots take the hottest candidates of all layers
first, and they count towards `most`.  Ties: the lower layer, then the lower expert id, among candidates, among victims and
among pairs (by the candidate).  Does not know: windows, copies, devices.
"""

import numpy as np

from strata.experts.residency import ABSENT

LEAST_USAGE = 2.0


def choose_swaps(usage: np.ndarray, slot_of: np.ndarray, n_free: int, gain: float, most: int) -> np.ndarray:
    """Return int32 [n, 3]: (layer, expert that comes, expert that goes or `ABSENT` for a free slot), best first."""
    resident = slot_of != ABSENT
    heat = np.where(resident | (usage < LEAST_USAGE), -np.inf, usage)
    into_free = _into_free_slots(heat, min(n_free, most), gain)
    heat[into_free[:, 0], into_free[:, 1]] = -np.inf
    pairs = _pairs(heat, np.where(resident, usage, np.inf), gain)
    return np.concatenate((into_free, pairs[: most - len(into_free)]))


def _into_free_slots(heat: np.ndarray, most: int, gain: float) -> np.ndarray:
    flat = heat.reshape(-1)
    order = np.argsort(-flat, kind="stable")[:most]
    order = order[flat[order] >= gain]
    layers, experts = np.divmod(order, heat.shape[1])
    return np.stack((layers, experts, np.full_like(layers, ABSENT)), axis=1).astype(np.int32)


def _pairs(heat: np.ndarray, cold: np.ndarray, gain: float) -> np.ndarray:
    """Return all pairs of all layers that gain enough, best first; heat -inf: no candidate, cold +inf: no victim."""
    comes, goes = np.argsort(-heat, axis=1, kind="stable"), np.argsort(cold, axis=1, kind="stable")
    hot, victims = np.take_along_axis(heat, comes, 1), np.take_along_axis(cold, goes, 1)
    layers, ranks = np.nonzero(np.isfinite(hot) & np.isfinite(victims) & (hot >= victims + gain))
    comes, goes, gains = comes[layers, ranks], goes[layers, ranks], hot[layers, ranks] - victims[layers, ranks]
    best = np.lexsort((comes, layers, -gains))
    return np.stack((layers, comes, goes), axis=1).astype(np.int32)[best]
