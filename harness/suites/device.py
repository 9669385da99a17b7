"""Device against host: a card gives the bits of the CPU.

Every case compares conversations that ran alone on the host with the same way of running on a card: whole prompts and
chunks, slots, verify windows with rollbacks, drafts of the draft layer, int8 cells, a split over the card and the host, and a card
that holds a share of the experts.  Where both arms draft, they must do so alike: the same proposals are accepted.  Needs a card.
"""

from dataclasses import replace

from harness.arms import Arm
from harness.drafts import DraftScript
from harness.scope import Scope
from harness.suites.contract import Case, Suite
from harness.suites.tier import MISSED, MOVING, OFF, OFTEN, SERVED, half_of, tenth_of

ITEMS = 4
CHUNKED, COMPANY = "chunked_prompts", "windows_with_company"
BOTH = ("verify_windows", "drafts_accepted", "rolled_back_windows")
PROPOSED = ("mtp_offered", "mtp_accepted", "rolled_back_windows")
ALIKE = ("draft_steps", "mtp_offered", "mtp_accepted", *(f"mtp_{what}_{depth}" for depth in range(1, 8) for what in ("reached", "accepted")))
"""Counters by which two draft layers that propose the same are alike."""
FULL = {"mtp": True, "spec_policy": "full"}
CARD = "cuda:0"


def cases(scope: Scope) -> tuple[Case, ...]:
    """Return the cases on the card asked for with --devices (default: the first)."""
    card = next((part for part in (scope.options.devices or "").split(",") if part.startswith("cuda")), CARD)
    middle = (scope.config.n_layers // 2,)
    return (
        _case(scope, "alone", {"devices": card}, ("decode_windows",)),
        _case(scope, "chunks-7", {"devices": card, "prefill": 7}, (CHUNKED,)),
        _case(scope, "slots-4", {"devices": card, "batch": 4}, (COMPANY,)),
        _case(scope, "drafts-4", {"devices": card}, BOTH, DraftScript(4, "cycle")),
        _case(scope, "slots-drafts", {"devices": card, "batch": 2}, (*BOTH, COMPANY), DraftScript(4, "mixed")),
        _case(scope, "int8", {"devices": card, "kv": "int8"}, ("decode_windows",)),
        _case(scope, "card-and-host", {"devices": f"{card},host", "layer_split": middle, "split_device": None}, ("hand_offs",)),
        *_tiered(scope, card),
        *_drafting(scope, card, middle),
    )


def _tiered(scope: Scope, card: str) -> tuple[Case, ...]:
    """A card that holds half of the experts, a tenth, or one, with rounds, a share over PCIe, drafts and slots, against the host."""
    half, tenth = half_of(scope), tenth_of(scope)
    locked = {"pcie_frac": 0.55, "adapt_every": 0, "arena_pin_gib": 0.0}
    return (
        _case(scope, "tier-half", {"devices": card, "expert_cache": half, **OFTEN}, MOVING),
        _case(scope, "tier-tenth", {"devices": card, "expert_cache": tenth, **OFF}, SERVED),
        _case(scope, "tier-one-slot", {"devices": card, "expert_cache": 1, **OFF}, (MISSED,)),
        _case(scope, "tier-pcie", {"devices": card, "expert_cache": tenth, **locked}, (*SERVED, "pcie_entries")),
        _case(scope, "tier-slots-drafts", {"devices": card, "batch": 2, "expert_cache": half, **OFTEN}, (*BOTH, *SERVED, COMPANY), DraftScript(4, "mixed")),
    )


def _drafting(scope: Scope, card: str, middle: tuple[int, ...]) -> tuple[Case, ...]:
    """Draft layers against each other: chains, least probabilities, one proposal per slot, int8 cells, behind stages on the host."""
    behind = {"devices": f"host,{card}", "layer_split": middle, "split_device": None}
    return (
        *(_both_draft(scope, f"mtp-{n}", {"devices": card}, {**FULL, "spec": n}) for n in (2, 4, 8)),
        _both_draft(scope, "mtp-min-p", {"devices": card}, {**FULL, "spec": 8, "spec_min_p": 0.5}),
        _both_draft(scope, "mtp-chunks-7", {"devices": card}, {**FULL, "prefill": 7}),
        _both_draft(scope, "mtp-int8", {"devices": card}, {**FULL, "kv": "int8"}),
        _both_draft(scope, "mtp-behind-host", behind, FULL, ("hand_offs",)),
        _both_draft(scope, "batch-mtp-4", {"devices": card}, {**FULL, "batch_mtp": True, "batch": 4}, (COMPANY,)),
    )


def _both_draft(scope: Scope, name: str, changes: dict, drafts: dict, features: tuple[str, ...] = ()) -> Case:
    """Both arms draft, one on the host; they must propose and accept the same."""
    plain = {"devices": "host", "layer_split": (), "split_device": None, "batch_groups": 1, **drafts}
    left, right = Arm("host", scope.settings(**plain)), Arm(name, scope.settings(**{**plain, **changes}))
    return Case(name, scope.workload(ITEMS), left, right, (*PROPOSED, *features), alike=ALIKE)


def _case(scope: Scope, name: str, changes: dict, features: tuple[str, ...], drafts: DraftScript | None = None) -> Case:
    plain = {"devices": "host", "layer_split": (), "split_device": None, "kv": changes.get("kv", scope.options.kv or "")}
    left = Arm("host alone", scope.settings(**plain), alone=True)
    right = Arm(name, replace(scope.settings(**plain), **changes), drafts=drafts)
    return Case(name, scope.workload(ITEMS), left, right, features)


def _why_not() -> str | None:
    from strata.cuda.card.found import find_cards, why_no_cuda

    reason = why_no_cuda()
    if reason is None and all(card.refusal for card in find_cards()):
        reason = "no card here can be used"
    return reason


SUITE = Suite("device", "a card against the host: whole prompts, chunks, slots, drafts given and of the draft layer, int8 cells, a share of the experts", cases, _why_not)
