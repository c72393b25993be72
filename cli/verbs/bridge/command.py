"""`drawbridge bridge`: give drivers to the bridge, take them back, show their allocators."""

import asyncio
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click
import msgspec

from allocator.strategies.registry import ALLOCATES_LESS
from answers.cluster.bridge import (
    NOT_SERVED,
    BridgePlan,
    BridgeStatus,
    bridge_status,
    explain_not_owned,
    plan_change,
)
from answers.cluster.fence_steps import Step, listed_drivers
from answers.model.bridge import BridgeObjects
from answers.model.cluster_state import build_state
from answers.model.inputs import ClusterObjects
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from cli.output.formats import Output, Report, format_document, text_or_document
from cli.output.help import Command
from cli.output.standard_error import print_line
from cli.reading.live_bridge import read_bridge
from cli.reading.live_cluster import with_live_cluster
from findings.text import count_text, printable
from kube.api.ownership import MAX_DRIVERS, owned_drivers
from kube.api.urls import (
    ALLOCATOR_OWNERSHIPS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    Resource,
)

_DRIVER: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
MAX_DRIVER_NAME: Final = 63
"""Characters, as of `spec.driver` of a ResourceSlice."""
_RESOURCES: Final[Mapping[str, Resource]] = {
    "AllocatorOwnership": ALLOCATOR_OWNERSHIPS,
    "ValidatingAdmissionPolicy": VALIDATING_ADMISSION_POLICIES,
    "ValidatingAdmissionPolicyBinding": VALIDATING_ADMISSION_POLICY_BINDINGS,
}


class _Refused(click.ClickException):
    """The cluster is not as the call assumes, so that its usage would explain nothing."""

    exit_code = 2


EXAMPLES: Final = """\
drawbridge bridge own gpu.nvidia.com
drawbridge bridge own gpu.nvidia.com --apply
drawbridge bridge release gpu.nvidia.com --apply
drawbridge bridge status
"""


@click.command("bridge", cls=Command, epilog=EXAMPLES)
@click.argument("action", type=click.Choice(["own", "release", "status"]))
@click.argument("drivers", nargs=-1, metavar="[DRIVER]...")
@with_live_cluster
@click.option("--apply", "applies", is_flag=True, help="Write to the cluster.")
@click.option(
    "--dry-run", "is_dry_run", is_flag=True, help="Print what would be done (the default)."
)
@text_or_document("own and release: a shell script of kubectl commands. status: to read")
def bridge(
    cluster_objects: ClusterObjects,
    action: str,
    drivers: tuple[str, ...],
    *,
    is_live: bool,
    kubeconfig: str | None,
    context: str | None,
    applies: bool,
    is_dry_run: bool,
    output: str,
) -> None:
    """Give drivers to the bridge, take them back, or show each driver's allocator.

    own and release print the objects and the kubectl commands that change it, with the pods that have
    to be created again; --apply makes the writes. Nothing is deleted.

    Exit status: 0 when done, 1 when status finds a problem, 2 when the call is wrong.
    """
    _check_call(action, drivers, applies=applies, is_dry_run=is_dry_run, is_live=is_live)
    views, faults = decode_objects(cluster_objects.objects, STATE_KINDS, cluster_objects.namespace)
    for fault in faults:
        print_line(fault.line())
    state = build_state(views)
    objects = asyncio.run(read_bridge(kubeconfig, context)) if is_live else BridgeObjects()
    if action == "status":
        status = bridge_status(state, objects)
        _print(status, _status_lines(status), output)
        sys.exit(1 if status.problems else 0)
    if ALLOCATOR_OWNERSHIPS.plural in cluster_objects.unread:
        raise _Refused(
            f"which drivers the bridge owns cannot be read, and {action} changes that list: the right "
            f"to list {ALLOCATOR_OWNERSHIPS.plural} of {ALLOCATOR_OWNERSHIPS.group} is missing"
        )
    if action == "own":
        plan = plan_change(state, objects, added_drivers=drivers)
    else:
        # An uninstall can delete the ownership, and leaves the fence.
        unlisted_drivers = set(drivers) - listed_drivers(drivers, objects)
        refusal = explain_not_owned(unlisted_drivers, owned_drivers(state.ownerships))
        if refusal:
            raise _Refused(refusal)
        plan = plan_change(state, objects, removed_drivers=drivers)
    if not is_live:
        print_line(
            "note: a snapshot does not show the fence and whether there is an AllocatorOwnership; where there "
            "are none, create them first: "
            "kubectl create -f manifests/bridge/fence.yaml -f manifests/bridge/ownership.yaml"
        )
    _note_strategies(plan)
    if len(plan.drivers) > MAX_DRIVERS:
        raise _Refused(
            f"the bridge owns at most {MAX_DRIVERS} drivers, and it would own {len(plan.drivers)}"
        )
    if applies and plan.added and not objects.is_ownership_served:
        # The fence alone would leave the driver without an allocator.
        raise _Refused(NOT_SERVED)
    if applies:
        asyncio.run(_apply(plan.steps, kubeconfig, context))
    _print(plan, _plan_lines(plan, is_applied=applies), output)
    sys.exit(0)


def _note_strategies(plan: BridgePlan) -> None:
    """Print on standard error the facts that the strategies of the bridge do not see."""
    if plan.added:
        print_line(
            f"note: of the strategies of the bridge, {ALLOCATES_LESS}; FirstFit is the default"
        )


