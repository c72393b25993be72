"""`drawbridge check`: what a cluster would reject or warn about, before anything is applied."""

import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from importlib.metadata import version
from typing import Final

import click
import msgspec

from allocator.model.feature_gates import Features
from cli.answers.check import CheckedObject, check_objects, collect_findings
from cli.inputs.feature_gates import feature_gates
from cli.inputs.findings import FindingDocument, ObjectFinding, has_errors, printable
from cli.inputs.options import Inputs, with_allocation_inputs
from cli.inputs.schedulers import policy_aware_schedulers
from cli.output import sarif
from cli.output.help import CLUSTER_STATE, Command
from cli.output.phrases import count_text
from findings.finding import Severity
from kube.names import DISTRIBUTION

_COLOURS: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


class Output(StrEnum):
    """Forms of the answer."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"


class CheckAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `drawbridge check -o json`."""

    findings: tuple[FindingDocument, ...]


EXAMPLES: Final = """\
drawbridge check -f manifests/ --snapshot cluster.json
# for a code host
drawbridge check -f manifests/ -o sarif > drawbridge.sarif
"""


@click.command("check", cls=Command, epilog=CLUSTER_STATE + EXAMPLES)
@with_allocation_inputs
@feature_gates
@policy_aware_schedulers
@click.option(
    "-o",
    "--output",
    type=click.Choice([form.value for form in Output]),
    default=Output.TEXT.value,
    show_default=True,
    help="text: to read. json: for scripts. sarif: for code hosts, SARIF 2.1.0.",
)
def check(inputs: Inputs, output: str, features: Features, schedulers: tuple[str, ...]) -> None:
    """Report what the cluster would reject or warn about, with reason and fix.

    Pods with device keys are translated first. DeviceClasses, ResourceSlices and policies given
    with -f are added to the state of the cluster. Its slices count as the largest inventory that
    there will ever be. Read-only.

    An error means that the object would be rejected, or that its pods would be when they are
    created. The webhook only warns about a workload whose pods may be accepted by then, for
    instance because of a ResourceQuota; here that is an error as well, as in translate.

    Exit status: 0 when nothing would be rejected, 1 when something would, 2 when the call is wrong
    or a file cannot be read.
    """
    results = check_objects(inputs, features, schedulers)
    findings = [*inputs.faults, *collect_findings(results)]
    match Output(output):
        case Output.TEXT:
            for line in as_text(results, inputs.faults):
                click.echo(line)
        case Output.JSON:
            documents = tuple(finding.document() for finding in findings)
            click.echo(_as_json(CheckAnswer(findings=documents)))
        case Output.SARIF:
            click.echo(_as_json(sarif.log(results, inputs.faults, version(DISTRIBUTION))))
    sys.exit(1 if has_errors(findings) else 0)


def _as_json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def as_text(results: Sequence[CheckedObject], faults: Sequence[ObjectFinding]) -> Iterator[str]:
    """Yield a line for each finding, with its file and line, and the totals at the end."""
    for fault in faults:
        yield _colour(fault.line(), fault.finding.severity)
    for result in results:
        place = printable(f"{result.source.source}:{result.source.line}")
        for finding in result.findings:
            line = ObjectFinding(object=result.reference, finding=finding).line()
            yield f"{place}: {_colour(line, finding.severity)}"
    findings = [*faults, *collect_findings(results)]
    totals = ", ".join(
        count_text(sum(entry.finding.severity is severity for entry in findings), severity.value)
        for severity in (Severity.ERROR, Severity.WARNING)
    )
    yield f"{count_text(len(results), 'object')} checked: {totals}"


def _colour(line: str, severity: Severity) -> str:
    word, colon, rest = line.partition(":")
    return f"{click.style(word, fg=_COLOURS[severity], bold=True)}{colon}{rest}"
