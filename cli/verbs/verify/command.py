"""`drawbridge verify`: contradictions of allocations, and a wave's differences from its plan."""

import asyncio
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import click
import msgspec

from allocator.model.feature_gates import Features
from answers.cluster.audit_log import lines_of, read_claims
from answers.cluster.verify import (
    ClaimWrite,
    confirm_orphans,
    has_orphans,
    verify_history,
    verify_state,
)
from answers.model.cluster_state import ClusterState, build_state
from answers.model.findings import DEFAULT_NAMESPACE
from answers.model.inputs import ClusterObjects
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from answers.model.snapshot_kinds import ALL_KINDS, KINDS
from cli.flags.cluster_flags import add_flags
from cli.flags.completion import FILE_NAME
from cli.flags.durations import DurationType
from cli.flags.feature_gates import feature_gates
from cli.output.formats import Output, Report, format_document, text_or_document
from cli.output.help import Command
from cli.output.progress import LongRun
from cli.output.standard_error import print_line, print_notes
from cli.reading.cluster_documents import (
    PROFILE_FLAGS,
    ClusterDocuments,
    DocumentFlags,
    read_documents,
    reads_live,
)
from cli.reading.cluster_state import ClusterFlags
from cli.reading.options import read_cluster, with_unread_cluster
from cli.reading.webhook_state import read_webhook
from cli.verbs.verify.doubled import find_doubled_nodes
from cli.verbs.verify.parameters import expect_devices_flag, resource_flag
from cli.verbs.verify.planned import find_wave
from cli.verbs.verify.text import NOT_RIGHT, format_checks, lines_of_answer
from findings.text import count_text, printable, reference_text
from kube.client.client import Client
from kube.errors import ConfigError, KubeError
from migration.assessment.assumed import kept_device_keys, whole_device_keys
from migration.assessment.doubled import DoubledNodes
from migration.cluster.node_devices import with_renamed
from migration.cluster.work_groups import CREATED_KINDS
from migration.plan.checks.after import check_wave
from migration.plan.checks.checks import Check, WaveAnswer, check_node, view_cluster
from migration.plan.checks.drains import check_budgets, check_work
from migration.plan.model.plan import Plan, Wave
from migration.plan.planning.before_wave import check_before_wave, check_planned_pods
from migration.plan.planning.prepared import PlanQuestion
from migration.trial.checks import check_labels, check_webhook, needs_webhook, unknown_webhook
from migration.trial.model import WebhookFacts
from process.model.durations import Duration
from translation.vocabularies.nvidia import REPLICAS

EXAMPLES: Final = """\
drawbridge verify --live
drawbridge verify --snapshot cluster.json.gz --audit-log audit.log
# may the first wave of a plan begin, and is it what was planned
drawbridge verify --live --wave plan/wave-1 --before
drawbridge verify --live --wave plan/wave-1 --wait 30m
"""

SETTLE_S: Final = 10
"""The seconds for which a reservation may outlive its pod."""
NEEDED: Final = frozenset({"resourceclaims", "resourceslices", "pods", "nodes"})
"""Resources without which nothing can be said about allocations, and about nodes of two systems."""

NODE_KINDS: Final = ("Node", "ResourceSlice", "DeviceTranslationProfile")
"""The kinds that a check of one node reads; a large cluster has many more objects."""
_VOLUME_KINDS: Final = ("PersistentVolumeClaim", "PersistentVolume")
BUDGET_KINDS: Final = ("Node", "Pod", "PodDisruptionBudget", *_VOLUME_KINDS)
WORK_KINDS: Final = ("Node", "Pod", "Job", *CREATED_KINDS, *_VOLUME_KINDS)
_DRAIN_KINDS: Final = (*KINDS, *CREATED_KINDS)
FIRST_POLL_S: Final = 0.5
POLL_S: Final = 5.0
"""The most seconds between two looks at a cluster; each pause is twice as long as the one before."""


class _NothingToCompare(click.ClickException):
    """A refusal to guess that "nothing is wrong": the user may not list needed resources."""

    exit_code = 2


class Question(NamedTuple):
    """A check of a cluster.

    Attributes:
        kinds: The kinds that are read for it from a live cluster.
        answer: Called with the cluster; with its webhook, too, if `waves` is not None and it is live.
        waves: The waves whose pods the webhook has to translate; None for a check without the webhook.
        ends_failed: A failed check ends the wait.
    """

    kinds: Collection[str]
    answer: Callable[[ClusterDocuments, WebhookFacts | None], WaveAnswer]
    waves: tuple[Wave, ...] | None = None
    ends_failed: bool = False


