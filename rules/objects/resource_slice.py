"""Faults of a ResourceSlice that the API server accepts, alone and with the other slices of its pool.

The API server validates one slice at a time (`rules.objects.slice_fields` does so offline) and leaves
the rest to the allocator, which ignores the pool, or fails on every node. Slices of a pool are
published one by one, so a contradiction between two of them is an error only where all objects are
applied together.

Source: pool validation of k8s.io/dynamic-resource-allocation v0.37.1,
structured/internal/experimental/pools_experimental.go.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from allocator.model.devices import PoolId
from findings.field_path import FieldPath
from findings.finding import Code, Finding, Severity, error
from findings.text import quote_text
from kube.api.node_selector import NodeSelector, validate
from kube.api.resource import ResourceSlice
from rules.context.context import Context
from rules.context.rule import (
    BUILT_IN_VALIDATION,
    OTHER_OBJECTS,
    Category,
    CelRule,
    Scope,
    SliceRule,
)
from rules.model.naming import closest_name, find_malformed_names, suggest_name
from rules.names.slice_names import (
    Slice,
    find_duplicate_names,
    find_invalid_names,
    list_devices,
)
from rules.objects.request_policies import find_failing_policies, find_unhelpful_policies
from rules.objects.slice_fields import (
    find_invalid_fields,
    find_invalid_request_policies,
    is_valid_node_selector,
)

# --- one slice ------------------------------------------------------------------------------------


def find_malformed_slice_names(
    slice_: Slice, path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield names of attributes and capacities that no selector can refer to."""
    for place, device in list_devices(slice_, path):
        names = [(place.child("attributes").key(name), name) for name in device.attributes or {}]
        names += [(place.child("capacity").key(name), name) for name in device.capacity or {}]
        yield from find_malformed_names(names)


