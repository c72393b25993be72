"""The words of the allocator: devices, pools and nodes as published, requests as asked, and plans.

Positions: within one attempt on one node, devices are numbered 0 to n-1 in upstream's search order
(pools, then slices by name, then devices as listed), and sets of devices are bit masks of them.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from kube.api.resource import (
    CounterSet,
    Device,
    DeviceClass,
    DeviceToleration,
    ResourceClaim,
    ResourceSlice,
)
from kube.quantity import Quantity


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """The feature gates that allocation depends on, with the defaults of 1.37.

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
    fractional_capacity_range: bool = msgspec.field(
        default=False, name="DRAFractionalCapacityRange"
    )
    list_type_attributes: bool = msgspec.field(default=False, name="DRAListTypeAttributes")
    optional_node_operations: bool = msgspec.field(default=False, name="DRAOptionalNodeOperations")
    derived_attributes: bool = msgspec.field(default=False, name="DRADerivedAttributes")
    compatibility_groups: bool = msgspec.field(default=False, name="DRADeviceCompatibilityGroups")

    @property
    def binding_conditions(self) -> bool:
        """Devices with binding conditions may be chosen (upstream's DeviceBindingAndStatus)."""
        return self.device_binding_conditions and self.device_status

    @property
    def experimental(self) -> bool:
        """Upstream would choose its experimental allocator."""
        return (
            self.list_type_attributes
            or self.optional_node_operations
            or self.derived_attributes
            or self.compatibility_groups
        )


class PoolId(msgspec.Struct, frozen=True, order=True):
    """A pool's identity: names of pools are unique only within their driver."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceId(msgspec.Struct, frozen=True, order=True):
    """A device's identity in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class PublishedDevice(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A device with the slice that published it. Compared and hashed by identity, which is cheap.

    Taints of DeviceTaintRules are already among `device.taints`.
    """

    id: DeviceId
    device: Device
    slice: ResourceSlice


class PoolState(StrEnum):
    """Whether devices of a pool may be handed out."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    INVALID = "invalid"


