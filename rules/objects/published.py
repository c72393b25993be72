"""Classes, devices and capacities that claims request and no slice publishes.

Each request is evaluated alone on the whole inventory. Whether one node has enough for all requests
together is decided by the allocator's search (`rules.objects.feasibility`).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from allocator.model.outcome import AttemptFailed
from allocator.model.requests import Expression
from allocator.model.selectors import selector_chain
from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.fitting import Replacement
from findings.text import printable, quote_text
from kube.api.meta import ObjectMeta
from kube.api.resource import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from rules.context.claim_drivers import drivers_of_class
from rules.context.context import Context
from rules.context.evidence import build_findings, decide_enforcement
from rules.context.inventory import Selection
from rules.context.rule import OTHER_OBJECTS, Category, ClaimRule, ClassRule, Scope, Subject
from rules.feasibility.bounded_search import Feasibility, feasibility
from rules.model.literal_arguments import find_faulty_argument
from rules.model.naming import closest_name, find_similar_name, list_names, suggest_name
from rules.model.published_names import misspelt_field, suggest_published_field
from rules.model.requests import (
    MAX_CHARACTERS,
    Alternative,
    exceeds_compile_cost,
    list_alternatives,
    list_selectors,
)

MAX_FIELDS: Final = 3
"""Fields of selectors with published values that one fix may name."""
MAX_ALTERNATIVES: Final = 32
"""Alternatives that are evaluated in one claim."""

MAX_CLASSES_TRIED: Final = 8
"""Classes of a driver that are tried for a request whose class has no devices, each with a search."""
MAX_CLASSES_NAMED: Final = 3
"""Classes in one suggestion."""
INSTALL: Final = (
    "install its driver, or use a class with devices (drawbridge inventory lists the devices)"
)
"""The advice on a class without devices where no other class is known to serve the request."""

Claim = Subject[DeviceClaim]


def find_missing_classes(claim: Claim, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield classes that do not exist in the cluster."""
    if not context.has_all_classes:
        return
    for alternative in list_alternatives(claim.view):
        name = alternative.request.device_class_name
        if name and name not in context.classes:
            similar = find_similar_name(name, context.classes)
            yield warning(
                Code.DEVICE_CLASS_MISSING,
                path.join(alternative.path).child("deviceClassName"),
                f"DeviceClass {quote_text(name)} does not exist",
                f"did you mean {quote_text(similar)}?"
                if similar
                else list_names(sorted(context.classes)),
            ).rewritten(name, similar)


