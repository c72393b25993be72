"""`drawbridge matrix`: which kinds of a driver's devices may be in use together."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec

from allocator.cluster.cluster import Cluster
from allocator.compatibility.compile import CompiledPolicy, compile_policy
from allocator.compatibility.lint import lint_pools
from allocator.compatibility.lint_findings import PolicyFinding
from allocator.compatibility.matrix import (
    Matrix,
    as_groups,
    empty_policy,
    list_reasons,
    render_matrix,
)
from allocator.compatibility.matrix import build_matrix as matrix_of
from allocator.model.devices import DeviceId, Pool, PoolId, PublishedDevice
from allocator.model.feature_gates import Features
from allocator.model.outcome import RejectionReason
from cli.answers.devices import published_devices
from cli.inputs.cluster_state import build_state
from cli.inputs.feature_gates import feature_gates
from cli.inputs.kinds import STATE_KINDS
from cli.inputs.objects import decode_objects
from cli.inputs.options import ClusterObjects, with_whole_cluster
from cli.output.formats import Output, indent_json, text_or_json


class DriverCompatibility(msgspec.Struct, frozen=True, kw_only=True):
    """One driver's devices, and the policy that judges them.

    Attributes:
        policy: None where only what slices declare counts.
        findings: What is doubtful about either.
    """

    driver: str
    policy: CompiledPolicy | None
    devices: tuple[PublishedDevice, ...]
    findings: tuple[PolicyFinding, ...] = ()


@click.command("matrix")
@with_whole_cluster
@feature_gates
@click.option(
    "--as-groups",
    "wants_groups",
    is_flag=True,
    help="The same as compatibilityGroups (KEP-5963) for ResourceSlices, where they can say it.",
)
@text_or_json("a table in Markdown")
def matrix(found: ClusterObjects, features: Features, *, wants_groups: bool, output: str) -> None:
    """Say which kinds of devices may be in use together on one piece of hardware.

    For every driver with a DeviceCompatibilityPolicy, or whose slices declare compatibilityGroups;
    and what is doubtful about what these say. Changes nothing anywhere.

    Exits 0 when printed, 2 when the call is wrong.

    \b
    drawbridge matrix --snapshot cluster.yaml -f policy.yaml
    drawbridge matrix --live --as-groups
    """  # noqa: D301 - click's mark for lines that are not wrapped is a real \b.
    objects, faults = decode_objects(found.objects, STATE_KINDS, found.namespace)
    for fault in faults:
        click.echo(fault.line(), err=True)
    state = build_state(objects)
    cluster = state.cluster(
        # Whatever the cluster does with groups, this is what they say.
        msgspec.structs.replace(features, compatibility_groups=True)
    )
    judged = [
        msgspec.structs.replace(each, findings=_doubts(each, cluster))
        # Those as well that an older one of the driver outranks: their author wants to see them.
        for each in compatibility_by_driver(
            map(compile_policy, state.policies), published_devices(cluster)
        )
    ]
    if not judged:
        click.echo("note: no driver has a policy, and no slice declares groups", err=True)
    if output == Output.JSON:
        documents = [_groups_document(each) if wants_groups else _document(each) for each in judged]
        answer = msgspec.json.encode({"drivers": documents})
        click.echo(indent_json(answer))
    else:
        told = [_groups_text(each) if wants_groups else _text(each) for each in judged]
        click.echo("\n\n".join(told), nl=bool(told))
    sys.exit(0)


def compatibility_by_driver(
    policies: Iterable[CompiledPolicy], devices: Iterable[PublishedDevice]
) -> Iterator[DriverCompatibility]:
    """Yield policies with their devices by driver, then drivers whose devices declare groups."""
    by_driver: dict[str, list[PublishedDevice]] = {}
    for each in devices:
        by_driver.setdefault(each.id.driver, []).append(each)
    governed = set()
    for policy in sorted(policies, key=lambda each: (each.driver, each.name)):
        governed.add(policy.driver)
        found = tuple(by_driver.get(policy.driver, ()))
        yield DriverCompatibility(driver=policy.driver, policy=policy, devices=found)
    for driver, members in sorted(by_driver.items()):
        if driver not in governed and any(map(_declares_groups, members)):
            yield DriverCompatibility(driver=driver, policy=None, devices=tuple(members))


def _doubts(judged: DriverCompatibility, cluster: Cluster) -> tuple[PolicyFinding, ...]:
    pools: dict[PoolId, Pool] = {}
    for node in sorted(cluster.nodes):
        for pool in cluster.node_devices(node).pools:
            if pool.id.driver == judged.driver:
                pools.setdefault(pool.id, pool)
    return lint_pools(judged.policy, tuple(pools.values()), cluster.usage)


def _declares_groups(published: PublishedDevice) -> bool:
    consumed = published.device.consumes_counters or ()
    return any(each.compatibility_groups for each in consumed)


# --- the matrix -----------------------------------------------------------------------------------


def _title(judged: DriverCompatibility) -> str:
    said = f"policy {judged.policy.name}" if judged.policy else "groups that slices declare"
    return f"{judged.driver}, {said}"


def _table(judged: DriverCompatibility) -> Matrix:
    return matrix_of(judged.policy, judged.devices)


def _text(judged: DriverCompatibility) -> str:
    table = _table(judged)
    if not table.kinds:
        return f"{_title(judged)}\n\nno devices of this driver are published"
    doubts = [_line(each) for each in judged.findings]
    why = list_reasons(table)
    parts = (_title(judged), render_matrix(table).rstrip(), "\n".join(why), "\n".join(doubts))
    return "\n\n".join(part for part in parts if part)


def _line(finding: PolicyFinding) -> str:
    """Return a finding in one line: `warning asymmetricRule: ... (8 times)`."""
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    at = "" if finding.path.is_root else f" at {finding.path}"
    fix = f"; {finding.fix}" if finding.fix else ""
    return f"{finding.severity} {finding.code}{at}: {finding.message}{fix}{times}"


def _document(judged: DriverCompatibility) -> dict[str, Any]:
    table = _table(judged)
    return {
        "driver": judged.driver,
        "policy": table.policy,
        "kinds": [
            {"name": each.name, "devices": [str(one.id) for one in each.devices]}
            for each in table.kinds
        ],
        "pairs": [
            {
                "one": one.name,
                "other": table.kinds[column].name,
                "relation": table.cells[row][column].relation,
                "reason": table.cells[row][column].reason,
            }
            for row, one in enumerate(table.kinds)
            for column in range(row + 1)
        ],
        "omitted": table.omitted,
        "findings": [
            {
                "severity": each.severity,
                "code": each.code,
                "message": each.message,
                "path": str(each.path),
                "fix": each.fix,
                "devices": [str(one) for one in each.devices],
                "count": each.count,
            }
            for each in judged.findings
        ],
    }


# --- groups ---------------------------------------------------------------------------------------


def _groups(judged: DriverCompatibility) -> dict[DeviceId, tuple[str, ...]] | RejectionReason:
    found = as_groups(judged.policy or empty_policy(judged.driver), judged.devices)
    return found if isinstance(found, RejectionReason) else dict(found)


def _groups_text(judged: DriverCompatibility) -> str:
    found = _groups(judged)
    if isinstance(found, RejectionReason):
        return f"{_title(judged)}\n\ngroups cannot say it: {found.detail}"
    lines = [f"{device}: {', '.join(groups) or 'no groups'}" for device, groups in found.items()]
    return "\n".join((_title(judged), "", *lines))


def _groups_document(judged: DriverCompatibility) -> dict[str, Any]:
    found = _groups(judged)
    document: dict[str, Any] = {"driver": judged.driver}
    if isinstance(found, RejectionReason):
        return document | {"devices": {}, "refusal": found.detail}
    devices = {str(device): list(groups) for device, groups in found.items()}
    return document | {"devices": devices, "refusal": ""}
