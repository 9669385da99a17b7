"""Sampled conversations, in every company: the tokens drawn depend on seed and position only.

Each conversation has its own keys: temperatures, seeds, top_k, top_p, min_p, penalties, log probabilities, with greedy ones
between.  Alone, in slots, with drafts of every source, one proposal per slot, over stages and pipelined groups, in chunks,
and once more with logits rounded to whole numbers, so that ties stand at every border.
"""

from dataclasses import replace

from harness.arms import Arm, Schedule
from harness.scope import Scope
from harness.suites.contract import Case, Suite
from harness.suites.drafts import MTP, SUFFIX, copies
from harness.suites.split import even_split, may_split, split_settings
from harness.workload import Workload
from strata.batch.settings import WINDOW_ROWS
from strata.sampling.settings import Sampling

ITEMS = 7
COMPANY = "windows_with_company"
SLOTS = 4


def keys(seed: int) -> tuple[Sampling, ...]:
    """Return the keys that conversations get in turn; seeds grow from the run's."""
    return (
        Sampling(temperature=0.7, seed=seed),
        Sampling(temperature=1.3, top_p=0.9, seed=seed + 1),
        Sampling(),
        Sampling(temperature=1.0, top_k=5, seed=(1 << 64) - 1 - seed),
        Sampling(temperature=0.9, min_p=0.05, top_k=40, seed=seed + 2, logprobs=3),
        Sampling(temperature=0.6, penalty_repeat=1.2, penalty_freq=0.1, penalty_present=0.2, seed=seed + 3),
        Sampling(penalty_repeat=1.3, penalty_last_n=16),
    )


def with_keys(work: Workload, seed: int) -> Workload:
    """Return the workload with each item's own keys."""
    chosen = keys(seed)
    return Workload(tuple(replace(item, sampling=chosen[i % len(chosen)]) for i, item in enumerate(work.items)))


def cases(scope: Scope) -> tuple[Case, ...]:
    """Return the cases."""
    work = with_keys(scope.workload(ITEMS), scope.options.seed)
    copying = with_keys(copies(scope), scope.options.seed)
    slots = scope.options.batch or SLOTS
    late = Schedule(tuple(2 * i for i in range(len(work.items))))
    mtp, proposals = {"spec": 5, **MTP}, {"mtp": True, "batch_mtp": True, "batch": slots, "batch_groups": 1}
    chunk = scope.options.prefill or 7
    return (
        _case(scope, f"slots-{slots}", work, (COMPANY,), batch=slots),
        _late(_case(scope, f"late-{slots}", work, (COMPANY, "late_admissions"), batch=slots), late),
        _case(scope, "mtp", work, ("mtp_offered", "mtp_accepted", "rolled_back_windows"), **mtp),
        _case(scope, "suffix", copying, ("suffix_hits",), suffix_draft=SUFFIX, spec=WINDOW_ROWS, spec_policy="full"),
        _case(scope, f"batch-mtp-{slots}", work, (COMPANY, "mtp_accepted", "rolled_back_windows"), **proposals),
        _case(scope, f"chunks-{chunk}", work, ("chunked_prompts",), prefill=chunk),
        _case(scope, "ties-slots", work, (COMPANY,), ("ties",), batch=slots),
        _case(scope, "ties-mtp", work, ("mtp_accepted", "rolled_back_windows"), ("ties",), **mtp),
        *(_over_stages(scope, work, slots) if may_split(scope) else []),
    )


def _case(scope: Scope, name: str, work: Workload, features: tuple[str, ...], stresses: tuple[str, ...] = (), **changes) -> Case:
    left = Arm("solo", scope.settings(), alone=True, stresses=stresses)
    return Case(name, work, left, Arm(name, scope.settings(**changes), stresses=stresses), features)


def _late(case: Case, schedule: Schedule) -> Case:
    return replace(case, right=replace(case.right, schedule=schedule))


def _over_stages(scope: Scope, work: Workload, slots: int) -> list[Case]:
    split = even_split(scope.config.n_layers, 2)
    grouped = split_settings(scope, split, None, batch=2 * (slots // 2) or 2, batch_groups=2)
    drafted = split_settings(scope, split, None, **MTP)
    found = [_case(scope, "stages-groups", work, ("hand_offs", "group_turns")), _case(scope, "stages-mtp", work, ("hand_offs", "mtp_accepted"))]
    return [replace(case, right=replace(case.right, settings=settings)) for case, settings in zip(found, (grouped, drafted), strict=True)]


SUITE = Suite("sampled", "sampled conversations in slots, with drafts and over stages against each one alone", cases)
