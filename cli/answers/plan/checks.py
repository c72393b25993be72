"""Checks of a cluster before and after a wave, as values. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from cli.answers.assessment.blockers import (
    OLDEST_NVIDIA_DRIVER,
    check_readable,
    nvidia_driver,
)
from cli.answers.assessment.workloads import Workload, group_workloads
from cli.answers.plan.evidence import Evidence, list_at, mapping_at, read_evidence, text_map
from cli.answers.plan.model import Plan, PlannedNode, PlannedWorkload, Wave
from cli.answers.quotas import pods_at_a_time
from kube.manifests.source import SourceObject
from kube.names import TRANSLATE_LABEL

_RUN_OUT: Final = frozenset({"Job", "CronJob"})
"""Kinds whose pods of before a wave stay until they end."""
_SHOWN: Final = 3
DAEMON_SETS: Final = "daemonsets"


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
        """Return whether everything is as expected."""
        return all(check.state in {State.OK, State.NOTE} for check in self.checks)


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of a cluster by kind and name, as checks read them.

    Attributes:
        unreadable: Resources that could not be read.
    """

    objects: tuple[SourceObject, ...]
    by_key: Mapping[tuple[str, str, str], SourceObject]
    devices: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
    groups: Mapping[str, Workload]
    evidence: Evidence
    unreadable: frozenset[str]

    def find(self, kind: str, name: str, namespace: str = "") -> Mapping[str, Any] | None:
        """Return an object; None where there is none."""
        source = self.by_key.get((kind, namespace, name))
        return source.document if source is not None else None


def view_cluster(
    objects: Sequence[SourceObject], namespace: str, unreadable: Iterable[str] = ()
) -> ClusterView:
    """Return the view of a cluster.

    Args:
        objects: Of the cluster.
        namespace: Of objects that name none.
        unreadable: Resources that could not be read.
    """
    by_key = {}
    for source in objects:
        place = source.namespace or ("" if source.kind in _CLUSTER_SCOPED else namespace)
        by_key[source.kind, place, source.name] = source
    return ClusterView(
        objects=tuple(objects),
        by_key=by_key,
        devices=_devices(objects),
        groups={group.key.reference: group for group in group_workloads(objects, namespace)},
        evidence=read_evidence(objects, namespace),
        unreadable=frozenset(unreadable),
    )


_CLUSTER_SCOPED: Final = frozenset({"DeviceClass", "Namespace", "Node", "ResourceSlice"})


# --- after a wave ---------------------------------------------------------------------------------


def check_wave(wave: Wave, view: ClusterView) -> WaveAnswer:
    """Return whether a wave is what was planned."""
    checks = [
        *(check_switched(node, view) for node in wave.nodes),
        *(_check_schedulable(node, view) for node in wave.nodes),
        *(_check_opted_in(namespace, view) for namespace in wave.namespaces),
        *(_check_workload(workload, view) for workload in wave.workloads),
    ]
    return WaveAnswer(wave=wave.wave, checks=tuple(checks))


def check_node(name: str, expected: int, resources: Sequence[str], view: ClusterView) -> WaveAnswer:
    """Return whether a node has DRA devices, and no device plugin.

    Args:
        name: Of the node.
        expected: The least number of devices.
        resources: Resource names of device plugins; one that ends in `*` is a prefix.
        view: The cluster.
    """
    node = view.find("Node", name)
    reference = f"Node//{name}"
    if node is None:
        missing = Check(object=reference, state=State.FAILED, message="there is no such node")
        return WaveAnswer(wave=None, checks=(missing,))
    offered = _offered(node, lambda key: _matches(key, resources))
    device_count = sum(map(len, view.devices.get(name, {}).values()))
    if offered:
        check = _still_offered(reference, offered)
    elif device_count < expected:
        check = _waiting(reference, f"{device_count} of {expected} devices are published")
    else:
        check = _ok(
            reference, f"{device_count} devices are published, and no device plugin is left"
        )
    return WaveAnswer(wave=None, checks=(check,))


def check_switched(node: PlannedNode, view: ClusterView) -> Check:
    """Return whether a node's DRA drivers have what its device plugin had."""
    reference = f"Node//{node.name}"
    document = view.find("Node", node.name)
    if document is None:
        return _failed(reference, "there is no such node")
    offered = _offered(document, node.resources.__contains__)
    if offered:
        return _still_offered(reference, offered)
    by_driver = view.devices.get(node.name, {})
    for driver, expected in node.devices.items():
        device_count = len(by_driver.get(driver, ()))
        if device_count < expected:
            return _waiting(
                reference, f"{device_count} of {expected} devices of {driver} are published"
            )
    uuids = {
        text
        for devices in by_driver.values()
        for device in devices
        for text in _attribute_texts(device)
    }
    missing = [uuid for uuid in node.uuids if uuid not in uuids]
    if missing:
        return _failed(
            reference, f"no device has the uuid {_join_names(missing)}, which it had before"
        )
    total = sum(map(len, by_driver.values()))
    return _ok(reference, f"{total} devices are published, and no device plugin is left")


