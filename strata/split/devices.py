"""Devices by name, and the cores there are for them.

    host            the CPU, no budget
    host:SIZE       the CPU with a budget like a card's memory: bytes, or with k, m, g (powers of 1024)

Several are separated by commas.  `cuda:N` is known to the CUDA executor where it is installed.  Does not know: stages.
"""

import os
import re
from dataclasses import dataclass

from strata.errors import UsageError

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True, slots=True)
class DeviceName:
    """One parsed device: kind `host` with its budget in bytes (None: no limit)."""

    text: str
    kind: str
    budget_bytes: int | None


def parse_devices(text: str) -> tuple[DeviceName, ...]:
    """Parse a comma-separated list of devices; raises UsageError for an unknown one."""
    return tuple(_parse(part.strip()) for part in text.split(","))


def _parse(part: str) -> DeviceName:
    if part == "host":
        return DeviceName(part, "host", None)
    match = re.fullmatch(r"host:(\d+)([kmg]?)", part)
    if match is None:
        raise UsageError(f"devices={part}", "there is no such device", "use host, or host:256m for the CPU with a budget")
    return DeviceName(part, "host", int(match[1]) * UNITS[match[2]])


def usable_cores() -> int:
    """Return the number of CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
