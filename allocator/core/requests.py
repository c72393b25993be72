"""Claims as written become requests ready for the search, or fail before it starts.

Covers what upstream checks of claims before it looks at a device. What mode All finds depends on
the node: `limits` judges counts once the search knows them.

Source: k8s.io/dynamic-resource-allocation v0.37.1, structured/internal/experimental,
allocator_experimental.go, Allocate and validateDeviceRequest.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from allocator.core.model import Asked, Expression, Features, Request
from allocator.core.outcome import AttemptFailed
from kube.api.resource import (
    MAX_RESULTS,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)

_MODES: Final = {"": False, "ExactCount": False, "All": True}
"""Mode to whether it is All. Unlike upstream, which relies on the API server's defaults: silence is
ExactCount, and its count is one, so that objects from files need no API server."""


def asked(
    claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass], features: Features
) -> Asked:
    """Return what claims ask for, each alternative a request of its own.

    Args:
        claims: Not allocated, in the pod's order.
        classes: All of the cluster, by name.

    Raises:
        AttemptFailed: A claim cannot be judged on any node: a missing class, a field whose gate is
            off, a kind of selector, mode or constraint that is not known. Also if only an
            alternative that would never be reached is broken.
    """
    return Asked(
        claims=tuple(claims),
        requests=tuple(
            _of_claim(_Context(claim, index, classes, features))
            for index, claim in enumerate(claims)
        ),
    )


def limits(asked: Asked, counts: Callable[[Request], int]) -> None:
    """Accept claims that may get their devices with no more results than one claim can hold.

    An alternative may still turn out to be too much later; the search checks that.

    Args:
        asked: As returned by the function of that name.
        counts: Devices of a request on the node; of mode All those that it found.

    Raises:
        AttemptFailed: The smallest alternatives of a claim are above 32 together.
    """
    for claim, requests in zip(asked.claims, asked.requests, strict=True):
        so_far = 0
        for alternatives in requests:
            least = min(map(counts, alternatives))
            if least > MAX_RESULTS - so_far:
                top = alternatives[0].parent or alternatives[0].name
                raise AttemptFailed(
                    f"claim {_named(claim)}, request {top}: adding {least} devices exceeds the "
                    f"claim limit of {MAX_RESULTS}, with {so_far} already accounted for"
                )
            so_far += least


class _Context(NamedTuple):
    """Of a claim, where its requests stand and by what they are judged."""

    claim: ResourceClaim
    claim_index: int
    classes: Mapping[str, DeviceClass]
    features: Features


def _of_claim(context: _Context) -> tuple[tuple[Request, ...], ...]:
    spec = context.claim.spec.devices
    found = tuple(
        _of_request(index, request, context) for index, request in enumerate(spec.requests or ())
    )
    for index, constraint in enumerate(spec.constraints or ()):
        if constraint.match_attribute is None and constraint.distinct_attribute is None:
            raise AttemptFailed(
                f"claim {_named(context.claim)}, constraint #{index}: empty constraint "
                "(unsupported constraint type?)"
            )
    return found


def _of_request(index: int, request: DeviceRequest, context: _Context) -> tuple[Request, ...]:
    """Return the alternatives of a request; of `exactly` there is one."""
    features, place = context.features, f"claim {_named(context.claim)}"
    alternatives = request.first_available or ()
    if alternatives and not features.prioritized_list:
        raise AttemptFailed(
            f"{place}, request {request.name}: has subrequests, "
            "but the DRAPrioritizedList feature is disabled"
        )
    exactly = request.exactly or ExactDeviceRequest()
    for name, asks in _named_asks(request.name, exactly, alternatives):
        if asks.capacity is not None and not features.consumable_capacity:
            raise AttemptFailed(
                f"{place}, request {name}: has capacity requests, "
                "but the DRAConsumableCapacity feature is disabled"
            )
    parent = request.name if alternatives else None
    return tuple(
        _request(asks, name, parent, index, context)
        for name, asks in _named_asks(request.name, exactly, alternatives)
    )


def _named_asks(
    name: str, exactly: ExactDeviceRequest, alternatives: Sequence[DeviceSubRequest]
) -> Sequence[tuple[str, ExactDeviceRequest | DeviceSubRequest]]:
    if alternatives:
        return [(one.name, one) for one in alternatives]
    return [(name, exactly)]


def _request(
    asks: ExactDeviceRequest | DeviceSubRequest,
    name: str,
    parent: str | None,
    index: int,
    context: _Context,
) -> Request:
    place = f"claim {_named(context.claim)}, request {name}"
    if asks.derived_attributes and not context.features.derived_attributes:
        raise AttemptFailed(
            f"{place}: cannot handle request with derived attributes, the feature is disabled"
        )
    own = _expressions(asks.selectors, place)
    admin = asks.admin_access if isinstance(asks, ExactDeviceRequest) else None
    if admin is not None and not context.features.admin_access:
        raise AttemptFailed(f"{place}: admin access is requested, but the feature is disabled")
    device_class = _class_of(asks, place, context.classes)
    if asks.allocation_mode not in _MODES:
        raise AttemptFailed(f"{place}: unsupported count mode {asks.allocation_mode}")
    all_devices = _MODES[asks.allocation_mode]
    # Nought is what a manifest without a count says, too: the API server stores 1 for both.
    count = asks.count or 1
    return Request(
        claim=context.claim_index,
        index=index,
        name=name,
        parent=parent,
        device_class=device_class,
        expressions=(
            *_expressions(device_class.spec.selectors, f"class {device_class.metadata.name}"),
            *own,
        ),
        all_devices=all_devices,
        count=0 if all_devices else count,
        admin=bool(admin),
        tolerations=asks.tolerations or (),
        capacity=None if asks.capacity is None else asks.capacity.requests or {},
        derived={one.name: one.expression for one in asks.derived_attributes or ()},
    )


def _class_of(
    asks: ExactDeviceRequest | DeviceSubRequest, place: str, classes: Mapping[str, DeviceClass]
) -> DeviceClass:
    name = asks.device_class_name
    if not name:
        raise AttemptFailed(f"{place}: missing device class name (unsupported request type?)")
    if name not in classes:
        raise AttemptFailed(
            f'{place}: could not retrieve device class {name}: deviceclass.resource.k8s.io "{name}" not found'
        )
    return classes[name]


def _expressions(selectors: Iterable[DeviceSelector] | None, place: str) -> tuple[Expression, ...]:
    found: list[Expression] = []
    for index, selector in enumerate(selectors or ()):
        if selector.cel is None:
            raise AttemptFailed(
                f"{place}, selector #{index}: CEL expression empty (unsupported selector type?)"
            )
        origin = f"{place}: selector #{index}"
        found.append(Expression(text=selector.cel.expression, origin=origin))
    return tuple(found)


def _named(claim: ResourceClaim) -> str:
    """Return `namespace/name`, or the name where there is no namespace."""
    namespace, name = claim.metadata.namespace, claim.metadata.name
    return f"{namespace}/{name}" if namespace else name