def _check_schedulable(node: PlannedNode, view: ClusterView) -> Check:
    reference = f"Node//{node.name}"
    document = view.find("Node", node.name)
    if mapping_at(document, "spec").get("unschedulable") is True:
        return _failed(reference, "it is cordoned: kubectl uncordon it")
    if document is not None and not _is_ready(document):
        return _waiting(reference, "it is not ready")
    return _ok(reference, "takes pods")


def _check_opted_in(namespace: str, view: ClusterView) -> Check:
    reference = f"Namespace//{namespace}"
    document = view.find("Namespace", namespace)
    if document is None:
        return _failed(reference, "there is no such namespace")
    value = text_map(document, "metadata", "labels").get(TRANSLATE_LABEL)
    if value != "true":
        return _failed(reference, f"label {TRANSLATE_LABEL} is {value or 'missing'}, not true")
    return _ok(reference, "new pods get claims")


def _check_workload(workload: PlannedWorkload, view: ClusterView) -> Check:
    """Return whether the pods of a workload run, with claims where they have to have some."""
    kind = workload.object.partition("/")[0]
    group = view.groups.get(workload.object)
    if group is None or not (group.pods or group.owner):
        if kind in _RUN_OUT or kind == "Pod":
            return _note(workload.object, "it is gone")
        return _failed(workload.object, "there is no such workload")
    expected_count = _wanted_pods(group)
    running = [pod for pod in group.pods if _runs(pod)]
    without = [pod.name for pod in running if not _has_claims(pod)]
    if workload.is_translated and without and kind not in _RUN_OUT:
        return _waiting(
            workload.object,
            f"{len(without)} of {len(running)} pods have no claims, and were created before the "
            f"namespace was opted in: {_join_names(without)}",
        )
    if len(running) < expected_count:
        return _waiting(workload.object, f"{len(running)} of {expected_count} pods run")
    claims = "with claims" if workload.is_translated and not without else "with device keys"
    return _ok(workload.object, f"{len(running)} of {expected_count} pods run, {claims}")


# --- before a wave --------------------------------------------------------------------------------


def check_before(
    plan: Plan, wave: Wave, view: ClusterView, misfit: Callable[[Sequence[str]], str]
) -> WaveAnswer:
    """Return whether a wave may begin.

    Args:
        plan: The whole plan.
        wave: The wave.
        view: The cluster.
        misfit: Returns why the pods of nodes find no devices elsewhere; empty where they do.
    """
    checks = [
        *(_failed("Cluster//", blocker.message) for blocker in check_readable(view.unreadable)),
        *(
            check_switched(node, view)
            for earlier in plan.waves
            if earlier.wave < wave.wave
            for node in earlier.nodes
        ),
        *(_check_unswitched(node, view) for node in wave.nodes),
        *(check for node in wave.nodes for check in _check_drain(node.name, view)),
        *_check_classes(plan, view),
        *_check_drivers(plan, wave, view),
        *_check_namespaces(wave, view),
    ]
    if not any(check.state is State.FAILED for check in checks) and wave.nodes:
        reason = misfit([node.name for node in wave.nodes])
        capacity = f"Wave//{wave.wave}"
        checks.append(
            _failed(capacity, f"{reason}: plan again from a new snapshot")
            if reason
            else _ok(capacity, "all pods have devices while its nodes are drained")
        )
    return WaveAnswer(wave=wave.wave, checks=tuple(checks))


def _check_unswitched(node: PlannedNode, view: ClusterView) -> Check:
    reference = f"Node//{node.name}"
    document = view.find("Node", node.name)
    if document is None:
        return _failed(reference, "there is no such node: plan again from a new snapshot")
    if not _is_ready(document):
        return _failed(reference, "it is not ready")
    driver = nvidia_driver(text_map(document, "metadata", "labels"))
    if driver is not None and driver < OLDEST_NVIDIA_DRIVER:
        return _failed(reference, f"NVIDIA's driver is {driver}, below {OLDEST_NVIDIA_DRIVER}")
    allocatable = text_map(document, "status", "allocatable")
    changed = [key for key, amount in node.resources.items() if allocatable.get(key) != amount]
    if changed:
        now = ", ".join(f"{key} {allocatable.get(key, '0')}" for key in changed)
        return _failed(
            reference, f"it offers {now} and not what was planned: plan again from a new snapshot"
        )
    return _ok(reference, "is as planned")


def _check_drain(node: str, view: ClusterView) -> Iterator[Check]:
    """Yield what would stop a drain."""
    reference = f"Node//{node}"
    for budget, pod in view.evidence.blocking_budgets(node):
        name = f"PodDisruptionBudget {budget.namespace}/{budget.name}"
        yield _failed(reference, f"{name} never allows the eviction of pod {pod.name}")
    for budget, pod in view.evidence.exhausted_budgets(node):
        if budget.allowed > 0:
            name = f"PodDisruptionBudget {budget.namespace}/{budget.name}"
            yield _waiting(reference, f"{name} allows no eviction of pod {pod.name} now")
    bare = [f"{pod.namespace}/{pod.name}" for pod in view.evidence.bare_pods(node)]
    if bare:
        yield _failed(
            reference,
            f"nothing creates {_join_names(bare)} again, and kubectl drain stops at such pods",
        )


