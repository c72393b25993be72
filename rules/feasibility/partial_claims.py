"""Claims with a part of another claim's requests, for a search for the infeasible part."""

from collections.abc import Sequence

from msgspec.structs import replace

from kube.api.resource import (
    DeviceClaim,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)


def with_alternative(request: DeviceRequest, alternative: DeviceSubRequest) -> DeviceRequest:
    """Return a request with one of its alternatives only."""
    return replace(request, first_available=(alternative,))


def claim_of_request(claim: ResourceClaim, request: DeviceRequest) -> ResourceClaim:
    """Return a claim with one request only."""
    return replace(claim, spec=ResourceClaimSpec(devices=DeviceClaim(requests=(request,))))


def with_constraints(
    claim: ResourceClaim, constraints: Sequence[DeviceConstraint]
) -> ResourceClaim:
    """Return a claim with other constraints."""
    devices = replace(claim.spec.devices, constraints=tuple(constraints) or None)
    return replace(claim, spec=ResourceClaimSpec(devices=devices))


def with_count(alone: ResourceClaim, count: int) -> ResourceClaim:
    """Return a claim of one request with another count."""
    (request,) = alone.spec.devices.requests or ()
    if request.first_available:
        (alternative,) = request.first_available
        return claim_of_request(alone, with_alternative(request, replace(alternative, count=count)))
    exactly = replace(request.exactly or ExactDeviceRequest(), count=count)
    return claim_of_request(alone, replace(request, exactly=exactly))
