"""Pods of whole GPUs with no guard against nodes that offer parts of GPUs, and the cure. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from allocator.nodes.node_resources import NodeResources
from allocator.nodes.pod_requests import pod_request
from allocator.nodes.resources_fit import has_resources
from allocator.pods.node_eligibility import counted_rejection
from findings.text import join_names
from kube.api.core import Node, Pod
from kube.names import DEFAULT_SCHEDULER_NAME
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.capacity import pods_in_parts
from migration.cluster.node_devices import GPU, Source
from migration.cluster.work_groups import is_hub_server
from migration.cluster.workloads import Workload
from migration.plan.facts.rollouts import replaces_pods
from migration.plan.facts.taken_back import TakenBack
from migration.plan.model.plan import Wave
from migration.plan.search.device_map import NodeState, NodeUse, WaveDetails
from migration.plan.stage.stage import PodKey
from translation.vocabularies.hami.keys import OWN_KEYS

_HAMI_LABEL: Final = "gpu NotIn [on]"
"""The node affinity that nodes of HAMi do not have: its device plugin runs where gpu=on."""
_HUB_FORM: Final = (
    "their hub's servers (singleuser.extraNodeAffinity of Zero to JupyterHub's chart)"
)


def with_strays(
    wave: Wave,
    details: WaveDetails,
    cluster: AssessedCluster,
    groups: Mapping[str, Workload],
    bound_pods: Collection[tuple[str, str]],
    *,
    taken_back: TakenBack,
    unrestarted: Collection[PodKey] = (),
) -> Wave:
    """Return a wave with notes on pods of whole GPUs that may get a node that offers parts of GPUs.

    HAMi, time slicing and MIG offer these under the resource name of whole GPUs, and kube-scheduler looks at the name. On a
    node of a device plugin such pods run today; HAMi's webhook does not know them, or they would have its scheduler.

    Args:
        wave: The wave.
        details: The pods that it evicts, and the systems of nodes while they are drained.
        cluster: The cluster.
        groups: Workload, as `Kind/namespace/name`, to its owner and its pods.
        bound_pods: Namespace and name of the pods with a volume of one node, which wait for that node.
        taken_back: The systems that take back changes of workloads.
        unrestarted: Pods with device keys in spite of their opt-in, whose next ones get claims.
    """
    evicted = details.evicted.keys() - {key.workload for key in unrestarted}
    during = details.during
    of_hami = {
        name
        for entry in cluster.nodes
        if entry.source is Source.HAMI
        and (name := entry.node) in during
        and during[name].state is NodeState.PLUGIN
    }
    strays: set[str] = set()
    with_mig = {name for name, parts in cluster.sliced.items() if parts.mig_size}
    time_sliced = (cluster.sliced.keys() - with_mig) | _time_sliced(cluster, during)
    in_parts = pods_in_parts(cluster.workloads, cluster.state.pods, time_sliced)
    for names, place, offered, label in (
        (of_hami, "of HAMi", "shares", _HAMI_LABEL),
        (time_sliced, "with time slicing", "parts of GPUs", ""),
        (with_mig, "with MIG", "MIG devices", ""),
    ):
        sharing = [node for node in cluster.state.nodes if node.metadata.name in names]
        places = {
            workload.key.reference: frozenset[str]().union(
                *(
                    _places(cluster.state.pods.get(name), sharing, details.resources)
                    for name in workload.members.difference(bound_pods)
                )
            )
            for workload in cluster.workloads
            if workload.key.reference in evicted
            and (
                names is not time_sliced
                or in_parts.get(workload.key.reference, 0) < len(workload.members)
            )
        }
        own = [reference for reference, nodes in places.items() if nodes]
        if own:
            nodes = join_names(sorted(frozenset[str]().union(*places.values())))
            note = (
                f"evicted pods of {join_names(own)} may get a node {place} ({nodes}), which offers {offered} under the "
                f"name of {GPU}: {_cure(own, groups, label, taken_back)}; see strayWorkloads in plan.yaml"
            )
            wave = msgspec.structs.replace(wave, notes=(*wave.notes, note))
            strays.update(own)
    return msgspec.structs.replace(wave, stray_workloads=tuple(sorted(strays)))


def _time_sliced(cluster: AssessedCluster, during: Mapping[str, NodeUse]) -> frozenset[str]:
    """Return the nodes that offer each GPU several times while a wave is drained.

    A plan that gives whole GPUs to the pods there switches these nodes: until then they are places of parts for other pods.

    Args:
        cluster: The cluster.
        during: The systems of nodes while the wave is drained.
    """
    offering = {
        node.metadata.name for node in cluster.state.nodes if GPU in (node.status.allocatable or {})
    }
    return frozenset(
        entry.node
        for entry in cluster.nodes
        if entry.source is Source.DEVICE_PLUGIN
        and entry.replicas > 1
        and entry.node in offering
        and entry.node in during
        and during[entry.node].state is NodeState.PLUGIN
    )


def _cure(
    own: Iterable[str], groups: Mapping[str, Workload], affinity: str, taken_back: TakenBack
) -> str:
    """Return the ways to keep pods from nodes, as far as the controllers of the workloads follow them.

    Args:
        own: The workloads, as `Kind/namespace/name`.
        groups: Workload, as `Kind/namespace/name`, to its owner and its pods.
        affinity: A node affinity that those nodes do not have; empty if none is known.
        taken_back: The systems that take back changes of workloads.
    """
    example = f" (required, {affinity})" if affinity else ""
    text = (
        f"first give {_form_of_pods(own, groups)} a node affinity that leaves those nodes out{example}, or taint those nodes and let "
        "the pods that stay there, and the DaemonSets of device plugins and DRA drivers, tolerate it; each may move pods, so "
        "plan again from a new snapshot then"
    )
    text += taken_back.text(own, "the template")
    static_workloads = [
        reference
        for reference in own
        if (group := groups.get(reference)) is not None
        and group.owner is not None
        and not replaces_pods(group)
    ]
    if static_workloads:
        text += (
            f"; a change of the template reaches no pod of {join_names(static_workloads)} as it is (OnDelete, a partition, or a paused "
            "rollout): taint the nodes, or resume the rollout"
        )
    return text


def _form_of_pods(own: Iterable[str], groups: Mapping[str, Workload]) -> str:
    """Return the objects to change for the next pods of workloads."""
    texts: dict[str, None] = {}
    for reference in own:
        if not reference.startswith("Pod/"):
            texts["their templates"] = None
        elif reference in groups and any(
            is_hub_server(pod.document) for pod in groups[reference].pods
        ):
            texts[_HUB_FORM] = None
        else:
            texts["their manifests"] = None
    return " and ".join(texts)


def _places(
    pod: Pod | None, nodes: Iterable[Node], moments: Collection[Mapping[str, NodeResources]]
) -> frozenset[str]:
    """Return the nodes that kube-scheduler may place a pod of whole GPUs on, of some that offer shares.

    Args:
        pod: The pod; None if it is not known.
        nodes: These nodes.
        moments: Node to its CPU and memory at the moments at which the pod may look for a node.
    """
    if pod is None or pod.spec.scheduler_name not in {"", DEFAULT_SCHEDULER_NAME}:
        return frozenset()
    limits = [container.limits for container in pod.spec.containers or ()]
    if not any(GPU in names for names in limits) or any(map(_has_share, limits)):
        return frozenset()
    free = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
    request = pod_request(free)
    return frozenset(
        name
        for node in nodes
        if counted_rejection(free, node) is None
        for name in [node.metadata.name]
        if any(
            (room := resources.get(name)) is None or has_resources(request, room)
            for resources in moments
        )
    )


def _has_share(limits: Mapping[str, object]) -> bool:
    return not limits.keys().isdisjoint(OWN_KEYS)
