"""Opening the expert tiers of an engine's devices: budgets, prompt buffers, profile, PCIe share.

The caches are opened when all stages have taken what they need (`strata.split.tier_sizes`).  The cache starts with
the profile's hottest experts of the device's layers.  All devices read experts from one arena; what cards need besides is in
`card_opening.py`.  Does not know: requests.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from strata.cpu_pool.arena import PARTS, ArenaSettings, Banks, open_arena
from strata.errors import DeviceMemoryError
from strata.experts.dispatch import share_of
from strata.experts.filling import MIB, first_pairs
from strata.experts.loans import slots_to_lend
from strata.experts.residency import Residency
from strata.host.chunk_buffers import ChunkLayout
from strata.host.expert_memory import ExpertMemory, slot_bytes
from strata.host.placed import PlacedMoe, place_moe
from strata.model.model import Model
from strata.model.profile_file import find_profile, read_profile
from strata.split.card_opening import card_layout, free_bytes, open_card_tier, share_copies, total_bytes
from strata.split.host_tier import HostTier
from strata.split.lending import DeviceLoan, Layout
from strata.split.link_probe import probe_share
from strata.split.stages import Stage
from strata.split.tier_sizes import BUFFERS, TierDevice, TierSize, size_tiers
from strata.split.tiers import DeviceTier

LOG = logging.getLogger(__name__)
NO_PROFILE = "none"


@dataclass(frozen=True, slots=True, eq=False)
class OpenedTiers:
    """Every device's tier and prompt buffers, the rows of a prompt chunk, and what to tell the user."""

    tiers: tuple[DeviceTier, ...]
    loans: tuple[DeviceLoan, ...]
    chunk_rows: int
    notes: tuple[str, ...]


def open_tiers(model: Model, resolved, stages: Sequence[Stage]) -> OpenedTiers:
    """Open a tier on every device of the stages and hand it to their executors; raises DeviceMemoryError, UsageError, ModelFileError."""
    pairs = profile_pairs(model, resolved.tier.profile)
    banks = banks_of(layers_of(model, stages))
    in_file = open_arena(banks, ArenaSettings())
    on_devices = by_device(stages)
    sizes = size_tiers(resolved, model.config, [tier_device(model, device, own) for device, own in on_devices])
    tiers: list[DeviceTier] = []
    try:
        loans = []
        for (device, own), size in zip(on_devices, sizes.devices, strict=True):
            tiers.append(_open_tier(model, resolved, device, layers_of(model, own), size, in_file))
            tiers[-1].fill(first_pairs(pairs, tiers[-1].layers, size.n_slots))
            for stage in own:
                stage.executor.tier = tiers[-1]
            loans.append(_open_loan(model, device, own, tiers[-1], size, sizes.chunk_rows))
        _bring_into_ram(resolved.tier, banks, pairs, tiers)
        share_copies(tiers, [device for device, _ in on_devices], resolved.tier.pcie_frac)
    except BaseException:
        for tier in tiers:
            tier.close()
        raise
    for tier in tiers:
        _say(tier, resolved)
    return OpenedTiers(tuple(tiers), tuple(loans), sizes.chunk_rows, sizes.notes)


def tier_device(model: Model, device, stages: Sequence[Stage]) -> TierDevice:
    """Return what sizes a device's tier, once its stages have taken what they need."""
    return TierDevice(device.name, layers_of(model, stages), free_bytes(device), total_bytes(device), device.kind != "host", layout_of(model, stages))


def layout_of(model: Model, stages: Sequence[Stage]) -> Layout:
    """Return the buffers of a prompt chunk on the device of these stages."""
    executor = stages[0].executor
    if executor.replays:
        return card_layout(model.config, executor.context)
    return ChunkLayout(model.config, any(stage.executor.placed.embedding is not None for stage in stages))


def _open_loan(model: Model, device, stages: Sequence[Stage], tier: DeviceTier, size: TierSize, chunk_rows: int) -> DeviceLoan:
    """Return a device's prompt buffers, its own taken from the budget, and let its stages ask for them."""
    layout, own = layout_of(model, stages), _own_buffers(device, size.own_bytes, stages[0].executor.replays)
    loan = DeviceLoan(tier, [stage.executor for stage in stages], layout, chunk_rows, own)
    for stage in stages:
        stage.prepare = loan.prepare
    n_bytes = layout.bytes(chunk_rows)
    if loan.borrows:
        n_slots = slots_to_lend(n_bytes, tier.memory.slot_bytes)
        LOG.info("prompt buffers: %s borrows up to %d of %d cache slots (%.1f MiB) for chunks of up to %d tokens", device.name, n_slots, size.n_slots, n_bytes / MIB, chunk_rows)
    else:
        LOG.info("prompt buffers: %s keeps its own (%.1f MiB) for chunks of up to %d tokens", device.name, n_bytes / MIB, chunk_rows)
    return loan