def _with_profiles(command: Callable[..., None]) -> Callable[..., None]:
    return add_flags(command, PROFILE_FLAGS)


@click.command("verify", cls=Command, epilog=EXAMPLES)
@with_unread_cluster
@_with_profiles
@feature_gates
@click.option(
    "--audit-log",
    type=FILE_NAME,
    metavar="FILE",
    help="Check every moment of an audit log of the API server instead of the claims of the cluster; "
    "- is standard input. Responses of writes of ResourceClaims have to be in it.",
)
@click.option(
    "--wave",
    type=FILE_NAME,
    metavar="DIR|N",
    help="Check that a wave of drawbridge plan is done: its folder, or its number in the plan of this "
    "folder or of the folder plan.",
)
@click.option(
    "--before",
    is_flag=True,
    help="With --wave, check that the wave may begin; with --node, that no pod of it would lose its work; "
    "with both, that the plan has all pods with devices of the node.",
)
@click.option(
    "--budgets",
    is_flag=True,
    help="With --node, check that no PodDisruptionBudget holds its drain.",
)
@click.option(
    "--webhook",
    is_flag=True,
    help="Check that the webhook is called; with --wave, only that it translates pods of the wave's "
    "namespaces, which are tried as dry runs. Needs a live cluster.",
)
@click.option(
    "--node", metavar="NAME", help="Check that a node has DRA devices, and no device plugin."
)
@expect_devices_flag
@resource_flag
@click.option(
    "--wait",
    type=DurationType(),
    metavar="DURATION",
    help="With --live and --wave, --node or --webhook, look again until everything is right, for so long.",
)
@text_or_document("one line per contradiction or check")
def verify(
    cluster_flags: ClusterFlags,
    features: Features,
    *,
    profile_directory: Path | None,
    settings: str | None,
    audit_log: str | None,
    wave: str | None,
    before: bool,
    budgets: bool,
    webhook: bool,
    node: str | None,
    expect_devices: Mapping[str, int],
    resources: Sequence[str],
    wait: Duration | None,
    output: str,
) -> None:
    """Check that no device is allocated twice, over its capacity, or to co-tenants that exclude each other.

    Also that no claim is reserved for a pod that does not exist, and that no node has devices of both a device plugin
    and a DRA driver. With --wave or --node, check instead
    whether a cluster is what a plan expects, before a wave or after it; with --wave or --webhook also
    whether the webhook is called, and translates pods of namespaces that are opted in: one of each is created
    as a dry run. Nothing is changed.

    Exit status: 0 when all is well, 1 when something is wrong or not there yet, 2 when the call is
    wrong.
    """
    questions = [
        question
        for question in (
            _ask_webhook(wave) if webhook else _ask_wave(wave, before=before),
            _ask_node(node, expect_devices, resources, before=before, budgets=budgets),
        )
        if question
    ]
    if wave is not None and node is not None and before and not webhook:
        questions = [_ask_planned_pods(wave, node)]
    if len(questions) > 1 or (questions and (audit_log or cluster_flags.files)):
        raise click.UsageError("--wave, --node, --audit-log and -f are mutually exclusive.")
    if before and (webhook or not questions):
        raise click.UsageError("--before requires --wave or --node, and not --webhook.")
    if budgets and (node is None or before):
        raise click.UsageError("--budgets requires --node, and not --before.")
    if expect_devices and (node is None or before or budgets):
        raise click.UsageError("--expect-devices requires --node, and not --before or --budgets.")
    if resources and (node is None or before or budgets):
        raise click.UsageError("--resource requires --node, and not --before or --budgets.")
    if wait is not None and (not questions or cluster_flags.snapshots):
        raise click.UsageError("--wait requires --wave, --node or --webhook, and a live cluster.")
    if webhook and cluster_flags.snapshots:
        raise click.UsageError("--webhook requires a live cluster: no snapshot has webhooks.")
    if not questions:
        find_doubled = partial(
            find_doubled_nodes,
            flags=cluster_flags,
            profile_directory=profile_directory,
            settings=settings,
        )
        _verify_allocations(cluster_flags, features, audit_log, find_doubled, output)
    flags = DocumentFlags(
        snapshots=cluster_flags.snapshots,
        live=cluster_flags.live,
        kubeconfig=cluster_flags.kubeconfig,
        context=cluster_flags.context,
        profile_directory=profile_directory,
        settings=settings,
    )
    _verify_wave(flags, questions[0], wait or Duration(0), output)