def find_multiple_terms(slice_: Slice, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield devices with several node selector terms; their allocation fails."""
    for place, device in list_devices(slice_, path):
        number = len((device.node_selector and device.node_selector.node_selector_terms) or ())
        if number > 1:
            yield error(
                Code.MULTIPLE_NODE_SELECTOR_TERMS,
                place.child("nodeSelector", "nodeSelectorTerms"),
                f"a device has exactly one term, found {number}; its allocation fails",
                "use one term with operator In",
            )


def find_failing_node_selectors(
    slice_: Slice, path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield node selectors that the API server accepts, and that the scheduler cannot evaluate."""
    spec = slice_.view.spec
    selectors = [(path.child("spec", "nodeSelector"), spec.node_selector)]
    selectors += [
        (place.child("nodeSelector"), device.node_selector)
        for place, device in list_devices(slice_, path)
    ]
    for place, selector in selectors:
        if selector is not None and is_valid_node_selector(selector):
            fault = _evaluation_fault(selector)
            if fault:
                yield error(
                    Code.FAILING_NODE_SELECTOR, place, f"{fault}, which fails every attempt"
                )


def _evaluation_fault(selector: NodeSelector) -> str:
    try:
        validate(selector)
    except ValueError as fault:
        return str(fault)
    return ""


def find_failing_request_policies(
    slice_: Slice, path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield request policies that fail requests on all nodes."""
    for place, device in list_devices(slice_, path):
        yield from find_failing_policies(device, place, context.features)


def find_unhelpful_request_policies(
    slice_: Slice, path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield request policies with an amount that does not serve the requests that need it."""
    for place, device in list_devices(slice_, path):
        yield from find_unhelpful_policies(device, place, context.features)


# --- with the other slices of its pool ------------------------------------------------------------


def _pool(slice_: Slice, context: Context) -> tuple[ResourceSlice, ...]:
    """Return the other slices of its pool and generation."""
    spec = slice_.view.spec
    slices = context.inventory.pools.get(PoolId(spec.driver, spec.pool.name), ())
    return tuple(
        other
        for other in slices
        if other.metadata.name != slice_.view.metadata.name
        and other.spec.pool.generation == spec.pool.generation
    )


def _contradiction(
    context: Context, code: Code, path: FieldPath, message: str, fix: str
) -> Finding:
    severity = Severity.ERROR if context.applied_together else Severity.WARNING
    return Finding(severity=severity, code=code, path=path, detail=message, fix=fix)


def find_slice_count_mismatch(
    slice_: Slice, path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield a slice with a resourceSliceCount that differs within its pool."""
    count = slice_.view.spec.pool.resource_slice_count
    for other in _pool(slice_, context):
        other_count = other.spec.pool.resource_slice_count
        if other_count != count:
            yield _contradiction(
                context,
                Code.SLICE_COUNT_MISMATCH,
                path.child("spec", "pool", "resourceSliceCount"),
                f"{count} here, but {other_count} in slice {other.metadata.name} of the same pool and"
                " generation, so the pool is never complete",
                "use the same number in all of them, or increase the generation",
            )
            return


def find_duplicate_devices(slice_: Slice, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield devices with a name that another slice of the pool has as well."""
    elsewhere = {
        device.name: other.metadata.name
        for other in _pool(slice_, context)
        if _share_node(slice_.view, other)
        for device in other.spec.devices or ()
    }
    for place, device in list_devices(slice_, path):
        if device.name in elsewhere:
            yield _contradiction(
                context,
                Code.DUPLICATE_DEVICE,
                place.child("name"),
                f"slice {elsewhere[device.name]} of the same pool also has a device"
                f" {quote_text(device.name)}, so the scheduler uses no device of the pool",
                "use a unique name for each device of a pool",
            )


def _share_node(slice_: ResourceSlice, other: ResourceSlice) -> bool:
    """Return True if some node certainly sees both slices."""
    if slice_.spec.all_nodes or other.spec.all_nodes:
        return True
    node, selector = slice_.spec.node_name, slice_.spec.node_selector
    has_same_node = node is not None and node == other.spec.node_name
    return has_same_node or (selector is not None and selector == other.spec.node_selector)


def find_unknown_counters(slice_: Slice, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield consumption of counter sets or counters that the complete pool does not have."""
    spec = slice_.view.spec
    slices = (slice_.view, *_pool(slice_, context))
    if spec.pool.resource_slice_count != len(slices):
        return  # A missing slice may have the set.
    counters_by_set = {
        counter_set.name: counter_set.counters or {}
        for slice_ in slices
        for counter_set in slice_.spec.shared_counters or ()
    }
    for place, device in list_devices(slice_, path):
        for index, consumption in enumerate(device.consumes_counters or ()):
            at = place.child("consumesCounters", index)
            if consumption.counter_set not in counters_by_set:
                yield _contradiction(
                    context,
                    Code.UNKNOWN_COUNTER_SET,
                    at.child("counterSet"),
                    f"no slice of the pool has a counter set {quote_text(consumption.counter_set)}, so the"
                    " scheduler uses no device of the pool",
                    suggest_name(consumption.counter_set, counters_by_set),
                ).rewritten(
                    consumption.counter_set,
                    closest_name(consumption.counter_set, counters_by_set),
                )
                continue
            counters = counters_by_set[consumption.counter_set]
            yield from _unknown_counters(context, at, consumption.counters or {}, counters)


def _unknown_counters(
    context: Context,
    path: FieldPath,
    counter_names: Iterable[str],
    known_counters: Mapping[str, object],
) -> Iterator[Finding]:
    for name in counter_names:
        if name not in known_counters:
            yield _contradiction(
                context,
                Code.UNKNOWN_COUNTER_SET,
                path.child("counters").key(name),
                f"the counter set has no counter {quote_text(name)}",
                suggest_name(name, known_counters),
            ).renamed_to(closest_name(name, known_counters))


def _every_device(holds: str) -> str:
    return f"!has(object.spec.devices) || object.spec.devices.all(d, {holds})"


def _every_policy(holds: str) -> str:
    # The API server's type checker does not know optional quantities, hence dyn().
    return _every_device(
        "!has(d.capacity) || d.capacity.all(key, !has(d.capacity[key].requestPolicy)\n"
        f"|| [dyn(d.capacity[key])].all(c, {holds}))"
    )


RULES: Final[tuple[SliceRule, ...]] = (
    SliceRule(
        code=Code.INVALID_SLICE,
        scope=Scope.SLICE,
        category=Category.INVALID,
        validate=find_invalid_fields,
        fix="Use one node selection, devices or counter sets, and one value per attribute.",
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    SliceRule(
        code=Code.INVALID_NAME,
        scope=Scope.SLICE,
        category=Category.INVALID,
        validate=find_invalid_names,
        fix="Use a name of the format that the message says.",
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    SliceRule(
        code=Code.INVALID_REQUEST_POLICY,
        scope=Scope.SLICE,
        category=Category.INVALID,
        validate=find_invalid_request_policies,
        fix="Use `validValues` in ascending order or `validRange`, with a default, within the capacity.",
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    SliceRule(
        code=Code.DUPLICATE_NAME,
        scope=Scope.SLICE,
        category=Category.INVALID,
        validate=find_duplicate_names,
        fix="Use unique names.",
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    SliceRule(
        code=Code.MALFORMED_QUALIFIED_NAME,
        scope=Scope.SLICE,
        category=Category.INVALID,
        validate=find_malformed_slice_names,
        fix="Use one domain, one slash and a C identifier.",
        cel=CelRule(
            expression=_every_device(
                '(!has(d.attributes) || d.attributes.all(key, key.split("/").size() <= 2))\n'
                '&& (!has(d.capacity) || d.capacity.all(key, key.split("/").size() <= 2))'
            ),
            message="the name of an attribute or capacity has several slashes",
        ),
    ),
    SliceRule(
        code=Code.MULTIPLE_NODE_SELECTOR_TERMS,
        scope=Scope.SLICE,
        category=Category.INVALID,
        validate=find_multiple_terms,
        fix="Use one term with operator `In`.",
        cel=CelRule(
            expression=_every_device(
                "!has(d.nodeSelector) || d.nodeSelector.nodeSelectorTerms.size() <= 1"
            ),
            message="the node selector of a device has several terms",
        ),
    ),
    SliceRule(
        code=Code.FAILING_NODE_SELECTOR,
        scope=Scope.SLICE,
        category=Category.INVALID,
        validate=find_failing_node_selectors,
        fix="Give operators `Gt` and `Lt` an integer.",
        no_cel_reason="an expression for each operator would exceed the cost limit of a policy",
    ),
    SliceRule(
        code=Code.UNSATISFIABLE_REQUEST_POLICY,
        scope=Scope.SLICE,
        category=Category.INVALID,
        validate=find_failing_request_policies,
        fix="Use a default, and a minimum of a range with a step, that are not negative.",
        cel=CelRule(
            expression=_every_policy(
                "(!has(c.requestPolicy.default)\n"
                '|| !c.requestPolicy.default.startsWith("-"))\n'
                "&& (!has(c.requestPolicy.validRange) || !has(c.requestPolicy.validRange.min)\n"
                "|| !has(c.requestPolicy.validRange.step)\n"
                '|| !c.requestPolicy.validRange.min.startsWith("-"))'
            ),
            message="a request policy has a negative default, or a step from a negative minimum",
        ),
    ),
    SliceRule(
        code=Code.UNSATISFIABLE_REQUEST_POLICY,
        scope=Scope.SLICE,
        category=Category.ADVICE,
        validate=find_unhelpful_request_policies,
        fix="Use a default that does not exceed the capacity, and a minimum that is not negative.",
        cel=CelRule(
            expression=_every_policy(
                "(!has(c.requestPolicy.default)\n"
                "|| !quantity(c.requestPolicy.default).isGreaterThan(quantity(c.value)))\n"
                "&& (!has(c.requestPolicy.validRange) || !has(c.requestPolicy.validRange.min)\n"
                "|| has(c.requestPolicy.validRange.step)\n"
                '|| !c.requestPolicy.validRange.min.startsWith("-"))'
            ),
            message="a request policy has a negative minimum, or a default above the capacity",
        ),
    ),
    SliceRule(
        code=Code.SLICE_COUNT_MISMATCH,
        scope=Scope.SLICE,
        category=Category.INVALID,
        validate=find_slice_count_mismatch,
        fix="Use the same number in all slices of a generation.",
        no_cel_reason=OTHER_OBJECTS,
    ),
    SliceRule(
        code=Code.DUPLICATE_DEVICE,
        scope=Scope.SLICE,
        category=Category.INVALID,
        validate=find_duplicate_devices,
        fix="Use a unique name for each device of a pool.",
        no_cel_reason=OTHER_OBJECTS,
    ),
    SliceRule(
        code=Code.UNKNOWN_COUNTER_SET,
        scope=Scope.SLICE,
        category=Category.INVALID,
        validate=find_unknown_counters,
        fix="Publish the counter set in a slice of the pool, or name an existing one.",
        no_cel_reason=OTHER_OBJECTS,
    ),
)
