"""What a report says about the machine: versions, processor, devices, folders.  All text, names to values."""

import os

from strata.cli.env import FOLDERS
from strata.cli.env import environment as engine_environment
from strata.cuda.card.found import find_cards
from strata.split.devices import usable_cores

def environment() -> dict[str, str]:
    """Return name -> value."""
    cards = "".join(f", cuda:{c.index} ({c.name}, compute capability {c.capability[0]}.{c.capability[1]})" for c in find_cards())
    compiled = " ".join(filter(None, (os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES")))) or "this processor"
    return {**engine_environment(), "compiled for": compiled, "devices": f"host (a team of {usable_cores()} threads){cards}"}


def recorded_environment() -> dict[str, str]:
    """Return the environment for a file that others read: without folders of this machine."""
    return {name: value for name, value in environment().items() if name not in FOLDERS}
