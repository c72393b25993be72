"""The charge of a claim: before its allocation between two bounds, after it that of its devices.

| request | before the allocation, at most | after it |
| --- | --- | --- |
| a number of devices | the number times the largest amount of a device that matches | the devices that it has |
| a number of shares | the number times the amount as the allocator rounds it | `consumedCapacity` |
| firstAvailable | the largest of the alternatives | the chosen alternative |
| All | the node with the most | the devices that it has |
| admin access | nothing | nothing |

A claim is charged once, whoever shares it. What follows from the devices that are published holds for them:
a device that is published later may be larger.

Source of the forms: k8s.io/kubernetes pkg/quota/v1/evaluator/core/resource_claims.go; of the amounts:
`allocator.model.consumption`.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from allocator.model.consumption import Consumption, capacity_consumption
from allocator.model.devices import DeviceId, PublishedDevice
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Choice
from allocator.model.requests import Expression
from allocator.model.selectors import SelectorChain, selector_chain
from kube.api.meta import encode
from kube.api.resource import (
    MAX_RESULTS,
    AllocationResult,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
)
from kube.cel.scope import current_scope
from kube.quantity import Quantity
from quotas.device_quotas.limits import ONE, Limit, Measure, amount_of, capacity_of
from quotas.device_quotas.published import PublishedDevices, node_of

_MAX_CACHED: Final = 16384
_ANY_NODE: Final = ""
_STEPS_PER_DEVICE: Final = 2
"""Steps of the answer's budget for each device that an estimate compares."""


class Bounds(NamedTuple):
    """The least and the largest charge, in nano-units."""

    least: int = 0
    most: int = 0

    def __add__(self, other: "Bounds") -> "Bounds":  # type: ignore[override]
        return Bounds(self.least + other.least, self.most + other.most)


class Estimate(NamedTuple):
    """The charge of a claim that is not allocated.

    Attributes:
        total: The charge.
        request: The charge of its largest request.
        device: The charge on the device that it is charged most for.
    """

    total: Bounds = Bounds()
    request: Bounds = Bounds()
    device: Bounds = Bounds()


class Charge(NamedTuple):
    """The charge of devices that are chosen, in nano-units.

    Attributes:
        total: The charge.
        request: The charge of the largest request.
        device: The charge on the device that is charged most.
        is_complete: False if devices are not published any more whose amounts only slices tell.
    """

    total: int = 0
    request: int = 0
    device: int = 0
    is_complete: bool = True


class TakenDevice(NamedTuple):
    """A device, or a share of it, that a claim has or would get.

    Attributes:
        request: The name of the top-level request.
        device_class: The class of the request.
        id: The device.
        device: The device as published; None if it is not published any more.
        consumed: The consumption of the share; None for a device that is allocated alone.
    """

    request: str
    device_class: str
    id: DeviceId
    device: PublishedDevice | None
    consumed: Mapping[str, Quantity] | None


class _Candidate(NamedTuple):
    """A device that a request may get, with the charge for it, and its node."""

    charge: int
    node: str | None


Request = ExactDeviceRequest | DeviceSubRequest


