"""What a planted fault is: a change of one running engine, made from outside, and the checks that should see it.

A fault is planted into an engine that has just been opened, by wrapping methods of its instances or through a probe: no
kernel is compiled anew and no product code has a hook for it.  `reach` says whom it hits, and so what may convict it:

    SOME   every engine, but only rows in some circumstance (company, width, a stage): arms must be seen to differ
    ONE    the right arm only, as another executor or device would be wrong: arms must be seen to differ
    ALL    every row of every arm alike: no two arms differ, so a golden record or the float64 reference must see it

Does not know: how checks work.
"""

from collections.abc import Callable
from dataclasses import dataclass

from strata.batch.engine import Engine
from strata.batch.settings import EngineSettings

SOME, ONE, ALL = "some", "one", "all"
REACHES = {SOME: "some rows of every arm", ONE: "one arm", ALL: "all arms alike"}


def nothing(engine: Engine) -> None:
    """Plant nothing."""


def unchanged(settings: EngineSettings) -> EngineSettings:
    """Open the engine as it was asked to be."""
    return settings


@dataclass(frozen=True, slots=True)
class Fault:
    """One planted fault.

    `kind` as in docs/FAULTS.md; `site` the operation or place; `words` what goes wrong.  `plant` changes an open engine,
    `settings` what an engine is opened with.  `seen_by` names the checks that should see it, cheapest first.
    `survives` explains a fault that no check can see; empty for one that must be seen.
    """

    name: str
    kind: str
    site: str
    words: str
    seen_by: tuple[str, ...]
    plant: Callable[[Engine], None] = nothing
    settings: Callable[[EngineSettings], EngineSettings] = unchanged
    reach: str = SOME
    survives: str = ""


CONTROL = Fault("control", "control", "nowhere", "plants nothing: it must survive every check", ())
"""The fault that is none; a harness that convicts it lies."""
