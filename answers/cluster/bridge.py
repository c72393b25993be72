"""The writes that give drivers to the bridge or take them back, and their effect on pods. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from allocator.pods.claims import allocation_of
from answers.cluster.fence_steps import (
    Step,
    changed_parts,
    create_command,
    fence_state,
    fence_steps,
    json_patch_command,
    listed_drivers,
    spec_tests,
)
from answers.cluster.held_back import bridge_reports, kept_for_groups
from answers.cluster.leases import age_of, is_over
from answers.model.bridge import BridgeObjects
from answers.model.cluster_state import ClusterState, is_pending
from findings.text import join_names, printable
from kube.api.core import Pod
from kube.api.extended_resources import extended_resources
from kube.api.ownership import (
    API_VERSION,
    KIND,
    OWNERSHIP,
    SERVING,
    OwnedDriver,
    driver_settings,
    not_serving,
    owned_drivers,
)
from kube.api.policy import Condition
from kube.names import DEFAULT_SCHEDULER_NAME, FENCE, HOLDER_FENCE
from rules.context.claim_drivers import drivers_of_class
from rules.context.context import Context
from rules.context.inventory import Inventory
from rules.context.pod_scheduler import drivers_of_pod

Document = Mapping[str, Any]

SETTLE_S: Final = 5
"""Seconds between the two writes. Each API server follows changes of policies by itself, and until
then no scheduler allocates for the driver."""
MAX_LISTED: Final = 50
"""Pods, claims or classes in a plan."""
NOT_SERVED: Final = (
    "the API server does not serve AllocatorOwnerships, which say who allocates for a driver; first install "
    "their definition: kubectl apply -f manifests/base/allocatorownerships.yaml"
)
_HOLDER_POLICY: Final = f"ValidatingAdmissionPolicy/{HOLDER_FENCE}"
RESTART: Final = f"{_HOLDER_POLICY} was deleted: once it is back, restart the API servers one by one, or they know an old holder"
MAX_NAMED: Final = 8
"""Drivers in a warning."""


class PendingPod(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pending pod that its scheduler cannot serve after the change.

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
        removed: The drivers that go back to kube-scheduler; also those that only the fence still lists.
        steps: The steps in their order; empty if nothing changes.
        pending_pods: The pods to create again, at most `MAX_LISTED`.
        kept_claims: `namespace/name` of allocated claims of the drivers, which stay as they are.
        mixed_classes: The classes that reach owned and other drivers.
        warnings: Warnings about surprising effects, in words.
    """

    drivers: tuple[str, ...]
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    pending_pods: tuple[PendingPod, ...] = ()
    kept_claims: tuple[str, ...] = ()
    mixed_classes: tuple[MixedClass, ...] = ()
    warnings: tuple[str, ...] = ()


class BridgeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The document of `drawbridge bridge status -o json`.

    Attributes:
        drivers: Owned drivers.
        fence: `current`, `missing`, `incomplete`, `different`, `open` for a rescue, or `unknown` where it
            could not be read.
        serving: The reason that the bridge gives for allocating devices or not; empty for none.
        held_back: Claims whose devices nobody gets for now.
        kept_for_groups: Devices that are kept for groups of pods, in sentences.
        holder: Identity of the process that leads; empty for none, and where its Lease is over.
        renewed: The time of the last renewal according to the Lease.
        renewed_seconds_ago: The same by the clock of the API server; None where it is not known.
        server_version: The API server's version; empty if it could not be read.
        unpublished: Owned drivers without a published device.
        incomplete: Owned drivers with an incomplete pool.
        mixed_classes: The classes that reach owned and other drivers.
        waiting_pods: Pending pods of the bridge's scheduler.
        problems: The problems in words; the exit status is 1 if there are any.
    """

    drivers: tuple[str, ...]
    fence: str
    serving: str = ""
    held_back: int = 0
    kept_for_groups: tuple[str, ...] = ()
    holder: str = ""
    renewed: str = ""
    renewed_seconds_ago: int | None = None
    server_version: str = ""
    unpublished: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    mixed_classes: tuple[MixedClass, ...] = ()
    waiting_pods: int = 0
    problems: tuple[str, ...] = ()

    @property
    def is_old(self) -> bool:
        """Return True if the reporting leader has lost its Lease."""
        return bool(self.renewed) and not self.holder


def context_of(state: ClusterState) -> Context:
    """Return the context that the drivers of claims and classes depend on."""
    return Context(
        bridge_scheduler=state.bridge_scheduler,
        classes=state.classes,
        inventory=Inventory(state.slices),
        claims={name: claim.spec.devices for name, claim in state.claims.items()},
        templates={name: template.spec.spec.devices for name, template in state.templates.items()},
        allocated_claims=state.allocated_claims,
        extended_resources=extended_resources(state.classes.values()),
    )


def plan_change(
    state: ClusterState,
    objects: BridgeObjects,
    *,
    added_drivers: Collection[str] = (),
    removed_drivers: Collection[str] = (),
) -> BridgePlan:
    """Return the writes that make the bridge own more drivers, or fewer.

    Args:
        removed_drivers: The drivers to release. The fence may list more than the ownership, which can be
            gone: an uninstall deletes its kind.
    """
    before = owned_drivers(state.ownerships)
    after = (before | set(added_drivers)) - set(removed_drivers)
    context = context_of(state)
    fenced_drivers = (
        listed_drivers({*removed_drivers, *_publishing_drivers(context)}, objects)
        if removed_drivers
        else frozenset[str]()
    )
    released_drivers = (before | fenced_drivers) - after
    changed_drivers = released_drivers | (after - before)
    steps_of_fence = fence_steps(after, objects)
    # Where the ownership names none of the released drivers it stays as it is, also where there is none.
    is_ownership_current = bool(released_drivers) and before == after
    steps_of_ownership = () if is_ownership_current else (_ownership_step(after, state, objects),)
    pause = Step(
        title="wait until all API servers have followed", command=f"sleep {SETTLE_S}",
        pause_seconds=SETTLE_S,
    )  # fmt: skip
    # In between nobody allocates for the driver, which is safe; the other way round both could.
    steps = (
        (*steps_of_ownership, pause, *steps_of_fence)
        if released_drivers
        else (*steps_of_fence, pause, *steps_of_ownership)
    )
    is_current = objects.is_read and fence_state(objects, after) == "current"
    return BridgePlan(
        drivers=tuple(sorted(after)),
        added=tuple(sorted(after - before)),
        removed=tuple(sorted(released_drivers)),
        steps=() if not changed_drivers and is_current and objects.has_ownership else steps,
        pending_pods=tuple(_misplaced_pods(state, context, changed_drivers, after))[:MAX_LISTED],
        kept_claims=tuple(_allocated_claims(state, changed_drivers))[:MAX_LISTED],
        mixed_classes=tuple(mixed_classes(context, after))[:MAX_LISTED],
        warnings=tuple(_warnings(after - before, context, objects)),
    )


def _warnings(
    added_drivers: Collection[str], context: Context, objects: BridgeObjects
) -> Iterator[str]:
    """Yield the reasons that nobody would allocate the new drivers."""
    publishing_drivers = sorted(_publishing_drivers(context))
    for driver in sorted(set(added_drivers) - set(publishing_drivers)):
        similar = get_close_matches(driver, publishing_drivers, n=1)
        hint = f"did you mean {similar[0]}?" if similar else _list_publishing(publishing_drivers)
        yield f"{driver} publishes no devices; {hint}"
    if added_drivers and objects.is_read and not objects.is_ownership_served:
        yield NOT_SERVED
    if objects.fence is not None and _HOLDER_POLICY in objects.missing_parts:
        yield RESTART
    if added_drivers and objects.is_read and not _leader(objects):
        yield (
            "no bridge leads, so pods with these drivers would stay pending: "
            "docs/bridge.md says how to install it"
        )


def _publishing_drivers(context: Context) -> frozenset[str]:
    return frozenset(pool.driver for pool in context.inventory.pools)


def explain_not_owned(released_drivers: Collection[str], owned: Collection[str]) -> str:
    """Return an error that names the drivers to release that the bridge does not own; "" for none.

    >>> explain_not_owned(["gpu.nvidia.con"], ["gpu.nvidia.com"])
    'the bridge does not own gpu.nvidia.con, did you mean gpu.nvidia.com? It owns gpu.nvidia.com'
    """
    strangers = sorted(set(released_drivers) - set(owned))
    if not strangers:
        return ""
    names = sorted(map(printable, owned))
    similar = list(
        dict.fromkeys(
            name for driver in strangers for name in get_close_matches(driver, names, n=1)
        )
    )
    hint = f", did you mean {', '.join(similar)}? It owns " if similar else "; it owns "
    return f"the bridge does not own {', '.join(strangers)}{hint}{join_names(names, MAX_NAMED) or 'no driver'}"


def _list_publishing(drivers: Sequence[str]) -> str:
    if not drivers:
        return "no driver does"
    return f"drivers with devices: {join_names(drivers, MAX_NAMED)}"


def _leader(objects: BridgeObjects) -> str:
    """Return the holder of the bridge's Lease; empty if it has none."""
    if objects.read_at is None:
        return objects.holder
    is_free = is_over(objects.renewed, objects.lease_duration_s, objects.read_at)
    return "" if is_free else objects.holder