def find_classes_without_devices(
    claim: Claim, path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield classes without published devices, of requests that match no device."""
    for alternative, device_class, of_class in _unmatched_requests(claim, context):
        if not of_class.number:
            yield warning(
                Code.NO_DEVICES,
                path.join(alternative.path).child("deviceClassName"),
                f"no published device is of class {quote_text(device_class.metadata.name)}",
                _suggest_classes(alternative, device_class, context),
            )


def _suggest_classes(alternative: Alternative, device_class: DeviceClass, context: Context) -> str:
    """Return other classes of its driver, each proved by the search on the request alone; other advice without any.

    The search is beside the present allocations where these are known, else on the idle cluster.
    """
    texts = list(islice(_serving_classes(alternative, device_class, context), MAX_CLASSES_NAMED))
    if not texts:
        return INSTALL
    return f"of the same driver, with devices that serve the request: write {', or '.join(texts)}"


def _serving_classes(
    alternative: Alternative, device_class: DeviceClass, context: Context
) -> Iterator[str]:
    drivers = drivers_of_class(device_class, context).all
    fields = sorted(selector_chain(_expressions(device_class.spec.selectors)).fields or ())
    others = (
        other
        for name, other in sorted(context.classes.items())
        if name != device_class.metadata.name
        and not drivers.isdisjoint(drivers_of_class(other, context).published)
    )
    for other in islice(others, MAX_CLASSES_TRIED):
        if not _serves(alternative, other, context):
            continue
        of_class = selector_chain(_expressions(other.spec.selectors))
        number = context.inventory.select(of_class).number
        values = [
            f"{printable(field.identifier)} {text}"
            for field in fields[:MAX_FIELDS]
            if field.identifier and (text := context.inventory.published_values(field, of_class))
        ]
        kinds = f" with {' and '.join(values)}" if values else ""
        noun = "device" if number == 1 else "devices"
        yield f"{printable(other.metadata.name)} ({number:,} {noun}{kinds})"


def _serves(alternative: Alternative, other: DeviceClass, context: Context) -> bool:
    """Return True if the request, alone and with another class, gets devices of a node."""
    name, request = other.metadata.name, alternative.request
    exactly = ExactDeviceRequest(
        device_class_name=name,
        selectors=request.selectors,
        allocation_mode=request.allocation_mode,
        count=request.count,
        tolerations=request.tolerations,
        capacity=request.capacity,
    )
    devices = DeviceClaim(requests=(DeviceRequest(name="request", exactly=exactly),))
    claim = ResourceClaim(
        metadata=ObjectMeta(name="request", namespace="default"),
        spec=ResourceClaimSpec(devices=devices),
    )
    cluster = context.current_cluster
    try:
        if cluster is not None:
            return feasibility(cluster, cluster.resolve((claim,))) is Feasibility.FEASIBLE
    except AttemptFailed:
        return False
    if context.idle_cluster is not None:
        return context.idle_cluster.feasibility((claim,)) is Feasibility.FEASIBLE
    chain = selector_chain(
        _expressions((*(other.spec.selectors or ()), *(request.selectors or ())))
    )
    return bool(context.inventory.select(chain).number)


def find_unmatched_requests(claim: Claim, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield selectors that match no device of their class, of requests that match no device."""
    for alternative, device_class, of_class in _unmatched_requests(claim, context):
        if of_class.number:
            name = quote_text(device_class.metadata.name)
            selectors = alternative.request.selectors or ()
            place = path.join(alternative.path).child("selectors")
            finding = warning(
                Code.SELECTOR_MATCHES_NOTHING,
                place,
                f"0 of {of_class.number:,} published devices of class {name} match the selectors",
                _suggest_field(selectors, device_class, context)
                or _published_values(selectors, device_class, context),
            )
            yield replace(finding, rewrites=tuple(_respelled(selectors, place, context)))


def _respelled(
    selectors: Sequence[DeviceSelector], path: FieldPath, context: Context
) -> Iterator[Replacement]:
    """Yield expressions with the name of a published field in place of one that is probably misspelt."""
    fields = selector_chain(_expressions(selectors)).fields
    spellings = misspelt_field(fields, context.inventory.published_names())
    if spellings is None:
        return
    misspelt, right = spellings
    word = re.compile(rf"(?<![\w-]){re.escape(misspelt)}(?![\w-])")
    for index, selector in enumerate(selectors):
        before = selector.cel.expression if selector.cel is not None else ""
        after = word.sub(right, before)
        if after != before:
            place = path.child(index, "cel", "expression")
            yield Replacement(path=place, before=before, after=after)


def _published_values(
    selectors: Iterable[DeviceSelector] | None, device_class: DeviceClass, context: Context
) -> str:
    """Return the values of the fields that selectors read on devices of a class; empty if they are too many."""
    of_class = selector_chain(_expressions(device_class.spec.selectors))
    fields = sorted(selector_chain(_expressions(selectors)).fields or ())[:MAX_FIELDS]
    texts = [
        f"{printable(field.identifier)}: {values}"
        for field in fields
        if field.identifier and (values := context.inventory.published_values(field, of_class))
    ]
    return f"published are {'; '.join(texts)}" if texts else ""


def _unmatched_requests(
    claim: Claim, context: Context
) -> Iterator[tuple[Alternative, DeviceClass, Selection]]:
    """Yield the alternatives of requests that match no device, with the devices of their class."""
    selections = tuple(_selections(claim, context))
    matched_parents = {
        alternative.parent
        for alternative, _, selection in selections
        if selection.number or selection.failure is not None
    }
    for alternative, device_class, _ in selections:
        if alternative.parent not in matched_parents:
            of_class = selector_chain(_expressions(device_class.spec.selectors))
            yield alternative, device_class, context.inventory.select(of_class)


def find_failing_selectors(claim: Claim, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield selectors that error on a published device, and so fail the attempt on its node."""
    for alternative, device_class, selection in _selections(claim, context):
        # Other rules report an expression that does not compile.
        if selection.failure is not None and selection.failure[1]:
            device, runtime_error = selection.failure
            selectors = (
                *(device_class.spec.selectors or ()),
                *(alternative.request.selectors or ()),
            )
            place = path.join(alternative.path).child("selectors")
            own_selectors = alternative.request.selectors or ()
            if any(find_faulty_argument(entry.text) for entry in _expressions(own_selectors)):
                continue
            matched = "" if selection.number else ", and no published device matches"
            finding = warning(
                Code.SELECTOR_FAILS,
                place,
                f"the selectors error on published device {device} ({runtime_error}), so nodes with"
                f" such a device may not be usable{matched}",
                _suggest_field(selectors, device_class, context)
                or _suggest_test(runtime_error, own_selectors, device_class, context),
            )
            yield replace(finding, rewrites=tuple(_respelled(own_selectors, place, context)))


def _suggest_test(
    runtime_error: str,
    selectors: Sequence[DeviceSelector],
    device_class: DeviceClass,
    context: Context,
) -> str:
    """Return advice for a missing key or a comparison of two types; empty for another error."""
    if _NO_KEY in runtime_error:
        return "check first that it exists: has(device.attributes[...].name) && ..."
    if _NO_OVERLOAD in runtime_error.lower():
        values = _published_values(selectors, device_class, context)
        versions = (
            "; compare versions with x.compareTo(semver(...)) >= 0" if "semver(" in values else ""
        )
        return f"compare values of one type{': ' if values else ''}{values}{versions}"
    return ""


_NO_KEY: Final = "no such key"
_NO_OVERLOAD: Final = "overload"


def _suggest_field(
    selectors: Iterable[DeviceSelector] | None, device_class: DeviceClass | None, context: Context
) -> str:
    """Return advice for a field that no device has; empty if all are published.

    Args:
        device_class: The class whose devices have the names to suggest; None for all devices.
    """
    chain = selector_chain(_expressions(selectors))
    names = context.inventory.published_names()
    if device_class is None:
        return suggest_published_field(chain.fields, names)
    of_class = context.inventory.select(selector_chain(_expressions(device_class.spec.selectors)))
    return suggest_published_field(chain.fields, names, of_class.names)


def find_unpublished_capacities(
    claim: Claim, path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield capacities that no selected device has under the literal name."""
    for alternative, _, selection in _selections(claim, context):
        capacity = alternative.request.capacity
        requested_names = sorted((capacity and capacity.requests) or ())
        missing = [key for key in requested_names if key not in selection.capacities]
        if not missing or not selection.number:
            continue
        enforcement = decide_enforcement(
            context,
            claim.namespace,
            drivers=selection.drivers,
            classes=(alternative.request.device_class_name,),
            doubt="" if alternative.is_exact else "another alternative may be feasible",
        )
        for key in missing:
            published_names = sorted(selection.capacities)
            right_name = _other_spelling(key, published_names) or closest_name(key, published_names)
            for finding in build_findings(
                Code.CAPACITY_NOT_PUBLISHED,
                path.join(alternative.path).child("capacity", "requests").key(key),
                f"0 of {selection.number:,} selected devices have a capacity {quote_text(key)}",
                enforcement=enforcement,
                fix=_suggest_published(key, published_names),
            ):
                yield finding.renamed_to(right_name)


def _suggest_published(key: str, published_names: Iterable[str]) -> str:
    """Return a suggestion; a name with a domain and one without are different names."""
    name = _other_spelling(key, published_names)
    return (
        f"use {quote_text(name)}, as published"
        if name
        else suggest_name(key, sorted(published_names))
    )


def _other_spelling(key: str, published_names: Iterable[str]) -> str:
    """Return the published name that differs in its domain only; empty without one."""
    own = key.rpartition("/")[2]
    return next((name for name in sorted(published_names) if name.rpartition("/")[2] == own), "")


def find_unmatched_class(
    device_class: Subject[DeviceClass], path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield a class that no published device belongs to, though its driver publishes devices."""
    expressions = _expressions(device_class.view.spec.selectors)
    if not expressions or not context.inventory.devices:
        return
    if exceeds_compile_cost(device_class.view.spec.selectors or (), MAX_CHARACTERS):
        return
    selection = context.inventory.select(selector_chain(expressions))
    drivers = {pool.driver for pool in context.inventory.pools}
    names_driver = any(
        driver in expression.text for driver in drivers for expression in expressions
    )
    if selection.number or selection.failure or not names_driver:
        return
    yield warning(
        Code.SELECTOR_MATCHES_NOTHING,
        path.child("spec", "selectors"),
        f"0 of {len(context.inventory.devices):,} published devices are of this class",
        _suggest_field(device_class.view.spec.selectors, None, context),
    )


def _selections(
    claim: Claim, context: Context
) -> Iterator[tuple[Alternative, DeviceClass, Selection]]:
    """Yield every alternative of a known class with the devices that it selects."""
    is_known = context.has_all_classes or bool(context.inventory.devices)
    if not is_known or exceeds_compile_cost(list_selectors((claim.view,)), MAX_CHARACTERS):
        return
    for alternative in islice(list_alternatives(claim.view), MAX_ALTERNATIVES):
        device_class = context.classes.get(alternative.request.device_class_name)
        if device_class is not None:
            of_class = device_class.spec.selectors or ()
            selectors = (*of_class, *(alternative.request.selectors or ()))
            chain = selector_chain(_expressions(selectors))
            yield alternative, device_class, context.inventory.select(chain)


def _expressions(selectors: Iterable[DeviceSelector] | None) -> tuple[Expression, ...]:
    return tuple(
        Expression(text=selector.cel.expression, origin=f"selector {index}")
        for index, selector in enumerate(selectors or ())
        if selector.cel is not None
    )


RULES: Final[tuple[ClaimRule | ClassRule, ...]] = (
    ClaimRule(
        code=Code.DEVICE_CLASS_MISSING,
        scope=Scope.CLAIM,
        category=Category.NOT_YET,
        validate=find_missing_classes,
        fix="Install the driver with the class, or name an existing class.",
        no_cel_reason=OTHER_OBJECTS,
    ),
    ClaimRule(
        code=Code.NO_DEVICES,
        scope=Scope.CLAIM,
        category=Category.NOT_YET,
        validate=find_classes_without_devices,
        fix="Install the driver of the class, or use a class with devices (`drawbridge inventory`).",
        no_cel_reason=OTHER_OBJECTS,
    ),
    ClaimRule(
        code=Code.SELECTOR_MATCHES_NOTHING,
        scope=Scope.CLAIM,
        category=Category.NOT_YET,
        validate=find_unmatched_requests,
        fix="Select what devices publish; the fix, or `drawbridge inventory`, has the values.",
        no_cel_reason=OTHER_OBJECTS,
    ),
    ClassRule(
        code=Code.SELECTOR_MATCHES_NOTHING,
        scope=Scope.CLASS,
        category=Category.NOT_YET,
        validate=find_unmatched_class,
        fix="Select what devices publish; the fix, or `drawbridge inventory`, has the values.",
        no_cel_reason=OTHER_OBJECTS,
    ),
    ClaimRule(
        code=Code.SELECTOR_FAILS,
        scope=Scope.CLAIM,
        category=Category.ADVICE,
        validate=find_failing_selectors,
        fix="Read a published attribute, or check first with `has()` that it exists.",
        no_cel_reason=OTHER_OBJECTS,
    ),
    ClaimRule(
        code=Code.CAPACITY_NOT_PUBLISHED,
        scope=Scope.CLAIM,
        category=Category.INFEASIBLE,
        validate=find_unpublished_capacities,
        fix="Use the literal name of a published capacity.",
        no_cel_reason=OTHER_OBJECTS,
    ),
)