class ClaimCharges:
    """Charges under the devices that are published and the classes.

    Attributes:
        published: The devices; `forget` has to follow a change of them.
        classes: The DeviceClasses by name; likewise.
    """

    def __init__(
        self,
        published_devices: PublishedDevices,
        classes: Mapping[str, DeviceClass],
        features: Features,
    ) -> None:
        """Charge nothing yet."""
        self.published = published_devices
        self.classes = classes
        self._fractional = features.fractional_capacity_range
        self._estimates: dict[Hashable, Estimate] = {}
        self._largest: dict[Limit, int] = {}

    def forget(self) -> None:
        """Take note that devices or classes are others now."""
        self._estimates.clear()

    def renew_largest(self, limits: Iterable[Limit]) -> bool:
        """Take note that devices are others now, for charges of devices that are not published any more.

        Args:
            limits: The limits with such charges.

        Returns:
            True if a charge is another one now.

        Raises:
            AnswerInterrupted: That is unknown.
        """
        before, self._largest = self._largest, {}
        return any(
            amount != self._largest_published(limit)
            for limit in limits
            if (amount := before.get(limit)) is not None
        )

    def estimate(self, devices: DeviceClaim, limit: Limit) -> Estimate:
        """Return the charge of a claim that is not allocated.

        Raises:
            AnswerInterrupted: The budget does not last to compare the devices, or to evaluate selectors.
        """
        estimates = [self._request(request, limit) for request in devices.requests or ()]
        total = sum((estimate.total for estimate in estimates), Bounds())
        if limit.measure is Measure.CLAIMS:
            total = Bounds(min(total.least, ONE), min(total.most, ONE))
        return Estimate(
            total=total,
            request=_largest(estimate.request for estimate in estimates),
            device=_largest(estimate.device for estimate in estimates),
        )

    def allocated(self, devices: DeviceClaim, allocation: AllocationResult, limit: Limit) -> Charge:
        """Return the charge of a claim for its allocation."""
        return self.charge_of(self.devices_of_claim(devices, allocation), limit)

    def planned(self, choices: Iterable[Choice], limit: Limit) -> Charge:
        """Return the charge of a claim for the devices that a plan gives it."""
        return self.charge_of(devices_of_plan(choices), limit)

    def devices_of_claim(
        self, devices: DeviceClaim, allocation: AllocationResult
    ) -> Sequence[TakenDevice]:
        """Return the devices that a claim has, for charges to several limits."""
        classes = dict(_request_classes(devices.requests or ()))
        return [
            TakenDevice(
                request=result.request.partition("/")[0],
                device_class=classes.get(result.request, ""),
                id=(id_ := DeviceId(result.driver, result.pool, result.device)),
                device=self.published.find(id_),
                consumed=None if result.share_id is None else result.consumed_capacity or {},
            )
            for result in allocation.devices.results or ()
            if not result.admin_access
        ]

    def charge_of(self, devices: Iterable[TakenDevice], limit: Limit) -> Charge:
        """Return the charge of one claim for devices and shares; those of other drivers do not count."""
        total, is_complete = 0, True
        by_request: dict[str, int] = defaultdict(int)
        by_device: dict[DeviceId, int] = defaultdict(int)
        for device_taken, amount in self._counted_devices(devices, limit):
            charge = self._largest_published(limit) if amount is None else amount
            is_complete &= amount is not None
            total += charge
            by_request[device_taken.request] += charge
            by_device[device_taken.id] += charge
        if limit.measure is Measure.CLAIMS:
            total = min(total, ONE)
        return Charge(
            total=total,
            request=max(by_request.values(), default=0),
            device=max(by_device.values(), default=0),
            is_complete=is_complete,
        )

    def total_of(self, devices: Iterable[TakenDevice], limit: Limit) -> tuple[int, bool]:
        """Return the total of `charge_of`, and True if it is complete."""
        total, is_complete = 0, True
        for _, amount in self._counted_devices(devices, limit):
            if amount is None:
                total, is_complete = total + self._largest_published(limit), False
            else:
                total += amount
        return min(total, ONE) if limit.measure is Measure.CLAIMS else total, is_complete

    def _counted_devices(
        self, devices: Iterable[TakenDevice], limit: Limit
    ) -> Iterator[tuple[TakenDevice, int | None]]:
        """Yield the counted devices with their amounts; None for an amount known from slices alone."""
        has_counters = limit.measure is Measure.COUNTER
        consuming: set[DeviceId] = set()
        for device_taken in devices:
            if device_taken.id.driver != limit.driver:
                continue
            # The class of a request that is not in the spec is unknown, so it counts.
            if device_taken.device_class and not limit.counts_class(device_taken.device_class):
                continue
            if device_taken.device is not None and not limit.devices.counts(device_taken.device):
                continue
            if has_counters:
                if device_taken.id in consuming:
                    continue  # A device consumes counters once, whatever the number of its shares.
                consuming.add(device_taken.id)
            yield device_taken, _amount_taken(device_taken, limit)

    def _request(self, request: DeviceRequest, limit: Limit) -> Estimate:
        """Return the charge of a request: between those of its alternatives."""
        alternatives = request.first_available or ((request.exactly,) if request.exactly else ())
        estimates = [self._alternative(alternative, limit) for alternative in alternatives]
        if not estimates:
            return Estimate()
        total = _span(estimate.total for estimate in estimates)
        device = _span(estimate.device for estimate in estimates)
        return Estimate(total=total, request=total, device=device)

    def _alternative(self, request: Request, limit: Limit) -> Estimate:
        if isinstance(request, ExactDeviceRequest) and request.admin_access:
            return Estimate()
        if not limit.counts_class(request.device_class_name):
            return Estimate()
        key = (limit, *_identity(request))
        estimate = self._estimates.get(key)
        if estimate is None:
            if len(self._estimates) >= _MAX_CACHED:
                self._estimates.clear()
            estimate = self._estimates[key] = self._estimate(request, limit)
            # Authors of claims choose how many estimates there are; each is kept, even if it was the last.
            current_scope().meter.count(1 + _STEPS_PER_DEVICE * len(self.published.devices))
        return estimate

    def _estimate(self, request: Request, limit: Limit) -> Estimate:
        candidates = tuple(self._candidates(request, limit))
        if not candidates:
            return Estimate()
        charges = [candidate.charge for candidate in candidates]
        device = Bounds(min(charges), max(charges))
        if request.allocation_mode == "All":
            # Some node may see only one of them.
            total = Bounds(device.least, _most_on_a_node(candidates))
            return Estimate(total=total, device=device)
        number = 1 if request.count is None else request.count
        return Estimate(total=Bounds(number * device.least, number * device.most), device=device)

    def _candidates(self, request: Request, limit: Limit) -> Iterator[_Candidate]:
        """Yield the devices that a request may get; one that does not count is charged with nothing."""
        device_class = self.classes.get(request.device_class_name)
        if device_class is None:
            return
        chain = _chain(request, device_class)
        devices = self.published.devices
        requested_amounts = request.capacity.requests if request.capacity else None
        # Devices of a cluster differ in little but their names, and readers share equal capacities.
        charges: dict[Hashable, int | None] = {}
        for device, verdict in zip(devices, chain.verdicts(devices), strict=True):
            if verdict is not True:
                continue
            counts = device.id.driver == limit.driver and limit.devices.counts(device)
            shape = (
                counts,
                id(device.device.capacity),
                id(device.device.consumes_counters),
                device.device.allow_multiple_allocations,
            )
            if shape not in charges:
                consumption = self._consumption(requested_amounts, device)
                if consumption is None:
                    charges[shape] = None
                else:
                    charges[shape] = amount_of(device, consumption.amounts, limit) if counts else 0
            charge = charges[shape]
            if charge is not None:
                yield _Candidate(charge, node_of(device))

    def _consumption(
        self, requested_amounts: Mapping[str, Quantity] | None, device: PublishedDevice
    ) -> Consumption | None:
        """Return the consumption of a device; None if it can never serve the request."""
        try:
            consumption = capacity_consumption(
                requested_amounts, device.device.capacity or {}, fractional=self._fractional
            )
        except AttemptFailed:
            return None
        return consumption if isinstance(consumption, Consumption) else None

    def _largest_published(self, limit: Limit) -> int:
        """Return the charge for a device that is not published any more: that of the largest that is."""
        if limit.devices.counts_all:
            largest = self.published.largest_amount(limit)
        elif (cached := self._largest.get(limit)) is not None:
            return cached
        else:
            largest = self._largest_selected(limit)
        self._largest[limit] = largest
        return largest

    def _largest_selected(self, limit: Limit) -> int:
        """Return the largest charge for a published device that the limit's selectors select."""
        largest = 0
        # As in `_candidates`.
        amounts: dict[Hashable, int] = {}
        for device in self.published.devices:
            if device.id.driver != limit.driver:
                continue
            shape = (id(device.device.capacity), id(device.device.consumes_counters))
            amount = amounts.get(shape)
            if amount is None:
                amount = amounts[shape] = amount_of(device, {}, limit)
            if amount > largest and limit.devices.counts(device):
                largest = amount
        return largest


