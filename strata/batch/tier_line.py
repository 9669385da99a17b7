"""The log line of a run with an expert tier: `strata batch: ...`.

Rows and time per decoded window, drafts accepted, rounds and swaps, what the main thread spent on them (`adapt wait`), per
device the time until its own parts were done (`reach`) and the pool's time, and who served the routed entries of decoded
windows.  Does not know: how they were counted.
"""

from collections.abc import Mapping, Sequence

SERVED = ("vram", "pcie", "cpu")


def served_share(counters: Mapping[str, int], place: str) -> float:
    """Return the share of decoded windows' routed entries that a place (vram, pcie, cpu) served, 0 to 1."""
    return counters[f"{place}_entries"] / max(1, sum(counters[f"{other}_entries"] for other in SERVED))


def tier_line(counters: Mapping[str, int], decode_seconds: float, devices: Sequence[str]) -> str:
    """Return the line of a run's counters; `devices` are the names of the tiers' devices."""
    windows = max(1, counters.get("decode_windows", 0))
    rows = counters.get("slot_windows", 0) + counters.get("drafts_offered", 0)
    offered = counters.get("drafts_offered", 0)
    drafts = f", {100 * counters.get('drafts_accepted', 0) / offered:.1f} % of {offered} proposals accepted" if offered else ""
    stages = ", ".join(
        f"{name} reach {counters[f'reach_us_{i}'] / 1e3 / windows:.2f} ms pool {counters[f'pool_us_{i}'] / 1e3 / windows:.2f} ms"
        for i, name in enumerate(devices)
    )
    served = ", ".join(f"{place} {counters[f'{place}_entries'] / windows:.1f} ({100 * served_share(counters, place):.1f} %)" for place in SERVED)
    return (
        f"strata batch: {counters.get('decode_windows', 0)} windows, {rows / windows:.2f} rows and {1e3 * decode_seconds / windows:.2f} ms a window"
        f"{drafts}; {counters['adapt_rounds']} rounds, {counters['adapt_swaps']} swaps, adapt wait {counters['adapt_wait_us'] / 1e3 / windows:.3f} ms"
        f"; {stages}; entries a window: {served}{_lent(counters)}"
    )


def _lent(counters: Mapping[str, int]) -> str:
    """Return what prompts borrowed; nothing where they did not."""
    if not counters.get("loans"):
        return ""
    return (
        f"; {counters['loans']} loans of {counters['lent_slots']} slots to prompts, {counters['refilled_experts']} experts refilled in "
        f"{counters['refill_us'] / 1e3:.1f} ms"
    )
