"""Fields of one ResourceSlice that the API server rejects: limits, and mutually exclusive fields.

Fields that a disabled feature gate drops are not validated, as in the API server.

Source: k8s.io/kubernetes v1.37.1, pkg/apis/resource/validation/validation.go, ValidateResourceSlice;
pkg/apis/resource/v1/zz_generated.validations.go; pkg/registry/resource/resourceslice/strategy.go.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Final

from allocator.model.feature_gates import Features
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from findings.text import quote_text
from kube.api.node_selector import NodeSelector, NodeSelectorRequirement
from kube.api.resource import (
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourceSliceSpec,
)
from kube.cel.semver import is_semver
from rules.context.context import Context
from rules.model import formats
from rules.names.slice_names import Slice, conditions_by_field, list_devices
from rules.objects.request_policies import find_invalid_policies

MAX_DEVICES: Final = 128
MAX_ADVANCED_DEVICES: Final = 64
"""Devices of a slice that has taints, counters or lists of attribute values."""
MAX_ENTRIES: Final = 32
"""Attributes and capacities of a device."""
MAX_VALUES: Final = 48
"""Values of all attributes of a device."""
MAX_VALUE: Final = 64
"""Bytes of a string or version."""
MAX_COUNTER_SETS: Final = 8
MAX_COUNTERS: Final = 32
MAX_CONSUMED_SETS: Final = 2
MAX_GROUPS: Final = 2
MAX_TAINTS: Final = 16
MAX_CONDITIONS: Final = 4
_EFFECTS: Final = ("NoSchedule", "NoExecute", "None")
_NODE_FIELDS: Final = "nodeName, nodeSelector, allNodes"
_SKIPPED: Final = ("NodePrepareResources", "NodeUnprepareResources", "*")


# --- limits and mutually exclusive fields ---------------------------------------------------------


def find_invalid_fields(slice_: Slice, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield the faults of a slice beside its names and request policies."""
    spec, place, features = slice_.view.spec, path.child("spec"), context.features
    yield from _pool_faults(slice_, place.child("pool"))
    yield from _node_selection_faults(spec, place, features)
    if features.partitionable_devices and not (
        spec.devices is None or spec.shared_counters is None
    ):
        yield _mixed_finding(place, is_accepted=context.accepts_mixed_slices)
    if features.partitionable_devices:
        yield from _counter_set_faults(spec.shared_counters or (), place.child("sharedCounters"))
    if features.optional_node_operations:
        yield from _skip_faults(spec.skip_node_operations or (), place.child("skipNodeOperations"))
    yield from _too_many(
        spec.devices or (), _max_devices(spec, features), place.child("devices"), "devices",
        "publish several slices",
    )  # fmt: skip
    for at, device in list_devices(slice_, path):
        yield from _device_faults(device, at, spec, features)


def _mixed_finding(path: FieldPath, *, is_accepted: bool) -> Finding:
    """Return the finding on devices beside counters: from 1.35 on, no component uses the devices.

    Source: ValidateResourceSlice of Kubernetes 1.34.4 has them in one slice, that of 1.35.4 rejects it.
    """
    fix = "publish counter sets in a separate slice"
    if not is_accepted:
        return _invalid(path, "devices and sharedCounters are mutually exclusive", fix)
    return warning(
        Code.INVALID_SLICE,
        path,
        "devices and sharedCounters in one slice are the layout of Kubernetes 1.34: 1.35 rejects them, "
        "and Drawbridge does not count on these devices",
        f"from 1.35 on, {fix}",
    )


