"""`drawbridge quota convert`: ResourceQuotas that count claims beside device keys."""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

import click
import msgspec

from answers.model.findings import DEFAULT_NAMESPACE
from cli.output.formats import Report, format_document
from cli.output.help import Command
from cli.output.progress import LongRun
from cli.output.standard_error import print_line
from cli.reading.cluster_documents import ClusterDocuments, with_documents
from kube.manifests.dump import dump_yaml
from migration.assessment.assess import assess_cluster
from migration.assessment.outcomes import used_devices
from migration.assessment.quota_conversion import ConvertedQuota, Split, convert_quotas, knows_use

YAML: Final = "yaml"
JSON: Final = "json"
EXAMPLES: Final = """\
drawbridge quota convert --live > quotas.yaml
drawbridge quota convert --snapshot cluster.json.gz -o json
"""
_SPLITS: Final = {
    Split.WHOLE: "--split whole: each class has the whole amount of a line; where a key may become devices "
    "of several classes, claims together may have more",
    Split.USED: "--split used: each class has what the namespace uses of it today and an equal part of the "
    "rest; claims together may have what the old line allows",
}
_UNKNOWN_USE: Final = "what namespaces use today is not known, since no pods were read"


class QuotaDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `drawbridge quota convert -o json`.

    Attributes:
        split: The way of giving amounts to classes where a key may become devices of several.
    """

    split: Split
    quotas: tuple[ConvertedQuota, ...]


@click.command("quota", cls=Command, epilog=EXAMPLES)
@click.argument("action", type=click.Choice(["convert"]))
@with_documents(lambda: LongRun("read", is_divisible=False))
@click.option(
    "-o",
    "--output",
    type=click.Choice([YAML, JSON]),
    default=YAML,
    show_default=True,
    help="yaml: quotas to apply. json: what is added to each, and what cannot be converted.",
)
@click.option(
    "--split",
    type=click.Choice([split.value for split in Split]),
    show_default=f"{Split.USED} where pods are read, else {Split.WHOLE}",
    help="Where a key may become devices of several classes: the whole amount for each, or what the "
    "namespace uses of each today and an equal part of the rest, which together are the old amount.",
)
def quota(
    documents: ClusterDocuments,
    action: str,  # noqa: ARG001
    output: str,
    split: str | None,
) -> None:
    """Print the ResourceQuotas of device keys, extended so that they count claims as well.

    The old lines stay, since pods that Kubernetes serves natively go on counting there. Lines that
    no quota can express for claims are named on standard error, and so is what old and new lines allow
    together. Read-only.

    Exit status: 0 when every line is converted, 1 when some line cannot be, 2 when the call is wrong.
    """
    is_known = knows_use(documents.objects, documents.unreadable)
    chosen = Split(split) if split else Split.USED if is_known else Split.WHOLE
    converted_quotas = convert_quotas(
        documents.objects,
        documents.profiles,
        documents.options,
        DEFAULT_NAMESPACE,
        _usage(documents) if chosen is Split.USED else None,
    )
    if output == JSON:
        answer = QuotaDocument(split=chosen, quotas=tuple(converted_quotas))
        click.echo(format_document(output, msgspec.json.encode(answer), Report.QUOTA))
    else:
        click.echo(dump_yaml(_changed_lines(converted_quotas)), nl=False)
    for converted_quota in converted_quotas:
        for effect in converted_quota.effects:
            text = f"note: {converted_quota.object}: {effect.line} now allows {effect.allows}"
            print_line(text)
        for line, reason in converted_quota.not_convertible.items():
            text = f"note: {converted_quota.object}: {line} stays as it is: {reason}"
            print_line(text)
    if any(entry.added for entry in converted_quotas):
        print_line(f"note: {_SPLITS[chosen]}")
        if chosen is Split.USED and not is_known:
            print_line(f"note: {_UNKNOWN_USE}, so every class gets an equal part")
        elif not split and not is_known:
            print_line(f"note: {_UNKNOWN_USE}: give a snapshot with the pods")
    if not converted_quotas:
        print_line("note: no ResourceQuota names a device key")
    elif not any(entry.added for entry in converted_quotas):
        print_line("note: nothing to add: every line that can count claims has its line")
    sys.exit(1 if any(entry.not_convertible for entry in converted_quotas) else 0)


def _usage(documents: ClusterDocuments) -> dict[str, Counter[str]]:
    """Return namespace to DeviceClass to the devices that its pods would have as claims today."""
    cluster = assess_cluster(
        documents.objects,
        documents.profiles,
        documents.options,
        namespace=DEFAULT_NAMESPACE,
        version=documents.version,
        gates=documents.gates,
    )
    return used_devices(cluster.workloads)


def _changed_lines(converted_quotas: Sequence[ConvertedQuota]) -> list[dict[str, object]]:
    return [dict(entry.document) for entry in converted_quotas if entry.document is not None]
