"""The status of the AllocatorOwnership: leader, served drivers, devices held back or kept for groups."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple

from kube.api.meta import rfc3339, status_patch
from kube.api.ownership import (
    MAX_DRIVERS,
    MAX_HELD_BACK,
    SERVING,
    AllocatorOwnership,
    AllocatorOwnershipStatus,
    HeldBackClaim,
    KeptGroup,
    OwnedDriver,
    OwnedDriverStatus,
    owned_drivers,
)
from kube.api.policy import Condition
from kube.api.resource import ResourceSlice
from kube.collections.interleaving import interleave
from sidecar.commit.writes import Patch
from sidecar.ownership.fence import Fence, FenceState

MAX_MESSAGE: Final = 1024


class Report(NamedTuple):
    """The state of the leading process.

    Attributes:
        holder: Its identity.
        problem: The reason it answers no call; empty if it does.
        fence: The fence of the owned drivers.
        pools: Driver to whether all its pools are complete; drivers without devices are not there.
        held_back: Devices that nobody gets for now.
        kept: Groups of pods that devices are kept for.
        settings: The settings that decisions are made with, of the drivers that have any.
        scheduler_name: schedulerName of the pods that it places.
    """

    holder: str
    problem: str
    fence: Fence
    pools: Mapping[str, bool]
    held_back: Collection[HeldBackClaim]
    kept: Collection[KeptGroup] = ()
    settings: Collection[OwnedDriver] = ()
    scheduler_name: str = ""


def complete_pools(slices: Iterable[ResourceSlice]) -> Mapping[str, bool]:
    """Return each driver that publishes devices, with True if all its pools are complete."""
    counts: dict[tuple[str, str], tuple[int, int, int]] = {}
    for resource_slice in slices:
        pool = resource_slice.spec.pool
        key, generation = (resource_slice.spec.driver, pool.name), pool.generation
        newest, count, _ = counts.get(key, (generation, 0, 0))
        if generation > newest:
            newest, count = generation, 0
        if generation == newest:
            counts[key] = newest, count + 1, pool.resource_slice_count
    complete: dict[str, bool] = {}
    for (driver, _), (_, count, expected) in counts.items():
        complete[driver] = complete.get(driver, True) and count == expected
    return complete


def ownership_status(
    ownership: AllocatorOwnership, report: Report, now: datetime
) -> AllocatorOwnershipStatus:
    """Return the status; a condition keeps its time while its status is the same.

    Args:
        ownership: The AllocatorOwnership with its stored status.
    """
    before = ownership.status or AllocatorOwnershipStatus()
    drivers_before = {
        driver_status.name: driver_status.conditions or () for driver_status in before.drivers or ()
    }
    generation, time = ownership.metadata.generation, rfc3339(now)
    settings = {driver.name: driver for driver in report.settings}
    drivers = tuple(
        _driver_status(
            settings.get(name, OwnedDriver(name=name)),
            _condition(_of_driver(name, report), drivers_before.get(name, ()), generation, time),
        )
        for name in sorted(owned_drivers([ownership]))
    )
    overall = _overall(report, [driver.conditions for driver in drivers])
    return AllocatorOwnershipStatus(
        observed_generation=generation,
        conditions=(_condition(overall, before.conditions or (), generation, time),),
        holder=report.holder,
        scheduler_name=report.scheduler_name,
        drivers=drivers[:MAX_DRIVERS] or None,
        held_back=_reported_claims(report.held_back) or None,
        kept_for_groups=tuple(report.kept) or None,
    )


def _reported_claims(held_claims: Iterable[HeldBackClaim]) -> tuple[HeldBackClaim, ...]:
    """Return as many claims as the status has room for; the others are known to this process alone.

    Of each namespace those that are held back for longest, so that no namespace displaces another's.
    """
    longest_first = sorted(held_claims, key=_end_of_hold, reverse=True)
    by_turns = interleave(longest_first, lambda held_claim: held_claim.namespace)
    return tuple(sorted(islice(by_turns, MAX_HELD_BACK), key=_end_of_hold))


def _end_of_hold(held_claim: HeldBackClaim) -> tuple[str, str]:
    return held_claim.until, held_claim.claim_uid


def conditional_patch(ownership: AllocatorOwnership, status: AllocatorOwnershipStatus) -> Patch:
    """Return the patch of a status that was decided on this very version of the object.

    A late write of an earlier leader would otherwise replace what is held back since.
    """
    patch = status_patch(ownership.metadata, status)
    version = {"resourceVersion": ownership.metadata.resource_version}
    return {**patch, "metadata": {**patch["metadata"], **version}}


def _driver_status(settings: OwnedDriver, condition: Condition) -> OwnedDriverStatus:
    return OwnedDriverStatus(
        name=settings.name,
        capacity_weights=settings.capacity_weights,
        max_consumers_per_device=settings.max_consumers_per_device,
        max_consumers_per_node=settings.max_consumers_per_node,
        pools=settings.pools,
        conditions=(condition,),
    )


class _State(NamedTuple):
    is_so: bool
    reason: str
    message: str


_OPEN: Final = _State(
    is_so=False,
    reason="FenceOpen",
    message="the fence restricts nothing, so others may allocate owned devices: it was opened to "
    "rescue the cluster; `drawbridge bridge own` closes it",
)
_MISSING: Final = _State(
    is_so=False,
    reason="FenceMissing",
    message="there is no fence, so others may allocate owned devices; `drawbridge bridge own` "
    "creates it",
)


def _unfenced(fence: Fence) -> _State | None:
    """Return the state that a missing fence gives all drivers; None if the fence stands."""
    match fence.state:
        case FenceState.OPEN:
            return _OPEN
        case FenceState.MISSING:
            return _MISSING
        case FenceState.INCOMPLETE:
            return _State(
                is_so=False,
                reason="FenceIncomplete",
                message=f"of the fence {', '.join(fence.idle_parts)} does not exist or does not deny all that it should, so "
                "others may allocate owned devices; `drawbridge bridge status` says what creates it",
            )
        case _:
            return None


def _of_driver(name: str, report: Report) -> _State:
    if report.problem:
        return _State(is_so=False, reason="NotReady", message=report.problem)
    if unfenced := _unfenced(report.fence):
        return unfenced
    if not report.fence.keeps_others_from(name):
        return _State(
            is_so=False,
            reason="FenceDiffers",
            message="the fence does not list the driver, so others may allocate its devices; "
            "`drawbridge bridge own` with its name writes it",
        )
    if name not in report.pools:
        return _State(is_so=False, reason="NoDevices", message="the driver publishes no devices")
    if not report.pools[name]:
        return _State(
            is_so=True,
            reason="IncompletePools",
            message="the devices of complete pools are allocated; some pools lack ResourceSlices",
        )
    return _State(is_so=True, reason=SERVING, message="its devices are allocated")


def _overall(report: Report, drivers: Collection[Iterable[Condition] | None]) -> _State:
    if report.problem:
        return _State(is_so=False, reason="NotReady", message=report.problem)
    if not drivers:
        return _State(is_so=True, reason="NoDrivers", message="no driver is owned")
    if unfenced := _unfenced(report.fence):
        return unfenced
    serving = sum(
        condition.status == "True" for conditions in drivers for condition in conditions or ()
    )
    return _State(
        is_so=True,
        reason=SERVING,
        message=f"devices of {serving} of {len(drivers)} drivers are allocated",
    )


def _condition(state: _State, before: Iterable[Condition], generation: int, now: str) -> Condition:
    status = "True" if state.is_so else "False"
    return Condition(
        type=SERVING,
        status=status,
        reason=state.reason,
        message=state.message[:MAX_MESSAGE],
        observed_generation=generation,
        last_transition_time=next(_times(before, status), now),
    )


def _times(before: Iterable[Condition], status: str) -> Iterator[str]:
    return (
        condition.last_transition_time
        for condition in before
        if condition.type == SERVING
        and condition.status == status
        and condition.last_transition_time
    )
