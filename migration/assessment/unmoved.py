"""The pods that nothing here moves, and labels of namespaces before their time, as blockers with `plan`'s reasons. Pure."""

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from allocator.model.feature_gates import Features
from allocator.pods.node_eligibility import is_eligible
from answers.cluster.device_classes import select_devices
from answers.cluster.devices import published_devices
from answers.cluster.uses import node_of
from findings.finding import Code
from findings.text import count_text, join_names
from kube.api.core import Pod, Toleration
from kube.manifests.source import SourceObject
from kube.names import REQUEST_ANNOTATION, TRANSLATE_LABEL
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.blockers import NOT_PLACED, Blocker
from migration.assessment.capacity import (
    Capacity,
    class_names,
    nics_of,
    untranslated_names,
    usable_classes,
    without_devices,
)
from migration.assessment.outcomes import AssessedWorkload, Outcome, translated_pod
from migration.assessment.unserved import LackingClasses, serve_fix, unserved_text
from migration.cluster.evidence import text_map
from migration.cluster.node_devices import Source
from migration.cluster.owners import OwnerKey, kind_of
from migration.legacy.kai_webhook import (
    KAI_WEBHOOK,
    KaiPods,
    find_kai_pods,
    find_kai_webhook,
    leave_kai_webhook,
    staying_with_kai,
)
from migration.legacy.kept_names import NamesInUse
from migration.legacy.pod_sources import scheduler_of
from translation.vocabularies.kai import SHARED_CONFIG_MAP

_BY_HAND: Final = frozenset({Code.POD_TEMPLATE_NOT_READ, Code.OPTED_OUT})
_EVERY_TAINT: Final = Toleration(operator="Exists")
_NOT_KNOWN: Final = "whether it would find some on another node is not known"
_OF_SCHEDULER: Final = "its scheduler gives it what its annotations request, and keeps it by translation.adoptSchedulers, so it gets no claim"
_SOLVE: Final = "solve what assess reports of it, wait for it to end, or move it by hand"
_SOLVE_SERVICE: Final = "solve what assess reports of it, or move it by hand"
_SERVICES: Final = frozenset({"Deployment", "StatefulSet", "DaemonSet"})
"""Kinds whose pods do not end by themselves."""
_KEEP: Final = "leave {} with its device plugin by translation.keep of the settings"
_UNSERVED: Final = "{}; with claims no node would serve them: none would have devices of {}"
_KAI_WEBHOOK: Final = "kaiWebhook"
_IN_PLAN: Final = "where a wave of plan says so, and {}"
_DIVISIBLE: Final = frozenset({"Deployment", "StatefulSet"})
"""Kinds that get claims by themselves, before the rest of their namespace."""
_PUBLISH: Final = "have a driver publish devices of that class first; then {}"


def unmoved_text(workload: AssessedWorkload, lacking: Sequence[str]) -> tuple[str, str]:
    """Return the reason that nothing here moves pods with devices, and the fix.

    Args:
        workload: A workload without a translation.
        lacking: The DeviceClasses of its next claims that no node has devices of.
    """
    cause = next((entry for entry in workload.findings if entry.code in _BY_HAND), None)
    if _stays_with_scheduler(workload):
        return _OF_SCHEDULER, workload.fix
    if cause is None:
        return _NOT_KNOWN, _solving(workload)
    if cause.code is Code.OPTED_OUT:
        return f"is {cause.detail}", cause.fix
    if not lacking:
        return cause.detail, cause.fix
    names = nics_of(workload)
    fix = (
        f"{_KEEP.format(join_names(names))} first, and plan again from a new snapshot"
        if names
        else _PUBLISH.format(cause.fix)
    )
    return _UNSERVED.format(cause.detail, join_names(lacking)), fix


