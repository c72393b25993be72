"""`drawbridge top`: the devices in use now by user, and the waiting pods."""

import shutil
from collections.abc import Mapping
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
from answers.model.inputs import ClusterObjects
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from cli.flags.completion import complete_from
from cli.flags.feature_gates import feature_gates
from cli.flags.schedulers import policy_aware_schedulers
from cli.output.formats import Output, Report, encode_readable, format_document, text_or_document
from cli.output.help import CLUSTER_STATE, Command
from cli.output.standard_error import print_line, print_notes
from cli.reading.options import with_state
from cli.verbs.top.text import format_top
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

EXAMPLES: Final = """\
drawbridge top --live
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
@with_state
@click.option(
    "-n",
    "--namespace",
    "only_namespace",
    metavar="NAME",
    help="Only namespaces, pods and waiting pods of this namespace.",
)
@feature_gates
@policy_aware_schedulers
@text_or_document()
def top(
    cluster_objects: ClusterObjects,
    features: Features,
    *,
    by: str | None,
    only_namespace: str | None,
    schedulers: tuple[str, ...],
    output: str,
) -> None:
    """Show the devices in use, the largest use first.

    By node: devices of each driver in use and in total, shares, and each capacity. By namespace and
    by pod: what claims use, and what pods request of device plugins. By device: its claims. Waiting
    are the pods that request devices and have no node, with the reason. Without an argument: nodes,
    namespaces and waiting pods. Read-only.

    Exit status: 0 when printed, 2 when the call is wrong.
    """
    if by is not None and by.lower() not in _NAMES:
        raise click.UsageError(f"expected {', '.join(By)}, found {by!r}")
    objects, faults = decode_objects(
        cluster_objects.objects, STATE_KINDS, cluster_objects.namespace
    )
    for fault in faults:
        print_line(fault.line())
    shown_lists = _SUMMARY if by is None else (_NAMES[by.lower()],)
    state = build_state(objects)
    answer = _answer(state, features, schedulers, shown_lists, only_namespace)
    if shown_lists != (By.WAITING,):
        print_notes(uncounted(state, state.cluster(features)))
    if output != Output.TEXT:
        click.echo(format_document(output, encode_readable(answer), Report.TOP))
        return
    click.echo(format_top(answer, shutil.get_terminal_size().columns))


def _answer(
    state: ClusterState,
    features: Features,
    schedulers: tuple[str, ...],
    shown_lists: tuple[By, ...],
    namespace: str | None,
) -> Top:
    cluster = state.cluster(features)
    answer = Top()
    for by in shown_lists:
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
                support = scheduler_support(state, features, schedulers)
                snapshot = TranslationSnapshot(profiles=load_profiles())
                waiting = top_waiting(state, features, support, namespace, snapshot)
                answer = msgspec.structs.replace(answer, waiting=waiting)
    return answer
