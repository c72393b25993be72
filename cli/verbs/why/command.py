"""`drawbridge why`: the placement of a pod or claim, or the reason it or the pods of a workload are pending."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Final, NamedTuple, TypeVar

import click
from click.shell_completion import CompletionItem
from msgspec.structs import replace

from allocator.model.feature_gates import Features
from allocator.model.scheduler_support import SchedulerSupport
from allocator.pods.claims import Name, pod_name
from answers.cluster.conflicts import describe_conflicts
from answers.cluster.fits_in_keys import budget_fixes, separation_advice, with_fits_in_keys
from answers.cluster.held_back import held_devices, kept_for_groups
from answers.cluster.hints import hints, legacy_hints
from answers.cluster.inventory import offers_without_drivers, plugin_notes
from answers.cluster.pending_workload import (
    PendingPods,
    WorkloadStatus,
    group_pending_pods,
)
from answers.cluster.quota_status import unenforced_notes
from answers.cluster.why import (
    Condition,
    ObjectStatus,
    claim_status,
    foreign_scheduler,
    pod_status,
    rejected_status,
    scheduler_of,
)
from answers.manifests.documents import why_answer, why_workload_answer
from answers.manifests.scheduler_views import (
    claim_scheduler,
    fenced_drivers,
    ignored_policy_notes,
    scheduler_support,
)
from answers.manifests.simulate import gate_notes
from answers.manifests.translated_target import (
    routed_state,
    translate_target,
    untranslated_reason,
    with_target,
)
from answers.manifests.workload_placement import (
    WorkloadPlacement,
    place_workload,
    status_beside_others,
)
from answers.model.cluster_state import ClusterState, build_state
from answers.model.inputs import ClusterObjects, Inputs, about_namespace
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from answers.model.pod_owners import (
    FAILED_CLAIM,
    FailedCreation,
    failures_of,
    pods_made_by,
)
from cli.flags.completion import complete_from
from cli.flags.feature_gates import given_feature_gates
from cli.flags.schedulers import policy_aware_schedulers
from cli.output.formats import Output, format_document, text_or_document
from cli.output.help import CLUSTER_STATE, Command
from cli.output.standard_error import print_line
from cli.reading.options import with_cluster_and_manifests
from cli.verbs.why.target import find_target
from cli.verbs.why.text import (
    Explained,
    format_rejection,
    format_status,
    format_workload,
    lacks_known_nodes,
)
from findings.text import printable
from kube.api.core import Pod
from kube.api.extended_resources import extended_resources
from kube.api.meta import encode
from kube.api.resource import ResourceClaim
from kube.names import DEFAULT_SCHEDULER_NAME
from process.profiles.profile_files import load_profiles
from quotas.resource_quotas.obstacles import ADVICE, quota_lines
from rules.quotas.excesses import UNTIL_ROOM
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot

_GROUPS_EXPLAINED: Final = 5
"""Groups of pending pods of one workload that are explained; each is a search of its own."""

_WEBHOOK: Final = "admission webhook "
"""The API server's words before the name of the webhook that denied a request."""

T = TypeVar("T", Pod, ResourceClaim)


class _NotFound(click.ClickException):
    """The object does not exist."""

    exit_code = 2


