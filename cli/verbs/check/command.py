"""`drawbridge check`: the rejections and warnings of a cluster, before anything is applied."""

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from functools import partial
from importlib.metadata import version
from typing import Final

import click
import msgspec

from allocator.model.feature_gates import Features
from answers.manifests.check import CheckReport, build_report, check_objects
from answers.manifests.second_check import check_again
from answers.manifests.state_checks import check_state, quota_notes
from answers.model.findings import FindingDocument
from answers.model.inputs import Inputs
from answers.model.kubernetes_version import Version
from cli.flags.completion import complete_from
from cli.flags.excluded import EXCLUDE
from cli.flags.feature_gates import given_feature_gates
from cli.flags.schedulers import policy_aware_schedulers
from cli.flags.version_type import VersionType
from cli.output.formats import Output, Report, format_document, format_json, text_or_document
from cli.output.help import CLUSTER_STATE, Command
from cli.output.progress import INTERRUPTED, LongRun
from cli.output.standard_error import print_line
from cli.reading.options import with_inputs_and_stdin
from cli.verbs.check import github, junit, sarif
from cli.verbs.check import text as check_text
from cli.verbs.check.field_lines import with_field_lines
from findings.documentation import codes_address
from findings.equal_requests import name_requests_of
from findings.finding import Code, Severity
from findings.settled_fixes import settle_fixes
from findings.text import reference_text
from kube.manifests.source import STDIN, SourceObject
from kube.names import DISTRIBUTION, DOCUMENTATION

SARIF: Final = "sarif"
JUNIT: Final = "junit"
GITHUB: Final = "github"
NAMES: Final = "name"


class CheckFinding(FindingDocument, frozen=True, kw_only=True):
    """A finding with the place of its object; none for an object of the cluster's state."""

    file: str | None
    line: int | None


class CheckAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `drawbridge check -o json`."""

    findings: tuple[CheckFinding, ...]


EXAMPLES: Final = """\
drawbridge check -f manifests/ --snapshot cluster.json.gz
# strict, without the findings that are known
drawbridge check -f manifests/ --fail-on warning --ignore uncappedCores
# for a code host, and for a CI server
drawbridge check -f manifests/ -o sarif > drawbridge.sarif
drawbridge check -f manifests/ -o junit > drawbridge.xml
"""


class _CodeType(click.ParamType[Code]):
    """The code of a finding."""

    name = "code"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Code:
        try:
            return Code(value)
        except ValueError:
            near = get_close_matches(value, [code.value for code in Code], n=2)
            fix = f" Did you mean {' or '.join(near)}?" if near else ""
            self.fail(f"there is no finding {value!r}.{fix}", param, ctx)


_SEVERITIES: Final = click.Choice([severity.value for severity in Severity])


@click.command("check", cls=Command, epilog=CLUSTER_STATE + EXAMPLES)
@with_inputs_and_stdin
@EXCLUDE
@given_feature_gates
@policy_aware_schedulers
@click.option(
    "--kubernetes",
    type=VersionType(),
    metavar="VERSION",
    help="The version of Kubernetes whose API server validates the objects (default: that of the cluster, "
    "live or in the snapshot, else the newest).",
)
@click.option(
    "--severity",
    type=_SEVERITIES,
    default=Severity.INFO.value,
    show_default=True,
    help="Print findings of this severity, and of worse ones.",
)
@click.option(
    "--ignore",
    "ignored_codes",
    multiple=True,
    type=_CodeType(),
    metavar="CODE",
    shell_complete=complete_from(lambda: (code.value for code in Code)),
    help="Ignore findings with this code, also for the exit status. Repeatable.",
)
@click.option(
    "--stdin-name",
    default=STDIN,
    show_default=True,
    metavar="FILE",
    help="Name of the file that -f - reads, for the findings.",
)
@click.option(
    "--max",
    "limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="With -o text, print at most N findings.",
)
@click.option(
    "--fail-on",
    type=click.Choice([Severity.ERROR.value, Severity.WARNING.value]),
    default=Severity.ERROR.value,
    show_default=True,
    help="Exit with 1 if there is a finding of this severity, or of a worse one.",
)
@text_or_document(
    sarif="for code hosts, SARIF 2.1.0",
    junit="for CI servers, a test per object",
    github="annotations of GitHub Actions",
    name="the objects with findings",
)
def check(
    inputs: Inputs,
    features: Features,
    *,
    stdin_text: bytes,
    schedulers: tuple[str, ...],
    kubernetes: Version | None,
    severity: str,
    ignored_codes: tuple[Code, ...],
    stdin_name: str,
    limit: int | None,
    fail_on: str,
    output: str,
) -> None:
    """Report everything that the cluster would reject or warn about, with reason and fix.

    Pods with device keys are translated first. DeviceClasses, ResourceSlices and policies given
    with -f are added to the state of the cluster. Its slices count as the largest inventory that
    there will ever be. Read-only.

    An error means that the object would be rejected, or that its pods would be when they are
    created. The webhook only warns about a workload whose pods may be accepted by then, for
    instance because of a ResourceQuota; here that is an error as well, as in translate.

    With -R a file that cannot be read is reported, and the others are checked; files without
    manifests, such as values.yaml, are skipped with a note.

    Equal findings on many objects are printed once, with the number of objects; -o json has all.

    Exit status: 0 when nothing would be rejected, 1 when something would (or as --fail-on says), 2
    when the call is wrong or a file cannot be read (with -R after the report), 130 when ^C ended it before all were checked.
    """
    if stdin_name != STDIN:
        inputs = msgspec.structs.replace(inputs, manifests=_renamed(inputs.manifests, stdin_name))
    with LongRun("checked", len(inputs.manifests)) as run:
        results = check_objects(inputs, features, schedulers, run.track, kubernetes=kubernetes)
    if not run.is_interrupted:
        recheck = partial(check_again, inputs, features, schedulers, kubernetes)
        results = settle_fixes(results, recheck)
    results = list(name_requests_of(results))
    for note in quota_notes(inputs):
        print_line(f"note: {note}")
    report = build_report(results, check_state(inputs), ignored_codes, Severity(severity))
    if output in (Output.TEXT, SARIF, GITHUB):
        report = with_field_lines(report, stdin_name, stdin_text)
    _print_report(report, output, limit, Severity(fail_on))
    sys.exit(_exit_status(inputs, report, Severity(fail_on), is_interrupted=run.is_interrupted))


def _print_report(report: CheckReport, output: str, limit: int | None, fail_on: Severity) -> None:
    """Print a report in one of the forms."""
    match output:
        case Output.TEXT:
            codes = codes_address(DOCUMENTATION, version(DISTRIBUTION)) if DOCUMENTATION else ""
            for line in check_text.format_report(report, limit, codes):
                click.echo(line)
        case _ if output == SARIF:
            log = sarif.log(report, version(DISTRIBUTION))
            click.echo(format_json(log))
        case _ if output == JUNIT:
            click.echo(junit.test_suite(report, fail_on))
        case _ if output == GITHUB:
            for command in github.commands(report):
                click.echo(command)
        case _ if output == NAMES:
            for name in dict.fromkeys(entry.object for entry in report.shown):
                click.echo(reference_text(name))
        case _:
            answer = msgspec.json.encode(_answer(report))
            click.echo(format_document(output, answer, Report.CHECK))


def _renamed(manifests: Iterable[SourceObject], name: str) -> tuple[SourceObject, ...]:
    """Return manifests, those of standard input as if they were of a file."""
    return tuple(
        msgspec.structs.replace(manifest, source=name) if manifest.source == STDIN else manifest
        for manifest in manifests
    )


def _exit_status(
    inputs: Inputs, report: CheckReport, fail_on: Severity, *, is_interrupted: bool
) -> int:
    """Return the exit status, and print the unreadable objects to standard error."""
    if is_interrupted:
        return INTERRUPTED
    for message in inputs.unreadable:
        print_line(f"Error: {message}")
    if inputs.unreadable:
        return 2
    return 1 if report.has(fail_on) else 0


def _answer(report: CheckReport) -> CheckAnswer:
    return CheckAnswer(
        findings=tuple(
            CheckFinding(
                **msgspec.structs.asdict(entry.described.document()),
                file=entry.file,
                line=entry.line if entry.file is not None else None,
            )
            for entry in report.shown
        )
    )
