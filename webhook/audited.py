"""What the audit finds of stored objects, and the events that tell it. Pure.

Whatever was admitted before a rule existed, or while the webhook was away, stays as it is; here it is
told. Only what would be denied is told beside the object; the rest is counted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec

from allocator.pod_claims import allocation_of
from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.resource import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from kube.product import NAME
from webhook.findings import Finding
from webhook.picture import Kind
from webhook.rules.context import Context
from webhook.rules.judge import Judged, judge

AUDITED: Final[Mapping[Kind, str]] = {
    Kind.CLASS: "DeviceClass",
    Kind.SLICE: "ResourceSlice",
    Kind.TEMPLATE: "ResourceClaimTemplate",
    Kind.CLAIM: "ResourceClaim",
}
"""What is looked at. DeviceCompatibilityPolicies say it in their conditions."""
API_VERSION: Final = "resource.k8s.io/v1"
ACTION: Final = "Audit"
MAX_NOTE_BYTES: Final = 1024
"""Of an event (API limit)."""
MAX_NAME: Final = 253

Audited = DeviceClass | ResourceSlice | ResourceClaimTemplate | ResourceClaim


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at all objects found.

    Attributes:
        objects: Kind to how many were looked at.
        findings: Kind, severity and code to how often.
    """

    objects: Mapping[str, int]
    findings: Mapping[tuple[str, str, str], int]


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be told beside one object.

    Attributes:
        findings: That would deny it, at least one.
    """

    kind: str
    metadata: ObjectMeta
    findings: tuple[Finding, ...]

    @property
    def digest(self) -> str:
        """Equal as long as the same is told; numbers in messages come and go."""
        told = [self.metadata.uid, *sorted(f"{one.code} {one.path}" for one in self.findings)]
        return sha256("\n".join(told).encode()).hexdigest()[:16]


def findings_of(found: Audited, context: Context) -> tuple[Finding, ...]:
    """Return what rules say of a stored object; nothing where it has its devices."""
    if isinstance(found, ResourceClaim) and allocation_of(found) is not None:
        return ()
    metadata = found.metadata
    judged = Judged(view=found, metadata=metadata, namespace=metadata.namespace)
    return judge(judged, context)


def told_of(kind: str, found: ApiStruct, findings: Iterable[Finding]) -> Told | None:
    """Return what to tell beside an object; None where nothing would deny it."""
    errors = tuple(each for each in findings if each.is_error)
    metadata: ObjectMeta = getattr(found, "metadata", ObjectMeta())
    return Told(kind=kind, metadata=metadata, findings=errors) if errors else None


def tally(found: Iterable[tuple[str, tuple[Finding, ...]]]) -> Tally:
    """Return what was found of objects.

    Args:
        found: Kind and findings of each object.
    """
    objects: Counter[str] = Counter()
    findings: Counter[tuple[str, str, str]] = Counter()
    for kind, each in found:
        objects[kind] += 1
        findings.update((kind, one.severity.value, one.code.value) for one in each)
    return Tally(objects=objects, findings=findings)


def event_of(told: Told, *, instance: str, time: str) -> Mapping[str, Any]:
    """Return the Event that tells it, within the API's limits.

    Args:
        instance: Which process tells it.
        time: An RFC 3339 time with microseconds.
    """
    metadata = told.metadata
    about = {"namespace": metadata.namespace} if metadata.namespace else {}
    first = told.findings[0].code.value
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        # Of what is in no namespace, events are in this one.
        "metadata": {
            # It derives from what is told, so that a restart does not tell it twice.
            "name": f"{metadata.name[: MAX_NAME - 17]}.{told.digest}",
            "namespace": metadata.namespace or "default",
        },
        "eventTime": time,
        "type": "Warning",
        "reason": first[0].upper() + first[1:],
        "action": ACTION,
        "note": _note(told.findings),
        "reportingController": f"{NAME}.controller",
        "reportingInstance": instance[:128],
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": told.kind,
            **about,
            "name": metadata.name,
            "uid": metadata.uid,
        },
    }


def _note(findings: tuple[Finding, ...]) -> str:
    said = (
        "; ".join(filter(None, (f"{each.path}: {each.message}", each.fix))) for each in findings
    )
    return ". ".join(said).encode()[:MAX_NOTE_BYTES].decode(errors="ignore")