def _ownership_step(drivers: Collection[str], state: ClusterState, objects: BridgeObjects) -> Step:
    settings = {driver.name: driver for driver in driver_settings(state.ownerships)}
    driver_list = [
        msgspec.to_builtins(settings.get(driver, OwnedDriver(name=driver)))
        for driver in sorted(drivers)
    ]
    if objects.is_read and not objects.has_ownership:
        document = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": OWNERSHIP},
            "spec": {"drivers": driver_list},
        }
        return Step(
            title="create the ownership",
            command=create_command((document,)),
            resource="allocatorownerships",
            documents=(document,),
        )
    generations = [
        ownership.metadata.generation
        for ownership in state.ownerships
        if ownership.metadata.name == OWNERSHIP
    ]
    operations = (
        *spec_tests(max(generations, default=0)),
        {"op": "add", "path": "/spec/drivers", "value": driver_list},
    )
    return Step(
        title="change the ownership",
        command=json_patch_command("allocatorownership", OWNERSHIP, operations),
        resource="allocatorownerships",
        name=OWNERSHIP,
        operations=operations,
    )


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
        of_claims = drivers_of_pod(pod, namespace, context)
        scheduler = pod.spec.scheduler_name or DEFAULT_SCHEDULER_NAME
        drivers = of_claims.drivers.all
        if scheduler == state.bridge_scheduler:
            # Should the devices be freed first, the bridge could not allocate others.
            drivers |= of_claims.allocated
        needs_bridge = bool(drivers & set(drivers_of_bridge))
        if drivers & set(changed_drivers) and needs_bridge != (scheduler == state.bridge_scheduler):
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
    """Yield the classes with devices of owned and of other drivers."""
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
    publishing_drivers = _publishing_drivers(context)
    incomplete = {
        driver
        for driver in drivers_of_bridge & publishing_drivers
        if not context.inventory.is_complete_for([driver])
    }
    unowned_drivers = listed_drivers(publishing_drivers, objects) - drivers_of_bridge
    status = BridgeStatus(
        drivers=tuple(sorted(drivers_of_bridge)),
        fence=fence_state(objects, drivers_of_bridge),
        serving=_serving(state),
        held_back=_held_back(state),
        kept_for_groups=tuple(kept_for_groups(state.ownerships)),
        holder=_leader(objects),
        renewed=objects.renewed,
        renewed_seconds_ago=_seconds_ago(objects),
        server_version=objects.server_version,
        unpublished=tuple(sorted(drivers_of_bridge - publishing_drivers)),
        incomplete=tuple(sorted(incomplete)),
        mixed_classes=tuple(mixed_classes(context, drivers_of_bridge))[:MAX_LISTED],
        waiting_pods=sum(
            is_pending(pod) and pod.spec.scheduler_name == state.bridge_scheduler
            for pod in state.pods.values()
        ),
    )
    refusal = not_serving(state.ownerships)
    problems = tuple(_problems(status, refusal, objects, unowned_drivers))
    return msgspec.structs.replace(status, problems=problems)


