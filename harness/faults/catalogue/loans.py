"""Prompt loans: lent slots that are read before they are filled in, filled in with others, or lent twice.

Only devices that lend are hit.  Does not know: checks.
"""

from collections.abc import Callable

from harness.faults.catalogue.features import VACUOUS, setting
from harness.faults.catalogue.slots import REUSE, STALE
from harness.faults.catalogue.stages import COPIES
from harness.faults.fault import Fault
from harness.faults.hooks import wrap
from strata.batch.engine import Engine
from strata.experts.residency import ABSENT
from strata.split.lending import DeviceLoan

SITE = "prompt loans"
LENDING = ("loans/shorter-than-chunk", "loans/blocking", "loans/stages")


def faults() -> list[Fault]:
    """Return the faults."""
    return [
        Fault("loan-read-early", COPIES, SITE, "lent experts are resident again, and their bytes come with the next refill", LENDING, _on_loans(_early)),
        Fault("loan-wrong-expert", STALE, SITE, "a lent slot is filled in with the expert beside the one that lay there", LENDING, _on_loans(_wrong_expert)),
        Fault("loan-still-resident", STALE, SITE, "experts whose slots are lent are still looked up there", LENDING, _on_loans(_still_resident)),
        Fault("loan-not-given-back", REUSE, SITE, "slots are filled in, and the next prompt's buffers lie there still", LENDING, _on_loans(_kept)),
        Fault("loan-some-unfilled", COPIES, SITE, "the last slots of the cache are not filled in", LENDING, _on_loans(_last_unfilled)),
        Fault("loan-never-refilled", VACUOUS, SITE, "lent experts are never loaded again: the pool computes them", LENDING, _on_loans(_never)),
        setting("off-loans", VACUOUS, "devices have room for prompt buffers of their own", LENDING[:2], devices="host"),
    ]


def _on_loans(change: Callable[[DeviceLoan], None]) -> Callable[[Engine], None]:
    def plant(engine: Engine) -> None:
        if engine.tiers.lending is not None:
            for loan in engine.tiers.lending.loans:
                if loan.borrows:
                    change(loan)

    return plant


def _refilling(loan: DeviceLoan, load_instead: Callable[[Callable, int, int, int], None]) -> None:
    """Have `load_instead(load, layer, expert, slot)` called for every load of a refill."""
    memory = loan.tier.memory

    def make(take_back: Callable) -> Callable:
        def taken_back() -> int:
            load = memory.load
            memory.load = lambda layer, expert, slot: load_instead(load, layer, expert, slot)
            try:
                return take_back()
            finally:
                memory.load = load

        return taken_back

    wrap(loan.tier, "take_back", make)


def _early(loan: DeviceLoan) -> None:
    waiting: list[tuple[int, int, int]] = []
    _refilling(loan, lambda load, layer, expert, slot: waiting.append((layer, expert, slot)))

    def make(take_back: Callable) -> Callable:
        def taken_back() -> int:
            for late in waiting:
                loan.tier.memory.load(*late)
            waiting.clear()
            return take_back()

        return taken_back

    wrap(loan.tier, "take_back", make)


def _wrong_expert(loan: DeviceLoan) -> None:
    n_experts = loan.tier.n_experts
    _refilling(loan, lambda load, layer, expert, slot: load(layer, (expert + 1) % n_experts, slot))


def _last_unfilled(loan: DeviceLoan) -> None:
    first = loan.tier.residency.n_slots * 7 // 8

    def loaded(load: Callable, layer: int, expert: int, slot: int) -> None:
        if slot < first:
            load(layer, expert, slot)

    _refilling(loan, loaded)


def _still_resident(loan: DeviceLoan) -> None:
    tier = loan.tier

    def lending(lend: Callable) -> Callable:
        def lent(n_slots: int):
            found = lend(n_slots)
            for slot, layer, expert in tier._lent:
                if layer != ABSENT:
                    tier.residency.slot_of[layer, expert] = slot
            return found

        return lent

    def taking(take_back: Callable) -> Callable:
        def taken_back() -> int:
            for _, layer, expert in tier._lent:
                if layer != ABSENT:
                    tier.residency.slot_of[layer, expert] = ABSENT
            return take_back()

        return taken_back

    wrap(tier, "lend", lending)
    wrap(tier, "take_back", taking)


def _kept(loan: DeviceLoan) -> None:
    def make(refill: Callable) -> Callable:
        def refilled() -> None:
            lent = loan._lent
            refill()
            loan._lent = lent

        return refilled

    wrap(loan, "refill", make)


def _never(loan: DeviceLoan) -> None:
    wrap(loan, "refill", lambda refill: lambda: None)
