"""`drawbridge quota convert`: ResourceQuotas that count claims beside device keys."""

import sys
from collections.abc import Sequence
from typing import Final

import click
import msgspec

from cli.answers.quota_conversion import ConvertedQuota, convert_quotas
from cli.inputs.cluster_documents import ClusterDocuments, with_documents
from cli.inputs.findings import DEFAULT_NAMESPACE
from cli.output.formats import Report, format_document
from cli.output.help import Command
from cli.output.progress import LongRun
from findings.text import printable
from kube.manifests.dump import dump_yaml

YAML: Final = "yaml"
JSON: Final = "json"
EXAMPLES: Final = """\
drawbridge quota convert --live > quotas.yaml
drawbridge quota convert --snapshot cluster.json.gz -o json
"""


class QuotaDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `drawbridge quota convert -o json`."""

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
def quota(documents: ClusterDocuments, action: str, output: str) -> None:  # noqa: ARG001
    """Print the ResourceQuotas of device keys, extended so that they count claims as well.

    The old lines stay, since pods that Kubernetes serves natively go on counting there. Lines that
    no quota can express for claims are named on standard error. Read-only.

    Exit status: 0 when every line is converted, 1 when some line cannot be, 2 when the call is wrong.
    """
    converted_quotas = convert_quotas(
        documents.objects, documents.profiles, documents.options, DEFAULT_NAMESPACE
    )
    if output == JSON:
        answer = QuotaDocument(quotas=tuple(converted_quotas))
        click.echo(format_document(output, msgspec.json.encode(answer), Report.QUOTA))
    else:
        click.echo(dump_yaml(_changed_lines(converted_quotas)), nl=False)
    for converted_quota in converted_quotas:
        for line, reason in converted_quota.not_convertible.items():
            text = f"note: {converted_quota.object}: {line} stays as it is: {reason}"
            click.echo(printable(text), err=True)
    if not converted_quotas:
        click.echo("note: no ResourceQuota names a device key", err=True)
    elif not any(entry.added for entry in converted_quotas):
        click.echo("note: nothing to add: every line that can count claims has its line", err=True)
    sys.exit(1 if any(entry.not_convertible for entry in converted_quotas) else 0)


def _changed_lines(converted_quotas: Sequence[ConvertedQuota]) -> list[dict[str, object]]:
    return [dict(entry.document) for entry in converted_quotas if entry.document is not None]
