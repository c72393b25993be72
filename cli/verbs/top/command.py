"""`drawbridge top`: the devices in use now by user, and the waiting pods."""

import shutil
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import click
import msgspec

from allocator.model.feature_gates import Features
from answers.cluster.top import (
    Top,
    top_devices,
    top_namespaces,
    top_nodes,
    top_pods,
    top_waiting,
    uncounted,
)
from answers.manifests.scheduler_views import scheduler_support
from answers.model.cluster_state import ClusterState, build_state
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from cli.flags.completion import complete_from
from cli.flags.feature_gates import feature_gates
from cli.flags.schedulers import policy_aware_schedulers
from cli.output.formats import Output, Report, encode_readable, format_document, text_or_document
from cli.output.help import CLUSTER_STATE, Command
from cli.output.standard_error import print_line
from cli.reading.cluster_state import ClusterFlags
from cli.reading.options import names_live_cluster, read_cluster, with_unread_state
from cli.verbs.top.text import format_top
from cli.verbs.top.watch import Answer, Screen, watch
from kube.api.meta import rfc3339
from process.profiles.profile_files import load_profiles
from translation.cluster.snapshot import TranslationSnapshot


class By(StrEnum):
    """The lists of the answer."""

    NODES = "nodes"
    NAMESPACES = "namespaces"
    PODS = "pods"
    DEVICES = "devices"
    WAITING = "waiting"


_NAMES: Final[Mapping[str, By]] = {
    **{by.value: by for by in By},
    **dict.fromkeys(("no", "node"), By.NODES),
    **dict.fromkeys(("ns", "namespace"), By.NAMESPACES),
    **dict.fromkeys(("po", "pod"), By.PODS),
    **dict.fromkeys(("device",), By.DEVICES),
    **dict.fromkeys(("pending",), By.WAITING),
}
"""Names by which kubectl knows them."""
_SUMMARY: Final = (By.NODES, By.NAMESPACES, By.WAITING)
"""The lists of a call that names none."""
DEFAULT_INTERVAL_S: Final = 5
MAX_INTERVAL_S: Final = 86_400

EXAMPLES: Final = """\
drawbridge top --live
drawbridge top waiting --live --watch --interval 30
drawbridge top pods -n team --live
drawbridge top devices --snapshot cluster.json.gz
"""


@click.command("top", cls=Command, epilog=CLUSTER_STATE + EXAMPLES)
@click.argument(
    "by",
    required=False,
    metavar="[nodes|namespaces|pods|devices|waiting]",
    shell_complete=complete_from(lambda: [by.value for by in By]),
)
@with_unread_state
@click.option(
    "-n",
    "--namespace",
    "only_namespace",
    metavar="NAME",
    help="Only namespaces, pods and waiting pods of this namespace.",
)
@click.option(
    "-w",
    "--watch",
    "watches",
    is_flag=True,
    help="Show it again and again until ^C (with --live); with -o json one document a line.",
)
@click.option(
    "--interval",
    type=click.IntRange(1, MAX_INTERVAL_S),
    metavar="SECONDS",
    help=f"Pause between two answers of --watch (default: {DEFAULT_INTERVAL_S}).",
)
@feature_gates
@policy_aware_schedulers
@text_or_document()
def top(
    cluster_flags: ClusterFlags,
    features: Features,
    *,
    by: str | None,
    only_namespace: str | None,
    watches: bool,
    interval: int | None,
    schedulers: tuple[str, ...],
    output: str,
) -> None:
    """Show the devices in use, the largest use first.

    By node: devices of each driver in use and in total, shares, and each capacity. By namespace and
    by pod: what claims use, and what pods request of device plugins. By device: its claims. Waiting
    are the pods that request devices and have no node, with the reason. Without an argument: nodes,
    namespaces and waiting pods. Read-only.

    Exit status: 0 when printed, 2 when the call is wrong, 130 when ^C ended --watch.
    """
    if by is not None and by.lower() not in _NAMES:
        raise click.UsageError(f"expected {', '.join(By)}, found {by!r}")
    if interval is not None and not watches:
        raise click.UsageError("--interval requires --watch.")
    if watches and not names_live_cluster(cluster_flags):
        raise click.UsageError("--watch requires a live cluster: use --live, without --snapshot.")
    question = _Question(
        cluster=cluster_flags,
        features=features,
        schedulers=schedulers,
        lists=_SUMMARY if by is None else (_NAMES[by.lower()],),
        namespace=only_namespace,
    )
    if watches:
        screen, pause_s = Screen(output, _now), interval or DEFAULT_INTERVAL_S
        watch(lambda: _look(question), screen.show, screen.report, lambda: time.sleep(pause_s))
    answer = _look(question)
    for line in answer.lines:
        print_line(line)
    if output != Output.TEXT:
        click.echo(format_document(output, encode_readable(answer.top), Report.TOP))
        return
    click.echo(format_top(answer.top, shutil.get_terminal_size().columns))


class _Question(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of a call, with the lists that it names."""

    cluster: ClusterFlags
    features: Features
    schedulers: tuple[str, ...]
    lists: tuple[By, ...]
    namespace: str | None


def _look(question: _Question) -> Answer:
    """Read the cluster, and return the answer about it.

    Raises:
        DrawbridgeError: A file or the cluster cannot be read.
    """
    cluster_objects = read_cluster(question.cluster)
    objects, faults = decode_objects(
        cluster_objects.objects, STATE_KINDS, cluster_objects.namespace
    )
    state = build_state(objects).under(question.features)
    lines = [f"note: {note}" for note in cluster_objects.notes]
    lines += [fault.line() for fault in faults]
    if question.lists != (By.WAITING,):
        notes = uncounted(state, state.cluster(question.features))
        lines += [f"note: {note}" for note in notes]
    return Answer(_answer(question, state), tuple(lines))


def _now() -> str:
    return rfc3339(datetime.now(UTC))  # noqa: TID251 - the command's one clock.


def _answer(question: _Question, state: ClusterState) -> Top:
    features, namespace = question.features, question.namespace
    cluster = state.cluster(features)
    answer = Top()
    for by in question.lists:
        match by:
            case By.NODES:
                answer = msgspec.structs.replace(answer, nodes=top_nodes(state, cluster))
            case By.NAMESPACES:
                namespaces = tuple(
                    entry
                    for entry in top_namespaces(state, cluster)
                    if namespace in (None, entry.name)
                )
                answer = msgspec.structs.replace(answer, namespaces=namespaces)
            case By.PODS:
                pods = tuple(
                    entry
                    for entry in top_pods(state, cluster)
                    if namespace in (None, entry.namespace)
                )
                answer = msgspec.structs.replace(answer, pods=pods)
            case By.DEVICES:
                answer = msgspec.structs.replace(answer, devices=top_devices(cluster))
            case By.WAITING:
                support = scheduler_support(state, features, question.schedulers)
                snapshot = TranslationSnapshot(profiles=load_profiles())
                waiting = top_waiting(state, features, support, namespace, snapshot)
                answer = msgspec.structs.replace(answer, waiting=waiting)
    return answer
