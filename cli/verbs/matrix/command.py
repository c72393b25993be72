"""`drawbridge matrix`: the kinds of a driver's devices that may be in use together."""

import sys
from collections.abc import Iterable
from typing import Final

import click
import msgspec

from allocator.compatibility.compile import compile_policy
from allocator.compatibility.lint_findings import PolicyFinding, Severity
from allocator.compatibility.matrix import list_reasons, render_matrix
from allocator.model.feature_gates import Features
from answers.cluster.devices import published_devices
from answers.cluster.matrix import (
    DriverCompatibility,
    GroupsAnswer,
    MatrixAnswer,
    compatibility_by_driver,
    equivalent_groups,
    matrix_document,
    with_findings,
)
from answers.model.cluster_state import build_state
from answers.model.inputs import ClusterObjects
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from cli.flags.feature_gates import feature_gates
from cli.output.formats import Output, Report, format_document, text_or_document
from cli.output.help import CLUSTER_STATE, Command
from cli.output.standard_error import print_line
from cli.reading.options import with_whole_cluster
from findings.text import printable

EXAMPLES: Final = """\
drawbridge matrix --snapshot cluster.json.gz -f policy.yaml
drawbridge matrix --live --as-groups
# in CI
drawbridge matrix --snapshot cluster.json.gz -f policy.yaml --fail-on=warning
"""


@click.command("matrix", cls=Command, epilog=CLUSTER_STATE + EXAMPLES)
@with_whole_cluster
@feature_gates
@click.option(
    "--as-groups",
    "prints_groups",
    is_flag=True,
    help="Print the equivalent compatibilityGroups (KEP-5963) for ResourceSlices.",
)
@click.option(
    "--fail-on",
    type=click.Choice([severity.value for severity in Severity]),
    help="Exit with 1 if there is a finding of this severity, or of a worse one.",
)
@text_or_document("a table in Markdown")
def matrix(
    cluster_objects: ClusterObjects,
    features: Features,
    *,
    prints_groups: bool,
    fail_on: str | None,
    output: str,
) -> None:
    """Show the kinds of devices that may be in use together on one piece of hardware.

    For every driver with a DeviceCompatibilityPolicy, or whose slices declare compatibilityGroups,
    with findings about these. Read-only.

    Exit status: 0 when printed, 1 when there is a finding for --fail-on, 2 when the call is wrong.
    """
    objects, faults = decode_objects(
        cluster_objects.objects, STATE_KINDS, cluster_objects.namespace
    )
    for fault in faults:
        print_line(fault.line())
    state = build_state(objects)
    cluster = state.cluster(
        # Groups are shown also where the cluster's feature gate is off.
        msgspec.structs.replace(features, compatibility_groups=True)
    )
    drivers = [
        with_findings(compatibility, cluster)
        for compatibility in compatibility_by_driver(
            map(compile_policy, state.policies), published_devices(cluster), features
        )
    ]
    if not drivers:
        print_line("note: no driver has a policy, and no slice declares groups")
    if output != Output.TEXT:
        answer = (
            GroupsAnswer(drivers=tuple(map(equivalent_groups, drivers)))
            if prints_groups
            else MatrixAnswer(drivers=tuple(map(matrix_document, drivers)))
        )
        click.echo(format_document(output, msgspec.json.encode(answer), Report.MATRIX))
    else:
        format_driver = _format_groups if prints_groups else _format_matrix
        click.echo("\n\n".join(map(format_driver, drivers)), nl=bool(drivers))
    sys.exit(1 if _has_finding(drivers, fail_on) else 0)


def _has_finding(drivers: Iterable[DriverCompatibility], fail_on: str | None) -> bool:
    """Return True if there is a finding of a severity, or of a worse one; not without a severity."""
    if fail_on is None:
        return False
    severities = list(Severity)
    worst = severities[: severities.index(Severity(fail_on)) + 1]
    return any(finding.severity in worst for driver in drivers for finding in driver.findings)


def _title(compatibility: DriverCompatibility) -> str:
    policy = compatibility.policy
    source = f"policy {policy.name}" if policy else "groups that slices declare"
    return f"{compatibility.driver}, {source}"


def _format_matrix(compatibility: DriverCompatibility) -> str:
    table = compatibility.matrix
    if not table.kinds:
        return f"{_title(compatibility)}\n\nno devices of this driver are published"
    gate = compatibility.disabled_gate
    parts = (
        _title(compatibility),
        render_matrix(table).rstrip(),
        f"Feature gate {gate} is off, so pools with compatibilityGroups cannot be used. "
        "The table applies once it is on."
        if gate
        else "",
        "\n".join(list_reasons(table)),
        "\n".join(map(_format_finding, compatibility.findings)),
    )
    return "\n\n".join(part for part in parts if part)


def _format_finding(finding: PolicyFinding) -> str:
    """Return a finding in one line: `warning asymmetricRule: ... (8 times)`."""
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    place = "" if finding.path.is_root else f" at {finding.path}"
    fix = f"; {finding.fix}" if finding.fix else ""
    return printable(f"{finding.severity} {finding.code}{place}: {finding.message}{fix}{times}")


def _format_groups(compatibility: DriverCompatibility) -> str:
    groups = equivalent_groups(compatibility)
    if groups.reason:
        return f"{_title(compatibility)}\n\nnot expressible as groups: {groups.reason}"
    lines = [f"{device}: {', '.join(own) or 'no groups'}" for device, own in groups.devices.items()]
    return "\n".join((_title(compatibility), "", *lines))
