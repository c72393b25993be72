"""The pods that the drains of a wave evict, wait for, or stop at, told with its nodes. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from allocator.pods.node_eligibility import counted_rejection
from findings.text import count_text
from kube.api.core import Node, Pod
from kube.names import DEFAULT_SCHEDULER_NAME
from migration.assessment.assess import AssessedCluster
from migration.assessment.node_devices import GPU, Source
from migration.assessment.outcomes import AssessedWorkload
from migration.assessment.workloads import Workload
from migration.plan.attempts import Candidate, join_names
from migration.plan.device_map import NodeState, WaveDetails
from migration.plan.evidence import Evidence
from migration.plan.model import PlannedWork, PlannedWorkload, Wave
from migration.plan.other_pods import PodName
from migration.plan.work import read_restart
from translation.vocabularies.hami.keys import OWN_KEYS


def with_bare_pods(entry: Candidate, evidence: Evidence) -> Candidate:
    """Return a node with a note on pods that `kubectl drain` does not evict."""
    names = [f"{pod.namespace}/{pod.name}" for pod in evidence.bare_pods(entry.node.name)]
    if not names:
        return entry
    note = (
        f"node {entry.node.name}: nothing creates {join_names(names)} again, and kubectl drain stops at such "
        "pods: delete them first, and apply their manifests after the wave"
    )
    return msgspec.structs.replace(entry, notes=(*entry.notes, note))


def with_work(entry: Candidate, work: Sequence[PlannedWork]) -> Candidate:
    """Return a node with a note on pods whose work its switch waits for; such nodes come last."""
    names = [item.pod.partition("/")[2] for item in work if item.waits]
    if not names:
        return entry
    pods = "1 pod" if len(names) == 1 else f"{len(names)} pods"
    note = (
        f"node {entry.node.name}: {pods} would lose work: {join_names(names)}; switch.sh waits for them, or "
        "asks, see work in plan.yaml"
    )
    return msgspec.structs.replace(entry, notes=(*entry.notes, note), has_work=True)


def with_pods(
    wave: Wave,
    work: Mapping[str, Sequence[PlannedWork]],
    evidence: Evidence,
    groups: Mapping[str, Workload],
) -> Wave:
    """Return a wave with the pods that lose work, those that run to their end, and notes on both.

    Args:
        wave: The wave, with its nodes and workloads.
        work: Node to the pods that lose something when they are evicted.
        evidence: All pods of the cluster.
        groups: Workload, as `Kind/namespace/name`, to its owner and its pods.
    """
    planned = tuple(_with_restart(workload, groups) for workload in wave.workloads)
    ending = {
        f"Pod/{pod.namespace}/{pod.name}"
        for pods in evidence.pods.values()
        for pod in pods
        if pod.ends and not pod.controller
    }
    return msgspec.structs.replace(
        wave,
        work=tuple(item for node in wave.nodes for item in work.get(node.name, ())),
        workloads=tuple(
            msgspec.structs.replace(workload, ends=workload.object in ending)
            for workload in planned
        ),
        notes=(
            *wave.notes,
            *_restart_notes(planned),
            *_daemon_notes(wave, groups),
            *_others_notes(wave),
        ),
    )


def _with_restart(workload: PlannedWorkload, groups: Mapping[str, Workload]) -> PlannedWorkload:
    """Return a workload with the losses of its restart."""
    if not workload.is_restarted or workload.object not in groups:
        return workload
    restart = read_restart(groups[workload.object])
    return msgspec.structs.replace(workload, losses=restart.losses, asks=restart.asks)


def _restart_notes(workloads: Sequence[PlannedWorkload]) -> Iterator[str]:
    """Yield a note on the workloads of a wave that a restart takes something from."""
    losing = [workload.object for workload in workloads if workload.losses]
    asking = [workload.object for workload in workloads if workload.asks]
    if losing:
        yield (
            f"the restart of {join_names(losing)} takes something from their pods, wherever they run: see losses in "
            "plan.yaml"
        )
    if asking:
        yield f"pods of {join_names(asking)} ask not to be evicted: switch.sh asks before it restarts them"


def _daemon_notes(wave: Wave, groups: Mapping[str, Workload]) -> Iterator[str]:
    """Yield a note on each DaemonSet whose pods lose something when they are deleted on the wave's nodes."""
    nodes_of: dict[str, list[str]] = {}
    for node in wave.nodes:
        for entry in node.daemon_sets:
            nodes_of.setdefault(entry.reference, []).append(node.name)
    for reference, nodes in nodes_of.items():
        losses = read_restart(groups[reference]).losses if reference in groups else ()
        if losses:
            yield (
                f"pods of {reference} are deleted on {join_names(nodes)} when the node has changed hands: "
                f"{'; '.join(losses)}"
            )


