"""The flags of the expert tier; names and meanings as `EngineSettings`."""

import argparse
import os
from collections.abc import Mapping

PIN_VARIABLE, OWN_VARIABLE = "STRATA_ARENA_PIN_GIB", "STRATA_SPLIT_OWN"


def add_tier_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the expert tier; in rounding mode canonical none of them changes a bit."""
    tier = parser.add_argument_group("expert tier (in rounding mode canonical none of these changes a bit)")
    tier.add_argument("--expert-cache", metavar="N", help="experts that each device holds, or auto (what fits); the CPU pool computes the others (default: a device holds all of its layers')")
    tier.add_argument("--expert-profile", default="", metavar="FILE", help="profile that fills the cache, or none (default: the one beside the model)")
    tier.add_argument("--expert-profile-save", default="", metavar="FILE", help="write the profile of what was routed, at the end (JSON, or binary as .bin)")
    tier.add_argument("--vram-reserve-mib", type=int, metavar="N", help="what --expert-cache auto leaves free (default: 700 on a card, 0 on host)")
    tier.add_argument("--vram-reserve-later-mib", type=int, metavar="N", help="the same on later devices (default: as on the first)")
    tier.add_argument("--pcie-frac", type=float, metavar="F", help="share of missed experts fetched to the device, 0 to 1 (default: probed); a card fetches copies in locked RAM only")
    tier.add_argument("--adapt-every", type=int, default=4, metavar="N", help="decoded windows between rounds of swaps, 0 for none (default: 4)")
    tier.add_argument("--adapt-swaps", type=int, default=96, metavar="N", help="swaps of a round at most, 0 for none (default: 96)")
    tier.add_argument("--adapt-decay", type=float, default=0.7, metavar="F", help="what usage keeps after a round (default: 0.7)")
    tier.add_argument("--adapt-min-gain", type=float, default=1.5, metavar="F", help="usage by which a newcomer must exceed its victim (default: 1.5)")
    tier.add_argument("--adapt-async", type=int, choices=(0, 1), default=0, metavar="0|1", help="1: a round moves one step per window and holds none up (default: 0)")
    tier.add_argument("--resident-experts", action="store_true", help="copy the experts that no device holds into locked RAM, where cards fetch them")
    tier.add_argument("--resident-budget-gib", type=float, metavar="N", help="RAM for those copies, the hottest first (default: what is free)")
    tier.add_argument("--no-prefill-borrow", action="store_true", help=f"keep buffers for prompts beside the cache, and lend no slots for them (on a split {OWN_VARIABLE}=1 does so too, =auto where they are small beside every budget)")
    tier.add_argument("--mmap-experts", action="store_true", help=f"read them from the mapped file (default, unless {PIN_VARIABLE}=N asks for a full copy, N GiB of it locked, 0 for all)")


def tier_settings_of(options: argparse.Namespace, number_or_auto, environment: Mapping[str, str] = os.environ) -> dict[str, object]:
    """Return the tier's settings of parsed flags, as arguments of EngineSettings; raises UsageError for a number that is none."""
    from strata.errors import UsageError

    cache = None if options.expert_cache is None else number_or_auto("expert_cache", options.expert_cache)
    if cache == 0 and options.expert_cache != "auto":
        raise UsageError("expert_cache=0", "a cache has one slot or more", "use auto, or leave the flag out")
    names = (
        "expert_profile", "expert_profile_save", "vram_reserve_mib", "vram_reserve_later_mib", "pcie_frac", "adapt_every", "adapt_swaps",
        "adapt_decay", "adapt_min_gain", "resident_experts", "resident_budget_gib", "mmap_experts",
    )
    return {
        "expert_cache": cache, "adapt_async": options.adapt_async == 1, "arena_pin_gib": _pinned(environment),
        "prefill_borrow": not options.no_prefill_borrow, "split_own": environment.get(OWN_VARIABLE, ""), **{name: getattr(options, name) for name in names},
    }


def _pinned(environment: Mapping[str, str]) -> float | None:
    """Return the GiB of the variable, None where it is not set; raises UsageError for anything but a number."""
    from strata.errors import UsageError

    text = environment.get(PIN_VARIABLE)
    try:
        return None if text is None else float(text)
    except ValueError:
        raise UsageError(f"{PIN_VARIABLE}={text}", "it is not a number of GiB", "use 0 for a whole locked copy, or leave it unset") from None
