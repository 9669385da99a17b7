"""Slot groups through stages: pipelined against one after the other, and those against a single device.

Pipelined, one thread per stage works on windows of different groups at once; nothing of that may reach an answer.  `late`
and `drafts` let requests come and windows roll back meanwhile, `jitter` makes the threads meet in other orders.
"""

from dataclasses import replace

from harness.arms import Arm, Schedule
from harness.drafts import DraftScript
from harness.scope import Scope
from harness.suites.contract import Case, Suite
from harness.suites.split import MOST_STAGES, even_split, n_devices, single_settings, split_settings
from strata.batch.settings import WINDOW_ROWS

OVERLAPPED = ("overlaps", "group_turns", "hand_offs")
TURNS = ("group_turns", "hand_offs")


def cases(scope: Scope) -> tuple[Case, ...]:
    """Return the cases of the split asked for, or of 2, 3 and 4 stages as far as the devices go."""
    asked = scope.options.layer_split
    most = min(n_devices(scope) or MOST_STAGES, MOST_STAGES, scope.config.n_layers)
    splits = [asked] if asked else [even_split(scope.config.n_layers, n) for n in range(2, most + 1)]
    found = [case for split in splits for case in _basic(scope, split)]
    return (*found, *(_stressed(scope, splits[0]) if splits else ()))


def _basic(scope: Scope, split: tuple[int, ...]) -> list[Case]:
    single, serial, pipelined = _arms(scope, split)
    size = f"{len(split) + 1}x{pipelined.settings.batch}"
    work = scope.workload(pipelined.settings.batch, all_at_level_2=len(split) == 1)
    return [Case(f"pipelined-{size}", work, serial, pipelined, OVERLAPPED), Case(f"serial-{size}", work, single, serial, TURNS)]


def _stressed(scope: Scope, split: tuple[int, ...]) -> list[Case]:
    single, _, pipelined = _arms(scope, split)
    work = scope.workload(pipelined.settings.batch)
    late = Schedule(tuple(5 * i for i in range(len(work.items))))
    drafts = replace(pipelined, drafts=DraftScript(width=4, pattern="cycle"), stresses=("poison",))
    return [
        Case("late", work, single, replace(pipelined, schedule=late), (*OVERLAPPED, "late_admissions")),
        Case("drafts", work, single, drafts, (*OVERLAPPED, "rolled_back_windows")),
        Case("jitter", work, single, replace(pipelined, stresses=("jitter",)), OVERLAPPED),
    ]


def _arms(scope: Scope, split: tuple[int, ...]) -> tuple[Arm, Arm, Arm]:
    """Return a single device, the groups one after the other, and the groups pipelined; all with the same slots."""
    slots, groups = slots_and_groups(scope.options.batch, scope.options.batch_groups, len(split) + 1)
    staged = split_settings(scope, split, scope.options.split_device, batch=slots, batch_groups=groups)
    return (
        Arm("single", single_settings(scope, batch=slots)),
        Arm("serial", replace(staged, pipelined=False)),
        Arm("pipelined", replace(staged, pipelined=True)),
    )


def slots_and_groups(batch: int | None, groups: int | None, n_stages: int) -> tuple[int, int]:
    """Return what was asked for; by default as many groups as stages, of as many slots as fit into one window, two at most."""
    if batch is None:
        groups = groups or n_stages
        return groups * max(1, min(2, WINDOW_ROWS // groups)), groups
    return batch, next((g for g in range(n_stages, 1, -1) if batch % g == 0), 1) if not groups else groups


SUITE = Suite("pipeline", "slot groups pipelined through stages against groups in turn and a single device", cases)
