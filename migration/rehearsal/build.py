"""The part of a cluster that a rehearsal of its plan needs. Pure."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from allocator.nodes.node_resources import NodeResources
from findings.text import count_text
from kube.api.device_quota import API_VERSION, KIND
from kube.api.meta import encode
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from migration.assessment.assess import assess_cluster
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.assumed import ASSUMED
from migration.assessment.evidence import mapping_at, read_evidence, text_map
from migration.assessment.workloads import Workload, group_workloads
from migration.plan.facts.vendors import NVIDIA
from migration.plan.facts.volumes import HOSTNAME, Volumes, claim_names
from migration.plan.model.plan import Plan, PlannedNode, Wave
from migration.rehearsal.documents import (
    KINDS,
    bare_pod,
    bound_claim,
    node,
    on_host,
    plain,
    with_claims,
    workload,
)
from migration.rehearsal.model import RehearsalInput, RehearsedNode, RehearsedWave
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
    groups = {group.key.reference: group for group in group_workloads(objects, namespace)}
    priorities = frozenset(
        (*_SYSTEM_PRIORITIES, *(entry.name for entry in objects if entry.kind == "PriorityClass"))
    )
    known_volumes = Volumes(objects, namespace)
    volumes: list[Mapping[str, Any]] = []
    hostnames = {
        entry.name: text_map(entry.document, "metadata", "labels").get(HOSTNAME, entry.name)
        for entry in objects
        if entry.kind == "Node"
    }
    workloads: list[Mapping[str, Any]] = []
    places: dict[str, tuple[str, ...]] = {}
    left_out: list[str] = []
    rehearsed: set[tuple[str, str]] = set()
    for entry in cluster.workloads:
        group = groups[entry.key.reference]
        created = _workload(group, priorities)
        if created is None:
            left_out.append(
                f"{entry.key.reference}: its {entry.pods} pods belong to a kind that Kubernetes does not run"
            )
            continue
        nodes = {node for node in map(_node_of, group.pods) if node}
        selectors = _selectors_of_claims(group, known_volumes, nodes, hostnames)
        if selectors:
            document = (group.owner or group.pods[0]).document
            created = with_claims(created, document, selectors)
            for claim, selector in selectors.items():
                volume = known_volumes.name(entry.key.namespace, claim)
                volumes += bound_claim(entry.key.namespace, claim, volume, selector)
        elif selectors is None:
            left_out.append(
                f"{entry.key.reference}: its PersistentVolumes, of which some are not of all its {count_text(len(nodes), 'node')}: "
                "a pod that is evicted may come back on another node"
            )
        workloads.append(_in_namespace(created, entry.key.namespace))
        rehearsed.update(entry.members)
        places[entry.key.reference] = tuple(sorted(filter(None, map(_node_of, group.pods))))
    staying = {
        (pod.namespace, pod.name)
        for pods in read_evidence(objects, namespace).pods.values()
        for pod in pods
        if pod.stays
    }
    # Evicted pods would take their CPU along, so only what stays on a node is taken from it.
    others = cluster.state.node_resources(
        {name for name in cluster.state.pods if name in rehearsed or name not in staying}
    )
    if not cluster.state.pods.keys() <= rehearsed | staying:
        left_out.append("pods without devices that a drain evicts, with their CPU and memory")
    return RehearsalInput(
        objects=(*_objects(plan, objects, cluster, namespace), *volumes),
        nodes=tuple(_nodes(plan, objects, cluster, others, frozenset(chain(*places.values())))),
        workloads=tuple(workloads),
        places=places,
        waves=tuple(map(_wave, plan.waves)),
        device_quotas=tuple(_device_quotas(plan, objects)),
        uid=plan.cluster.uid,
        server=plan.cluster.server,
        left_out=tuple(left_out),
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


def _workload(group: Workload, priorities: frozenset[str]) -> dict[str, Any] | None:
    """Return a workload as it is created; None for a kind that nothing runs here."""
    if group.key.kind == "Pod":
        pod = next((pod for pod in group.pods if pod.name == group.key.name), None)
        return bare_pod(pod.document, priorities) if pod is not None else None
    if group.owner is None or group.key.kind not in KINDS:
        return None
    return workload(group.owner.document, priorities, _scheduler_of(group))


def _selectors_of_claims(
    group: Workload, volumes: Volumes, nodes: Collection[str], hostnames: Mapping[str, str]
) -> dict[str, Mapping[str, Any]] | None:
    """Return the PersistentVolumeClaims of a workload with volumes that some nodes do not reach, each with its nodes.

    Returns:
        Claim to node selector. None if not all of the workload's nodes reach each of the volumes: a pod of those that are
        created is not known to be one of before.
    """
    namespace = group.key.namespace
    claims = {
        claim for pod in group.pods for claim in claim_names(mapping_at(pod.document, "spec"))
    }
    selectors: dict[str, Mapping[str, Any]] = {}
    for claim in sorted(claims):
        selector = volumes.selector(namespace, claim)
        if selector is not None and volumes.reached_by(selector).issuperset(nodes):
            selectors[claim] = json.loads(encode(selector))
        elif selector is not None or (len(nodes) > 1 and volumes.is_of_one_node(namespace, claim)):
            return None
        elif volumes.is_of_one_node(namespace, claim):
            selectors[claim] = on_host([hostnames.get(name, name) for name in nodes])
    return selectors


def _scheduler_of(group: Workload) -> str:
    """Return the scheduler of a workload's pods, maybe chosen by a webhook; empty if they differ."""
    names = {str(mapping_at(pod.document, "spec").get("schedulerName") or "") for pod in group.pods}
    return names.pop() if len(names) == 1 else ""


