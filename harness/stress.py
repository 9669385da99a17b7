"""Stress on an engine's stages that must not change a bit, for arms whose faults would otherwise be luck.

    poison   cells past a slot's kept position are filled with NaN after each commit and at each new session
    jitter   each stage waits for a drawn time before each window, so that threads meet in other orders
    pool-*   the CPU pool uses other instructions; failing-job: one of its jobs fails (`harness.pool_stress`)
    ties     logits are rounded to whole numbers, so that ties are everywhere: changes answers, alike in every arm that has it

A stress stands between a stage and its executor and passes everything else through.  Does not know: requests, arms.
"""

import random
import time
from collections.abc import Callable, Sequence

import numpy as np

from harness.draft_stress import DRAFT_STRESSES
from harness.pool_stress import fail_a_job, pool_sets, use_instructions
from harness.stressed import Stressed
from strata.errors import UsageError
from strata.host.executor import HostExecutor
from strata.host.state import QsaState, poison
from strata.rows import Window
from strata.split.stages import Stage

LONGEST_WAIT_SECONDS = 0.002


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
        self._wait()
        self._inner.begin(window)

    def run_window(self, window: Window, residual, blocks) -> np.ndarray:
        """Wait, then run the window, on a card."""
        self._wait()
        return self._inner.run_window(window, residual, blocks)

    def _wait(self) -> None:
        time.sleep(self._draw.random() * LONGEST_WAIT_SECONDS)


class TiedLogits(Stressed):
    """Logits as whole numbers."""

    def head(self, residual) -> np.ndarray:
        """Return the rounded logits."""
        return np.rint(self._inner.head(residual))

    def run_window(self, window: Window, residual, blocks) -> np.ndarray:
        """Return the rounded logits of a stage on a card; rows that are handed on stay as they are."""
        result = self._inner.run_window(window, residual, blocks)
        return result if self._inner.placed.output is None else np.rint(result)


def poison_cells(executor: HostExecutor, slot: int, from_position: int) -> None:
    """Fill the cells of a slot from a position on with NaN, in every attention layer."""
    if executor.replays:
        executor.poison(slot, from_position)
        return
    for state in executor.state.values():
        if isinstance(state, QsaState):
            poison(state, slot, from_position, executor.config.indexer_block)


STRESSES: dict[str, Callable[[object, int], Stressed]] = {
    "poison": lambda executor, stage: PoisonedCells(executor),
    "jitter": Jittered,
    "ties": lambda executor, stage: TiedLogits(executor),
    **{f"pool-{name}": lambda executor, stage, name=name: use_instructions(executor, name) for name in pool_sets()},
    "failing-job": lambda executor, stage: fail_a_job(executor),
}


def put_stress(names: Sequence[str], stages: Sequence[Stage]) -> None:
    """Put the named stresses before the stages' executors and draft layers; raises UsageError for an unknown one."""
    for name in names:
        if name not in STRESSES and name not in DRAFT_STRESSES:
            raise UsageError(f"stress={name}", "there is no such stress", f"use one of {', '.join({**STRESSES, **DRAFT_STRESSES})}")
        for index, stage in enumerate(stages):
            if name in STRESSES:
                stage.executor = STRESSES[name](stage.executor, index)
            if name in DRAFT_STRESSES and stage.drafts is not None:
                stage.drafts = DRAFT_STRESSES[name](stage.drafts, index)
