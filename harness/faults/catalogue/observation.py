"""Probe effect: a run that is observed is another run.

Each fault strikes only where a ledger is attached.  Does not know: checks.
"""

from collections.abc import Callable

import numpy as np

from harness.faults.fault import Fault
from harness.faults.hooks import wrap
from strata.batch.engine import Engine
from strata.rows import Place, Window

KIND = "probe effect"
SEEN_BY = ("observed/slots-2", "observed/split")
Seeing = Callable[[Window, str, int, np.ndarray, Place], None]


def faults() -> list[Fault]:
    """Return the faults."""
    return [
        Fault("probe-half", KIND, "tap at gdn.output", "a tap leaves the values rounded to half precision behind", SEEN_BY, _tapped(_half)),
        Fault("probe-flush", KIND, "tap at attention.gate", "a tap flushes small values to zero", SEEN_BY, _tapped(_flush)),
        Fault("probe-shift", KIND, "tap at logits", "a tap rounds what it shows, by adding and taking away 64", SEEN_BY, _tapped(_shift)),
        Fault("probe-order", KIND, "tap at moe.ids", "a tap sorts the ids that it shows", SEEN_BY, _tapped(_sorts)),
        Fault(
            "probe-hand-off",
            KIND,
            "tap at hand_off",
            "showing a hand-off leaves its first row in the place of its last",
            ("observed/split",),
            _spoils_hand_off,
        ),
        Fault("probe-path", KIND, "head", "an observed head runs over all rows and takes the wrong ones", SEEN_BY, _other_rows),
    ]


def _tapped(change: Callable[[str, np.ndarray], None]) -> Callable[[Engine], None]:
    def plant(engine: Engine) -> None:
        for stage in engine.stages:
            if stage.executor.observe is not None:
                wrap(stage.executor, "observe", lambda observe: _changing(observe, change))

    return plant


def _changing(observe: Seeing, change: Callable[[str, np.ndarray], None]) -> Seeing:
    def seen(window: Window, point: str, layer: int, values: np.ndarray, place: Place) -> None:
        observe(window, point, layer, values, place)
        change(point, values)

    return seen


def _half(point: str, values: np.ndarray) -> None:
    if point == "gdn.output":
        values[:] = values.astype(np.float16)


def _flush(point: str, values: np.ndarray) -> None:
    if point == "attention.gate":
        values[np.abs(values) < 1e-3] = 0


def _shift(point: str, values: np.ndarray) -> None:
    if point == "logits":
        values[:] = (values + np.float32(64)) - np.float32(64)


def _sorts(point: str, values: np.ndarray) -> None:
    if point == "moe.ids":
        values.sort(axis=1)


def _spoils_hand_off(engine: Engine) -> None:
    for stage in engine.stages[1:]:
        if stage.observer is not None:
            wrap(stage, "_show", lambda show: _showing(show))


def _showing(show: Callable):
    def shown(window: Window, residual: np.ndarray | None) -> None:
        show(window, residual)
        residual[-1] = residual[0]

    return shown


def _other_rows(engine: Engine) -> None:
    executor = engine.stages[-1].executor
    if executor.observe is not None:
        wrap(executor, "head", lambda head: lambda residual: np.roll(head(residual), 1, axis=0))