def _in_namespace(document: dict[str, Any], namespace: str) -> dict[str, Any]:
    return {**document, "metadata": {**document["metadata"], "namespace": namespace}}


def _node_of(pod: SourceObject) -> str:
    return str(mapping_at(pod.document, "spec").get("nodeName") or "")


# --- objects --------------------------------------------------------------------------------------


def _objects(
    plan: Plan, objects: Iterable[SourceObject], cluster: AssessedCluster, namespace: str
) -> Iterator[Mapping[str, Any]]:
    """Yield namespaces, then the objects to keep, then the objects of drivers' charts."""
    used = {entry.key.namespace for entry in cluster.workloads}
    if plan.driver_release is not None:
        used.add(plan.driver_release.namespace)
    namespaces = {entry.name: entry.document for entry in objects if entry.kind == "Namespace"}
    for name in sorted(used | namespaces.keys()):
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        if name not in _SYSTEM or name in namespaces:
            yield _namespace(namespaces.get(name, document))
    plugins = {(plugin.namespace, plugin.name) for plugin in plan.plugins}
    for entry in objects:
        if entry.kind in _KEPT_KINDS and entry.name not in _SYSTEM_PRIORITIES:
            is_cluster_wide = entry.kind in {"PriorityClass", "DeviceClass"}
            created = plain(entry.document)
            yield (
                created if is_cluster_wide else _in_namespace(created, entry.namespace or namespace)
            )
        elif entry.kind == DAEMON_SET and (entry.namespace or namespace, entry.name) in plugins:
            created = workload(entry.document, frozenset(_SYSTEM_PRIORITIES))
            yield _in_namespace(created, entry.namespace or namespace)
    class_names = {entry.name for entry in objects if entry.kind == "DeviceClass"}
    for name, device_class in sorted(cluster.state.classes.items()):
        if name not in class_names:
            document = json.loads(encode(device_class))
            yield plain({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", **document})
    for driver, label in plan.drivers.items():
        release = plan.driver_release if driver == NVIDIA else None
        yield _driver(driver, label, release.namespace if release else _DRIVERS)


def _namespace(document: Mapping[str, Any]) -> dict[str, Any]:
    created = plain(document)
    created.pop("spec", None)
    return created


def _driver(driver: str, label: str, namespace: str) -> dict[str, Any]:
    """Return a DaemonSet that stands for the one of a DRA driver, and waits for the label of its nodes."""
    key, _, value = label.partition("=")
    labels = {"app": f"rehearsed-{driver}"[:63]}
    spec = {
        "nodeSelector": {key: value},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "driver", "image": "registry.internal/driver:1"}],
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
    rehearsed = places.union(entry.node for entry in cluster.nodes)
    for entry in objects:
        if entry.kind == "Node" and entry.name in rehearsed:
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
