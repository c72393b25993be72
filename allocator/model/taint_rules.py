"""DeviceTaintRules applied to published ResourceSlices (KEP-5055).

Source: k8s.io/dynamic-resource-allocation v0.37.1, resourceslice/tracker/tracker.go.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kube.api.resource import Device, DeviceTaint, DeviceTaintRule, ResourceSlice


def apply_taint_rules(
    slices: Iterable[ResourceSlice], rules: Iterable[DeviceTaintRule]
) -> tuple[ResourceSlice, ...]:
    """Return the slices with the taints of DeviceTaintRules after the devices' own taints.

    Slices that no rule matches stay the same objects. Rules apply in the order of their names;
    upstream has no particular order.
    """
    by_scope: dict[tuple[str | None, str | None], list[DeviceTaintRule]] = {}
    for rule in sorted(rules, key=lambda rule: rule.metadata.name):
        if (selector := rule.spec.device_selector) is not None:
            by_scope.setdefault((selector.driver, selector.pool), []).append(rule)
    if not by_scope:
        return tuple(slices)
    return tuple(_taint_slice(slice_, by_scope) for slice_ in slices)


def _taint_slice(
    slice_: ResourceSlice,
    by_scope: Mapping[tuple[str | None, str | None], Sequence[DeviceTaintRule]],
) -> ResourceSlice:
    driver, pool = slice_.spec.driver, slice_.spec.pool.name
    scopes = ((driver, pool), (driver, None), (None, pool), (None, None))
    rules = [rule for scope in scopes for rule in by_scope.get(scope, ())]
    if not rules:
        return slice_
    rules.sort(key=lambda rule: rule.metadata.name)
    devices = slice_.spec.devices or ()
    tainted_devices = tuple(
        _taint_device(device, _matching_taints(rules, device.name)) for device in devices
    )
    if all(before is after for before, after in zip(devices, tainted_devices, strict=True)):
        return slice_
    spec = msgspec.structs.replace(slice_.spec, devices=tainted_devices)
    return msgspec.structs.replace(slice_, spec=spec)


def _matching_taints(rules: Iterable[DeviceTaintRule], device: str) -> tuple[DeviceTaint, ...]:
    return tuple(
        rule.spec.taint
        for rule in rules
        if rule.spec.device_selector is not None
        and rule.spec.device_selector.device in {None, device}
    )


def _taint_device(device: Device, taints: tuple[DeviceTaint, ...]) -> Device:
    if not taints:
        return device
    return msgspec.structs.replace(device, taints=(*(device.taints or ()), *taints))
