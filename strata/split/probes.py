"""Probes: something that sees what every operation gives and reads on every stage, where it lies.

A probe is given when an engine opens.  The ledger is one; it reads and changes nothing.  A planted fault is another: it may
change the values in place.  Without a probe the executors do no work for it; with one, only the points that it names are
shown.  Calls come on the thread that computed: one window at a time per stage, commits of other windows beside it.
Does not know: what is recorded.
"""

from collections.abc import Container, Iterable, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from strata.rows import Place, Window
from strata.split.stages import Stage


class Probe(Protocol):
    """What an observer of all stages has; stages count from 0.

    points      names of the points that it wants to see
    opened      a stage opened on a device, with layers first .. last-1
    began       a window begins on a stage: before any of its taps there
    committed   kept[s] rows of each segment of a window that ran without `keep` were kept on a stage
    see         values of a point (`gdn.scan`) at a layer (-1 outside the layers), placed in the window as `place` says
    """

    points: Container[str]

    def opened(self, stage: int, device: str, first: int, last: int) -> None: ...
    def began(self, stage: int, window: Window) -> None: ...
    def committed(self, stage: int, window: Window, kept: np.ndarray) -> None: ...
    def see(self, stage: int, window: Window, point: str, layer: int, values: np.ndarray, place: Place) -> None: ...


class SilentProbe:
    """A probe that wants nothing: a base for probes that need only some of the calls."""

    points: Container[str] = frozenset()

    def opened(self, stage: int, device: str, first: int, last: int) -> None:
        """Take note of a stage."""

    def began(self, stage: int, window: Window) -> None:
        """Take note of a window's begin."""

    def committed(self, stage: int, window: Window, kept: np.ndarray) -> None:
        """Take note of a commit."""

    def see(self, stage: int, window: Window, point: str, layer: int, values: np.ndarray, place: Place) -> None:
        """See a point's values."""


class Probes:
    """Several probes as one: each call goes to them in order, values only to those that want the point."""

    def __init__(self, probes: Iterable[Probe]) -> None:
        self._probes = tuple(probes)
        self.points = _Union(tuple(probe.points for probe in self._probes))

    def opened(self, stage: int, device: str, first: int, last: int) -> None:
        for probe in self._probes:
            probe.opened(stage, device, first, last)

    def began(self, stage: int, window: Window) -> None:
        for probe in self._probes:
            probe.began(stage, window)

    def committed(self, stage: int, window: Window, kept: np.ndarray) -> None:
        for probe in self._probes:
            probe.committed(stage, window, kept)

    def see(self, stage: int, window: Window, point: str, layer: int, values: np.ndarray, place: Place) -> None:
        for probe in self._probes:
            if point in probe.points:
                probe.see(stage, window, point, layer, values, place)


class _Union:
    """Contains what any of several containers contains."""

    __slots__ = ("_parts",)

    def __init__(self, parts: tuple[Container[str], ...]) -> None:
        self._parts = parts

    def __contains__(self, point: object) -> bool:
        return any(point in part for part in self._parts)


class StageObserver:
    """A probe's view of one stage, as the stage calls it; `see` is what its executor calls."""

    __slots__ = ("_probe", "_stage", "see")

    def __init__(self, probe: Probe, stage: int) -> None:
        self._probe, self._stage = probe, stage
        self.see = partial(probe.see, stage)

    def began(self, window: Window) -> None:
        self._probe.began(self._stage, window)

    def committed(self, window: Window, kept: np.ndarray) -> None:
        self._probe.committed(self._stage, window, kept)


def attach(probe: Probe, stages: Sequence[Stage]) -> None:
    """Let a probe see all stages."""
    for index, stage in enumerate(stages):
        stage.observer = StageObserver(probe, index)
        stage.executor.observe, stage.executor.watched = stage.observer.see, probe.points
        probe.opened(index, stage.executor.device.name, stage.plan.first, stage.plan.last)
