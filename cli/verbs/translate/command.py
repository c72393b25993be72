"""`drawbridge translate`: manifests as the webhook would rewrite them, as documents to apply."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import click
import msgspec
from click.core import ParameterSource

from answers.manifests.translate import (
    Document,
    TranslatedObject,
    collect_findings,
    documents,
    move_templates,
    translate_objects,
)
from answers.model.findings import (
    FindingDocument,
    ObjectFinding,
    has_errors,
    namespace_of,
)
from answers.model.inputs import Inputs
from cli.output import diff, formats
from cli.output import translate_text as text
from cli.output.files import rewrite
from cli.output.help import CLUSTER_STATE, Command
from cli.output.progress import LongRun
from cli.output.standard_error import print_line
from cli.reading.editable_files import check_in_place, read_editable
from cli.reading.options import with_inputs
from cli.verbs.translate.in_place import translate_file
from findings.text import count_text, inert_line, printable
from kube.errors import ObjectFileError
from kube.manifests.dump import dump_yaml
from kube.manifests.edited_file import EditedFile


class Output(StrEnum):
    """Forms of the answer."""

    YAML = "yaml"
    JSON = "json"
    DIFF = "diff"
    TEXT = "text"


class OnRefusal(StrEnum):
    """The content of the YAML if an object would be rejected."""

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
# the files themselves, with their comments; first as a diff
drawbridge translate -f manifests/ -R --live --in-place --dry-run
drawbridge translate -f manifests/ -R --live --in-place
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
    "leave it out (skip), or print it as it was given (keep). --in-place rewrites nothing (fail), or "
    "the other objects (keep).",
)
@click.option(
    "--in-place",
    is_flag=True,
    help="Rewrite the files of -f. Comments stay, and so does every object that does not change.",
)
@click.option("--dry-run", is_flag=True, help="With --in-place: print the changes as a diff.")
@click.pass_context
def translate(
    ctx: click.Context,
    inputs: Inputs,
    output: str,
    on_refusal: str | None,
    *,
    in_place: bool,
    dry_run: bool,
) -> None:
    """Print manifests as the webhook would rewrite them.

    Device keys of pods and pod templates become claims; the ResourceClaimTemplates that they need
    are printed before them. Everything else stays as it is. Read-only, except for --in-place.

    Exit status: 0 when no object would be rejected; 1 when one would be, or its pods when they are
    created; 2 when the call is wrong or a file cannot be read.
    """
    if on_refusal is not None and output != Output.YAML:
        raise click.UsageError("--on-refusal requires -o yaml.")
    if dry_run and not in_place:
        raise click.UsageError("--dry-run requires --in-place; without it nothing is written.")
    if in_place:
        _check_in_place(inputs, on_refusal, ctx)
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
    choice = None if on_refusal is None else OnRefusal(on_refusal)
    if in_place:
        moved_results = move_templates(results, inputs.namespace)
        _translate_in_place(moved_results, findings, choice, is_dry_run=dry_run)
    else:
        _print_results(inputs, results, findings, Output(output), choice)
    sys.exit(1 if has_errors(findings) else 0)


def _print_results(
    inputs: Inputs,
    results: Sequence[TranslatedObject],
    findings: Sequence[ObjectFinding],
    output: Output,
    choice: OnRefusal | None,
) -> None:
    """Print the objects in one of the forms, and the findings if the form has none."""
    match output:
        case Output.YAML:
            printed = printed_documents(results, findings, choice or OnRefusal.FAIL)
            click.echo(dump_yaml(printed), nl=False)
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
            print_line(finding.line())
    if output == Output.YAML and choice is None and has_errors(findings):
        print_line(
            "note: nothing is printed because of the errors above; --on-refusal=skip leaves such "
            "objects out, --on-refusal=keep prints them as they were given"
        )


def _check_in_place(inputs: Inputs, on_refusal: str | None, ctx: click.Context) -> None:
    """Reject options and files that --in-place cannot go with."""
    if ctx.get_parameter_source("output") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--in-place and -o are mutually exclusive.")
    if on_refusal == OnRefusal.SKIP:
        raise click.UsageError("--in-place leaves no object out: use --on-refusal=keep.")
    check_in_place(inputs.manifests, ctx.params["files"])


def _translate_in_place(
    results: Sequence[TranslatedObject],
    findings: Sequence[ObjectFinding],
    choice: OnRefusal | None,
    *,
    is_dry_run: bool,
) -> None:
    """Rewrite the files of the objects that change, or print the changes.

    Raises:
        DrawbridgeError: A file cannot be edited or written. If it cannot be edited, no file is written.
    """
    for finding in findings:
        print_line(finding.line())
    if has_errors(findings) and choice is not OnRefusal.KEEP:
        note = (
            "nothing is rewritten because of the errors above; --on-refusal=keep rewrites the rest"
        )
        print_line(f"note: {note}")
        return
    edited_files = _edit_files(results)
    for edited_file in edited_files:
        if is_dry_run:
            for line in diff.colorize(diff.file_diff_lines(edited_file)):
                click.echo(line)
            continue
        try:
            rewrite(Path(edited_file.path), edited_file.after)
        except OSError as error:
            raise ObjectFileError(f"{edited_file.path}: {error.strerror}") from error
        templates = (
            f", {count_text(edited_file.added, 'template')} added" if edited_file.added else ""
        )
        objects = count_text(edited_file.changed, "object")
        line = f"{edited_file.path}: {objects} translated{templates}"
        click.echo(inert_line(printable(line)))
    if not edited_files:
        print_line("no file changes")


def _edit_files(results: Sequence[TranslatedObject]) -> list[EditedFile]:
    """Return the files with text that changes; nothing is written."""
    results_by_file: dict[str, list[TranslatedObject]] = {}
    for result in results:
        results_by_file.setdefault(result.source.source, []).append(result)
    return [
        translate_file(path, read_editable(path, "translate"), own_results)
        for path, own_results in results_by_file.items()
        if any(result.is_changed for result in own_results)
    ]


def printed_documents(
    results: Sequence[TranslatedObject], findings: Sequence[ObjectFinding], choice: OnRefusal
) -> list[Document]:
    """Return the documents of the YAML stream.

    Args:
        findings: The findings of the results, and of the state of the cluster.
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
    """Yield the lines of the changes that applying the answer would make."""
    for result in results:
        place = namespace_of(result.source, namespace)
        for template in result.templates:
            yield from diff.unified_diff_lines(diff.file_name(template, place), None, template)
        # An unchanged object may be of any kind, and have no name where others have one.
        if result.is_changed and result.document is not None:
            old = result.source.document
            yield from diff.unified_diff_lines(diff.file_name(old, place), old, result.document)
