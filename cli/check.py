"""`drawbridge check`: what a cluster would refuse, or warn of, before anything is applied."""

import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from importlib.metadata import version

import click
import msgspec

from cli import sarif
from cli.checked import Checked, checked, reported
from cli.inputs import Inputs, with_allocation_inputs
from cli.report import Reported, has_errors, printable
from webhook.findings import Severity

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


class Output(StrEnum):
    """Forms of the answer."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"


@click.command("check")
@with_allocation_inputs
@click.option(
    "-o",
    "--output",
    type=click.Choice([form.value for form in Output]),
    default=Output.TEXT.value,
    show_default=True,
    help="text: to read. json: for scripts. sarif: for code hosts, SARIF 2.1.0.",
)
def check(inputs: Inputs, output: str) -> None:
    """Judge manifests as the cluster would, with the reason and the cure.

    Pods with device keys are translated first. DeviceClasses, ResourceSlices and policies given
    with -f join the state of the cluster; its slices count as all that there will ever be. Changes
    nothing anywhere.

    Exits 0 when nothing would be refused, 1 when something would, 2 when the call is wrong or a file
    cannot be read.

    \b
    drawbridge check -f manifests/
    drawbridge check -f claim.yaml --snapshot cluster.yaml -o sarif > drawbridge.sarif
    """  # noqa: D301 - click's mark for lines that are not wrapped is a real \b.
    results = checked(inputs)
    findings = [*inputs.faults, *reported(results)]
    match Output(output):
        case Output.TEXT:
            for line in as_text(results, inputs.faults):
                click.echo(line)
        case Output.JSON:
            click.echo(_as_json({"findings": [one.document() for one in findings]}))
        case Output.SARIF:
            click.echo(_as_json(sarif.log(results, inputs.faults, version("drawbridge-dra"))))
    sys.exit(1 if has_errors(findings) else 0)


def _as_json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def as_text(results: Sequence[Checked], faults: Sequence[Reported]) -> Iterator[str]:
    """Yield the answer for people: each finding where it is, and the numbers at the end."""
    for one in faults:
        yield _coloured(one.line(), one.finding.severity)
    for result in results:
        place = printable(f"{result.source.source}:{result.source.line}")
        for finding in result.findings:
            said = Reported(object=result.reference, finding=finding).line()
            yield f"{place}: {_coloured(said, finding.severity)}"
    told = [*faults, *reported(results)]
    numbers = ", ".join(
        _counted(sum(one.finding.severity is severity for one in told), severity.value)
        for severity in (Severity.ERROR, Severity.WARNING)
    )
    yield f"{_counted(len(results), 'object')} checked: {numbers}"


def _coloured(line: str, severity: Severity) -> str:
    word, colon, rest = line.partition(":")
    return f"{click.style(word, fg=_COLOURS[severity], bold=True)}{colon}{rest}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
