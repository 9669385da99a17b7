"""Who computes which of a layer's routed experts: parts of the entries, each with the matrices where its experts lie.

A part is a range of the listed experts; `places` says where in its matrices each of them is.  The pool's part reads the
experts where the file or a RAM copy has them, and codes activations by the pool's rule.  `ExpertTier` is what an executor
asks for the parts of a window's layer.  Does not know: how a tier decides.
"""

import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from strata.cpu_pool.arena import PARTS
from strata.cpu_pool.team import Team
from strata.host.matrix import Entries, Matrix
from strata.host.placed import PlacedMoe

UNTIMED = nullcontext()


@dataclass(frozen=True, slots=True, eq=False)
class ExpertPart:
    """Listed experts first .. last-1: `places` int32 [last - first] in gate, up, down; `clock` counts the time they take."""

    gate: Matrix
    up: Matrix
    down: Matrix
    places: np.ndarray
    first: int
    last: int
    in_pool: bool = False
    clock: Any = UNTIMED

    def entries(self, listed: Entries, rows: np.ndarray) -> Entries:
        """Return this part's entries of the layer's, with the activation row of each entry of the layer."""
        return Entries(self.places, listed.starts[self.first : self.last + 1], rows)


class ExpertTier(Protocol):
    """Where the experts of a device's layers lie."""

    def plan(self, layer: int, ids: np.ndarray, is_prompt: bool) -> tuple[Entries, np.ndarray, tuple[ExpertPart, ...]]: ...


class Clock:
    """A context that adds up the seconds spent in it."""

    def __init__(self) -> None:
        self.seconds = self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.add(time.perf_counter() - self._began)

    def add(self, seconds: float) -> None:
        """Add seconds that compiled code has counted."""
        self.seconds += seconds


class PoolClock(Clock):
    """A clock that also counts the pieces that a team's workers ran meanwhile; a worker that is not done yet counts with the next."""

    def __init__(self, team: Team | None) -> None:
        super().__init__()
        self._team, self.pieces, self._before = team, 0, 0

    def __enter__(self) -> None:
        self.begin()
        super().__enter__()

    def begin(self) -> None:
        """Count pieces from now on, up to the next `add`."""
        self._before = 0 if self._team is None else self._team.n_pieces_run

    def add(self, seconds: float) -> None:
        """Add seconds, and the pieces run since `begin`."""
        super().add(seconds)
        if self._team is not None:
            self.pieces += self._team.n_pieces_run - self._before

    def clear(self) -> None:
        """Forget what was counted."""
        self.seconds, self.pieces = 0.0, 0


def over_bank(placed: PlacedMoe, arena, bank: str, layer: int) -> tuple[Matrix, Matrix, Matrix]:
    """Return a layer's gate, up and down over a bank of an arena."""
    blobs = {part: arena.bank(bank, layer, part) for part in PARTS}
    gate, up, down = (getattr(placed, part).over(blob.reshape(-1), blob.shape[1]) for part, blob in blobs.items())
    return gate, up, down


def resident_part(placed: PlacedMoe, listed: Entries) -> ExpertPart:
    """Return the part of a device that has all experts of a layer."""
    return ExpertPart(placed.gate, placed.up, placed.down, listed.experts, 0, len(listed.experts))