def check_unmoved(cluster: AssessedCluster, proposed: Collection[str]) -> Iterator[Blocker]:
    """Yield a blocker for each reason of `plan` to hold nodes, or namespaces, of unmoved pods.

    Args:
        cluster: The cluster.
        proposed: The workloads that a kept name lets move.
    """
    nodes = {node.node for node in cluster.nodes if node.legacy}
    names_of: dict[tuple[str, str, str], list[str]] = {}
    for workload in cluster.workloads:
        reference = workload.key.reference
        # Those that would be rejected are blockers by their codes.
        if not _is_left(workload) or _is_chosen(workload) or reference in proposed:
            continue
        if places := _kept_places(workload, cluster.state.pods, nodes):
            cause, fix = unmoved_text(workload, cluster.unserved_next.get(reference, ()))
            live = (cluster.state.pods.get(name) for name in workload.members)
            verb = "uses" if any(pod and pod.spec.node_name for pod in live) else "requests"
            message = f"a pod {verb} devices, and {cause}; plan holds {' and '.join(places)}"
            codes = (code for code in workload.codes if code in _BY_HAND)
            code = next(codes, next(iter(workload.codes), workload.outcome.value))
            names_of.setdefault((code, message, fix), []).append(reference)
    for (code, message, fix), names in names_of.items():
        yield Blocker(code=code, message=message, fix=fix, objects=tuple(names))


def _is_left(workload: AssessedWorkload) -> bool:
    """Return True for a workload that keeps its keys; those that would be rejected are blockers by their codes."""
    return workload.result is None and workload.outcome is not Outcome.REFUSED


def _is_chosen(workload: AssessedWorkload) -> bool:
    """Return True if pods keep their keys since somebody chose so, by a label that is told first or for their scheduler."""
    cause = next((entry for entry in workload.findings if entry.code in _BY_HAND), None)
    is_opted_out = cause is not None and cause.code is Code.OPTED_OUT
    return is_opted_out or _stays_with_scheduler(workload)


def _stays_with_scheduler(workload: AssessedWorkload) -> bool:
    """Return True if the settings leave pods with shares to the scheduler that gives them these."""
    return workload.codes == (Code.FOREIGN_SCHEDULER.value,)


def staying_notes(cluster: AssessedCluster, unselected: Mapping[str, int]) -> Iterator[Blocker]:
    """Yield notes on pods that stay as they are, since somebody chose so, or since no node takes them today, either.

    Args:
        cluster: The cluster.
        unselected: The pods of `find_unselected`.
    """
    yield from _chosen_notes(cluster)
    if unselected:
        number = sum(unselected.values())
        verb = "waits" if number == 1 else "wait"
        yield Blocker(
            code=NOT_PLACED,
            message=f"{count_text(number, 'pod')} that no node would serve {verb} today, too, since no node "
            "has the labels that they select, and plan holds nothing for them",
            fix="give them another node selector, or add nodes with these labels",
            objects=tuple(unselected),
        )


def _chosen_notes(cluster: AssessedCluster) -> Iterator[Blocker]:
    """Yield a note for each reason that pods stay as they are because somebody chose so, with their nodes.

    The fix of other blockers is to set that label, or that setting.
    """
    nodes = {node.node for node in cluster.nodes if node.legacy}
    names_of: dict[tuple[Code, str, str], list[str]] = {}
    for workload in filter(_is_chosen, filter(_is_left, cluster.workloads)):
        if _kept_places(workload, cluster.state.pods, nodes):
            is_of_scheduler = _stays_with_scheduler(workload)
            code = Code.FOREIGN_SCHEDULER if is_of_scheduler else Code.OPTED_OUT
            text = unmoved_text(workload, ())
            names_of.setdefault((code, *text), []).append(workload.key.reference)
    for (code, cause, fix), names in names_of.items():
        yield Blocker(
            code=code.value,
            message=f"a pod uses devices, and {cause}; it stays as it is, and so does its node",
            fix=fix,
            objects=tuple(names),
        )


