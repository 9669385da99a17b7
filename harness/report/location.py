"""The report of a search for the first difference: what, where, in whose company, by how much, and how it was found."""

import dataclasses

from harness.arms import difference
from harness.environment import environment
from harness.locate.finding import EQUAL, KINDS, LOCATED, Cause, Company, ElementDifference, Finding, Sight
from harness.report.console import results_console
from harness.report.difference_panel import request_lines
from harness.suites.contract import Case
from rich.console import Group
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

FORMAT = "strata-harness locate 1"
COLOURS = {"located": "red", "differs": "red", "equal": "green", "unjudged": "yellow"}
SHOWN_REQUESTS = 2


def print_finding(finding: Finding, case: Case, command: str) -> None:
    """Print the finding, the passes, and one last line."""
    console = results_console()
    if finding.cause is not None:
        console.print(_cause_panel(finding.cause, case))
    for item in finding.tokens[:SHOWN_REQUESTS]:
        console.print(Text("\n".join(request_lines(item))))
    if finding.verdict == LOCATED and not finding.tokens:
        console.print(Text("no token and no logit row of the answers differs: the difference is absorbed on its way"))
    console.print(_passes(finding))
    if finding.planted:
        console.print(Text(f"planted: {finding.planted}, flipped {finding.n_planted} elements in the last pass"))
    if finding.verdict != EQUAL:
        console.print(Text(f"repeat: {command}"))
    console.print(last_line(finding))


def last_line(finding: Finding) -> str:
    """Return the verdict with the place in one line."""
    colour = COLOURS[finding.verdict]
    cause = finding.cause
    where = f" ({cause.label}, position {cause.position})" if cause else ""
    seconds = sum(note.seconds for note in finding.passes)
    return f"[{colour}]{finding.verdict}[/]: {escape(finding.reason)}{where}; {len(finding.passes)} passes in {seconds:.1f} s"


def finding_document(finding: Finding, case: Case, command: str) -> dict:
    """Return the finding as a JSON document."""
    return {
        "format": FORMAT,
        "exit_code": finding.exit_code,
        "left": case.left.requested(),
        "right": case.right.requested(),
        **dataclasses.asdict(finding),
        "command": command,
        "environment": environment(),
    }


def _cause_panel(cause: Cause, case: Case) -> Panel:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in _lines(cause):
        table.add_row(name, Text(value))
    arms = Table("setting", case.left.name, case.right.name, box=None, pad_edge=False)
    for item in difference(case.left, case.right):
        arms.add_row(item.name, item.left, item.right)
    return Panel(Group(table, "", arms), title=escape(f"{cause.kind}: {cause.words}"), title_align="left")


def _lines(cause: Cause) -> list[tuple[str, str]]:
    lines = [
        ("what", f"{cause.words} [{cause.point}]" + (f", {cause.part_words}" if cause.part_words else "")),
        ("why it", KINDS[cause.kind]),
        ("source", cause.source),
        ("request", f"{cause.request} ({cause.label}), position {cause.position}"),
    ]
    if cause.broken_in:
        lines.append(("broken in", f"arm {', '.join(cause.broken_in)}: it is not what {cause.origin} was at position {cause.origin_position}"))
    elif cause.sides != "both":
        lines.append(("seen in", f"arm {cause.sides} alone: it is not what {cause.origin} was at position {cause.origin_position}"))
    for side, sight in (("left", cause.left), ("right", cause.right)):
        lines.append((side, _sight_text(sight) if sight else "has no such record"))
    lines += [("element", _element_text(cause.element, cause))] if cause.element else [("element", "not recorded")]
    lines += [("input", f"{state.state}: {state.words} [{state.point}]" + (f", {state.n_records} records" if state.n_records > 1 else "")) for state in cause.inputs]
    lines += [("unseen", words) for words in cause.unseen]
    return lines


def _sight_text(sight: Sight) -> str:
    where = f"{sight.device}, stage {sight.stage} (layers {sight.layers}), window {sight.window}, row {sight.row} of {sight.n_rows}, slot {sight.slot}"
    return where + ("" if sight.kept else ", a rejected draft") + f"; the window: {', '.join(map(_segment_text, sight.company))}"


def _segment_text(segment: Company) -> str:
    last = segment.position + segment.n_rows - 1
    positions = f"position {last}" if segment.n_rows == 1 else f"positions {segment.position}-{last}"
    return f"request {segment.request} {positions} in slot {segment.slot}"


def _passes(finding: Finding) -> Table:
    table = Table("pass", "level", "what", box=None, pad_edge=False)
    for heading in ("compared", "differ", "seconds"):
        table.add_column(heading, justify="right")
    for number, note in enumerate(finding.passes):
        table.add_row(str(number + 1), str(note.level), note.what, f"{note.n_compared:,}", f"{note.n_differing:,}", f"{note.seconds:.1f}")
    return table


def _element_text(element: ElementDifference, cause: Cause) -> str:
    at = ", ".join(map(str, element.index))
    cell = f", cell {element.cell}" if element.cell is not None else ""
    compared = "" if cause.sides == "both" else " (origin, copy)"
    return (
        f"[{at}]{cell} {element.kind}: {element.left_bits} | {element.right_bits}{compared}, {element.left} | {element.right}, "
        f"{element.ulps} ULP apart; {element.n_differing} of {element.n_elements} elements differ"
    )
