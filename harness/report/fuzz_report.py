"""Reports of fuzzing: how many plans ran, how much was covered, and the smallest plan that differs."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict

from harness.environment import recorded_environment
from harness.fuzz.plan import Plan
from harness.options import Options
from harness.report.console import results_console
from harness.report.difference_panel import case_panel
from harness.verdicts import CaseResult, worst

FORMAT = "strata-harness fuzz 1"


def repeating_command(plan: Plan) -> str:
    """Return the line that runs one plan again."""
    return shlex.join(["strata-harness", "fuzz", "--plan", plan.text()])


def print_found(plan: Plan, result: CaseResult) -> None:
    """Print the plan that differs, and what repeats it."""
    console = results_console()
    console.print(case_panel(result, Options()))
    console.print(f"the smallest plan found that does not give equal bits; repeat it with\n  {repeating_command(plan)}", soft_wrap=True)


def print_summary(runs: Sequence[tuple[Plan, CaseResult]], covered: float, seed: int) -> None:
    """Print one line about all plans."""
    verdict = worst("exact" if r.verdict == "vacuous" else r.verdict for _, r in runs)
    n_rows = sum(r.comparison.n_rows for _, r in runs if r.comparison)
    seconds = sum(r.seconds for _, r in runs)
    results_console().print(
        f"{verdict}: {len(runs)} plans, {n_rows:,} logit rows compared in {seconds:.1f} s; "
        f"{covered:.0%} of all pairs of settings covered, seed {seed}"
    )


def fuzz_document(runs, covered: float, seed: int, smallest: Plan | None, result: CaseResult | None) -> dict:
    """Return the results as a document."""
    return {
        "format": FORMAT,
        "seed": seed,
        "n_plans": len(runs),
        "n_rows": sum(r.comparison.n_rows for _, r in runs if r.comparison),
        "covered_pairs": round(covered, 4),
        "environment": recorded_environment(),
        "plans": [{"plan": plan.text(), "verdict": r.verdict, "seconds": round(r.seconds, 3)} for plan, r in runs],
        "smallest": None if smallest is None else {"plan": asdict(smallest), "command": repeating_command(smallest), "reason": result.reason},
    }