def _kept_places(
    workload: AssessedWorkload, all_pods: Mapping[tuple[str, str], Pod], nodes: Collection[str]
) -> list[str]:
    """Return the words for the held objects of unmoved pods.

    Args:
        workload: Their workload.
        all_pods: The pods of the cluster by namespace and name.
        nodes: The nodes with devices of a legacy system.
    """
    pods = [pod for name in workload.members if (pod := all_pods.get(name))]
    is_on_node = any(pod.spec.node_name in nodes for pod in pods)
    # A pod with claims has moved.
    gets_claims = workload.gets_claims and not all(pod.spec.resource_claims for pod in pods)
    return [*(["its node"] if is_on_node else []), *(["its namespace"] if gets_claims else [])]


def _solving(workload: AssessedWorkload) -> str:
    """Return the fix for a workload with pods that would be rejected; names without a translation may stay beside others."""
    names = dict.fromkeys(untranslated_names(workload.findings)) if workload.keys else {}
    solve = _SOLVE_SERVICE if workload.key.kind in _SERVICES else _SOLVE
    return f"{_KEEP.format(join_names(list(names)))}, or {solve}" if names else solve


def check_kept_names(names_in_use: Mapping[str, NamesInUse]) -> Iterator[Blocker]:
    """Yield a blocker for each reason of `plan` to hold nodes with kept names in use.

    Args:
        names_in_use: Node to the names, as of `find_names_in_use`.
    """
    nodes_of: dict[NamesInUse, list[str]] = {}
    for name, entry in sorted(names_in_use.items()):
        nodes_of.setdefault(entry, []).append(f"Node//{name}")
    for entry, nodes in nodes_of.items():
        yield Blocker(
            code="keptNameInUse", message=entry.reason, fix=entry.fix, objects=tuple(nodes)
        )


# --- pods without devices for their claims ----------------------------------------


def staying_nodes(cluster: AssessedCluster) -> dict[str, set[str]]:
    """Return workload to the nodes of its pods, of those that run on nodes that stay with their device plugin alone.

    They would leave them for claims. The label that leaves pods out would hold the other nodes of further workloads.
    """
    remaining, pods = cluster.remaining.nodes.keys(), cluster.state.pods
    nodes_of = {
        workload.key.reference: {
            pods[name].spec.node_name for name in workload.members & pods.keys()
        }
        - {""}
        for workload in cluster.workloads
        if remaining and workload.outcome is not Outcome.NATIVE
    }
    return {name: nodes for name, nodes in nodes_of.items() if nodes and nodes <= remaining}


def check_uncounted(
    cluster: AssessedCluster,
    capacity: Capacity,
    keys_on: Mapping[str, Collection[str]],
    staying: Mapping[str, Collection[str]],
) -> Iterator[Blocker]:
    """Yield a blocker for each class of devices on no node that running pods would need.

    Workloads that move with a kept name are proposed with it.

    Args:
        cluster: The cluster.
        capacity: The pods that were placed.
        keys_on: Node to the keys of its devices of a legacy system.
        staying: Workload to its nodes of `staying_nodes`.
    """
    names_of: dict[tuple[str, str], list[str]] = {}
    uncounted = set(capacity.not_counted).difference(*capacity.keys_to_keep.values())
    nodes_of = _nodes_of_pods(cluster)
    usable: frozenset[str] | None = None
    for workload in without_devices(cluster.workloads, uncounted, nodes_of, keys_on):
        name = workload.key.reference
        if usable is None:
            usable = usable_classes(cluster.state.classes, cluster.state.cluster(Features()))
        lacking = LackingClasses(class_names(workload) - usable)
        message = f"{unserved_text(workload, lacking, 'pods')}; plan holds them and their nodes"
        fix = serve_fix(workload, lacking, staying.get(name, ()))
        names_of.setdefault((message, fix), []).append(name)
    for (message, fix), names in names_of.items():
        yield Blocker(code=NOT_PLACED, message=message, fix=fix, objects=tuple(names))


