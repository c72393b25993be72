"""Findings as SARIF 2.1.0, which code hosts show beside the lines of a change.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0. What code hosts
take is less: one run, at most 25,000 results of which 5,000 are shown.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from cli.checked import Checked
from cli.report import Reported, printable
from kube.product import NAME
from webhook.findings import Code, Severity
from webhook.rules.table import RULES

VERSION: Final = "2.1.0"
SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
"""Of the format; editors and code hosts want to be told."""
MAX_RESULTS: Final = 25_000
_LEVELS: Final[Mapping[Severity, str]] = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "note",
}
_CURES: Final[Mapping[Code, str]] = {rule.code: rule.cure for rule in reversed(RULES)}


def log(results: Sequence[Checked], faults: Sequence[Reported], version: str) -> Mapping[str, Any]:
    """Return the whole answer.

    Args:
        faults: What is wrong with the state of the cluster; it has no line.
        version: Ours.
    """
    told: list[tuple[Reported, Checked | None]] = [(each, None) for each in faults]
    told += [
        (Reported(object=result.reference, finding=finding), result)
        for result in results
        for finding in result.findings
    ]
    codes = list(dict.fromkeys(one.finding.code for one, _ in told))
    return {
        "$schema": SCHEMA,
        "version": VERSION,
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": NAME,
                        "semanticVersion": version,
                        "rules": [dict(_rule(code)) for code in codes],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [
                    _result(one, result, codes.index(one.finding.code))
                    for one, result in told[:MAX_RESULTS]
                ],
            }
        ],
    }


def _rule(code: Code) -> Iterator[tuple[str, Any]]:
    yield "id", code.value
    if code in _CURES:
        yield "help", {"text": _CURES[code]}


def _result(one: Reported, result: Checked | None, index: int) -> Mapping[str, Any]:
    finding = one.finding
    advice = f"{finding.message}; {finding.fix}" if finding.fix else finding.message
    place = f"{one.object}: {finding.path}" if finding.path else one.object
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": printable(place)}]}
    if result is not None:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": uri(result.source.source)},
            "region": {"startLine": max(1, result.source.line)},
        }
    return {
        "ruleId": finding.code.value,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": printable(f"{place}: {advice}")},
        "locations": [location],
        "partialFingerprints": {"objectAndPath/v1": _fingerprint(one)},
    }


def uri(source: str) -> str:
    """Return a file's name as a URI, relative where the name is.

    >>> uri("manifests/a b.yaml"), uri("/etc/a.yaml"), uri("<stdin>")
    ('manifests/a%20b.yaml', 'file:///etc/a.yaml', '%3Cstdin%3E')
    """
    escaped = quote(source, errors="surrogateescape")
    return f"file://{escaped}" if source.startswith("/") else escaped


def _fingerprint(one: Reported) -> str:
    """Return what stays the same while lines move."""
    text = f"{one.object}\n{one.finding.code}\n{one.finding.path}"
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
