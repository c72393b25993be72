"""`drawbridge why`: the placement of a pod or claim, or the reason it or the pods of a workload are pending."""

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from allocator.cluster.cluster import Cluster
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason
from allocator.model.scheduler_support import SchedulerSupport
from allocator.model.usage import Usage
from allocator.pods.claims import Name
from answers.cluster.conflicts import describe_conflicts
from answers.cluster.fits_in_keys import budget_fixes, with_fits_in_keys
from answers.cluster.held_back import held_devices, kept_for_groups
from answers.cluster.hints import hints, legacy_hints
from answers.cluster.pending_workload import PendingPods, WorkloadStatus, group_pending_pods
from answers.cluster.uses import describe_offers
from answers.cluster.why import (
    BEHIND_GATE,
    Condition,
    ObjectStatus,
    claim_status,
    pod_status,
    scheduler_of,
)
from answers.manifests.documents import why_answer, why_workload_answer
from answers.manifests.scheduler_views import claim_scheduler, fenced_drivers, scheduler_support
from answers.manifests.simulate import gate_notes
from answers.model.cluster_state import ClusterState, build_state
from answers.model.inputs import ClusterObjects
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from answers.model.pod_owners import (
    FAILED_CLAIM,
    WORKLOAD_NAMES,
    FailedCreation,
    failures_of,
    pods_made_by,
)
from cli.flags.completion import complete_from
from cli.flags.feature_gates import feature_gates
from cli.flags.schedulers import policy_aware_schedulers
from cli.output import simulate_text
from cli.output.device_map import device_map
from cli.output.formats import Output, format_document, text_or_document
from cli.output.help import CLUSTER_STATE, Command
from cli.output.layout import Paragraph, Row, drop_repeated_labels, format_paragraph
from cli.output.standard_error import print_line
from cli.reading.options import with_cluster
from findings.text import count_text, printable
from kube.api.core import Pod
from kube.api.extended_resources import extended_resources
from kube.api.meta import encode
from kube.api.resource import ResourceClaim
from process.profiles.profile_files import load_profiles
from quotas.resource_quotas.obstacles import ADVICE, quota_lines
from translation.cluster.snapshot import TranslationSnapshot

KINDS: Final[Mapping[str, str]] = {
    **WORKLOAD_NAMES,
    **dict.fromkeys(("po", "pod", "pods"), "pod"),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), "claim"),
}
"""Names by which kubectl knows the kinds."""
_CONSUMERS_SHOWN: Final = 5
_HELD_SHOWN: Final = 10
_GROUPS_EXPLAINED: Final = 5
"""Groups of pending pods of one workload that are explained; each is a search of its own."""
_NAMES_SHOWN: Final = 3
_FAILURES_SHOWN: Final = 3
"""Reasons that pods are not created; old ReplicaSets have some, too."""

_WEBHOOK: Final = "admission webhook "
"""The API server's words before the name of the webhook that denied a request."""
_TRIED: Final = frozenset(
    {"", Reason.GROUP_DOES_NOT_FIT, Reason.BUDGET_EXHAUSTED, Reason.ATTEMPT_FAILED}
)
"""Codes of groups that were tried on nodes; all others wait for something else."""

T = TypeVar("T", Pod, ResourceClaim)


class _NotFound(click.ClickException):
    """The object does not exist."""

    exit_code = 2


EXAMPLES: Final = """\
drawbridge why pod trainer -n team --live
drawbridge why claim shared-gpu --snapshot cluster.json.gz
drawbridge why deploy/trainer -n team --live
"""


