"""Faults of a ResourceClaim or ResourceClaimTemplate: requests, constraints, amounts, names.

Source: k8s.io/kubernetes v1.37.1, pkg/apis/resource/validation, for what the API server rejects (for
users without a cluster), and its gaps: what it accepts and the allocator fails on.
"""

from collections.abc import Iterator
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from findings.text import quote_text
from kube.api.resource import (
    MAX_RESULTS,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
)
from kube.quantity import ZERO, Quantity
from rules.context.context import Context
from rules.context.rule import (
    BUILT_IN_VALIDATION,
    Category,
    CelRule,
    Claim,
    ClaimRule,
    Scope,
    cel_for_all_alternatives,
)
from rules.model.naming import (
    closest_name,
    find_malformed_names,
    suggest_name,
)
from rules.model.requests import list_alternatives, referenced_alternatives, request_names
from rules.objects.tolerations import (
    MAX_TOLERATIONS,
    cel_for_all_tolerations,
    find_excess_tolerations,
    find_invalid_tolerations,
    find_keyless_tolerations,
    find_noop_tolerations,
)

EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"
_MODES: Final = ("", EXACT_COUNT, ALL)
ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"

AnyRequest = ExactDeviceRequest | DeviceSubRequest


# --- requests -------------------------------------------------------------------------------------