def _check_call(
    action: str, drivers: Sequence[str], *, applies: bool, is_dry_run: bool, is_live: bool
) -> None:
    if action == "status" and (drivers or applies):
        raise click.UsageError("status takes neither drivers nor --apply.")
    if action != "status" and not drivers:
        raise click.UsageError(f"Which drivers? drawbridge bridge {action} DRIVER...")
    if applies and is_dry_run:
        raise click.UsageError("--apply and --dry-run are mutually exclusive.")
    if applies and not is_live:
        raise click.UsageError("--apply writes to a cluster, and a snapshot is none.")
    for driver in drivers:
        if len(driver) > MAX_DRIVER_NAME or not _DRIVER.fullmatch(driver):
            raise click.UsageError(
                f"{printable(driver[:MAX_DRIVER_NAME])!r} is not the name of a driver"
            )


async def _apply(steps: Sequence[Step], kubeconfig: str | None, context: str | None) -> None:
    """Make the writes of a plan.

    Raises:
        KubeError: One was refused; those before it stay.
    """
    from kube.client.client import Client, PatchType  # noqa: PLC0415
    from kube.errors import Invalid, KubeError  # noqa: PLC0415

    resources = {resource.plural: resource for resource in _RESOURCES.values()}
    async with await Client.from_kubeconfig(kubeconfig, context) as client:
        for number, step in enumerate(steps):
            print_line(f"{step.title} ...")
            await asyncio.sleep(step.pause_seconds)
            try:
                for document in step.documents:
                    await client.create(_RESOURCES[document["kind"]], document, msgspec.Raw)
                if step.operations or step.patch is not None:
                    await client.patch(
                        resources[step.resource],
                        step.name,
                        list(step.operations) or step.patch,
                        PatchType.JSON if step.operations else PatchType.MERGE,
                        msgspec.Raw,
                    )
            except KubeError as error:
                done = ", ".join(
                    done_step.title for done_step in steps[:number] if done_step.resource
                )
                print_line(
                    f"Failed: {step.title}. Done before it, and left as it is: {done or 'nothing'}."
                )
                if step.operations and isinstance(error, Invalid):
                    print_line(
                        f"{step.name} may have changed since it was read: run the command again."
                    )
                raise


def _print(answer: msgspec.Struct, lines: Iterator[str], output: str) -> None:
    if output != Output.TEXT:
        click.echo(format_document(output, msgspec.json.encode(answer), Report.BRIDGE))
    else:
        click.echo("\n".join(map(printable, lines)))


def _plan_lines(plan: BridgePlan, *, is_applied: bool) -> Iterator[str]:
    """Yield the lines of a shell script; all lines but the commands are comments."""
    yield f"# The bridge {'owns' if is_applied else 'will own'}: {', '.join(plan.drivers) or 'no driver'}"
    if not plan.steps:
        yield "# Nothing has to be changed."
    yield from (f"# Warning: {warning}" for warning in plan.warnings)
    for number, step in enumerate(plan.steps, start=1):
        yield f"# {step.title}{' (done)' if is_applied else ''}"
        if not is_applied:
            # No step is made after one that failed, also where the lines are pasted into a shell.
            command, *document = step.command.splitlines()
            yield f"{command} &&" if number < len(plan.steps) else command
            yield from document
    if plan.pending_pods:
        yield "# Pending pods whose scheduler cannot allocate their devices any more, and cannot be changed:"
    for pod in plan.pending_pods:
        command = f"kubectl delete pod {pod.name} -n {pod.namespace}"
        if pod.controller:
            yield f"{command}  # {pod.controller} creates it again"
        else:
            yield f"# {command}  # nothing creates it again: apply its manifest afterwards"
    if plan.kept_claims:
        yield f"# Allocated claims stay as they are: {', '.join(plan.kept_claims)}"
    for mixed_class in plan.mixed_classes:
        yield (
            f"# DeviceClass {mixed_class.name} reaches {', '.join(mixed_class.owned)}, which the bridge owns, and "
            f"{', '.join(mixed_class.others)}: pods with it are rejected"
        )


def _status_lines(status: BridgeStatus) -> Iterator[str]:
    yield f"drivers:  {', '.join(status.drivers) or 'none'}"
    if status.serving:
        yield f"state:    {status.serving}{', as the last leader said' if status.is_old else ''}"
    yield f"fence:    {status.fence}"
    yield f"leader:   {status.holder or 'none'}{_renewal(status)}"
    yield f"server:   {status.server_version or 'unknown'}"
    yield f"waiting:  {count_text(status.waiting_pods, 'pod')}"
    if status.held_back:
        yield f"held back: devices of {count_text(status.held_back, 'claim')}; kubectl get aown default -o yaml"
    yield from (f"kept:     {text}" for text in status.kept_for_groups)
    if status.unpublished:
        yield f"without devices: {', '.join(status.unpublished)}"
    if status.incomplete:
        yield f"with incomplete pools: {', '.join(status.incomplete)}"
    yield from (f"problem:  {problem}" for problem in status.problems)


def _renewal(status: BridgeStatus) -> str:
    if not status.renewed:
        return ""
    if status.renewed_seconds_ago is None:
        return f", renewed {status.renewed}"
    return f", renewed {status.renewed_seconds_ago} s ago"
