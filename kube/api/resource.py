"""Types of resource.k8s.io/v1 as Kubernetes 1.37 serves them.

Source: k8s.io/api v0.37.1, resource/v1/types.go. The API server enforces the limits that docstrings
mention.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import field

from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.node_selector import NodeSelector
from kube.quantity import Quantity

MAX_RESULTS = 32
"""The largest number of devices in one allocation (AllocationResultsMaxSize)."""
MAX_REQUESTS = 32
MAX_CONSTRAINTS = 32
MAX_ALTERNATIVES = 8
"""The largest number of subrequests of a request (FirstAvailableDeviceRequestMaxSize)."""
MAX_SELECTORS = 32
"""The largest number of selectors of a request or class (DeviceSelectorsMaxSize)."""
MAX_SELECTOR_BYTES = 10240


class CelSelector(ApiStruct, frozen=True, kw_only=True):
    """A CEL expression that selects devices.

    Attributes:
        expression: A selector as in resource.k8s.io. Write
            `device.attributes['d'].?mode.orValue('')` for an attribute that a device may not have: if
            an expression fails, the devices are incompatible.
    """

    expression: str


class DeviceSelector(ApiStruct, frozen=True, kw_only=True):
    """Exactly one member; only `cel` exists.

    Attributes:
        cel: A selector in CEL.
    """

    cel: CelSelector | None = None


class DeviceToleration(ApiStruct, frozen=True, kw_only=True):
    """A toleration of device taints; an empty operator is `Equal`."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(ApiStruct, frozen=True, kw_only=True):
    """Amounts per allocated device, by the capacity's name as the slice spells it."""

    requests: Mapping[str, Quantity] | None = None


class DerivedAttribute(ApiStruct, frozen=True, kw_only=True):
    """An attribute that constraints compute for each device (alpha in 1.37)."""

    name: str
    expression: str


class ExactDeviceRequest(ApiStruct, frozen=True, kw_only=True):
    """A request for devices of one class."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] | None = None
    allocation_mode: str = ""
    count: int | None = None
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] | None = None


class DeviceSubRequest(ApiStruct, frozen=True, kw_only=True):
    """One alternative of `firstAvailable`."""

    name: str
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] | None = None
    allocation_mode: str = ""
    count: int | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] | None = None


class DeviceRequest(ApiStruct, frozen=True, kw_only=True):
    """A named request; either `exactly` or `first_available` is set."""

    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] | None = None


class DeviceConstraint(ApiStruct, frozen=True, kw_only=True):
    """A constraint on the devices of some requests; empty `requests` means all."""

    requests: tuple[str, ...] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueDeviceConfiguration(ApiStruct, frozen=True, kw_only=True):
    """Parameters for the driver: a JSON object of at most 10 KiB."""

    driver: str
    parameters: Mapping[str, Any]


class DeviceClaimConfiguration(ApiStruct, frozen=True, kw_only=True):
    """Configuration for the named requests; empty means all."""

    requests: tuple[str, ...] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(ApiStruct, frozen=True, kw_only=True):
    """Requests, constraints and configurations of a claim, at most 32 of each."""

    requests: tuple[DeviceRequest, ...] | None = None
    constraints: tuple[DeviceConstraint, ...] | None = None
    config: tuple[DeviceClaimConfiguration, ...] | None = None


class ResourceClaimSpec(ApiStruct, frozen=True, kw_only=True):
    """Immutable after creation."""

    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(ApiStruct, frozen=True, kw_only=True):
    """An allocated device or share; `request` is `name` or `name/subrequest`."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    share_id: str | None = field(default=None, name="shareID")
    consumed_capacity: Mapping[str, Quantity] | None = None
    skip_node_operations: tuple[str, ...] | None = None


class DeviceAllocationConfiguration(ApiStruct, frozen=True, kw_only=True):
    """Configuration and its source: FromClass or FromClaim."""

    source: str
    requests: tuple[str, ...] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(ApiStruct, frozen=True, kw_only=True):
    """The devices and their configuration."""

    results: tuple[DeviceRequestAllocationResult, ...] | None = None
    config: tuple[DeviceAllocationConfiguration, ...] | None = None


class AllocationResult(ApiStruct, frozen=True, kw_only=True):
    """Immutable once set; it may only be cleared."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(ApiStruct, frozen=True, kw_only=True):
    """A consumer that may use the claim; at most 256 per claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class NetworkDeviceData(ApiStruct, frozen=True, kw_only=True):
    """The state of a network device as its driver reports it."""

    interface_name: str = ""
    ips: tuple[str, ...] | None = None
    hardware_address: str = ""