def _own_buffers(device, n_bytes: int, is_on_card: bool):
    """Return memory uint8 of a device for its own prompt buffers; None where it has none."""
    if is_on_card and n_bytes:
        device.attach()
        return device.empty(BUFFERS, n_bytes, np.uint8)
    device.take(BUFFERS, n_bytes)
    return np.empty(n_bytes, np.uint8) if n_bytes else None


def banks_of(layers: Mapping[int, PlacedMoe]) -> Banks:
    """Return the experts of layers where the file's mapping has them."""
    matrices = {(layer, part): getattr(placed, part) for layer, placed in layers.items() for part in PARTS}
    return Banks({place: matrix.raw.reshape(-1, matrix.expert_bytes) for place, matrix in matrices.items()})


def _bring_into_ram(settings, banks: Banks, pairs: np.ndarray, tiers: Sequence[DeviceTier]) -> None:
    """Let the tiers read experts from copies in RAM, where the settings want some; what a cache holds needs none."""
    if settings.ram == "mapped":
        return
    held = [tuple(pair) for tier in tiers for pair in tier.residency.held.tolist()]
    arena = open_arena(banks, ArenaSettings(settings.ram, settings.ram_budget_bytes, settings.ram_pin_bytes), map(tuple, pairs.tolist()), held)
    for note in arena.notes:
        LOG.warning(note)
    LOG.info("experts in RAM: %.1f MiB copied, %.1f MiB of them locked", arena.copied_bytes / MIB, arena.locked_bytes / MIB)
    for tier in tiers:
        tier.use_arena(arena)


def by_device(stages: Sequence[Stage]) -> list[tuple[object, list[Stage]]]:
    """Return the devices in order, each with its stages."""
    found: dict[int, tuple[object, list[Stage]]] = {}
    for stage in stages:
        found.setdefault(id(stage.executor.device), (stage.executor.device, []))[1].append(stage)
    return list(found.values())


def layers_of(model: Model, stages: Sequence[Stage]) -> dict[int, PlacedMoe]:
    """Return the experts of the stages' layers where the file's mapping has them, on whatever device the stages lie."""
    found = {}
    for stage in stages:
        if stage.executor.device.kind == "host":
            found |= {layer.index: layer.moe for layer in stage.executor.placed.layers}
        else:
            found |= {layer: place_moe(model.weights.layers[layer].moe) for layer in range(stage.plan.first, stage.plan.last)}
    return found


def profile_pairs(model: Model, name: str) -> np.ndarray:
    """Return the pairs of a profile int32 [n, 2]: a file's, the one beside the model (empty name), or none at all."""
    nothing = np.empty((0, 2), np.int32)
    if name == NO_PROFILE:
        return nothing
    path = name or find_profile(model.files.paths[0].parent)
    return read_profile(path, model.config).pairs if path else nothing


def _open_tier(model: Model, resolved, device, layers: Mapping[int, PlacedMoe], size: TierSize, arena) -> DeviceTier:
    config, n_slots, n_places = model.config, size.n_slots, size.n_places
    if n_slots == 0:
        raise DeviceMemoryError(device.name, "one slot of the expert cache beside its reserve", slot_bytes(layers), max(0, free_bytes(device) or 0))
    residency = Residency(config.n_layers, config.n_experts, n_slots)
    if device.kind != "host":
        return open_card_tier(device, layers, residency, size, arena, resolved.threads)
    memory = ExpertMemory(device, layers, n_slots, n_places, arena.expert)
    share = resolved.tier.pcie_frac
    if share is None:
        share = probe_share(device.team.control, memory, layers) if n_slots < len(layers) * config.n_experts else 0.0
    return HostTier(device.name, layers, residency, memory, arena, share_of(share), device.team)


def _say(tier: DeviceTier, resolved) -> None:
    probed = "probed" if resolved.tier.pcie_frac is None else "given"
    LOG.info(
        "expert cache: %s holds %d of %d experts in %d slots (%.1f MiB); PCIe share %.2f (%s)",
        tier.name, tier.residency.n_held, tier.n_pairs, tier.residency.n_slots,
        tier.residency.n_slots * tier.memory.slot_bytes / MIB, tier.share / 256, probed,
    )
