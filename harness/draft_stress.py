"""Stress on the draft layer that must not change an answer.

    poison         cells behind a slot's newest one are filled with NaN whenever cells were made
    wrong-drafts   half of the drafts, drawn by the seed, are other tokens

A stress stands before the draft layer and passes everything else through.  Does not know: windows, requests.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harness.stressed import Stressed
from strata.rows import KeptRows

WRONG_SHARE = 0.5
NAN_HALF = 0x7E00


class PoisonedDraftCells(Stressed):
    """Cells that must not be read hold NaN."""

    def build(self, parts: Sequence[KeptRows]) -> None:
        """Make cells, then poison what lies behind each slot's newest."""
        self._inner.build(parts)
        newest = {
            segment.slot: segment.start + int(n)
            for part in parts
            for segment, n in zip(part.window.segments, part.kept, strict=True)
            if n
        }
        for slot, position in newest.items():
            poison_draft_cells(self._inner, slot, position)

    def clear(self, slot: int) -> None:
        """Start a new session over the poisoned cells of the old one."""
        self._inner.clear(slot)
        poison_draft_cells(self._inner, slot, 0)


class WrongDrafts(Stressed):
    """Other tokens in the place of half of the drafts."""

    def __init__(self, inner, seed: int) -> None:
        super().__init__(inner)
        object.__setattr__(self, "_draw", random.Random(seed))

    def propose(self, slots: Sequence[int], tokens: Sequence[int] | None = None):
        """Propose, and move some tokens to another id of the draft vocabulary."""
        made = self._inner.propose(slots, tokens)
        ids = self._inner.token_ids
        moved = [int(ids[self._draw.randrange(len(ids))]) if self._draw.random() < WRONG_SHARE else int(token) for token in made.tokens]
        return replace(made, tokens=np.array(moved, np.int32))


def poison_draft_cells(drafts, slot: int, from_position: int) -> None:
    """Fill the draft layer's cells of a slot from a position on with NaN (codes of int8: the largest, with NaN scales)."""
    if drafts.replays:
        drafts.poison(slot, from_position)
        return
    cells = drafts.cells
    for array in (cells.k_codes, cells.v_codes):
        array[slot, from_position:] = np.nan if array.dtype == np.float32 else (NAN_HALF if array.dtype == np.uint16 else 127)
    cells.k_scales[slot, from_position:] = cells.v_scales[slot, from_position:] = NAN_HALF


DRAFT_STRESSES = {
    "poison": lambda drafts, seed: PoisonedDraftCells(drafts),
    "wrong-drafts": WrongDrafts,
}
