"""What a ResourceSlice cannot mean, alone and beside the other slices of its pool.

The API server looks at one slice at a time and leaves some of it to the allocator, which then
drops the pool, or fails for every node. Slices of a pool come one by one, so what two of them
contradict each other in is an error only where all are known to be meant together.

Source: k8s.io/kubernetes v1.37.1, pkg/apis/resource/validation; pool validation of k8s.io/
dynamic-resource-allocation, structured/internal/experimental/pools_experimental.go.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from allocator.core.model import PoolId
from kube.api.node_selector import NodeSelector, check
from kube.api.resource import CapacityRequestPolicy, Device, DeviceCapacity, ResourceSlice
from kube.cel.semver import Semver
from kube.quantity import Quantity
from webhook.findings import Code, Finding, Severity, shown
from webhook.findings import error as refusal
from webhook.rules.asked import at
from webhook.rules.claim import nearest, several_slashes, twice
from webhook.rules.context import Context
from webhook.rules.rule import BUILT_IN, OTHER_OBJECTS, Class, InServer, Part, SliceRule, Subject

MAX_DEVICES: Final = 128
Slice = Subject[ResourceSlice]


# --- one slice ------------------------------------------------------------------------------------


def shape(one: Slice, path: str, _context: Context) -> Iterator[Finding]:
    """Yield slices of no place or several, of devices and counters at once, and empty attributes.

    Also node selectors that cannot be judged, with which every attempt would fail.
    """
    spec = one.view.spec
    places = [
        field
        for field, value in (
            ("nodeName", spec.node_name),
            ("nodeSelector", spec.node_selector),
            ("allNodes", spec.all_nodes),
            ("perDeviceNodeSelection", spec.per_device_node_selection),
        )
        if value
    ]
    if len(places) != 1:
        yield refusal(
            Code.SLICE_SHAPE,
            at(path, "spec"),
            "exactly one of nodeName, nodeSelector, allNodes and perDeviceNodeSelection must be"
            f" set, found {' and '.join(places) or 'none'}",
        )
    if spec.devices is not None and spec.shared_counters is not None:
        yield refusal(
            Code.SLICE_SHAPE,
            at(path, "spec"),
            "devices and sharedCounters stand together",
            "publish counter sets in a slice of their own",
        )
    if len(spec.devices or ()) > MAX_DEVICES:
        yield refusal(
            Code.SLICE_SHAPE,
            at(path, "spec.devices"),
            f"{len(spec.devices or ())} devices, and a slice holds at most {MAX_DEVICES}",
            "publish several slices",
        )
    yield from _selector(spec.node_selector, at(path, "spec"))
    for place, device in _devices(one, path):
        yield from _selector(device.node_selector, place)
        yield from _attributes(device, place)


def _selector(selector: NodeSelector | None, path: str) -> Iterator[Finding]:
    try:
        check(selector or NodeSelector())
    except ValueError as fault:
        yield refusal(Code.SLICE_SHAPE, f"{path}.nodeSelector", str(fault))


def _attributes(device: Device, path: str) -> Iterator[Finding]:
    for name, attribute in (device.attributes or {}).items():
        place = f"{path}.attributes[{name}]"
        values = [
            value
            for value in (
                attribute.int_,
                attribute.bool_,
                attribute.string,
                attribute.version,
                attribute.ints,
                attribute.bools,
                attribute.strings,
                attribute.versions,
            )
            if value is not None
        ]
        if len(values) != 1:
            yield refusal(
                Code.SLICE_SHAPE, place, f"exactly one value must be set, found {len(values)}"
            )
        if attribute.version is not None and not _is_version(attribute.version):
            yield refusal(
                Code.SLICE_SHAPE,
                f"{place}.version",
                f"{shown(attribute.version)} is no semantic version",
                "write three numbers, without v and leading zeros",
            )


def _is_version(text: str) -> bool:
    try:
        Semver.parsed(text)
    except ValueError:
        return False
    return True


def names(one: Slice, path: str, _context: Context) -> Iterator[Finding]:
    """Yield names of devices and counter sets that stand twice."""
    spec = one.view.spec
    yield from twice((device.name for device in spec.devices or ()), at(path, "spec.devices"))
    counters = (found.name for found in spec.shared_counters or ())
    yield from twice(counters, at(path, "spec.sharedCounters"))


def slashes(one: Slice, path: str, _context: Context) -> Iterator[Finding]:
    """Yield names of attributes and capacities that no selector can reach."""
    for place, device in _devices(one, path):
        found = [(f"{place}.attributes[{name}]", name) for name in device.attributes or {}]
        found += [(f"{place}.capacity[{name}]", name) for name in device.capacity or {}]
        yield from several_slashes(found)


def terms(one: Slice, path: str, _context: Context) -> Iterator[Finding]:
    """Yield devices on nodes of several terms: every attempt that would take one fails."""
    for place, device in _devices(one, path):
        found = len((device.node_selector and device.node_selector.node_selector_terms) or ())
        if found > 1:
            yield refusal(
                Code.SEVERAL_TERMS,
                f"{place}.nodeSelector.nodeSelectorTerms",
                f"a device has one term, found {found}; the scheduler fails when it takes the device",
                "write one term with operator In",
            )


def policies(one: Slice, path: str, _context: Context) -> Iterator[Finding]:
    """Yield request policies that no request can pass, or that end every attempt."""
    for place, device in _devices(one, path):
        for name, capacity in (device.capacity or {}).items():
            yield from _policy(capacity, f"{place}.capacity[{name}].requestPolicy")


def _policy(capacity: DeviceCapacity, path: str) -> Iterator[Finding]:
    policy = capacity.request_policy
    if policy is None:
        return
    for field, amount in _amounts(policy):
        if amount < Quantity(0):
            yield refusal(
                Code.INVALID_POLICY,
                f"{path}.{field}",
                f"{amount} is below zero, and ends every attempt to allocate the device",
            )
    if policy.default is not None and policy.default > capacity.value:
        yield refusal(
            Code.INVALID_POLICY,
            f"{path}.default",
            f"{policy.default} is above the value, {capacity.value}, so no request without an"
            " amount fits",
            f"write {capacity.value} or less",
        )


def _amounts(policy: CapacityRequestPolicy) -> Iterator[tuple[str, Quantity]]:
    if policy.default is not None:
        yield "default", policy.default
    bounds = policy.valid_range
    if bounds is not None and bounds.min is not None:
        yield "validRange.min", bounds.min


# --- beside the other slices of its pool ----------------------------------------------------------


def _pool(one: Slice, context: Context) -> tuple[ResourceSlice, ...]:
    """Return the slices of its pool that are of its generation, itself not among them."""
    spec = one.view.spec
    published = context.inventory.pools.get(PoolId(spec.driver, spec.pool.name), ())
    return tuple(
        other
        for other in published
        if other.metadata.name != one.view.metadata.name
        and other.spec.pool.generation == spec.pool.generation
    )


def _contradiction(context: Context, code: Code, path: str, message: str, fix: str) -> Finding:
    severity = Severity.ERROR if context.is_settled else Severity.WARNING
    return Finding(severity=severity, code=code, path=path, message=message, fix=fix)


def slice_counts(one: Slice, path: str, context: Context) -> Iterator[Finding]:
    """Yield a slice that says another number of slices than its pool."""
    own = one.view.spec.pool.resource_slice_count
    for other in _pool(one, context):
        theirs = other.spec.pool.resource_slice_count
        if theirs != own:
            yield _contradiction(
                context,
                Code.SLICE_COUNT_DIFFERS,
                at(path, "spec.pool.resourceSliceCount"),
                f"{own} here, {theirs} in slice {other.metadata.name} of the same pool and"
                " generation, so the pool is never whole",
                "say the same number in all of them, or raise the generation",
            )
            return


def devices_across(one: Slice, path: str, context: Context) -> Iterator[Finding]:
    """Yield devices whose name another slice of the pool has, too."""
    elsewhere = {
        device.name: other.metadata.name
        for other in _pool(one, context)
        if _meet(one.view, other)
        for device in other.spec.devices or ()
    }
    for place, device in _devices(one, path):
        if device.name in elsewhere:
            yield _contradiction(
                context,
                Code.DEVICE_TWICE,
                f"{place}.name",
                f"slice {elsewhere[device.name]} of the same pool has a device {shown(device.name)},"
                " too, and the scheduler uses none of the pool",
                "give each device of a pool a name of its own",
            )


def _meet(one: ResourceSlice, other: ResourceSlice) -> bool:
    """Whether some node surely sees both: the same one, the same ones, or all with one of them."""
    if one.spec.all_nodes or other.spec.all_nodes:
        return True
    same_node = one.spec.node_name is not None and one.spec.node_name == other.spec.node_name
    selector = one.spec.node_selector
    return same_node or (selector is not None and selector == other.spec.node_selector)


def counters(one: Slice, path: str, context: Context) -> Iterator[Finding]:
    """Yield consumption from counter sets or counters that the whole pool does not have."""
    spec = one.view.spec
    parts = (one.view, *_pool(one, context))
    if spec.pool.resource_slice_count != len(parts):
        return  # The set may stand in a slice that is still to come.
    known = {
        found.name: found.counters or {}
        for part in parts
        for found in part.spec.shared_counters or ()
    }
    for place, device in _devices(one, path):
        for number, consumed in enumerate(device.consumes_counters or ()):
            where = f"{place}.consumesCounters[{number}]"
            if consumed.counter_set not in known:
                yield _contradiction(
                    context,
                    Code.UNKNOWN_COUNTER_SET,
                    f"{where}.counterSet",
                    f"no slice of the pool has a counter set {shown(consumed.counter_set)}, so the"
                    " scheduler uses none of the pool",
                    nearest(consumed.counter_set, known),
                )
                continue
            yield from _unknown_counters(
                context, where, consumed.counters or {}, known[consumed.counter_set]
            )


def _unknown_counters(
    context: Context, path: str, wanted: Iterable[str], known: Mapping[str, object]
) -> Iterator[Finding]:
    for name in wanted:
        if name not in known:
            yield _contradiction(
                context,
                Code.UNKNOWN_COUNTER_SET,
                f"{path}.counters[{name}]",
                f"the counter set has no counter {shown(name)}",
                nearest(name, known),
            )


def _devices(one: Slice, path: str) -> Iterator[tuple[str, Device]]:
    for index, device in enumerate(one.view.spec.devices or ()):
        yield at(path, f"spec.devices[{index}]"), device


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
        code=Code.SLICE_SHAPE,
        part=Part.SLICE,
        rank=Class.WRONG,
        judge=shape,
        cure="One place, devices or counter sets, one value per attribute.",
        why_not_cel=BUILT_IN,
    ),
    SliceRule(
        code=Code.DUPLICATE_NAME,
        part=Part.SLICE,
        rank=Class.WRONG,
        judge=names,
        cure="Give each entry a name of its own.",
        why_not_cel=BUILT_IN,
    ),
    SliceRule(
        code=Code.SEVERAL_SLASHES,
        part=Part.SLICE,
        rank=Class.WRONG,
        judge=slashes,
        cure="Write one domain, one slash and a C identifier.",
        cel=InServer(
            expression=_every_device(
                '(!has(d.attributes) || d.attributes.all(key, key.split("/").size() <= 2))\n'
                '&& (!has(d.capacity) || d.capacity.all(key, key.split("/").size() <= 2))'
            ),
            message="the name of an attribute or capacity has several slashes",
        ),
    ),
    SliceRule(
        code=Code.SEVERAL_TERMS,
        part=Part.SLICE,
        rank=Class.WRONG,
        judge=terms,
        cure="Write one term with operator `In`.",
        cel=InServer(
            expression=_every_device(
                "!has(d.nodeSelector) || d.nodeSelector.nodeSelectorTerms.size() <= 1"
            ),
            message="the node selector of a device has several terms",
        ),
    ),
    SliceRule(
        code=Code.INVALID_POLICY,
        part=Part.SLICE,
        rank=Class.WRONG,
        judge=policies,
        cure="Amounts are not below zero, and the default is not above the value.",
        cel=InServer(
            expression=_every_policy(
                "(!has(c.requestPolicy.default)\n"
                "|| (!quantity(c.requestPolicy.default).isGreaterThan(quantity(c.value))\n"
                '&& !c.requestPolicy.default.startsWith("-")))\n'
                "&& (!has(c.requestPolicy.validRange) || !has(c.requestPolicy.validRange.min)\n"
                '|| !c.requestPolicy.validRange.min.startsWith("-"))'
            ),
            message="a request policy has an amount below zero or a default above the value",
        ),
    ),
    SliceRule(
        code=Code.SLICE_COUNT_DIFFERS,
        part=Part.SLICE,
        rank=Class.WRONG,
        judge=slice_counts,
        cure="Say the same number in all slices of a generation.",
        why_not_cel=OTHER_OBJECTS,
    ),
    SliceRule(
        code=Code.DEVICE_TWICE,
        part=Part.SLICE,
        rank=Class.WRONG,
        judge=devices_across,
        cure="Give each device of a pool a name of its own.",
        why_not_cel=OTHER_OBJECTS,
    ),
    SliceRule(
        code=Code.UNKNOWN_COUNTER_SET,
        part=Part.SLICE,
        rank=Class.WRONG,
        judge=counters,
        cure="Publish the counter set in a slice of the pool, or name one that is there.",
        why_not_cel=OTHER_OBJECTS,
    ),
)
