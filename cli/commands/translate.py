"""`drawbridge translate`: manifests as the webhook would rewrite them, as documents to apply."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

import click
import msgspec

from cli.answers.translate import (
    Document,
    TranslatedObject,
    collect_findings,
    documents,
    translate_objects,
)
from cli.inputs.findings import FindingDocument, ObjectFinding, has_errors, namespace_of
from cli.inputs.options import Inputs, with_inputs
from cli.output import diff, formats
from cli.output import translate_text as text
from cli.output.help import CLUSTER_STATE, Command
from cli.output.progress import LongRun
from kube.manifests.dump import dump_yaml


class Output(StrEnum):
    """Forms of the answer."""

    YAML = "yaml"
    JSON = "json"
    DIFF = "diff"
    TEXT = "text"


class OnRefusal(StrEnum):
    """The content of the YAML where an object would be rejected."""

    FAIL = "fail"
    """Nothing at all, so that a pipe into kubectl applies all objects or none."""
    SKIP = "skip"
    """The other objects."""
    KEEP = "keep"
    """The other objects, and this one as it was given."""


class TranslateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `drawbridge translate -o json`."""

    objects: tuple[Document, ...]
    findings: tuple[FindingDocument, ...]


EXAMPLES: Final = """\
# what would become of these manifests, in words, and as a diff
drawbridge translate -f manifests/ --snapshot cluster.json.gz -o text
drawbridge translate -f manifests/ --live -o diff
# manifests to apply, all of them or none
drawbridge translate -f manifests/ --live > translated.yaml
"""


@click.command("translate", cls=Command, epilog=CLUSTER_STATE + EXAMPLES)
@with_inputs
@click.option(
    "-o",
    "--output",
    type=click.Choice([form.value for form in Output]),
    default=Output.YAML.value,
    show_default=True,
    help="yaml: to apply. json: objects and findings. diff: before and after. text: to read.",
)
@click.option(
    "--on-refusal",
    type=click.Choice([choice.value for choice in OnRefusal]),
    help="With -o yaml, where an object would be rejected: print nothing (fail, the default), "
    "leave it out (skip), or print it as it was given (keep).",
)
def translate(inputs: Inputs, output: str, on_refusal: str | None) -> None:
    """Print manifests as the webhook would rewrite them.

    Device keys of pods and pod templates become claims; the ResourceClaimTemplates that they need
    are printed before them. Everything else stays as it is. Read-only.

    Exit status: 0 when no object would be rejected; 1 when one would be, or its pods when they are
    created; 2 when the call is wrong or a file cannot be read.
    """
    if on_refusal is not None and output != Output.YAML:
        raise click.UsageError("--on-refusal requires -o yaml.")
    # A part of a stream must not be applied, so ^C ends it without output.
    with LongRun("translated", len(inputs.manifests), is_divisible=False) as run:
        results = translate_objects(
            inputs.manifests,
            snapshot=inputs.snapshot,
            options=inputs.options,
            namespace=inputs.namespace,
            track=run.track,
        )
    findings = [*inputs.faults, *collect_findings(results)]
    match Output(output):
        case Output.YAML:
            choice = OnRefusal(on_refusal or OnRefusal.FAIL)
            click.echo(dump_yaml(printed_documents(results, findings, choice)), nl=False)
        case Output.JSON:
            click.echo(as_json(results, findings))
        case Output.DIFF:
            for line in diff.colorize(as_diff(results, inputs.namespace)):
                click.echo(line)
        case Output.TEXT:
            columns = shutil.get_terminal_size().columns
            click.echo(text.format_results(results, inputs.snapshot.profiles, columns))
    if output in (Output.YAML, Output.DIFF):
        for finding in findings:
            click.echo(finding.line(), err=True)
    if output == Output.YAML and on_refusal is None and has_errors(findings):
        click.echo(
            "note: nothing is printed because of the errors above; --on-refusal=skip leaves such "
            "objects out, --on-refusal=keep prints them as they were given",
            err=True,
        )
    sys.exit(1 if has_errors(findings) else 0)


def printed_documents(
    results: Sequence[TranslatedObject], findings: Sequence[ObjectFinding], choice: OnRefusal
) -> list[Document]:
    """Return the documents of the YAML stream.

    Args:
        findings: Of the results, and of the state of the cluster.
    """
    match choice:
        case OnRefusal.FAIL:
            return [] if has_errors(findings) else list(documents(results))
        case OnRefusal.SKIP:
            return list(documents(results))
        case OnRefusal.KEEP:
            return [
                document
                for result in results
                for document in (
                    documents([result]) if result.document is not None else [result.source.document]
                )
            ]


def as_json(results: Sequence[TranslatedObject], findings: Sequence[ObjectFinding]) -> str:
    """Return objects and findings as one JSON document."""
    answer = TranslateAnswer(
        objects=tuple(documents(results)),
        findings=tuple(finding.document() for finding in findings),
    )
    return formats.format_document(
        Output.JSON, msgspec.json.encode(answer), formats.Report.TRANSLATE
    )


def as_diff(results: Sequence[TranslatedObject], namespace: str) -> Iterator[str]:
    """Yield the lines of what applying the answer would change."""
    for result in results:
        place = namespace_of(result.source, namespace)
        for template in result.templates:
            yield from diff.unified_diff_lines(diff.file_name(template, place), None, template)
        # An unchanged object may be of any kind, and have no name where others have one.
        if result.is_changed and result.document is not None:
            old = result.source.document
            yield from diff.unified_diff_lines(diff.file_name(old, place), old, result.document)
