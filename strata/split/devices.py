"""Devices by name, and the cores there are for them.

    host            the CPU, no budget
    host:SIZE       the CPU with a budget like a card's memory: bytes, or with k, m, g (powers of 1024)
    cuda:N          the card with the driver's number N
    cuda:N:SIZE     the same with a budget for what is placed when an engine opens; what windows take besides is not in it
    auto            cuda:0 where there is a card that can be used, else host

Several are separated by commas; host and cards may be mixed.  Does not know: stages.
"""

import os
import re
from dataclasses import dataclass

from strata.errors import UsageError

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True, slots=True)
class DeviceName:
    """One parsed device: kind `host` or `cuda`, its budget in bytes (None: no limit), a card's number."""

    text: str
    kind: str
    budget_bytes: int | None
    index: int = 0


def parse_devices(text: str) -> tuple[DeviceName, ...]:
    """Parse a comma-separated list of devices; raises UsageError for an unknown one."""
    return tuple(_parse(part.strip()) for part in text.split(","))


def _parse(part: str) -> DeviceName:
    if part == "auto":
        part = _automatic()
    if part == "host":
        return DeviceName(part, "host", None)
    if card := re.fullmatch(r"cuda:(\d+)(?::(\d+)([kmg]?))?", part):
        return DeviceName(part, "cuda", None if card[2] is None else int(card[2]) * UNITS[card[3]], int(card[1]))
    match = re.fullmatch(r"host:(\d+)([kmg]?)", part)
    if match is None:
        raise UsageError(f"devices={part}", "there is no such device", "use host, host:256m for the CPU with a budget, cuda:0, cuda:0:20g or auto")
    return DeviceName(part, "host", int(match[1]) * UNITS[match[2]])


def require_devices(devices: tuple[DeviceName, ...]) -> None:
    """Raise DeviceError for the first card that is not there or cannot be used; nothing is opened."""
    for device in devices:
        if device.kind == "cuda":
            from strata.cuda.card.found import card_at

            card_at(device.index)


def _automatic() -> str:
    """Return the first card that can be used, else host."""
    from strata.cuda.card.found import find_cards

    usable = [card.index for card in find_cards() if card.refusal is None]
    return f"cuda:{usable[0]}" if usable else "host"


def usable_cores() -> int:
    """Return the number of CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
