"""A canonical form of claims without names, so that equal questions share their answers.

A search reads the names of requests only to find the constraints and configurations that are for
them, and it reads configurations only for drivers that require those of co-tenants to agree
(`allocator/features/co_tenant_config.py`). So requests are named by position here, and all other
configurations are left out. Two claims with equal forms get the same devices on every node, request by
request; results and messages are made with the names of who asks.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from allocator.model.requests import PendingClaims
from allocator.search.attempt import AllocatorOptions
from kube.api.meta import encode
from kube.api.resource import (
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceRequest,
    ResourceClaim,
)

_NO_REQUEST: Final = ("none",)
"""Stands for references of which none names a request; no reference at all would mean every request."""


def encode_requests(claims: Sequence[ResourceClaim], options: AllocatorOptions) -> bytes:
    """Return everything about claims that a verdict depends on; equal for claims that differ in names."""
    drivers = config_drivers(options)
    return encode([canonical_devices(claim.spec.devices, drivers) for claim in claims])


def names_of(pending: PendingClaims) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Return the namespace and name of each claim, and the names of its requests, as in messages."""
    return tuple(
        (
            claim.metadata.namespace,
            claim.metadata.name,
            tuple([request.full_name for alternatives in requests for request in alternatives]),
        )
        for claim, requests in zip(pending.claims, pending.requests, strict=True)
    )


def config_drivers(options: AllocatorOptions) -> frozenset[str]:
    """Return the drivers with configurations that a search reads."""
    return options.uniform_config_drivers if options.features.consumable_capacity else frozenset()


def canonical_devices(devices: DeviceClaim, drivers: Collection[str]) -> DeviceClaim:
    """Return the requests, constraints and configurations of a claim with requests named by position.

    A claim in which two requests have one name, which the API server rejects, is returned as it is.

    Args:
        devices: The claim's requests, constraints and configurations.
        drivers: Drivers whose configurations count.
    """
    requests = devices.requests or ()
    names = _canonical_names(requests)
    if len(names) < sum(1 + len(request.first_available or ()) for request in requests):
        return devices
    config = [
        replace(entry, requests=_rename(entry.requests, names))
        for entry in devices.config or ()
        if _counts(entry, drivers)
    ]
    return DeviceClaim(
        requests=tuple([_rename_request(request, names) for request in requests]),
        constraints=tuple(
            [_rename_references(constraint, names) for constraint in devices.constraints or ()]
        ),
        config=tuple(config),
    )


def _counts(entry: DeviceClaimConfiguration, drivers: Collection[str]) -> bool:
    return entry.opaque is not None and entry.opaque.driver in drivers


def _canonical_names(requests: Sequence[DeviceRequest]) -> Mapping[str, str]:
    """Return the name by position of each request, `r0`, and of each alternative, `r0/s1`."""
    names = {}
    for index, request in enumerate(requests):
        names[request.name] = f"r{index}"
        for number, alternative in enumerate(request.first_available or ()):
            names[f"{request.name}/{alternative.name}"] = f"r{index}/s{number}"
    return names


def _rename_request(request: DeviceRequest, names: Mapping[str, str]) -> DeviceRequest:
    alternatives = request.first_available
    if alternatives:
        alternatives = tuple(
            [
                replace(alternative, name=f"s{number}")
                for number, alternative in enumerate(alternatives)
            ]
        )
    return replace(request, name=names[request.name], first_available=alternatives)


def _rename_references(constraint: DeviceConstraint, names: Mapping[str, str]) -> DeviceConstraint:
    return replace(constraint, requests=_rename(constraint.requests, names))


def _rename(references: tuple[str, ...] | None, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return references to requests by position, sorted; empty for a reference to every request."""
    if not references:
        return ()
    renamed = {names[reference] for reference in references if reference in names}
    return tuple(sorted(renamed)) or _NO_REQUEST
