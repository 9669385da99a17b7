"""The score of a campaign: how many faults were convicted, by what, and whether that is good enough.

Does not know: how faults are tried, reports.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.faults.fault import CONTROL
from harness.faults.trial import Trial

LEAST_SHARE = 0.95
GOOD, NOT_GOOD = 0, 1


@dataclass(frozen=True, slots=True)
class Score:
    """Trials of faults (the control stands apart)."""

    trials: tuple[Trial, ...]

    @property
    def n_killed(self) -> int:
        return sum(trial.is_killed for trial in self.trials)

    @property
    def share(self) -> float:
        return self.n_killed / len(self.trials) if self.trials else 1.0

    @property
    def survivors(self) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.trials if not trial.is_killed)

    @property
    def unexplained(self) -> tuple[Trial, ...]:
        """Survivors for which the catalogue has no explanation."""
        return tuple(trial for trial in self.survivors if not trial.fault.survives)

    @property
    def is_good(self) -> bool:
        return self.share >= LEAST_SHARE and not self.unexplained

    @property
    def seconds(self) -> float:
        return sum(trial.seconds for trial in self.trials)

    def by_evidence(self) -> dict[str, int]:
        """Return evidence -> number of faults convicted by it."""
        found: dict[str, int] = {}
        for trial in self.trials:
            if trial.is_killed:
                found[trial.finding.evidence] = found.get(trial.finding.evidence, 0) + 1
        return found

    def by_kind(self) -> dict[str, tuple[Trial, ...]]:
        """Return kind -> its trials."""
        kinds = dict.fromkeys(trial.fault.kind for trial in self.trials)
        return {kind: tuple(trial for trial in self.trials if trial.fault.kind == kind) for kind in kinds}


def score_of(trials: Sequence[Trial]) -> Score:
    """Return the score of trials."""
    return Score(tuple(trial for trial in trials if trial.fault is not CONTROL))


def exit_code(trials: Sequence[Trial]) -> int:
    """Return 0 where enough was killed, every survivor is explained, and the control survived."""
    has_liar = any(trial.fault is CONTROL and trial.is_killed for trial in trials)
    return GOOD if score_of(trials).is_good and not has_liar else NOT_GOOD
