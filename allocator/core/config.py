"""Which configuration an allocation carries: of the classes, then of the claim.

Drivers let later entries override earlier ones, so a claim overrides its classes. Entries of all
drivers are kept, also of those that give no device.

Source: k8s.io/dynamic-resource-allocation v0.37.1, structured/internal/experimental,
allocator_experimental.go, Allocate ("Populate configs").
"""

from collections.abc import Iterator, Sequence
from typing import Final

from allocator.core.model import Asked, Request
from kube.api.resource import DeviceAllocationConfiguration, DeviceClass, ResourceClaim

FROM_CLASS: Final = "FromClass"
FROM_CLAIM: Final = "FromClaim"


def merged(
    asked: Asked, claim_index: int, alternatives: Sequence[int]
) -> tuple[DeviceAllocationConfiguration, ...]:
    """Return the configuration of one claim; entries for all of its requests name none.

    Args:
        asked: All claims of the attempt.
        claim_index: Of the claim.
        alternatives: Per top-level request, the index of the chosen alternative.
    """
    requests = asked.requests[claim_index]
    chosen = [options[index] for options, index in zip(requests, alternatives, strict=True)]
    claim = asked.claims[claim_index]
    return tuple(
        _shortened(one, chosen) for one in (*_of_classes(chosen), *_of_claim(claim, chosen))
    )


def _of_classes(chosen: Sequence[Request]) -> Iterator[DeviceAllocationConfiguration]:
    """Yield each class's entries once, for all requests that chose the class."""
    users: dict[str, list[str]] = {}
    classes: dict[str, DeviceClass] = {}
    for request in chosen:
        name = request.device_class.metadata.name
        classes.setdefault(name, request.device_class)
        users.setdefault(name, []).append(request.full_name)
    for name, device_class in classes.items():
        for one in device_class.spec.config or ():
            yield DeviceAllocationConfiguration(
                source=FROM_CLASS, requests=tuple(users[name]), opaque=one.opaque
            )


def _of_claim(
    claim: ResourceClaim, chosen: Sequence[Request]
) -> Iterator[DeviceAllocationConfiguration]:
    """Yield the claim's entries but those for alternatives that were not chosen."""
    names = {name for request in chosen for name in _names(request)}
    for one in claim.spec.devices.config or ():
        if not one.requests or not names.isdisjoint(one.requests):
            yield DeviceAllocationConfiguration(
                source=FROM_CLAIM, requests=one.requests, opaque=one.opaque
            )


def _shortened(
    one: DeviceAllocationConfiguration, chosen: Sequence[Request]
) -> DeviceAllocationConfiguration:
    """Return an entry that names nobody if it names each request, or what was chosen for it."""
    named = one.requests or ()
    if not all(any(name in named for name in _names(request)) for request in chosen):
        return one
    return DeviceAllocationConfiguration(source=one.source, opaque=one.opaque)


def _names(request: Request) -> tuple[str, str]:
    """Return what a configuration may call the request: the top-level one, and itself."""
    return request.parent or request.name, request.full_name
