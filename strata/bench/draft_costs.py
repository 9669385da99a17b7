"""What windows and the draft layer's steps cost on the devices given, in windows of one row: the constants of the width policy.

A round reads a prompt, then goes through the kinds of work in turn: a window of one row that is kept, its cells, a proposal, a
proposal behind it, and verify windows of more rows, committed with none kept so that all have the same history.  Everything is
timed to its end, on a card too.  The text is fed whatever is picked: costs do not depend on it.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from strata.batch.engine import Engine
from strata.batch.validation import ROOM
from strata.bench.spread import Spread
from strata.errors import UsageError
from strata.rows import KeptRows, Segment, Window

WIDTHS = (2, 3, 4, 6, 8)
CALLS = 12
"""Windows of one row in a round, each followed by one of everything else."""
BUILD, STEP, CHAINED = "cells of a window", "step of the draft layer", "step chained on"


@dataclass(frozen=True, slots=True)
class DraftCosts:
    """Medians and spreads over rounds: a window of one row in milliseconds; other work (`window of N rows` and the three kinds
    of the draft layer's) in windows of one row.  `n_positions` is the history that they have."""

    n_positions: int
    one_row_ms: Spread
    in_windows: dict[str, Spread]

    @property
    def row(self) -> float:
        """What a further row costs, the median over the widths: `WindowCosts.row`."""
        return median((self.in_windows[window_of(n)].median - 1) / (n - 1) for n in WIDTHS)

    @property
    def draft(self) -> float:
        """What a step costs, the mean of one from the newest cell and one chained on: `WindowCosts.draft`."""
        return (self.in_windows[STEP].median + self.in_windows[CHAINED].median) / 2


def window_of(n_rows: int) -> str:
    """Return the name of a verify window's cost."""
    return f"window of {n_rows} rows"


def measure(engine: Engine, tokens: Sequence[int], n_rounds: int, tell: Callable[[str], None]) -> DraftCosts:
    """Measure n_rounds rounds after one that is thrown away, behind the prompt `tokens`; the engine has a draft layer."""
    needed = len(tokens) + CALLS + WIDTHS[-1] + ROOM
    if engine.resolved.context < needed:
        raise UsageError(f"context={engine.resolved.context}", f"{needed} positions are needed", "use a larger --context")
    rounds = []
    for number in range(n_rounds + 1):
        tell(f"costs: round {number} of {n_rounds}")
        rounds.append(_round(engine, tuple(tokens)))
    ones = [seconds["one"] for seconds in rounds[1:]]
    names = [*map(window_of, WIDTHS), BUILD, STEP, CHAINED]
    relative = {name: Spread.of([seconds[name] / seconds["one"] for seconds in rounds[1:]]) for name in names}
    return DraftCosts(len(tokens), Spread.of([1e3 * one for one in ones]), relative)


def _round(engine: Engine, tokens: tuple[int, ...]) -> dict[str, float]:
    """Return the median seconds of each kind of work."""
    layer, device, seconds = engine.draft_layer, engine.stages[-1].executor.device, defaultdict(list)

    def timed(name: str, work: Callable):
        started = time.perf_counter()
        result = work()
        if device.kind == "cuda":
            device.synchronise()
        seconds[name].append(time.perf_counter() - started)
        return result

    engine.clear(0)
    chunk = engine.resolved.chunk_rows
    for at in range(0, len(tokens), chunk):
        part = tokens[at : at + chunk]
        window = Window.of([Segment(0, at, part, 1)], keep=True, for_drafts=True)
        engine.submit(window).result()
        layer.build([_kept(window, (*part[1:], tokens[0]))])
    for call in range(CALLS):
        at, token = len(tokens) + call, tokens[call % len(tokens)]
        window = Window.of([Segment(0, at, (token,), 1)], keep=True, for_drafts=True)
        timed("one", lambda window=window: engine.submit(window).result())
        timed(BUILD, lambda window=window: layer.build([_kept(window, (tokens[(call + 1) % len(tokens)],))]))
        first = timed(STEP, lambda: layer.propose([0]))
        timed(CHAINED, lambda first=first: layer.propose([0], first.tokens.tolist()))
        for n in WIDTHS:
            timed(window_of(n), lambda n=n, at=at: _verify(engine, at + 1, tokens[:n]))
    return {name: float(np.median(values)) for name, values in seconds.items()}


def _kept(window: Window, behind: tuple[int, ...]) -> KeptRows:
    return KeptRows(window, window.count, (behind,))


def _verify(engine: Engine, start: int, tokens: tuple[int, ...]) -> None:
    window = Window.of([Segment(0, start, tokens, len(tokens))], keep=False, for_drafts=True)
    engine.submit(window).result()
    engine.commit(window, np.zeros(1, np.int32))
    engine.draft_layer.forget(window)
