"""How many slots run where memory does not hold all that were asked for.

A count of slots is never refused: as many run as fit, and one request at a time where not two do.  What fits is found by the
accounts of the devices themselves, so it is exact whatever they hold; only where not even one slot fits is it an error.
Does not know: what takes memory.
"""

from collections.abc import Callable
from typing import TypeVar

from strata.batch.settings import EngineSettings, Resolved, resolve
from strata.errors import DeviceMemoryError
from strata.model.config import ModelConfig

Placed = TypeVar("Placed")


def fit(settings: EngineSettings, config: ModelConfig, n_cores: int, place: Callable[[Resolved], Placed]) -> tuple[Resolved, Placed]:
    """Return the settings in force and what `place` made of them, with as many slots as it accepts.

    `place` raises DeviceMemoryError where a device's memory does not suffice and leaves nothing behind; the error for one
    slot is raised on.  Raises UsageError as `resolve` does.
    """
    resolved = resolve(settings, config, n_cores)
    while True:
        try:
            return resolved, place(resolved)
        except DeviceMemoryError:
            if resolved.n_slots == 1:
                raise
            resolved = resolve(settings, config, n_cores, resolved.n_slots - 1)
