"""Probes: something that sees every operation's result on every stage, where it lies.

A probe is given when an engine opens.  The ledger is one; it reads and changes nothing.  A planted fault is another: it may
change the values in place.  Without a probe the executors do no work for it.  Does not know: what is recorded.
"""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np

from strata.rows import Window
from strata.split.stages import Stage


class Probe(Protocol):
    """`see` is called after each operation, on the thread that computed it.

    `stage` counts from 0; `point` names the operation (`gdn.scan`), `layer` is -1 outside the layers; `values` has one row
    per row of the window (one per logit row for points of the head).
    """

    def see(self, stage: int, device: str, window: Window, point: str, layer: int, values: np.ndarray) -> None: ...


def attach(probe: Probe, stages: Sequence[Stage]) -> None:
    """Let a probe see all stages."""
    for index, stage in enumerate(stages):
        stage.executor.observe = partial(probe.see, index, stage.executor.device.name)