EXAMPLES: Final = """\
drawbridge why pod trainer -n team --live
drawbridge why claim shared-gpu --snapshot cluster.json.gz
drawbridge why deploy/trainer -n team --live
drawbridge why -f pod.yaml --snapshot cluster.json.gz
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
    metavar="[{pod|claim|WORKLOAD} NAME]",
    shell_complete=_complete_kind,
)
@with_cluster_and_manifests
@given_feature_gates
@policy_aware_schedulers
@text_or_document("to read, with a map of the devices")
def why(
    cluster_objects: ClusterObjects,
    features: Features,
    *,
    inputs: Inputs | None,
    read_translation: Callable[[], tuple[TranslationSnapshot, TranslationOptions]],
    schedulers: tuple[str, ...],
    target: tuple[str, ...],
    output: str,
) -> None:
    """Explain the placement of a pod or claim, or the reason it is pending.

    `pod/NAME` and `claim/NAME` are accepted as well. A pending one is tried on every node, alone, on
    the cluster as it is, by the rules of its scheduler. Of a workload, such as `deploy/NAME`, the
    pending pods are tried, those with equal requests once. A pod or workload of -f is translated
    first, as if it were created; of a workload's pods, all are placed, too; the name of the only one
    may be left out. Read-only.

    Exit status: 0 when printed, 2 when there is no such object or the call is wrong.
    """
    kind, name, namespace = find_target(target, inputs, cluster_objects.namespace)
    if inputs is not None and namespace != cluster_objects.namespace:
        inputs = about_namespace(inputs, namespace)
        # Events were read of the other namespace only.
        cluster_objects = replace(cluster_objects, namespace=namespace, failed_creations=())
    target_kind = "Pod" if kind == "pod" else kind
    translated = None
    if inputs is not None:
        translated = translate_target(
            inputs, target_kind, name, features=features, policy_aware_schedulers=schedulers
        )
    if translated is not None and translated.rejection:
        _print_rejection(
            rejected_status(target_kind, namespace, name, translated.rejection), output
        )
        return
    objects, faults = decode_objects(
        cluster_objects.objects if inputs is None else with_target(inputs, translated),
        STATE_KINDS,
        cluster_objects.namespace,
    )
    for fault in faults:
        print_line(fault.line())
    state = build_state(objects).under(features)
    if inputs is not None:
        state = routed_state(state, inputs, translated)
    place = (namespace, name)
    support = scheduler_support(state, features, schedulers)
    unread = tuple(sorted(cluster_objects.unread))
    placement = None
    if inputs is not None and translated is not None and translated.has_pods:
        placement = place_workload(
            inputs,
            f"{kind}/{namespace}/{name}",
            features,
            schedulers,
            beside=translated.beside,
        )
    options = None if inputs is None or translated is None else inputs.options
    denial = translated.denial if translated is not None else ""
    question = _Question(
        state, support, features, unread, cache(read_translation), options, placement, denial
    )
    if kind not in {"pod", "claim"}:
        failures = failures_of(cluster_objects.failed_creations, kind, name)
        _explain_workload(kind, place, question, failures, output)
        return
    target_object: Pod | ResourceClaim = (
        _find(kind, state.pods, place) if kind == "pod" else _find(kind, state.claims, place)
    )
    answer = _explain(target_object, question)
    answer = answer._replace(status=replace(answer.status, denial=denial))
    if kind == "pod":
        failures = failures_of(cluster_objects.failed_creations, "Pod", name)
        answer = answer._replace(status=_with_failed_claims(answer.status, failures, state))
    _print_hints([answer], question)
    if output != Output.TEXT:
        click.echo(format_document(output, encode(why_answer(answer.status))))
    else:
        width = shutil.get_terminal_size().columns
        click.echo("\n\n".join(format_status(answer, state, width)))


class _Question(NamedTuple):
    """The cluster, as the user may read it, and the behaviour of its schedulers.

    Attributes:
        read_translation: Reads the inputs of translations in the cluster.
        options: The options of the translation of pods of manifests, as if they were just created;
            None for the pods of a cluster.
        placement: The placement of all pods of a workload of manifests; None of others.
        denial: The reason that an object of manifests is denied; empty without one.
    """

    state: ClusterState
    support: SchedulerSupport
    features: Features
    unread: tuple[str, ...]
    read_translation: Callable[[], tuple[TranslationSnapshot, TranslationOptions]]
    options: TranslationOptions | None = None
    placement: WorkloadPlacement | None = None
    denial: str = ""


def _explain(target: Pod | ResourceClaim, question: _Question) -> Explained:
    """Return the state of a pod or claim; a pending one is placed on a cluster of its own."""
    state, support, features, unread, _, options, *_ = question
    scheduler = scheduler_of(target, state)
    if isinstance(target, ResourceClaim):
        scheduler = scheduler or claim_scheduler(target, state)
    cluster = state.cluster(features, with_policies=support.evaluates_policies(scheduler))
    before = cluster.usage
    if isinstance(target, Pod):
        snapshot = TranslationSnapshot(profiles=load_profiles())
        status = pod_status(target, state, cluster, snapshot, is_new=options is not None)
        if options is not None:
            foreign = foreign_scheduler(target, state, options, support.policy_aware)
            status = replace(status, scheduler=foreign)
        if status.condition is Condition.PENDING:
            untranslated = _untranslated_reason(target, question)
            status = replace(status, untranslated=untranslated)
        status = _with_fits_in_keys(status, target, state)
    else:
        status = claim_status(target, state, cluster)
    conflicts = describe_conflicts(_claims_of(status, state), state, support)
    ownerships = state.ownerships if status.condition is Condition.PENDING else ()
    status = replace(
        status,
        conflicts=conflicts,
        held_back=tuple(held_devices(ownerships)),
        kept_for_groups=tuple(kept_for_groups(ownerships)),
        fenced=tuple(sorted(fenced_drivers(scheduler, status.simulation, support))),
        unreadable=unread,
        # The observer's event would say that the cluster has no nodes.
        event=None if lacks_known_nodes(unread, state) else status.event,
    )
    return Explained(status, cluster, before)


def _untranslated_reason(pod: Pod, question: _Question) -> str | None:
    """Return the reason that a pending pod keeps its device keys for its scheduler; None if it does not."""
    known_schedulers = {"", DEFAULT_SCHEDULER_NAME, question.state.bridge_scheduler}
    if pod.spec.scheduler_name in known_schedulers:
        return None
    return untranslated_reason(pod, *question.read_translation())


def _print_rejection(status: ObjectStatus, output: str) -> None:
    """Print that a pod or workload of the manifests is not created."""
    if output != Output.TEXT:
        click.echo(format_document(output, encode(why_answer(status))))
    else:
        click.echo(format_rejection(status, shutil.get_terminal_size().columns))


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
    return replace(status, advice=(*status.advice, sentence))


def _with_fits_in_keys(status: ObjectStatus, pod: Pod, state: ClusterState) -> ObjectStatus:
    """Return the state of a pod with fixes in its keys, if shipped profiles derive its claims."""
    if status.simulation is None:
        return status
    snapshot = TranslationSnapshot(profiles=load_profiles())
    fixes = budget_fixes(pod, state, snapshot) if status.quotas else ()
    if status.quotas and not fixes:
        fixes = (UNTIL_ROOM,)
    return replace(
        status,
        simulation=with_fits_in_keys(status.simulation, (pod,), state, snapshot),
        advice=(
            *fixes,
            *separation_advice(status.simulation, pod, state, snapshot),
            *status.advice,
        ),
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
    placement = question.placement
    unplaced_pods = placement.unplaced_pods if placement is not None else frozenset()
    # What is to be mended comes first.
    groups = tuple(sorted(groups, key=lambda group: unplaced_pods.isdisjoint(map(_name_of, group))))
    answers = [
        _beside_others(_explain(group[0], question), group, question)
        for group in groups[:_GROUPS_EXPLAINED]
    ]
    together = placement.together if placement is not None else None
    untranslated = answers[0].status.untranslated if answers else None
    if together is not None and together.placed < together.pods and untranslated is not None:
        together = replace(together, reason=untranslated)
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
        together=together,
        denial=question.denial,
    )
    _print_hints(answers, question)
    if output != Output.TEXT:
        click.echo(format_document(output, encode(why_workload_answer(workload))))
        return
    width = shutil.get_terminal_size().columns
    click.echo("\n\n".join(format_workload(workload, answers, state, width)))


def _name_of(pod: Pod) -> Name:
    return pod.metadata.namespace, pod_name(pod)


def _beside_others(answer: Explained, group: Sequence[Pod], question: _Question) -> Explained:
    """Return the state of the first pod of equal ones without a place beside others, if it has one alone."""
    placement, status = question.placement, answer.status
    if placement is None or status.is_refused:
        return answer
    left = next((pod for pod in group if _name_of(pod) in placement.unplaced_pods), None)
    if left is None or status.simulation is None or not status.simulation.all_placed:
        return answer
    status = status_beside_others(status, _name_of(left), placement)
    status = _with_fits_in_keys(status, left, question.state)
    return Explained(status, placement.cluster, placement.before)


def _print_hints(answers: Sequence[Explained], question: _Question) -> None:
    """Print hints and notes on standard error, equal ones once."""
    state = question.state
    lines: list[str] = []
    for status, *_ in answers:
        lines += [f"hint: {hint}" for hint in hints(state.classes, _claims_of(status, state))]
        if status.untranslated is None:
            lines += [f"hint: {hint}" for hint in _legacy_hints(status, state)]
    if any(answer.status.condition is Condition.PENDING for answer in answers):
        lines += [f"note: {note}" for note in gate_notes(state.slices, question.features)]
        # Pods of a cluster may wait for the device plugin itself.
        offers = offers_without_drivers(state.nodes, state.slices)
        needs_claims = question.options is not None and any(
            answer.status.claims for answer in answers
        )
        lines += [f"note: {note}" for note in (plugin_notes(offers) if needs_claims else ())]
        pods = [
            pod
            for status, *_ in answers
            if (pod := state.pods.get((status.namespace, status.name))) is not None
        ]
        notes = ignored_policy_notes(state, pods, question.support)
        lines += [f"note: {printable(note)}" for note in notes]
        namespaces = {answer.status.namespace for answer in answers}
        lines += [f"note: {note}" for note in unenforced_notes(state, namespaces)]
    for line in dict.fromkeys(lines):
        print_line(line)


def _claims_of(status: ObjectStatus, state: ClusterState) -> list[ResourceClaim]:
    """Return the claims of the object that exist already."""
    names = {(claim.namespace, claim.name) for claim in status.claims}
    if status.kind == "ResourceClaim":
        names.add((status.namespace, status.name))
    return [claim for name, claim in state.claims.items() if name in names]


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
