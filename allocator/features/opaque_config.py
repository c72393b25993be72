"""The configuration in an allocation result: that of the classes, then that of the claim.

Drivers let later entries override earlier ones, so a claim overrides its classes. The result
contains entries for all drivers, including those without an allocated device.

Source: k8s.io/dynamic-resource-allocation v0.37.1, structured/internal/experimental,
allocator_experimental.go, Allocate ("Populate configs").
"""

from collections.abc import Iterator, Sequence
from typing import Final

from allocator.model.requests import PendingClaims, Request
from kube.api.resource import DeviceAllocationConfiguration, DeviceClass, ResourceClaim

FROM_CLASS: Final = "FromClass"
FROM_CLAIM: Final = "FromClaim"


def merge_configuration(
    pending: PendingClaims, claim_index: int, alternatives: Sequence[int]
) -> tuple[DeviceAllocationConfiguration, ...]:
    """Return the configuration of one claim; entries for all of its requests name no request.

    Args:
        pending: All claims of the attempt.
        claim_index: Index of the claim.
        alternatives: The index of the chosen alternative, per top-level request.
    """
    requests = pending.requests[claim_index]
    chosen_requests = [
        options[index] for options, index in zip(requests, alternatives, strict=True)
    ]
    claim = pending.claims[claim_index]
    return tuple(
        _omit_requests_if_all(entry, chosen_requests)
        for entry in (*_class_entries(chosen_requests), *_claim_entries(claim, chosen_requests))
    )


def _class_entries(chosen_requests: Sequence[Request]) -> Iterator[DeviceAllocationConfiguration]:
    """Yield the entries of each class once, for all requests that use the class."""
    users: dict[str, list[str]] = {}
    classes: dict[str, DeviceClass] = {}
    for request in chosen_requests:
        name = request.device_class.metadata.name
        classes.setdefault(name, request.device_class)
        users.setdefault(name, []).append(request.full_name)
    for name, device_class in classes.items():
        for entry in device_class.spec.config or ():
            yield DeviceAllocationConfiguration(
                source=FROM_CLASS, requests=tuple(users[name]), opaque=entry.opaque
            )


def _claim_entries(
    claim: ResourceClaim, chosen_requests: Sequence[Request]
) -> Iterator[DeviceAllocationConfiguration]:
    """Yield the entries of the claim, except for alternatives that were not chosen."""
    names = {name for request in chosen_requests for name in _names(request)}
    for entry in claim.spec.devices.config or ():
        if not entry.requests or not names.isdisjoint(entry.requests):
            yield DeviceAllocationConfiguration(
                source=FROM_CLAIM, requests=entry.requests, opaque=entry.opaque
            )


def _omit_requests_if_all(
    entry: DeviceAllocationConfiguration, chosen_requests: Sequence[Request]
) -> DeviceAllocationConfiguration:
    """Return the entry without request names if it names every request or its alternative."""
    request_names = entry.requests or ()
    if not all(
        any(name in request_names for name in _names(request)) for request in chosen_requests
    ):
        return entry
    return DeviceAllocationConfiguration(source=entry.source, opaque=entry.opaque)


def _names(request: Request) -> tuple[str, str]:
    """Return the names of a request in a configuration: the top-level request's and its own."""
    return request.parent or request.name, request.full_name
