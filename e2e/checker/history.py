"""The history that an API server showed, as JSON lines, and the state of a cluster at any moment of it.

A line is `{"at": seconds, "kind": plural, "type": LISTED|ADDED|MODIFIED|DELETED, "object": {...}}`. What
was there before the record has the type LISTED. Seconds only have to be of one clock.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

Object = Mapping[str, Any]

LISTED: Final = "LISTED"
DELETED: Final = "DELETED"
KINDS: Final = (
    "nodes",
    "namespaces",
    "resourcequotas",
    "devicequotas",
    "deployments",
    "replicasets",
    "statefulsets",
    "daemonsets",
    "jobs",
    "resourceslices",
    "resourceclaims",
    "resourceclaimtemplates",
    "pods",
)
"""The kinds that the checker reads; a pod comes after its owner and its claims."""
FINISHED: Final = ("Succeeded", "Failed")
QUOTA_GATE: Final = "drawbridge.internal/quota"
"""The scheduling gate of pods that wait for a DeviceQuota."""
_SUFFIXES: Final = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}


class Event(NamedTuple):
    """One line of a history."""

    at: float
    kind: str
    type: str
    object: Object


class State:
    """The objects of a cluster, by kind and uid."""

    def __init__(self) -> None:
        self._objects: defaultdict[str, dict[str, Object]] = defaultdict(dict)

    def apply(self, event: Event) -> Object | None:
        """Take an event in; return the object as it was before."""
        uid = uid_of(event.object)
        before = self._objects[event.kind].pop(uid, None)
        if event.type != DELETED:
            self._objects[event.kind][uid] = event.object
        return before

    def objects(self, kind: str) -> Iterable[Object]:
        """Return the objects of a kind."""
        return self._objects[kind].values()

    def find(self, kind: str, uid: str) -> Object | None:
        """Return an object by its uid."""
        return self._objects[kind].get(uid)

    def named(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return an object by its name."""
        for entry in self.objects(kind):
            if name == name_of(entry) and namespace == namespace_of(entry):
                return entry
        return None


def read_history(lines: Iterable[str]) -> list[Event]:
    """Return the events of JSON lines: the objects listed first, then everything by its version.

    Raises:
        ValueError: A line is not such an event; the message has its number.
    """
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            fields = json.loads(line)
            event = Event(fields["at"], fields["kind"], fields["type"], fields["object"])
            _version(event)
        except (KeyError, TypeError, ValueError) as error:
            message = (
                f"line {number} is {line[:60]!r}: {error!r}; an event has at, kind, type, object"
            )
            raise ValueError(message) from error
        events.append(event)
    return in_order(events)


def in_order(events: Iterable[Event]) -> list[Event]:
    """Return events in order of time.

    All kinds are in one etcd, so resourceVersions are one order; the moments at which watches of
    different kinds deliver are not.
    """
    return sorted(events, key=lambda event: (event.type != LISTED, *_place(event)))


def _place(event: Event) -> tuple[int, int]:
    if event.type == LISTED:
        return KINDS.index(event.kind) if event.kind in KINDS else len(KINDS), 0
    return _version(event), 0


def _version(event: Event) -> int:
    return int(event.object["metadata"]["resourceVersion"])


def is_new(event: Event, before: Object | None) -> bool:
    """Return True if an event is the first about its object."""
    return before is None and event.type != DELETED


# --- parts of objects -----------------------------------------------------------------------------


def name_of(entry: Object) -> str:
    """Return the name of an object."""
    return str(entry["metadata"]["name"])


def namespace_of(entry: Object) -> str:
    """Return the namespace of an object; empty for cluster-scoped ones."""
    return str(entry["metadata"].get("namespace", ""))


def uid_of(entry: Object) -> str:
    """Return the uid of an object."""
    return str(entry["metadata"]["uid"])


def label_of(entry: Object) -> str:
    """Return `namespace/name`, or the name of a cluster-scoped object."""
    return "/".join(filter(None, (namespace_of(entry), name_of(entry))))


def is_leaving(entry: Object) -> bool:
    """Return True if an object is being deleted."""
    return "deletionTimestamp" in entry["metadata"]


def phase_of(pod: Object) -> str:
    """Return the phase of a pod."""
    return str(pod.get("status", {}).get("phase", ""))


def node_of(pod: Object) -> str:
    """Return the node of a pod; empty while it has none."""
    return str(pod["spec"].get("nodeName", ""))


def is_gated(pod: Object) -> bool:
    """Return True if a pod waits for a DeviceQuota."""
    return {"name": QUOTA_GATE} in pod["spec"].get("schedulingGates", ())


def controller_of(entry: Object) -> Object | None:
    """Return the reference to the owner that controls an object."""
    references: Iterator[Object] = iter(entry["metadata"].get("ownerReferences", ()))
    return next((reference for reference in references if reference.get("controller")), None)


def has_condition(entry: Object, kind: str) -> bool:
    """Return True if a condition of an object is true."""
    return any(
        condition["type"] == kind and condition["status"] == "True"
        for condition in entry.get("status", {}).get("conditions", ())
    )


def quantity(text: object) -> Decimal:
    """Return an amount of Kubernetes as a number.

    >>> quantity("4Gi") == 4 * 1024**3, quantity("1500m") == Decimal("1.5"), quantity(2) == 2
    (True, True, True)
    >>> quantity("2e3") == 2000
    True
    """
    words = str(text)
    with_suffix = next((size for size in (2, 1) if words[-size:] in _SUFFIXES), 0)
    number = words[: len(words) - with_suffix] if with_suffix else words
    try:
        return Decimal(number) * _SUFFIXES[words[-with_suffix:] if with_suffix else ""]
    except InvalidOperation as error:
        raise ValueError(f"{words!r} is no amount; right is, for example, 4Gi") from error
