"""Opaque configurations of claims and classes: would the driver take them, and for these devices.

What a driver refuses it refuses on the node, when the pod starts and the device is taken already.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from allocator.core.inventory import Chain, Failure, chain
from allocator.core.model import DeviceId, Expression, PublishedDevice
from kube.api.resource import (
    Device,
    DeviceAttribute,
    DeviceClaim,
    DeviceClass,
    OpaqueDeviceConfiguration,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from webhook.findings import Code, Finding, Severity, error, info, shown, warning
from webhook.rules.asked import Asked, asked, at, named
from webhook.rules.context import Context
from webhook.rules.inventory import Found
from webhook.rules.parameters import COMPARES_LITERALLY, in_cel, refused
from webhook.rules.rule import (
    OTHER_OBJECTS,
    ClaimRule,
    Class,
    ClassRule,
    InServer,
    Part,
    Subject,
)

_NVIDIA: Final = "gpu.nvidia.com"
_TYPES: Final[Mapping[str, str]] = {
    "GpuConfig": "gpu",
    "MigDeviceConfig": "mig",
    "VfioDeviceConfig": "vfio",
}
"""Kinds of gpu.nvidia.com to the attribute `type` of the devices that they are for."""


def of_claim(claim: Subject[DeviceClaim], path: str, _context: Context) -> Iterator[Finding]:
    """Yield parameters of a claim that their driver would refuse."""
    for index, one in enumerate(claim.view.config or ()):
        yield from _refused(one.opaque, at(path, f"config[{index}].opaque"))


def of_class(device_class: Subject[DeviceClass], path: str, _context: Context) -> Iterator[Finding]:
    """Yield parameters of a class that their driver would refuse."""
    for index, one in enumerate(device_class.view.spec.config or ()):
        yield from _refused(one.opaque, at(path, f"spec.config[{index}].opaque"))


def _refused(opaque: OpaqueDeviceConfiguration | None, path: str) -> Iterator[Finding]:
    if opaque is not None:
        for fault in refused(opaque.driver, opaque.parameters):
            yield error(
                Code.INVALID_CONFIG, at(path, "parameters", fault.path), fault.message, fault.fix
            )


# --- is it for these devices ----------------------------------------------------------------------


def mismatched(claim: Subject[DeviceClaim], path: str, context: Context) -> Iterator[Finding]:
    """Yield configurations of a kind that the devices of their requests are not of.

    The driver fails where requests are named, and ignores the configuration where none are.
    """
    for index, one in enumerate(claim.view.config or ()):
        opaque = one.opaque
        if opaque is None or opaque.driver != _NVIDIA:
            continue
        wanted = _TYPES.get(str(opaque.parameters.get("kind")))
        possible = [(each, _types(each, context)) for each in named(claim.view, one.requests)]
        wrong = [(each, types) for each, types in possible if types and wanted not in types]
        if wanted is None or not wrong or (not one.requests and len(wrong) < len(possible)):
            continue
        each, types = wrong[0]
        kinds = sorted(kind for kind, type_ in _TYPES.items() if type_ in types)
        said = (
            f"{opaque.parameters['kind']} is for devices of type {wanted}, and request"
            f" {shown(each.name)} gets type {' or '.join(sorted(types))}"
        )
        place = at(path, f"config[{index}].opaque.parameters.kind")
        fix = f"write {' or '.join(kinds)}"
        if one.requests:
            yield error(Code.CONFIG_MISMATCH, place, f"{said}: the driver fails", fix)
        else:
            yield warning(Code.CONFIG_MISMATCH, place, f"{said}: the driver ignores it", fix)


def _types(one: Asked, context: Context) -> frozenset[str]:
    """Return which types of NVIDIA's devices a request may get; empty where that is not known."""
    links = _chain(one, context)
    if links is None:
        return frozenset()
    return frozenset(
        type_ for type_ in _TYPES.values() if _may_be(links.verdict(_device_of(type_)))
    )


def _chain(one: Asked, context: Context) -> Chain | None:
    """Return the selectors of a request's class and its own; None where the class is not known."""
    device_class = context.classes.get(one.request.device_class_name)
    if device_class is None:
        return None
    selectors = (*(device_class.spec.selectors or ()), *(one.request.selectors or ()))
    texts = [selector.cel.expression for selector in selectors if selector.cel is not None]
    return chain(tuple(Expression(text=text, origin="") for text in texts))


def _may_be(verdict: bool | Failure) -> bool:  # noqa: FBT001
    # An attribute that our device lacks may be there on a real one.
    return isinstance(verdict, Failure) or verdict


def _device_of(type_: str) -> PublishedDevice:
    """Return a device of which nothing is known but its type."""
    device = Device(name=type_, attributes={"type": DeviceAttribute(string=type_)})
    spec = ResourceSliceSpec(driver=_NVIDIA, pool=ResourcePool(name=type_), devices=(device,))
    return PublishedDevice(
        id=DeviceId(_NVIDIA, type_, type_), device=device, slice=ResourceSlice(spec=spec)
    )


def not_applied(claim: Subject[DeviceClaim], path: str, _context: Context) -> Iterator[Finding]:
    """Yield configurations for a request with alternatives, of drivers that look for its name."""
    parents = {one.name for one in claim.view.requests or () if one.first_available}
    for index, one in enumerate(claim.view.config or ()):
        if one.opaque is None or one.opaque.driver not in COMPARES_LITERALLY:
            continue
        for number, name in enumerate(one.requests or ()):
            if name in parents:
                names = [
                    each.name for each in asked(claim.view) if each.name.startswith(f"{name}/")
                ]
                yield warning(
                    Code.CONFIG_NOT_APPLIED,
                    at(path, f"config[{index}].requests[{number}]"),
                    f"driver {one.opaque.driver} compares names literally, and results are called"
                    f" {' or '.join(names)}, so it ignores this configuration",
                    f"name {' and '.join(names)}",
                )