def with_strays(wave: Wave, details: WaveDetails, cluster: AssessedCluster) -> Wave:
    """Return a wave with a note on pods of whole GPUs that may get a node of HAMi.

    HAMi offers shares under the resource name of whole GPUs, and kube-scheduler looks at the name. On a node of a
    device plugin such pods run today; HAMi's webhook does not know them, or they would have its scheduler.

    Args:
        wave: The wave.
        details: The pods that it evicts, and the systems of nodes while they are drained.
        cluster: The cluster.
    """
    of_hami = {entry.node for entry in cluster.nodes if entry.source is Source.HAMI}
    during = details.during
    sharing = [
        node
        for node in cluster.state.nodes
        if (name := node.metadata.name) in of_hami
        and name in during
        and during[name].state is NodeState.PLUGIN
    ]
    names = [
        workload.key.reference
        for workload in cluster.workloads
        if workload.key.reference in details.evicted
        and any(_may_stray(cluster.state.pods.get(name), sharing) for name in workload.members)
    ]
    if not names:
        return wave
    nodes = join_names([node.metadata.name for node in sharing])
    note = (
        f"evicted pods of {join_names(names)} may get a node of HAMi ({nodes}), which offers shares under the name of "
        f"{GPU}: give them a node selector, or taint those nodes, first; see strayWorkloads in plan.yaml"
    )
    return msgspec.structs.replace(wave, notes=(*wave.notes, note), stray_workloads=tuple(names))


def _may_stray(pod: Pod | None, nodes: Iterable[Node]) -> bool:
    """Return whether kube-scheduler may place a pod of whole GPUs on one of some nodes that offer shares."""
    if pod is None or pod.spec.scheduler_name not in {"", DEFAULT_SCHEDULER_NAME}:
        return False
    limits = [container.limits for container in pod.spec.containers or ()]
    if not any(GPU in names for names in limits) or any(map(_has_share, limits)):
        return False
    free = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
    return any(counted_rejection(free, node) is None for node in nodes)


def _has_share(limits: Mapping[str, object]) -> bool:
    return not limits.keys().isdisjoint(OWN_KEYS)


def replaced_pods(evidence: Evidence, workloads: Iterable[AssessedWorkload]) -> frozenset[PodName]:
    """Return the pods without devices that a controller creates again when a drain evicts them.

    No script evicts those that run to their end before they have, and a drain stops at those without a controller.
    """
    members = frozenset(member for workload in workloads for member in workload.members)
    return frozenset(
        name
        for node in evidence.pods
        for pod in evidence.leaving(node)
        if pod.controller and not pod.ends
        if (name := PodName(pod.namespace, pod.name)) not in members
    )


def _others_notes(wave: Wave) -> Iterator[str]:
    """Yield a note on the pods without devices that the drains of a wave evict."""
    if not wave.evicted_others:
        return
    text = f"its drains evict {count_text(wave.evicted_others, 'pod')} without devices, too"
    if not wave.unplaced_pods:
        yield f"{text}; other nodes have the CPU and memory for them"
        return
    names = join_names([pod.partition("/")[2] for pod in wave.unplaced_pods])
    yield (
        f"{text}; no other node takes {names}, or has the CPU and memory: until a node of the wave is back they wait, "
        "see unplacedPods in plan.yaml"
    )
