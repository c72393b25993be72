"""Relaxations of constraints: an attribute of a similar name or of a wider place of the machine, or none.

One of a similar name only where no device of some request has the attribute: where values differ, the author
may well have meant it. Devices of different PCIe roots may still be of one NUMA node.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from allocator.explain.relaxation import Edit, Kind, Option, Relaxation
from allocator.explain.wording import enumerate_names
from allocator.features.constraints import applies
from allocator.model.devices import NodeDevices, PublishedDevice
from allocator.model.requests import Request
from allocator.model.selectors import selector_chain
from findings.field_path import FieldPath
from findings.similar_names import ALIKE, most_similar_name
from kube.api.resource import DeviceClaim, DeviceConstraint, ResourceClaim
from kube.cel.device import qualify_name

_OTHER, _LESS_SIMILAR, _WIDER, _DROPPED = 20, 2, 40, 45
_MAX_OTHERS: Final = 3
_WIDER_PLACES: Final[Mapping[str, str]] = {
    "resource.kubernetes.io/pcieRoot": "resource.kubernetes.io/numaNode"
}
"""Attribute of the place of a device in its machine to that of a place around it."""


def find_constraint_relaxations(
    nodes: Sequence[NodeDevices],
    number: int,
    claim: ResourceClaim,
    requests: Sequence[Sequence[Request]],
) -> Iterator[Relaxation]:
    """Yield the relaxations of a claim's constraints, in order; those of one from the least change on.

    Args:
        nodes: Their devices have the other attributes.
        number: The index of the claim in the attempt.
        requests: The alternatives of each of its requests.
    """
    for index, constraint in enumerate(claim.spec.devices.constraints or ()):
        field = FieldPath.of("constraints", index)
        kind = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
        name = constraint.match_attribute or constraint.distinct_attribute or ""
        constrained_requests = [
            request
            for alternatives in requests
            for request in alternatives
            if applies(constraint, request)
        ]
        if not constrained_requests:
            continue  # It names no request that there is, so it keeps no device away.
        wider = _WIDER_PLACES.get(constraint.match_attribute or "")
        for other, cost in _other_attributes(name, wider, constrained_requests, nodes):
            detail = f"write {kind} {other} for {name}{_place(field, constraint, claim)}"
            renamed = _with_attribute(constraint, other)
            option = Option(cost, detail, _replacing(constraint, renamed))
            yield Relaxation(number, "", Kind.CONSTRAINT, (option,), may_exclude=True, field=field)
        detail = f"drop {kind} {name}{_place(field, constraint, claim)}"
        dropped = Option(_DROPPED, detail, _replacing(constraint, None))
        yield Relaxation(number, "", Kind.CONSTRAINT, (dropped,), field=field)


def _place(field: FieldPath, constraint: DeviceConstraint, claim: ResourceClaim) -> str:
    """Return the requests of a constraint and its field: ` of requests gpu and nic (constraints[0])`.

    The requests of a claim with a single one go without saying.
    """
    names = constraint.requests or ()
    if names:
        requests = f" of request{'s' * (len(names) > 1)} {enumerate_names(names)}"
    else:
        requests = " of all requests" if len(claim.spec.devices.requests or ()) > 1 else ""
    return f"{requests} ({field})"


def _other_attributes(
    name: str, wider: str | None, requests: Sequence[Request], nodes: Sequence[NodeDevices]
) -> Iterator[tuple[str, int]]:
    """Yield attributes in place of one, with the costs: similar names if devices lack it, or a wider place.

    Args:
        name: The attribute of a constraint.
        wider: The attribute of the place around that of the name; None without one.
        requests: The requests under the constraint.
        nodes: Their devices have the other attributes.
    """
    if any(name in request.derived for request in requests):
        return
    chains = dict.fromkeys(selector_chain(request.expressions) for request in requests)
    published_names = [
        {
            attribute
            for node in nodes
            for device in node.devices
            if chain.verdict(device) is True
            for attribute in _attributes(device)
        }
        for chain in chains
    ]
    common_names = set.intersection(*published_names)
    if name not in common_names:
        for order, other in enumerate(_similar_attributes(name, common_names)):
            yield other, _OTHER + _LESS_SIMILAR * order
    elif wider in common_names:
        yield wider, _WIDER


def _similar_attributes(name: str, published_names: Collection[str]) -> list[str]:
    """Return attributes similar in name without the domain, of equal ones the one of the same domain first.

    >>> _similar_attributes("a.com/uuid", {"a.com/type", "a.com/UUID", "b.com/uuids", "a.com/parentUUID"})
    ['a.com/UUID', 'b.com/uuids', 'a.com/parentUUID']
    """
    domain, identifier = _divide(name)
    if not identifier:
        return []
    by_identifier: dict[str, list[str]] = {}
    for other in sorted(published_names, key=lambda other: (_divide(other)[0] != domain, other)):
        by_identifier.setdefault(_divide(other)[1], []).append(other)
    similar_names: list[str] = []
    while len(similar_names) < _MAX_OTHERS:
        similar = most_similar_name(identifier, by_identifier, ALIKE) or next(
            (other for other in by_identifier if other.endswith(identifier)), ""
        )
        if not similar:
            break
        similar_names += by_identifier.pop(similar)
    return similar_names[:_MAX_OTHERS]


def _attributes(device: PublishedDevice) -> Iterator[str]:
    """Yield the names of a device's attributes, each with its domain."""
    for name in device.device.attributes or {}:
        yield "/".join(qualify_name(name, device.id.driver))


def _divide(name: str) -> tuple[str, str]:
    """Return domain and identifier of an attribute, as they are compared."""
    domain, _, identifier = name.lower().rpartition("/")
    return domain, identifier


def _with_attribute(constraint: DeviceConstraint, name: str) -> DeviceConstraint:
    if constraint.match_attribute:
        return replace(constraint, match_attribute=name)
    return replace(constraint, distinct_attribute=name)


def _replacing(constraint: DeviceConstraint, other: DeviceConstraint | None) -> Edit:
    """Return an edit that replaces a constraint once, or drops it."""

    def edit_devices(devices: DeviceClaim) -> DeviceClaim:
        constraints = list(devices.constraints or ())
        if constraint in constraints:
            place = constraints.index(constraint)
            constraints[place : place + 1] = [] if other is None else [other]
        return replace(devices, constraints=tuple(constraints) or None)

    return edit_devices
