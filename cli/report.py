"""Findings about objects: whose they are, as JSON and as one line each."""

from collections.abc import Iterable
from typing import Any

import msgspec

from cli.reading import CLUSTER_SCOPED
from kube.files import SourceObject, ViewedObject
from webhook.findings import Finding

DEFAULT_NAMESPACE = "default"


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """A finding, and the object that it is about, as `Kind/namespace/name`."""

    object: str
    finding: Finding

    def document(self) -> dict[str, Any]:
        """Return it as `-o json` prints it."""
        return {
            "severity": self.finding.severity.value,
            "code": self.finding.code.value,
            "message": self.finding.message,
            "fix": self.finding.fix,
            "object": self.object,
            "path": self.finding.path,
        }

    def line(self) -> str:
        """Return it as one line for people; nothing in it moves a terminal's cursor."""
        finding = self.finding
        fix = f"; {finding.fix}" if finding.fix else ""
        place = f"{finding.path}: " if finding.path else ""
        # What has no namespace is `Kind/name` to people; scripts get three parts always.
        whose = self.object.replace("//", "/", 1)
        text = f"{finding.severity}: {whose}: {place}{finding.message}{fix} [{finding.code}]"
        return printable(text)


def printable(text: str) -> str:
    r"""Return text on one line without control characters.

    >>> printable("a\x1b[2J\nb")
    'a\\x1b[2J\\nb'
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def namespace_of(found: SourceObject | ViewedObject, default: str) -> str:
    """Return where the object goes; empty for a kind that has no namespace."""
    if found.kind in CLUSTER_SCOPED:
        return ""
    return found.namespace or default


def reference(found: SourceObject | ViewedObject, default: str) -> str:
    """Return `Kind/namespace/name`; generateName stands as it is written."""
    return f"{found.kind}/{namespace_of(found, default)}/{found.name}"


def has_errors(reported: Iterable[Reported]) -> bool:
    """Whether any object is refused."""
    return any(one.finding.is_error for one in reported)
