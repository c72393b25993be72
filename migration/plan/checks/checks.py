"""Checks of a cluster as values, and those of its nodes and its identity. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from findings.text import join_names
from kube.manifests.source import SourceObject
from migration.cluster.evidence import (
    Evidence,
    cluster_uid,
    list_at,
    mapping_at,
    text_map,
)
from migration.cluster.reservations import without_reservations
from migration.cluster.volumes import read_evidence_with_pinned_pods
from migration.cluster.workloads import Workload, group_workloads
from migration.plan.checks.hami_register import left_register
from migration.plan.facts.work import read_work
from migration.plan.model.plan import Plan, PlannedNode, PlannedWork, PlannedWorkload

GONE: Final = "it is gone"
_GONE_NODE: Final = f"{GONE}, and later waves were simulated with its devices: plan again from a new snapshot before the next wave"


class State(StrEnum):
    """The result of a check."""

    OK = "ok"
    NOTE = "note"
    """Nothing that stops a wave, and to be looked at."""
    WAITING = "waiting"
    """It may become right by itself."""
    FAILED = "failed"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A check; `object` is `Kind/namespace/name`, and `Kind//name` without a namespace."""

    object: str
    state: State
    message: str


class WaveAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `drawbridge verify --wave` and `--node`.

    Attributes:
        wave: Its number; null for a node alone.
    """

    wave: int | None
    checks: tuple[Check, ...]

    @property
    def is_ok(self) -> bool:
        """Return True if everything is as expected."""
        return all(check.state in {State.OK, State.NOTE} for check in self.checks)

    @property
    def has_failed(self) -> bool:
        """Return True if something is wrong that does not become right by itself."""
        return any(check.state is State.FAILED for check in self.checks)


class DrainAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a wave now, for the pods that leave its nodes and those that its namespaces move.

    Attributes:
        misfit: The reason why those with devices find none elsewhere; empty where they do.
        awaited: Those that wait already, and had a node when the plan was made, by workload; empty without any.
        unplaced_pods: Those without devices that no other node takes or has room for, as `Pod/namespace/name`.
        unserved: Workload whose pods run, and that no node would serve once it is opted in, to the reason.
        early: Workload whose next pods would get claims, since its driver publishes no GPUs yet, to the reason with its
            fix.
        rejected: Workload whose next pods would be rejected, or ResourceQuota that rejects some, to the reason with its fix.
    """

    misfit: str
    awaited: str = ""
    unplaced_pods: tuple[str, ...] = ()
    unserved: Mapping[str, str] = {}
    early: Mapping[str, str] = {}
    rejected: Mapping[str, str] = {}


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of a cluster by kind and name, as checks read them.

    Attributes:
        unreadable: Resources that could not be read.
        work: Node to the pods that lose something when they are evicted.
    """

    objects: tuple[SourceObject, ...]
    by_key: Mapping[tuple[str, str, str], SourceObject]
    devices: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
    groups: Mapping[str, Workload]
    evidence: Evidence
    unreadable: frozenset[str]
    work: Mapping[str, Sequence[PlannedWork]]

    def find(self, kind: str, name: str, namespace: str = "") -> Mapping[str, Any] | None:
        """Return an object; None if there is none."""
        source = self.by_key.get((kind, namespace, name))
        return source.document if source is not None else None


def view_cluster(
    objects: Sequence[SourceObject], namespace: str, unreadable: Iterable[str] = ()
) -> ClusterView:
    """Return the view of a cluster.

    Args:
        objects: The cluster's objects.
        namespace: The namespace for objects that name none.
        unreadable: Resources that could not be read.
    """
    by_key = {}
    for source in objects:
        place = source.namespace or ("" if source.kind in _CLUSTER_SCOPED else namespace)
        by_key[source.kind, place, source.name] = source
    evicted_objects = without_reservations(objects)
    return ClusterView(
        objects=tuple(objects),
        by_key=by_key,
        devices=_devices(objects),
        groups={group.key.reference: group for group in group_workloads(objects, namespace)},
        evidence=read_evidence_with_pinned_pods(evicted_objects, namespace),
        unreadable=frozenset(unreadable),
        work=read_work(evicted_objects, namespace),
    )


_CLUSTER_SCOPED: Final = frozenset({"DeviceClass", "Namespace", "Node", "ResourceSlice"})


def check_cluster(plan: Plan, view: ClusterView) -> Iterator[Check]:
    """Yield a failed check for another cluster than that of the plan."""
    uid = cluster_uid(view.objects)
    if plan.cluster.uid and uid != plan.cluster.uid:
        yield failed_check(
            "Cluster//",
            f"its kube-system has the uid {uid or 'that could not be read'}, and the plan is for "
            f"{plan.cluster.uid}: choose another --context",
        )


def check_node(
    name: str, expected: Mapping[str, int], resources: Sequence[str], view: ClusterView
) -> WaveAnswer:
    """Check that a node has DRA devices, and no device plugin.

    Args:
        name: The node's name.
        expected: Driver to the least number of its devices; an empty driver stands for all together.
        resources: Resource names of device plugins; one that ends in `*` is a prefix.
        view: The cluster.
    """
    node = view.find("Node", name)
    reference = f"Node//{name}"
    if node is None:
        missing = Check(object=reference, state=State.FAILED, message="there is no such node")
        return WaveAnswer(wave=None, checks=(missing,))
    offered = _offered(node, lambda key: _matches(key, resources))
    by_driver = view.devices.get(name, {})
    check = (
        _still_offered(reference, offered)
        if offered
        else _missing_devices(reference, expected, by_driver)
    )
    if check is None:
        total = sum(map(len, by_driver.values()))
        check = ok_check(reference, f"{total} devices are published, and no device plugin is left")
    return WaveAnswer(wave=None, checks=(check,))


def check_switched(node: PlannedNode, view: ClusterView) -> Check:
    """Check that a node's DRA drivers have the devices that its device plugin had."""
    reference = f"Node//{node.name}"
    document = view.find("Node", node.name)
    if document is None:
        return gone_check(reference, "nodes", view, _GONE_NODE)
    offered = _offered(document, node.resources.__contains__)
    if offered:
        return _still_offered(reference, offered)
    by_driver = view.devices.get(node.name, {})
    missing_devices = _missing_devices(reference, node.devices, by_driver)
    if missing_devices is not None:
        return missing_devices
    uuids = {
        text
        for devices in by_driver.values()
        for device in devices
        for text in _attribute_texts(device)
    }
    missing = [uuid for uuid in node.uuids if uuid not in uuids]
    if missing:
        return failed_check(
            reference, f"no device has the uuid {join_names(missing)}, which it had before"
        )
    total = sum(map(len, by_driver.values()))
    register = left_register(document)
    text = f"{total} devices are published, and no device plugin is left{register}"
    return note_check(reference, text) if register else ok_check(reference, text)


