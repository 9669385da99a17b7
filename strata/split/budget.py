"""What the stages of a plan take from their devices, by purpose.

The stages are opened on devices without a limit and closed again: the figures are what the executors themselves account,
not a second formula.  No weight is read.  Does not know: requests.
"""

from dataclasses import dataclass, replace

from strata.errors import DeviceMemoryError
from strata.host.expert_memory import CACHE, RING
from strata.model.model import Model
from strata.split.card_opening import free_bytes
from strata.split.opening import close_stages, open_stages
from strata.split.tier_opening import by_device, tier_device
from strata.split.tier_sizes import BUFFERS, size_tiers


@dataclass(frozen=True, slots=True)
class DeviceBytes:
    """One device: its budget (None: no limit; of a card what it takes and what is free) and (purpose, bytes) in the order of placing; rows of a prompt chunk that a tier has room for (0: no tier)."""

    name: str
    budget_bytes: int | None
    purposes: tuple[tuple[str, int], ...]
    chunk_rows: int = 0

    @property
    def total(self) -> int:
        return sum(n_bytes for _, n_bytes in self.purposes)


def device_bytes(model: Model, resolved) -> tuple[DeviceBytes, ...]:
    """Return the devices that the stages of `Resolved` settings use."""
    unlimited = replace(resolved, threads=1, devices=tuple(replace(d, budget_bytes=None) for d in resolved.devices))
    stages = open_stages(model, unlimited)
    try:
        found = []
        for device, own in by_device(stages):
            budget = resolved.devices[own[0].plan.device].budget_bytes
            if device.kind != "host" and budget is None:
                budget = device.taken_bytes + free_bytes(device)
            taken = tuple(device.taken.items())
            found.append(DeviceBytes(device.name, budget, taken))
        if resolved.tier.cache is not None:
            found = _with_tiers(model, resolved, by_device(stages), found)
        return tuple(found)
    finally:
        close_stages(stages)


def _with_tiers(model: Model, resolved, on_devices, placed: list[DeviceBytes]) -> list[DeviceBytes]:
    """Return what devices take with what their tiers take."""
    rooms = []
    for (device, own), taken in zip(on_devices, placed, strict=True):
        free = None if taken.budget_bytes is None else taken.budget_bytes - taken.total
        room = replace(tier_device(model, device, own), free_bytes=free)
        rooms.append(replace(room, budget_bytes=taken.budget_bytes) if device.kind == "host" else room)
    sizes = size_tiers(resolved, model.config, rooms)
    return [
        replace(taken, chunk_rows=sizes.chunk_rows, purposes=(
            *taken.purposes, (CACHE, max(1, size.n_slots) * room.slot_bytes), (RING, size.n_places * room.slot_bytes), (BUFFERS, size.own_bytes),
        ))
        for taken, room, size in zip(placed, rooms, sizes.devices, strict=True)
    ]


def check_budgets(devices: tuple[DeviceBytes, ...]) -> None:
    """Raise DeviceMemoryError for the first purpose that exceeds its device's budget."""
    for device in devices:
        taken = 0
        for purpose, n_bytes in device.purposes:
            if device.budget_bytes is not None and taken + n_bytes > device.budget_bytes:
                raise DeviceMemoryError(device.name, purpose, n_bytes, device.budget_bytes - taken)
            taken += n_bytes
