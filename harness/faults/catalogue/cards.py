"""Faults that can be planted on a card: one unit in the last place at a point that cards show, in the right arm only.

The right arms' engines are opened on the device instead of the host; the left arms stay where they are.  Faults that wrap
methods of the host's executor have nothing to wrap on a card.  Does not know: checks.
"""

from collections.abc import Iterable
from dataclasses import replace

from harness.faults.catalogue.arithmetic import KIND
from harness.faults.fault import CONTROL, ONE, Fault
from strata.batch.settings import EngineSettings
from strata.errors import UsageError

UNSEEN = frozenset({"ulp-qsa.keys", "ulp-indexer.raw.read", "ulp-qsa.attended"})
"""Faults at points that cards do not show, or whose values were used when they are shown."""


def moved(fault: Fault, device: str) -> Fault:
    """Return a fault of the right arm whose engines run on a device, all their stages."""

    def settings(asked: EngineSettings) -> EngineSettings:
        plain = fault.settings(asked)
        return replace(plain, devices=",".join(device for _ in plain.devices.split(",")))

    return replace(fault, reach=ONE, settings=settings)


def control_on(device: str) -> Fault:
    """Return the fault that is none, with right arms on a device."""
    return moved(CONTROL, device)


def planted_on(device: str, faults: Iterable[Fault]) -> list[Fault]:
    """Return those of the faults that can be planted on a device; raises UsageError where there is none."""
    if "," in device or not device.startswith("cuda"):
        raise UsageError(f"devices={device}", "faults are planted on one card, or on the host", "give a card, as cuda:0, or leave --devices out")
    found = [moved(fault, device) for fault in faults if fault.kind == KIND and fault.reach == ONE and fault.name not in UNSEEN]
    if not found:
        raise UsageError(f"devices={device}", "none of the faults asked for can be planted on a card", f"use faults of kind {KIND} in one arm")
    return found
