"""Draft state: the draft layer is fed the row of another position, another slot or another time.

Drafts never change an answer, so only what the draft layer proposes can show it: prompts whole against in chunks, alone
against in slots, and the reference's drafts.  Does not know: checks.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from harness.faults.fault import ALL, SOME, Fault
from harness.faults.hooks import wrap
from strata.batch.engine import Engine
from strata.host.drafts import HostDrafts
from strata.rows import KeptRows, Window

KIND = "draft state"
OLD_CELLS = 8
"""Cells of the session before that a fault leaves at most: some, and never more than the slot has room for."""
CHUNKS = ("proposals/chunks", "proposals/slots")
SLOTS = ("proposals/slots", "proposals/chunks")
TRUTH = ("proposals/reference",)


def faults() -> list[Fault]:
    """Return the faults."""
    return [
        _of_layer(
            "draft-previous-chunk",
            "rows handed over",
            "the first row of a chunk comes with the last residual of the chunk before",
            CHUNKS,
            _previous_chunk,
        ),
        _of_layer("draft-short-chunk", "cells built", "the last cell of each chunk but the first is not built", CHUNKS, _short_chunk),
        _of_layer(
            "draft-neighbours-row", "rows handed over", "in company, slots get the residual of the slot beside", SLOTS, _neighbours_row
        ),
        _of_layer(
            "draft-neighbours-token", "tokens behind rows", "in company, slots get the token of the slot beside", SLOTS, _neighbours_token
        ),
        _of_layer(
            "draft-not-cleared",
            "cells of a new session",
            "a new session sees the cells of the one before in its slot",
            CHUNKS,
            _not_cleared,
        ),
        _of_layer(
            "draft-chain-kept", "chain cells", "cells of a chain are not forgotten when the next cells are built", SLOTS, _chain_kept
        ),
        _of_layer("draft-tip-of-slot-0", "tips", "in company, every slot drafts from the streams of slot 0", SLOTS, _tip_of_slot_0),
        _of_layer("draft-all-rows", "rows handed over", "residuals are those of one row before", TRUTH, _one_row_before, ALL),
        _of_layer("draft-ids-shifted", "draft vocabulary", "drafts are the ids beside in the draft vocabulary", TRUTH, _ids_shifted, ALL),
    ]


def _of_layer(name: str, site: str, words: str, seen_by: tuple[str, ...], plant: Callable[[HostDrafts], None], reach: str = SOME) -> Fault:
    def plant_in(engine: Engine) -> None:
        if engine.draft_layer is not None:
            plant(engine.draft_layer)

    return Fault(name, KIND, f"draft layer: {site}", words, seen_by, plant_in, reach=reach)


def _holding(layer: HostDrafts, change: Callable[[Window, np.ndarray], np.ndarray]) -> None:
    wrap(layer, "hold", lambda hold: lambda window, residual: hold(window, change(window, residual)))


def _previous_chunk(layer: HostDrafts) -> None:
    latest: list[np.ndarray] = []

    def change(window: Window, residual: np.ndarray) -> np.ndarray:
        changed = residual.copy()
        if latest and window.n_rows > 1 and window.keep and window.positions[0] > 0:
            changed[0] = latest[0]
        latest[:] = [residual[-1].copy()]
        return changed

    _holding(layer, change)


def _building(layer: HostDrafts, change: Callable[[KeptRows], KeptRows]) -> None:
    wrap(layer, "build", lambda build: lambda parts: build([change(part) for part in parts]))


def _short_chunk(layer: HostDrafts) -> None:
    def change(part: KeptRows) -> KeptRows:
        window = part.window
        if not window.keep or window.n_rows == 1 or window.positions[0] == 0:
            return part
        return replace(part, kept=part.kept - 1, next_tokens=tuple(tokens[:-1] for tokens in part.next_tokens))

    _building(layer, change)


def _neighbours_row(layer: HostDrafts) -> None:
    _holding(layer, lambda window, residual: np.roll(residual, 1, axis=0) if len(window.segments) > 1 else residual)


def _neighbours_token(layer: HostDrafts) -> None:
    def change(part: KeptRows) -> KeptRows:
        if len(part.next_tokens) < 2 or not all(part.next_tokens):
            return part
        firsts = [tokens[0] for tokens in part.next_tokens]
        return replace(
            part, next_tokens=tuple((first, *tokens[1:]) for first, tokens in zip([*firsts[1:], firsts[0]], part.next_tokens, strict=True))
        )

    _building(layer, change)


def _not_cleared(layer: HostDrafts) -> None:
    def make(clear: Callable) -> Callable:
        def cleared(slot: int) -> None:
            count = layer.cells.counts[slot]
            clear(slot)
            layer.cells.counts[slot] = min(count, OLD_CELLS)

        return cleared

    wrap(layer, "clear", make)


def _chain_kept(layer: HostDrafts) -> None:
    def make(build: Callable) -> Callable:
        def built(parts) -> None:
            build(parts)
            for part in parts:
                if len(part.window.segments) > 1:
                    layer.cells.counts[part.window.segment_slot] += 1

        return built

    wrap(layer, "build", make)


def _tip_of_slot_0(layer: HostDrafts) -> None:
    def make(propose: Callable) -> Callable:
        def proposed(slots, tokens=None):
            if len(slots) > 1:
                layer._streams[slots] = layer._streams[0]
            return propose(slots, tokens)

        return proposed

    wrap(layer, "propose", make)


def _one_row_before(layer: HostDrafts) -> None:
    latest: dict[int, np.ndarray] = {}

    def change(window: Window, residual: np.ndarray) -> np.ndarray:
        changed = np.roll(residual, 1, axis=0)
        changed[0] = latest.get(0, residual[0])
        latest[0] = residual[-1].copy()
        return changed

    _holding(layer, change)


def _ids_shifted(layer: HostDrafts) -> None:
    def make(propose: Callable) -> Callable:
        def proposed(slots, tokens=None):
            made = propose(slots, tokens)
            at = np.searchsorted(layer.token_ids, made.tokens) + 1
            return type(made)(layer.token_ids[at % len(layer.token_ids)], made.probabilities, made.logits)

        return proposed

    wrap(layer, "propose", make)