_NO_PARENT: Final = (
    "!has(variables.devices.config) || variables.devices.config.all(c,\n"
    "!has(c.requests) || !has(c.opaque)"
    f" || !(c.opaque.driver in [{', '.join(repr(one) for one in sorted(COMPARES_LITERALLY))}])\n"
    "|| !c.requests.exists(name, variables.requests.exists(r,"
    " r.name == name && has(r.firstAvailable) && r.firstAvailable.size() > 0)))"
)


def needs_gate(claim: Subject[DeviceClaim], path: str, _context: Context) -> Iterator[Finding]:
    """Yield parameters that a driver takes only where an operator switched something on."""
    for index, one in enumerate(claim.view.config or ()):
        gate = _gate(one.opaque)
        if gate:
            yield info(
                Code.NEEDS_GATE,
                at(path, f"config[{index}].opaque.parameters"),
                f"driver {_NVIDIA} takes this only where its feature gate {gate} is on",
            )


def _gate(opaque: OpaqueDeviceConfiguration | None) -> str:
    if opaque is None or opaque.driver != _NVIDIA:
        return ""
    if opaque.parameters.get("kind") == "VfioDeviceConfig":
        return "PassthroughSupport"
    return _STRATEGY_GATES.get(_strategy(opaque), "")


def _strategy(opaque: OpaqueDeviceConfiguration) -> str:
    sharing = opaque.parameters.get("sharing")
    strategy = sharing.get("strategy") if isinstance(sharing, Mapping) else None
    return strategy if isinstance(strategy, str) else ""


_STRATEGY_GATES: Final = {"TimeSlicing": "TimeSlicingSettings", "MPS": "MPSSupport"}


def shared_already(claim: Subject[DeviceClaim], path: str, context: Context) -> Iterator[Finding]:
    """Yield MPS for devices that the driver publishes as shareable by amounts (consumable shares)."""
    if not context.inventory.devices:
        return
    for index, one in enumerate(claim.view.config or ()):
        if one.opaque is None or one.opaque.driver != _NVIDIA or _strategy(one.opaque) != "MPS":
            continue
        for each in named(claim.view, one.requests):
            links = _chain(each, context)
            found = Found() if links is None else context.inventory.found(links)
            if found.are_shared:
                severity = Severity.ERROR if each.is_only else Severity.WARNING
                yield Finding(
                    severity=severity,
                    code=Code.SHARED_ALREADY,
                    path=at(path, f"config[{index}].opaque.parameters.sharing.strategy"),
                    message=f"all {found.number} devices that fit request {shown(each.name)} are"
                    " shared by amounts, and the driver refuses MPS beside that",
                    fix="ask for an amount instead, below capacity.requests",
                )
                break


_REFUSED: Final = (
    "the driver would refuse these opaque parameters when the pod starts; drawbridge check says why"
)

RULES: Final[tuple[ClaimRule | ClassRule, ...]] = (
    ClaimRule(
        code=Code.INVALID_CONFIG,
        part=Part.CLAIM,
        rank=Class.WRONG,
        judge=of_claim,
        cure="Write the kind and its fields as the driver's API has them.",
        cel=InServer(
            expression="!has(variables.devices.config) || variables.devices.config.all(c,"
            f" !has(c.opaque)\n|| ({in_cel('c.opaque')}))",
            message=_REFUSED,
        ),
    ),
    ClassRule(
        code=Code.INVALID_CONFIG,
        part=Part.CLASS,
        rank=Class.WRONG,
        judge=of_class,
        cure="Write the kind and its fields as the driver's API has them.",
        cel=InServer(
            expression="!has(object.spec.config) || object.spec.config.all(c,"
            f" !has(c.opaque)\n|| ({in_cel('c.opaque')}))",
            message=_REFUSED,
        ),
    ),
    ClaimRule(
        code=Code.CONFIG_MISMATCH,
        part=Part.CLAIM,
        rank=Class.WRONG,
        judge=mismatched,
        cure="Write the kind that goes with the class, or ask for another class.",
        why_not_cel=OTHER_OBJECTS,
    ),
    ClaimRule(
        code=Code.CONFIG_NOT_APPLIED,
        part=Part.CLAIM,
        rank=Class.ADVICE,
        judge=not_applied,
        cure="Name every alternative, as `request/alternative`.",
        cel=InServer(
            expression=_NO_PARENT,
            message="a configuration names a request with alternatives; its driver looks for"
            " request/alternative and ignores it",
        ),
    ),
    ClaimRule(
        code=Code.NEEDS_GATE,
        part=Part.CLAIM,
        rank=Class.ADVICE,
        judge=needs_gate,
        cure="Ask the operator of the driver, or leave the parameters out.",
        why_not_cel="whether the gate is on is no object, and a policy would warn all the same",
    ),
    ClaimRule(
        code=Code.SHARED_ALREADY,
        part=Part.CLAIM,
        rank=Class.NEVER,
        judge=shared_already,
        cure="Ask for an amount below `capacity.requests`, and leave MPS out.",
        why_not_cel=OTHER_OBJECTS,
    ),
)
