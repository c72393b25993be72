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


def without_request(
    claims: Sequence[ResourceClaim], number: int, index: int
) -> tuple[ResourceClaim, ...]:
    """Return claims without one request, and without the claim if it has no other.

    Args:
        number: The index of the claim.
        index: The index of the request in the claim.
    """
    devices = claims[number].spec.devices
    requests = devices.requests or ()
    rest = (*requests[:index], *requests[index + 1 :])
    if not rest:
        return (*claims[:number], *claims[number + 1 :])
    constraints = _without_name(devices.constraints or (), requests[index].name)
    changed_devices = replace(devices, requests=rest, constraints=constraints or None, config=None)
    changed_claim = replace(claims[number], spec=ResourceClaimSpec(devices=changed_devices))
    return (*claims[:number], changed_claim, *claims[number + 1 :])


def _without_name(
    constraints: Sequence[DeviceConstraint], name: str
) -> tuple[DeviceConstraint, ...]:
    """Return constraints on other requests than one of this name."""
    kept_constraints = []
    for constraint in constraints:
        names = tuple(
            other
            for other in constraint.requests or ()
            if other != name and not other.startswith(f"{name}/")
        )
        if names or not constraint.requests:
            kept_constraints.append(replace(constraint, requests=names or None))
    return tuple(kept_constraints)