def _verify_allocations(
    flags: ClusterFlags,
    features: Features,
    audit_log: str | None,
    find_doubled: Callable[[ClusterState, ClusterObjects], DoubledNodes],
    output: str,
) -> None:
    """Compare allocations, print the answer, and exit."""
    cluster_objects = read_cluster(flags)
    print_notes(cluster_objects.notes)
    needed = NEEDED if audit_log is None else {"resourceslices"}
    if missing := sorted(needed & cluster_objects.unread):
        raise _NothingToCompare(f"allocations cannot be verified without {', '.join(missing)}")
    state = _state(cluster_objects)
    if audit_log is None:
        answer = verify_state(state, features)
        if has_orphans(answer) and cluster_objects.is_live:
            # Pods and claims were not listed at one moment, and reservations end after their pods.
            print_line(f"note: reading again after {SETTLE_S} s")
            time.sleep(SETTLE_S)
            answer = confirm_orphans(answer, verify_state(_state(read_cluster(flags)), features))
    else:
        writes = (
            ClaimWrite(time=logged_claim.time, user=logged_claim.user, claim=logged_claim.claim)
            for logged_claim in read_claims(lines_of(audit_log))
        )
        answer = verify_history(writes, state, features)
    doubled = find_doubled(state, cluster_objects)
    answer = msgspec.structs.replace(
        answer, doubled_nodes=doubled.in_use, cordoned_doubled_nodes=doubled.cordoned
    )
    if output != Output.TEXT:
        click.echo(format_document(output, msgspec.json.encode(answer), Report.VERIFY))
    else:
        click.echo("\n".join(map(printable, lines_of_answer(answer, doubled.reasons))))
    sys.exit(1 if answer.violations or answer.doubled_nodes else 0)


# --- waves ----------------------------------------------------------------------------------------


def _verify_wave(flags: DocumentFlags, question: Question, wait: Duration, output: str) -> None:
    """Check a wave or a node until it is as expected or the time is over, print it, and exit."""
    answer = _wait_until_right(flags, question, wait)
    if output != Output.TEXT:
        click.echo(format_document(output, msgspec.json.encode(answer), Report.VERIFY))
    else:
        click.echo(format_checks(answer))
    sys.exit(0 if answer.is_ok else 1)


def _wait_until_right(flags: DocumentFlags, question: Question, wait: Duration) -> WaveAnswer:
    """Return the answer when everything is as expected, or when the time is over.

    Raises:
        KubeError: The cluster does not answer, and the time is over.
    """
    end, pause, last_message = time.monotonic() + wait, FIRST_POLL_S, ""
    while True:
        try:
            documents = read_documents(
                flags, lambda: LongRun("read", is_divisible=False), question.kinds
            )
            facts = _read_facts(flags, question)
        except KubeError as error:
            # A wave takes long enough for an API server to restart.
            if time.monotonic() + pause > end:
                raise
            message = f"waiting for the cluster: {printable(str(error))}"
        else:
            answer = question.answer(documents, facts)
            is_final = answer.is_ok or (question.ends_failed and answer.has_failed)
            if is_final or time.monotonic() + pause > end:
                return answer
            message = _waiting_for(answer.checks)
        if message != last_message:
            print_line(f"{message} ({max(0, round(end - time.monotonic()))} s left)")
            last_message = message
        time.sleep(pause)
        pause = min(2 * pause, POLL_S)


def _read_facts(flags: DocumentFlags, question: Question) -> WebhookFacts | None:
    """Return the webhook of a live cluster; None if a question needs none, or there is a snapshot.

    Raises:
        KubeError: The cluster does not answer.
    """
    waves = question.waves
    if waves is None or not reads_live(flags):
        return None

    async def read() -> WebhookFacts:
        async with await Client.from_kubeconfig(flags.kubeconfig, flags.context) as client:
            return await read_webhook(client, waves)

    return asyncio.run(read())


def _waiting_for(checks: Sequence[Check]) -> str:
    """Return the number of checks that are waited for, and the first of them."""
    wrong = [check for check in checks if check.state in NOT_RIGHT]
    reference = reference_text(wrong[0].object)
    first = printable(f"{reference}: {wrong[0].message}")
    return f"waiting for {len(wrong)} of {count_text(len(checks), 'check')}, first {first}"


def _ask_wave(wave: str | None, *, before: bool) -> Question | None:
    """Return the question about a wave; None without one.

    Raises:
        ConfigError: There is no such wave, or its plan cannot be read.
    """
    if wave is None:
        return None
    plan, planned = find_wave(wave)
    # Before a wave none of its own namespaces may be opted in, and those of earlier waves tell as much.
    waves = tuple(entry for entry in plan.waves if entry.wave <= planned.wave)
    is_last = not before and planned.wave == plan.waves[-1].wave
    return Question(
        # Objects of other projects are read for those to be started then alone.
        ALL_KINDS if is_last and plan.stopped_workloads else _DRAIN_KINDS if before else KINDS,
        partial(_check_planned, plan, planned, before=before),
        waves if before else (planned,),
    )


