"""The panel of a case that is not exact: what differs, where, by how much, how the arms were set, what repeats it."""

from rich.console import Group
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from harness.comparison import Difference, Mismatch
from harness.options import Options
from harness.report.reproduce import reproducing_command
from harness.verdicts import CaseResult

SHOWN_REQUESTS = 4


def case_panel(result: CaseResult, options: Options) -> Panel:
    """Return the panel of one case."""
    parts = [Text(result.reason)]
    if result.comparison and result.comparison.differences:
        comparison = result.comparison
        parts.append(Text(f"{comparison.n_rows - comparison.n_rows_equal} of {comparison.n_rows} logit rows compared differ"))
        parts += [Text("\n".join(request_lines(d))) for d in _telling(comparison.differences)]
    if result.in_force:
        parts.append(settings_table(result))
    parts.append(Text(f"repeat: {reproducing_command(options, result.suite, result.case.name)}"))
    title = f"{result.suite} {result.case.name}: {result.verdict}"
    return Panel(Group(*parts), title=escape(title), title_align="left")


def _telling(differences: tuple[Difference, ...]) -> list[Difference]:
    """Those whose tokens differ first, a few of them."""
    return sorted(differences, key=lambda d: d.token is None)[:SHOWN_REQUESTS]


def request_lines(difference: Difference) -> list[str]:
    """Return the lines about one request."""
    lines = [f"request {difference.request} ({difference.label}): {difference.kind} {difference.detail}".rstrip()]
    if difference.row is not None:
        lines.append(f"  first row whose bits differ  {mismatch_text(difference.row)}")
        if difference.row.left.token == difference.row.right.token:
            lines.append(f"    hashes {difference.row.left.digest} | {difference.row.right.digest}")
    if difference.token is not None:
        lines.append(f"  first token that differs     {mismatch_text(difference.token)}")
    return lines


def mismatch_text(mismatch: Mismatch) -> str:
    """Return where a row stands, its tokens and its margins."""
    a, b = mismatch.left, mismatch.right
    return (
        f"answer token {mismatch.index}, picked at position {mismatch.position}: token {a.token} | {b.token}, "
        f"margin {a.margin:.6f} (over {a.second}) | {b.margin:.6f} (over {b.second})"
    )


def settings_table(result: CaseResult) -> Table:
    """Return the settings in force in which the arms differ."""
    table = Table("in force", result.case.left.name, result.case.right.name, box=None, pad_edge=False)
    for item in result.in_force:
        table.add_row(item.name, item.left, item.right)
    return table
