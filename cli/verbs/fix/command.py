"""`drawbridge fix`: the amounts and names that `check` names, written into manifests."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from click.core import ParameterSource

from allocator.model.feature_gates import Features
from answers.manifests.check import check_objects
from answers.manifests.state_checks import check_state
from answers.model.findings import FindingDocument, ObjectFinding, has_errors
from answers.model.inputs import Inputs
from cli.flags.excluded import EXCLUDE
from cli.flags.feature_gates import given_feature_gates
from cli.flags.schedulers import policy_aware_schedulers
from cli.output import diff
from cli.output.files import rewrite
from cli.output.formats import Report, format_document
from cli.output.help import CLUSTER_STATE, Command
from cli.output.standard_error import print_line
from cli.reading.editable_files import (
    check_in_place,
    check_named_once,
    read_editable,
    read_text,
)
from cli.reading.field_lines import LinesOfFiles
from cli.reading.options import with_inputs_and_stdin
from cli.verbs.fix.edited_files import UneditedFile, edit_files, join_texts
from cli.verbs.fix.text import format_fixes
from findings.checked_object import CheckedObject
from findings.finding import Severity
from findings.fixes import FixedObject, fix_objects
from findings.text import count_text, inert_line, printable
from kube.errors import NotEditable, ObjectFileError
from kube.manifests.compressed import decompress
from kube.manifests.edited_file import EditedFile
from kube.manifests.source import SourceObject


class Output(StrEnum):
    """Forms of the answer."""

    DIFF = "diff"
    YAML = "yaml"
    JSON = "json"
    TEXT = "text"


class FixDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An amount, a text or the name of a key that was changed.

    Attributes:
        file: The file of the object.
        line: The line of the object in it.
        object: `Kind/namespace/name`.
        path: The place in the object, with the key as it was.
        before: The amount or the text as it was written, or the key; null where there was none.
        after: The same as it is now.
    """

    code: str
    object: str
    file: str
    line: int
    path: str
    before: str | None
    after: str


class FixAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `drawbridge fix -o json`.

    Attributes:
        fixes: The changes.
        objects: All objects in order, fixed.
        findings: The findings that are left.
    """

    fixes: tuple[FixDocument, ...]
    objects: tuple[dict[str, Any], ...]
    findings: tuple[FindingDocument, ...]


EXAMPLES: Final = """\
drawbridge fix -f pod.yaml --snapshot cluster.json.gz
# the files themselves, with their comments
drawbridge fix -f manifests/ -R --live --in-place
# one step of a pipe
helm template chart | drawbridge fix -f - --live -o yaml | kubectl apply -f -
"""


@click.command("fix", cls=Command, epilog=CLUSTER_STATE + EXAMPLES)
@with_inputs_and_stdin
@EXCLUDE
@given_feature_gates
@policy_aware_schedulers
@click.option(
    "--warnings",
    is_flag=True,
    help="Also lower amounts that the cluster would accept with a warning, such as what does not fit "
    "beside what is in use now (doesNotFitNow).",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice([form.value for form in Output]),
    default=Output.DIFF.value,
    show_default=True,
    help="diff: of the files. yaml: the files' text, fixed. json: fixes, objects and the findings that "
    "are left. text: a line per fix.",
)
@click.option("--in-place", is_flag=True, help="Rewrite the files of -f. Comments and layout stay.")
@click.pass_context
def fix(
    ctx: click.Context,
    inputs: Inputs,
    features: Features,
    *,
    stdin_text: bytes,
    schedulers: tuple[str, ...],
    warnings: bool,
    output: str,
    in_place: bool,
) -> None:
    """Write the fixes that check names into manifests.

    Fixed is what has one right value: more than any device or node has becomes what fits, in the
    key of the manifest, bytes become the unit of the key, and a limit that is missing is added; a
    misspelt key, annotation, field, class or attribute gets the name that check suggests.
    A fix is proved: afterwards the finding is gone, and no object has a new error. All else stays
    as it is. Errors that are left are printed to standard error. Read-only, except for --in-place.

    A file that cannot be edited, such as one with aliases, is named, and the others are fixed; -o yaml
    prints its objects anew, without their comments.

    Exit status: 0 when no error is left, 1 when one is, 2 when the call is wrong, a file cannot be
    read (with -R after the others are fixed), or one cannot be edited.
    """
    if in_place:
        if ctx.get_parameter_source("output") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--in-place and -o are mutually exclusive.")
        check_in_place(inputs.manifests, ctx.params["files"])
    elif output in (Output.DIFF, Output.YAML):
        check_named_once(inputs.manifests, ctx.params["files"])
    objects = fix_objects(
        inputs.manifests, partial(_check, inputs, features, schedulers), with_warnings=warnings
    )
    faults = check_state(inputs)
    if in_place:
        unedited = _rewrite_files(objects)
    else:
        unedited = _print_fixes(objects, faults, Output(output), stdin_text)
    if in_place or output != Output.JSON:
        # After the files are rewritten, of which these are the lines.
        _print_left(objects, faults, LinesOfFiles(partial(read_text, stdin_text=stdin_text)))
    for message in (*inputs.unreadable, *unedited):
        print_line(f"Error: {message}")
    if unedited:
        print_line(
            "note: -o yaml prints the objects of a file that cannot be edited, without its comments"
        )
    if inputs.unreadable or unedited:
        sys.exit(2)
    sys.exit(1 if has_errors([*faults, *_findings(objects)]) else 0)


def _check(
    inputs: Inputs,
    features: Features,
    schedulers: tuple[str, ...],
    manifests: Sequence[SourceObject],
) -> Sequence[CheckedObject]:
    """Return the findings on manifests in place of those of the call."""
    others = msgspec.structs.replace(inputs, manifests=tuple(manifests))
    return check_objects(others, features, schedulers)


def _findings(objects: Sequence[FixedObject]) -> Iterator[ObjectFinding]:
    for fixed in objects:
        for finding in fixed.checked.findings:
            yield ObjectFinding(object=fixed.checked.reference, finding=finding)


def _print_fixes(
    objects: Sequence[FixedObject],
    faults: Sequence[ObjectFinding],
    output: Output,
    stdin_text: bytes,
) -> tuple[str, ...]:
    """Print the manifests, or their changes; return the reasons that files cannot be edited."""
    read = partial(read_text, stdin_text=stdin_text)
    match output:
        case Output.JSON:
            click.echo(_as_json(objects, faults))
        case Output.TEXT:
            for line in format_fixes(objects, LinesOfFiles(read)):
                click.echo(line)
        case Output.YAML:
            files = edit_files(objects, read)
            click.echo(join_texts(files), nl=False)
            for reason in _reasons(files):
                print_line(f"note: {reason}; its objects are printed anew, without comments")
        case Output.DIFF:
            files = edit_files(objects, read, only_changed=True)
            for file in files:
                if isinstance(file, EditedFile):
                    for line in diff.colorize(diff.file_diff_lines(file)):
                        click.echo(line)
            return _reasons(files)
    return ()


def _reasons(files: Iterable[EditedFile | UneditedFile]) -> tuple[str, ...]:
    return tuple(file.reason for file in files if isinstance(file, UneditedFile))


def _rewrite_files(objects: Sequence[FixedObject]) -> tuple[str, ...]:
    """Rewrite the files that change; return the reasons that others cannot be edited.

    Raises:
        DrawbridgeError: A file cannot be read or written.
    """
    files = edit_files(objects, _read_plain, only_changed=True)
    for file in files:
        if isinstance(file, UneditedFile):
            continue
        try:
            rewrite(Path(file.path), file.after)
        except OSError as error:
            raise ObjectFileError(f"{file.path}: {error.strerror}") from error
        line = f"{file.path}: {count_text(file.changed, 'object')} fixed"
        click.echo(inert_line(printable(line)))
    if not files:
        print_line("no file changes")
    return _reasons(files)


def _read_plain(path: str) -> bytes:
    text = read_editable(path, "fix")
    if decompress(text, path) != text:
        raise NotEditable(f"{path}: is compressed; --in-place edits plain files")
    return text


def _print_left(
    objects: Sequence[FixedObject], faults: Sequence[ObjectFinding], lines: LinesOfFiles
) -> None:
    """Print the errors that are left, and the number of warnings, to standard error."""
    for fault in faults:
        print_line(fault.line())
    number = 0
    for fixed in objects:
        for finding in fixed.checked.findings:
            number += finding.severity is Severity.WARNING
            if finding.is_error:
                entry = ObjectFinding(object=fixed.checked.reference, finding=finding)
                source = fixed.before.source
                line = lines.line(source, fixed.before.line, finding.path)
                print_line(f"{source}:{line}: {entry.line()}")
    if number:
        print_line(f"note: {count_text(number, 'warning')} left; drawbridge check prints them")


def _as_json(objects: Sequence[FixedObject], faults: Sequence[ObjectFinding]) -> str:
    answer = FixAnswer(
        fixes=tuple(
            FixDocument(
                code=fix.code.value,
                object=fixed.checked.reference,
                file=fixed.before.source,
                line=fixed.before.line,
                path=str(fix.path),
                before=fix.before,
                after=fix.after,
            )
            for fixed in objects
            for fix in fixed.fixes
        ),
        objects=tuple(fixed.checked.source.document for fixed in objects),
        findings=tuple(finding.document() for finding in (*faults, *_findings(objects))),
    )
    return format_document(Output.JSON, msgspec.json.encode(answer), Report.FIX)
