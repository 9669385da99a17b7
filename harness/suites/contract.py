"""What a suite is: a name, its purpose in one line, and cases, each a pair of arms that must give equal bits.

`features` of a case are counters of the right arm (`Batch.counters`) that must be above zero: what the case is about must
have happened; counters in `alike` must be equal in both arms.  A *control* is a case whose arms must differ: it shows that what
the suite is about can be seen.  A new suite is one file and one line in `harness.suites.table`.  Does not know: how cases are run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from harness.arms import Arm
from harness.scope import Scope
from harness.workload import Workload


@dataclass(frozen=True, slots=True)
class Case:
    """Two arms on one workload; `left` is the reference: kept, and the source of scripted drafts.  A control must differ.

    `failing` are the numbers of the requests that must end with an error, in both arms alike, and no other may.  A `thorough` case
    is judged at level 2, and at level 1 where it is named.
    """

    name: str
    workload: Workload
    left: Arm
    right: Arm
    features: tuple[str, ...]
    alike: tuple[str, ...] = ()
    is_control: bool = False
    failing: tuple[int, ...] = ()
    thorough: bool = False


def thorough(cases: Sequence[Case], *patterns: str) -> tuple[Case, ...]:
    """Return the cases, those whose name is like one of the patterns (`cache-*`) marked as thorough."""
    return tuple(replace(case, thorough=any(fnmatchcase(case.name, pattern) for pattern in patterns)) for case in cases)


@dataclass(frozen=True, slots=True)
class Suite:
    """A named list of cases over one kind of difference between arms.

    `why_not()` gives the one-line reason why this machine cannot run the suite, or None; such a suite runs only when asked for,
    and then says so.
    """

    name: str
    purpose: str
    cases: Callable[[Scope], tuple[Case, ...]]
    why_not: Callable[[], str | None] = lambda: None
