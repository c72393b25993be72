"""Names in one ResourceSlice: formats that the API server requires, and duplicates.

Names in fields that a disabled feature gate drops are not validated, as in the API server.

Source: k8s.io/kubernetes v1.37.1, pkg/apis/resource/validation/validation.go, ValidateResourceSlice.
"""

from collections.abc import Iterable, Iterator

from allocator.model.feature_gates import Features
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error
from kube.api.resource import Device, ResourceSlice, ResourceSliceSpec
from rules.context.context import Context
from rules.context.rule import Subject
from rules.model import formats
from rules.model.naming import (
    LocatedName,
    find_duplicates,
    find_unfit_names,
    find_unfit_object_name,
)

Slice = Subject[ResourceSlice]


def list_devices(slice_: Slice, path: FieldPath) -> Iterator[tuple[FieldPath, Device]]:
    """Yield the devices of a slice with their paths."""
    for index, device in enumerate(slice_.view.spec.devices or ()):
        yield path.child("spec", "devices", index), device


def conditions_by_field(device: Device) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the binding conditions and binding failure conditions with their fields."""
    return (
        ("bindingConditions", device.binding_conditions or ()),
        ("bindingFailureConditions", device.binding_failure_conditions or ()),
    )


def find_invalid_names(slice_: Slice, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield names of the slice, its pool, devices, counters, attributes and conditions."""
    view, spec = slice_.view, path.child("spec")
    yield from find_unfit_object_name(view.metadata.name)
    drivers = [(spec.child("driver"), view.spec.driver)]
    yield from find_unfit_names(drivers, formats.is_driver_name, formats.A_DRIVER)
    pools = [(spec.child("pool", "name"), view.spec.pool.name)]
    yield from find_unfit_names(pools, formats.is_pool_name, "DNS subdomains, with slashes")
    yield from find_unfit_names(
        _node_names(view.spec, spec), formats.is_dns_subdomain, formats.A_SUBDOMAIN
    )
    labels = [*_counter_set_names(view.spec, spec, context.features)]
    for place, device in list_devices(slice_, path):
        labels.append((place.child("name"), device.name))
        labels += _consumed_names(device, place, context.features)
        yield from _key_faults(device.attributes or {}, place.child("attributes"))
        yield from _key_faults(device.capacity or {}, place.child("capacity"))
        yield from find_unfit_names(
            _label_keys(device, place, context.features), formats.is_label_key, formats.A_LABEL_KEY
        )
    yield from find_unfit_names(labels, formats.is_dns_label, formats.A_LABEL)


def find_duplicate_names(slice_: Slice, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield duplicate names of devices, and of counter sets."""
    spec, place = slice_.view.spec, path.child("spec")
    names = (device.name for device in spec.devices or ())
    yield from find_duplicates(names, place.child("devices"))
    if not context.features.partitionable_devices:
        return
    yield from find_duplicates(
        (counter_set.name for counter_set in spec.shared_counters or ()),
        place.child("sharedCounters"),
    )
    for at, device in list_devices(slice_, path):
        set_names = (consumption.counter_set for consumption in device.consumes_counters or ())
        yield from find_duplicates(set_names, at.child("consumesCounters"), field="counterSet")


def _node_names(spec: ResourceSliceSpec, path: FieldPath) -> Iterator[LocatedName]:
    if spec.node_name:
        yield path.child("nodeName"), spec.node_name
    for index, device in enumerate(spec.devices or ()):
        if spec.per_device_node_selection and device.node_name:
            yield path.child("devices", index, "nodeName"), device.node_name


def _counter_set_names(
    spec: ResourceSliceSpec, path: FieldPath, features: Features
) -> Iterator[LocatedName]:
    if not features.partitionable_devices:
        return
    for index, counter_set in enumerate(spec.shared_counters or ()):
        place = path.child("sharedCounters", index)
        yield place.child("name"), counter_set.name
        for name in counter_set.counters or ():
            yield place.child("counters").key(name), name


def _consumed_names(device: Device, path: FieldPath, features: Features) -> Iterator[LocatedName]:
    if not features.partitionable_devices:
        return
    for index, consumption in enumerate(device.consumes_counters or ()):
        place = path.child("consumesCounters", index)
        yield place.child("counterSet"), consumption.counter_set
        for name in consumption.counters or ():
            yield place.child("counters").key(name), name
        if features.compatibility_groups:
            for number, name in enumerate(consumption.compatibility_groups or ()):
                yield place.child("compatibilityGroups", number), name


def _label_keys(device: Device, path: FieldPath, features: Features) -> Iterator[LocatedName]:
    if features.device_taints:
        for index, taint in enumerate(device.taints or ()):
            yield path.child("taints", index, "key"), taint.key
    if features.binding_conditions:
        for field, conditions in conditions_by_field(device):
            for index, condition in enumerate(conditions):
                yield path.child(field, index), condition


def _key_faults(entries: Iterable[str], path: FieldPath) -> Iterator[Finding]:
    for name in entries:
        if fault := formats.qualified_name_fault(name):
            yield error(Code.INVALID_NAME, path.key(name), fault)