def devices_of_plan(choices: Iterable[Choice]) -> Sequence[TakenDevice]:
    """Return the devices that a plan gives a claim, for charges to several limits."""
    return [
        TakenDevice(
            request=choice.request.parent or choice.request.name,
            device_class=choice.request.device_class.metadata.name,
            id=choice.device.id,
            device=choice.device,
            consumed=choice.consumed,
        )
        for choice in choices
        if not choice.request.admin
    ]


def _amount_taken(device_taken: TakenDevice, limit: Limit) -> int | None:
    """Return the charge for a device or share; None if only its slice would tell."""
    if limit.measure is Measure.CAPACITY and device_taken.consumed is not None:
        return capacity_of(device_taken.consumed, limit)
    if limit.measure in {Measure.DEVICES, Measure.CLAIMS}:
        return ONE
    return None if device_taken.device is None else amount_of(device_taken.device, {}, limit)


def _chain(request: Request, device_class: DeviceClass) -> SelectorChain:
    own = [(selector, "request") for selector in request.selectors or ()]
    of_class = [(selector, "class") for selector in device_class.spec.selectors or ()]
    return selector_chain(
        tuple(
            Expression(text=selector.cel.expression, origin=origin)
            for selector, origin in (*of_class, *own)
            if selector.cel is not None
        )
    )


def _identity(request: Request) -> Sequence[Hashable]:
    """Return the properties that the estimate of a request depends on beside devices and classes."""
    # A digest, since whoever creates claims chooses how long the selectors are.
    return (
        request.device_class_name,
        request.allocation_mode,
        request.count,
        sha256(encode((request.selectors, request.capacity))).digest(),
    )


def _request_classes(requests: Iterable[DeviceRequest]) -> Iterator[tuple[str, str]]:
    """Yield the name of each request and alternative as in results, and its class."""
    for request in requests:
        if request.exactly is not None:
            yield request.name, request.exactly.device_class_name
        for alternative in request.first_available or ():
            yield f"{request.name}/{alternative.name}", alternative.device_class_name


def _most_on_a_node(candidates: Iterable[_Candidate]) -> int:
    """Return the largest charge for all devices of a node, as many as a claim can have."""
    by_node: dict[str, list[int]] = defaultdict(list)
    for candidate in candidates:
        by_node[candidate.node or _ANY_NODE].append(candidate.charge)
    everywhere = by_node.pop(_ANY_NODE, [])
    return max(
        sum(sorted((*charges, *everywhere), reverse=True)[:MAX_RESULTS])
        for charges in (*by_node.values(), ())
    )


def _span(bounds: Iterable[Bounds]) -> Bounds:
    """Return the bounds that hold for any of several alternatives."""
    all_bounds = tuple(bounds)
    return Bounds(min(least for least, _ in all_bounds), max(most for _, most in all_bounds))


def _largest(bounds: Iterable[Bounds]) -> Bounds:
    """Return the bounds of the largest of several."""
    all_bounds = tuple(bounds)
    return Bounds(
        max((least for least, _ in all_bounds), default=0),
        max((most for _, most in all_bounds), default=0),
    )
