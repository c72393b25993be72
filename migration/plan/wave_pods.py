"""The pods that the drains of a wave evict, wait for, or stop at, told with its nodes. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from allocator.pods.node_eligibility import counted_rejection
from findings.finding import Code
from findings.text import count_text
from kube.api.core import Node, Pod
from kube.api.workloads import DAEMON_SET
from kube.names import DEFAULT_SCHEDULER_NAME
from migration.assessment.assess import AssessedCluster
from migration.assessment.node_devices import GPU, Source
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.assessment.workloads import Workload
from migration.plan.attempts import Candidate, join_names
from migration.plan.device_map import Course, Leaving, NodeState, WaveDetails
from migration.plan.evidence import Evidence
from migration.plan.model import Held, PlannedWork, PlannedWorkload, Wave
from migration.plan.other_pods import PodName
from migration.plan.placement import Placer, PodKey, Stage
from migration.plan.work import read_restart
from translation.vocabularies.hami.keys import OWN_KEYS

_ADD_REPLICA: Final = "raise maxUnavailable, lower minAvailable, or add a replica"
_BY_HAND: Final = frozenset({Code.POD_TEMPLATE_NOT_READ})
_NOT_KNOWN: Final = "whether it would find some on another node is not known"
_SOLVE: Final = "solve what assess reports of it, wait for it to end, or move it by hand"
_RUNS_UNSERVED: Final = "pods of {} run on it, and after their move no node would serve them"
_SERVE: Final = (
    "have a driver publish devices of that class on nodes that these pods may use, let them request a share of a "
    "device, or give them another node selector; then plan again from a new snapshot"
)
_NOT_WHOLE: Final = (
    "it cannot move as a whole, since no node would serve pods of {} after their move; other Deployments and "
    "StatefulSets of it move by themselves"
)


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
    """Return a node with the mark of work that its switch waits for; such nodes come last."""
    return msgspec.structs.replace(entry, has_work=any(item.waits for item in work))


def work_by_wave(
    waves: Sequence[Wave],
    details: Sequence[WaveDetails],
    work: Mapping[str, Sequence[PlannedWork]],
    evidence: Evidence,
    groups: Mapping[str, Workload],
) -> Iterator[tuple[PlannedWork, ...]]:
    """Yield the pods of each wave's nodes that lose something, in the order of its nodes.

    A drain moves pods to other nodes, and a restart does; what a later wave evicts is not what runs on its nodes
    today. Jobs and pods that run to their end are not restarted, and have ended when their node is drained.

    Args:
        waves: The waves, in their order.
        details: The details of each of them.
        work: Node to the pods that lose something when they are evicted, as of today.
        evidence: All pods of the cluster.
        groups: Workload, as `Kind/namespace/name`, to its owner and its pods.
    """
    keys = _keys(groups)
    ending = _ending(evidence)
    present = [item for items in work.values() for item in items]
    for wave, entry in zip(waves, details, strict=True):
        order = {node.name: number for number, node in enumerate(wave.nodes)}
        leaving = [item for item in present if item.node in order]
        yield tuple(sorted(leaving, key=lambda item: (order[item.node], item.pod)))
        restarted = {workload.object for workload in wave.workloads if workload.is_restarted}
        staying = [
            item for item in present if item.node not in order or not _runs_out(item, ending)
        ]
        present = [_after(item, entry, keys, order, restarted) for item in staying]


def with_leaving(
    details: WaveDetails,
    wave: Wave,
    work: Mapping[str, Sequence[PlannedWork]],
    evidence: Evidence,
    groups: Mapping[str, Workload],
) -> WaveDetails:
    """Return the details of a wave with the course of the pods that leave its nodes.

    A Job's pod is where it is today until its node is drained, whatever its place among devices is.

    Args:
        details: The details of the wave.
        wave: The wave with its work.
        work: Node to the pods that lose something when they are evicted, as of today.
        evidence: All pods of the cluster.
        groups: Workload, as `Kind/namespace/name`, to its owner and its pods.
    """
    keys, ending = _keys(groups), _ending(evidence)
    waiting: dict[Course, Counter[str]] = {Course.ASKS: Counter(), Course.ENDS: Counter()}
    for item in wave.work:
        key = keys.get(_name(item))
        if item.waits and key is not None:
            course = Course.ENDS if _runs_out(item, ending) else Course.ASKS
            waiting[course][key.workload] += 1
    running_out = {
        key.workload
        for items in work.values()
        for item in items
        if _runs_out(item, ending) and (key := keys.get(_name(item))) is not None
    }
    leaving = [
        Leaving(reference, pods - waiting[Course.ASKS][reference], _course(reference))
        for reference, pods in details.evicted.items()
        if reference not in running_out
    ]
    leaving += [
        Leaving(reference, pods, course)
        for course, counts in waiting.items()
        for reference, pods in sorted(counts.items())
    ]
    return msgspec.structs.replace(
        details, leaving=tuple(entry for entry in leaving if entry.pods > 0)
    )


def _course(reference: str) -> Course:
    """Return the course of pods that a drain meets, by the kind of their workload."""
    kind = reference.partition("/")[0]
    return {DAEMON_SET: Course.STAYS, "Pod": Course.BY_HAND}.get(kind, Course.MOVES)


def _keys(groups: Mapping[str, Workload]) -> dict[tuple[str, str], PodKey]:
    """Return namespace and name of each pod to its number in its workload."""
    return {
        (reference.split("/")[1], pod.name): PodKey(reference, number)
        for reference, group in groups.items()
        for number, pod in enumerate(group.pods)
    }


def _ending(evidence: Evidence) -> frozenset[tuple[str, str]]:
    """Return namespace and name of the pods that run to their end."""
    return frozenset(
        (pod.namespace, pod.name) for pods in evidence.pods.values() for pod in pods if pod.ends
    )


def _runs_out(item: PlannedWork, ending: Collection[tuple[str, str]]) -> bool:
    """Return whether a script waits for the end of a pod, which nothing creates again elsewhere."""
    return _name(item) in ending and item.pod_failure_policy != "Ignore"


def _after(
    item: PlannedWork,
    details: WaveDetails,
    keys: Mapping[tuple[str, str], PodKey],
    drained: Collection[str],
    restarted: Collection[str],
) -> PlannedWork:
    """Return a pod, or the one that is there in its place, after a wave."""
    key = keys.get(_name(item))
    is_restarted = key is not None and key.workload in restarted
    if item.node not in drained and not is_restarted:
        return item
    place = details.places.get(key) if key is not None else None
    node = place or details.other_places.get(PodName(*_name(item))) or item.node
    return msgspec.structs.replace(item, node=node, since="", moved=True)


def _name(item: PlannedWork) -> tuple[str, str]:
    _, namespace, name = item.pod.split("/", 2)
    return namespace, name


def with_pods(
    wave: Wave,
    work: tuple[PlannedWork, ...],
    evidence: Evidence,
    groups: Mapping[str, Workload],
) -> Wave:
    """Return a wave with the pods that lose work, those that run to their end, and notes on both.

    Args:
        wave: The wave, with its nodes and workloads.
        work: The pods of its nodes that lose something when they are evicted.
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
        work=work,
        workloads=tuple(
            msgspec.structs.replace(workload, ends=workload.object in ending)
            for workload in planned
        ),
        notes=(
            *wave.notes,
            *_work_notes(work),
            *_restart_notes(planned),
            *_daemon_notes(wave, groups),
            *_others_notes(wave),
        ),
    )


