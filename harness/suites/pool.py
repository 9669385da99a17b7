"""The CPU pool: how many threads share its jobs, and by which instructions, changes no bit; a job that fails ends its request only.

A cache of one slot or a few, so that the pool computes most experts: one job per distinct expert with all its rows, cut over threads
by output rows, never within a sum.  `cpu_entries` counts its rows and `pool_pieces` the pieces of its jobs that workers ran.  In mode `device` the pool rounds otherwise than a device: `control` must differ.
"""

from dataclasses import replace

from harness.arms import Arm
from harness.pool_stress import FAILING_LENGTH, pool_sets
from harness.scope import Scope
from harness.suites.contract import Case, Suite, thorough
from harness.suites.tier import COMPANY, FIXED, MISSED, OFF, OFTEN, can_run, has_device_mode
from harness.workload import Workload
from strata.split.devices import usable_cores

ITEMS, SLOTS, FAILING_ITEM = 3, 4, 1
READ = f"prompt_{MISSED}"
PIECES, FAILED = "pool_pieces", "failed_windows"
CACHED_PER_LAYER = 2
THREADS, MOST_THREADS = (1, 2, 3, 5), 16
"""More threads than there are cores among them, and as many as there are cores."""


def cases(scope: Scope) -> tuple[Case, ...]:
    """Return the cases; none where cards are asked for another mode than theirs."""
    if not can_run(scope):
        return ()
    work, slots = scope.workload(ITEMS), scope.options.batch or SLOTS
    few = {"expert_cache": CACHED_PER_LAYER * scope.config.n_layers, **OFF}
    one_slot = {"expert_cache": 1, **OFF}
    threads = sorted({*THREADS, min(MOST_THREADS, usable_cores())}) if scope.options.threads is None else [scope.options.threads]
    most, mtp = threads[-1], {"mtp": True, "spec_policy": "full"}
    found = (
        *(_threads(scope, f"threads-{n}", work, (MISSED, READ, *((PIECES,) if n > 1 else ())), threads=n, **one_slot) for n in threads),
        _threads(scope, f"slots-{slots}-threads-{most}", scope.workload(slots + 1), (MISSED, COMPANY), threads=most, batch=slots, **one_slot),
        _threads(scope, f"mtp-threads-{most}", work, (MISSED, "rolled_back_windows"), threads=most, **mtp, **one_slot),
        *(_with(_case(scope, f"set-{name}", work, (MISSED, READ), **few), f"pool-{name}") for name in pool_sets()),
        _with(_case(scope, f"slots-{slots}-{pool_sets()[-1]}", scope.workload(slots + 1), (MISSED, COMPANY), batch=slots, **few), f"pool-{pool_sets()[-1]}"),
        _threads(scope, f"moving-threads-{most}", work, (MISSED, "evictions"), threads=most, **{**few, **OFTEN}),
        *_failing(scope, slots, few),
        *([_control(scope, work, few)] if has_device_mode(scope) else []),
    )
    return thorough(found, *(f"set-{name}" for name in pool_sets()[:-1]), "threads-2", "threads-5", "failing-job-elsewhere")


def _failing(scope: Scope, slots: int, few: dict) -> list[Case]:
    """A request whose prompt fails in the pool, among others: alone and in company it ends alike, and the others are exact."""
    items = scope.workload(slots + 1).items
    if len(items) <= FAILING_ITEM or any(len(item.prompt) < FAILING_LENGTH for item in items):
        return []
    work = Workload(tuple(item.cut(FAILING_LENGTH) if i == FAILING_ITEM else item for i, item in enumerate(items)))
    left = Arm("alone", scope.settings(**few), alone=True, stresses=("failing-job",))
    one_by_one = Arm("one-by-one", scope.settings(**few), stresses=("failing-job",))
    beside = Arm("beside", scope.settings(batch=slots, **few), stresses=("failing-job",))
    unharmed = Workload(tuple(item for i, item in enumerate(work.items) if i != FAILING_ITEM))
    resident = Arm("resident", scope.settings(expert_cache=None), alone=True)
    return [
        Case("failing-job", work, left, one_by_one, (MISSED, FAILED), failing=(FAILING_ITEM,)),
        Case(f"failing-job-slots-{slots}", work, left, beside, (MISSED, FAILED, COMPANY), failing=(FAILING_ITEM,)),
        Case("failing-job-elsewhere", unharmed, resident, one_by_one, (MISSED,)),
    ]


def _control(scope: Scope, work: Workload, few: dict) -> Case:
    fixed = {**FIXED, "expert_cache": few["expert_cache"]}
    left = Arm("resident", scope.settings(rounding="device", expert_cache=None), alone=True)
    return Case("control-device-pool", work, left, Arm("pool", scope.settings(**fixed)), (MISSED,), is_control=True)


def _with(case: Case, stress: str) -> Case:
    return replace(case, right=replace(case.right, stresses=(stress,)))


def _threads(scope: Scope, name: str, work: Workload, features: tuple[str, ...], **changes) -> Case:
    left = Arm("held-one-thread", scope.settings(expert_cache=None, threads=1), alone=True)
    return Case(name, work, left, Arm(name, scope.settings(**changes)), features)


def _case(scope: Scope, name: str, work: Workload, features: tuple[str, ...], **changes) -> Case:
    return Case(name, work, Arm("resident", scope.settings(expert_cache=None), alone=True), Arm(name, scope.settings(**changes)), features)


SUITE = Suite("pool", "the CPU pool on any number of threads and by any instructions, against every expert on the device", cases)
