"""The pods that the drains of a wave evict, wait for, or stop at, told with its nodes. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from findings.finding import Code
from findings.text import count_text, join_names
from migration.assessment.outcomes import AssessedWorkload
from migration.cluster.evidence import RUN_TO_COMPLETION, Evidence, mapping_at
from migration.cluster.workloads import Workload
from migration.plan.facts.ready_pods import count_ready_pods, lacking_notes
from migration.plan.facts.rollouts import pod_selector, replaces_pods
from migration.plan.facts.work import ends_as_it_is, read_restart, without_ended
from migration.plan.model.plan import PlannedWork, PlannedWorkload, Wave
from migration.plan.search.device_map import WaveDetails
from migration.plan.search.moments import Candidate, NodeWork
from migration.plan.stage.other_pods import PodName, others_notes
from migration.plan.stage.stage import PodKey


def with_work(
    entry: Candidate, work: Iterable[PlannedWork], keys: Mapping[tuple[str, str], PodKey]
) -> Candidate:
    """Return a node with the work that its switch waits for; such nodes come last.

    Args:
        entry: The node.
        work: The pods of it that lose something when they are evicted, as of today.
        keys: Namespace and name of each pod with devices to its number in its workload.
    """
    return msgspec.structs.replace(
        entry,
        work=tuple(
            NodeWork(
                keys.get(pod_name(item)),
                item.never_ends,
                item.since,
                item.group,
            )
            for item in work
            if item.waits
        ),
    )


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
    keys = pod_keys(groups)
    ending = ending_names(evidence, work)
    present = [item for items in work.values() for item in items]
    for wave, entry in zip(waves, details, strict=True):
        order = {node.name: number for number, node in enumerate(wave.nodes)}
        leaving = [item for item in present if item.node in order]
        yield tuple(sorted(leaving, key=lambda item: (order[item.node], item.pod)))
        restarted = {
            workload.object
            for workload in wave.workloads
            if workload.is_restarted or _is_deleted(workload, ending)
        }
        ended = {item.pod for item in leaving if is_waited_out(item, ending)}
        staying = [without_ended(item, ended) for item in present if item.pod not in ended]
        present = [_after(item, entry, keys, order, restarted) for item in staying]


def ending_pods(
    work: Mapping[str, Sequence[PlannedWork]], evidence: Evidence, groups: Mapping[str, Workload]
) -> Mapping[PodKey, str]:
    """Return the pods that end before the drain of their node, with this node, and without successors.

    Args:
        work: Node to the pods that lose something when they are evicted, as of today.
        evidence: All pods of the cluster.
        groups: Workload, as `Kind/namespace/name`, to its owner and its pods.
    """
    keys, ending = pod_keys(groups), ending_names(evidence, work)
    return {
        key: node
        for node, items in work.items()
        for item in items
        if is_waited_out(item, ending) and not item.followed
        if (key := keys.get(pod_name(item))) is not None
    }


def pod_keys(groups: Mapping[str, Workload]) -> dict[tuple[str, str], PodKey]:
    """Return namespace and name of each pod to its number in its workload."""
    return {
        (reference.split("/")[1], pod.name): PodKey(reference, number)
        for reference, group in groups.items()
        for number, pod in enumerate(group.pods)
    }


def ending_names(
    evidence: Evidence, work: Mapping[str, Iterable[PlannedWork]]
) -> frozenset[tuple[str, str]]:
    """Return namespace and name of the pods that run to their end, also by that of their group.

    The worker of a RayJob has restartPolicy Always where its template names none, and ends with it.

    Args:
        evidence: All pods of the cluster.
        work: Node to the pods that lose something when they are evicted, as of today.
    """
    ending = {
        (pod.namespace, pod.name) for pods in evidence.pods.values() for pod in pods if pod.ends
    }
    of_groups = (
        pod_name(item)
        for items in work.values()
        for item in items
        if item.waits and not item.never_ends
    )
    return frozenset({*ending, *of_groups})


def is_waited_out(item: PlannedWork, ending: Collection[tuple[str, str]]) -> bool:
    """Return True if a script waits for the end of a pod that nothing creates again elsewhere."""
    return pod_name(item) in ending and item.pod_failure_policy != "Ignore"


def _is_deleted(workload: PlannedWorkload, ending: Collection[tuple[str, str]]) -> bool:
    """Return True if a person deletes a pod with its opt-in, and creates it again."""
    _, namespace, name = workload.object.split("/", 2)
    return workload.is_created_by_hand and (namespace, name) not in ending


def _after(
    item: PlannedWork,
    details: WaveDetails,
    keys: Mapping[tuple[str, str], PodKey],
    drained: Collection[str],
    restarted: Collection[str],
) -> PlannedWork:
    """Return a pod, or the one that is there in its place, after a wave."""
    key = keys.get(pod_name(item))
    is_restarted = key is not None and key.workload in restarted
    if item.node not in drained and not is_restarted:
        return item
    place = details.places.get(key) if key is not None else None
    node = place or details.other_places.get(PodName(*pod_name(item))) or item.node
    return msgspec.structs.replace(item, node=node, since="", moved=True)


def pod_name(item: PlannedWork) -> tuple[str, str]:
    """Return namespace and name of a pod."""
    _, namespace, name = item.pod.split("/", 2)
    return namespace, name


def with_pods(
    wave: Wave,
    work: tuple[PlannedWork, ...],
    evidence: Evidence,
    groups: Mapping[str, Workload],
    *,
    earlier: Sequence[Wave],
    others: Sequence[PodName],
) -> Wave:
    """Return a wave with the pods that lose work, those that run to their end, and notes on both.

    Args:
        wave: The wave, with its nodes and workloads.
        work: The pods of its nodes that lose something when they are evicted.
        evidence: All pods of the cluster.
        groups: Workload, as `Kind/namespace/name`, to its owner and its pods.
        earlier: The waves before it.
        others: The pods without devices that its drains evict.
    """
    wave = msgspec.structs.replace(wave, work=work)
    planned = tuple(_with_restart(workload, groups) for workload in wave.workloads)
    ending = {
        f"Pod/{pod.namespace}/{pod.name}"
        for pods in evidence.pods.values()
        for pod in pods
        if pod.ends and pod.controller in {"", "Pod"}
    }
    return msgspec.structs.replace(
        wave,
        workloads=tuple(
            msgspec.structs.replace(
                workload,
                ends=workload.object in ending or ends_as_it_is(groups.get(workload.object)),
            )
            for workload in planned
        ),
        notes=(
            *wave.notes,
            *_budget_notes(wave, evidence, earlier),
            *_work_notes(work),
            *_restart_notes(planned),
            *lacking_notes(planned, groups),
            *_daemon_notes(wave, groups),
            *others_notes(wave, others, work),
        ),
    )


def _budget_notes(wave: Wave, evidence: Evidence, earlier: Sequence[Wave]) -> Iterator[str]:
    """Yield a note on each PodDisruptionBudget that allows no eviction of pods of a wave's nodes today.

    Those that an earlier wave met are not named again: they allow some by now, or that wave has stopped.
    """
    met = {
        budget.now_text
        for entry in earlier
        for node in entry.nodes
        for budget, _ in evidence.exhausted_budgets(node.name)
    }
    pods: dict[tuple[str, str], list[str]] = {}
    for node in wave.nodes:
        for budget, blocked_pods in evidence.exhausted_budgets(node.name):
            if budget.now_text in met:
                continue
            pods.setdefault((budget.now_text, budget.now_fix), []).append(
                f"{blocked_pods[0].name} on {node.name}"
            )
    for (text, fix), names in pods.items():
        yield (
            f"{text.format(f'of pod {join_names(names)}')}: {fix}; preflight.sh stops at it, "
            "and switch.sh after ten minutes"
        )


def _work_notes(work: Sequence[PlannedWork]) -> Iterator[str]:
    """Yield a note on the pods that the switch of their node waits for, since they would lose work."""
    pods = [pod_place(item) for item in work if item.waits and not item.never_ends]
    if pods:
        them = "it" if len(pods) == 1 else "them"
        yield (
            f"{count_text(len(pods), 'pod')} would lose work: {join_names(pods)}; switch.sh waits for {them}, or asks, see "
            "README.md, or work in plan.yaml"
        )
    failing = [item for item in work if item.fails_job and item.ending]
    if failing:
        jobs = join_names(sorted({item.owner for item in failing}))
        ending = {
            f"{pod.partition('/')[2]} on {node}"
            for item in failing
            for pod, node in item.ending.items()
        }
        yield (
            f"one evicted pod fails {jobs}, and the other pods of the Job end with it, on whatever node: "
            f"{join_names(sorted(ending))}"
        )
    grouped: dict[str, list[PlannedWork]] = {}
    for item in work:
        if item.in_group:
            grouped.setdefault(item.owner, []).append(item)
    for owner, items in sorted(grouped.items()):
        yield (
            f"{owner} loses work with each pod of it that is evicted, all of it with its head, and never ends by itself: "
            f"{join_names([pod_place(item) for item in items])}; switch.sh asks without a wait: have its users end it, or "
            "evict them, see README.md"
        )
    if servers := [pod_place(item) for item in work if item.hub_server]:
        yield (
            f"{count_text(len(servers), 'server')} of users of JupyterHub would end: {join_names(servers)}; tell these users "
            "first, since what a server has in memory, as a kernel, ends with it; switch.sh asks without a wait: have them "
            "stop their servers, or evict these, see README.md"
        )
    endless = [
        pod_place(item)
        for item in work
        if item.never_ends and not item.in_group and not item.hub_server
    ]
    if endless:
        text = "1 pod never ends" if len(endless) == 1 else f"{len(endless)} pods never end"
        yield (
            f"{text} by itself, and asks not to be evicted: {join_names(endless)}; switch.sh asks without a wait: take "
            "the annotation off, or evict it, see README.md"
            if len(endless) == 1
            else f"{text} by themselves, and ask not to be evicted: {join_names(endless)}; switch.sh asks without a "
            "wait: take the annotation off, or evict them, see README.md"
        )
    if nodes := list(dict.fromkeys(item.node for item in work if item.waits)):
        them = "it" if len(nodes) == 1 else "them"
        yield (
            f"new pods, as of a Job or the head of a RayCluster, may get {join_names(nodes)} until switch.sh cordons {them}, "
            f"and are waited for or asked about, too: kubectl cordon {' '.join(nodes)} before this wave keeps them away, and "
            "leaves what is free there idle until then"
        )


def pod_place(item: PlannedWork) -> str:
    """Return the name of a pod with its node."""
    return f"{item.pod.partition('/')[2]} on {item.node}"


def _with_restart(workload: PlannedWorkload, groups: Mapping[str, Workload]) -> PlannedWorkload:
    """Return a workload with its ready pods, the losses of its restart, and the way to new pods."""
    if workload.object not in groups:
        return workload
    group = groups[workload.object]
    workload = msgspec.structs.replace(
        workload, ready_pods=count_ready_pods(group, workload.waiting)
    )
    if not workload.is_restarted:
        return workload
    restart = read_restart(group)
    return msgspec.structs.replace(
        workload,
        losses=restart.losses,
        asks=restart.asks,
        selector=pod_selector(group),
        on_delete=not replaces_pods(group),
    )


def _restart_notes(workloads: Sequence[PlannedWorkload]) -> Iterator[str]:
    """Yield a note on the workloads of a wave that a restart takes something from."""
    losing = [workload.object for workload in workloads if workload.losses]
    asking = [workload.object for workload in workloads if workload.asks]
    if losing:
        yield (
            f"the restart of {join_names(losing)} takes something from their pods, wherever they run: see README.md, or "
            "losses in plan.yaml"
        )
    if asking:
        yield (
            f"pods of {join_names(asking)} ask not to be evicted: switch.sh asks before it restarts them, and where they "
            "are left as they are, before it drains their node"
        )
    deleted = [workload.object for workload in workloads if workload.on_delete]
    if deleted:
        yield (
            f"no controller replaces the pods of {join_names(deleted)} (OnDelete, a partition, a paused rollout, or a "
            "ReplicaSet of its own): switch.sh and rollback.sh delete them one after another, each when the others are "
            "ready"
        )


def _daemon_notes(wave: Wave, groups: Mapping[str, Workload]) -> Iterator[str]:
    """Yield a note on each DaemonSet with pods that lose something if deleted on the wave's nodes."""
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


