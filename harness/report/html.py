"""The HTML page: the matrix of suites and cases, each cell a verdict, and what is to be said of those that are not exact.

One file without scripts or links to anything else.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from harness.verdicts import EXACT
from strata.errors import UsageError

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; color: #222; }
table { border-collapse: collapse; } th, td { text-align: left; vertical-align: top; padding: .2rem .6rem; }
.cell { display: inline-block; margin: .1rem; padding: .1rem .5rem; border-radius: .3rem; font-size: .85em; }
.exact { background: #d8f0d8; } .differs { background: #f6c9c9; } .vacuous { background: #f7ecc0; } .error { background: #e6d3f2; }
pre { background: #f4f4f4; padding: .6rem; overflow-x: auto; }
"""


def write_html(path: str, title: str, findings: Sequence) -> None:
    """Write the page; raises UsageError where that fails."""
    try:
        Path(path).write_text(page(title, findings), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"html={path}", error.strerror or "it cannot be written", "name another file") from None


def page(title: str, findings: Sequence) -> str:
    """Return the page."""
    n_rows, seconds = sum(f.n_rows for f in findings), sum(f.seconds for f in findings)
    failing = [finding for finding in findings if finding.verdict != EXACT]
    rows = "".join(_matrix_row(suite, [f for f in findings if f.suite == suite]) for suite in dict.fromkeys(f.suite for f in findings))
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{escape(title)}</h1><p>{len(findings)} cases, {len(failing)} not exact, {n_rows:,} logit rows compared in {seconds:.1f} s.</p>"
        f"<table><tr><th>suite<th>rows<th>cases</tr>{rows}</table>{''.join(map(_story, failing))}</html>\n"
    )


def _matrix_row(suite: str, findings: Sequence) -> str:
    cells = "".join(f'<span class="cell {f.verdict}" title="{f.verdict}, {f.seconds:.1f} s">{escape(f.case)}</span>' for f in findings)
    return f"<tr><td>{escape(suite)}<td>{sum(f.n_rows for f in findings):,}<td>{cells}</tr>"


def _story(finding) -> str:
    parts = [finding.summary, finding.detail, f"computed in {finding.source}" if finding.source else "", finding.command]
    text = "\n".join(part for part in parts if part)
    return f'<h2>{escape(finding.suite)} {escape(finding.case)}: <span class="cell {finding.verdict}">{finding.verdict}</span></h2><pre>{escape(text)}</pre>'
