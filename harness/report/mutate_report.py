"""The report of planted faults: a line for each, a table of kinds, the survivors, and one last line; and the same as JSON."""

from collections.abc import Iterable, Iterator, Sequence

from harness.environment import recorded_environment
from harness.faults.fault import REACHES, Fault
from harness.faults.finding import EVIDENCE
from harness.faults.score import LEAST_SHARE, Score, exit_code, score_of
from harness.faults.trial import Trial
from harness.report.console import results_console, side_console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

FORMAT = "strata-harness mutate 1"
KILLED, SURVIVED, EXPLAINED = "[green]killed[/]", "[red]SURVIVED[/]", "[yellow]survived[/]"


def print_trials(trials: Sequence[Trial]) -> None:
    """Print the whole report."""
    console, score = results_console(), score_of(trials)
    console.print(trial_table(trials))
    console.print(kind_table(score))
    for trial in score.survivors:
        explanation = trial.fault.survives or "no explanation: a suite is missing, or the fault is none"
        console.print(f"{verdict_of(trial)} {trial.fault.name} ({trial.fault.kind}): {escape(trial.fault.words)}; {escape(explanation)}")
    for trial in trials:
        if trial.is_killed and trial.fault.survives:
            console.print(f"[yellow]killed, though explained as a survivor[/]: {trial.fault.name}: correct the catalogue")
    console.print(last_line(trials))


def print_list(faults: Iterable[Fault]) -> None:
    """Print the catalogue."""
    table = Table("fault", "kind", "reach", "site", "what goes wrong", box=None)
    for fault in faults:
        table.add_row(fault.name, fault.kind, REACHES[fault.reach], escape(fault.site), escape(fault.words))
    results_console().print(table)


def trial_table(trials: Sequence[Trial]) -> Table:
    """Return one line per fault."""
    table = Table("fault", "kind", "verdict", "by", "check", box=None)
    table.add_column("seconds", justify="right")
    for trial in trials:
        table.add_row(trial.fault.name, trial.fault.kind, verdict_of(trial), trial.finding.evidence, trial.check, f"{trial.seconds:.1f}")
    return table


def kind_table(score: Score) -> Table:
    """Return one line per kind: killed of all, by which evidence."""
    table = Table("kind", box=None)
    for heading in ("faults", "killed", *(f"by {evidence}" for evidence in EVIDENCE), "seconds"):
        table.add_column(heading, justify="right")
    for kind, trials in score.by_kind().items():
        part = Score(trials)
        counts = part.by_evidence()
        table.add_row(
            kind, str(len(trials)), str(part.n_killed), *(str(counts.get(evidence, "")) for evidence in EVIDENCE), f"{part.seconds:.1f}"
        )
    return table


def verdict_of(trial: Trial) -> str:
    """Return the verdict with its colour."""
    return KILLED if trial.is_killed else (SURVIVED if not trial.is_as_expected else EXPLAINED)


def last_line(trials: Sequence[Trial]) -> str:
    """Return the score in one line."""
    score = score_of(trials)
    crashed = score.by_evidence().get("error", 0)
    is_good = exit_code(trials) == 0
    colour, word = ("green", "good") if is_good else ("red", "not good enough")
    return (
        f"[{colour}]{word}[/]: {score.n_killed} of {len(score.trials)} faults killed ({100 * score.share:.1f} %, at least {100 * LEAST_SHARE:.0f} % wanted), "
        f"{crashed} of them because a run could not end; {len(score.survivors)} survived, {len(score.unexplained)} without explanation; {score.seconds:.0f} s"
    )


def mutate_document(trials: Sequence[Trial], options: dict) -> dict:
    """Return the document of a campaign."""
    score = score_of(trials)
    return {
        "format": FORMAT,
        "exit_code": exit_code(trials),
        "n_faults": len(score.trials),
        "n_killed": score.n_killed,
        "share": round(score.share, 4),
        "by_evidence": score.by_evidence(),
        "by_kind": {kind: {"faults": len(part), "killed": sum(t.is_killed for t in part)} for kind, part in score.by_kind().items()},
        "survivors": {trial.fault.name: trial.fault.survives for trial in score.survivors},
        "options": options,
        "environment": recorded_environment(),
        "seconds": round(score.seconds, 1),
        "faults": [_trial(trial) for trial in trials],
    }


def _trial(trial: Trial) -> dict:
    fault = trial.fault
    return {
        "name": fault.name,
        "kind": fault.kind,
        "site": fault.site,
        "words": fault.words,
        "reach": fault.reach,
        "killed": trial.is_killed,
        "by": trial.finding.evidence,
        "check": trial.check,
        "detail": trial.finding.detail,
        "ring": trial.ring,
        "checks": trial.n_checks,
        "seconds": round(trial.seconds, 2),
    }


def watched(trials: Iterable[Trial], faults: Sequence[Fault]) -> Iterator[Trial]:
    """Yield trials as they come, with a bar on stderr where that is a terminal."""
    console = side_console()
    if not console.is_terminal:
        yield from trials
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(faults[0].name if faults else "", total=len(faults))
        for n, trial in enumerate(trials, 1):
            progress.update(task, advance=1, description=faults[n].name if n < len(faults) else "done")
            yield trial
