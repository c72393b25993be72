"""Results of suites as JUnit XML, for CI servers.

Source: the Ant task `junitreport`; no standard exists.
"""

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from cli.verbs.test.answer import CaseResult
from findings.text import printable


def test_suites(results: Sequence[CaseResult]) -> str:
    """Return a suite per file and name, in order."""
    by_suite: dict[tuple[str, str], list[CaseResult]] = {}
    for result in results:
        by_suite.setdefault((result.file, result.suite), []).append(result)
    root = ET.Element("testsuites")
    for (file, name), members in by_suite.items():
        suite = ET.SubElement(root, "testsuite", {"name": printable(name)})
        suite.set("tests", str(len(members)))
        suite.set("failures", str(sum(bool(member.failures) for member in members)))
        suite.set("errors", str(sum(bool(member.error) for member in members)))
        for member in members:
            attributes = {"classname": printable(file), "name": printable(member.test)}
            test = ET.SubElement(suite, "testcase", attributes)
            if member.failures:
                head = {"message": printable(member.failures[0])}
                text = "\n".join(map(printable, member.failures))
                ET.SubElement(test, "failure", head).text = text
            if member.error:
                head = {"message": printable(member.error)}
                ET.SubElement(test, "error", head).text = printable(member.error)
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'
