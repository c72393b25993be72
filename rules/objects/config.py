"""Faults of opaque configurations of claims and classes, for known drivers.

A driver rejects a configuration on the node, when the pod starts and its devices are already
allocated.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from allocator.model.devices import DeviceId, PublishedDevice
from allocator.model.requests import Expression
from allocator.model.selectors import SelectorChain, SelectorFailure, selector_chain
from findings.field_path import FieldPath
from findings.finding import Code, Finding, Severity, error, info, warning
from findings.text import quote_text
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
from rules.context.context import Context
from rules.context.inventory import Selection
from rules.context.rule import (
    OTHER_OBJECTS,
    Category,
    CelRule,
    ClaimRule,
    ClassRule,
    Scope,
    Subject,
)
from rules.model.requests import Alternative, list_alternatives
from rules.schemas.other_drivers import find_doubts
from rules.schemas.parameters import COMPARES_LITERALLY, cel_for_parameters, find_faults

_NVIDIA: Final = "gpu.nvidia.com"
_TYPES: Final[Mapping[str, str]] = {
    "GpuConfig": "gpu",
    "MigDeviceConfig": "mig",
    "VfioDeviceConfig": "vfio",
}
"""Kinds of gpu.nvidia.com to the `type` attribute of their devices."""


def find_invalid_parameters(
    claim: Subject[DeviceClaim], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield parameters of a claim that their driver would reject."""
    for index, config in enumerate(claim.view.config or ()):
        yield from _rejections(config.opaque, path.child("config", index, "opaque"))


