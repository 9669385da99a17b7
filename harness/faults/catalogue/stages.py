"""Stage bookkeeping and copy ordering: what a stage believes about a window, and what crosses between stages.

Faults of bookkeeping strike where there is more than one stage; faults of copies where windows of several groups are in
flight.  Does not know: checks.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from harness.faults.catalogue.accept import MEMORY, one_fewer, wrong_commit
from harness.faults.fault import Fault
from harness.faults.hooks import later_stages, wrap
from strata.batch.engine import Engine
from strata.rows import Window

BOOKKEEPING, COPIES = "stage bookkeeping", "copy ordering"
SPLIT = ("split/2-stages-6", "split/drafts-6", "pipeline/serial-2x4")
DRAFTED = ("split/drafts-6", "window/stages")
PIPELINED = ("pipeline/pipelined-2x4", "pipeline/pipelined-3x6", "pipeline/pipelined-4x8", "pipeline/jitter")


def faults() -> list[Fault]:
    """Return the faults."""
    return [*_counts(), *_stale(), *_rows(), *_copies()]


def _counts() -> list[Fault]:
    def later_counts_fewer(engine: Engine) -> None:
        for stage in later_stages(engine):
            wrap(stage, "commit", lambda commit: lambda window, kept: commit(window, np.maximum(kept - 1, 0)))

    def later_keeps_fewer(engine: Engine) -> None:
        for stage in later_stages(engine):
            wrap(stage.executor, "commit", lambda commit: lambda window, kept: commit(window, np.maximum(kept - 1, 0)))

    def first_keeps_all(engine: Engine) -> None:
        if later_stages(engine):
            wrap(engine.stages[0].executor, "commit", lambda commit: lambda window, kept: commit(window, window.count))

    def later_memory_short(engine: Engine) -> None:
        for stage in later_stages(engine):
            wrong_commit(stage.executor, MEMORY, one_fewer)

    return [
        Fault(
            "stage-count",
            BOOKKEEPING,
            "cells of stage 1",
            "stage 1 learns one accepted row too few, and counts it",
            DRAFTED,
            later_counts_fewer,
        ),
        Fault(
            "stage-keeps-fewer",
            BOOKKEEPING,
            "state of stage 1",
            "stage 1 learns one accepted row too few, and its count does not show it",
            DRAFTED,
            later_keeps_fewer,
        ),
        Fault("stage-keeps-all", BOOKKEEPING, "state of stage 0", "stage 0 never learns what was rejected", DRAFTED, first_keeps_all),
        Fault(
            "stage-memory-short",
            BOOKKEEPING,
            "recurrent memory of stage 1",
            "stage 1's memory misses the last accepted row",
            DRAFTED,
            later_memory_short,
        ),
    ]


def _stale() -> list[Fault]:
    """A stage goes on with arrays of the window before, where they have the same shape."""
    return [
        _stale_field("stage-stale-ids", "tokens", 0, "stage 0 embeds the tokens of the window before"),
        _stale_field("stage-stale-positions", "positions", 1, "stage 1 takes the positions of the window before"),
        _stale_field("stage-stale-slots", "slots", 1, "stage 1 takes the slots of the window before"),
    ]


def _stale_field(name: str, field: str, index: int, words: str) -> Fault:
    def plant(engine: Engine) -> None:
        if later_stages(engine):
            replay(engine.stages[index].executor, (field,), lambda window: True)

    return Fault(name, BOOKKEEPING, f"{field} of a window", words, SPLIT, plant)


def replay(executor, fields: tuple[str, ...], when: Callable[[Window], bool]) -> None:
    """Let an executor take arrays from the window before it, where their shapes are equal and `when(window)` holds."""
    before: list[Window] = []

    def make(begin: Callable) -> Callable:
        def began(window: Window) -> None:
            begin(window)
            if before and when(window):
                same = {f: getattr(before[0], f) for f in fields if getattr(before[0], f).shape == getattr(window, f).shape}
                executor.window = replace(window, **same)
                if window in executor._pending:
                    executor._pending[executor.window] = executor._pending[window]
            before[:] = [window]

        return began

    wrap(executor, "begin", make)


def _rows() -> list[Fault]:
    def reversed_rows(engine: Engine) -> None:
        for stage in later_stages(engine):
            wrap(
                stage,
                "run",
                lambda run: lambda window, rows: run(window, rows if len(window.segments) < 2 else np.ascontiguousarray(rows[::-1])),
            )

    def layer_left_out(engine: Engine) -> None:
        for stage in later_stages(engine):
            stage.executor.placed = replace(stage.executor.placed, layers=stage.executor.placed.layers[1:])

    def not_cleared(engine: Engine) -> None:
        for stage in later_stages(engine):
            wrap(stage.executor, "clear", lambda clear: lambda slot: None)

    return [
        Fault("stage-reversed-rows", BOOKKEEPING, "rows of a hand-off", "stage 1 takes the rows in another order", SPLIT, reversed_rows),
        Fault(
            "stage-border-layer",
            BOOKKEEPING,
            "layers of stage 1",
            "the first layer behind the border runs on neither stage",
            SPLIT,
            layer_left_out,
        ),
        Fault("stage-not-cleared", BOOKKEEPING, "sessions of stage 1", "stage 1 is not told that a new session begins", SPLIT, not_cleared),
    ]


# ---- copies


def _copies() -> list[Fault]:
    words = "one buffer for the hand-offs of all groups"
    return [
        Fault("copy-shared-buffer", COPIES, "hand-off", words, PIPELINED, _shared_buffer),
        Fault(
            "copy-not-awaited",
            COPIES,
            "hand-off",
            "a hand-off is read before its copy arrived, where another stage is at work",
            PIPELINED,
            _not_awaited,
        ),
        Fault(
            "copy-half",
            COPIES,
            "hand-off",
            "a hand-off is read when half of its copy arrived, where another stage is at work",
            PIPELINED,
            _half,
        ),
        Fault("copy-shared-logits", COPIES, "logits", "one buffer for the logits of all groups", PIPELINED, _shared_logits),
        Fault(
            "copy-late-commit",
            COPIES,
            "commit",
            "a commit takes effect on the last stage after the window behind it",
            ("pipeline/drafts", "split/drafts-6"),
            _late_commit,
        ),
        Fault(
            "copy-left-out",
            COPIES,
            "hand-off",
            "the hand-off is the very array of the stage before",
            ("tier/groups", *PIPELINED),
            _left_out,
        ),
    ]


def _shared_buffer(engine: Engine) -> None:
    buffers: dict[tuple[int, ...], np.ndarray] = {}

    def make(cross: Callable) -> Callable:
        def crossed(rows: np.ndarray) -> np.ndarray:
            buffer = buffers.setdefault(rows.shape, np.empty_like(rows))
            buffer[:] = cross(rows)
            time.sleep(0)
            return buffer

        return crossed

    wrap(engine._hand_off, "cross", make)


def _not_awaited(engine: Engine) -> None:
    _crossing(engine, lambda rows, before: before)


def _half(engine: Engine) -> None:
    def half(rows: np.ndarray, before: np.ndarray) -> np.ndarray:
        middle = rows.shape[1] // 2
        return np.concatenate((rows[:, :middle], before[:, middle:]), axis=1)

    _crossing(engine, half)


def _crossing(engine: Engine, change: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
    """Change what crosses while another stage is at work, given what crossed before in that shape."""
    if engine._pipeline is None:
        return
    before: dict[tuple[int, ...], np.ndarray] = {}

    def make(cross: Callable) -> Callable:
        def crossed(rows: np.ndarray) -> np.ndarray:
            result, earlier = cross(rows), before.get(rows.shape)
            before[rows.shape] = result.copy()
            return change(result, earlier) if earlier is not None and engine._pipeline._busy > 1 else result

        return crossed

    wrap(engine._hand_off, "cross", make)


def _shared_logits(engine: Engine) -> None:
    buffers: dict[tuple[int, ...], np.ndarray] = {}

    def make(run: Callable) -> Callable:
        def ran(window: Window, rows: np.ndarray | None) -> np.ndarray:
            logits = run(window, rows)
            buffer = buffers.setdefault(logits.shape, np.empty_like(logits))
            buffer[:] = logits
            return buffer

        return ran

    wrap(engine.stages[-1], "run", make)


def _left_out(engine: Engine) -> None:
    wrap(engine._hand_off, "cross", lambda cross: lambda rows: (cross(rows), rows)[1])


def _late_commit(engine: Engine) -> None:
    """The last stage keeps its commits until it has begun the next window."""
    if not later_stages(engine):
        return
    executor = engine.stages[-1].executor
    late: list[tuple[Callable, Window, np.ndarray]] = []

    def make_commit(commit: Callable) -> Callable:
        return lambda window, kept: late.append((commit, window, kept.copy()))

    def make_head(head: Callable) -> Callable:
        def computed(residual: np.ndarray) -> np.ndarray:
            logits = head(residual)
            while late:
                commit, window, kept = late.pop(0)
                commit(window, kept)
            return logits

        return computed

    wrap(executor, "commit", make_commit)
    wrap(executor, "head", make_head)
