"""Shared scale: the activation scale of a group is taken over more than its own row, so that neighbours change an answer.

Each fault recodes the activations of one operation, just before a quantised product takes them.  Alone, a row's own scale
is the window's, so only company shows it.  Does not know: checks.
"""

from collections.abc import Callable

import numpy as np

from harness.faults.fault import Fault
from harness.faults.hooks import wrap
from strata.batch.engine import Engine
from strata.formats.contract import GROUP

KIND = "shared scale"
SITES = {"ngram": 1, "gdn": 4, "gdn.gated": 6, "qsa": 3, "qsa.gated": 7, "moe": 2, "moe.hidden": 5, "moe.shared.hidden": 8, "head": -1}
LARGEST_CODE = np.float32(127)
TINY = np.float32(2.0**-100)


def faults() -> list[Fault]:
    """Return the faults."""
    whole = [
        _fault(f"scale-window-{site}", site, layer, "the largest magnitude of the whole window", _of_window)
        for site, layer in SITES.items()
    ]
    pairs = [
        _fault(f"scale-pair-{site}", site, SITES[site], "the larger of two neighbours' magnitudes", _of_pair)
        for site in ("gdn", "moe", "head")
    ]
    return whole + pairs


def _fault(name: str, site: str, layer: int, words: str, spread: Callable[[np.ndarray], np.ndarray]) -> Fault:
    def plant(engine: Engine) -> None:
        for stage in engine.stages:
            wrap(stage.executor, "_see_codes", lambda see: _recoding(see, site, layer, spread))

    where = f"coding at {site}, layer {layer}"
    return Fault(
        name, KIND, where, f"the scale of a group of activations comes from {words}", ("batch/slots-2", "ledger batch/slots-2"), plant
    )


def _recoding(see: Callable, site: str, layer: int, spread: Callable[[np.ndarray], np.ndarray]):
    def seen(point: str, at: int, x) -> None:
        if point == site and at == layer and x.values.shape[0] > 1:
            x._coded = _coded(x.values, spread)
        see(point, at, x)

    return seen


def _of_window(largest: np.ndarray) -> np.ndarray:
    return np.broadcast_to(largest.max(axis=0), largest.shape)


def _of_pair(largest: np.ndarray) -> np.ndarray:
    return np.maximum(largest, np.roll(largest, 1, axis=0))


def _coded(values: np.ndarray, spread: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (codes, scales, sums) of rows as the contract has them, but for where a group's largest magnitude comes from."""
    groups = values.reshape(values.shape[0], -1, GROUP)
    largest = spread(np.abs(groups).max(axis=2))
    inverse = np.where(largest < TINY, np.float32(0), LARGEST_CODE / np.maximum(largest, TINY))
    codes = np.rint(groups * inverse[:, :, None]).astype(np.int8)
    scales = np.where(largest < TINY, np.float32(0), largest / LARGEST_CODE).astype(np.float32)
    return codes.reshape(values.shape), scales, codes.sum(axis=2, dtype=np.int32)
