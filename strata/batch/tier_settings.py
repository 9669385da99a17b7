"""The settings of the expert tier, resolved: what runs, and a note for each thing that was asked for and does not.

Without `expert_cache` every device holds all experts of its layers, and there is no tier.  Does not know: devices.
"""

from dataclasses import dataclass

from strata.errors import UsageError
from strata.experts.loans import SPLIT_OWN

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class TierSettings:
    """The tier in force.

    `cache` slots per device (None: no tier, 0: auto); `profile` a file, empty for the one beside the model, or `none`;
    `reserve_mib`, `reserve_later_mib` left free by `auto` on the first and on later devices (None: the default); `pcie_frac`
    of the missed experts (None: probed); `adapts` whether rounds are held; `ram` how experts lie in RAM (`mapped`, `resident`,
    `pinned`) with the bytes of copies at most (None: what is free) and of locked pages (None: all); other names as `EngineSettings`.
    """

    cache: int | None = None
    profile: str = ""
    profile_save: str = ""
    reserve_mib: int | None = None
    reserve_later_mib: int | None = None
    pcie_frac: float | None = None
    adapts: bool = False
    adapt_every: int = 4
    adapt_swaps: int = 96
    adapt_decay: float = 0.7
    adapt_min_gain: float = 1.5
    adapt_async: bool = False
    ram: str = "mapped"
    ram_budget_bytes: int | None = None
    ram_pin_bytes: int | None = None
    prefill_borrow: bool = True
    split_own: str = ""

    def described(self) -> dict[str, str]:
        """Return the settings in force as text, for reports."""
        if self.cache is None:
            return {"expert_cache": "all resident"}
        rounds = f"every {self.adapt_every}, {self.adapt_swaps} swaps, decay {self.adapt_decay}, gain {self.adapt_min_gain}"
        return {
            "expert_cache": str(self.cache or "auto"),
            "expert_profile": self.profile or "beside the model",
            "pcie_frac": "probed" if self.pcie_frac is None else str(self.pcie_frac),
            "experts_in_ram": self.ram,
            "prompt_buffers": "own" if not self.prefill_borrow or self.split_own == "1" else "own on a split of large budgets, else borrowed" if self.split_own else "borrowed where the budget is full",
            "adaptive": f"{'async' if self.adapt_async else 'blocking'}, {rounds}" if self.adapts else "off",
        }


def resolve_tier(settings, n_groups: int) -> tuple[TierSettings, tuple[str, ...]]:
    """Resolve the tier's settings of EngineSettings; raises UsageError for a value that makes no sense."""
    _check(settings)
    has_cache, is_async = settings.expert_cache is not None, settings.adapt_async
    ram = "resident" if settings.resident_experts else "mapped" if settings.arena_pin_gib is None else "pinned"
    notes: list[str] = []
    if not has_cache:
        idle = {"adapt_async": is_async, "resident_experts": settings.resident_experts}
        notes += [f"{name} does nothing: every expert is resident without --expert-cache" for name, asked in idle.items() if asked]
    if not has_cache and not settings.prefill_borrow:
        notes.append("no_prefill_borrow does nothing: there is no cache to borrow from without --expert-cache")
    if has_cache and settings.split_own and not settings.layer_split:
        notes.append("STRATA_SPLIT_OWN does nothing: all layers are on one device; --no-prefill-borrow keeps its own prompt buffers")
    wants = has_cache and settings.adapt_every > 0 and settings.adapt_swaps > 0
    adapts = wants and n_groups == 1
    if wants and not adapts:
        turned_off = "adapt_async and the adaptive tier are" if is_async else "the adaptive tier is"
        notes.append(f"{turned_off} off: the {n_groups} pipelined groups do not adapt; use --batch-groups 1")
    if adapts and is_async and ram == "mapped":
        notes.append("adapt_async runs as blocking rounds: copies beside windows need the experts in RAM; use --resident-experts")
    budget = None if settings.resident_budget_gib is None else int(settings.resident_budget_gib * GIB)
    return TierSettings(
        settings.expert_cache, settings.expert_profile, settings.expert_profile_save, settings.vram_reserve_mib,
        settings.vram_reserve_later_mib, settings.pcie_frac, adapts, settings.adapt_every, settings.adapt_swaps,
        settings.adapt_decay, settings.adapt_min_gain, is_async and adapts and ram != "mapped",
        ram, budget, int(settings.arena_pin_gib * GIB) if settings.arena_pin_gib else None, settings.prefill_borrow, settings.split_own,
    ), tuple(notes)


def _check(settings) -> None:
    for name, value, lowest in (
        ("expert_cache", settings.expert_cache, 0), ("vram_reserve_mib", settings.vram_reserve_mib, 0),
        ("vram_reserve_later_mib", settings.vram_reserve_later_mib, 0), ("adapt_every", settings.adapt_every, 0),
        ("adapt_swaps", settings.adapt_swaps, 0), ("resident_budget_gib", settings.resident_budget_gib, 0), ("arena_pin_gib", settings.arena_pin_gib, 0),
    ):
        if value is not None and value < lowest:
            raise UsageError(f"{name}={value}", f"it is below {lowest}", f"use {lowest} or more")
    if settings.pcie_frac is not None and not 0 <= settings.pcie_frac <= 1:
        raise UsageError(f"pcie_frac={settings.pcie_frac}", "it is not a share", "use 0 to 1, or leave it out to have it probed")
    if not 0 <= settings.adapt_decay <= 1:
        raise UsageError(f"adapt_decay={settings.adapt_decay}", "usage would grow or turn negative", "use 0 to 1")
    if not settings.adapt_min_gain >= 0:
        raise UsageError(f"adapt_min_gain={settings.adapt_min_gain}", "colder experts would displace hotter ones", "use 0 or more")
    if settings.split_own not in SPLIT_OWN:
        raise UsageError(f"STRATA_SPLIT_OWN={settings.split_own}", "there is no such rule", "use 1 (always) or auto, or leave it unset")
    _check_ram(settings)


def _check_ram(settings) -> None:
    if settings.mmap_experts and (settings.resident_experts or settings.arena_pin_gib is not None):
        raise UsageError("mmap_experts=yes", "it reads experts from the mapped file, and copies in RAM are asked for too", "use one of them")
    if settings.resident_experts and settings.arena_pin_gib is not None:
        raise UsageError(f"arena_pin_gib={settings.arena_pin_gib}", "it makes a full copy, and --resident-experts a partial one", "use one of them")
    if settings.resident_budget_gib is not None and not settings.resident_experts:
        raise UsageError(f"resident_budget_gib={settings.resident_budget_gib}", "there is nothing that it would limit", "add --resident-experts")