class AllocatedDeviceStatus(ApiStruct, frozen=True, kw_only=True):
    """The state of an allocated device as its driver reports it."""

    driver: str
    pool: str
    device: str
    share_id: str | None = field(default=None, name="shareID")
    conditions: tuple[Mapping[str, Any], ...] | None = None
    data: Mapping[str, Any] | None = None
    network_data: NetworkDeviceData | None = None


class ResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """Allocation, consumers and the state of the devices."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] | None = None
    devices: tuple[AllocatedDeviceStatus, ...] | None = None


class ResourceClaim(ApiStruct, frozen=True, kw_only=True):
    """A claim for devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus | None = None


class ResourceClaimTemplateSpec(ApiStruct, frozen=True, kw_only=True):
    """The spec of the claim to create, and its labels and annotations."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(ApiStruct, frozen=True, kw_only=True):
    """A template for the claims that kube-controller-manager creates for pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class DeviceClassConfiguration(ApiStruct, frozen=True, kw_only=True):
    """Configuration for all requests of the class."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(ApiStruct, frozen=True, kw_only=True):
    """Selectors and configuration, and optionally the extended resource that the class serves."""

    selectors: tuple[DeviceSelector, ...] | None = None
    config: tuple[DeviceClassConfiguration, ...] | None = None
    extended_resource_name: str | None = None


class DeviceClass(ApiStruct, frozen=True, kw_only=True):
    """A class of devices; cluster-scoped."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceAttribute(ApiStruct, frozen=True, kw_only=True):
    """An attribute's value: exactly one field is set; lists are alpha in 1.37."""

    int_: int | None = field(default=None, name="int")
    bool_: bool | None = field(default=None, name="bool")
    string: str | None = None
    version: str | None = None
    ints: tuple[int, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None


class CapacityRequestPolicyRange(ApiStruct, frozen=True, kw_only=True):
    """Amounts from `min` in multiples of `step`, up to `max`."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(ApiStruct, frozen=True, kw_only=True):
    """Default and rounding of requests for a capacity (KEP-5075)."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] | None = None
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(ApiStruct, frozen=True, kw_only=True):
    """The total of a capacity, and the policy for requests of a share."""

    value: Quantity
    request_policy: CapacityRequestPolicy | None = None


class Counter(ApiStruct, frozen=True, kw_only=True):
    """An amount that partitions share."""

    value: Quantity


class CounterSet(ApiStruct, frozen=True, kw_only=True):
    """Named counters that devices of a pool consume (KEP-4815)."""

    name: str
    counters: Mapping[str, Counter] | None = None


class DeviceCounterConsumption(ApiStruct, frozen=True, kw_only=True):
    """The amounts that a device consumes of a counter set while it is allocated."""

    counter_set: str
    counters: Mapping[str, Counter] | None = None
    compatibility_groups: tuple[str, ...] | None = None


class DeviceTaint(ApiStruct, frozen=True, kw_only=True):
    """A taint: requests without a matching toleration do not get the device."""

    key: str
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Device(ApiStruct, frozen=True, kw_only=True):
    """A device of a slice."""

    name: str
    attributes: Mapping[str, DeviceAttribute] | None = None
    capacity: Mapping[str, DeviceCapacity] | None = None
    consumes_counters: tuple[DeviceCounterConsumption, ...] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] | None = None
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: Mapping[str, Any] | None = None


class ResourcePool(ApiStruct, frozen=True, kw_only=True):
    """The pool of a slice, and the number of slices in a complete pool."""

    name: str
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(ApiStruct, frozen=True, kw_only=True):
    """Devices of a driver's pool."""

    driver: str
    pool: ResourcePool
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] | None = None
    shared_counters: tuple[CounterSet, ...] | None = None
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] | None = None


class ResourceSlice(ApiStruct, frozen=True, kw_only=True):
    """Devices that a driver publishes; cluster-scoped."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec


class DeviceTaintSelector(ApiStruct, frozen=True, kw_only=True):
    """The devices that a rule taints; an unset field matches every device."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(ApiStruct, frozen=True, kw_only=True):
    """A taint and the devices it applies to; without a selector, none."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint


class DeviceTaintRule(ApiStruct, frozen=True, kw_only=True):
    """An administrator's taint for devices; cluster-scoped."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec
