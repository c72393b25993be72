"""The part of a cluster that a rehearsal of its plan needs. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from allocator.nodes.node_resources import NodeResources
from kube.api.device_quota import API_VERSION, KIND
from kube.api.meta import encode
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from migration.assessment.assess import assess_cluster
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.assumed import ASSUMED
from migration.assessment.outcomes import group_with_devices
from migration.cluster.evidence import mapping_at, read_evidence
from migration.legacy.plugin_vendors import NVIDIA
from migration.plan.drivers.plugin_evidence import OF_ADMINISTRATORS
from migration.plan.model.plan import Plan, PlannedNode, Wave
from migration.rehearsal.documents import (
    node,
    plain,
    workload,
)
from migration.rehearsal.koordinator import device_objects
from migration.rehearsal.model import RehearsalInput, RehearsedNode, RehearsedWave
from migration.rehearsal.workloads import RehearsedWorkloads, in_namespace
from translation.cluster.snapshot import TranslationOptions
from translation.profiles.profile import Profile

_KEPT_KINDS: Final = (
    "PriorityClass",
    "DeviceClass",
    "ResourceQuota",
    "LimitRange",
    "PodDisruptionBudget",
    "ResourceClaimTemplate",
)
"""Created as they are, after the namespaces."""
_POD_SECURITY: Final = "pod-security.kubernetes.io/"
"""Prefix of the labels of namespaces with the Pod Security Standards of their pods."""
_SYSTEM: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
_SYSTEM_PRIORITIES: Final = ("system-cluster-critical", "system-node-critical")
_DRIVERS: Final = "kube-system"
"""The namespace of what stands for drivers."""
_REGISTRY: Final = "/var/lib/kubelet/plugins_registry"
"""The kubelet's registry: a DaemonSet that mounts it is a driver's."""


def build_rehearsal(
    plan: Plan,
    objects: tuple[SourceObject, ...],
    profiles: Mapping[str, Profile],
    options: TranslationOptions,
    namespace: str,
) -> RehearsalInput:
    """Return the parts of a cluster that a rehearsal of its plan needs.

    Args:
        plan: The plan of the cluster.
        objects: The cluster.
        profiles: Driver to profile.
        namespace: The namespace for objects that name none.
    """
    cluster = assess_cluster(
        objects, profiles, options, namespace=namespace, version=plan.kubernetes_version
    )
    groups = {
        group.key.reference: group
        for group in group_with_devices(objects, cluster.workloads, namespace)
    }
    priorities = frozenset(
        (*_SYSTEM_PRIORITIES, *(entry.name for entry in objects if entry.kind == "PriorityClass"))
    )
    rehearsed = RehearsedWorkloads(objects, namespace, priorities)
    for entry in cluster.workloads:
        rehearsed.add(groups[entry.key.reference])
    staying = {
        (pod.namespace, pod.name)
        for pods in read_evidence(objects, namespace).pods.values()
        for pod in pods
        if pod.stays
    }
    # Evicted pods would take their CPU along, so only what stays on a node is rehearsed from it.
    others = cluster.state.node_resources(
        {name for name in cluster.state.pods if name in rehearsed.pods or name not in staying}
    )
    if not cluster.state.pods.keys() <= rehearsed.pods | rehearsed.pods_left_out | staying:
        rehearsed.left_out.append(
            "pods without devices that a drain evicts, with their CPU and memory"
        )
    return RehearsalInput(
        objects=(*_objects(plan, objects, cluster, namespace), *rehearsed.volumes),
        nodes=tuple(
            _nodes(plan, objects, cluster, others, frozenset(chain(*rehearsed.places.values())))
        ),
        workloads=tuple(rehearsed.workloads),
        places=rehearsed.places,
        waves=tuple(map(_wave, plan.waves)),
        device_quotas=tuple(_device_quotas(plan, objects)),
        uid=plan.cluster.uid,
        server=plan.cluster.server,
        left_out=tuple(rehearsed.left_out),
    )


def _device_quotas(plan: Plan, objects: Iterable[SourceObject]) -> Iterator[Mapping[str, Any]]:
    """Yield the DeviceQuotas that the scripts of a plan wait for."""
    names = {name for entry in plan.replaced_lines for name in entry.device_quotas}
    for source in objects:
        if (source.api_version, source.kind) == (API_VERSION, KIND) and source.name in names:
            yield plain(source.document)


def _wave(wave: Wave) -> RehearsedWave:
    by_hand = (entry.object for entry in wave.workloads if entry.is_created_by_hand)
    return RehearsedWave(
        wave=wave.wave,
        nodes=tuple(node.name for node in wave.nodes),
        by_hand=tuple(reference.partition("/")[2] for reference in by_hand),
    )


# --- objects --------------------------------------------------------------------------------------


def _objects(
    plan: Plan, objects: Iterable[SourceObject], cluster: AssessedCluster, namespace: str
) -> Iterator[Mapping[str, Any]]:
    """Yield namespaces, then the objects to keep, then the objects of drivers' charts."""
    created = [*_created(plan, objects, cluster, namespace)]
    used = {entry.key.namespace for entry in cluster.workloads}
    used |= {
        entry["metadata"]["namespace"] for entry in created if "namespace" in entry["metadata"]
    }
    namespaces = {entry.name: entry.document for entry in objects if entry.kind == "Namespace"}
    with_plugins = {plugin.namespace for plugin in plan.plugins}.difference(_SYSTEM)
    for name in sorted(used | namespaces.keys()):
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        if name not in _SYSTEM or name in namespaces:
            created_namespace = _namespace(namespaces.get(name, document))
            if name in with_plugins:
                # Pods have no directories of their node here, by which preflight.sh would know a plugin.
                own = created_namespace["metadata"].get("labels", {})
                created_namespace["metadata"]["labels"] = {**own, **OF_ADMINISTRATORS}
            yield created_namespace
    yield from created


def _created(
    plan: Plan, objects: Iterable[SourceObject], cluster: AssessedCluster, namespace: str
) -> Iterator[Mapping[str, Any]]:
    """Yield the objects to keep, then the objects of drivers' charts."""
    plugins = {(plugin.namespace, plugin.name) for plugin in plan.plugins}
    for entry in objects:
        if entry.kind in _KEPT_KINDS and entry.name not in _SYSTEM_PRIORITIES:
            is_cluster_wide = entry.kind in {"PriorityClass", "DeviceClass"}
            created = plain(entry.document)
            yield (
                created if is_cluster_wide else in_namespace(created, entry.namespace or namespace)
            )
        elif entry.kind == DAEMON_SET and (entry.namespace or namespace, entry.name) in plugins:
            created = workload(entry.document, frozenset(_SYSTEM_PRIORITIES))
            yield in_namespace(created, entry.namespace or namespace)
    class_names = {entry.name for entry in objects if entry.kind == "DeviceClass"}
    for name, device_class in sorted(cluster.state.classes.items()):
        if name not in class_names:
            document = json.loads(encode(device_class))
            yield plain({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", **document})
    for driver, label in plan.drivers.items():
        release = plan.driver_release if driver == NVIDIA else None
        yield _driver(driver, label, release.namespace if release else _DRIVERS)
    yield from device_objects(objects, {entry.node for entry in cluster.nodes})


def _namespace(document: Mapping[str, Any]) -> dict[str, Any]:
    created = plain(document)
    created.pop("spec", None)
    labels = created["metadata"].pop("labels", {})
    # Pods are created without the fields that these standards require.
    others = {key: value for key, value in labels.items() if not key.startswith(_POD_SECURITY)}
    if others:
        created["metadata"]["labels"] = others
    return created


def _driver(driver: str, label: str, namespace: str) -> dict[str, Any]:
    """Return a DaemonSet that stands for the one of a DRA driver, and waits for the label of its nodes."""
    key, _, value = label.partition("=")
    labels = {"app": f"rehearsed-{driver}"[:63]}
    spec = {
        "nodeSelector": {key: value},
        "tolerations": [{"operator": "Exists"}],
        # As in NVIDIA's chart, where it is the container for GPUs.
        "containers": [{"name": "gpus", "image": "registry.internal/driver:1"}],
        "volumes": [{"name": "registry", "hostPath": {"path": _REGISTRY}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": DAEMON_SET,
        "metadata": {"name": f"rehearsed-{driver}", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


# --- nodes ----------------------------------------------------------------------------------------


def _nodes(
    plan: Plan,
    objects: Iterable[SourceObject],
    cluster: AssessedCluster,
    others: Mapping[str, NodeResources],
    places: frozenset[str],
) -> Iterator[RehearsedNode]:
    """Yield the nodes with devices, and those that rehearsed pods run on: with devices that no plan knows."""
    planned = {entry.name: entry for wave in plan.waves for entry in wave.nodes}
    slices: dict[str, list[Mapping[str, Any]]] = {}
    for entry in objects:
        if entry.kind == "ResourceSlice":
            name = str(mapping_at(entry.document, "spec").get("nodeName") or "")
            slices.setdefault(name, []).append(plain(entry.document))
    assumed: dict[str, list[Mapping[str, Any]]] = {}
    for piece in cluster.state.slices:
        if (piece.metadata.annotations or {}).get(ASSUMED) == "true":
            document = json.loads(encode(piece))
            # The API requires what is our default, and is not written.
            document["spec"]["pool"] = {"generation": 1, "resourceSliceCount": 1} | document[
                "spec"
            ]["pool"]
            head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
            assumed.setdefault(piece.spec.node_name or "", []).append(plain({**head, **document}))
    names = places.union(entry.node for entry in cluster.nodes)
    for entry in objects:
        if entry.kind == "Node" and entry.name in names:
            switched = planned.get(entry.name)
            yield RehearsedNode(
                document=node(entry.document, others.get(entry.name, NodeResources())),
                slices=tuple(slices.get(entry.name, ())),
                labels=switched.labels if switched is not None else {},
                resources=switched.resources if switched is not None else {},
                later_slices=_later(switched, assumed.get(entry.name, [])),
            )


def _later(
    planned: PlannedNode | None, assumed: list[Mapping[str, Any]]
) -> tuple[Mapping[str, Any], ...]:
    return tuple(assumed) if planned is not None else ()
