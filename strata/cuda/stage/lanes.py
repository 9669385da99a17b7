"""A stage's lanes: which are free, and which of those of prompt chunks are kept.

Does not know: what a lane holds (workspace.py), programs.
"""

from collections.abc import Callable

from strata.cuda.card.device import CudaDevice
from strata.cuda.memory.workspace import PLACES, Lane, make_lane
from strata.rows import Window

MOST_WIDE = 4
"""Uses of prompt chunks' lanes that are remembered: a lane that none of them used is dropped."""


class LaneTable:
    """Free lanes by rows and segments; `forget(number)` is told of a lane before its memory is freed."""

    def __init__(self, device: CudaDevice, purpose: str, forget: Callable[[int], None]) -> None:
        self.device, self.purpose, self._forget = device, purpose, forget
        self._free: dict[tuple[int, int], list[Lane]] = {}
        self._wide: list[Lane] = []
        self._n_lanes = 0

    def take(self, window: Window) -> Lane:
        """Return a lane that no window holds."""
        n, s = window.n_rows, window.n_rows if window.n_rows <= PLACES else len(window.segments)
        free = self._free.setdefault((n, s), [])
        if free:
            return free.pop()
        self._n_lanes += 1
        return make_lane(self.device, self._purpose_of(n, self._n_lanes), self._n_lanes, n, s)

    def release(self, lane: Lane) -> None:
        """Take a lane back; of those of prompt chunks only the latest are kept."""
        self._free.setdefault((lane.n_rows, lane.n_segments), []).append(lane)
        if lane.n_rows <= PLACES:
            return
        self._wide.append(lane)
        if len(self._wide) > MOST_WIDE:
            oldest = self._wide.pop(0)
            if oldest in self._wide:
                return
            self._free[oldest.n_rows, oldest.n_segments].remove(oldest)
            self._forget(oldest.number)
            self.device.give_back(self._purpose_of(oldest.n_rows, oldest.number))

    def clear(self) -> None:
        """Drop every lane; the memory of those of decode windows is the stage's to give back."""
        wide = {lane.number: lane for lane in self._wide}
        for lane in wide.values():
            self.device.give_back(self._purpose_of(lane.n_rows, lane.number))
        self._wide.clear()
        self._free.clear()

    def _purpose_of(self, n_rows: int, number: int) -> str:
        return self.purpose if n_rows <= PLACES else f"{self.purpose}: chunk {number}"
