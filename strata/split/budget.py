"""What the stages of a plan take from their devices, by purpose.

The stages are opened on devices without a limit and closed again: the figures are what the executors themselves account,
not a second formula.  No weight is read.  Does not know: requests.
"""

from dataclasses import dataclass, replace

from strata.errors import DeviceMemoryError
from strata.model.model import Model
from strata.split.opening import close_stages, open_stages


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
        opened = {stage.plan.device: stage.executor.device for stage in stages}
        return tuple(
            DeviceBytes(device.name, resolved.devices[index].budget_bytes, tuple(device.taken.items()))
            for index, device in sorted(opened.items())
        )
    finally:
        close_stages(stages)


def check_budgets(devices: tuple[DeviceBytes, ...]) -> None:
    """Raise DeviceMemoryError for the first purpose that exceeds its device's budget."""
    for device in devices:
        taken = 0
        for purpose, n_bytes in device.purposes:
            if device.budget_bytes is not None and taken + n_bytes > device.budget_bytes:
                raise DeviceMemoryError(device.name, purpose, n_bytes, device.budget_bytes - taken)
            taken += n_bytes
