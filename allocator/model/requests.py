"""Resolution of claims into requests for the search, with the checks that precede any device.

The number of devices of a request with allocation mode All depends on the node, so
`check_result_limits` runs once the candidates of a node are known.

Source: k8s.io/dynamic-resource-allocation v0.37.1, structured/internal/experimental,
allocator_experimental.go, Allocate and validateDeviceRequest.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed
from kube.api.resource import (
    MAX_RESULTS,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from kube.quantity import Quantity


class Request(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request, or one alternative of a `firstAvailable`, ready for the search.

    Attributes:
        claim: Index of its claim in the attempt.
        index: Index of the top-level request in its claim.
        name: Its own name; the name of an alternative is unique only in its parent.
        parent: Name of the top-level request of an alternative; None for `exactly`.
        device_class: The class that it names.
        expressions: Selectors of the class, then of the request, in order.
        all_devices: Allocation mode All; `count` is then 0 and depends on the node.
        count: Number of devices in mode ExactCount; up to 2^63 - 1.
        admin: Admin access.
        tolerations: Tolerations of device taints.
        capacity: Amounts requested per device; None when the field is absent.
        derived: Fully qualified attribute name to expression.
    """

    claim: int
    index: int
    name: str
    parent: str | None = None
    device_class: DeviceClass
    expressions: tuple["Expression", ...] = ()
    all_devices: bool = False
    count: int = 1
    admin: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: Mapping[str, Quantity] | None = None
    derived: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """The name in results and configurations: `name` or `parent/name`."""
        return self.name if self.parent is None else f"{self.parent}/{self.name}"


class Expression(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a selector and its origin for messages: `class gpu: selector #0`."""

    text: str
    origin: str


class PendingClaims(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The unallocated claims of a pod; one attempt allocates all of them or none.

    Attributes:
        claims: The claims in the pod's order.
        requests: The alternatives of each request (one for `exactly`), per claim and top-level
            request.
    """

    claims: tuple[ResourceClaim, ...]
    requests: tuple[tuple[tuple[Request, ...], ...], ...]


_MODES: Final = {"": False, "ExactCount": False, "All": True}
"""Allocation mode to whether it is All. Unlike upstream, which relies on defaults of the API server:
no mode is ExactCount, and its count is one, so that objects from files need no API server."""


def resolve_requests(
    claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass], features: Features
) -> PendingClaims:
    """Resolve claims into requests, with one request per alternative.

    Args:
        claims: Claims without an allocation, in the pod's order.
        classes: All DeviceClasses of the cluster, by name.
        features: Feature gates.

    Raises:
        AttemptFailed: A claim is invalid on every node: a missing class, a field whose gate is
            off, an unknown kind of selector, mode or constraint. This holds even if only an
            alternative that would never be tried is invalid.
    """
    return PendingClaims(
        claims=tuple(claims),
        requests=tuple(
            _resolve_claim(_ClaimContext(claim, index, classes, features))
            for index, claim in enumerate(claims)
        ),
    )


def check_result_limits(pending: PendingClaims, count_devices: Callable[[Request], int]) -> None:
    """Check that the smallest alternatives of each claim need no more results than it can hold.

    A larger alternative may still exceed the limit; the search checks that.

    Args:
        pending: The claims.
        count_devices: Number of devices that a request needs on the node.

    Raises:
        AttemptFailed: The smallest alternatives of a claim need more than 32 devices together.
    """
    for claim, requests in zip(pending.claims, pending.requests, strict=True):
        total = 0
        for alternatives in requests:
            least = min(map(count_devices, alternatives))
            if least > MAX_RESULTS - total:
                top = alternatives[0].parent or alternatives[0].name
                raise AttemptFailed(
                    f"claim {_claim_name(claim)}, request {top}: adding {least} devices exceeds "
                    f"the claim limit of {MAX_RESULTS}, with {total} already accounted for"
                )
            total += least


class _ClaimContext(NamedTuple):
    """A claim with its index in the attempt, the classes and the gates."""

    claim: ResourceClaim
    claim_index: int
    classes: Mapping[str, DeviceClass]
    features: Features


