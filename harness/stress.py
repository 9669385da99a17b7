"""Stress on an engine's stages that must not change a bit, for arms whose faults would otherwise be luck.

    poison   cells past a slot's kept position are filled with NaN after each commit and at each new session
    jitter   each stage waits for a drawn time before each window, so that threads meet in other orders

A stress stands between a stage and its executor and passes everything else through.  Does not know: requests, arms.
"""

import random
import time
from collections.abc import Callable, Sequence

import numpy as np

from strata.errors import UsageError
from strata.host.executor import HostExecutor
from strata.host.state import QsaState, poison
from strata.rows import Window
from strata.split.stages import Stage

LONGEST_WAIT_SECONDS = 0.002


class Stressed:
    """An executor behind a stress: attributes are read from and written to the executor itself."""

    def __init__(self, inner) -> None:
        object.__setattr__(self, "_inner", inner)

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._inner, name, value)


class PoisonedCells(Stressed):
    """Cells that must not be read hold NaN."""

    def commit(self, window: Window, kept: np.ndarray) -> None:
        """Commit, then poison what was rejected and all that lies behind."""
        self._inner.commit(window, kept)
        for segment, n in zip(window.segments, kept, strict=True):
            poison_cells(self._inner, segment.slot, segment.start + int(n))

    def clear(self, slot: int) -> None:
        """Start a new session over the poisoned cells of the old one."""
        self._inner.clear(slot)
        poison_cells(self._inner, slot, 0)


class Jittered(Stressed):
    """Waits before each window, by a generator of its own."""

    def __init__(self, inner, seed: int) -> None:
        super().__init__(inner)
        object.__setattr__(self, "_draw", random.Random(seed))

    def begin(self, window: Window) -> None:
        """Wait, then begin the window."""
        time.sleep(self._draw.random() * LONGEST_WAIT_SECONDS)
        self._inner.begin(window)


def poison_cells(executor: HostExecutor, slot: int, from_position: int) -> None:
    """Fill the cells of a slot from a position on with NaN, in every attention layer."""
    for state in executor.state.values():
        if isinstance(state, QsaState):
            poison(state, slot, from_position, executor.config.indexer_block)


STRESSES: dict[str, Callable[[object, int], Stressed]] = {
    "poison": lambda executor, stage: PoisonedCells(executor),
    "jitter": Jittered,
}


def put_stress(names: Sequence[str], stages: Sequence[Stage]) -> None:
    """Put the named stresses between the stages and their executors; raises UsageError for an unknown one."""
    for name in names:
        if name not in STRESSES:
            raise UsageError(f"stress={name}", "there is no such stress", f"use one of {', '.join(STRESSES)}")
        for index, stage in enumerate(stages):
            stage.executor = STRESSES[name](stage.executor, index)