def _complete_kind(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the kind of the object; names are those of a cluster."""
    has_kind = bool(context.params.get(parameter.name or ""))
    return [] if has_kind else _complete_kinds(context, parameter, incomplete)


_complete_kinds: Final = complete_from(lambda: ("pod", "claim", "deployment", "statefulset", "job"))


@click.command("why", cls=Command, epilog=CLUSTER_STATE + EXAMPLES)
@click.argument(
    "target",
    nargs=-1,
    metavar="{pod|claim|WORKLOAD} NAME",
    shell_complete=_complete_kind,
)
@with_cluster
@feature_gates
@policy_aware_schedulers
@text_or_document("to read, with a map of the devices")
def why(
    cluster_objects: ClusterObjects,
    features: Features,
    *,
    schedulers: tuple[str, ...],
    target: tuple[str, ...],
    output: str,
) -> None:
    """Explain the placement of a pod or claim, or the reason it is pending.

    `pod/NAME` and `claim/NAME` are accepted as well. A pending one is tried on every node, alone, on
    the cluster as it is, by the rules of its scheduler. Of a workload, such as `deploy/NAME`, the
    pending pods are tried, those with equal requests once. Read-only.

    Exit status: 0 when printed, 2 when there is no such object or the call is wrong.
    """
    kind, name = parse_target(target)
    objects, faults = decode_objects(
        cluster_objects.objects, STATE_KINDS, cluster_objects.namespace
    )
    for fault in faults:
        print_line(fault.line())
    state = build_state(objects)
    place = (cluster_objects.namespace, name)
    support = scheduler_support(state, features, schedulers)
    unread = tuple(sorted(cluster_objects.unread))
    if kind not in {"pod", "claim"}:
        failures = failures_of(cluster_objects.failed_creations, kind, name)
        question = _Question(state, support, features, unread)
        _explain_workload(kind, place, question, failures, output)
        return
    target_object: Pod | ResourceClaim = (
        _find(kind, state.pods, place) if kind == "pod" else _find(kind, state.claims, place)
    )
    answer = _explain(target_object, _Question(state, support, features, unread))
    if kind == "pod":
        failures = failures_of(cluster_objects.failed_creations, "Pod", name)
        answer = answer._replace(status=_with_failed_claims(answer.status, failures, state))
    _print_hints([answer], state, features)
    if output != Output.TEXT:
        click.echo(format_document(output, encode(why_answer(answer.status))))
    else:
        width = shutil.get_terminal_size().columns
        click.echo("\n\n".join(_format_status(answer, state, width)))


class _Question(NamedTuple):
    """The cluster, as the user may read it, and the behaviour of its schedulers."""

    state: ClusterState
    support: SchedulerSupport
    features: Features
    unread: tuple[str, ...]


class _Explained(NamedTuple):
    """The state of a pod or claim, the cluster with its placement, and the usage before that."""

    status: ObjectStatus
    cluster: Cluster
    before: Usage


def _explain(target: Pod | ResourceClaim, question: _Question) -> _Explained:
    """Return the state of a pod or claim; a pending one is placed on a cluster of its own."""
    state, support, features, unread = question
    scheduler = scheduler_of(target, state)
    if isinstance(target, ResourceClaim):
        scheduler = scheduler or claim_scheduler(target, state)
    cluster = state.cluster(features, with_policies=support.evaluates_policies(scheduler))
    before = cluster.usage
    if isinstance(target, Pod):
        status = _with_fits_in_keys(pod_status(target, state, cluster), target, state)
    else:
        status = claim_status(target, state, cluster)
    conflicts = describe_conflicts(_claims_of(status, state), state, support)
    ownerships = state.ownerships if status.condition is Condition.PENDING else ()
    status = msgspec.structs.replace(
        status,
        conflicts=conflicts,
        held_back=tuple(held_devices(ownerships)),
        kept_for_groups=tuple(kept_for_groups(ownerships)),
        fenced=tuple(sorted(fenced_drivers(scheduler, status.simulation, support))),
        unreadable=unread,
        # The observer's event would say that the cluster has no nodes.
        event=None if _lacks_nodes(unread, state) else status.event,
    )
    return _Explained(status, cluster, before)


def _with_failed_claims(
    status: ObjectStatus, failures: Sequence[FailedCreation], state: ClusterState
) -> ObjectStatus:
    """Return the state of a pod with the events about its claims as advice."""
    if status.condition is not Condition.PENDING or not failures:
        return status
    exist = not status.missing and all(
        (claim.namespace, claim.name) in state.claims for claim in status.claims
    )
    sentence = (
        f"the event {FAILED_CLAIM} is past: the claims of the pod exist by now"
        if exist
        else f"a claim of the pod was not created: {printable(failures[0].note)}"
    )
    return msgspec.structs.replace(status, advice=(*status.advice, sentence))


def _with_fits_in_keys(status: ObjectStatus, pod: Pod, state: ClusterState) -> ObjectStatus:
    """Return the state of a pod with fixes in its keys, if shipped profiles derive its claims."""
    if status.simulation is None:
        return status
    snapshot = TranslationSnapshot(profiles=load_profiles())
    fixes = budget_fixes(pod, state, snapshot) if status.quotas else ()
    if status.gate is not None and status.quotas and not fixes:
        fixes = (BEHIND_GATE,)
    return msgspec.structs.replace(
        status,
        simulation=with_fits_in_keys(status.simulation, (pod,), state, snapshot),
        advice=(*fixes, *status.advice),
    )


def _explain_workload(
    kind: str, place: Name, question: _Question, failures: Sequence[FailedCreation], output: str
) -> None:
    """Print the reasons that pods of a workload wait or are not created, equal ones once."""
    namespace, name = place
    state = question.state
    pods = pods_made_by(state.pods.values(), kind, namespace, name)
    quotas = tuple(quota_lines(namespace, state.resource_quotas))
    if not pods and not failures:
        hint = (
            f" A quota may keep its pods from being created: {'; '.join(quotas)}." if quotas else ""
        )
        raise _NotFound(
            f"No pod in namespace {namespace} has {kind} {name} as its owner. Name an object that"
            f" owns pods itself, such as the Job of a CronJob, or a pod.{hint}"
        )
    # A denial of a webhook has a reason and a fix of its own.
    is_of_quota = any(_WEBHOOK not in failure.note for failure in failures)
    groups = group_pending_pods(pods, state)
    answers = [_explain(group[0], question) for group in groups[:_GROUPS_EXPLAINED]]
    workload = WorkloadStatus(
        kind=kind,
        namespace=namespace,
        name=name,
        pods=len(pods),
        pending=tuple(
            PendingPods(pods=tuple(pod.metadata.name for pod in group), status=answer.status)
            for group, answer in zip(groups, answers, strict=False)
        ),
        not_explained=sum(map(len, groups[_GROUPS_EXPLAINED:])),
        not_created=tuple(
            dict.fromkeys(
                f"{failure.note} (last at {failure.last})" if failure.last else failure.note
                for failure in failures
            )
        ),
        quotas=quotas if is_of_quota else (),
        advice=ADVICE if is_of_quota and quotas else "",
    )
    _print_hints(answers, state, question.features)
    if output != Output.TEXT:
        click.echo(format_document(output, encode(why_workload_answer(workload))))
        return
    width = shutil.get_terminal_size().columns
    click.echo("\n\n".join(_format_workload(workload, answers, state, width)))


def _print_hints(answers: Sequence[_Explained], state: ClusterState, features: Features) -> None:
    """Print hints and notes on standard error, equal ones once."""
    lines: list[str] = []
    for status, *_ in answers:
        lines += [f"hint: {hint}" for hint in hints(state.classes, _claims_of(status, state))]
        lines += [f"hint: {hint}" for hint in _legacy_hints(status, state)]
    if any(answer.status.condition is Condition.PENDING for answer in answers):
        lines += [f"note: {note}" for note in gate_notes(state.slices, features)]
    for line in dict.fromkeys(lines):
        print_line(line)


def parse_target(words: Sequence[str]) -> tuple[str, str]:
    """Return "pod", "claim" or the kind of a workload, and the name, as kubectl would understand them.

    >>> parse_target(["po/share"]), parse_target(["deploy", "web"])
    (('pod', 'share'), ('Deployment', 'web'))

    Raises:
        click.UsageError: The words name no single pod, claim or workload.
    """
    if not words:
        raise click.UsageError(
            "Which pod or claim? kubectl get pods -A --field-selector=status.phase=Pending lists those that wait"
        )
    parts = words[0].split("/", 1) if len(words) == 1 else words
    if len(parts) != 2 or not all(parts):
        raise click.UsageError(f"expected pod NAME or claim NAME, found {' '.join(words)!r}")
    kind = KINDS.get(parts[0].lower())
    if kind is None:
        raise click.UsageError(
            f"only pods, claims and workloads with pods of their own can be explained, not {parts[0]!r}"
        )
    return kind, parts[1]


def _claims_of(status: ObjectStatus, state: ClusterState) -> list[ResourceClaim]:
    """Return the claims of the object that exist already."""
    names = {(claim.namespace, claim.name) for claim in status.claims}
    if status.kind == "ResourceClaim":
        names.add((status.namespace, status.name))
    return [claim for name, claim in state.claims.items() if name in names]


def _lacks_nodes(unread: Collection[str], state: ClusterState) -> bool:
    """Return True if no node is known, only since nodes may not be listed."""
    return "nodes" in unread and not state.nodes


def _legacy_hints(status: ObjectStatus, state: ClusterState) -> list[str]:
    """Return hints on a pending pod that requests devices in another way than by claims."""
    pod = state.pods.get((status.namespace, status.name))
    if status.kind != "Pod" or status.condition is not Condition.PENDING or pod is None:
        return []
    return legacy_hints(pod, extended_resources(state.classes.values()))


def _find(kind: str, objects: Mapping[Name, T], place: Name) -> T:
    if place in objects:
        return objects[place]
    namespace, name = place
    elsewhere = sorted(other for other, own in objects if own == name)
    near = get_close_matches(name, [own for other, own in objects if other == namespace])
    fix = ""
    if elsewhere:
        fix = f"; namespace {' and '.join(elsewhere)} has one"
    elif near:
        fix = f"; there is {' and '.join(near)}"
    raise _NotFound(f"There is no {kind} {name} in namespace {namespace}{fix}.")


# --- text -----------------------------------------------------------------------------------------


def _format_workload(
    workload: WorkloadStatus, answers: Sequence[_Explained], state: ClusterState, width: int
) -> Iterator[str]:
    """Yield a summary, then a block for each group of pending pods."""
    number = workload.not_explained + sum(len(group.pods) for group in workload.pending)
    rows = [Row(label="status", text=f"{number} of {count_text(workload.pods, 'pod')} pending")]
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
        yield from _format_status(answer, state, width)


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    text = ", ".join(names[:_NAMES_SHOWN])
    return f"{text} and {more} more" if more > 0 else text


def _format_status(answer: _Explained, state: ClusterState, width: int) -> Iterator[str]:
    status, cluster, before = answer
    lacks_nodes = _lacks_nodes(status.unreadable, state)
    yield format_paragraph(_paragraph(status, lacks_nodes=lacks_nodes), width)
    if status.simulation is not None:
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


def _paragraph(status: ObjectStatus, *, lacks_nodes: bool) -> Paragraph:
    rows = [Row(label="requested", text=text) for text in status.requested]
    rows.append(Row(label="status", text=_state(status, lacks_nodes=lacks_nodes)))
    if status.scheduler is not None:
        rows.append(Row(label="scheduler", text=status.scheduler))
    for claim in status.claims:
        name = f"claim {claim.name}: " if status.kind == "Pod" else ""
        if claim.allocation is not None:
            devices = simulate_text.devices(claim.allocation) or ("no devices",)
            rows += [Row(label="allocated", text=f"{name}{words}") for words in devices]
    rows += [Row(label="conflict", text=sentence) for sentence in status.conflicts]
    rows += [Row(label="quota", text=text) for text in status.quotas]
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


def _state(status: ObjectStatus, *, lacks_nodes: bool) -> str:
    match status.condition:
        case Condition.BOUND:
            return f"bound to node {status.node}"
        case Condition.FINISHED:
            return "finished, so it uses no devices"
        case Condition.ALLOCATED if status.node:
            return f"allocated on node {status.node}"
        case Condition.ALLOCATED:
            return "allocated, usable on several nodes"
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
        return f"pending behind its scheduling gate: {status.gate}"
    if answer is not None and answer.all_placed and status.quotas:
        return "pending: a node has the devices, but too little is left of a DeviceQuota"
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
    return "pending: no node can take it now"