def _check_classes(plan: Plan, view: ClusterView) -> Iterator[Check]:
    for resource, name in plan.mapped_classes.items():
        document = view.find("DeviceClass", name)
        reference = f"DeviceClass//{name}"
        if document is None:
            yield _failed(reference, "there is none: install its DRA driver, see prepare.sh")
        elif mapping_at(document, "spec").get("extendedResourceName") != resource:
            yield _failed(reference, f"it does not map {resource}: run prepare.sh")
        else:
            yield _ok(reference, f"maps {resource}")


def _check_drivers(plan: Plan, wave: Wave, view: ClusterView) -> Iterator[Check]:
    """Yield whether each driver that a wave needs will come to its nodes.

    Without the driver a node has no devices after its drain, and stays cordoned.
    """
    daemon_sets = [source.document for source in view.objects if source.kind == "DaemonSet"]
    publishing = {driver for devices in view.devices.values() for driver in devices}
    for driver in sorted({driver for node in wave.nodes for driver in node.devices}):
        reference = f"Driver//{driver}"
        label = plan.drivers.get(driver, "")
        missing = f"no DaemonSet has the node selector {label}"
        if any(_waits_for(document, label) for document in daemon_sets):
            yield _ok(reference, f"a DaemonSet waits for {label}")
        elif DAEMON_SETS in view.unreadable:
            yield _note(reference, f"{DAEMON_SETS} cannot be read: see that one waits for {label}")
        elif driver in publishing:
            yield _note(
                reference, f"it has devices on other nodes, and {missing}: see that it comes here"
            )
        else:
            yield _failed(reference, f"{missing}: install the driver, see prepare.sh")


def _waits_for(daemon_set: Mapping[str, Any], label: str) -> bool:
    """Return whether a DaemonSet requires a label of its nodes, by selector or by affinity."""
    key, _, value = label.partition("=")
    pod = mapping_at(daemon_set, "spec", "template", "spec")
    if text_map(pod, "nodeSelector").get(key) == value:
        return True
    required = ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return any(
        mapping_at(entry).get("key") == key and _takes(mapping_at(entry), value)
        for term in list_at(pod, "affinity", *required, "nodeSelectorTerms")
        for entry in list_at(term, "matchExpressions")
    )


def _takes(requirement: Mapping[str, Any], value: str) -> bool:
    operator = requirement.get("operator")
    return operator == "Exists" or (operator == "In" and value in list_at(requirement, "values"))


def _check_namespaces(wave: Wave, view: ClusterView) -> Iterator[Check]:
    for name in wave.namespaces:
        reference = f"Namespace//{name}"
        document = view.find("Namespace", name)
        if document is None:
            yield _failed(reference, "there is no such namespace")
        elif "deletionTimestamp" in mapping_at(document, "metadata"):
            yield _failed(reference, "it is being deleted")
        else:
            yield _ok(reference, "exists")


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


def _is_ready(node: Mapping[str, Any]) -> bool:
    """Return whether a node is ready; one without conditions, as in a short snapshot, is."""
    conditions = [
        entry for entry in list_at(node, "status", "conditions") if isinstance(entry, dict)
    ]
    ready = [entry.get("status") for entry in conditions if entry.get("type") == "Ready"]
    return not ready or ready[0] == "True"


def _runs(pod: SourceObject) -> bool:
    status = mapping_at(pod.document, "status")
    conditions = [entry for entry in list_at(status, "conditions") if isinstance(entry, dict)]
    ready = [entry.get("status") for entry in conditions if entry.get("type") == "Ready"]
    is_leaving = "deletionTimestamp" in mapping_at(pod.document, "metadata")
    return status.get("phase") == "Running" and (not ready or ready[0] == "True") and not is_leaving


def _has_claims(pod: SourceObject) -> bool:
    return bool(list_at(pod.document, "spec", "resourceClaims"))


def _wanted_pods(group: Workload) -> int:
    owner = group.owner
    if owner is None or owner.kind in {"Pod", "CronJob", "Job"}:
        return len(group.pods)
    if owner.kind == "DaemonSet":
        expected_count = mapping_at(owner.document, "status").get("desiredNumberScheduled")
        return expected_count if isinstance(expected_count, int) else len(group.pods)
    return pods_at_a_time(owner.kind, owner.document)


def _still_offered(reference: str, offered: Mapping[str, str]) -> Check:
    amounts = ", ".join(f"{key} {amount}" for key, amount in sorted(offered.items()))
    return _waiting(reference, f"its device plugin still offers {amounts}")


def _ok(reference: str, message: str) -> Check:
    return Check(object=reference, state=State.OK, message=message)


def _note(reference: str, message: str) -> Check:
    return Check(object=reference, state=State.NOTE, message=message)


def _waiting(reference: str, message: str) -> Check:
    return Check(object=reference, state=State.WAITING, message=message)


def _failed(reference: str, message: str) -> Check:
    return Check(object=reference, state=State.FAILED, message=message)


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