def find_unselected(cluster: AssessedCluster, unserved: Collection[str]) -> dict[str, int]:
    """Return workload to its pods that wait today, and go on to wait: no node has the labels that they select.

    Args:
        cluster: The cluster.
        unserved: The workloads that no node would serve, however empty it was.
    """
    unselected: dict[str, int] = {}
    for workload in cluster.workloads:
        if workload.key.reference not in unserved:
            continue
        pods = [pod for name in workload.members if (pod := cluster.state.pods.get(name))]
        selecting = [
            msgspec.structs.replace(
                pod, spec=msgspec.structs.replace(pod.spec, tolerations=(_EVERY_TAINT,))
            )
            for pod in pods
        ]
        if pods and not any(
            pod.spec.node_name or any(is_eligible(pod, node) for node in cluster.state.nodes)
            for pod in selecting
        ):
            unselected[workload.key.reference] = len(pods)
    return unselected


def without_unplaced(capacity: Capacity, names: Collection[str]) -> Capacity:
    """Return the placed pods without a word of some workloads that were not placed."""
    unplaced = {name: pods for name, pods in capacity.unplaced.items() if name not in names}
    return msgspec.structs.replace(capacity, unplaced=unplaced)


def _nodes_of_pods(cluster: AssessedCluster) -> dict[str, list[str]]:
    """Return workload, as `Kind/namespace/name`, to the nodes of its pods without claims; one with claims has moved."""
    pods = cluster.state.pods
    return {
        workload.key.reference: [
            pods[name].spec.node_name
            for name in sorted(workload.members & pods.keys())
            if not pods[name].spec.resource_claims
        ]
        for workload in cluster.workloads
    }


# --- labels before the first wave -----------------------------------------------------------------


def check_early(cluster: AssessedCluster) -> Iterator[Blocker]:
    """Yield a blocker for namespaces with a label that is of use to nobody yet.

    No pod has claims by it, and no node with a DRA driver has devices for any of their workloads: new pods wait.

    Args:
        cluster: The assessed cluster.
    """
    own: dict[str, list[AssessedWorkload]] = {}
    for workload in cluster.workloads:
        labels = cluster.state.namespaces.get(workload.key.namespace, {})
        is_moving = workload.result is not None and workload.outcome is not Outcome.NATIVE
        if labels.get(TRANSLATE_LABEL) == "true" and is_moving:
            own.setdefault(workload.key.namespace, []).append(workload)
    with_keys = {name for workload in cluster.workloads for name in workload.members}
    with_claims = {
        name[0]
        for name, pod in cluster.state.pods.items()
        if pod.spec.resource_claims
        and (name in with_keys or REQUEST_ANNOTATION in (pod.metadata.annotations or {}))
    }
    published_classes = _published_classes(cluster) if own.keys() - with_claims else frozenset()
    names = [
        name
        for name, workloads in sorted(own.items())
        if name not in with_claims
        and not any(class_names(workload) <= published_classes for workload in workloads)
    ]
    if names:
        yield Blocker(
            code="optedInEarly",
            message=f"{early_text(names)}, and no node with a DRA driver has devices for them: new pods would wait",
            fix=remove_label(names),
            objects=tuple(f"Namespace//{name}" for name in names),
        )


def _published_classes(cluster: AssessedCluster) -> frozenset[str]:
    """Return the DeviceClasses of devices that drivers publish today."""
    nodes = {node.node for node in cluster.nodes if node.source is Source.DRA}
    devices = published_devices(cluster.state.cluster(Features())) if nodes else ()
    selected = select_devices(
        cluster.state.classes, [device for device in devices if node_of(device) in nodes]
    )
    return frozenset(name for name, own in selected.items() if own)


def early_text(namespaces: Sequence[str]) -> str:
    """Return the text about the labels of namespaces without a pod that has claims."""
    label = "namespace" if len(namespaces) == 1 else "namespaces"
    return f"no pod has claims yet by the label of {label} {join_names(namespaces)}"


def remove_label(namespaces: Iterable[str]) -> str:
    """Return the way back from a label that opts in before any pod has claims by it."""
    commands = [
        shlex.join(("kubectl", "label", "namespace", name, f"{TRANSLATE_LABEL}-"))
        for name in namespaces
    ]
    return (
        f"take the label off ({'; '.join(commands)}), so that new pods have device keys until a wave opts them in; then plan again "
        "from a new snapshot"
    )


