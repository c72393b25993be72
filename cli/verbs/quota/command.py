"""`drawbridge quota`: the amounts left of DeviceQuotas, and quotas of other systems converted."""

import sys
from typing import Final

import click
import msgspec

from allocator.model.feature_gates import Features
from answers.cluster.quota_status import QuotaUsage, quota_usages, unknown_namespaces
from answers.cluster.quota_usage import build_usage
from answers.model.cluster_state import build_state
from answers.model.findings import DEFAULT_NAMESPACE
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from cli.output.formats import Output, Report, format_document
from cli.output.help import Command
from cli.output.progress import LongRun
from cli.output.standard_error import print_line
from cli.reading.cluster_documents import ClusterDocuments, with_documents
from cli.verbs.quota.convert import convert, print_notes_on
from cli.verbs.quota.text import format_names, format_quotas
from kube.manifests.dump import dump_yaml
from migration.conversion.quota_conversion import Split
from migration.quotas.model import Target

EXAMPLES: Final = """\
drawbridge quota status --live
drawbridge quota convert --live > quotas.yaml
# of HAMi, Koordinator, tensor-fusion or Volcano
drawbridge quota convert --snapshot cluster.json.gz --to device
drawbridge quota convert --snapshot cluster.json.gz --to kueue -o json
"""
_NO_NAMESPACES: Final = (
    "the snapshot has no Namespaces, whose labels tell the claims that a DeviceQuota counts; take it with "
    "drawbridge snapshot, or run kubectl get namespaces -o yaml > namespaces.yaml and add "
    "--snapshot namespaces.yaml"
)
_NAMESPACES_NOT_READ: Final = (
    "Namespaces, whose labels tell the claims that a DeviceQuota counts, could not be read; read the cluster "
    "as somebody who may list namespaces"
)
CONVERT: Final = "convert"
STATUS: Final = "status"


class _UsageNotKnown(click.ClickException):
    """The amounts to be printed as used are not known."""

    exit_code = 2


class QuotaStatusDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `drawbridge quota status -o json`."""

    quotas: tuple[QuotaUsage, ...]


@click.command("quota", cls=Command, epilog=EXAMPLES)
@click.argument("action", type=click.Choice([CONVERT, STATUS]))
@with_documents(lambda: LongRun("read", is_divisible=False))
@click.option(
    "-o",
    "--output",
    type=click.Choice([form.value for form in Output]),
    show_default="yaml of convert, text of status",
    help="Of convert, yaml: quotas to apply; json: what is added or written for each, and what cannot be "
    "converted. Of status, text: to read; json, yaml: for scripts.",
)
@click.option(
    "--to",
    "target",
    type=click.Choice([target.value for target in Target]),
    show_default="core for numbers of devices of a ResourceQuota, device for all else",
    help="The kind to convert to. device: DeviceQuotas. core: ResourceQuotas. kueue: deviceClassMappings and "
    "lines of a ClusterQueue. volcano: capability of a Queue.",
)
@click.option(
    "--split",
    type=click.Choice([split.value for split in Split]),
    show_default=f"{Split.USED} where pods are read, else {Split.WHOLE}",
    help="Where a key may become devices of several classes: the whole amount for each, or what the "
    "namespace uses of each and needs to start pods, and an equal part of the rest, which together are the old amount.",
)
def quota(
    documents: ClusterDocuments,
    action: str,
    output: str | None,
    target: str | None,
    split: str | None,
) -> None:
    """Show the amounts left of DeviceQuotas, or print quotas of device keys as quotas that count claims.

    status: what claims use of each limit, what is promised to pods and what is left, and who holds pods back that
    would exceed it. It is computed from claims and devices, and needs no controller.

    convert: ResourceQuotas of device keys get lines that count the devices of claims; their old lines stay,
    since pods that Kubernetes serves natively go on counting there. Memory, cores and quotas of other
    schedulers (ElasticQuota, GPUResourceQuota, Volcano's Queue) become DeviceQuotas. What has no counterpart
    is named on standard error, and so is what old and new lines allow together.

    Read-only.

    Exit status: 0 when the usage is printed or every line is converted, 1 when some line cannot be, 2 when the
    call is wrong, or Namespaces are missing, without which the usage is not known.
    """
    if action == STATUS:
        if target or split:
            raise click.UsageError("--to and --split are options of quota convert.")
        _print_status(documents, output or Output.TEXT)
        sys.exit(0)
    form = output or Output.YAML
    if form == Output.TEXT:
        raise click.UsageError("-o text is a form of quota status.")
    answer = convert(documents, Target(target) if target else None, Split(split) if split else None)
    if form == Output.JSON:
        click.echo(format_document(form, msgspec.json.encode(answer), Report.QUOTA))
    else:
        click.echo(dump_yaml(answer.documents), nl=False)
    print_notes_on(answer, documents, is_split_given=bool(split))
    sys.exit(0 if answer.is_complete else 1)


def _print_status(documents: ClusterDocuments, output: str) -> None:
    views, _ = decode_objects(documents.objects, STATE_KINDS, DEFAULT_NAMESPACE)
    state = build_state(views)
    if state.quotas and not state.namespaces:
        is_unreadable = "namespaces" in documents.unreadable
        raise _UsageNotKnown(_NAMESPACES_NOT_READ if is_unreadable else _NO_NAMESPACES)
    answer = QuotaStatusDocument(quotas=quota_usages(state, build_usage(state, Features())))
    if output != Output.TEXT:
        click.echo(format_document(output, msgspec.json.encode(answer), Report.QUOTA_STATUS))
    elif answer.quotas:
        click.echo(format_quotas(answer.quotas))
    else:
        print_line("note: there is no DeviceQuota")
    missing = unknown_namespaces(state) if state.quotas else ()
    if missing:
        print_line(
            f"note: claims of {format_names(missing)} are counted by no quota: there is no such Namespace"
        )