def find_invalid_requests(claim: Claim, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield requests that set neither or both of `exactly` and `firstAvailable`, or no class."""
    if not claim.view.requests and (claim.view.constraints or claim.view.config):
        yield error(
            Code.INVALID_REQUEST,
            path.child("requests"),
            "constraints or config without requests",
            "add a request",
        )
    for index, request in enumerate(claim.view.requests or ()):
        place = path.child("requests", index)
        both = request.exactly is not None and request.first_available is not None
        if both or (request.exactly is None and not request.first_available):
            fields_present = "both" if both else "neither"
            yield error(
                Code.INVALID_REQUEST,
                place,
                f"exactly one of exactly and firstAvailable must be set, found {fields_present}",
                "" if both else "put deviceClassName, selectors and count below exactly",
            )
    for alternative in list_alternatives(claim.view):
        if not alternative.request.device_class_name:
            yield error(
                Code.INVALID_REQUEST,
                path.join(alternative.path).child("deviceClassName"),
                "is required",
                "name a DeviceClass",
            )


def find_invalid_counts(claim: Claim, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield unknown allocation modes, and counts that their mode does not allow."""
    for alternative in list_alternatives(claim.view):
        mode, count = alternative.request.allocation_mode, alternative.request.count
        place = path.join(alternative.path)
        if mode not in _MODES:
            yield error(
                Code.INVALID_COUNT,
                place.child("allocationMode"),
                f"unknown allocation mode {quote_text(mode)}",
                f"use {EXACT_COUNT} or {ALL}",
            )
        elif mode == ALL and count:
            yield error(
                Code.INVALID_COUNT,
                place.child("count"),
                f"count {count} is not allowed with allocationMode {ALL}",
                "remove one of them",
            )
        elif mode != ALL and count is not None and count < 0:
            yield error(
                Code.INVALID_COUNT,
                place.child("count"),
                f"must not be negative, found {count}",
                "omit it for one device",
            )


def find_excess_devices(claim: Claim, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield a claim with smallest alternatives that together exceed the devices of one claim."""
    least = sum(map(_least_devices, claim.view.requests or ()))
    if least > MAX_RESULTS:
        yield error(
            Code.TOO_MANY_DEVICES,
            path.child("requests"),
            f"{least} devices requested, but a claim has at most {MAX_RESULTS}",
            "split it into several claims",
        )


def _least_devices(request: DeviceRequest) -> int:
    if request.exactly is not None:
        return _device_count(request.exactly)
    return min(map(_device_count, request.first_available or ()), default=0)


def _device_count(request: AnyRequest) -> int:
    """Return the number of devices at least; for mode All that is one."""
    if request.allocation_mode == ALL:
        return 1
    # The API server defaults the count to 1.
    return max(1, request.count or 0)


_COUNT: Final = '(has(ask.allocationMode) && ask.allocationMode == "All") ? 1 : ask.count'
_LEAST_DEVICES: Final = (
    f"has(r.exactly) ? [r.exactly].map(ask, {_COUNT})[0]\n"
    f": (has(r.firstAvailable) ? r.firstAvailable.map(ask, {_COUNT}).min() : 0)"
)

# --- references to requests -----------------------------------------------------------------------


def find_unknown_requests(claim: Claim, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield names in constraints and configurations that no request has."""
    known_names = dict.fromkeys(request_names(claim.view))
    lists = [
        (FieldPath.of("constraints", index), constraint.requests)
        for index, constraint in enumerate(claim.view.constraints or ())
    ]
    lists += [
        (FieldPath.of("config", index), config.requests)
        for index, config in enumerate(claim.view.config or ())
    ]
    for place, names in lists:
        for number, name in enumerate(names or ()):
            if name not in known_names:
                yield error(
                    Code.UNKNOWN_REQUEST,
                    path.join(place).child("requests", number),
                    f"the claim has no request {quote_text(name)}",
                    suggest_name(name, known_names),
                ).rewritten(name, closest_name(name, known_names))


def find_invalid_constraints(claim: Claim, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield constraints without an attribute, or with an attribute without a domain."""
    for index, constraint in enumerate(claim.view.constraints or ()):
        place = path.child("constraints", index)
        if not constraint.match_attribute and not constraint.distinct_attribute:
            yield error(
                Code.INVALID_CONSTRAINT,
                place,
                "matchAttribute or distinctAttribute is required",
                "name an attribute with its domain, such as resource.kubernetes.io/pcieRoot",
            )
        for field, name in (
            ("matchAttribute", constraint.match_attribute),
            ("distinctAttribute", constraint.distinct_attribute),
        ):
            if name and "/" not in name:
                yield error(
                    Code.INVALID_CONSTRAINT,
                    place.child(field),
                    f"{quote_text(name)} has no domain",
                    "prefix it with the driver's name and a slash",
                )


def find_conflicting_attributes(
    claim: Claim, path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield constraints with two attributes; the scheduler ignores one of them."""
    for index, constraint in enumerate(claim.view.constraints or ()):
        if constraint.match_attribute and constraint.distinct_attribute:
            yield error(
                Code.CONFLICTING_CONSTRAINT_ATTRIBUTES,
                path.child("constraints", index),
                "matchAttribute and distinctAttribute are both set, and the scheduler ignores"
                f" distinctAttribute {quote_text(constraint.distinct_attribute)}",
                "use two constraints",
            )


def find_single_device_constraints(
    claim: Claim, path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield constraints that apply to a single device, so that they compare nothing."""
    for index, constraint in enumerate(claim.view.constraints or ()):
        subjects = referenced_alternatives(claim.view, constraint.requests)
        if not set(constraint.requests or ()).issubset(request_names(claim.view)):
            continue  # What it is to compare with is not known.
        if len(subjects) == 1 and subjects[0].is_exact and _is_single(subjects[0].request):
            yield warning(
                Code.SINGLE_DEVICE_CONSTRAINT,
                path.child("constraints", index),
                f"applies only to request {quote_text(subjects[0].name)}, which gets a single device",
                "list every request to compare, or omit requests to compare all",
            )


def _is_single(request: AnyRequest) -> bool:
    return request.allocation_mode != ALL and (request.count or 1) == 1


_SUBJECT: Final = (
    "(!has(c.requests) || c.requests.size() == 0 || r.name in c.requests\n"
    '|| c.requests.exists(name, name.startsWith(r.name + "/")))'
)
_SINGLE: Final = (
    'has(r.exactly) && (!has(r.exactly.allocationMode) || r.exactly.allocationMode != "All")\n'
    "&& r.exactly.count == 1"
)

# --- capacity -------------------------------------------------------------------------------------


def find_negative_amounts(claim: Claim, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield negative amounts; they fail the allocation unless a valid range has a minimum."""
    for place, _, amount in list_amounts(claim, path):
        if amount < ZERO:
            yield error(
                Code.NEGATIVE_CAPACITY,
                place,
                f"{amount} is negative, which fails the allocation unless a device's valid range"
                " raises it",
                "request an amount above zero",
            )


def find_malformed_claim_names(
    claim: Claim, path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield names of capacities and attributes with more than one slash."""
    names = [(place, key) for place, key, _ in list_amounts(claim, path)]
    for index, constraint in enumerate(claim.view.constraints or ()):
        place = path.child("constraints", index)
        names.append((place.child("matchAttribute"), constraint.match_attribute or ""))
        names.append((place.child("distinctAttribute"), constraint.distinct_attribute or ""))
    yield from find_malformed_names(names)


def list_amounts(claim: Claim, path: FieldPath) -> Iterator[tuple[FieldPath, str, Quantity]]:
    """Yield path, name and amount of every requested capacity."""
    for alternative in list_alternatives(claim.view):
        capacity = alternative.request.capacity
        amounts = path.join(alternative.path).child("capacity", "requests")
        for key, amount in sorted(((capacity and capacity.requests) or {}).items()):
            yield amounts.key(key), key, amount


def cel_for_all_amounts(holds: str) -> str:
    """Return CEL that requires `holds` of every `key` of `ask.capacity.requests`."""
    return cel_for_all_alternatives(
        "!has(ask.capacity) || !has(ask.capacity.requests)\n"
        f"|| ask.capacity.requests.all(key, {holds})"
    )


# --- the namespace --------------------------------------------------------------------------------


def find_denied_admin_access(claim: Claim, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield administrative access in a namespace that is known not to allow it."""
    labels = context.namespaces.get(claim.namespace)
    if labels is None or labels.get(ADMIN_LABEL) == "true":
        return
    for index, request in enumerate(claim.view.requests or ()):
        if request.exactly is not None and request.exactly.admin_access:
            yield error(
                Code.ADMIN_ACCESS_NOT_ALLOWED,
                path.child("requests", index, "adminAccess"),
                f"namespace {claim.namespace} is not labelled for administrative access",
                f'label it {ADMIN_LABEL}: "true"',
            )


RULES: Final[tuple[ClaimRule, ...]] = (
    ClaimRule(
        code=Code.INVALID_REQUEST,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_invalid_requests,
        fix="Set `exactly`, or `firstAvailable` for alternatives; each names a class.",
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    ClaimRule(
        code=Code.INVALID_COUNT,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_invalid_counts,
        fix="Use `ExactCount` with a count, or `All` without one.",
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    ClaimRule(
        code=Code.TOO_MANY_DEVICES,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_excess_devices,
        fix="Split it into several claims; devices that must be aligned stay in one.",
        cel=CelRule(
            expression=f"variables.requests.map(r, {_LEAST_DEVICES}).sum() <= {MAX_RESULTS}",
            message=f"more than {MAX_RESULTS} devices requested; split it into several claims",
        ),
    ),
    ClaimRule(
        code=Code.UNKNOWN_REQUEST,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_unknown_requests,
        fix="Name a request of the claim, or `request/alternative`.",
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    ClaimRule(
        code=Code.INVALID_CONSTRAINT,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_invalid_constraints,
        fix="Name one attribute with its domain.",
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    ClaimRule(
        code=Code.CONFLICTING_CONSTRAINT_ATTRIBUTES,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_conflicting_attributes,
        fix="Use two constraints.",
        cel=CelRule(
            expression="!has(variables.devices.constraints) || variables.devices.constraints.all(c,"
            "\n!has(c.matchAttribute) || !has(c.distinctAttribute))",
            message="matchAttribute and distinctAttribute are both set, and the scheduler ignores"
            " distinctAttribute; use two constraints",
        ),
    ),
    ClaimRule(
        code=Code.SINGLE_DEVICE_CONSTRAINT,
        scope=Scope.CLAIM,
        category=Category.ADVICE,
        validate=find_single_device_constraints,
        fix="List every request to compare, or omit `requests` to compare all.",
        cel=CelRule(
            expression="!has(variables.devices.constraints) || variables.devices.constraints.all(c,"
            f"\nvariables.requests.filter(r, {_SUBJECT}).map(r, {_SINGLE} ? 1 : 2).sum() != 1)",
            message="a constraint applies to a single device, so it compares nothing",
        ),
    ),
    ClaimRule(
        code=Code.INVALID_TOLERATION,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_invalid_tolerations,
        fix="Use operators `Equal` and `Exists`, effects `NoSchedule` and `NoExecute`.",
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    ClaimRule(
        code=Code.KEYLESS_TOLERATION,
        scope=Scope.CLAIM,
        category=Category.ADVICE,
        validate=find_keyless_tolerations,
        fix="Set the key, or use operator `Exists` to tolerate everything.",
        cel=CelRule(
            expression=cel_for_all_tolerations(
                '(has(t.key) && t.key != "") || (has(t.operator) && t.operator == "Exists")'
            ),
            message="a toleration of operator Equal has no key; set the key, or use operator Exists"
            " to tolerate everything",
        ),
    ),
    ClaimRule(
        code=Code.TOO_MANY_TOLERATIONS,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_excess_tolerations,
        fix="Tolerate a key with operator `Exists` instead of each value.",
        cel=CelRule(
            expression=cel_for_all_alternatives(
                f"!has(ask.tolerations) || ask.tolerations.size() <= {MAX_TOLERATIONS}"
            ),
            message=f"a request has at most {MAX_TOLERATIONS} tolerations",
        ),
    ),
    ClaimRule(
        code=Code.NOOP_TOLERATION,
        scope=Scope.CLAIM,
        category=Category.ADVICE,
        validate=find_noop_tolerations,
        fix="Tolerate `NoSchedule` or `NoExecute`, or omit the effect for both.",
        cel=CelRule(
            expression=cel_for_all_tolerations('!has(t.effect) || t.effect != "None"'),
            message="taints of effect None keep no pod away, so their toleration has no effect",
        ),
    ),
    ClaimRule(
        code=Code.NEGATIVE_CAPACITY,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_negative_amounts,
        fix="Request an amount above zero, or omit the capacity.",
        cel=CelRule(
            expression=cel_for_all_amounts('!ask.capacity.requests[key].startsWith("-")'),
            message="an amount in capacity.requests is negative",
        ),
    ),
    ClaimRule(
        code=Code.MALFORMED_QUALIFIED_NAME,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_malformed_claim_names,
        fix="Use one domain, one slash and a C identifier.",
        cel=CelRule(
            expression=cel_for_all_amounts('key.split("/").size() <= 2')
            + "\n&& (!has(variables.devices.constraints) || variables.devices.constraints.all(c,"
            '\n(!has(c.matchAttribute) || c.matchAttribute.split("/").size() <= 2)'
            '\n&& (!has(c.distinctAttribute) || c.distinctAttribute.split("/").size() <= 2)))',
            message="the name of an attribute or capacity has several slashes",
        ),
    ),
    ClaimRule(
        code=Code.ADMIN_ACCESS_NOT_ALLOWED,
        scope=Scope.CLAIM,
        category=Category.INVALID,
        validate=find_denied_admin_access,
        fix=f'Label the namespace `{ADMIN_LABEL}: "true"`.',
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
)
