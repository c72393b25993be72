"""Which pods are to be told why they wait, when, and in which words: the observer's decisions.

A pod deserves an answer while the scheduler finds no place for it (its condition says so), or while
something that it names is missing. It is told once, again when what is in the way has changed, and
rarely when only numbers have, or nothing has. Nobody else's clock, network or log is here.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec

from allocator.pod_claims import Name
from allocator.waiting import MAX_NOTE, Answer
from kube.api.core import Container, Node, NodeSpec, NodeStatus, Pod
from kube.api.meta import ObjectMeta, decode
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClaimTemplate,
    ResourceSlice,
)
from kube.api.url import Resource
from kube.product import NAME
from webhook.picture import Kind
from webhook.resources import (
    DEVICE_CLASSES,
    DEVICE_COMPATIBILITY_POLICIES,
    DEVICE_TAINT_RULES,
    NODES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from webhook.settings import ObserveSettings

REASON: Final = "DevicesMissing"
"""Of the events."""

WAITING_FIELDS: Final = "spec.nodeName=,status.phase=Pending"
"""Selects the pods that have no node; the API server sends no others."""

_UNSCHEDULABLE: Final = frozenset({"Unschedulable", "SchedulerError"})
"""The second where an attempt ended with an error, such as a selector that fails."""

_MAX_NAME: Final = 253
_MAX_EVENTS: Final = 16
"""Of one pod that are remembered."""


# --- what is kept of an object --------------------------------------------------------------------


def kept_pod(raw: bytes) -> Pod | None:
    """Return a pod that may wait for devices; None for all others."""
    pod = decode(raw, Pod)
    metadata = pod.metadata
    if pod.spec.node_name or metadata.deletion_timestamp is not None:
        return None
    if not pod.spec.resource_claims and not any(map(_asks_extended, _containers(pod))):
        return None
    head = ObjectMeta(name=metadata.name, namespace=metadata.namespace, uid=metadata.uid)
    return msgspec.structs.replace(pod, metadata=head)


def kept_node(raw: bytes) -> Node:
    """Return of a node what decides which pods and devices it takes; not its heartbeats."""
    node = decode(raw, Node)
    return Node(
        metadata=ObjectMeta(name=node.metadata.name, labels=node.metadata.labels),
        spec=NodeSpec(taints=node.spec.taints, unschedulable=node.spec.unschedulable),
        status=NodeStatus(
            allocatable=node.status.allocatable, declared_features=node.status.declared_features
        ),
    )


def kept_claim(raw: bytes) -> ResourceClaim:
    """Return of an allocated claim what it holds, of another what it asks for."""
    claim = decode(raw, ResourceClaim)
    metadata = ObjectMeta(
        name=claim.metadata.name,
        namespace=claim.metadata.namespace,
        uid=claim.metadata.uid,
        owner_references=claim.metadata.owner_references,
    )
    allocation = claim.status.allocation if claim.status is not None else None
    if allocation is None:
        return ResourceClaim(metadata=metadata, spec=claim.spec)
    held = AllocationResult(
        devices=DeviceAllocationResult(results=allocation.devices.results),
        node_selector=allocation.node_selector,
    )
    return ResourceClaim(metadata=metadata, status=ResourceClaimStatus(allocation=held))


def kept_template(raw: bytes) -> ResourceClaimTemplate:
    """Return what a template says of the claims that are made of it."""
    template = decode(raw, ResourceClaimTemplate)
    return ResourceClaimTemplate(metadata=_name_of(template.metadata), spec=template.spec)


def kept_slice(raw: bytes) -> ResourceSlice:
    """Return what a slice publishes."""
    found = decode(raw, ResourceSlice)
    return ResourceSlice(metadata=_name_of(found.metadata), spec=found.spec)


def kept_class(raw: bytes) -> DeviceClass:
    """Return what a class selects; its age decides between two of one extended resource."""
    found = decode(raw, DeviceClass)
    metadata = ObjectMeta(
        name=found.metadata.name, creation_timestamp=found.metadata.creation_timestamp
    )
    return DeviceClass(metadata=metadata, spec=found.spec)


def kept_taint_rule(raw: bytes) -> DeviceTaintRule:
    """Return which taint a rule adds to which devices."""
    found = decode(raw, DeviceTaintRule)
    return DeviceTaintRule(metadata=_name_of(found.metadata), spec=found.spec)


def kept_policy(raw: bytes) -> DeviceCompatibilityPolicy:
    """Return a policy without its status."""
    found = decode(raw, DeviceCompatibilityPolicy)
    metadata = ObjectMeta(
        name=found.metadata.name, creation_timestamp=found.metadata.creation_timestamp
    )
    return DeviceCompatibilityPolicy(metadata=metadata, spec=found.spec)


FOLLOWED: Final[Mapping[Kind, Resource]] = {
    Kind.NODE: NODES,
    Kind.CLAIM: RESOURCE_CLAIMS,
    Kind.TEMPLATE: RESOURCE_CLAIM_TEMPLATES,
    Kind.SLICE: RESOURCE_SLICES,
    Kind.CLASS: DEVICE_CLASSES,
    Kind.TAINT_RULE: DEVICE_TAINT_RULES,
    Kind.POLICY: DEVICE_COMPATIBILITY_POLICIES,
}
"""Kind to what URLs call it."""
KEEP: Final[Mapping[Kind, Any]] = {
    Kind.NODE: kept_node,
    Kind.CLAIM: kept_claim,
    Kind.TEMPLATE: kept_template,
    Kind.SLICE: kept_slice,
    Kind.CLASS: kept_class,
    Kind.TAINT_RULE: kept_taint_rule,
    Kind.POLICY: kept_policy,
}
"""Kind to a function from an object's JSON to what is kept of it."""


