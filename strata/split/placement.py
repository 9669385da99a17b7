"""Where layers run: from `--layer-split` and `--split-device` to a list of stages.  A pure function.

A split is given as the first layer of each later stage, rising.  Stages are contiguous and cover all layers; the last one
has the head.  Does not know: devices' memory, executors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from strata.errors import UsageError


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Layers first .. last-1 on the device with index `device` in the list of devices."""

    first: int
    last: int
    device: int


def parse_split(text: str) -> tuple[int, ...]:
    """Parse `K1[,K2..]`; an empty text is no split.  Raises UsageError for anything but whole numbers."""
    if not text:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"layer_split={text}", "it is not a list of whole numbers", "give the first layer of each later stage, as 4,8") from None


def plan_stages(n_layers: int, split: Sequence[int], split_devices: Sequence[int] | None, n_devices: int) -> tuple[StagePlan, ...]:
    """Return the stages of a split over n_devices devices.

    `split_devices` names the later stages' devices (default: the next ones).  Raises UsageError naming the likely mistake.
    """
    _check_points(n_layers, split)
    devices = _devices_of(split, split_devices, n_devices)
    points = (0, *split, n_layers)
    return tuple(StagePlan(points[i], points[i + 1], devices[i]) for i in range(len(points) - 1))


def _check_points(n_layers: int, split: Sequence[int]) -> None:
    shown = ",".join(map(str, split))
    remedy = "give the first layer of each later stage, rising, as 4,8"
    if len(split) > 1 and sum(split) == n_layers:
        remedy = f"if these are layers per stage, write {','.join(map(str, _first_layers(split)))}: the first layer of each later stage"
    for point in split:
        if not 0 < point < n_layers:
            raise UsageError(f"layer_split={shown}", f"layer {point} is not between 1 and {n_layers - 1}", remedy)
    for before, after in zip(split, split[1:], strict=False):
        if after <= before:
            raise UsageError(f"layer_split={shown}", f"{after} does not rise above {before}", remedy)


def _first_layers(counts: Sequence[int]) -> list[int]:
    return [sum(counts[: i + 1]) for i in range(len(counts) - 1)]


def _devices_of(split: Sequence[int], split_devices: Sequence[int] | None, n_devices: int) -> tuple[int, ...]:
    n_later = len(split)
    if split_devices is None:
        if n_later + 1 > n_devices:
            raise UsageError(
                f"layer_split={','.join(map(str, split))}",
                f"{n_later + 1} stages need {n_later + 1} devices and {n_devices} are given",
                "name more with --devices, or put stages on one device with --split-device 0",
            )
        return tuple(range(n_later + 1))
    if len(split_devices) != n_later:
        raise UsageError(
            f"split_device={','.join(map(str, split_devices))}",
            f"it names {len(split_devices)} devices for {n_later} later stages",
            "give one device for each value of --layer-split",
        )
    for device in split_devices:
        if not 0 <= device < n_devices:
            raise UsageError(f"split_device={device}", f"there are {n_devices} devices, numbered from 0", "use one of them")
    return (0, *split_devices)
