"""Findings as JUnit XML, shown by CI servers as tests: one per object.

Source: the Ant task `junitreport`; no standard exists, and readers take the first `failure` of a test.
"""

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree as ET

from answers.manifests.check import CheckedFinding, CheckReport
from findings.finding import Severity
from findings.text import printable, reference_text
from kube.names import NAME

_CLUSTER = "state of the cluster"


def test_suite(report: CheckReport, fails_on: Severity) -> str:
    """Return a test per object; it fails for findings of a severity or of a worse one.

    Args:
        fails_on: The least severity that is a failure; others are output of the test.
    """
    severities = list(Severity)
    failing = severities[: severities.index(fails_on) + 1]
    by_object: dict[tuple[str | None, str], list[CheckedFinding]] = {
        place: [] for place in report.places
    }
    for entry in report.shown:
        by_object.setdefault((entry.file, entry.object), []).append(entry)
    suite = ET.Element("testsuite", {"name": f"{NAME} check"})
    failures = 0
    for (file, name), entries in by_object.items():
        bad = [entry for entry in entries if entry.finding.severity in failing]
        failures += bool(bad)
        _add_test(suite, file, name, bad, [entry for entry in entries if entry not in bad])
    suite.set("tests", str(len(by_object)))
    suite.set("failures", str(failures))
    suite.set("errors", "0")
    ET.indent(suite)
    text = ET.tostring(suite, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'


def _add_test(
    suite: ET.Element,
    file: str | None,
    name: str,
    failures: Sequence[CheckedFinding],
    others: Sequence[CheckedFinding],
) -> None:
    classname = printable(_CLUSTER if file is None else file)
    attributes = {"classname": classname, "name": printable(reference_text(name))}
    if file is not None:
        attributes["file"] = classname
    test = ET.SubElement(suite, "testcase", attributes)
    if failures:
        first = failures[0].finding
        head = {"type": first.code.value, "message": printable(first.message)}
        ET.SubElement(test, "failure", head).text = _text(failures)
    if others:
        ET.SubElement(test, "system-out").text = _text(others)


def _text(entries: Iterable[CheckedFinding]) -> str:
    return "\n".join(
        (f"{printable(entry.file)}:{entry.line}: " if entry.file is not None else "")
        + entry.described.line()
        for entry in entries
    )
