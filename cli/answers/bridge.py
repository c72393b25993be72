"""The writes that give drivers to the bridge or take them back, and their effect on pods. Pure."""

import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from admission.fence import fence_documents, fence_patch, is_fence_of
from admission.routing import drivers_of_pod
from allocator.pods.claims import allocation_of
from cli.inputs.bridge import BridgeObjects
from cli.inputs.cluster_state import ClusterState, is_pending
from kube.api.core import Pod
from kube.api.ownership import (
    API_VERSION,
    KIND,
    OWNERSHIP,
    OwnedDriver,
    driver_settings,
    owned_drivers,
)
from kube.names import DEFAULT_SCHEDULER_NAME, FENCE, SCHEDULER_NAME
from rules.claim_drivers import drivers_of_class
from rules.context import Context
from rules.inventory import Inventory

Document = Mapping[str, Any]

SETTLE_S: Final = 5
"""Between the two writes. API servers follow changes of policies each for itself; in the meantime
nobody allocates for the driver."""
MAX_LISTED: Final = 50
"""Pods, claims or classes in a plan."""


class Step(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One write, or a pause.

    Attributes:
        title: What it does, for people.
        command: A line for a shell.
        resource: Plural of the object that is written; empty for a pause.
        name: Of the object; empty where several are created.
        patch: A merge patch; None where documents are created.
        documents: To be created.
        pause_seconds: To wait.
    """

    title: str
    command: str
    resource: str = ""
    name: str = ""
    patch: Document | None = None
    documents: tuple[Document, ...] = ()
    pause_seconds: int = 0


class PendingPod(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pending pod whose scheduler cannot serve it after the change.

    Attributes:
        controller: `Kind/name` of what creates it again once it is deleted; empty for a pod that
            somebody has to create again.
    """

    namespace: str
    name: str
    scheduler: str
    controller: str


class MixedClass(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A class that reaches owned and other drivers, so that pods with it are rejected."""

    name: str
    owned: tuple[str, ...]
    others: tuple[str, ...]


class BridgePlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The document of `drawbridge bridge own|release -o json`.

    Attributes:
        drivers: Owned drivers after the change.
        added: New ones.
        removed: Those that go back to kube-scheduler.
        steps: In their order; empty where nothing changes.
        pending_pods: To be created again, at most `MAX_LISTED`.
        kept_claims: `namespace/name` of allocated claims of the drivers, which stay as they are.
        mixed_classes: See `MixedClass`.
    """

    drivers: tuple[str, ...]
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    pending_pods: tuple[PendingPod, ...] = ()
    kept_claims: tuple[str, ...] = ()
    mixed_classes: tuple[MixedClass, ...] = ()


class BridgeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The document of `drawbridge bridge status -o json`.

    Attributes:
        drivers: Owned drivers.
        fence: `current`, `missing`, `different`, or `unknown` where it could not be read.
        holder: Identity of the process that holds the Lease; empty for none.
        renewed: When it was renewed last, as the Lease says.
        server_version: Of the API server; empty where it could not be read.
        unpublished: Owned drivers without a published device.
        incomplete: Owned drivers with an incomplete pool.
        mixed_classes: See `MixedClass`.
        waiting_pods: Pending pods of the bridge's scheduler.
        problems: In words; the exit status is 1 where there are some.
    """

    drivers: tuple[str, ...]
    fence: str
    holder: str = ""
    renewed: str = ""
    server_version: str = ""
    unpublished: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    mixed_classes: tuple[MixedClass, ...] = ()
    waiting_pods: int = 0
    problems: tuple[str, ...] = ()


def context_of(state: ClusterState) -> Context:
    """Return the context that the drivers of claims and classes depend on."""
    return Context(
        classes=state.classes,
        inventory=Inventory(state.slices),
        claims={name: claim.spec.devices for name, claim in state.claims.items()},
        templates={name: template.spec.spec.devices for name, template in state.templates.items()},
        allocated_claims={
            name for name, claim in state.claims.items() if allocation_of(claim) is not None
        },
    )


def plan_change(
    state: ClusterState,
    objects: BridgeObjects,
    *,
    added_drivers: Collection[str] = (),
    removed_drivers: Collection[str] = (),
) -> BridgePlan:
    """Return the writes after which the bridge owns more drivers, or fewer."""
    before = owned_drivers(state.ownerships)
    after = (before | set(added_drivers)) - set(removed_drivers)
    changed_drivers = before ^ after
    context = context_of(state)
    is_release = bool(before - after)
    fence_step, ownership_step = _fence_step(after, objects), _ownership_step(after, state, objects)
    pause = Step(
        title="wait until all API servers have followed", command=f"sleep {SETTLE_S}",
        pause_seconds=SETTLE_S,
    )  # fmt: skip
    # In between nobody allocates for the driver, which is safe; the other way round both could.
    steps = (
        (ownership_step, pause, fence_step) if is_release else (fence_step, pause, ownership_step)
    )
    is_current = objects.is_read and objects.fence is not None and is_fence_of(objects.fence, after)
    return BridgePlan(
        drivers=tuple(sorted(after)),
        added=tuple(sorted(after - before)),
        removed=tuple(sorted(before - after)),
        steps=() if not changed_drivers and is_current and objects.has_ownership else steps,
        pending_pods=tuple(_misplaced_pods(state, context, changed_drivers, after))[:MAX_LISTED],
        kept_claims=tuple(_allocated_claims(state, changed_drivers))[:MAX_LISTED],
        mixed_classes=tuple(mixed_classes(context, after))[:MAX_LISTED],
    )


def _fence_step(drivers: Collection[str], objects: BridgeObjects) -> Step:
    if objects.is_read and objects.fence is None:
        return Step(
            title="create the fence",
            command=_create(documents := tuple(fence_documents(drivers))),
            resource="validatingadmissionpolicies",
            documents=documents,
        )
    patch = fence_patch(drivers)
    return Step(
        title="change the fence in place",
        command=_patch("validatingadmissionpolicy", FENCE, patch),
        resource="validatingadmissionpolicies",
        name=FENCE,
        patch=patch,
    )


def _ownership_step(drivers: Collection[str], state: ClusterState, objects: BridgeObjects) -> Step:
    settings = {driver.name: driver for driver in driver_settings(state.ownerships)}
    spec = {
        "drivers": [
            msgspec.to_builtins(settings.get(driver, OwnedDriver(name=driver)))
            for driver in sorted(drivers)
        ]
    }
    if objects.is_read and not objects.has_ownership:
        document = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": OWNERSHIP},
            "spec": spec,
        }
        return Step(
            title="create the ownership",
            command=_create((document,)),
            resource="allocatorownerships",
            documents=(document,),
        )
    return Step(
        title="change the ownership",
        command=_patch("allocatorownership", OWNERSHIP, {"spec": spec}),
        resource="allocatorownerships",
        name=OWNERSHIP,
        patch={"spec": spec},
    )


def _create(documents: Collection[Document]) -> str:
    items = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    return f"kubectl create -f - <<< {shlex.quote(msgspec.json.encode(items).decode())}"


def _patch(resource: str, name: str, patch: Document) -> str:
    text = shlex.quote(msgspec.json.encode(patch).decode())
    return f"kubectl patch {resource} {name} --type=merge -p {text}"


def _misplaced_pods(
    state: ClusterState,
    context: Context,
    changed_drivers: Collection[str],
    drivers_of_bridge: Collection[str],
) -> Iterator[PendingPod]:
    """Yield the pending pods that need another scheduler after the change."""
    for (namespace, name), pod in sorted(state.pods.items()):
        if not is_pending(pod) or not pod.spec.resource_claims:
            continue
        drivers = drivers_of_pod(pod, namespace, context).drivers.all
        scheduler = pod.spec.scheduler_name or DEFAULT_SCHEDULER_NAME
        needs_bridge = bool(drivers & set(drivers_of_bridge))
        if drivers & set(changed_drivers) and needs_bridge != (scheduler == SCHEDULER_NAME):
            yield PendingPod(
                namespace=namespace, name=name, scheduler=scheduler, controller=_controller(pod)
            )


def _controller(pod: Pod) -> str:
    for owner in pod.metadata.owner_references or ():
        if owner.controller:
            return f"{owner.kind}/{owner.name}"
    return ""


def _allocated_claims(state: ClusterState, drivers: Collection[str]) -> Iterator[str]:
    for (namespace, name), claim in sorted(state.claims.items()):
        allocation = allocation_of(claim)
        results = (allocation.devices.results if allocation is not None else None) or ()
        if any(result.driver in drivers for result in results):
            yield f"{namespace}/{name}"


def mixed_classes(context: Context, drivers_of_bridge: Collection[str]) -> Iterator[MixedClass]:
    """Yield the classes whose devices are of owned and of other drivers."""
    for name in sorted(context.classes):
        drivers = drivers_of_class(context.classes[name], context).all
        if drivers & set(drivers_of_bridge) and drivers - set(drivers_of_bridge):
            yield MixedClass(
                name=name,
                owned=tuple(sorted(drivers & set(drivers_of_bridge))),
                others=tuple(sorted(drivers - set(drivers_of_bridge))),
            )


def bridge_status(state: ClusterState, objects: BridgeObjects) -> BridgeStatus:
    """Return the allocator of each driver, and the problems."""
    drivers_of_bridge = owned_drivers(state.ownerships)
    context = context_of(state)
    publishing_drivers = {pool.driver for pool in context.inventory.pools}
    incomplete = {
        driver
        for driver in drivers_of_bridge & publishing_drivers
        if not context.inventory.is_complete_for([driver])
    }
    status = BridgeStatus(
        drivers=tuple(sorted(drivers_of_bridge)),
        fence=_fence_state(objects, drivers_of_bridge),
        holder=objects.holder,
        renewed=objects.renewed,
        server_version=objects.server_version,
        unpublished=tuple(sorted(drivers_of_bridge - publishing_drivers)),
        incomplete=tuple(sorted(incomplete)),
        mixed_classes=tuple(mixed_classes(context, drivers_of_bridge))[:MAX_LISTED],
        waiting_pods=sum(
            is_pending(pod) and pod.spec.scheduler_name == SCHEDULER_NAME
            for pod in state.pods.values()
        ),
    )
    return msgspec.structs.replace(
        status, problems=tuple(_problems(status, is_read=objects.is_read))
    )


def _fence_state(objects: BridgeObjects, drivers_of_bridge: Collection[str]) -> str:
    if not objects.is_read:
        return "unknown"
    if objects.fence is None:
        return "missing"
    return "current" if is_fence_of(objects.fence, drivers_of_bridge) else "different"


def _problems(status: BridgeStatus, *, is_read: bool) -> Iterator[str]:
    if status.drivers and status.fence == "missing":
        yield f"there is no ValidatingAdmissionPolicy {FENCE}, so kube-scheduler may allocate owned drivers"
    if status.fence == "different":
        yield (
            f"the ValidatingAdmissionPolicy {FENCE} is not that of the owned drivers; "
            "`drawbridge bridge own` with their names writes it"
        )
    if status.drivers and is_read and not status.holder:
        yield "no bridge holds the Lease, so pods with owned drivers stay pending"
    for mixed_class in status.mixed_classes:
        yield (
            f"DeviceClass {mixed_class.name} has devices of {', '.join(mixed_class.owned)}, which the bridge owns, and of "
            f"{', '.join(mixed_class.others)}; pods with it are rejected"
        )