def _ask_planned_pods(wave: str, name: str) -> Question:
    """Return the question about pods of a node of a wave that its plan does not have.

    Raises:
        ConfigError: There is no such wave, its plan cannot be read, or it does not drain the node.
    """
    plan, planned = find_wave(wave)
    node = next((entry for entry in planned.nodes if entry.name == name), None)
    if node is None:
        raise ConfigError(f"wave {planned.wave} of the plan has no node {name}")
    return Question(
        _DRAIN_KINDS,
        lambda documents, _: check_planned_pods(
            plan,
            node,
            view_cluster(documents.objects, DEFAULT_NAMESPACE, documents.unreadable),
            _plan_question(plan, documents),
        ),
        ends_failed=True,
    )


def _ask_webhook(wave: str | None) -> Question:
    """Return the question about the webhook, and about the pods of a wave if there is one.

    Raises:
        ConfigError: There is no such wave, or its plan cannot be read.
    """
    planned = None if wave is None else find_wave(wave)[1]

    def answer(_: ClusterDocuments, facts: WebhookFacts | None) -> WaveAnswer:
        checks = () if facts is None else tuple(check_webhook(facts, planned))
        if facts is not None and planned is not None:
            checks += tuple(check_labels(facts, planned))
        return WaveAnswer(wave=None if planned is None else planned.wave, checks=checks)

    return Question(("Namespace",), answer, () if planned is None else (planned,))


def _check_planned(
    plan: Plan,
    wave: Wave,
    documents: ClusterDocuments,
    facts: WebhookFacts | None,
    *,
    before: bool,
) -> WaveAnswer:
    answer = _check_cluster(plan, wave, documents, before=before)
    if not needs_webhook(plan, wave, documents.objects):
        return answer
    checks = [unknown_webhook()] if facts is None else check_webhook(facts, wave)
    return msgspec.structs.replace(answer, checks=(*answer.checks, *checks))


def _check_cluster(
    plan: Plan, wave: Wave, documents: ClusterDocuments, *, before: bool
) -> WaveAnswer:
    view = view_cluster(documents.objects, DEFAULT_NAMESPACE, documents.unreadable)
    if not before:
        return check_wave(plan, wave, view)
    return check_before_wave(plan, wave, view, _plan_question(plan, documents))


def _plan_question(plan: Plan, documents: ClusterDocuments) -> PlanQuestion:
    return PlanQuestion(
        objects=documents.objects,
        profiles=documents.profiles,
        options=documents.options,
        namespace=DEFAULT_NAMESPACE,
        version=documents.version,
        gates=documents.gates,
        gives_whole=bool(plan.time_slicing),
    )


def _ask_node(
    node: str | None,
    expected: Mapping[str, int],
    resources: Sequence[str] = (),
    *,
    before: bool,
    budgets: bool,
) -> Question | None:
    """Return the question about a node; None without one."""
    if node is None:
        return None
    if before or budgets:
        kinds, check = (WORK_KINDS, check_work) if before else (BUDGET_KINDS, check_budgets)
        return Question(
            kinds,
            lambda documents, _: check(
                node, view_cluster(documents.objects, DEFAULT_NAMESPACE, documents.unreadable)
            ),
            ends_failed=True,
        )
    return Question(
        NODE_KINDS,
        lambda documents, _: check_node(
            node,
            expected or {"": 1},
            _names_of_plugins(documents, resources),
            view_cluster(documents.objects, DEFAULT_NAMESPACE),
        ),
    )


def _names_of_plugins(documents: ClusterDocuments, resources: Sequence[str]) -> tuple[str, ...]:
    """Return the resource names that no device plugin of a switched node may offer, with those that a cluster gave them.

    Args:
        documents: The cluster.
        resources: The names of the flag; without any, those of all profiles and of replicas.
    """
    kept_names = kept_device_keys(documents.profiles, documents.options)
    own_names = whole_device_keys(() if resources else documents.profiles.values(), kept_names)
    replicas = () if resources else (name for name in REPLICAS if name not in kept_names)
    return with_renamed((*resources, *own_names, *replicas), documents.options.renamed_keys)


# --- allocations ----------------------------------------------------------------------------------


def _state(cluster_objects: ClusterObjects) -> ClusterState:
    objects, faults = decode_objects(
        cluster_objects.objects, STATE_KINDS, cluster_objects.namespace
    )
    for fault in faults:
        print_line(fault.line())
    return build_state(objects)