def _name_of(metadata: ObjectMeta) -> ObjectMeta:
    return ObjectMeta(name=metadata.name, namespace=metadata.namespace)


def _containers(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.init_containers or ()
    yield from pod.spec.containers or ()


def _asks_extended(container: Container) -> bool:
    """Return whether a container asks for what only a class or a device plugin can give."""
    return any("/" in name for name in (*container.requests, *container.limits))


# --- which pods -----------------------------------------------------------------------------------


def is_unschedulable(pod: Pod) -> bool:
    """Return whether the scheduler has looked for a place, and found none, or could not look."""
    return any(
        one.type == "PodScheduled" and one.status == "False" and one.reason in _UNSCHEDULABLE
        for one in (pod.status.conditions if pod.status is not None else None) or ()
    )


def is_gated(pod: Pod) -> bool:
    """Return whether somebody holds the pod back from the scheduler."""
    return any(
        one.type == "PodScheduled" and one.reason == "SchedulingGated"
        for one in (pod.status.conditions if pod.status is not None else None) or ()
    )


# --- who was told what ----------------------------------------------------------------------------


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """One event to be sent.

    Attributes:
        pod: Namespace and name.
        event: Name of the Event.
        is_first: Nothing was told by this process; an Event of this name says that it was by the one
            before.
        repeats: How often this very answer was given before.
    """

    pod: Name
    uid: str
    note: str
    event: str
    is_first: bool
    repeats: int = 0


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What an event says, and how often it was told."""

    note: str
    times: int = 0


class _Entry:
    """What is known of one waiting pod.

    Attributes:
        is_new: It was not looked at yet.
        looked_version: Of the picture that it was last seen against.
        look_at_s: When it is looked at at the latest, whatever changes; infinite for never.
        answer: That it was told; None when none was needed so far.
        changes: How many answers it was told, each unlike the one before.
        events: Name of an event to what it says, of the latest ones.
    """

    def __init__(self, pod: Pod, now_s: float) -> None:
        self.pod = pod
        self.since_s = now_s
        self.is_new = True
        self.looked_s = float("-inf")
        self.looked_version = -1
        self.look_at_s = float("inf")
        self.answer: Answer | None = None
        self.reasons: tuple[str, ...] = ()
        self.changes = 0
        self.told_s = float("-inf")
        self.events: dict[str, _Told] = {}


class Ledger:
    """Pods that wait, what they were told, and when to look at them again.

    Attributes:
        suppressed: How many answers were not sent, since they said nothing new or came too soon.
    """

    def __init__(self, settings: ObserveSettings) -> None:
        self.suppressed = 0
        self._settings = settings
        self._pause = settings.telling()
        self._entries: dict[Name, _Entry] = {}

    def __len__(self) -> int:
        """Return how many pods wait."""
        return len(self._entries)

    def pod(self, name: Name) -> Pod | None:
        """Return a waiting pod; None when it does not wait any more."""
        entry = self._entries.get(name)
        return entry.pod if entry is not None else None

    def is_new(self, name: Name) -> bool:
        """Return whether a pod waits that was never looked at."""
        entry = self._entries.get(name)
        return entry is not None and entry.is_new

    def replace(self, name: Name, pod: Pod | None, now_s: float) -> None:
        """Take notice of a pod that came, changed or went."""
        known = self._entries.get(name)
        if pod is None or is_gated(pod):
            self._entries.pop(name, None)
        elif known is None or known.pod.metadata.uid != pod.metadata.uid:
            self._entries[name] = _Entry(pod, now_s)
        else:
            if is_unschedulable(pod) != is_unschedulable(known.pod):
                known.looked_version, known.looked_s = -1, float("-inf")
            known.pod = pod

    def due(self, version: int, now_s: float) -> list[Name]:
        """Return the pods to look at, those first that were not looked at for longest."""
        found = [
            (entry.looked_s, name)
            for name, entry in self._entries.items()
            if self._due_at(entry, version) <= now_s
        ]
        return [name for _, name in sorted(found)]

    def next_s(self, version: int) -> float:
        """Return when the next pod is due; infinite when none will be as things stand."""
        due = (self._due_at(entry, version) for entry in self._entries.values())
        return min(due, default=float("inf"))

    def _due_at(self, entry: _Entry, version: int) -> float:
        settled = entry.since_s + self._settings.settle_seconds
        if entry.looked_version == version:
            return max(settled, entry.look_at_s)
        again = entry.looked_s + self._settings.look_again_seconds
        return max(settled, again)

    def looked(
        self, name: Name, answer: Answer | None, version: int, now_s: float
    ) -> Telling | None:
        """Note what a look brought, and return what the pod is to be told, if anything.

        Args:
            answer: None when the pod waits for no devices.
            version: Of the picture.
        """
        entry = self._entries.get(name)
        if entry is None:
            return None
        entry.looked_s, entry.looked_version, entry.look_at_s = now_s, version, float("inf")
        entry.is_new = False
        entry.reasons = answer.reasons if answer is not None else ()
        if answer is None:
            return None
        pause_s = self._pause_s(entry, answer)
        if now_s < entry.told_s + pause_s:
            self.suppressed += 1
            entry.look_at_s = entry.told_s + pause_s
            return None
        entry.look_at_s = now_s + self._settings.remind_seconds
        return self._telling(entry, answer, now_s)

    def _pause_s(self, entry: _Entry, answer: Answer) -> float:
        """Return how long after it was last told something a pod is told an answer."""
        told = entry.answer
        if told is None:
            return 0.0
        if told.note == answer.note:
            return self._settings.remind_seconds
        pause_s = self._pause.pause_s(max(entry.changes, 1))
        return max(pause_s, self._settings.numbers_seconds) if told.kind == answer.kind else pause_s

    def failed(self, name: Name) -> None:
        """Note that a pod could not be told after all: it is, with its next answer."""
        entry = self._entries.get(name)
        if entry is not None:
            entry.answer, entry.looked_version = None, -1
            entry.events.clear()

    def reasons(self) -> Mapping[str, int]:
        """Return how many pods meet each reason."""
        counts: dict[str, int] = {}
        for entry in self._entries.values():
            for reason in entry.reasons:
                counts[reason] = counts.get(reason, 0) + 1
        return counts

    def _telling(self, entry: _Entry, answer: Answer, now_s: float) -> Telling:
        metadata = entry.pod.metadata
        # Numbers are left out of the name, so that a restart finds the event again.
        event = _event_name(metadata, answer.kind)
        if entry.events.get(event, _Told(note=answer.note)).note != answer.note:
            event = _event_name(metadata, f"{answer.kind}{answer.note}")
        known = entry.events.pop(event, None)
        repeats = known.times if known is not None else 0
        if len(entry.events) >= _MAX_EVENTS:
            del entry.events[next(iter(entry.events))]
        entry.events[event] = _Told(note=answer.note, times=repeats + 1)
        is_first = entry.changes == 0
        entry.changes += entry.answer is None or entry.answer.note != answer.note
        entry.answer, entry.told_s = answer, now_s
        return Telling(
            pod=(metadata.namespace, metadata.name),
            uid=metadata.uid,
            note=answer.note,
            event=event,
            is_first=is_first,
            repeats=repeats,
        )


def _event_name(pod: ObjectMeta, told: str) -> str:
    digest = sha256(f"{pod.uid}{told}".encode()).hexdigest()[:16]
    return f"{pod.name[: _MAX_NAME - 17]}.{digest}"


def event_of(telling: Telling, *, instance: str, time: str) -> Mapping[str, Any]:
    """Return the Event that tells a pod, within the API's limits.

    Args:
        instance: Which process tells it.
        time: An RFC 3339 time with microseconds.
    """
    namespace, name = telling.pod
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": telling.event, "namespace": namespace},
        "eventTime": time,
        "type": "Warning",
        "reason": REASON,
        "action": "Observe",
        "note": telling.note.encode()[:MAX_NOTE].decode(errors="ignore"),
        "reportingController": f"{NAME}.observer",
        "reportingInstance": instance[:128],
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": namespace,
            "name": name,
            "uid": telling.uid,
        },
    }


def repetition_of(telling: Telling, *, time: str) -> Mapping[str, Any]:
    """Return the merge patch that says an Event has happened again."""
    return {"series": {"count": max(2, telling.repeats + 1), "lastObservedTime": time}}