def find_invalid_class_parameters(
    device_class: Subject[DeviceClass], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield parameters of a class that their driver would reject."""
    for index, config in enumerate(device_class.view.spec.config or ()):
        yield from _rejections(config.opaque, path.child("spec", "config", index, "opaque"))


def _rejections(opaque: OpaqueDeviceConfiguration | None, path: FieldPath) -> Iterator[Finding]:
    if opaque is not None:
        parameters = path.child("parameters")
        for fault in find_faults(opaque.driver, opaque.parameters):
            finding = error(Code.INVALID_CONFIG, fault.path, fault.message, fault.fix)
            yield replace(finding, rewrites=fault.rewrites).nested_under(parameters)
        for fault in find_doubts(opaque.driver, opaque.parameters):
            yield warning(
                Code.INVALID_CONFIG,
                parameters.join(fault.path),
                f"{fault.message}; the releases of {opaque.driver} that are known here reject it",
                fault.fix,
            )


# --- configurations for other devices -------------------------------------------------------------


def find_mismatched_kinds(
    claim: Subject[DeviceClaim], path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield configurations for another type of device than their requests select.

    The driver rejects a configuration that names requests, and ignores one that names none. An error
    only where the driver rejects it whichever alternatives are allocated.
    """
    for index, config in enumerate(claim.view.config or ()):
        expected_type = _expected_type(config.opaque)
        if not expected_type:
            continue
        alternatives = _named_alternatives(claim.view, config.requests)
        mismatches = {
            alternative.name: types
            for alternative in alternatives
            if (types := _possible_types(alternative, context)) and expected_type not in types
        }
        is_partial = len(mismatches) < len(alternatives)
        if mismatches and (config.requests or not is_partial):
            certain = _inevitable(claim.view, mismatches)
            name = next(iter(certain or mismatches))
            detail, fix = _mismatch(expected_type, name, mismatches[name])
            if is_partial:
                fix = f"remove {' and '.join(map(quote_text, mismatches))} from its requests"
            if not config.requests:
                detail = f"{detail}: the driver ignores it"
            elif certain:
                detail = f"{detail}: the driver rejects it"
            else:
                detail = f"{detail}: the driver rejects it if this alternative is allocated"
            yield Finding(
                severity=Severity.ERROR if config.requests and certain else Severity.WARNING,
                code=Code.CONFIG_MISMATCH,
                path=path.child("config", index, "opaque", "parameters", "kind"),
                detail=detail,
                fix=fix,
            )


def _mismatch(expected_type: str, name: str, types: frozenset[str]) -> tuple[str, str]:
    """Return the detail and the fix for a configuration and a request for devices of other types."""
    (kind,) = (kind for kind, type_ in _TYPES.items() if type_ == expected_type)
    usable_kinds = sorted(kind for kind, type_ in _TYPES.items() if type_ in types)
    detail = (
        f"{kind} is for devices of type {expected_type}, but request {quote_text(name)} selects"
        f" type {' or '.join(sorted(types))}"
    )
    return detail, f"use {' or '.join(usable_kinds)}"


def _expected_type(opaque: OpaqueDeviceConfiguration | None) -> str:
    """Return the type of NVIDIA devices that a configuration is for; empty if it is unknown."""
    if opaque is None or opaque.driver != _NVIDIA:
        return ""
    return _TYPES.get(str(opaque.parameters.get("kind")), "")


def _named_alternatives(
    claim: DeviceClaim, names: tuple[str, ...] | None
) -> tuple[Alternative, ...]:
    """Return the alternatives that a configuration applies to, for a driver that compares literally.

    The name of a request with alternatives is the name of no result, so it stands for none of them.
    """
    if not names:
        return tuple(list_alternatives(claim))
    literal_names = frozenset(names)
    return tuple(
        alternative for alternative in list_alternatives(claim) if alternative.name in literal_names
    )


def _inevitable(claim: DeviceClaim, names: Collection[str]) -> list[str]:
    """Return the names of unavoidable alternatives: their requests have no other ones."""
    avoidable = {
        alternative.parent
        for alternative in list_alternatives(claim)
        if alternative.name not in names
    }
    return [name for name in names if name.partition("/")[0] not in avoidable]


def _possible_types(alternative: Alternative, context: Context) -> frozenset[str]:
    """Return the types of NVIDIA devices that a request may select; empty if they are unknown."""
    selectors = _selectors(alternative, context)
    if selectors is None:
        return frozenset()
    return frozenset(
        type_ for type_ in _TYPES.values() if _may_match(selectors.verdict(_device_of(type_)))
    )


def _selectors(alternative: Alternative, context: Context) -> SelectorChain | None:
    """Return the selectors of a request and its class; None if the class is unknown."""
    device_class = context.classes.get(alternative.request.device_class_name)
    if device_class is None:
        return None
    selectors = (*(device_class.spec.selectors or ()), *(alternative.request.selectors or ()))
    texts = [selector.cel.expression for selector in selectors if selector.cel is not None]
    return selector_chain(tuple(Expression(text=text, origin="") for text in texts))


def _may_match(verdict: bool | SelectorFailure) -> bool:  # noqa: FBT001
    # A real device may have an attribute that this one lacks.
    return isinstance(verdict, SelectorFailure) or verdict


def _device_of(type_: str) -> PublishedDevice:
    """Return a device with no attribute but its type."""
    device = Device(name=type_, attributes={"type": DeviceAttribute(string=type_)})
    spec = ResourceSliceSpec(driver=_NVIDIA, pool=ResourcePool(name=type_), devices=(device,))
    return PublishedDevice(
        id=DeviceId(_NVIDIA, type_, type_), device=device, slice=ResourceSlice(spec=spec)
    )


def find_ignored_configs(
    claim: Subject[DeviceClaim], path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield configurations for a request with alternatives, of drivers that compare names literally."""
    parents = {request.name for request in claim.view.requests or () if request.first_available}
    for index, config in enumerate(claim.view.config or ()):
        if config.opaque is None or config.opaque.driver not in COMPARES_LITERALLY:
            continue
        expected_type = _expected_type(config.opaque)
        for number, parent in enumerate(config.requests or ()):
            if parent in parents:
                alternatives = [
                    alternative
                    for alternative in list_alternatives(claim.view)
                    if alternative.parent == parent and not alternative.is_exact
                ]
                usable = [
                    alternative.name
                    for alternative in alternatives
                    if not expected_type
                    or expected_type in (_possible_types(alternative, context) or {expected_type})
                ]
                names = " or ".join(alternative.name for alternative in alternatives)
                yield warning(
                    Code.CONFIG_NOT_APPLIED,
                    path.child("config", index, "requests", number),
                    f"driver {config.opaque.driver} compares request names literally, but results are named"
                    f" {names}, so it ignores this configuration",
                    f"list {' and '.join(usable)}"
                    if usable
                    else f"remove it: no alternative selects devices of type {expected_type}",
                )


_NO_PARENT: Final = (
    "!has(variables.devices.config) || variables.devices.config.all(c,\n"
    "!has(c.requests) || !has(c.opaque)"
    f" || !(c.opaque.driver in [{', '.join(repr(driver) for driver in sorted(COMPARES_LITERALLY))}])\n"
    "|| !c.requests.exists(name, variables.requests.exists(r,"
    " r.name == name && has(r.firstAvailable) && r.firstAvailable.size() > 0)))"
)


def find_gated_parameters(
    claim: Subject[DeviceClaim], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield parameters that a driver accepts only with a feature gate of its own."""
    for index, config in enumerate(claim.view.config or ()):
        gate = _gate(config.opaque)
        if gate:
            yield info(
                Code.REQUIRES_FEATURE_GATE,
                path.child("config", index, "opaque", "parameters"),
                f"driver {_NVIDIA} accepts this only with its feature gate {gate}",
                "ask an administrator whether it is on; it is turned on in the settings of the driver's chart",
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


def find_conflicting_sharing(
    claim: Subject[DeviceClaim], path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield MPS for devices that the driver shares by consumable capacity."""
    if not context.inventory.devices:
        return
    for index, config in enumerate(claim.view.config or ()):
        if (
            config.opaque is None
            or config.opaque.driver != _NVIDIA
            or _strategy(config.opaque) != "MPS"
        ):
            continue
        for alternative in _named_alternatives(claim.view, config.requests):
            selectors = _selectors(alternative, context)
            selection = Selection() if selectors is None else context.inventory.select(selectors)
            if selection.are_shared:
                severity = Severity.ERROR if alternative.is_exact else Severity.WARNING
                yield Finding(
                    severity=severity,
                    code=Code.CONFLICTING_SHARING,
                    path=path.child("config", index, "opaque", "parameters", "sharing", "strategy"),
                    detail=f"all {selection.number} devices that request {quote_text(alternative.name)} selects are"
                    " shared by consumable capacity, and the driver rejects MPS with it",
                    fix="request an amount in capacity.requests instead",
                )
                break


_REJECTED_MESSAGE: Final = (
    "the driver would reject these opaque parameters when the pod starts; drawbridge check says why"
)

RULES: Final[tuple[ClaimRule | ClassRule, ...]] = (
    ClaimRule(
        code=Code.INVALID_CONFIG,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_invalid_parameters,
        fix="Use the kinds and fields of the driver's API.",
        cel=CelRule(
            expression="!has(variables.devices.config) || variables.devices.config.all(c,"
            f" !has(c.opaque)\n|| ({cel_for_parameters('c.opaque')}))",
            message=_REJECTED_MESSAGE,
        ),
    ),
    ClassRule(
        code=Code.INVALID_CONFIG,
        scope=Scope.CLASS,
        category=Category.INVALID,
        validate=find_invalid_class_parameters,
        fix="Use the kinds and fields of the driver's API.",
        cel=CelRule(
            expression="!has(object.spec.config) || object.spec.config.all(c,"
            f" !has(c.opaque)\n|| ({cel_for_parameters('c.opaque')}))",
            message=_REJECTED_MESSAGE,
        ),
    ),
    ClaimRule(
        code=Code.CONFIG_MISMATCH,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_mismatched_kinds,
        fix="Use the kind for the devices of the class, or another class; list only alternatives with such devices.",
        no_cel_reason=OTHER_OBJECTS,
    ),
    ClaimRule(
        code=Code.CONFIG_NOT_APPLIED,
        scope=Scope.CLAIM,
        category=Category.ADVICE,
        validate=find_ignored_configs,
        fix="List each alternative that the configuration is for, as `request/alternative`.",
        cel=CelRule(
            expression=_NO_PARENT,
            message="a configuration names a request with alternatives; its driver expects"
            " request/alternative and ignores it",
        ),
    ),
    ClaimRule(
        code=Code.REQUIRES_FEATURE_GATE,
        scope=Scope.CLAIM,
        category=Category.ADVICE,
        validate=find_gated_parameters,
        fix="An administrator enables the feature gate in the driver's chart; or remove the parameters.",
        no_cel_reason="a policy cannot read the feature gates of a driver",
    ),
    ClaimRule(
        code=Code.CONFLICTING_SHARING,
        scope=Scope.CLAIM,
        category=Category.INFEASIBLE,
        validate=find_conflicting_sharing,
        fix="Request an amount in `capacity.requests` instead of MPS.",
        no_cel_reason=OTHER_OBJECTS,
    ),
)
