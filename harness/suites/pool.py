"""The CPU pool: how many threads compute the experts that no device holds changes no bit.

With one slot of cache nearly every routed expert is a job of the pool: one per distinct expert with all its rows, cut over
threads by output rows, never within a sum.  One to five threads, more than there are cores among them; alone and in company,
with drafts, with prompts whose jobs have many rows.  The instruction set is a process's own: `tests/unit/cpu_pool` compares those.
"""

from harness.arms import Arm
from harness.scope import Scope
from harness.suites.contract import Case, Suite
from harness.suites.tier import COMPANY, OFF, on_host
from harness.workload import Workload

ITEMS, SLOTS = 3, 4
JOBS, PROMPT_JOBS = "cpu_entries", "prompt_cpu_entries"
THREADS = (1, 2, 3, 5)


def cases(scope: Scope) -> tuple[Case, ...]:
    """Return the cases; none where a device is no host device."""
    if not on_host(scope):
        return ()
    work, slots = scope.workload(ITEMS), scope.options.batch or SLOTS
    chosen = THREADS if scope.options.threads is None else (scope.options.threads,)
    most = chosen[-1]
    return (
        *(_case(scope, f"threads-{n}", work, (JOBS, PROMPT_JOBS), threads=n) for n in chosen),
        _case(scope, f"slots-{slots}-threads-{most}", scope.workload(slots + 1), (JOBS, COMPANY), threads=most, batch=slots),
        _case(scope, f"mtp-threads-{most}", work, (JOBS, "rolled_back_windows"), threads=most, mtp=True, spec_policy="full"),
    )


def _case(scope: Scope, name: str, work: Workload, features: tuple[str, ...], **changes) -> Case:
    left = Arm("held-one-thread", scope.settings(expert_cache=None, threads=1), alone=True)
    return Case(name, work, left, Arm(name, scope.settings(expert_cache=1, **OFF, **changes)), features)


SUITE = Suite("pool", "experts as jobs of 1 to 5 threads against all held by a device of one thread", cases)
