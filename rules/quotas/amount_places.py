"""The field of a request with the amount that a limit of a DeviceQuota counts."""

from typing import NamedTuple

from msgspec.structs import replace

from findings.field_path import FieldPath
from findings.fitting import FittingAmount
from kube.api.resource import (
    CapacityRequirements,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
)
from kube.cel.device import qualify_name
from kube.quantity import Quantity
from quotas.device_quotas.limits import Limit, Measure
from rules.context.claim_entries import ClaimEntry


class AmountPlace(NamedTuple):
    """A request of a claim that is validated, with the field that has its amount.

    Attributes:
        field: The path below the claim's `devices`.
        amount: The amount in the field; None if there is no such field.
        capacity: The name of the capacity that it is an amount of; empty for a count.
        added_field: The field that the amount would be in; the root if there is an amount, or no such field.
    """

    entry: ClaimEntry
    request: DeviceRequest
    field: FieldPath
    amount: Quantity | None = None
    capacity: str = ""
    added_field: FieldPath = FieldPath()


def amount_place(
    entry: ClaimEntry, index: int, request: DeviceRequest, limit: Limit, *, is_per_device: bool
) -> AmountPlace:
    """Return the place of the amount that a request is charged with.

    Args:
        index: The index of the request in its claim.
        is_per_device: The amount of one device counts, and not that of all devices.
    """
    path = FieldPath.of("requests", index)
    exactly = request.exactly
    if exactly is None:
        return _alternative_place(entry, path, request, limit)
    path = path.child("exactly")
    if limit.measure is Measure.CAPACITY and exactly.capacity is not None:
        for name, amount in (exactly.capacity.requests or {}).items():
            if qualify_name(name, limit.driver) == limit.capacity:
                field = path.child("capacity", "requests").key(name)
                return AmountPlace(entry, request, field, amount, name)
    domain, capacity = limit.capacity
    if limit.measure is Measure.CAPACITY and domain == limit.driver:
        added_field = path.child("capacity", "requests").key(capacity)
        return AmountPlace(entry, request, path, capacity=capacity, added_field=added_field)
    if limit.measure is Measure.DEVICES and exactly.count is not None and not is_per_device:
        return AmountPlace(entry, request, path.child("count"), Quantity(exactly.count))
    return AmountPlace(entry, request, path)


def _alternative_place(
    entry: ClaimEntry, path: FieldPath, request: DeviceRequest, limit: Limit
) -> AmountPlace:
    """Return the place of the first alternative that names an amount of the limit's capacity."""
    if limit.measure is Measure.CAPACITY:
        for index, alternative in enumerate(request.first_available or ()):
            amounts = (alternative.capacity.requests if alternative.capacity else None) or {}
            for name, amount in amounts.items():
                if qualify_name(name, limit.driver) == limit.capacity:
                    field = path.child("firstAvailable", index, "capacity", "requests").key(name)
                    # Of several alternatives each has an amount of its own.
                    is_only = only_form(request) is not None
                    return AmountPlace(entry, request, field, amount if is_only else None, name)
    return AmountPlace(entry, request, path)


def only_form(request: DeviceRequest) -> ExactDeviceRequest | DeviceSubRequest | None:
    """Return the only form of a request; None if it has alternatives."""
    if request.exactly is not None:
        return request.exactly
    alternatives = request.first_available or ()
    return alternatives[0] if len(alternatives) == 1 else None


def fitting_amount(place: AmountPlace, most: Quantity) -> FittingAmount:
    """Return the amount for the field of a place, or for the one to be added."""
    field = place.field if place.added_field.is_root else place.added_field
    return FittingAmount(claim=place.entry.path, field=field, amount=most)


def request_with(place: AmountPlace, amount: Quantity) -> DeviceRequest:
    """Return a request with another amount in its field."""
    form = only_form(place.request)
    if form is None:
        return place.request
    if not place.capacity:
        changed_form = replace(form, count=int(amount))
    else:
        capacity = form.capacity or CapacityRequirements()
        amounts = {**(capacity.requests or {}), place.capacity: amount}
        changed_form = replace(form, capacity=replace(capacity, requests=amounts))
    if isinstance(changed_form, ExactDeviceRequest):
        return replace(place.request, exactly=changed_form)
    return replace(place.request, first_available=(changed_form,))
