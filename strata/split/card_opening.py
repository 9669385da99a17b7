"""Opening the expert tier of a card: its memory, the threads that compute what it does not hold, page-locked copies, PCIe share.

What is free on a card is what its driver says, within its budget.  The link is probed when the copies in RAM are locked, over the
experts that a card can fetch; without any there is nothing to probe.  Does not know: requests, windows.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from strata.cpu_pool.team import Team
from strata.experts.dispatch import share_of
from strata.experts.filling import MIB
from strata.experts.residency import Residency
from strata.host.arithmetic_check import require_exact_team, warn_where_fma_is_slow
from strata.host.placed import PlacedMoe
from strata.model.config import ModelConfig
from strata.split.card_tier import CardTier
from strata.split.link_probe import probe_card_share
from strata.split.locked_copies import LockedCopies
from strata.split.tier_sizes import TierSize
from strata.split.tiers import DeviceTier

LOG = logging.getLogger(__name__)
POOL_SPIN_US = 2000
"""How long a card's idle workers spin: longer than the time between two layers' meetings, or between two windows of a run that decodes."""


def free_bytes(device) -> int | None:
    """Return what is left of a device: of its budget and, of a card, of what its driver calls free; None: no limit."""
    left = None if device.budget_bytes is None else device.budget_bytes - device.taken_bytes
    if device.kind == "host":
        return left
    device.attach()
    free = device.memory().free_bytes
    return free if left is None else min(left, free)


def total_bytes(device) -> int | None:
    """Return a device's budget, a card's own memory where it has none; None: no limit."""
    return device.budget_bytes if device.kind == "host" or device.budget_bytes is not None else device.card.total_bytes


def card_memory(device, layers: Mapping[int, PlacedMoe], n_slots: int, n_places: int, blob_of: Callable):
    """Return a card's memory for experts."""
    from strata.cuda.tier.expert_cache import CardExpertMemory

    return CardExpertMemory(device, layers, n_slots, n_places, blob_of)


def card_layout(config: ModelConfig, context: int):
    """Return the buffers of a prompt chunk on a card."""
    from strata.cuda.memory.chunk_buffers import CardChunkLayout

    return CardChunkLayout(config, context)


def open_card_tier(device, layers: Mapping[int, PlacedMoe], residency: Residency, size: TierSize, arena, n_threads: int) -> CardTier:
    """Open a card's tier, its share 0 until the copies in RAM are known; raises DeviceMemoryError, DeviceError."""
    device.attach()
    memory = card_memory(device, layers, size.n_slots, size.n_places, arena.expert)
    team = Team(n_threads, spin_us=POOL_SPIN_US)
    require_exact_team(f"the pool of {device.name}", team)
    warn_where_fma_is_slow()
    return CardTier(device.name, layers, residency, memory, arena, 0, team)


def share_copies(tiers: Sequence[DeviceTier], devices: Sequence, pcie_frac: float | None) -> None:
    """Have the copies in RAM locked for the cards among the devices, and set the share of each."""
    for tier, device in zip(tiers, devices, strict=True):
        may_miss = pcie_frac is not None or not tier.holds_all
        if device.kind != "host" and may_miss and pcie_frac != 0:
            _share_with(tier, device, pcie_frac)


def _share_with(tier: CardTier, device, pcie_frac: float | None) -> None:
    if tier.arena.lockable():
        copies = LockedCopies(tier.arena, device)
        tier.use_copies(copies)
        LOG.info("experts in RAM: %.1f MiB page-locked for %s", copies.n_bytes / MIB, device.name)
        if copies.note:
            LOG.warning(copies.note)
    if tier.n_fetchable:
        tier.set_share(share_of(probe_card_share(tier) if pcie_frac is None else pcie_frac))
        return
    LOG.info("PCIe share: %s fetches nothing: no expert of its layers lies in page-locked RAM; --resident-experts copies them there", device.name)
