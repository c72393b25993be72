"""Findings as workflow commands of GitHub Actions, shown there beside the lines of a change.

Source: docs.github.com, workflow commands for GitHub Actions; actions/toolkit, packages/core, command.ts
for what has to be escaped.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from answers.manifests.check import CheckedFinding, CheckReport
from findings.finding import Severity
from findings.text import printable, reference_text

_COMMANDS: Final[Mapping[Severity, str]] = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "notice",
}


def commands(report: CheckReport) -> Iterator[str]:
    """Yield a command for each finding that is to be shown."""
    return map(_command, report.shown)


def _command(entry: CheckedFinding) -> str:
    finding = entry.finding
    properties = {"title": finding.code.value}
    if entry.file is not None:
        properties |= {"file": entry.file, "line": str(max(1, entry.line))}
    text = ",".join(f"{name}={_escape_property(value)}" for name, value in properties.items())
    place = reference_text(entry.object)
    path = "" if finding.path.is_root else f" {finding.path}"
    message = _escape(f"{place}{path}: {finding.advice}")
    return f"::{_COMMANDS[finding.severity]} {text}::{message}"


def _escape(text: str) -> str:
    return printable(text).replace("%", "%25")


def _escape_property(text: str) -> str:
    """Return a value that ends no property.

    >>> _escape_property("a:b,c%")
    'a%3Ab%2Cc%25'
    """
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
