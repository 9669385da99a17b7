"""How large the tiers of an engine's devices are: cache slots, staging ring, prompt buffers, and the rows of a prompt chunk.

`auto` caches take what is free beside ring, reserve and the buffers that a device must own.  A number of slots stands, unless
buffers that must be owned leave less room; that is capped, and said.  Cards have a ring only where copies in RAM can be page-locked.
Does not know: how anything is opened.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strata.errors import DeviceMemoryError
from strata.experts.dispatch import RING_BLOBS, SPLIT_RING_BLOBS
from strata.experts.filling import CARD_RESERVE_MIB, MIB, slots_for
from strata.experts.loans import Room, chunk_of, must_own
from strata.host.expert_memory import slot_bytes
from strata.host.placed import PlacedMoe
from strata.model.config import ModelConfig
from strata.split.lending import Layout

BUFFERS = "prompt buffers"
CARD_PAGE = 2 * MIB
"""A card gives memory by whole pages of this size: cache and buffers each end within one, the tables of a tier may begin one."""


@dataclass(frozen=True, slots=True, eq=False)
class TierDevice:
    """A device that gets a tier: the experts of its layers, bytes free beside everything else and in all (None: no limit)."""

    name: str
    layers: Mapping[int, PlacedMoe]
    free_bytes: int | None
    budget_bytes: int | None
    is_card: bool
    layout: Layout

    @property
    def slot_bytes(self) -> int:
        return slot_bytes(self.layers)


@dataclass(frozen=True, slots=True)
class TierSize:
    """Slots of a cache, places of the staging ring, bytes of prompt buffers of the device's own (0: it borrows)."""

    n_slots: int
    n_places: int
    own_bytes: int


@dataclass(frozen=True, slots=True)
class TierSizes:
    """The sizes of all devices, rows of a prompt chunk, and what to tell the user."""

    chunk_rows: int
    devices: tuple[TierSize, ...]
    notes: tuple[str, ...]


def size_tiers(resolved, config: ModelConfig, devices: Sequence[TierDevice]) -> TierSizes:
    """Size the tiers of all devices; raises DeviceMemoryError where buffers find no room.  A size of 0 slots is the caller's to refuse."""
    tier, rows = resolved.tier, resolved.chunk_rows
    own = [device.layout.bytes(rows) for device in devices]
    if must_own(tier.prefill_borrow, tier.split_own, own, [device.budget_bytes for device in devices]):
        sized = [_size(resolved, config, device, number, len(devices), own[number]) for number, device in enumerate(devices)]
        notes = [_capped(resolved, config, device, size) for device, size in zip(devices, sized, strict=True)]
        return TierSizes(rows, tuple(sized), tuple(filter(None, notes)))
    sized = [_size(resolved, config, device, number, len(devices), 0) for number, device in enumerate(devices)]
    rooms = [_room(resolved, device, size, number) for number, (device, size) in enumerate(zip(devices, sized, strict=True))]
    chunk, owns = chunk_of(rooms, rows, resolved.chunk_is_auto)
    if chunk == 0:
        short = min(range(len(rooms)), key=lambda i: rooms[i].lendable_bytes)
        raise DeviceMemoryError(devices[short].name, BUFFERS, rooms[short].row_bytes, rooms[short].lendable_bytes)
    final = [TierSize(s.n_slots, s.n_places, d.layout.bytes(chunk) if is_own else 0) for s, d, is_own in zip(sized, devices, owns, strict=True)]
    shrunk = f"prefill={rows} runs as {chunk}: the expert cache can lend buffers for no more; use a larger cache, or --no-prefill-borrow"
    return TierSizes(chunk, tuple(final), (shrunk,) if chunk < rows and not resolved.chunk_is_auto else ())


def reserve_bytes(tier, is_card: bool, number: int) -> int:
    """Return what the cache of the number-th device leaves free."""
    asked = tier.reserve_mib if number == 0 or tier.reserve_later_mib is None else tier.reserve_later_mib
    return MIB * (asked if asked is not None else CARD_RESERVE_MIB if is_card else 0)


def _size(resolved, config: ModelConfig, device: TierDevice, number: int, n_devices: int, own_bytes: int) -> TierSize:
    n_pairs, size = len(device.layers) * config.n_experts, device.slot_bytes
    ring = RING_BLOBS if n_devices == 1 else SPLIT_RING_BLOBS
    has_ring = resolved.tier.pcie_frac != 0 and not (device.is_card and resolved.tier.ram == "mapped")
    n_places = min(ring, config.n_experts) if has_ring else 0
    asked = min(resolved.tier.cache or n_pairs, n_pairs)
    kept = 0 if resolved.tier.cache else reserve_bytes(resolved.tier, device.is_card, number)
    is_given = resolved.tier.cache and not own_bytes
    rounding = device.is_card * CARD_PAGE * (2 + (own_bytes > 0))
    fitting = asked if is_given else slots_for(device.free_bytes, kept + n_places * size + own_bytes + rounding, size, asked)
    if fitting == 0 and own_bytes:
        raise DeviceMemoryError(device.name, f"{BUFFERS} beside one slot of the expert cache", own_bytes + size, max(0, device.free_bytes or 0))
    return TierSize(fitting, n_places, own_bytes)


def _capped(resolved, config: ModelConfig, device: TierDevice, size: TierSize) -> str:
    asked = min(resolved.tier.cache or 0, len(device.layers) * config.n_experts)
    if size.n_slots >= asked:
        return ""
    return f"expert_cache={resolved.tier.cache} runs as {size.n_slots} slots on {device.name}: its {BUFFERS} take {size.own_bytes / MIB:.1f} MiB"


def _room(resolved, device: TierDevice, size: TierSize, number: int) -> Room:
    left, taken = None, (size.n_slots + size.n_places) * device.slot_bytes
    if device.is_card:
        taken = -(-taken // CARD_PAGE) * CARD_PAGE
    if device.free_bytes is not None:
        kept = 0 if resolved.tier.cache and not device.is_card else reserve_bytes(resolved.tier, device.is_card, number)
        left = max(0, device.free_bytes - kept - taken)
    return Room(left, max(1, size.n_slots) * device.slot_bytes, device.layout.row_bytes)
