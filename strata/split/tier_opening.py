"""Opening the expert tiers of an engine's devices: sizes, budgets, profile, PCIe share.

A device's cache is opened when all its stages have taken what they need: `auto` is what is left.  The cache starts with
the profile's hottest experts of the device's layers.  All devices read experts from one arena.  Does not know: requests.
"""

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from strata.cpu_pool.arena import PARTS, ArenaSettings, Banks, open_arena
from strata.errors import DeviceMemoryError, UsageError
from strata.experts.dispatch import RING_BLOBS, share_of
from strata.experts.filling import CARD_RESERVE_MIB, MIB, first_pairs, slots_for
from strata.experts.residency import Residency
from strata.host.expert_memory import ExpertMemory, slot_bytes
from strata.host.placed import PlacedMoe
from strata.model.model import Model
from strata.model.profile_file import find_profile, read_profile
from strata.split.link_probe import probe_share
from strata.split.stages import Stage
from strata.split.tiers import DeviceTier

LOG = logging.getLogger(__name__)
NO_PROFILE = "none"


def open_tiers(model: Model, resolved, stages: Sequence[Stage]) -> tuple[DeviceTier, ...]:
    """Open a tier on every device of the stages and hand it to their executors; raises DeviceMemoryError, UsageError, ModelFileError."""
    require_host("expert_cache", stages)
    pairs = profile_pairs(model, resolved.tier.profile)
    banks = banks_of(layers_of(stages))
    in_file = open_arena(banks, ArenaSettings())
    tiers = []
    for number, (device, own) in enumerate(by_device(stages)):
        tier = _open_tier(model, resolved, device, layers_of(own), number, in_file)
        tier.fill(first_pairs(pairs, tier.layers, tier.residency.n_slots))
        _say(tier, resolved)
        for stage in own:
            stage.executor.tier = tier
        tiers.append(tier)
    _bring_into_ram(resolved.tier, banks, pairs, tiers)
    return tuple(tiers)


def require_host(setting: str, stages: Sequence[Stage]) -> None:
    """Raise UsageError where a stage lies on a card: what a setting asks for is done on host devices only."""
    for stage in stages:
        if stage.executor.device.kind != "host":
            name, flag = stage.executor.device.name, setting.replace("_", "-")
            raise UsageError(f"{setting} with a stage on {name}", "the expert tier runs on host devices only", f"leave --{flag} out")


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


def layers_of(stages: Sequence[Stage]) -> dict[int, PlacedMoe]:
    """Return the experts of the stages' layers."""
    return {layer.index: layer.moe for stage in stages for layer in stage.executor.placed.layers}


def profile_pairs(model: Model, name: str) -> np.ndarray:
    """Return the pairs of a profile int32 [n, 2]: a file's, the one beside the model (empty name), or none at all."""
    nothing = np.empty((0, 2), np.int32)
    if name == NO_PROFILE:
        return nothing
    path = name or find_profile(model.files.paths[0].parent)
    return read_profile(path, model.config).pairs if path else nothing


def tier_sizes(resolved, layers: Mapping[int, PlacedMoe], n_experts: int, free_bytes: int | None, is_card: bool, number: int) -> tuple[int, int]:
    """Return (slots, places of the staging ring) of a device's tier; `auto` counts what is free beside the ring and the reserve."""
    n_pairs, size = len(layers) * n_experts, slot_bytes(layers)
    n_places = 0 if resolved.tier.pcie_frac == 0 else min(RING_BLOBS, n_experts)
    if resolved.tier.cache:
        return min(resolved.tier.cache, n_pairs), n_places
    kept = reserve_bytes(resolved.tier, is_card, number) + n_places * size
    return slots_for(free_bytes, kept, size, n_pairs), n_places


def reserve_bytes(tier, is_card: bool, number: int) -> int:
    """Return what the cache of the number-th device leaves free."""
    asked = tier.reserve_mib if number == 0 or tier.reserve_later_mib is None else tier.reserve_later_mib
    return MIB * (asked if asked is not None else CARD_RESERVE_MIB if is_card else 0)


def _open_tier(model: Model, resolved, device, layers: Mapping[int, PlacedMoe], number: int, arena) -> DeviceTier:
    config = model.config
    free = None if device.budget_bytes is None else device.budget_bytes - device.taken_bytes
    n_slots, n_places = tier_sizes(resolved, layers, config.n_experts, free, device.kind != "host", number)
    if n_slots == 0:
        raise DeviceMemoryError(device.name, "one slot of the expert cache beside its reserve", slot_bytes(layers), max(0, free or 0))
    memory = ExpertMemory(device, layers, n_slots, n_places, arena.expert)
    residency = Residency(config.n_layers, config.n_experts, n_slots)
    share = resolved.tier.pcie_frac
    if share is None:
        share = probe_share(device.team.control, memory, layers) if n_slots < len(layers) * config.n_experts else 0.0
    return DeviceTier(device.name, layers, residency, memory, arena, share_of(share))


def _say(tier: DeviceTier, resolved) -> None:
    probed = "probed" if resolved.tier.pcie_frac is None else "given"
    LOG.info(
        "expert cache: %s holds %d of %d experts in %d slots (%.1f MiB); PCIe share %.2f (%s)",
        tier.name, tier.residency.n_held, tier.n_pairs, tier.residency.n_slots,
        tier.residency.n_slots * tier.memory.slot_bytes / MIB, tier.share / 256, probed,
    )
