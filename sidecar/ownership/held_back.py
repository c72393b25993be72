"""Devices of pods that were deleted by force: given to nobody while containers may still use them.

A pod that is deleted in good order stays until its containers have ended: the kubelet reports a terminal
phase, then the pod goes. A pod that is deleted by force is gone at once, and kube-controller-manager
deallocates its claims, while its containers may run on, on a node that nobody hears of.

So a pod that goes before its grace period has ended, and without a terminal phase, leaves its devices
held back. They are given again once the driver says that they are free, by a taint that it sets and
removes, or after a time.

Source: k8s.io/kubernetes v1.37.1, pkg/kubelet/status/status_manager.go, canBeDeleted;
pkg/controller/resourceclaim/controller.go, syncClaim.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from allocator.pods.claims import Name, allocation_of
from kube.api.core import FINISHED_PHASES, Node, Pod
from kube.api.meta import ObjectMeta, rfc3339
from kube.api.ownership import HeldBackClaim, HeldBackDevice
from kube.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from kube.names import IN_USE_TAINT
from kube.quantity import Quantity

DeviceName = tuple[str, str, str]
"""Driver, pool and device."""
HeldKey = tuple[str, str]
"""UID of the claim that had the devices, and of the pod that may use them: a claim may be allocated again,
and several pods may share it."""
Share = tuple[str, str, str, str | None]
"""Driver, pool, device and the ID of the share; None for the whole device."""


class HeldDevice(NamedTuple):
    """A device that is held back of pods of a namespace on a node."""

    namespace: str
    node: str
    device: DeviceName


MAX_PART: Final = 4
"""One of so many devices of a driver, and one at least, is what a namespace may have held back of it,
however many the setting allows: few devices are all that a small cluster has."""
MAX_SHARES: Final = 256
"""The number of shares of devices of a driver that a namespace may have held back and get further ones, as
many as the status has room for: whoever has small shares of few devices could have any number of them."""
OUT_OF_REACH_TAINTS: Final = frozenset(
    {"node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"}
)
"""The taints of nodes without usable devices, held back or not."""


def may_run(pod: Pod) -> bool:
    """Return True if containers of a pod may run, as it was seen last."""
    phase = pod.status.phase if pod.status is not None else ""
    return bool(pod.spec.node_name) and phase not in FINISHED_PHASES


def may_run_on(pod: Pod, now: datetime) -> bool:
    """Return True if containers of a pod may run although the pod is gone.

    A deletion by force is seen as one with a grace period of no seconds, which is over at once.

    Args:
        pod: The pod as it was seen last.
        now: The time at which the pod disappeared.
    """
    ends = pod.metadata.deletion_timestamp
    if not may_run(pod) or ends is None:
        return may_run(pod)
    return not pod.metadata.deletion_grace_period_seconds or now < datetime.fromisoformat(ends)


def hold_back(pod: Pod, claim: ResourceClaim, until: datetime) -> HeldBackClaim | None:
    """Return the devices of a claim that a pod may still use; None without any.

    Args:
        claim: The claim with its former allocation.
    """
    allocation = allocation_of(claim)
    results = (allocation.devices.results if allocation is not None else None) or ()
    devices = tuple(_held_device(result) for result in results if not result.admin_access)
    if not devices:
        return None
    return HeldBackClaim(
        claim_uid=claim.metadata.uid,
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        pod_uid=pod.metadata.uid,
        node=pod.spec.node_name,
        until=rfc3339(until),
        devices=devices,
    )


def end_of(now: datetime, timeout_s: float) -> datetime:
    """Return until when devices are held back at most."""
    return now + timedelta(seconds=timeout_s)


def is_over(held_claim: HeldBackClaim, now: datetime) -> bool:
    """Return True if the time of a held claim has come."""
    return now >= datetime.fromisoformat(held_claim.until)


def devices_of(held_claim: HeldBackClaim) -> frozenset[DeviceName]:
    """Return the devices that are held back."""
    return frozenset((device.driver, device.pool, device.device) for device in held_claim.devices)


def devices_in_use(slices: Iterable[ResourceSlice]) -> frozenset[DeviceName]:
    """Return the devices that containers may still use according to their driver."""
    return frozenset(
        (resource_slice.spec.driver, resource_slice.spec.pool.name, device.name)
        for resource_slice in slices
        for device in resource_slice.spec.devices or ()
        if any(taint.key == IN_USE_TAINT for taint in device.taints or ())
    )


def exhausted_namespaces(
    held_shares: Iterable[tuple[HeldDevice, int]],
    device_counts: Mapping[str, int],
    nodes: Mapping[str, Node],
    most_devices: int,
) -> frozenset[str]:
    """Return the namespaces that have as many devices held back as one may; they get no further ones.

    Whoever may delete pods by force would otherwise take the devices of others out of use, one after the
    other, with a quota of one. Devices of a node that does not respond are not counted: its pods are
    deleted by force in good faith, and held back or not, nobody could use them.

    Args:
        held_shares: The devices that are held back, of each namespace and node once, with the number of
            their shares.
        device_counts: Driver to its devices, of `count_devices`.
        most_devices: The maximum number of devices of one driver for one namespace.
    """
    devices: dict[tuple[str, str], set[DeviceName]] = {}
    shares: Counter[tuple[str, str]] = Counter()
    for (namespace, node_name, device), count in held_shares:
        node = nodes.get(node_name)
        if node is not None and not _is_out_of_reach(node):
            driver = device[0]
            devices.setdefault((namespace, driver), set()).add(device)
            shares[namespace, driver] += count
    limits = {
        driver: min(most_devices, max(1, count // MAX_PART))
        for driver, count in device_counts.items()
    }
    most_shares = max(MAX_SHARES, most_devices)
    return frozenset(
        namespace
        for (namespace, driver), names in devices.items()
        if len(names) >= limits.get(driver, most_devices)
        or shares[namespace, driver] >= most_shares
    )


def _is_out_of_reach(node: Node) -> bool:
    return any(taint.key in OUT_OF_REACH_TAINTS for taint in node.spec.taints or ())


def count_devices(slices: Iterable[ResourceSlice]) -> Mapping[str, int]:
    """Return the number of devices by driver; all partitions of one device count as one."""
    counts: Counter[str] = Counter()
    for resource_slice in slices:
        spec = resource_slice.spec
        whole = sum(not device.consumes_counters for device in spec.devices or ())
        counts[spec.driver] += whole + len(spec.shared_counters or ())
    return counts


def held_key(held_claim: HeldBackClaim) -> HeldKey:
    """Return the key of a held claim."""
    return held_claim.claim_uid, held_claim.pod_uid


def held_name(key: HeldKey) -> Name:
    """Return the name that held devices count under, as those of a claim; no claim has it."""
    return "", "held back/{}/{}".format(*key)


def without_counted(
    held_claim: HeldBackClaim,
    allocation: AllocationResult | None,
    earlier: Iterable[HeldBackClaim] = (),
) -> HeldBackClaim | None:
    """Return the held devices without those that count as in use anyhow; None if nothing is left.

    Args:
        allocation: The claim's present allocation: the same devices, others or None.
        earlier: Held claims of other pods that shared the claim, which count by themselves.
    """
    earlier_shares = (share_of(device) for other in earlier for device in other.devices)
    counted_shares = allocated_shares(allocation).union(earlier_shares)
    devices = tuple(
        device for device in held_claim.devices if share_of(device) not in counted_shares
    )
    return replace(held_claim, devices=devices) if devices else None


def share_of(device: HeldBackDevice | DeviceRequestAllocationResult) -> Share:
    """Return the share of a device that is held back or allocated."""
    return device.driver, device.pool, device.device, device.share_id


def allocated_shares(allocation: AllocationResult | None) -> frozenset[Share]:
    """Return the shares of an allocation that nobody else may have; none without an allocation."""
    results = (allocation.devices.results if allocation is not None else None) or ()
    return frozenset(share_of(result) for result in results if not result.admin_access)


def as_claim(
    held_claim: HeldBackClaim, former_allocation: AllocationResult | None = None
) -> ResourceClaim:
    """Return a claim that holds the devices, as the search sees it.

    Args:
        former_allocation: The allocation of the devices, whose configuration they still have; None if
            an earlier leader held them back, which reports no configuration.
    """
    namespace, name = held_name(held_key(held_claim))
    former = former_allocation.devices if former_allocation is not None else None
    former_results = (former.results if former is not None else None) or ()
    requests = {
        share_of(result): result.request for result in former_results if not result.admin_access
    }
    results = tuple(
        DeviceRequestAllocationResult(
            request=requests.get(share_of(device), "held-back"),
            driver=device.driver,
            pool=device.pool,
            device=device.device,
            share_id=device.share_id,
            consumed_capacity=None
            if device.consumed_capacity is None
            else {key: Quantity(amount) for key, amount in device.consumed_capacity.items()},
        )
        for device in held_claim.devices
    )
    config = former.config if former is not None else None
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results, config=config))
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=held_claim.claim_uid),
        status=ResourceClaimStatus(allocation=allocation),
    )


def _held_device(result: DeviceRequestAllocationResult) -> HeldBackDevice:
    consumed = result.consumed_capacity
    return HeldBackDevice(
        driver=result.driver,
        pool=result.pool,
        device=result.device,
        share_id=result.share_id,
        consumed_capacity=None
        if consumed is None
        else {name: str(amount) for name, amount in consumed.items()},
    )
