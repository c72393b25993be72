"""The feature gates that allocation depends on, by their upstream names."""

from collections.abc import Mapping
from typing import Final

import msgspec


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the feature gates, with the defaults of Kubernetes 1.37.

    Source: k8s.io/kubernetes v1.37.1, pkg/features/kube_features.go.
    """

    admin_access: bool = msgspec.field(default=True, name="DRAAdminAccess")
    prioritized_list: bool = msgspec.field(default=True, name="DRAPrioritizedList")
    partitionable_devices: bool = msgspec.field(default=True, name="DRAPartitionableDevices")
    device_taints: bool = msgspec.field(default=True, name="DRADeviceTaints")
    device_taint_rules: bool = msgspec.field(default=True, name="DRADeviceTaintRules")
    device_status: bool = msgspec.field(default=True, name="DRAResourceClaimDeviceStatus")
    device_binding_conditions: bool = msgspec.field(default=True, name="DRADeviceBindingConditions")
    consumable_capacity: bool = msgspec.field(default=True, name="DRAConsumableCapacity")
    extended_resources: bool = msgspec.field(default=True, name="DRAExtendedResource")
    fractional_capacity_range: bool = msgspec.field(
        default=False, name="DRAFractionalCapacityRange"
    )
    list_type_attributes: bool = msgspec.field(default=False, name="DRAListTypeAttributes")
    optional_node_operations: bool = msgspec.field(default=False, name="DRAOptionalNodeOperations")
    derived_attributes: bool = msgspec.field(default=False, name="DRADerivedAttributes")
    compatibility_groups: bool = msgspec.field(default=False, name="DRADeviceCompatibilityGroups")
    # Off by default upstream. Whoever writes claims into a PodGroup needs it on, so only a call turns it off.
    group_claims: bool = msgspec.field(default=True, name="DRAWorkloadResourceClaims")

    @property
    def binding_conditions(self) -> bool:
        """Devices with binding conditions may be chosen (upstream's DeviceBindingAndStatus)."""
        return self.device_binding_conditions and self.device_status

    @property
    def experimental(self) -> bool:
        """Upstream chooses its experimental allocator."""
        return (
            self.list_type_attributes
            or self.optional_node_operations
            or self.derived_attributes
            or self.compatibility_groups
        )


GATES: Final[Mapping[str, str]] = {
    field.encode_name: field.name
    for field in msgspec.structs.fields(Features)
    if field.name != "group_claims"
}
"""Upstream name of a gate that allocation depends on to its field."""

CALL_GATES: Final[Mapping[str, str]] = {**GATES, "DRAWorkloadResourceClaims": "group_claims"}
"""Upstream name of a gate that calls of the command line may set to its field."""


def features_of(gates: Mapping[str, bool]) -> Features:
    """Return the features with these gates set.

    Args:
        gates: Upstream name of a gate to whether it is on; the others keep their default.

    Raises:
        ValueError: A gate is unknown.
    """
    unknown = gates.keys() - GATES.keys()
    if unknown:
        known_gates = ", ".join(sorted(GATES))
        raise ValueError(f"unknown feature gate {min(unknown)}; known: {known_gates}")
    return Features(**{GATES[name]: is_on for name, is_on in gates.items()})
