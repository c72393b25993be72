"""`drawbridge translate`: what the webhook would make of manifests, as a document to apply."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum

import click
import msgspec

from cli import diff, text
from cli.inputs import Inputs, with_inputs
from cli.manifests import Translated, documents, reported, translated
from cli.report import Reported, has_errors, namespace_of
from kube.files import dump_yaml


class Output(StrEnum):
    """Forms of the answer."""

    YAML = "yaml"
    JSON = "json"
    DIFF = "diff"
    TEXT = "text"


@click.command("translate")
@with_inputs
@click.option(
    "-o",
    "--output",
    type=click.Choice([form.value for form in Output]),
    default=Output.YAML.value,
    show_default=True,
    help="yaml: to apply. json: objects and findings. diff: old against new. text: to read.",
)
def translate(inputs: Inputs, output: str) -> None:
    """Print manifests as they are after the webhook.

    Device keys of pods and pod templates become claims; the ResourceClaimTemplates that they need
    are printed before them. Everything else stays as it is. Changes nothing anywhere.

    Exits 0 when all is well, 1 when an object is refused (it is left out, the others stay), 2 when
    the call is wrong or a file cannot be read.

    \b
    drawbridge translate -f pod.yaml -o text
    drawbridge translate -f manifests/ --snapshot cluster.yaml | kubectl apply -f -
    """  # noqa: D301 - click's mark for lines that are not wrapped is a real \b.
    results = translated(
        inputs.given, world=inputs.world, options=inputs.options, namespace=inputs.namespace
    )
    findings = [*inputs.faults, *reported(results)]
    match Output(output):
        case Output.YAML:
            click.echo(dump_yaml(documents(results)), nl=False)
        case Output.JSON:
            click.echo(as_json(results, findings))
        case Output.DIFF:
            for line in diff.coloured(as_diff(results, inputs.namespace)):
                click.echo(line)
        case Output.TEXT:
            columns = shutil.get_terminal_size().columns
            click.echo(text.rendered(results, inputs.world.profiles, columns))
    if output in (Output.YAML, Output.DIFF):
        for one in findings:
            click.echo(one.line(), err=True)
    sys.exit(1 if has_errors(findings) else 0)


def as_json(results: Sequence[Translated], findings: Sequence[Reported]) -> str:
    """Return objects and findings as one JSON document."""
    answer = {
        "objects": list(documents(results)),
        "findings": [one.document() for one in findings],
    }
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()


def as_diff(results: Sequence[Translated], namespace: str) -> Iterator[str]:
    """Yield the lines of what applying the answer would change."""
    for result in results:
        place = namespace_of(result.source, namespace)
        for template in result.templates:
            yield from diff.unified(diff.file_name(template, place), None, template)
        # What stays as it is may be of any kind, and so have no name where others have one.
        if result.changed and result.document is not None:
            old = result.source.document
            yield from diff.unified(diff.file_name(old, place), old, result.document)