def _serving(state: ClusterState) -> str:
    return next(
        (
            condition.reason
            for report in bridge_reports(state.ownerships)
            for condition in report.conditions or ()
            if condition.type == SERVING
        ),
        "",
    )


def _held_back(state: ClusterState) -> int:
    """Return the number of claims: several pods of one may each hold back its devices."""
    claim_uids = {
        held_claim.claim_uid
        for report in bridge_reports(state.ownerships)
        for held_claim in report.held_back or ()
    }
    return len(claim_uids)


def _seconds_ago(objects: BridgeObjects) -> int | None:
    age = age_of(objects.renewed, objects.read_at) if objects.read_at is not None else None
    return None if age is None else max(0, round(age.total_seconds()))


def _problems(
    status: BridgeStatus,
    refusal: Condition | None,
    objects: BridgeObjects,
    unowned_drivers: Collection[str],
) -> Iterator[str]:
    """Yield the problems in words.

    Args:
        unowned_drivers: Drivers that the fence lists, and that the bridge does not own.
    """
    if status.drivers and status.fence == "missing":
        yield f"there is no ValidatingAdmissionPolicy {FENCE}, so kube-scheduler may allocate owned drivers"
    if status.drivers and status.fence == "open":
        yield (
            "the fence was opened to rescue the cluster, so the bridge allocates nothing: "
            f"`drawbridge bridge own {' '.join(status.drivers)}` closes it"
        )
    if status.drivers and status.fence == "incomplete":
        yield (
            f"the fence lacks {', '.join(objects.missing_parts)}, so others may allocate owned "
            f"drivers, and the bridge allocates nothing: `drawbridge bridge own {' '.join(status.drivers)}` "
            "creates it"
        )
    if unowned_drivers:
        names = " ".join(sorted(unowned_drivers))
        yield (
            f"the fence lists {join_names(sorted(unowned_drivers), MAX_NAMED)}, which the bridge does not "
            f"own, so nobody may allocate the devices: `drawbridge bridge release {names}` gives them to "
            f"kube-scheduler, `drawbridge bridge own {names}` to the bridge"
        )
    elif status.fence == "different":
        different_parts = changed_parts(objects)
        yield (
            f"the fence is not as this version of drawbridge writes it, in {', '.join(different_parts)}; "
            "`drawbridge bridge own` with the names of the owned drivers writes it"
            if different_parts
            else f"the ValidatingAdmissionPolicy {FENCE} is not as this version of drawbridge writes it for "
            "the owned drivers; `drawbridge bridge own` with their names writes it"
        )
    if status.drivers and objects.is_read and not status.holder:
        last = f"{objects.holder} has not renewed the Lease" if objects.holder else ""
        yield (
            f"{last or 'no bridge holds the Lease'}, so pods with owned drivers stay pending; "
            "if the bridge has to stay down: docs/ownership.md, Rescue"
        )
    elif (
        status.drivers
        and refusal is not None
        and status.fence not in {"missing", "open", "incomplete"}
    ):
        yield f"the bridge allocates nothing ({refusal.reason}): {refusal.message}"
    for mixed_class in status.mixed_classes:
        yield (
            f"DeviceClass {mixed_class.name} has devices of {', '.join(mixed_class.owned)}, which the bridge owns, and of "
            f"{', '.join(mixed_class.others)}; pods with it are rejected"
        )
