"""Names in one claim or class: formats that the API server requires, and duplicates.

Names in fields that a disabled feature gate drops are not validated, as in the API server.

Source: k8s.io/kubernetes v1.37.1, pkg/apis/resource/validation/validation.go, ValidateResourceClaim and
ValidateDeviceClass; k8s.io/apimachinery v0.37.1, pkg/api/validate, ResourceFullyQualifiedName.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error
from findings.text import quote_text
from kube.api.resource import (
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceClass,
    DeviceClassConfiguration,
)
from rules.context.context import Context
from rules.context.rule import (
    BUILT_IN_VALIDATION,
    Category,
    Claim,
    ClaimRule,
    ClassRule,
    Scope,
    Subject,
)
from rules.model import formats
from rules.model.naming import (
    LocatedName,
    find_duplicates,
    find_repeated_names,
    find_unfit_names,
    find_unfit_object_name,
)
from rules.model.requests import list_alternatives


def find_invalid_names(claim: Claim, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield names of the object, its requests, classes, attributes, drivers and tolerated taints."""
    yield from find_unfit_object_name(_object_name(claim.raw))
    yield from find_unfit_names(
        _request_names(claim.view, path), formats.is_dns_label, formats.A_LABEL
    )
    yield from find_unfit_names(
        _class_names(claim.view, path), formats.is_dns_subdomain, formats.A_SUBDOMAIN
    )
    for place, name in _attribute_names(claim.view, path, context):
        yield from _attribute_faults(place, name)
    yield from _find_unfit_drivers(claim.view.config or (), path.child("config"))
    if context.features.device_taints:
        keys = _toleration_keys(claim.view, path)
        yield from find_unfit_names(keys, formats.is_label_key, formats.A_LABEL_KEY)


def find_invalid_class_names(
    device_class: Subject[DeviceClass], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield names of the class, and of drivers in its configurations."""
    yield from find_unfit_object_name(device_class.view.metadata.name)
    config = device_class.view.spec.config or ()
    yield from _find_unfit_drivers(config, path.child("spec", "config"))


def find_duplicate_names(claim: Claim, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield duplicate names of requests and alternatives, and duplicates in lists of requests."""
    requests = claim.view.requests or ()
    yield from find_duplicates((request.name for request in requests), path.child("requests"))
    for index, request in enumerate(requests):
        alternatives = path.child("requests", index, "firstAvailable")
        names = (alternative.name for alternative in request.first_available or ())
        yield from find_duplicates(names, alternatives)
    for index, constraint in enumerate(claim.view.constraints or ()):
        place = path.child("constraints", index, "requests")
        yield from find_repeated_names(constraint.requests or (), place)
    for index, config in enumerate(claim.view.config or ()):
        yield from find_repeated_names(
            config.requests or (), path.child("config", index, "requests")
        )


def _object_name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) else ""


def _request_names(claim: DeviceClaim, path: FieldPath) -> Iterator[LocatedName]:
    for index, request in enumerate(claim.requests or ()):
        place = path.child("requests", index)
        yield place.child("name"), request.name
        for number, alternative in enumerate(request.first_available or ()):
            yield place.child("firstAvailable", number, "name"), alternative.name


def _class_names(claim: DeviceClaim, path: FieldPath) -> Iterator[LocatedName]:
    for alternative in list_alternatives(claim):
        name = alternative.request.device_class_name
        if name:  # It is required, which another rule says.
            yield path.join(alternative.path).child("deviceClassName"), name


def _attribute_names(
    claim: DeviceClaim, path: FieldPath, context: Context
) -> Iterator[LocatedName]:
    for index, constraint in enumerate(claim.constraints or ()):
        place = path.child("constraints", index)
        yield place.child("matchAttribute"), constraint.match_attribute or ""
        if context.features.consumable_capacity:
            yield place.child("distinctAttribute"), constraint.distinct_attribute or ""


def _attribute_faults(path: FieldPath, name: str) -> Iterator[Finding]:
    """Yield the faults of a domain and an identifier; other rules count the slashes."""
    if name.count("/") != 1:
        return
    domain, _, identifier = name.partition("/")
    # Upper case is allowed in names of drivers, but not here: declarative validation rejects it.
    if len(domain) > formats.MAX_DRIVER or not formats.is_dns_subdomain(domain):
        message = f"the domain of {quote_text(name)} must be {formats.A_DRIVER}"
        yield error(Code.INVALID_NAME, path, message)
    elif not formats.is_identifier(identifier):
        yield error(
            Code.INVALID_NAME,
            path,
            f"the name after the slash of {quote_text(name)} must be {formats.AN_IDENTIFIER}",
            "use the name of an attribute that the driver publishes",
        )


def _find_unfit_drivers(
    configs: Iterable[DeviceClaimConfiguration | DeviceClassConfiguration], path: FieldPath
) -> Iterator[Finding]:
    drivers = (
        (path.child(index, "opaque", "driver"), config.opaque.driver)
        for index, config in enumerate(configs)
        if config.opaque is not None
    )
    yield from find_unfit_names(drivers, formats.is_driver_name, formats.A_DRIVER)


def _toleration_keys(claim: DeviceClaim, path: FieldPath) -> Iterator[LocatedName]:
    for alternative in list_alternatives(claim):
        place = path.join(alternative.path).child("tolerations")
        for index, toleration in enumerate(alternative.request.tolerations or ()):
            if toleration.key:
                yield place.child(index, "key"), toleration.key


_FIX: Final = "Use a name of the format that the message says."

RULES: Final[tuple[ClaimRule | ClassRule, ...]] = (
    ClaimRule(
        code=Code.INVALID_NAME,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_invalid_names,
        fix=_FIX,
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    ClassRule(
        code=Code.INVALID_NAME,
        scope=Scope.CLASS,
        category=Category.INVALID,
        validate=find_invalid_class_names,
        fix=_FIX,
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    ClaimRule(
        code=Code.DUPLICATE_NAME,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_duplicate_names,
        fix="Use unique names.",
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
)
