"""Faults that can be planted on a card, in the right arm only: one unit in the last place at a point that cards show, and those of the tier.

The right arms' engines are opened on the device instead of the host; the left arms stay where they are.  Faults that wrap
methods of the host's executor have nothing to wrap on a card; those of the tier that wrap tables and copies have, and a card's
own are in `card_tiers`.  Does not know: checks.
"""

from collections.abc import Iterable
from dataclasses import replace

from harness.faults.catalogue import card_tiers
from harness.faults.catalogue.arithmetic import KIND
from harness.faults.fault import CONTROL, ONE, Fault
from strata.batch.settings import EngineSettings
from strata.errors import UsageError

UNSEEN = frozenset({"ulp-qsa.keys", "ulp-indexer.raw.read", "ulp-qsa.attended"})
"""Faults at points that cards do not show, or whose values were used when they are shown."""
TIERED = frozenset({"tier-late-copy", "tier-other-layer", "tier-victim-stays", "tier-shared-slot", "tier-usage-none"})
"""Faults of the tier whose place is the same on host devices and on cards."""


def moved(fault: Fault, device: str) -> Fault:
    """Return a fault of the right arm whose engines run on a device, all their stages."""

    def settings(asked: EngineSettings) -> EngineSettings:
        plain = fault.settings(asked)
        here = replace(plain, devices=",".join(device for _ in plain.devices.split(",")))
        fetches = here.expert_cache is not None and here.pcie_frac != 0 and not here.resident_experts and here.arena_pin_gib is None
        return replace(here, arena_pin_gib=0.0) if fetches else here  # a card fetches only what is page-locked

    return replace(fault, reach=ONE, settings=settings)


def control_on(device: str) -> Fault:
    """Return the fault that is none, with right arms on a device."""
    return moved(CONTROL, device)


def planted_on(device: str, faults: Iterable[Fault]) -> list[Fault]:
    """Return those of the faults that can be planted on a device; raises UsageError where there is none."""
    if "," in device or not device.startswith("cuda"):
        raise UsageError(f"devices={device}", "faults are planted on one card, or on the host", "give a card, as cuda:0, or leave --devices out")
    found = [moved(fault, device) for fault in faults if _has_place(fault)]
    if not found:
        raise UsageError(f"devices={device}", "none of the faults asked for can be planted on a card", f"use faults of kind {KIND} in one arm, or of the tier")
    return found


def _has_place(fault: Fault) -> bool:
    is_value = fault.kind == KIND and fault.reach == ONE and fault.name not in UNSEEN
    return is_value or fault.name in TIERED or fault.name in {own.name for own in card_tiers.faults()}
