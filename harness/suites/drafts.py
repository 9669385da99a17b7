"""Drafts against none: what the draft layer and the text's own past propose does not change an answer.

Every width, the policy that chooses widths, suffix drafts alone and beside the draft layer, half of the drafts wrong, every
accepted count in turn by a script in the draft layer's place, the first windows of a request, answers that end where the context
ends, prompts in chunks, many short requests one after the other, forced tokens, stages, and requests that are alone only
part of the time.  Cells behind the newest are poisoned with NaN throughout.  At level 2 every width and source takes every
prompt, scripts follow every pattern, and answers of 1,000 tokens are compared for every prompt.
"""

from dataclasses import replace

from harness.arms import Arm, Schedule
from harness.drafts import PATTERNS, DraftScript
from harness.scope import Scope
from harness.suites.contract import Case, Suite
from harness.suites.split import even_split, may_split, n_devices, split_settings
from harness.workload import Workload
from strata.batch.settings import WINDOW_ROWS
from strata.batch.validation import ROOM

ITEMS, SHORT_ITEMS, SHORT_TOKENS = 5, 12, 4
LONG_ANSWER = 1000
SUFFIX = 3
OFFERED, ACCEPTED, ROLLED_BACK, COPIED = "mtp_offered", "mtp_accepted", "rolled_back_windows", "suffix_accepted"
BOTH = (OFFERED, ACCEPTED, ROLLED_BACK)
MTP = {"mtp": True, "spec_policy": "full"}
CYCLE = "cycle"
"""Every accepted count in turn."""
SHOWN_BY = {"right": ("given_accepted",), "wrong": ("rows_rejected", ROLLED_BACK)}
"""What the scripts that are all right or all wrong must have done."""


def cases(scope: Scope) -> tuple[Case, ...]:
    """Return the cases."""
    work, every = scope.workload(ITEMS), scope.workload(ITEMS, all_at_level_2=True)
    copying = every if scope.options.level > 1 else copies(scope)
    patterns = tuple(PATTERNS) if scope.options.level > 1 else (CYCLE,)
    chunk = scope.options.prefill or 7
    return (
        *(_case(scope, f"mtp-{w}", every, BOTH if w > 1 else ("decode_windows",), spec=w, **MTP) for w in range(1, WINDOW_ROWS + 1)),
        _case(scope, "worth-8", every, (OFFERED, ACCEPTED), mtp=True, spec=WINDOW_ROWS),
        _case(scope, "min-p", every, (OFFERED, ACCEPTED), spec_min_p=0.6, **MTP),
        _case(scope, "suffix", copying, ("suffix_hits", COPIED), suffix_draft=SUFFIX, spec=WINDOW_ROWS, spec_policy="full"),
        _case(scope, "both", copying, ("suffix_hits", COPIED, OFFERED), suffix_draft=SUFFIX, spec=WINDOW_ROWS, **MTP),
        _case(scope, "wrong-drafts", every, (OFFERED, "rows_rejected", ROLLED_BACK), ("wrong-drafts",), spec=WINDOW_ROWS, **MTP),
        *(_scripted(scope, every, pattern) for pattern in patterns),
        _case(scope, "first-windows", work.with_lengths([2, 3, 4, 5]), (OFFERED,), spec=WINDOW_ROWS, **MTP),
        _case(scope, "context-end", work, BOTH, spec=WINDOW_ROWS, context=_least_context(work), **MTP),
        _case(scope, f"chunks-{chunk}", work, (*BOTH, "chunked_prompts"), prefill=chunk, **MTP),
        _case(scope, "many-short", _short(scope), (OFFERED, ACCEPTED), **MTP),
        *([_groups(scope, work)] if n_devices(scope) != 1 and scope.options.split_device is None else []),
        _case(scope, "forced", forced(scope), BOTH, spec=WINDOW_ROWS, **MTP),
        _alone_at_times(scope, work),
        *([_over_stages(scope, work)] if may_split(scope) else []),
        *(_long(scope) if scope.options.level > 1 and scope.options.max_new is None else ()),
    )