def _work_notes(work: Sequence[PlannedWork]) -> Iterator[str]:
    """Yield a note on each node with pods whose work its switch waits for."""
    for node in dict.fromkeys(item.node for item in work):
        names = [item.pod.partition("/")[2] for item in work if item.node == node and item.waits]
        if names:
            yield (
                f"node {node}: {count_text(len(names), 'pod')} would lose work: {join_names(names)}; switch.sh waits "
                "for them, or asks, see work in plan.yaml"
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


def waiting_notes(
    waiting: Mapping[str, Sequence[str]], namespaces: Collection[str], switched: Collection[str]
) -> Iterator[str]:
    """Yield notes for each DaemonSet of a wave that has pods on nodes with a device plugin.

    Args:
        waiting: DaemonSet to these nodes.
        namespaces: The namespaces that the wave opts in.
        switched: The nodes of all waves.
    """
    for workload, nodes in waiting.items():
        if workload.split("/")[1] not in namespaces:
            continue
        later = [node for node in nodes if node in switched]
        never = [node for node in nodes if node not in switched]
        if later:
            yield (
                f"{workload} is not restarted: on {join_names(later)} its pods keep the devices of the plugin until "
                "the node is switched, and one that ends before that waits for it"
            )
        if never:
            yield (
                f"no wave switches {join_names(never)}: pods of {workload} keep the devices of the plugin there, and "
                "one that ends gets none again before its node has changed hands; solve what holds these nodes first"
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


def held_by_pods(
    candidates: Iterable[Candidate],
    workloads: Iterable[AssessedWorkload],
    nodes_of: Mapping[str, Iterable[str]],
    evidence: Evidence,
) -> Iterator[Held]:
    """Yield the nodes that cannot be drained because of their pods, each with the first reason.

    Args:
        candidates: The nodes that could be switched.
        workloads: The cluster's workloads.
        nodes_of: Workload to the nodes of its pods.
        evidence: All pods of the cluster.
    """
    stuck: dict[str, AssessedWorkload] = {}
    for workload in workloads:
        if workload.result is None:
            for node in nodes_of[workload.key.reference]:
                stuck.setdefault(node, workload)
    for entry in candidates:
        reference, name = f"Node//{entry.node.name}", entry.node.name
        blocking = next(evidence.blocking_budgets(name), None)
        if blocking is not None:
            budget, pod = blocking
            text = f"PodDisruptionBudget {budget.namespace}/{budget.name} never allows the eviction of pod {pod.name}"
            yield Held(object=reference, reason=text, fix=_ADD_REPLICA)
        elif name in stuck:
            workload = stuck[name]
            text = f"a pod of {workload.key.reference} ({workload.outcome.value}) uses its devices, and "
            unread = next((entry for entry in workload.findings if entry.code in _BY_HAND), None)
            text += unread.detail if unread is not None else _NOT_KNOWN
            fix = unread.fix if unread is not None else _SOLVE
            yield Held(object=reference, reason=text, fix=fix)


def without_devices(
    workloads: Iterable[AssessedWorkload],
    placer: Placer,
    stage: Stage,
    nodes_of: Mapping[str, Sequence[str]],
) -> frozenset[str]:
    """Return the workloads that run, and would get claims of a driver that has devices on no node.

    Args:
        workloads: The cluster's workloads.
        placer: Has not placed those whose devices are neither published nor assumed.
        stage: The nodes and namespaces that have moved.
        nodes_of: Workload to the nodes of its pods.
    """
    return frozenset(
        reference
        for workload in workloads
        if (reference := workload.key.reference) in placer.not_counted
        and workload.outcome is not Outcome.NATIVE
        and workload.key.namespace not in stage.opted_in
        and reference not in stage.selected
        and any(nodes_of[reference])
    )


def held_unserved(
    unserved: Mapping[str, tuple[AssessedWorkload, str]],
    nodes_of: Mapping[str, Iterable[str]],
    candidates: Iterable[Candidate],
    namespaces: Iterable[str],
) -> Iterator[Held]:
    """Yield the workloads that no node would serve after their move, their nodes and their namespaces.

    Args:
        unserved: The workloads, as `Kind/namespace/name`, with the reason.
        nodes_of: Workload to the nodes that its pods run on.
        candidates: The nodes that could be switched.
        namespaces: The namespaces that could be opted in.
    """
    nodes: dict[str, list[str]] = {}
    owners: dict[str, list[str]] = {}
    for reference, (workload, reason) in unserved.items():
        yield Held(object=reference, reason=reason, fix=_SERVE)
        for node in nodes_of[reference]:
            nodes.setdefault(node, []).append(reference)
        if workload.outcome is not Outcome.NATIVE:
            owners.setdefault(workload.key.namespace, []).append(reference)
    for entry in candidates:
        if names := nodes.get(entry.node.name):
            text = _RUNS_UNSERVED.format(join_names(names))
            yield Held(object=f"Node//{entry.node.name}", reason=text, fix=_SERVE)
    for namespace in namespaces:
        if names := owners.get(namespace):
            text = _NOT_WHOLE.format(join_names(names))
            yield Held(object=f"Namespace//{namespace}", reason=text, fix=_SERVE)
