"""The usage beyond a quota, at any version of the objects that count, and its author.

Two write the status of a quota: admission adds what it admits, before it is stored, and the quota
controller counts anew from its caches. Where its cache of pods is behind, the controller takes back what
admission has just added, and one pod more is admitted: kubernetes/kubernetes#123434, seen while
Deployments roll. Then admission has counted every object, and yet too many are stored. A way around the
quota is the other case: an object is stored that admission has not counted.

Source: k8s.io/kubernetes v1.37.1, pkg/controller/resourcequota, syncResourceQuota; k8s.io/apiserver
v0.37.1, plugin/resourcequota.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Final, Self

import msgspec
from msgspec import structs

from e2e.access import Access, Object
from kube.api.core import FINISHED_PHASES
from kube.quantity import Quantity
from quotas.resource_quotas.usage import DEVICES_OF_CLASS

ADMISSION: Final = "kube-apiserver"
"""The field manager of what admission writes."""
BEFORE: Final = 0
"""The version of what was there before the record."""


class Counting(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a pod or of a claim.

    Attributes:
        amounts: The amounts that it counts in a quota, by the quota's key; nothing once it has ended.
    """

    version: int
    namespace: str
    uid: str
    amounts: Mapping[str, int] = {}


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A version of the only quota of a namespace.

    Attributes:
        admitted: Keys whose amount admission wrote last.
    """

    version: int
    namespace: str
    hard: Mapping[str, int]
    used: Mapping[str, int]
    admitted: frozenset[str]


Reader = Callable[[Object, bool], Counting | Status]
"""A reader of a version of an object, told if it is its last one."""


class QuotaRecord:
    """Watches quotas, and the pods and claims that count in them, while a block runs."""

    def __init__(self, cluster: Access) -> None:
        self._cluster = cluster
        self._watches = ExitStack()
        self._seen: list[tuple[Reader, list[Object], list[Object]]] = []

    def __enter__(self) -> Self:
        # Quotas first: what admission counts meanwhile is among the objects that are listed then.
        for kind, entry_of in _READERS.items():
            objects, events = self._watches.enter_context(self._cluster.watching(kind))
            self._seen += [(entry_of, objects, events)]
        return self

    def __exit__(self, *_: object) -> None:
        self._watches.close()

    def versions(self) -> list[Counting | Status]:
        """Return the versions seen, the oldest first; objects from before have version BEFORE."""
        before = [
            structs.replace(entry_of(stored, False), version=BEFORE)
            for entry_of, objects, _ in self._seen
            for stored in objects
        ]
        since = [
            entry_of(event["object"], event["type"] == "DELETED")
            for entry_of, _, events in self._seen
            for event in events
        ]
        return [*before, *sorted(since, key=lambda entry: entry.version)]


class Excesses(msgspec.Struct, frozen=True, kw_only=True):
    """Amounts beyond a limit.

    Attributes:
        uncounted: Those with objects that admission did not count.
        recounted: Those all of whose objects it counted, so that the controller has taken some back.
    """

    uncounted: list[str]
    recounted: list[str]


def excesses(versions: Iterable[Counting | Status]) -> Excesses:
    """Return the stored amounts beyond a limit, once for each version.

    Args:
        versions: The oldest first.
    """
    stored: defaultdict[str, dict[str, Mapping[str, int]]] = defaultdict(dict)
    quotas: dict[str, Status] = {}
    ahead = Counter[tuple[str, str]]()
    """The amounts that admission has counted beyond those stored since, by namespace and key."""
    answer = Excesses(uncounted=[], recounted=[])
    for entry in versions:
        namespace, objects = entry.namespace, stored[entry.namespace]
        if isinstance(entry, Status):
            before = quotas.get(namespace, entry)
            for key in entry.admitted:
                ahead[namespace, key] += max(entry.used[key] - before.used.get(key, 0), 0)
            quotas[namespace] = entry
        else:
            if entry.version != BEFORE and entry.uid not in objects:
                for key, amount in entry.amounts.items():
                    ahead[namespace, key] -= amount
            objects[entry.uid] = entry.amounts
        for key, limit in quotas[namespace].hard.items() if namespace in quotas else ():
            amount = sum(amounts.get(key, 0) for amounts in objects.values())
            if amount > limit:
                found = answer.uncounted if ahead[namespace, key] < 0 else answer.recounted
                found.append(f"{namespace}: {amount} of {limit} {key} at {entry.version}")
    return answer


def _of_pod(stored: Object, is_gone: bool) -> Counting:
    """A pod counts until it is being deleted, since its successor is there before it has gone."""
    amounts = Counter[str]()
    has_ended = (
        is_gone
        or "deletionTimestamp" in stored["metadata"]
        or stored["status"].get("phase") in FINISHED_PHASES
    )
    for container in () if has_ended else stored["spec"]["containers"]:
        for name, quantity in container["resources"].get("limits", {}).items():
            if "/" in name:
                amounts[f"requests.{name}"] += int(Quantity(quantity))
    return _counting(stored, amounts)


def _of_claim(stored: Object, is_gone: bool) -> Counting:
    amounts = Counter[str]()
    for request in () if is_gone else stored["spec"]["devices"]["requests"]:
        exactly = request["exactly"]
        amounts[f"{exactly['deviceClassName']}{DEVICES_OF_CLASS}"] += exactly["count"]
    return _counting(stored, amounts)


def _counting(stored: Object, amounts: Mapping[str, int]) -> Counting:
    metadata = stored["metadata"]
    return Counting(
        version=int(metadata["resourceVersion"]),
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        amounts=amounts,
    )


def _of_quota(stored: Object, _: bool) -> Status:
    metadata, status = stored["metadata"], stored.get("status", {})
    admitted = {
        field.removeprefix("f:")
        for entry in metadata["managedFields"]
        if entry["manager"] == ADMISSION
        for field in entry["fieldsV1"].get("f:status", {}).get("f:used", {})
    }
    return Status(
        version=int(metadata["resourceVersion"]),
        namespace=metadata["namespace"],
        hard={key: int(Quantity(limit)) for key, limit in status.get("hard", {}).items()},
        used={key: int(Quantity(amount)) for key, amount in status.get("used", {}).items()},
        admitted=frozenset(admitted),
    )


_READERS: Final[Mapping[str, Reader]] = {
    "resourcequotas": _of_quota,
    "pods": _of_pod,
    "resourceclaims": _of_claim,
}