def with_kept_keys(
    wave: Wave, workloads: Iterable[AssessedWorkload], ending: Collection[PodKey]
) -> Wave:
    """Return a wave with a note on workloads that keep device keys beside their claims.

    Args:
        wave: The wave.
        workloads: The workloads of the cluster.
        ending: The pods that a script waits for, and that nothing creates again.
    """
    moving = {workload.object for workload in wave.workloads}
    ending_count = Counter(key.workload for key in ending)
    names = [
        reference
        for workload in workloads
        if Code.KEPT_BESIDE_CLAIMS.value in workload.codes
        and (reference := workload.key.reference) in moving
        and not 0 < workload.pods <= ending_count[reference]
    ]
    if not names:
        return wave
    note = (
        f"{join_names(names)}: pods keep device keys beside claims (translation.keep); new ones get both on one node, and "
        "nothing aligns these devices by PCIe root or NUMA node"
    )
    return msgspec.structs.replace(wave, notes=(*wave.notes, note))


def with_starting(wave: Wave, details: WaveDetails, groups: Mapping[str, Workload]) -> Wave:
    """Return a wave with a note on pods of Jobs that wait today, and that may start with it.

    Args:
        wave: The wave.
        details: The pods that start with it.
        groups: Workload, as `Kind/namespace/name`, to its owner and its pods.
    """
    nodes = {node.name for node in wave.nodes}
    places: dict[str, set[str]] = {}
    for key, place in details.starting.items():
        pods = groups[key.workload].pods if key.workload in groups else ()
        spec = mapping_at(pods[key.number].document, "spec") if key.number < len(pods) else {}
        if place in nodes and spec.get("restartPolicy") in RUN_TO_COMPLETION:
            places.setdefault(key.workload, set()).add(place)
    notes = (
        f"{reference} waits for devices today, and may start on {join_names(sorted(own))} once that is switched: "
        "rollback.sh waits for its end then, or asks"
        for reference, own in places.items()
    )
    return msgspec.structs.replace(wave, notes=(*wave.notes, *notes))


def replaced_pods(
    evidence: Evidence,
    workloads: Iterable[AssessedWorkload],
    work: Mapping[str, Iterable[PlannedWork]],
) -> frozenset[PodName]:
    """Return the pods without devices that a controller creates again when a drain evicts them.

    No script evicts those that run to their end before they have, and a drain stops at those without a controller.

    Args:
        evidence: All pods of the cluster.
        workloads: Its workloads.
        work: Node to the pods that lose something when they are evicted, as of today.
    """
    ending = ending_names(evidence, work)
    members = frozenset(member for workload in workloads for member in workload.members)
    return frozenset(
        name
        for node in evidence.pods
        for pod in evidence.leaving(node)
        if pod.controller
        if (name := PodName(pod.namespace, pod.name)) not in members and name not in ending
    )
