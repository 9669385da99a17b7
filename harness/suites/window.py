"""Verify windows against plain decoding: drafts, right or wrong, do not change an answer.

Every width from 2 to 8 with every accepted count in turn (`cycle`), the rejected cells poisoned with NaN; all drafts right,
all wrong, a mixture; stop tokens among right ones; in batches, where slots accept different counts (`ragged`) and widths
differ; over stages and chunks.
A one-row window that rolls back stands beside wider ones in `batch-widths`, where some requests have no drafts left.
"""

from dataclasses import replace

from harness.arms import Arm, Schedule
from harness.drafts import DraftScript
from harness.scope import Scope
from harness.suites.batch import STOPPED, with_stops
from harness.suites.contract import Case, Suite
from harness.suites.split import even_split, split_settings
from strata.batch.settings import WINDOW_ROWS

OFFERED, ACCEPTED, ROLLED_BACK = "verify_windows", "drafts_accepted", "rolled_back_windows"
ITEMS = 4
BOTH = (OFFERED, ACCEPTED, ROLLED_BACK)


def cases(scope: Scope) -> tuple[Case, ...]:
    """Return the cases, with the drafts of wide windows drawn by the seed."""
    slots = scope.options.batch
    return (
        *(_case(scope, f"width-{w}", w, "cycle", BOTH, stresses=("poison",)) for w in range(2, WINDOW_ROWS + 1)),
        _case(scope, "right-8", 8, "right", (OFFERED, ACCEPTED)),
        _case(scope, "wrong-8", 8, "wrong", (OFFERED, "rows_rejected", ROLLED_BACK), stresses=("poison",)),
        *(_case(scope, f"mixed-{w}", w, "mixed", BOTH) for w in (3, 8)),
        *(
            _case(scope, f"ragged-{n}-slots", max(2, WINDOW_ROWS // n), "ragged", BOTH + ("windows_with_company",), n, ("poison",))
            for n in ([slots] if slots else (2, 4))
        ),
        _stops(scope),
        _widths(scope, slots or 4),
        *([] if scope.options.layer_split else [_over_stages(scope)]),
    )


def _case(scope: Scope, name: str, width: int, pattern: str, features, slots: int = 1, stresses: tuple[str, ...] = ()) -> Case:
    drafts = DraftScript(width, pattern, scope.options.seed)
    arm = Arm(name, scope.settings(batch=slots), drafts=drafts, stresses=stresses)
    work = scope.workload(ITEMS, all_at_level_2=pattern in ("mixed", "ragged"))
    return Case(name, work, Arm("plain", scope.settings(), alone=True), arm, features)


def _stops(scope: Scope) -> Case:
    """Stop tokens among right drafts: what stands behind one in its window is not looked at."""
    case = _case(scope, "stops-8", WINDOW_ROWS, "right", (OFFERED, ACCEPTED, STOPPED))
    return replace(case, workload=with_stops(case.workload, scope))


def _widths(scope: Scope, slots: int) -> Case:
    """Late arrivals and different lengths change the number of rows that each slot may have, window by window."""
    case = _case(scope, "batch-widths", WINDOW_ROWS, "mixed", BOTH + ("late_admissions",), slots, ("poison",))
    longest = case.workload.items[0].max_new
    work = case.workload.with_lengths([longest, max(1, longest // 2), max(1, longest // 4), longest])
    late = Schedule(tuple(2 * i for i in range(len(work.items))))
    return replace(case, workload=work, right=replace(case.right, schedule=late))


def _over_stages(scope: Scope) -> Case:
    case = _case(scope, "stages", 4, "mixed", (*BOTH, "hand_offs"), stresses=("poison",))
    split = even_split(scope.config.n_layers, 2)
    settings = split_settings(scope, split, (0,), prefill=scope.chunk_rows(case.workload))
    return replace(case, right=replace(case.right, settings=settings))


SUITE = Suite("window", "verify windows of 2 to 8 rows, right and wrong drafts, against plain decoding", cases)
