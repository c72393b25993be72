"""The taints that the driver sets by itself, so that no scheduler allocates the devices.

A pod that is deleted by force leaves the API at once, and its claim with it, while its containers may
still run. Until they have ended, schedulers take the devices for free. The driver tells them otherwise,
and refuses what they hand out meanwhile.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from allocator.model.usage import gather_usage
from allocator.search.attempt import AllocatorOptions
from allocator.search.recheck import find_conflict
from driver.model.record import Record
from driver.plan.checkpoint import Checkpoint
from driver.plan.prepare import FEATURES, NodeState, pools_in_use, with_vanished
from driver.plan.recorded import recorded_results
from kube.api.resource import Device, DeviceRequestAllocationResult, DeviceTaint, ResourceClaim
from kube.names import GROUP, IN_USE_TAINT

IN_USE: Final = DeviceTaint(key=IN_USE_TAINT, effect="NoSchedule")
"""The taint of devices that containers may still use although the API server no longer has the
claim."""

STATE_UNKNOWN: Final = DeviceTaint(key=f"{GROUP}/state-unknown", effect="NoSchedule")
"""The taint of all devices while the devices in use are unknown."""


def is_released(record: Record, claim: ResourceClaim) -> bool:
    """Return True if the API server's claim no longer holds the prepared devices.

    Args:
        record: The record of the prepared claim.
        claim: The claim that has its name now.
    """
    if claim.metadata.uid != record.uid or claim.status is None:
        return True
    allocation = claim.status.allocation
    results = recorded_results(allocation.devices.results or ()) if allocation is not None else ()
    # An older driver may have recorded more of each.
    return any(result not in results for result in recorded_results(record.results))


def merge_taints(*kinds: Mapping[str, DeviceTaint]) -> Mapping[str, tuple[DeviceTaint, ...]]:
    """Return device to all taints that the driver sets, in the order of their kinds."""
    merged_taints: dict[str, tuple[DeviceTaint, ...]] = {}
    for taints in kinds:
        for name, taint in taints.items():
            merged_taints[name] = (*merged_taints.get(name, ()), taint)
    return merged_taints


def use_taints(
    node: NodeState,
    checkpoint: Checkpoint,
    released_claims: Collection[str],
    *,
    contested_devices: Collection[str] = (),
    is_state_known: bool,
) -> Mapping[str, DeviceTaint]:
    """Return device to the taint that says that it is, or may be, in use.

    Args:
        node: Devices and policies.
        checkpoint: The prepared claims.
        released_claims: Uids of claims that are prepared, but no longer allocated so.
        contested_devices: Devices that were refused to somebody, who had them allocated nevertheless. Who
            allocated them once may do so again, since kube-scheduler takes a device for free when any
            of its claims goes.
        is_state_known: True if the checkpoint is complete.
    """
    if not is_state_known:
        return {device.name: STATE_UNKNOWN for device in node.inventory.devices()}
    records = [record for uid, record in checkpoint.claims.items() if uid in released_claims]
    unusable = {*_unusable(node, records), *taken_devices(node, checkpoint, contested_devices)}
    return dict.fromkeys(sorted(unusable), IN_USE)


def _unusable(node: NodeState, records: Sequence[Record]) -> Iterator[str]:
    """Yield the devices of claims, and parts of the same cards that cannot be used beside them."""
    if not records:
        return
    # Who has admin access uses nothing up.
    results = {
        (result.pool, result.device): record
        for record in records
        for result in record.results
        if not result.admin_access
    }
    shared_counters = {
        (pool, name)
        for (pool, device_name), record in results.items()
        if (device := record.devices.get(device_name)) is not None
        for name in _counter_sets(device)
    }
    beside = [
        (pool, name)
        for (pool, name), node_device in node.devices.items()
        if any(
            (pool, counter_set) in shared_counters
            for counter_set in _counter_sets(node_device.device)
        )
    ]
    yield from (name for pool, name in node.devices if (pool, name) in results)
    yield from _in_conflict(node, records, beside)


def taken_devices(
    node: NodeState, checkpoint: Checkpoint, contested_devices: Collection[str]
) -> Iterator[str]:
    """Yield the contested devices without room for another claim; shares of others may fit."""
    moved_devices = pools_in_use(checkpoint.claims.values())
    yield from (
        name
        for pool, name in node.devices
        if name in contested_devices and moved_devices.get(name, pool) != pool
    )
    devices = [
        (pool, name)
        for (pool, name), node_device in node.devices.items()
        if name in contested_devices and not node_device.device.allow_multiple_allocations
    ]
    yield from _in_conflict(node, tuple(checkpoint.claims.values()), devices)


def _in_conflict(
    node: NodeState, records: Sequence[Record], devices: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Yield those of some devices that cannot be used beside claims."""
    if not devices:
        return
    usage = gather_usage([record.as_claim() for record in records], FEATURES)
    options = AllocatorOptions(features=FEATURES, policies=node.policies)
    published_devices = with_vanished(node, records).published_devices
    for pool, name in devices:
        result = DeviceRequestAllocationResult(
            request="any", driver=node.driver, pool=pool, device=name
        )
        alone = Record(uid="any", namespace="", name="", results=(result,)).as_claim()
        if find_conflict(alone, published_devices, usage, options) is not None:
            yield name


def _counter_sets(device: Device) -> frozenset[str]:
    return frozenset(entry.counter_set for entry in device.consumes_counters or ())
