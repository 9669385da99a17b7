"""Stages: a contiguous range of layers on one device, with its sessions, and the run of a window through all of them.

Every stage keeps its own count of each slot's cells and refuses a window that does not start there: an earlier stage that
learned a wrong accepted count, or a stale window, is an error at once and not a wrong token.  A hand-off copies the rows'
residual once per window and stage border.  Does not know: groups, threads, requests.
"""

import threading
from collections import Counter
from collections.abc import Sequence

import numpy as np

from strata.errors import DeviceError
from strata.rows import WHOLE, Window
from strata.split.placement import StagePlan
from strata.windows.contract import DraftLayer, Executor
from strata.windows.stage_pass import run_stage

RECEIVED = "hand_off"
"""The point at which the residual of the stage before is seen as this stage received it, at this stage's first layer."""


class Stage:
    """One stage: its plan, its executor, the cells that each slot holds here, the draft layer beside the last one.

    `observer` sees it where a probe is attached; `prepare(window)`, where there is one, makes its device ready for a window.
    """

    def __init__(self, plan: StagePlan, executor: Executor, n_slots: int, drafts: DraftLayer | None = None) -> None:
        self.plan, self.executor, self.drafts = plan, executor, drafts
        self.cells = [0] * n_slots
        self.observer = self.prepare = None

    def run(self, window: Window, residual: np.ndarray | None) -> np.ndarray:
        """Run a window through this stage; raises DeviceError where a segment does not start at its slot's cells."""
        for segment in window.segments:
            self._check(segment.slot, segment.start)
        if self.prepare is not None:
            self.prepare(window)
        if self.observer is not None:
            self._show(window, residual)
        try:
            result = run_stage(self.executor, window, residual, self.drafts)
        except BaseException:
            self.executor.abandon(window)
            raise
        if window.keep:
            self._advance(window, [len(segment.tokens) for segment in window.segments])
        return result

    def commit(self, window: Window, kept: np.ndarray) -> None:
        """Keep a prefix of each segment of a window that ran without `keep`."""
        for segment in window.segments:
            self._check(segment.slot, segment.start)
        self.executor.commit(window, kept)
        if self.observer is not None:
            self.observer.committed(window, kept)
        self._advance(window, kept)

    def clear(self, slot: int) -> None:
        """Start a new session in a slot."""
        self.executor.clear(slot)
        if self.drafts is not None:
            self.drafts.clear(slot)
        self.cells[slot] = 0

    def _show(self, window: Window, residual: np.ndarray | None) -> None:
        """Show a window's begin and the rows as they were handed over to the observer (`strata.split.probes`)."""
        self.observer.began(window)
        if residual is not None and RECEIVED in self.executor.watched:
            self.observer.see(window, RECEIVED, self.plan.first, residual, WHOLE)

    def _check(self, slot: int, start: int) -> None:
        if self.cells[slot] != start:
            raise DeviceError(
                f"slot {slot} of layers {self.plan.first}-{self.plan.last - 1}",
                f"a window starts at position {start} and the stage holds {self.cells[slot]} cells",
                "report this with the command that led here: the stages disagree",
            )

    def _advance(self, window: Window, kept: Sequence[int]) -> None:
        for segment, n in zip(window.segments, kept, strict=True):
            self.cells[segment.slot] += int(n)


class HandOff:
    """The rows crossing from one stage to the next: one copy, counted."""

    def __init__(self, counters: Counter) -> None:
        self._counters, self._lock = counters, threading.Lock()

    def cross(self, residual: np.ndarray) -> np.ndarray:
        """Return the rows as the next stage receives them."""
        with self._lock:  # several stages' threads hand off at once
            self._counters["hand_offs"] += 1
            self._counters["hand_off_bytes"] += residual.nbytes
        return residual.copy()


def run_serial(stages: Sequence[Stage], hand_off: HandOff, window: Window) -> np.ndarray:
    """Run a window through the stages one after the other; returns logits [len(logit_rows), vocabulary]."""
    rows = None
    for index, stage in enumerate(stages):
        rows = stage.run(window, rows if index == 0 else hand_off.cross(rows))
    return rows