class Pool(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A pool as one node sees it.

    Attributes:
        devices: On slices that target the node, in search order; empty unless COMPLETE.
        elsewhere: The pool's devices on slices that do not; they count against its counters.
        counter_sets: Name to set, of the whole pool.
        why: What makes it incomplete or invalid, for people; empty when COMPLETE.
    """

    id: PoolId
    state: PoolState = PoolState.COMPLETE
    devices: tuple[PublishedDevice, ...] = ()
    elsewhere: tuple[PublishedDevice, ...] = ()
    counter_sets: Mapping[str, CounterSet] = msgspec.field(default_factory=dict)
    why: str = ""


class NodeDevices(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What one node can be given: its pools in search order and their devices by position.

    Attributes:
        labels: Of the node.
        declared_features: `status.declaredFeatures` of the node.
        pools: In search order, unusable ones included.
        devices: Of all complete pools, by position.
        pool_of: Index into `pools`, by position.
        positions: Device to position.
    """

    node: str
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    declared_features: frozenset[str] = frozenset()
    pools: tuple[Pool, ...] = ()
    devices: tuple[PublishedDevice, ...] = ()
    pool_of: tuple[int, ...] = ()
    positions: Mapping[DeviceId, int] = msgspec.field(default_factory=dict)


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that holds a device or a share of it.

    Attributes:
        namespace: Of the claim.
        claim: Its name.
        request: As in the allocation result.
        parameters: Opaque parameters for the device's driver that apply to the request, in order.
        share_id: Of its share; None when it holds the device alone.
        consumed: What its share takes of each capacity; None when that is not told.
    """

    namespace: str
    claim: str
    request: str
    parameters: tuple[Mapping[str, object], ...] = ()
    share_id: str | None = None
    consumed: Mapping[str, Quantity] | None = None


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a device allocated claims hold; never empty.

    Attributes:
        exclusive: A result without a share id holds it (upstream's AllocatedDevices).
        share_ids: Of the shares in use (AllocatedSharedDeviceIDs).
        capacity: Sum of what its shares consume (AggregatedCapacity); None without an entry.
        holders: Who, in the order in which they were counted.
    """

    exclusive: bool = False
    share_ids: frozenset[str] = frozenset()
    capacity: Mapping[str, Quantity] | None = None
    holders: tuple[Holder, ...] = ()

    @property
    def is_shared(self) -> bool:
        """Some share of it is in use, so a further one charges no counters."""
        return bool(self.share_ids) or self.capacity is not None


PoolUse = Mapping[str, DeviceUse]
"""Device name to its use, of one pool. Replaced, never changed, so identity tells of change."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What all allocated claims hold (upstream's AllocatedState).

    Attributes:
        pools: Only pools in which something is held.
    """

    pools: Mapping[PoolId, PoolUse] = msgspec.field(default_factory=dict)

    def of(self, device: DeviceId) -> DeviceUse | None:
        """Return how a device is used; None when it is free."""
        return self.pools.get(PoolId(device.driver, device.pool), {}).get(device.device)


class Request(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request, or one alternative of a `firstAvailable`, ready for the search.

    Attributes:
        claim: Index of its claim in the attempt.
        index: Index of the top-level request in its claim.
        name: Its own name; an alternative's name is unique only in its parent.
        parent: Name of the top-level request of an alternative; None for `exactly`.
        device_class: The class that it names.
        expressions: Of the class, then of the request, in order.
        all_devices: Mode All; `count` is then 0 and depends on the node.
        count: Devices wanted in mode ExactCount; up to 2^63 - 1.
        capacity: Amounts asked per device; None when the field is absent.
        derived: Fully qualified attribute name to expression.
    """

    claim: int
    index: int
    name: str
    parent: str | None = None
    device_class: DeviceClass
    expressions: tuple["Expression", ...] = ()
    all_devices: bool = False
    count: int = 1
    admin: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: Mapping[str, Quantity] | None = None
    derived: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """As results and configurations name it: `name` or `parent/name`."""
        return self.name if self.parent is None else f"{self.parent}/{self.name}"


class Expression(msgspec.Struct, frozen=True, kw_only=True):
    """A selector's text and where it stands, for messages: `class gpu: selector #0`."""

    text: str
    origin: str


class Asked(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What an attempt is asked for: all unallocated claims of a pod, solved together.

    Attributes:
        claims: In the pod's order.
        requests: Per claim, per top-level request, its alternatives (one for `exactly`).
    """

    claims: tuple[ResourceClaim, ...]
    requests: tuple[tuple[tuple[Request, ...], ...], ...]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One chosen device, or share of a device.

    Attributes:
        request: Which request, or which alternative, it serves.
        device: The device.
        consumed: What the share takes of each capacity; None for a dedicated device.
    """

    request: Request
    device: PublishedDevice
    consumed: Mapping[str, Quantity] | None = None

    @property
    def is_share(self) -> bool:
        """It gets a share id, even where it consumes nothing."""
        return self.consumed is not None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that the claims get on one node.

    Attributes:
        choices: Per claim, in order of choice: requests in order, devices in search order.
        alternatives: Per claim, per top-level request, the index of the chosen alternative.
        steps: What the search cost.
    """

    node: str
    choices: tuple[tuple[Choice, ...], ...]
    alternatives: tuple[tuple[int, ...], ...]
    steps: int = 0


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How much one attempt on one node may cost, in steps and never in seconds.

    Attributes:
        steps: Devices tried; evaluating a selector counts by its CEL cost. 200,000 take below a
            second here; upstream's answer to the same question is a deadline of 10 s.
    """

    steps: int = 200_000


def renumbered(node: NodeDevices, order: Sequence[int]) -> NodeDevices:
    """Return a node with its devices in another order, so that the search tries them so.

    Args:
        order: Positions, each once.
    """
    devices = tuple([node.devices[position] for position in order])
    return msgspec.structs.replace(
        node,
        devices=devices,
        pool_of=tuple([node.pool_of[position] for position in order]),
        positions={published.id: number for number, published in enumerate(devices)},
    )
