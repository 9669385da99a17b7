"""Arms: one complete way of running a workload, and how two of them differ.

An arm says how the engine is set, whether requests run together or each alone in an engine of its own, when they arrive,
what is drafted, and what stress is put on the stages.  Two arms with equal answers prove something only where they differ,
so every report shows `difference`.  A name is for people: it takes no part in an arm's identity.
Does not know: workloads, models, what an arm computes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from harness.drafts import DraftScript
from strata.batch.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class Schedule:
    """When requests come.

    `arrivals[i]` windows must have been decoded before the i-th request of the queue may be admitted (none: 0); `order`
    is the queue, as indices of the workload's items (empty: as they stand).
    """

    arrivals: tuple[int, ...] = ()
    order: tuple[int, ...] = ()

    def described(self) -> str:
        """Return the schedule in words."""
        parts = [f"arrive after {','.join(map(str, self.arrivals))} windows"] if any(self.arrivals) else []
        parts += [f"order {','.join(map(str, self.order))}"] if self.order else []
        return ", ".join(parts) or "all at once"


@dataclass(frozen=True, slots=True)
class Arm:
    """One complete way of running; `stresses` are names of `harness.stress.STRESSES`."""

    name: str
    settings: EngineSettings = field(default_factory=EngineSettings)
    alone: bool = False
    schedule: Schedule = Schedule()
    drafts: DraftScript | None = None
    stresses: tuple[str, ...] = ()

    @property
    def identity(self) -> "Arm":
        """The arm without its name: equal for arms that run the same way."""
        return replace(self, name="")

    def manner(self) -> dict[str, str]:
        """Return what is not an engine's setting, as text."""
        return {
            "requests": "each alone in its own engine" if self.alone else "together",
            "schedule": self.schedule.described(),
            "drafts": self.drafts.described() if self.drafts else "none",
            "stress": ",".join(self.stresses) or "none",
        }

    def requested(self) -> dict[str, str]:
        """Return every setting as asked for, as text."""
        settings = {item.name: _text(getattr(self.settings, item.name)) for item in fields(self.settings)}
        return {**settings, **self.manner()}


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """One setting in which two arms differ; a value that an arm does not have is `-`."""

    name: str
    left: str
    right: str


def difference(left: Mapping[str, str] | Arm, right: Mapping[str, str] | Arm) -> tuple[SettingDifference, ...]:
    """Return the settings in which two arms differ, as asked for (arms) or in force (`Outcome.effective` mappings)."""
    a, b = (side.requested() if isinstance(side, Arm) else side for side in (left, right))
    names = dict.fromkeys((*a, *b))
    return tuple(SettingDifference(n, a.get(n, "-"), b.get(n, "-")) for n in names if a.get(n, "-") != b.get(n, "-"))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return "default" if value is None or value == "" else str(value)
