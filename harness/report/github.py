"""GitHub: an annotation per case that is not exact on stdout, and a step summary where GITHUB_STEP_SUMMARY names a file.

Source: the workflow commands' format (`::error title=..::message`, with %, CR and LF escaped).
"""

import os
from collections.abc import Sequence

from harness.verdicts import EXACT

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


def write_github(title: str, findings: Sequence) -> None:
    """Print the annotations, and append the summary."""
    for finding in findings:
        if finding.verdict != EXACT:
            print(annotation(finding))
    path = os.environ.get(SUMMARY_VARIABLE)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(summary(title, findings))


def annotation(finding) -> str:
    """Return one workflow command; it points at the file that computes the operation where that is known."""
    place = f"file={_property(finding.source.partition(':')[0])}," if finding.source else ""
    text = finding.summary + (f"\n{finding.detail}" if finding.detail else "")
    return f"::error {place}title={_property(f'{finding.suite} {finding.case}: {finding.verdict}')}::{_data(text)}"


def summary(title: str, findings: Sequence) -> str:
    """Return the step summary in Markdown."""
    failing = [finding for finding in findings if finding.verdict != EXACT]
    n_rows = sum(finding.n_rows for finding in findings)
    lines = [f"### {title}: {'exact' if not failing else f'{len(failing)} of {len(findings)} cases are not exact'}", ""]
    lines += [f"{len(findings)} cases, {n_rows:,} logit rows compared.", ""]
    for finding in failing:
        lines.append(f"- **{finding.suite} {finding.case}** ({finding.verdict}): {finding.summary}")
        lines += [f"  - computed in `{finding.source}`"] if finding.source else []
        lines += [f"  - repeat: `{finding.command}`"] if finding.command else []
    return "\n".join(lines) + "\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