def gone_check(reference: str, resource: str, view: ClusterView, text: str) -> Check:
    """Return the check of an object of the plan that is not in the cluster, after its wave has begun.

    Args:
        reference: The object, as `Kind/namespace/name`.
        resource: The plural of its kind.
        view: The cluster.
        text: The note if its kind could be read.
    """
    if resource in view.unreadable:
        return failed_check(reference, f"{resource} cannot be read")
    return note_check(reference, text)


def is_gone(workload: PlannedWorkload, view: ClusterView) -> bool:
    """Return True if a workload of the plan and all its pods are not in the cluster, as far as that is read."""
    group = view.groups.get(workload.object)
    return group is None or not (group.pods or group.owner)


# --- parts of objects -----------------------------------------------------------------------------


def _devices(
    objects: Iterable[SourceObject],
) -> dict[str, dict[str, list[Mapping[str, Any]]]]:
    """Return node to driver to the devices in the newest generation of the node's complete pools."""
    pools: dict[tuple[str, str, str], dict[int, list[SourceObject]]] = {}
    for source in objects:
        if source.kind != "ResourceSlice":
            continue
        spec = mapping_at(source.document, "spec")
        pool = mapping_at(spec, "pool")
        generation = pool.get("generation")
        key = (
            str(spec.get("nodeName", "")),
            str(spec.get("driver", "")),
            str(pool.get("name", "")),
        )
        number = generation if isinstance(generation, int) else 0
        pools.setdefault(key, {}).setdefault(number, []).append(source)
    devices: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for (node, driver, _), generations in sorted(pools.items()):
        slices = generations[max(generations)]
        expected_count = mapping_at(slices[0].document, "spec", "pool").get("resourceSliceCount", 1)
        if node and len(slices) == expected_count:
            node_devices = devices.setdefault(node, {}).setdefault(driver, [])
            for source in slices:
                node_devices += [
                    device
                    for device in list_at(source.document, "spec", "devices")
                    if isinstance(device, Mapping)
                ]
    return devices


def _missing_devices(
    reference: str, expected: Mapping[str, int], by_driver: Mapping[str, Sequence[Any]]
) -> Check | None:
    """Return the check of the first driver with too few devices; None if there is none.

    Other devices of the node, such as NICs, count for no driver but their own.
    """
    counts = {name: len(devices) for name, devices in by_driver.items()}
    for driver, least in expected.items():
        device_count = counts.get(driver, 0) if driver else sum(counts.values())
        if device_count < least:
            of_driver = f" of {driver}" if driver else ""
            text = f"{device_count} of {least} devices{of_driver} are published"
            return waiting_check(reference, text)
    return None


def _attribute_texts(device: Mapping[str, Any]) -> Iterator[str]:
    for attribute in mapping_at(device, "attributes").values():
        text = mapping_at(attribute).get("string")
        if isinstance(text, str):
            yield text


def _offered(node: Mapping[str, Any], is_device: Callable[[str], bool]) -> dict[str, str]:
    """Return the device keys that a kubelet offers an amount of."""
    allocatable = text_map(node, "status", "allocatable")
    return {key: value for key, value in allocatable.items() if is_device(key) and value != "0"}


def _matches(key: str, names: Sequence[str]) -> bool:
    return any(key.startswith(name[:-1]) if name.endswith("*") else key == name for name in names)


def _still_offered(reference: str, offered: Mapping[str, str]) -> Check:
    amounts = ", ".join(f"{key} {amount}" for key, amount in sorted(offered.items()))
    return waiting_check(reference, f"its device plugin still offers {amounts}")


def ok_check(reference: str, message: str) -> Check:
    """Return a check that is right."""
    return Check(object=reference, state=State.OK, message=message)


def note_check(reference: str, message: str) -> Check:
    """Return a check that stops no wave, and is to be looked at."""
    return Check(object=reference, state=State.NOTE, message=message)


def waiting_check(reference: str, message: str) -> Check:
    """Return a check that may become right by itself."""
    return Check(object=reference, state=State.WAITING, message=message)


def failed_check(reference: str, message: str) -> Check:
    """Return a check that is wrong."""
    return Check(object=reference, state=State.FAILED, message=message)