def find_invalid_request_policies(
    slice_: Slice, path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield the faults of request policies."""
    for place, device in list_devices(slice_, path):
        yield from find_invalid_policies(device, place, context.features)


def _pool_faults(slice_: Slice, path: FieldPath) -> Iterator[Finding]:
    pool = slice_.view.spec.pool
    # The view defaults what the API server requires.
    is_missing = bool(slice_.raw) and "resourceSliceCount" not in slice_.raw["spec"]["pool"]
    count = 0 if is_missing else pool.resource_slice_count
    if count <= 0:
        yield _invalid(
            path.child("resourceSliceCount"), f"must be greater than zero, found {count}"
        )
    if pool.generation < 0:
        yield _invalid(path.child("generation"), f"must not be negative, found {pool.generation}")


def _node_selection_faults(
    spec: ResourceSliceSpec, path: FieldPath, features: Features
) -> Iterator[Finding]:
    per_device = spec.per_device_node_selection if features.partitionable_devices else None
    fields: list[tuple[str, object]] = [
        ("nodeName", spec.node_name),
        ("nodeSelector", spec.node_selector),
        ("allNodes", spec.all_nodes),
        ("perDeviceNodeSelection", per_device),
    ]
    yield from _exclusive_faults(fields, path, f"{_NODE_FIELDS} and perDeviceNodeSelection")
    if spec.node_selector is not None:
        place = path.child("nodeSelector")
        yield from _node_selector_faults(spec.node_selector, place)
        number = len(spec.node_selector.node_selector_terms)
        if number > 1:
            yield _invalid(
                place.child("nodeSelectorTerms"),
                f"must have exactly one term, found {number}",
                "use one term with operator In",
            )


def _exclusive_faults(
    fields: Iterable[tuple[str, object]], path: FieldPath, names: str
) -> Iterator[Finding]:
    """Yield that not exactly one field is set; one that is empty or false is a fault of its own."""
    present = [(field, value) for field, value in fields if value is not None]
    for field, value in present:
        if value is False or value == "":
            yield _invalid(path.child(field), "must be unset, or set to a value", "remove it")
    set_fields = [field for field, value in present if value is not False and value != ""]
    if len(set_fields) != 1:
        fields_text = " and ".join(set_fields) or "none"
        yield _invalid(path, f"exactly one of {names} must be set, found {fields_text}")


def is_valid_node_selector(selector: NodeSelector) -> bool:
    """Return True if the API server accepts a node selector."""
    return not any(_node_selector_faults(selector, FieldPath()))


def _node_selector_faults(selector: NodeSelector, path: FieldPath) -> Iterator[Finding]:
    if not selector.node_selector_terms:
        yield _invalid(path.child("nodeSelectorTerms"), "must have at least one term")
    for index, term in enumerate(selector.node_selector_terms):
        place = path.child("nodeSelectorTerms", index)
        for number, requirement in enumerate(term.match_expressions or ()):
            yield from _label_requirement_faults(
                requirement, place.child("matchExpressions", number)
            )
        for number, requirement in enumerate(term.match_fields or ()):
            yield from _field_requirement_faults(requirement, place.child("matchFields", number))


def _label_requirement_faults(
    requirement: NodeSelectorRequirement, path: FieldPath
) -> Iterator[Finding]:
    values = requirement.values or ()
    match requirement.operator:
        case "In" | "NotIn" if not values:
            yield _invalid(path.child("values"), f"operator {requirement.operator} needs values")
        case "Exists" | "DoesNotExist" if values:
            yield _invalid(path.child("values"), f"operator {requirement.operator} takes no values")
        case "Gt" | "Lt" if len(values) != 1:
            yield _invalid(path.child("values"), f"operator {requirement.operator} needs one value")
        case "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt":
            pass
        case unknown:
            yield _invalid(path.child("operator"), f"unknown operator {quote_text(unknown)}")
    if not formats.is_label_key(requirement.key):
        yield _invalid(
            path.child("key"), f"{quote_text(requirement.key)} must be {formats.A_LABEL_KEY}"
        )
    for index, value in enumerate(values):
        if not formats.is_label_value(value):
            message = f"{quote_text(value)} must be {formats.A_LABEL_VALUE}"
            yield _invalid(path.child("values", index), message)


def _field_requirement_faults(
    requirement: NodeSelectorRequirement, path: FieldPath
) -> Iterator[Finding]:
    values = requirement.values or ()
    if requirement.operator not in {"In", "NotIn"}:
        message = f"operator {quote_text(requirement.operator)} is not allowed for fields"
        yield _invalid(path.child("operator"), message, "use In or NotIn")
    elif len(values) != 1:
        yield _invalid(path.child("values"), "a field needs exactly one value")
    if requirement.key != "metadata.name":
        message = f"unknown field {quote_text(requirement.key)}"
        yield _invalid(path.child("key"), message, "use metadata.name")
    else:
        for index, value in enumerate(values):
            if not formats.is_dns_subdomain(value):
                message = f"{quote_text(value)} must be {formats.A_SUBDOMAIN}"
                yield _invalid(path.child("values", index), message)


def _counter_set_faults(sets: Sequence[CounterSet], path: FieldPath) -> Iterator[Finding]:
    yield from _too_many(sets, MAX_COUNTER_SETS, path, "counter sets")
    for index, counter_set in enumerate(sets):
        yield from _counter_faults(counter_set.counters, path.child(index, "counters"))


def _counter_faults(counters: Mapping[str, Counter] | None, path: FieldPath) -> Iterator[Finding]:
    if not counters:
        yield _invalid(path, "is required", "name at least one counter")
    else:
        yield from _too_many(counters, MAX_COUNTERS, path, "counters")


def _skip_faults(operations: Sequence[str], path: FieldPath) -> Iterator[Finding]:
    prepare, unprepare, everything = _SKIPPED
    for index, operation in enumerate(operations):
        if operation not in _SKIPPED:
            yield _invalid(path.child(index), f"unknown operation {quote_text(operation)}")
        elif operation in operations[:index]:
            yield _invalid(path.child(index), f"duplicate operation {operation}")
    if prepare in operations and not {unprepare, everything} & set(operations):
        yield _invalid(path, f"{prepare} cannot be skipped without {unprepare}", f"add {unprepare}")


def _max_devices(spec: ResourceSliceSpec, features: Features) -> int:
    is_advanced = any(
        (features.device_taints and device.taints)
        or (features.partitionable_devices and device.consumes_counters)
        or (features.list_type_attributes and any(map(_lists, (device.attributes or {}).values())))
        for device in spec.devices or ()
    )
    return MAX_ADVANCED_DEVICES if is_advanced else MAX_DEVICES


# --- a device -------------------------------------------------------------------------------------


def _device_faults(
    device: Device, path: FieldPath, spec: ResourceSliceSpec, features: Features
) -> Iterator[Finding]:
    attributes, capacity = device.attributes or {}, device.capacity or {}
    entries = len(attributes) + len(capacity)
    if entries > MAX_ENTRIES:
        yield _invalid(
            path, f"{entries} attributes and capacities, but at most {MAX_ENTRIES} are allowed"
        )
    values = sum(max(1, sum(map(len, _lists(attribute)))) for attribute in attributes.values())
    if features.list_type_attributes and values > MAX_VALUES:
        yield _invalid(path, f"{values} attribute values, but at most {MAX_VALUES} are allowed")
    for name, attribute in attributes.items():
        yield from _attribute_faults(attribute, path.child("attributes").key(name), features)
    if features.device_taints:
        yield from _taint_faults(device.taints or (), path.child("taints"))
    if features.partitionable_devices:
        consumptions = device.consumes_counters or ()
        yield from _consumption_faults(consumptions, path.child("consumesCounters"), features)
        yield from _device_node_faults(device, path, spec)
    if features.binding_conditions:
        yield from _binding_faults(device, path)


def _lists(attribute: DeviceAttribute) -> list[Sized]:
    lists = (attribute.ints, attribute.bools, attribute.strings, attribute.versions)
    return [values for values in lists if values is not None]


def _attribute_faults(
    attribute: DeviceAttribute, path: FieldPath, features: Features
) -> Iterator[Finding]:
    scalars = (attribute.int_, attribute.bool_, attribute.string, attribute.version)
    number = sum(value is not None for value in scalars)
    strings = [(path.child("string"), attribute.string)]
    versions = [(path.child("version"), attribute.version)]
    if features.list_type_attributes:
        lists = _lists(attribute)
        number += len(lists)
        if any(len(values) == 0 for values in lists):
            yield _invalid(path, "a list of values must not be empty")
        strings += [
            (path.child("strings", index), text)
            for index, text in enumerate(attribute.strings or ())
        ]
        versions += [
            (path.child("versions", index), text)
            for index, text in enumerate(attribute.versions or ())
        ]
    if number != 1:
        yield _invalid(path, f"exactly one value must be set, found {number}")
    for at, text in (*strings, *versions):
        if text is not None and len(text.encode()) > MAX_VALUE:
            yield _invalid(at, f"is longer than {MAX_VALUE} bytes")
    for at, text in versions:
        if text is not None and not is_semver(text):
            yield _invalid(
                at,
                f"{quote_text(text)} is not a semantic version",
                "use three numbers, without v and leading zeros",
            )


def _taint_faults(taints: Sequence[DeviceTaint], path: FieldPath) -> Iterator[Finding]:
    yield from _too_many(taints, MAX_TAINTS, path, "taints")
    for index, taint in enumerate(taints):
        place = path.child(index)
        if not formats.is_label_value(taint.value):
            message = f"{quote_text(taint.value)} must be {formats.A_LABEL_VALUE}"
            yield _invalid(place.child("value"), message)
        if taint.effect not in _EFFECTS:
            message = (
                f"unknown effect {quote_text(taint.effect)}" if taint.effect else "is required"
            )
            yield _invalid(place.child("effect"), message, f"use one of {', '.join(_EFFECTS)}")


def _consumption_faults(
    consumptions: Sequence[DeviceCounterConsumption], path: FieldPath, features: Features
) -> Iterator[Finding]:
    yield from _too_many(consumptions, MAX_CONSUMED_SETS, path, "counter sets")
    for index, consumption in enumerate(consumptions):
        yield from _counter_faults(consumption.counters, path.child(index, "counters"))
        groups = consumption.compatibility_groups or ()
        if features.compatibility_groups:
            place = path.child(index, "compatibilityGroups")
            yield from _too_many(groups, MAX_GROUPS, place, "groups")
            if len(set(groups)) < len(groups):
                yield _invalid(place, "duplicate group", "list each group once")


def _device_node_faults(
    device: Device, path: FieldPath, spec: ResourceSliceSpec
) -> Iterator[Finding]:
    fields: list[tuple[str, object]] = [
        ("nodeName", device.node_name),
        ("nodeSelector", device.node_selector),
        ("allNodes", device.all_nodes),
    ]
    if spec.per_device_node_selection:
        yield from _exclusive_faults(fields, path, _NODE_FIELDS)
        if device.node_selector is not None:
            yield from _node_selector_faults(device.node_selector, path.child("nodeSelector"))
    elif any(value is not None for _, value in fields):
        yield _invalid(
            path,
            f"{_NODE_FIELDS} of a device are allowed only with perDeviceNodeSelection: true",
            "set it in the spec, or move the field there",
        )


def _binding_faults(device: Device, path: FieldPath) -> Iterator[Finding]:
    for field, conditions in conditions_by_field(device):
        yield from _too_many(conditions, MAX_CONDITIONS, path.child(field), "conditions")
        for index, condition in enumerate(conditions):
            if condition in conditions[:index]:
                message = f"duplicate condition {quote_text(condition)}"
                yield _invalid(path.child(field, index), message)
    binding, failure = device.binding_conditions or (), device.binding_failure_conditions or ()
    for index, condition in enumerate(failure):
        if condition in binding:
            message = f"{quote_text(condition)} is also one of bindingConditions"
            yield _invalid(path.child("bindingFailureConditions", index), message)
    if bool(binding) != bool(failure):
        missing = "bindingFailureConditions" if binding else "bindingConditions"
        present = "bindingConditions" if binding else "bindingFailureConditions"
        yield _invalid(path.child(missing), f"is required with {present}")


def _too_many(
    entries: Sized, most: int, path: FieldPath, name: str, fix: str = ""
) -> Iterator[Finding]:
    if len(entries) > most:
        message = f"{len(entries)} {name}, but at most {most} are allowed"
        yield error(Code.INVALID_SLICE, path, message, fix)


def _invalid(path: FieldPath, message: str, fix: str = "") -> Finding:
    return error(Code.INVALID_SLICE, path, message, fix)