def copies(scope: Scope) -> Workload:
    """Return conversations that copy from their prompts: texts to be given back changed, whole; the user's own as they are."""
    found = [item for item in scope.prompts if scope.given or item.kind == "edit"] or list(scope.prompts)
    return Workload(tuple(replace(item, max_new=scope.max_new) for item in (found if scope.options.level > 1 else found[:2])))


def forced(scope: Scope) -> Workload:
    """Return conversations that are fed their prompts' second halves, whatever they pick."""
    halves = [(item, len(item.prompt) - min(scope.max_new, len(item.prompt) // 2)) for item in scope.workload(ITEMS).items]
    return Workload(tuple(
        replace(item.cut(at), forced=item.prompt[at:], max_new=max(1, len(item.prompt) - at)) for item, at in halves
    ))


def _case(scope: Scope, name: str, work: Workload, features: tuple[str, ...], stresses: tuple[str, ...] = (), **changes) -> Case:
    arm = Arm(name, scope.settings(**changes), stresses=(*stresses, "poison"))
    return Case(name, work, Arm("off", scope.settings(), alone=True), arm, features)


def _scripted(scope: Scope, work: Workload, pattern: str) -> Case:
    """Drafts that are accepted by a pattern; the draft layer's own are not asked for."""
    features = ("given_offered", *SHOWN_BY.get(pattern, ("given_accepted", ROLLED_BACK)))
    case = _case(scope, f"scripted-{pattern}", work, features, **MTP)
    return replace(case, right=replace(case.right, drafts=DraftScript(4, pattern, scope.options.seed)))


def _least_context(work: Workload) -> int:
    return max(len(item.prompt) + item.max_new + ROOM for item in work.items)


def _short(scope: Scope) -> Workload:
    items = scope.workload(SHORT_ITEMS).items[:SHORT_ITEMS]
    cut = [item.cut(1 + 3 * i) for i, item in enumerate(items)]
    return Workload(tuple(replace(item, max_new=min(SHORT_TOKENS, item.max_new)) for item in cut))


def _alone_at_times(scope: Scope, work: Workload) -> Case:
    """Two slots, late arrivals, different lengths: the draft layer misses the windows that were decoded in company."""
    longest = work.items[0].max_new
    mixed = work.with_lengths([longest, max(1, longest // 4)])
    case = _case(scope, "alone-at-times", mixed, (*BOTH, "windows_with_company"), batch=2, batch_groups=1, **MTP)
    return replace(case, right=replace(case.right, schedule=Schedule(tuple(longest // 6 * i for i in range(len(work.items))))))


def _groups(scope: Scope, work: Workload) -> Case:
    """Pipelined groups of one slot over stages: a request that is left alone drafts, while the stages' threads go on."""
    longest = work.items[0].max_new
    uneven = work.with_lengths([max(1, longest // 3)] * (len(work.items) - 1) + [longest])
    case = _case(scope, "groups", uneven, (*BOTH, "hand_offs", "group_turns"), **MTP)
    asked = {"batch": 2, "batch_groups": 2, **MTP}
    split = scope.options.layer_split or even_split(scope.config.n_layers, 2)
    return replace(case, right=replace(case.right, settings=split_settings(scope, split, scope.options.split_device, **asked)))


def _over_stages(scope: Scope, work: Workload) -> Case:
    case = _case(scope, "stages", work, (*BOTH, "hand_offs"), **MTP)
    settings = split_settings(scope, even_split(scope.config.n_layers, 2), None, **MTP)
    return replace(case, right=replace(case.right, settings=settings))


def _long(scope: Scope) -> tuple[Case, ...]:
    work = Workload(tuple(replace(item, max_new=LONG_ANSWER) for item in scope.workload(ITEMS, all_at_level_2=True).items))
    suffix = {"suffix_draft": SUFFIX, "spec": WINDOW_ROWS}
    return (
        _case(scope, f"spec-4-{LONG_ANSWER}", work, BOTH, mtp=True),
        _case(scope, f"suffix-{LONG_ANSWER}", work, ("suffix_hits", COPIED), **suffix),
        _case(scope, f"both-{LONG_ANSWER}", work, ("suffix_hits", COPIED, OFFERED), mtp=True, **suffix),
    )


SUITE = Suite("drafts", "drafts of the draft layer and of the text's own past against none", cases)
