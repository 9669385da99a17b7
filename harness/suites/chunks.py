"""Prompt chunks: a prompt read in pieces of any size gives the state, and so the answer, of one read whole.

Sizes 1, 7, 32 and 256, each also with prompts of n * size + {-1, 0, 1} tokens, where an off-by-one at the border shows;
in slots, where others decode between; and with drafts behind.  Short reads (`--short-read`): whole prompts and the ends of
chunked ones by windows of eight rows, around that border too, in slots, with drafts behind, and flowing through stages.
"""

from dataclasses import replace

from harness.arms import Arm, Schedule
from harness.drafts import DraftScript
from harness.scope import Scope
from harness.suites.contract import Case, Suite
from harness.suites.split import even_split, may_split, split_settings
from harness.workload import Item, Workload
from strata.batch.settings import WINDOW_ROWS

SIZES = (1, 7, 32, 256)
CHUNKED, SHORT = "chunked_prompts", "short_reads"
ITEMS, FEW = 4, 3
LARGE = 100
WHOLE = 0
"""The engine's own chunk: 2,048 rows, which no shipped prompt fills."""
BORDER_TOKENS = 12
"""Tokens wanted of each border prompt: what a wrong state would spoil shows at once."""


def cases(scope: Scope) -> tuple[Case, ...]:
    """Return the cases of the chunk size asked for, or of all."""
    asked = scope.options.prefill
    work = scope.workload(ITEMS)
    longest = max(len(item.prompt) for item in work.items)
    sizes = (asked,) if asked else tuple(size for size in SIZES if size < longest) or SIZES[:1]
    found = [_case(scope, f"size-{size}", size, scope.workload(FEW) if size == 1 else scope.workload(ITEMS, size == 32)) for size in sizes]
    found += [_case(scope, f"borders-{size}", size, borders(scope, size)) for size in sizes]
    small = sizes[min(1, len(sizes) - 1)]
    late = Schedule(tuple(3 * i for i in range(len(work.items))))
    in_slots = _case(scope, f"slots-size-{small}", small, work, scope.options.batch or 4)
    drafted = _case(scope, f"drafts-size-{small}", small, work)
    return (
        *found,
        replace(in_slots, right=replace(in_slots.right, schedule=late), features=(CHUNKED, "late_admissions")),
        replace(drafted, right=replace(drafted.right, drafts=DraftScript(4, "mixed")), features=(CHUNKED, "verify_windows")),
        *short_reads(scope, work, small, late),
    )


def short_reads(scope: Scope, work: Workload, size: int, late: Schedule) -> list[Case]:
    """Return the cases whose prompts, or their ends behind chunks of `size`, are read by windows of eight rows."""
    shortest, slots = min(len(item.prompt) for item in work.items), scope.options.batch or 4
    whole = max(len(item.prompt) for item in work.items)
    found = [
        _short(scope, "short-whole", work, (), short_read=whole),
        _short(scope, "short-ends", work, (CHUNKED,), prefill=size, short_read=max(1, min(size, shortest - 1))),
        _short(scope, "borders-short", borders(scope, WINDOW_ROWS), (), short_read=2 * WINDOW_ROWS),
        _short(scope, "short-mtp", work, ("mtp_accepted",), short_read=whole, mtp=True, spec_policy="full"),
        _short(scope, f"short-slots-{slots}", work, ("late_admissions",), short_read=whole, batch=slots),
    ]
    found[-1] = replace(found[-1], right=replace(found[-1].right, schedule=late))
    if may_split(scope):
        case = _short(scope, "short-stages", work, ("hand_offs", "overlaps"))
        settings = split_settings(scope, even_split(scope.config.n_layers, 2), None, batch=4, batch_groups=2, short_read=whole)
        found.append(replace(case, right=replace(case.right, settings=settings)))
    return found


def _short(scope: Scope, name: str, work: Workload, features: tuple[str, ...], **changes) -> Case:
    left = Arm("whole", scope.settings(prefill=WHOLE), alone=True)
    settings = scope.settings(**{"prefill": WHOLE, **changes})
    return Case(name, work, left, Arm(name, settings), (SHORT, "short_read_windows", *features))


def borders(scope: Scope, size: int) -> Workload:
    """Return prompts of n * size + {-1, 0, 1} tokens for n = 1 and 2 (large sizes only at level 2), cut from those that are long enough."""
    multiples = (1, 2) if size < LARGE or scope.options.level > 1 else (1,)
    lengths = sorted({n * size + d for n in multiples for d in (-1, 0, 1)} - {0})
    sources = sorted(scope.prompts, key=lambda item: -len(item.prompt))
    max_new = min(scope.max_new, BORDER_TOKENS)
    items = [_cut(sources, i, length, max_new) for i, length in enumerate(lengths) if length <= len(sources[0].prompt)]
    return Workload(tuple(items))


def _cut(sources: list[Item], index: int, length: int, max_new: int) -> Item:
    """Cut one of the prompts that are long enough, in turn."""
    fitting = [item for item in sources if len(item.prompt) >= length]
    item = fitting[index % len(fitting)]
    return replace(item, label=f"{item.label}[:{length}]", prompt=item.prompt[:length], max_new=max_new)


def _case(scope: Scope, name: str, size: int, work: Workload, slots: int = 1) -> Case:
    whole = Arm("whole", scope.settings(prefill=WHOLE), alone=True)
    return Case(name, work, whole, Arm(name, scope.settings(prefill=size, batch=slots)), (CHUNKED,))


SUITE = Suite("chunks", "prompts in chunks of 1, 7, 32 and 256 tokens, and around their borders, against prompts read whole", cases)