# --- shares that KAI's webhook changes ------------------------------------------------------------


def read_kai_pods(
    objects: Sequence[SourceObject], workloads: Sequence[AssessedWorkload], namespace: str
) -> KaiPods:
    """Return the pods of KAI in the namespaces of a cluster with shares that its webhook changes.

    Args:
        objects: The cluster's objects.
        workloads: Its workloads with devices.
        namespace: The namespace for objects that name none.
    """
    changed = frozenset(key.reference for key in _find_changed_by_kai(objects, workloads))
    if not changed:
        return KaiPods()
    next_schedulers = {
        workload.key.reference: scheduler_of(translated_pod(workload.result))
        for workload in workloads
        if workload.result is not None and workload.outcome is not Outcome.NATIVE
    }
    return find_kai_pods(objects, changed, next_schedulers, namespace)


def _find_changed_by_kai(
    objects: Sequence[SourceObject], workloads: Iterable[AssessedWorkload]
) -> list[OwnerKey]:
    """Return the workloads that get claims, and with shares that KAI's webhook changes, and goes on with.

    Live pods of any namespace show it, and workloads without live pods have their shares by their templates.
    """
    annotations = (
        text_map(source.document, "metadata", "annotations")
        for source in objects
        if source.kind == "Pod"
    )
    if not any(SHARED_CONFIG_MAP in own for own in annotations):
        return []
    webhook = find_kai_webhook(objects)
    return [
        workload.key
        for workload in workloads
        if workload.result is not None
        and workload.outcome is not Outcome.NATIVE
        and webhook.changes(workload.key.namespace)
        and (
            not webhook.pods.isdisjoint(workload.members)
            or (not workload.members and webhook.changes_pods_of(workload.result.source))
        )
    ]


def kai_webhook_texts(
    kai_pods: KaiPods, workloads: Iterable[AssessedWorkload], blockers: Iterable[Blocker]
) -> tuple[list[Blocker], list[Blocker]]:
    """Return the blockers and the notes about workloads with shares of KAI.

    KAI has to leave their namespace before it is opted in, which is a blocker where other pods of it stay there.

    Args:
        kai_pods: The pods of KAI.
        workloads: The workloads of the cluster with devices.
        blockers: The blockers of the cluster, some of them about workloads that no node would serve.
    """
    unplaced = {name for entry in blockers if entry.code == NOT_PLACED for name in entry.objects}
    # Their namespace moves in parts, and other kinds than these with the whole of it alone.
    partial = {
        workload.key.namespace
        for workload in workloads
        if workload.key.reference in unplaced and workload.outcome is not Outcome.NATIVE
    }
    staying = {
        name
        for name in kai_pods.leaving
        if name.split("/")[1] in partial and kind_of(name) not in _DIVISIBLE
    }
    shares: dict[tuple[str, ...], list[str]] = {}
    # Those that no node serves are blockers already, and plan holds them for that.
    for name in sorted(kai_pods.changed - unplaced):
        others = kai_pods.staying_beside(name, kai_pods.leaving - unplaced - staying)
        shares.setdefault(others, []).append(name)
    alone = shares.pop((), [])
    stopped_namespaces = {name.split("/")[1] for own in shares.values() for name in own}
    # One that no node serves may be the reason that the others stay.
    leaving = [name for name in alone if name.split("/")[1] not in stopped_namespaces]
    stopped = [
        Blocker(
            code=_KAI_WEBHOOK,
            message=f"{reason}; plan holds them and their nodes",
            fix=fix,
            objects=tuple(own),
        )
        for others, own in shares.items()
        for reason, fix in [staying_with_kai(others)]
    ]
    if not leaving:
        return stopped, []
    fix = _IN_PLAN.format(leave_kai_webhook(sorted({name.split("/")[1] for name in leaving})))
    objects = tuple(leaving)
    return stopped, [Blocker(code=_KAI_WEBHOOK, message=KAI_WEBHOOK, fix=fix, objects=objects)]
