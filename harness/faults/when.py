"""One-ULP faults that hit only in some circumstance of the window, and probes that rewrite a point's values.

Does not know: which faults there are.
"""

from collections.abc import Callable

import numpy as np

from harness.faults.ulp import UlpFault, Where
from strata.rows import Place, Window
from strata.split.probes import SilentProbe

Seeing = Callable[[int, Window, int, np.ndarray, Place], None]


class UlpWhen(UlpFault):
    """Flips a lowest bit where `when(window)` holds."""

    def __init__(self, where: Where, when: Callable[[Window], bool]) -> None:
        super().__init__(where)
        self._when = when

    def see(self, stage: int, window: Window, point: str, layer: int, values: np.ndarray, place: Place) -> None:
        """Flip, in place, what the conditions choose."""
        if self._when(window):
            super().see(stage, window, point, layer, values, place)


class Rewriting(SilentProbe):
    """Hands a point's values to a function of (stage, window, layer, values, place) that may write them."""

    def __init__(self, **of_point: Seeing) -> None:
        self._of_point = {name.replace("__", "."): seeing for name, seeing in of_point.items()}
        self.points = frozenset(self._of_point)

    def see(self, stage: int, window: Window, point: str, layer: int, values: np.ndarray, place: Place) -> None:
        """Call the point's function."""
        self._of_point[point](stage, window, layer, values, place)


def is_verify(window: Window) -> bool:
    """Whether a window carries drafts."""
    return not window.keep


def has_company(window: Window) -> bool:
    """Whether a window has rows of several conversations."""
    return len(window.segments) > 1


def is_lone_row(window: Window) -> bool:
    """Whether a window has one row."""
    return window.n_rows == 1
