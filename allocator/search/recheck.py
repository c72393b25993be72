"""Validation of a stored allocation against the devices that are in use.

The API server never compares allocations: it stores whatever an allocator writes. A node driver, or a
search for double allocations, validates them with the same constraints as the search. Rules that only
decide which device is chosen are left out: selectors, taints, and constraints of the claim.

Unlike in upstream's allocator, admin access consumes no counters and no capacity: it uses nothing, and
must be possible on a full node.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from allocator.model.consumption import Consumption, consumption
from allocator.model.devices import DeviceId, NodeDevices
from allocator.model.outcome import AttemptFailed, Reason, RejectionReason, Verb
from allocator.model.requests import PendingClaims, Request
from allocator.model.usage import Consumer, Usage
from allocator.search.attempt import AllocatorOptions, Attempt, lay_out
from kube.api.resource import (
    AllocationResult,
    Device,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceClass,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimSpec,
)
from kube.quantity import Quantity, format_amount


class AllocationConflict(msgspec.Struct, frozen=True, kw_only=True):
    """The reason an allocation contradicts the usage by other claims.

    Attributes:
        request: Name of the request, as in the allocation result.
        device: The first device that cannot be used.
        rejection: The reason; its detail never names objects of other namespaces.
        consumers: The claims that use that device; empty if the conflict is with other devices.
    """

    request: str
    device: DeviceId
    rejection: RejectionReason
    consumers: tuple[Consumer, ...] = ()


def find_conflict(
    claim: ResourceClaim, node: NodeDevices, usage: Usage, options: AllocatorOptions
) -> AllocationConflict | None:
    """Return the first device of an allocation that cannot be used; None if all of them can.

    Args:
        claim: An allocated claim; results of drivers without a pool in `node` are left out.
        node: The devices of the node.
        usage: Usage by other claims.
        options: Feature gates and policies.
    """
    return _find_first_conflict((claim,), node, usage, options)


def are_compatible(
    claims: Sequence[ResourceClaim], node: NodeDevices, usage: Usage, options: AllocatorOptions
) -> bool:
    """Return True if allocations can be used beside each other and beside the devices in use.

    This is what `find_conflict` says of one claim after the other, each counted as usage for those after
    it, but lays out one attempt for all of them.

    Args:
        claims: Allocated claims, different ones.
        node: The devices of the node.
        usage: Usage by other claims.
        options: Feature gates and policies.
    """
    return _find_first_conflict(claims, node, usage, options) is None


def _find_first_conflict(
    claims: Sequence[ResourceClaim], node: NodeDevices, usage: Usage, options: AllocatorOptions
) -> AllocationConflict | None:
    drivers = {pool.id.driver for pool in node.pools}
    allocations = [
        (claim, claim.status.allocation)
        for claim in claims
        if claim.status is not None and claim.status.allocation is not None
    ]
    entries = [
        _entries(number, allocation.devices.results or (), drivers)
        for number, (_, allocation) in enumerate(allocations)
    ]
    flat = [entry for claim_entries in entries for entry in claim_entries]
    if not flat:
        return None
    pending = PendingClaims(
        claims=tuple(_with_config(claim, allocation) for claim, allocation in allocations),
        requests=tuple(
            tuple((entry.request,) for entry in claim_entries) for claim_entries in entries
        ),
    )
    try:
        recheck = _Recheck(lay_out(node, pending, usage, options), usage, options)
    except AttemptFailed as error:
        rejection = RejectionReason(reason=Reason.ATTEMPT_FAILED, subject=str(error))
        return _conflict(flat[0].result, rejection, usage)
    for entry in flat:
        rejection_ = recheck.add(entry.request, entry.result)
        if rejection_ is not None:
            return _conflict(entry.result, rejection_, usage)
    return None


class _Entry(NamedTuple):
    """A result of an allocation, and the request that has exactly this result."""

    request: Request
    result: DeviceRequestAllocationResult


def _entries(
    claim: int, results: Iterable[DeviceRequestAllocationResult], drivers: Container[str]
) -> list[_Entry]:
    """Return the results of drivers that use a device."""
    used = [result for result in results if result.driver in drivers and not result.admin_access]
    return [_Entry(_request(claim, index, result), result) for index, result in enumerate(used)]


def _conflict(
    result: DeviceRequestAllocationResult, rejection: RejectionReason, usage: Usage
) -> AllocationConflict:
    device = _device(result)
    use = usage.of(device)
    return AllocationConflict(
        request=result.request,
        device=device,
        rejection=rejection,
        consumers=use.consumers if use is not None else (),
    )


class _Recheck:
    """The state after some devices of the allocations."""

    def __init__(self, attempt: Attempt, usage: Usage, options: AllocatorOptions) -> None:
        self._attempt = attempt
        self._usage = usage
        self._features = options.features
        self._shared = attempt.shared
        self._chosen: set[tuple[DeviceId, str | None]] = set()

    def add(
        self, request: Request, result: DeviceRequestAllocationResult
    ) -> RejectionReason | None:
        """Add a device; return the reason it cannot be used, None if it can."""
        device = _device(result)
        position = self._attempt.node.positions.get(device)
        if position is None:
            return RejectionReason(reason=Reason.NO_DEVICES, subject="not published on this node")
        if self._is_in_use(device, result.share_id):
            return RejectionReason(reason=Reason.ALLOCATED, subject="in use")
        published_device = self._attempt.node.devices[position].device
        try:
            rejection = self._share_rejection(published_device, result)
            if rejection is not None:
                return rejection
            further = bool(self._shared >> position & 1)
            for constraint in self._attempt.constraints:
                if not constraint.add(request, position, further_share=further):
                    rejection = constraint.rejection(request, position, further_share=further)
                    return rejection or RejectionReason(reason=Reason.CONSTRAINT)
        except AttemptFailed as error:
            return RejectionReason(reason=Reason.ATTEMPT_FAILED, subject=str(error))
        self._shared |= self._attempt.shareable & 1 << position
        self._chosen |= {(device, result.share_id)}
        return None

    def _is_in_use(self, device: DeviceId, share_id: str | None) -> bool:
        use = self._usage.of(device)
        if share_id is None:
            return use is not None or any(
                device == chosen_device for chosen_device, _ in self._chosen
            )
        if use is not None and (use.exclusive or share_id in use.share_ids):
            return True
        return not self._chosen.isdisjoint({(device, None), (device, share_id)})

    def _share_rejection(
        self, device: Device, result: DeviceRequestAllocationResult
    ) -> RejectionReason | None:
        """Return the fault of a share by itself; None if it has none."""
        if result.share_id is None:
            return None
        if not device.allow_multiple_allocations:
            return RejectionReason(reason=Reason.ALLOCATED, subject="not shareable")
        consumed_amounts = result.consumed_capacity or {}
        expected_amounts = consumption(consumed_amounts, device, self._features)
        if not isinstance(expected_amounts, Consumption):
            return expected_amounts
        return _compare(consumed_amounts, expected_amounts.amounts)


def _compare(
    consumed_amounts: Mapping[str, Quantity], expected_amounts: Mapping[str, Quantity]
) -> RejectionReason | None:
    for name, amount in expected_amounts.items():
        if consumed_amounts.get(name) != amount:
            text = format_amount(consumed_amounts[name]) if name in consumed_amounts else "nothing"
            return RejectionReason(
                reason=Reason.CAPACITY,
                verb=Verb.HAVE,
                subject=f"consumed {name}",
                value=text,
                remark=f"!= {format_amount(amount)}",
            )
    return None


def _request(claim: int, index: int, result: DeviceRequestAllocationResult) -> Request:
    """Return a request for exactly one result.

    Args:
        claim: Index of its claim in the attempt.
        index: Index of the request in its claim.
        result: The result.
    """
    parent, slash, name = result.request.partition("/")
    return Request(
        claim=claim,
        index=index,
        name=name if slash else parent,
        parent=parent if slash else None,
        device_class=DeviceClass(),
        capacity=result.consumed_capacity if result.share_id is not None else None,
    )


def _with_config(claim: ResourceClaim, allocation: AllocationResult) -> ResourceClaim:
    """Return the claim with the configuration of its allocation, including that of classes."""
    config = tuple(
        DeviceClaimConfiguration(requests=entry.requests, opaque=entry.opaque)
        for entry in allocation.devices.config or ()
    )
    spec = ResourceClaimSpec(devices=DeviceClaim(config=config))
    return msgspec.structs.replace(claim, spec=spec)


def _device(result: DeviceRequestAllocationResult) -> DeviceId:
    return DeviceId(result.driver, result.pool, result.device)
