"""Pools with devices that a disabled feature gate keeps from use.

Source: k8s.io/dynamic-resource-allocation v0.37.1, structured/internal/experimental,
pools_experimental.go: slices that a disabled feature gate hides.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from allocator.model.devices import PoolId, pool_of
from allocator.model.feature_gates import Features
from kube.api.resource import Device, ResourceSlice

COMPATIBILITY_GATE: Final = "DRADeviceCompatibilityGroups"
PARTITIONS_GATE: Final = "DRAPartitionableDevices"


def disabled_gate_cause(slice_: ResourceSlice, features: Features) -> str:
    """Return the disabled feature gate that hides a slice and its pool; empty if none does."""
    spec = slice_.spec
    if not features.compatibility_groups and any(map(declares_groups, spec.devices or ())):
        return f"compatibilityGroups need feature gate {COMPATIBILITY_GATE}, which is off"
    needs_partitions = spec.per_device_node_selection is not None or bool(spec.shared_counters)
    if needs_partitions and not features.partitionable_devices:
        return f"partitionable devices need feature gate {PARTITIONS_GATE}, which is off"
    return ""


def find_gated_pools(slices: Iterable[ResourceSlice], features: Features) -> Mapping[PoolId, str]:
    """Return the pools that a disabled feature gate keeps from use, each with the cause."""
    causes: dict[PoolId, str] = {}
    for slice_ in slices:
        cause = disabled_gate_cause(slice_, features)
        if cause:
            causes.setdefault(pool_of(slice_), cause)
    return causes


def declares_groups(device: Device) -> bool:
    """Return True if a device has compatibilityGroups."""
    if not device.consumes_counters:
        return False
    return any(consumption.compatibility_groups for consumption in device.consumes_counters)


def find_mixed_pools(slices: Iterable[ResourceSlice], features: Features) -> Mapping[PoolId, str]:
    """Return the pools with devices that are ignored since their slice has counters as well, and the cause."""
    causes: dict[PoolId, str] = {}
    for slice_ in slices:
        spec = slice_.spec
        if features.partitionable_devices and spec.devices and spec.shared_counters:
            causes.setdefault(
                pool_of(slice_),
                f"ResourceSlice {slice_.metadata.name} has devices beside sharedCounters, so its devices are "
                "ignored, and the API server rejects it from 1.35 on; publish the counters in a slice of their "
                "own",
            )
    return causes
