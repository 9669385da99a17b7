"""The nouns of a window: segments, rows, and their index arrays.

A *row* is one token of one conversation at one position.  A *segment* is a run of rows of one slot at consecutive
positions; a *window* is the segments computed together in one pass.  A prompt chunk is a window with one wide segment, a
batch window has many segments of one row, a verify window holds a fed token and its drafts.  Imports nothing of ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of one slot: `tokens` at positions start, start+1, ...; `n_logits` of the last rows want logits.

    `request` names the conversation in ledgers and errors; it takes no part in the arithmetic.
    """

    slot: int
    start: int
    tokens: tuple[int, ...]
    n_logits: int = 1
    request: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The rows of one pass, as arrays; make one with `Window.of`.

    keep            all rows are kept: recurrent states are written through; else `commit` says how many later
    for_drafts      the last stage hands its final residual to the draft layer
    is_prompt       the rows are a prompt's chunk
    share           256ths of the missed experts that go over PCIe, where its requests want a share of their own (None: the devices')
    tokens, slots, positions, segment_of_row     int32 [rows]
    first, count, segment_slot                   int32 [segments]: a segment's first row, its rows, its slot
    logit_rows                                   int32: rows whose logits are wanted, ascending
    """

    segments: tuple[Segment, ...]
    keep: bool
    tokens: np.ndarray
    slots: np.ndarray
    positions: np.ndarray
    segment_of_row: np.ndarray
    first: np.ndarray
    count: np.ndarray
    segment_slot: np.ndarray
    logit_rows: np.ndarray
    for_drafts: bool = False
    is_prompt: bool = False
    share: int | None = None

    @property
    def n_rows(self) -> int:
        return self.tokens.shape[0]

    @staticmethod
    def of(segments: Sequence[Segment], keep: bool, for_drafts: bool = False, is_prompt: bool = False, share: int | None = None) -> "Window":
        """Lay the segments' rows out one after the other."""
        count = np.array([len(s.tokens) for s in segments], np.int32)
        first = np.concatenate(([0], np.cumsum(count)[:-1])).astype(np.int32)
        return Window(
            segments=tuple(segments),
            keep=keep,
            tokens=np.array([t for s in segments for t in s.tokens], np.int32),
            slots=np.array([s.slot for s in segments for _ in s.tokens], np.int32),
            positions=np.array([s.start + i for s in segments for i in range(len(s.tokens))], np.int32),
            segment_of_row=np.repeat(np.arange(len(segments), dtype=np.int32), count),
            first=first,
            count=count,
            segment_slot=np.array([s.slot for s in segments], np.int32),
            logit_rows=np.array(
                [f + c - s.n_logits + i for s, f, c in zip(segments, first, count, strict=True) for i in range(s.n_logits)], np.int32
            ),
            for_drafts=for_drafts,
            is_prompt=is_prompt,
            share=share,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Whose records the values of a tap are, and where they lie; `WHOLE` is one record per row of the window, in order.

    lines     int32 [n]: record i is values[lines[i]]; [n, k]: k lines one after the other, a negative one ends them (None: 0, 1, ..)
    rows      int32 [n]: the window's row that record i belongs to (None: 0, 1, ..)
    parts     int32 [n]: which part of its row record i is: an expert's id, or the age of a line of a tail, 0 the newest
    lengths   int32 [n]: how many leading elements of record i count (None: all)
    per_slot  lines of one slot, where lines are cells: line mod per_slot is the cell (0: they are not)
    hashed    the values are hashes already, uint64 [n, 2] (`strata.numerics.hashing`), made where the data lies
    """

    lines: np.ndarray | None = None
    rows: np.ndarray | None = None
    parts: np.ndarray | None = None
    lengths: np.ndarray | None = None
    per_slot: int = 0
    hashed: bool = False


WHOLE = Place()


@dataclass(frozen=True, slots=True)
class WindowCosts:
    """What an executor's work costs, in windows of one row: each further row of a window, each step of the draft layer.

    Constants, measured once: the width of windows is chosen by them and by no clock.
    """

    row: float
    draft: float


@dataclass(frozen=True, slots=True, eq=False)
class KeptRows:
    """What became of a window: kept int32 [segments], the first rows of each that were kept, and the tokens behind them.

    next_tokens[s][i] is the token at the position behind row i of segment s, i < kept[s].
    """

    window: Window
    kept: np.ndarray
    next_tokens: tuple[tuple[int, ...], ...]