def _resolve_claim(context: _ClaimContext) -> tuple[tuple[Request, ...], ...]:
    spec = context.claim.spec.devices
    requests = tuple(
        _resolve_request(index, request, context)
        for index, request in enumerate(spec.requests or ())
    )
    for index, constraint in enumerate(spec.constraints or ()):
        if constraint.match_attribute is None and constraint.distinct_attribute is None:
            raise AttemptFailed(
                f"claim {_claim_name(context.claim)}, constraint #{index}: empty constraint "
                "(unsupported constraint type?)"
            )
    return requests


def _resolve_request(
    index: int, request: DeviceRequest, context: _ClaimContext
) -> tuple[Request, ...]:
    """Resolve a request into its alternatives; `exactly` has one."""
    features, origin = context.features, f"claim {_claim_name(context.claim)}"
    alternatives = request.first_available or ()
    if alternatives and not features.prioritized_list:
        raise AttemptFailed(
            f"{origin}, request {request.name}: has subrequests, "
            "but the DRAPrioritizedList feature is disabled"
        )
    specs: Sequence[tuple[str, ExactDeviceRequest | DeviceSubRequest]] = [
        (alternative.name, alternative) for alternative in alternatives
    ] or [(request.name, request.exactly or ExactDeviceRequest())]
    for name, spec in specs:
        if spec.capacity is not None and not features.consumable_capacity:
            raise AttemptFailed(
                f"{origin}, request {name}: has capacity requests, "
                "but the DRAConsumableCapacity feature is disabled"
            )
    parent = request.name if alternatives else None
    return tuple(_resolve_alternative(spec, name, parent, index, context) for name, spec in specs)


def _resolve_alternative(
    spec: ExactDeviceRequest | DeviceSubRequest,
    name: str,
    parent: str | None,
    index: int,
    context: _ClaimContext,
) -> Request:
    origin = f"claim {_claim_name(context.claim)}, request {name}"
    if spec.derived_attributes and not context.features.derived_attributes:
        raise AttemptFailed(
            f"{origin}: cannot handle request with derived attributes, the feature is disabled"
        )
    own_expressions = _read_selectors(spec.selectors, origin)
    admin = spec.admin_access if isinstance(spec, ExactDeviceRequest) else None
    if admin is not None and not context.features.admin_access:
        raise AttemptFailed(f"{origin}: admin access is requested, but the feature is disabled")
    device_class = _find_class(spec, origin, context.classes)
    if spec.allocation_mode not in _MODES:
        raise AttemptFailed(f"{origin}: unsupported count mode {spec.allocation_mode}")
    all_devices = _MODES[spec.allocation_mode]
    # A manifest without a count decodes as 0; the API server defaults both to 1.
    count = spec.count or 1
    return Request(
        claim=context.claim_index,
        index=index,
        name=name,
        parent=parent,
        device_class=device_class,
        expressions=(
            *_read_selectors(device_class.spec.selectors, f"class {device_class.metadata.name}"),
            *own_expressions,
        ),
        all_devices=all_devices,
        count=0 if all_devices else count,
        admin=bool(admin),
        tolerations=spec.tolerations or (),
        capacity=None if spec.capacity is None else spec.capacity.requests or {},
        derived={
            attribute.name: attribute.expression for attribute in spec.derived_attributes or ()
        },
    )


def _find_class(
    spec: ExactDeviceRequest | DeviceSubRequest, origin: str, classes: Mapping[str, DeviceClass]
) -> DeviceClass:
    name = spec.device_class_name
    if not name:
        raise AttemptFailed(f"{origin}: missing device class name (unsupported request type?)")
    if name not in classes:
        raise AttemptFailed(
            f"{origin}: could not retrieve device class {name}: "
            f'deviceclass.resource.k8s.io "{name}" not found'
        )
    return classes[name]


def _read_selectors(
    selectors: Iterable[DeviceSelector] | None, origin: str
) -> tuple[Expression, ...]:
    expressions: list[Expression] = []
    for index, selector in enumerate(selectors or ()):
        if selector.cel is None:
            raise AttemptFailed(
                f"{origin}, selector #{index}: CEL expression empty (unsupported selector type?)"
            )
        expressions.append(
            Expression(text=selector.cel.expression, origin=f"{origin}: selector #{index}")
        )
    return tuple(expressions)


def _claim_name(claim: ResourceClaim) -> str:
    """Return `namespace/name`, or the name if there is no namespace."""
    namespace, name = claim.metadata.namespace, claim.metadata.name
    return f"{namespace}/{name}" if namespace else name
