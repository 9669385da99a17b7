"""Faults planted in one arm: one value of each row moved by one unit in the last place, at a named point."""

import numpy as np

from strata.rows import Place, Window
from strata.split.probes import SilentProbe


class LastPlace(SilentProbe):
    """Moves the first value of each of a point's rows by one unit, in the windows that `when` picks; `hits` counts them."""

    def __init__(self, point: str, layer: int, when=lambda window: True) -> None:
        self.points = frozenset({point})
        self._layer, self._when = layer, when
        self.hits = 0

    def see(self, stage: int, window: Window, point: str, layer: int, values: np.ndarray, place: Place) -> None:
        """Change the value where it lies."""
        if layer == self._layer and self._when(window):
            first = values.reshape(values.shape[0], -1)[:, 0]
            first[:] = np.nextafter(first, np.float32(np.inf))
            self.hits += 1


def is_decoding(window: Window) -> bool:
    """Whether a window is no prompt chunk of the tests: it begins behind the prompt's first tokens."""
    return window.segments[0].start > 0
