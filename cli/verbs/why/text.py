"""Explanations of pods, claims and workloads as text, with a map of the devices."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from allocator.cluster.cluster import Cluster
from allocator.model.outcome import Reason
from allocator.model.usage import Usage
from allocator.simulation.pending_cause import Cause
from answers.cluster.pending_workload import PodsTogether, WorkloadStatus
from answers.cluster.uses import describe_offers
from answers.cluster.why import Condition, ObjectStatus
from answers.model.cluster_state import ClusterState
from cli.output import simulate_text
from cli.output.device_map import device_map
from cli.output.layout import Paragraph, Row, drop_repeated_labels, format_paragraph
from findings.text import count_text

_CONSUMERS_SHOWN: Final = 5
_HELD_SHOWN: Final = 10
_NAMES_SHOWN: Final = 3
_FAILURES_SHOWN: Final = 3
"""Reasons that pods are not created; old ReplicaSets have some, too."""
_TRIED: Final = frozenset(
    {"", Reason.GROUP_DOES_NOT_FIT, Reason.BUDGET_EXHAUSTED, Reason.ATTEMPT_FAILED}
)
"""Codes of groups that were tried on nodes; all others wait for something else."""
_CAUSES: Final[Mapping[Cause | None, str]] = {
    Cause.NODE_NOT_ELIGIBLE: "pending: nodes with free devices do not take it",
    Cause.INSUFFICIENT_RESOURCE: "pending: nodes with free devices have too little of other resources",
    Cause.CLAIM_MISSING: "pending: a claim or template that it names does not exist",
}


class Explained(NamedTuple):
    """The state of a pod or claim, the cluster with its placement, and the usage before that."""

    status: ObjectStatus
    cluster: Cluster
    before: Usage


def lacks_known_nodes(unread: Collection[str], state: ClusterState) -> bool:
    """Return True if no node is known, only since nodes may not be listed."""
    return "nodes" in unread and not state.nodes


def format_workload(
    workload: WorkloadStatus, answers: Sequence[Explained], state: ClusterState, width: int
) -> Iterator[str]:
    """Yield a summary, then a block for each group of pending pods."""
    number = workload.not_explained + sum(len(group.pods) for group in workload.pending)
    together = workload.together
    text = f"{number} of {count_text(workload.pods, 'pod')} pending"
    status = text if together is None else _new_pods(together)
    rows = list(_status_rows(status, workload.denial))
    rows += [
        Row(label="pending", text=f"{count_text(len(group.pods), 'pod')}: {_names(group.pods)}")
        for group in workload.pending
    ]
    if workload.not_explained:
        more = count_text(workload.not_explained, "pod")
        rows.append(Row(label="pending", text=f"{more} with other requests, not explained here"))
    rows += [Row(label="not made", text=note) for note in workload.not_created[:_FAILURES_SHOWN]]
    rows += [Row(label="quota", text=line) for line in workload.quotas]
    if workload.advice:
        rows.append(Row(label="advice", text=workload.advice))
    yield format_paragraph(
        Paragraph(
            title=f"{workload.kind} {workload.namespace}/{workload.name}",
            place="",
            rows=tuple(drop_repeated_labels(rows)),
        ),
        width,
    )
    for answer in answers:
        yield from format_status(answer, state, width)


def _new_pods(together: PodsTogether) -> str:
    """Count the pods of manifests that get a place beside the others, in a sentence."""
    pods = count_text(together.pods, "pod")
    verb = "gets" if together.pods == 1 else "get"
    if together.placed == together.pods:
        whole = "the 1 pod gets" if together.pods == 1 else f"all {pods} get"
        return f"not created yet: {whole} a place"
    if not together.placed:
        return f"not created yet: 0 of {pods} {verb} a place: {together.reason}"
    without = together.pods - together.placed
    does = "does" if without == 1 else "do"
    return (
        f"not created yet: {together.placed} of {pods} {verb} a place; "
        f"{without} {does} not beside the others: {together.reason}"
    )


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    text = ", ".join(names[:_NAMES_SHOWN])
    return f"{text} and {more} more" if more > 0 else text


def format_rejection(status: ObjectStatus, width: int) -> str:
    """Return the reason that a pod or workload of manifests is not created."""
    return format_paragraph(_paragraph(status, lacks_nodes=False), width)


def format_status(answer: Explained, state: ClusterState, width: int) -> Iterator[str]:
    """Yield the state of a pod or claim, its placement, and the map of the devices.

    The placement of one that waits for a quota is a condition, and in no map.
    """
    status, cluster, before = answer
    lacks_nodes = lacks_known_nodes(status.unreadable, state)
    yield format_paragraph(_paragraph(status, lacks_nodes=lacks_nodes), width)
    if _waits_for_quota(status) and status.simulation is not None and status.simulation.all_placed:
        yield "\n".join(simulate_text.not_modelled(width))
    elif status.simulation is not None:
        no_nodes = simulate_text.explain_no_nodes(status.unreadable)
        yield from simulate_text.format_placements(
            status.simulation, cluster, before, width, no_nodes=no_nodes
        )
        yield "\n".join(simulate_text.not_modelled(width))
    elif status.node is not None and status.node in cluster.nodes:
        lines = device_map(
            [cluster.node_devices(status.node)],
            before,
            before,
            offers=describe_offers(cluster.nodes.values()),
        )
        yield "\n".join(lines)


def _status_rows(text: str, denial: str) -> Iterator[Row]:
    """Yield the state of an object, for a rejected one after the reason."""
    if denial:
        yield Row(label="status", text=f"rejected: {denial}")
    yield Row(label="otherwise" if denial else "status", text=text)


def _paragraph(status: ObjectStatus, *, lacks_nodes: bool) -> Paragraph:
    rows = [Row(label="requested", text=text) for text in status.requested]
    rows += _status_rows(_state(status, lacks_nodes=lacks_nodes), status.denial)
    if status.scheduler is not None:
        rows.append(Row(label="scheduler", text=status.scheduler))
    if status.untranslated is not None and not _waits_for_translation(status):
        rows.append(Row(label="scheduler", text=status.untranslated))
    for claim in status.claims:
        name = f"claim {claim.name}: " if status.kind == "Pod" else ""
        if claim.allocation is not None:
            devices = simulate_text.devices(claim.allocation) or (simulate_text.NO_DEVICES,)
            rows += [Row(label="allocated", text=f"{name}{words}") for words in devices]
    rows += [Row(label="conflict", text=sentence) for sentence in status.conflicts]
    rows += [Row(label="quota", text=text) for text in status.quotas]
    rows += [Row(label="then", text=text) for text in _conditional_placement(status)]
    rows += [Row(label="promised", text=text) for text in status.promised]
    rows += [Row(label="advice", text=text) for text in status.advice]
    rows += [Row(label="held back", text=text) for text in status.held_back[:_HELD_SHOWN]]
    rows += [Row(label="kept", text=text) for text in status.kept_for_groups]
    rows += [Row(label="missing", text=missing.object) for missing in status.missing]
    if status.consumers:
        more = len(status.consumers) - _CONSUMERS_SHOWN
        text = ", ".join(status.consumers[:_CONSUMERS_SHOWN])
        rows.append(Row(label="used by", text=f"{text} and {more} more" if more > 0 else text))
    elif status.kind == "ResourceClaim":
        rows.append(Row(label="used by", text="no pod"))
    return Paragraph(
        title=f"{status.kind} {status.namespace}/{status.name}",
        place="",
        rows=tuple(drop_repeated_labels(rows)),
    )


def _waits_for_quota(status: ObjectStatus) -> bool:
    """Return True if a quota keeps a pod from being placed, or its gate is still there."""
    return status.gate is not None or bool(status.quotas) or status.is_refused


def _is_placed(status: ObjectStatus) -> bool:
    return status.simulation is not None and status.simulation.all_placed


def _waits_for_translation(status: ObjectStatus) -> bool:
    """Return True if a pod that keeps its device keys has no node with them, and no gate holds it back."""
    return status.untranslated is not None and status.gate is None and not _is_placed(status)


def _conditional_placement(status: ObjectStatus) -> Iterator[str]:
    """Yield the placement of a pod that waits for a quota, in a sentence."""
    answer = status.simulation
    if answer is None or not answer.all_placed or status.is_final or not _waits_for_quota(status):
        return
    for pod in answer.pods:
        parts = [
            text
            for claim in answer.claims
            if claim.allocation is not None
            for text in simulate_text.devices(claim.allocation)
        ]
        gets = f", with {'; '.join(parts)}" if parts else ""
        yield f"once let through it would be placed on node {pod.node}, as the cluster is now{gets}"


def _state(status: ObjectStatus, *, lacks_nodes: bool) -> str:
    match status.condition:
        case Condition.BOUND:
            return f"bound to node {status.node}"
        case Condition.FINISHED:
            return "finished, so it uses no devices"
        case Condition.REJECTED:
            return f"rejected: {status.rejection}"
        case Condition.ALLOCATED if status.node:
            return f"allocated on node {status.node}"
        case Condition.ALLOCATED:
            return "allocated, usable on several nodes"
        case Condition.PENDING if _waits_for_translation(status):
            return f"pending: {status.untranslated}"
        case Condition.PENDING if status.beside:
            return f"pending: {status.beside}"
        case Condition.PENDING if status.is_refused and _is_placed(status):
            return (
                "pending: a node has the devices, but a ResourceQuota refuses the claim of the pod"
            )
        case Condition.PENDING:
            return _pending(status, lacks_nodes=lacks_nodes)


def _pending(status: ObjectStatus, *, lacks_nodes: bool) -> str:
    answer = status.simulation
    if status.fenced:
        return (
            f"pending: the bridge owns {', '.join(status.fenced)}, and the scheduler that the pod names may "
            "not allocate its devices; create the pod again, and the webhook gives it the bridge's"
        )
    if status.gate is not None:
        what = "waits for a DeviceQuota" if status.quotas else "pending"
        whose = "its" if status.kind == "Pod" else "its pod's"
        return f"{what}, behind {whose} scheduling gate: {status.gate}"
    if answer is not None and answer.all_placed and status.quotas:
        return (
            "waits for a DeviceQuota: a node has the devices, but too little is left of the quota"
        )
    if answer is not None and answer.all_placed and status.is_new and not status.advice:
        nodes = [pod.node for pod in answer.pods if pod.node]
        placed = f"it would be placed on node {nodes[0]}"
        return placed if status.denial else f"not created yet: {placed}"
    if answer is not None and answer.all_placed and status.advice:
        return "pending, although a node has the devices"
    if answer is not None and answer.all_placed:
        return (
            "pending, although a node has the devices: the scheduler has not come to it yet, or"
            " rejects it for something that is not modelled here"
        )
    if answer is not None and answer.groups and answer.groups[0].code not in _TRIED:
        return f"pending: {answer.groups[0].reason}"
    if answer is not None and answer.groups and answer.groups[0].reason:
        return f"pending: no place for {answer.groups[0].title} as a whole now"
    if lacks_nodes:
        return "pending: whether a node can take it cannot be told, since nodes cannot be read"
    return _CAUSES.get(status.cause, "pending: no node can take it now")
