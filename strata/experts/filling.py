"""How large a device's expert cache is and what it holds at the start.

A cache is a number of slots of one size, that of the largest expert of the device's layers.  `auto` takes what is free
after everything else, less a reserve, and never more slots than there are experts.  It is filled in the profile's order,
the device's own layers only, until it is full; a profile that ends earlier leaves slots free.
Does not know: files, devices' kinds, how bytes get there.
"""

from collections.abc import Collection

import numpy as np

MIB = 1 << 20
CARD_RESERVE_MIB = 700
"""What a card's cache leaves free by default.  A host device shares its budget with nobody and leaves nothing."""


def slots_for(free_bytes: int | None, reserve_bytes: int, slot_bytes: int, n_pairs: int) -> int:
    """Return the slots that fit into the free bytes (None: no limit) beside a reserve; 0 where not one does."""
    if free_bytes is None:
        return n_pairs
    return min(n_pairs, max(0, free_bytes - reserve_bytes) // slot_bytes)


def first_pairs(pairs: np.ndarray, layers: Collection[int], n_slots: int) -> np.ndarray:
    """Return int32 [n, 2]: the first n_slots pairs (layer, expert) of a profile that belong to the layers, in its order."""
    own = pairs[np.isin(pairs[:, 0], list(layers))]
    return np.ascontiguousarray(own[:n_slots], np.int32)
