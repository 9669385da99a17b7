"""What the stages of a plan take from their devices, by purpose.

The stages are opened on devices without a limit and closed again: the figures are what the executors themselves account,
not a second formula.  No weight is read.  Does not know: requests.
"""

from dataclasses import dataclass, replace

from strata.errors import DeviceMemoryError
from strata.host.expert_memory import CACHE, RING, slot_bytes
from strata.model.model import Model
from strata.split.opening import close_stages, open_stages
from strata.split.tier_opening import by_device, layers_of, require_host, tier_sizes


@dataclass(frozen=True, slots=True)
class DeviceBytes:
    """One device: its budget (None: no limit) and (purpose, bytes) in the order of placing."""

    name: str
    budget_bytes: int | None
    purposes: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        return sum(n_bytes for _, n_bytes in self.purposes)


def device_bytes(model: Model, resolved) -> tuple[DeviceBytes, ...]:
    """Return the devices that the stages of `Resolved` settings use."""
    unlimited = replace(resolved, threads=1, devices=tuple(replace(d, budget_bytes=None) for d in resolved.devices))
    stages = open_stages(model, unlimited)
    try:
        found = []
        for number, (device, own) in enumerate(by_device(stages)):
            budget = resolved.devices[own[0].plan.device].budget_bytes
            taken = tuple(device.taken.items())
            if resolved.tier.cache is not None:
                require_host("expert_cache", own)
                free = None if budget is None else budget - sum(n_bytes for _, n_bytes in taken)
                taken += _tier_bytes(model, resolved, layers_of(own), free, device.kind != "host", number)
            found.append(DeviceBytes(device.name, budget, taken))
        return tuple(found)
    finally:
        close_stages(stages)


def _tier_bytes(model: Model, resolved, layers, free: int | None, is_card: bool, number: int) -> tuple[tuple[str, int], ...]:
    n_slots, n_places = tier_sizes(resolved, layers, model.config.n_experts, free, is_card, number)
    size = slot_bytes(layers)
    return (CACHE, max(1, n_slots) * size), (RING, n_places * size)


def check_budgets(devices: tuple[DeviceBytes, ...]) -> None:
    """Raise DeviceMemoryError for the first purpose that exceeds its device's budget."""
    for device in devices:
        taken = 0
        for purpose, n_bytes in device.purposes:
            if device.budget_bytes is not None and taken + n_bytes > device.budget_bytes:
                raise DeviceMemoryError(device.name, purpose, n_bytes, device.budget_bytes - taken)
            taken += n_bytes
