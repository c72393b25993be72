"""Findings as SARIF 2.1.0, shown by code hosts beside the lines of a change.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0. Code hosts accept
one run of at most 25,000 results, and show 5,000 of them.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from answers.manifests.check import CheckedFinding, CheckReport
from findings.documentation import code_address, codes_address
from findings.finding import Code, Severity
from findings.text import printable, reference_text
from kube.names import DOCUMENTATION, NAME
from rules.engine.registry import RULES

VERSION: Final = "2.1.0"
SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
"""The JSON Schema of the format, by which editors and code hosts recognise it."""
MAX_RESULTS: Final = 25_000
_LEVELS: Final[Mapping[Severity, str]] = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "note",
}
_CURES: Final[Mapping[Code, str]] = {rule.code: rule.fix for rule in reversed(RULES)}


def log(report: CheckReport, version: str, documentation: str = DOCUMENTATION) -> Mapping[str, Any]:
    """Return the log of the findings that are to be shown.

    Args:
        version: Drawbridge's version.
        documentation: The address of the site; without one, the log has no link to it.
    """
    codes = list(dict.fromkeys(entry.finding.code for entry in report.shown))
    return {
        "$schema": SCHEMA,
        "version": VERSION,
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": NAME,
                        "semanticVersion": version,
                        **({"informationUri": documentation} if documentation else {}),
                        "rules": [dict(_rule(code, version, documentation)) for code in codes],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [
                    _result(entry, codes.index(entry.finding.code))
                    for entry in report.shown[:MAX_RESULTS]
                ],
            }
        ],
    }


def _rule(code: Code, version: str, documentation: str) -> Iterator[tuple[str, Any]]:
    yield "id", code.value
    if documentation:
        yield "helpUri", code_address(codes_address(documentation, version), code)
    if code in _CURES:
        yield "help", {"text": _CURES[code]}


def _result(entry: CheckedFinding, index: int) -> Mapping[str, Any]:
    finding = entry.finding
    name = reference_text(entry.object)
    place = name if finding.path.is_root else f"{name}: {finding.path}"
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": printable(place)}]}
    if entry.file is not None:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": uri(entry.file)},
            "region": {"startLine": max(1, entry.line)},
        }
    return {
        "ruleId": finding.code.value,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": printable(f"{place}: {finding.advice}")},
        "locations": [location],
        "partialFingerprints": {"objectAndPath/v1": _fingerprint(entry)},
    }


def uri(source: str) -> str:
    """Return a file name as a URI, relative if the name is.

    >>> uri("manifests/a b.yaml"), uri("/etc/a.yaml"), uri("<stdin>")
    ('manifests/a%20b.yaml', 'file:///etc/a.yaml', '%3Cstdin%3E')
    """
    uri = quote(source, errors="surrogateescape")
    return f"file://{uri}" if source.startswith("/") else uri


def _fingerprint(entry: CheckedFinding) -> str:
    """Return a hash that does not depend on lines."""
    text = f"{entry.object}\n{entry.finding.code}\n{entry.finding.path}"
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
