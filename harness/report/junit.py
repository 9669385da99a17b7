"""JUnit XML: one test suite per suite, one test case per case; vacuous and error are errors, differs is a failure."""

from collections.abc import Sequence
from xml.etree import ElementTree as xml

from harness.verdicts import DIFFERS, EXACT
from strata.errors import UsageError


def write_junit(path: str, title: str, findings: Sequence) -> None:
    """Write the file; raises UsageError where that fails."""
    root = xml.Element("testsuites", name=title, **_counts(findings))
    for suite in dict.fromkeys(finding.suite for finding in findings):
        own = [finding for finding in findings if finding.suite == suite]
        node = xml.SubElement(root, "testsuite", name=suite, **_counts(own))
        for finding in own:
            _case(node, finding)
    try:
        xml.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise UsageError(f"junit-xml={path}", error.strerror or "it cannot be written", "name another file") from None


def _counts(findings: Sequence) -> dict[str, str]:
    failures = sum(finding.verdict == DIFFERS for finding in findings)
    errors = sum(finding.verdict not in (EXACT, DIFFERS) for finding in findings)
    seconds = sum(finding.seconds for finding in findings)
    return {"tests": str(len(findings)), "failures": str(failures), "errors": str(errors), "time": f"{seconds:.3f}"}


def _case(node: xml.Element, finding) -> None:
    case = xml.SubElement(node, "testcase", classname=finding.suite, name=finding.case, time=f"{finding.seconds:.3f}")
    if finding.verdict == EXACT:
        return
    kind = "failure" if finding.verdict == DIFFERS else "error"
    child = xml.SubElement(case, kind, type=finding.verdict, message=finding.summary)
    child.text = "\n".join(part for part in (finding.detail, f"repeat: {finding.command}" if finding.command else "") if part)
