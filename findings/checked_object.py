"""One object as its file has it, and its findings."""

import msgspec

from findings.finding import Finding
from kube.manifests.source import SourceObject


class CheckedObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object and its findings.

    Attributes:
        reference: `Kind/namespace/name`; empty where nobody prints it.
        findings: The findings with paths from the root of the object, errors first.
    """

    source: SourceObject
    reference: str
    findings: tuple[Finding, ...] = ()
