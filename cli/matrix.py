"""`drawbridge matrix`: which kinds of a driver's devices may be in use together."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec

from allocator.cluster import Cluster
from allocator.core.model import DeviceId, Features, Pool, PoolId, PublishedDevice
from allocator.core.outcome import Refusal
from allocator.core.rules import CompiledPolicy, compiled
from allocator.matrix import Matrix, as_groups, reasons, silent, text
from allocator.matrix import matrix as matrix_of
from allocator.policy_findings import PolicyFinding, findings
from cli.gates import feature_gates
from cli.inputs import Found, with_cluster
from cli.objects import placed
from cli.output import Output, indented, text_or_json
from cli.reading import STATE_KINDS
from cli.state import state_of
from cli.stock import published_devices


class Judged(msgspec.Struct, frozen=True, kw_only=True):
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
@with_cluster
@feature_gates
@click.option(
    "--as-groups",
    "wants_groups",
    is_flag=True,
    help="The same as compatibilityGroups (KEP-5963) for ResourceSlices, where they can say it.",
)
@text_or_json("a table in Markdown")
def matrix(found: Found, features: Features, *, wants_groups: bool, output: str) -> None:
    """Say which kinds of devices may be in use together on one piece of hardware.

    For every driver with a DeviceCompatibilityPolicy, or whose slices declare compatibilityGroups;
    and what is doubtful about what these say. Changes nothing anywhere.

    Exits 0 when printed, 2 when the call is wrong.

    \b
    drawbridge matrix --snapshot cluster.yaml -f policy.yaml
    drawbridge matrix --live --as-groups
    """  # noqa: D301 - click's mark for lines that are not wrapped is a real \b.
    objects, faults = placed(found.objects, STATE_KINDS, found.namespace)
    for fault in faults:
        click.echo(fault.line(), err=True)
    state = state_of(objects)
    cluster = state.cluster(
        # Whatever the cluster does with groups, this is what they say.
        msgspec.structs.replace(features, compatibility_groups=True)
    )
    judged = [
        msgspec.structs.replace(each, findings=_doubts(each, cluster))
        # Those as well that an older one of the driver outranks: their author wants to see them.
        for each in judged_drivers(map(compiled, state.policies), published_devices(cluster))
    ]
    if not judged:
        click.echo("note: no driver has a policy, and no slice declares groups", err=True)
    if output == Output.JSON:
        documents = [_groups_document(each) if wants_groups else _document(each) for each in judged]
        answer = msgspec.json.encode({"drivers": documents})
        click.echo(indented(answer))
    else:
        told = [_groups_text(each) if wants_groups else _text(each) for each in judged]
        click.echo("\n\n".join(told), nl=bool(told))
    sys.exit(0)


def judged_drivers(
    policies: Iterable[CompiledPolicy], devices: Iterable[PublishedDevice]
) -> Iterator[Judged]:
    """Yield policies with their devices by driver, then drivers whose devices declare groups."""
    by_driver: dict[str, list[PublishedDevice]] = {}
    for each in devices:
        by_driver.setdefault(each.id.driver, []).append(each)
    governed = set()
    for policy in sorted(policies, key=lambda each: (each.driver, each.name)):
        governed.add(policy.driver)
        found = tuple(by_driver.get(policy.driver, ()))
        yield Judged(driver=policy.driver, policy=policy, devices=found)
    for driver, members in sorted(by_driver.items()):
        if driver not in governed and any(map(_declares_groups, members)):
            yield Judged(driver=driver, policy=None, devices=tuple(members))


def _doubts(judged: Judged, cluster: Cluster) -> tuple[PolicyFinding, ...]:
    pools: dict[PoolId, Pool] = {}
    for node in sorted(cluster.nodes):
        for pool in cluster.node_devices(node).pools:
            if pool.id.driver == judged.driver:
                pools.setdefault(pool.id, pool)
    return findings(judged.policy, tuple(pools.values()), cluster.usage)


def _declares_groups(published: PublishedDevice) -> bool:
    consumed = published.device.consumes_counters or ()
    return any(each.compatibility_groups for each in consumed)


# --- the matrix -----------------------------------------------------------------------------------


def _title(judged: Judged) -> str:
    said = f"policy {judged.policy.name}" if judged.policy else "groups that slices declare"
    return f"{judged.driver}, {said}"


def _table(judged: Judged) -> Matrix:
    return matrix_of(judged.policy, judged.devices)


def _text(judged: Judged) -> str:
    table = _table(judged)
    if not table.kinds:
        return f"{_title(judged)}\n\nno devices of this driver are published"
    doubts = [_line(each) for each in judged.findings]
    why = reasons(table)
    parts = (_title(judged), text(table).rstrip(), "\n".join(why), "\n".join(doubts))
    return "\n\n".join(part for part in parts if part)


def _line(finding: PolicyFinding) -> str:
    """Return a finding in one line: `warning asymmetricRule: ... (8 times)`."""
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    at = f" at {finding.path}" if finding.path else ""
    return f"{finding.severity} {finding.code}{at}: {finding.message}{times}"


def _document(judged: Judged) -> dict[str, Any]:
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
                "path": each.path,
                "devices": [str(one) for one in each.devices],
                "count": each.count,
            }
            for each in judged.findings
        ],
    }


# --- groups ---------------------------------------------------------------------------------------


def _groups(judged: Judged) -> dict[DeviceId, tuple[str, ...]] | Refusal:
    found = as_groups(judged.policy or silent(judged.driver), judged.devices)
    return found if isinstance(found, Refusal) else dict(found)


def _groups_text(judged: Judged) -> str:
    found = _groups(judged)
    if isinstance(found, Refusal):
        return f"{_title(judged)}\n\ngroups cannot say it: {found.detail}"
    lines = [f"{device}: {', '.join(groups) or 'no groups'}" for device, groups in found.items()]
    return "\n".join((_title(judged), "", *lines))


def _groups_document(judged: Judged) -> dict[str, Any]:
    found = _groups(judged)
    document: dict[str, Any] = {"driver": judged.driver}
    if isinstance(found, Refusal):
        return document | {"devices": {}, "refusal": found.detail}
    devices = {str(device): list(groups) for device, groups in found.items()}
    return document | {"devices": devices, "refusal": ""}
