"""The AllocatorOwnership API: the drivers with devices that the bridge allocates.

Nothing in the resource API keeps two schedulers from allocating one device. So each driver has one
allocator: the bridge for the drivers in the object `default`, kube-scheduler for all others.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta, field
from msgspec.structs import replace

from kube.api.meta import LABEL_SELECTOR, ApiStruct, LabelSelector, ObjectMeta, decode
from kube.api.policy import Condition
from kube.api.schema import (
    CONDITIONS,
    COUNT,
    DATE_TIME,
    SUBDOMAIN,
    Keywords,
    Schema,
    Validation,
    entries_by_key,
    name,
    text,
)
from kube.names import GROUP, SCHEDULER_NAME

VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "AllocatorOwnership"
OWNERSHIP: Final = "default"
"""The name of the only object."""
MAX_DRIVERS: Final = 64
"""Drivers of the object, as its CustomResourceDefinition says."""
MAX_WEIGHTS: Final = 16
"""Capacities of a driver that have weights."""
MAX_WEIGHT: Final = 1_000
MAX_CONSUMERS: Final = 65_536
MAX_NODE_POOLS: Final = 16
"""Pools of nodes of a driver."""
MAX_HELD_BACK: Final = 256
"""Claims in the status whose devices are held back."""
MAX_KEPT_GROUPS: Final = 4
"""Groups of pods that devices are kept for at a time."""
MAX_GROUP_NODES: Final = 512
"""Nodes of such a group: as many as it may have pods."""
MAX_RESULTS: Final = 32
"""Devices of a claim. Source: k8s.io/api v0.37.1, resource/v1, AllocationResultsMaxSize."""
SERVING: Final = "Serving"
"""The condition: devices are allocated, of all owned drivers or of one."""


OPEN_CONDITION: Final = {"name": "released", "expression": "false"}
"""The match condition of the fence after the first step of a rescue: it is about no write."""
EXCLUDING_FIELDS: Final = ("excludeResourceRules", "namespaceSelector", "objectSelector")
"""Fields of `matchConstraints` with which a policy does not cover all writes of its resources."""


class Expression(ApiStruct, frozen=True, kw_only=True):
    """A match condition or a validation."""

    expression: str = ""


class FenceSpec(ApiStruct, frozen=True, kw_only=True):
    """The fields that define a policy's restrictions."""

    match_conditions: tuple[Expression, ...] | None = None
    validations: tuple[Expression, ...] | None = None
    match_constraints: Mapping[str, Any] | None = None


class FencePolicy(ApiStruct, frozen=True, kw_only=True):
    """A ValidatingAdmissionPolicy of the fence; `admission.fence` writes its text."""

    spec: FenceSpec = FenceSpec()

    @property
    def is_open(self) -> bool:
        """Return True if somebody rescues the cluster, so that the policy restricts nothing."""
        conditions = self.spec.match_conditions or ()
        return any(condition.expression == OPEN_CONDITION["expression"] for condition in conditions)

    def lists(self, literal: str) -> bool:
        """Return True if a driver is in the text of the policy.

        It has to be where the policy chooses its writes, and where it says what the bridge may write.

        Args:
            literal: The driver as a CEL literal.
        """
        return all(
            any(literal in part.expression for part in parts or ())
            for parts in (self.spec.match_conditions, self.spec.validations)
        )


Weight = Annotated[int, Meta(ge=0, le=MAX_WEIGHT)]


class NodePool(ApiStruct, frozen=True, kw_only=True):
    """Nodes that have settings of their own for a driver. The driver's settings are the defaults.

    Attributes:
        name: Unique among the pools of the driver.
        node_selector: The nodes, by their labels; {} selects all. Of several pools that select a node
            the first counts.
        capacity_weights: The weight of each capacity in the load of a shared device; {} for none.
        max_consumers_per_device: Maximum number of claims on a device at a time; 0 for no limit.
        max_consumers_per_node: Maximum number of uses of a node's devices together; 0 for no limit.
        default_strategy: The strategy for pods on these nodes where neither the pod nor a DeviceClass
            names one; without it that of the bridge's configuration.
    """

    name: str
    node_selector: LabelSelector
    capacity_weights: Mapping[str, Weight] | None = None
    max_consumers_per_device: int | None = None
    max_consumers_per_node: int | None = None
    default_strategy: str | None = None


class OwnedDriver(ApiStruct, frozen=True, kw_only=True):
    """A driver that the bridge allocates.

    Attributes:
        name: spec.driver of its ResourceSlices.
        capacity_weights: The weight of each capacity in the load of a shared device, by which
            strategies prefer devices and nodes. Without weights the fullest capacity counts.
        max_consumers_per_device: Maximum number of claims on a device at a time; 0 for no limit.
        max_consumers_per_node: Maximum number of uses of a node's devices together; 0 for no limit.
        pools: Nodes with other settings; the first that selects a node counts.
    """

    name: str
    capacity_weights: Mapping[str, Weight] | None = None
    max_consumers_per_device: int = 0
    max_consumers_per_node: int = 0
    pools: tuple[NodePool, ...] | None = None


class AllocatorOwnershipSpec(ApiStruct, frozen=True, kw_only=True):
    """The drivers that the bridge allocates; kube-scheduler allocates the others.

    Attributes:
        drivers: The drivers whose devices the bridge allocates. Change it with "drawbridge bridge own"
            and "drawbridge bridge release", which change the fence, too.
    """

    drivers: tuple[OwnedDriver, ...] | None = None


class OwnedDriverStatus(ApiStruct, frozen=True, kw_only=True):
    """The report on one driver, with the settings that the sidecar has seen.

    Attributes:
        name: The driver.
        capacity_weights: The weight of each capacity in the load of a shared device, by which
            strategies prefer devices and nodes. Without weights the fullest capacity counts.
        max_consumers_per_device: Maximum number of claims on a device at a time; 0 for no limit.
        max_consumers_per_node: Maximum number of uses of a node's devices together; 0 for no limit.
        pools: Nodes with other settings; the first that selects a node counts.
        conditions: Serving: devices of the driver are allocated.
    """

    name: str
    capacity_weights: Mapping[str, Weight] | None = None
    max_consumers_per_device: int = 0
    max_consumers_per_node: int = 0
    pools: tuple[NodePool, ...] | None = None
    conditions: tuple[Condition, ...] | None = None


class HeldBackDevice(ApiStruct, frozen=True, kw_only=True):
    """A device, or a share of one, that nobody gets for now.

    Attributes:
        driver: The device's driver.
        pool: The device's pool.
        device: The device's name.
        share_id: The ID of a share of the device.
        consumed_capacity: The share's amount of each capacity of the device, as a quantity.
    """

    driver: str
    pool: str
    device: str
    share_id: str | None = field(default=None, name="shareID")
    consumed_capacity: Mapping[str, str] | None = None


class HeldBackClaim(ApiStruct, frozen=True, kw_only=True):
    """Devices of a pod deleted by force that its containers may still use.

    Attributes:
        claim_uid: The UID of the claim to which they were allocated.
        namespace: The pod's namespace.
        pod: The pod that was deleted by force.
        pod_uid: The pod's UID.
        node: The pod's node.
        until: The time from which they are allocated again, unless the driver says earlier that
            they are free.
        devices: The devices.
    """

    claim_uid: str = field(name="claimUID")
    namespace: str
    pod: str
    pod_uid: str = field(name="podUID")
    node: str
    until: str
    devices: tuple[HeldBackDevice, ...]


class KeptGroup(ApiStruct, frozen=True, kw_only=True):
    """Devices that are kept for a group of pods that has waited for long; others may be using them now.

    Attributes:
        group_uid: The UID of the PodGroup.
        namespace: The namespace of the PodGroup.
        group: The name of the PodGroup.
        since: The time since which it waits.
        devices: The number of devices.
        nodes: The nodes that its pods are to get.
    """

    group_uid: str = field(name="groupUID")
    namespace: str
    group: str
    since: str
    devices: int
    nodes: tuple[str, ...]


class AllocatorOwnershipStatus(ApiStruct, frozen=True, kw_only=True):
    """The report of the bridge.

    Attributes:
        observed_generation: The generation of the spec that this is about.
        conditions: Serving: a bridge leads and allocates for the drivers.
        holder: Identity of the process that led last, as in the Lease.
        scheduler_name: schedulerName of the pods that the bridge places.
        drivers: Each owned driver, as the leading process sees it.
        held_back: Devices of pods that were deleted by force. Nobody gets them until the driver says
            that they are free, or until the time has come.
        kept_for_groups: Groups of pods that have waited for long, so that devices are kept for them,
            the most important first. Others get devices beside these.
    """

    observed_generation: int = 0
    conditions: tuple[Condition, ...] | None = None
    holder: str = ""
    scheduler_name: str = ""
    drivers: tuple[OwnedDriverStatus, ...] | None = None
    held_back: tuple[HeldBackClaim, ...] | None = None
    kept_for_groups: tuple[KeptGroup, ...] | None = None


class AllocatorOwnership(ApiStruct, frozen=True, kw_only=True):
    """The drivers that the bridge allocates instead of kube-scheduler.

    Attributes:
        spec: Owned drivers.
        status: The report of the bridge.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: AllocatorOwnershipSpec = AllocatorOwnershipSpec()
    status: AllocatorOwnershipStatus | None = None


_CONSUMERS: Final[Keywords] = {"minimum": 0, "maximum": MAX_CONSUMERS}
_SETTINGS: Final[Mapping[str, Keywords]] = {
    "capacityWeights": {"maxProperties": MAX_WEIGHTS},
    "maxConsumersPerDevice": _CONSUMERS,
    "maxConsumersPerNode": _CONSUMERS,
    "pools": entries_by_key("name", most=MAX_NODE_POOLS),
}
_LABEL: Final = text(63)
_SUBDOMAIN: Final = text(253)
_UID: Final = text(128)

SCHEMA: Final = LABEL_SELECTOR.join(
    Schema(
        limits={
            AllocatorOwnershipSpec: {"drivers": entries_by_key("name", most=MAX_DRIVERS)},
            OwnedDriver: {"name": name(SUBDOMAIN, 63), **_SETTINGS},
            NodePool: {
                "name": name("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", 63),
                "capacityWeights": {"maxProperties": MAX_WEIGHTS},
                "maxConsumersPerDevice": _CONSUMERS,
                "maxConsumersPerNode": _CONSUMERS,
                "defaultStrategy": {"minLength": 1, "maxLength": 63},
            },
            AllocatorOwnershipStatus: {
                "observedGeneration": COUNT,
                "conditions": CONDITIONS,
                "holder": _SUBDOMAIN,
                "schedulerName": _SUBDOMAIN,
                "drivers": entries_by_key("name", most=MAX_DRIVERS),
                "heldBack": entries_by_key("claimUID", "podUID", most=MAX_HELD_BACK),
                "keptForGroups": entries_by_key("groupUID", most=MAX_KEPT_GROUPS),
            },
            KeptGroup: {
                "groupUID": _UID,
                "namespace": _LABEL,
                "group": _SUBDOMAIN,
                "since": DATE_TIME,
                "devices": COUNT,
                "nodes": {"maxItems": MAX_GROUP_NODES},
            },
            OwnedDriverStatus: {
                "name": {"minLength": 1, "maxLength": 63},
                **_SETTINGS,
                "conditions": CONDITIONS,
            },
            HeldBackClaim: {
                "claimUID": _UID,
                "namespace": _LABEL,
                "pod": _SUBDOMAIN,
                "podUID": _UID,
                "node": _SUBDOMAIN,
                "until": DATE_TIME,
                "devices": {"maxItems": MAX_RESULTS},
            },
            HeldBackDevice: {
                "driver": _LABEL,
                "pool": _SUBDOMAIN,
                "device": _LABEL,
                "shareID": _UID,
                "consumedCapacity": {"maxProperties": MAX_RESULTS},
            },
        },
        validations={
            AllocatorOwnership: (
                Validation(
                    rule=f"self.metadata.name == '{OWNERSHIP}'",
                    message=f"there is one {KIND}, and its name is {OWNERSHIP}",
                ),
            )
        },
    )
)


def project_fence_policy(raw: bytes) -> FencePolicy:
    """Project a policy of the fence to the fields that define its restrictions."""
    return decode(raw, FencePolicy)


def project_ownership(raw: bytes) -> AllocatorOwnership:
    """Project an AllocatorOwnership to its drivers and schedulerName; its status changes with every leader."""
    ownership = decode(raw, AllocatorOwnership)
    scheduler_name = ownership.status.scheduler_name if ownership.status is not None else ""
    return AllocatorOwnership(
        metadata=ObjectMeta(name=ownership.metadata.name),
        spec=ownership.spec,
        status=AllocatorOwnershipStatus(scheduler_name=scheduler_name) if scheduler_name else None,
    )


def not_serving(ownerships: Iterable[AllocatorOwnership]) -> Condition | None:
    """Return the bridge's condition that reports it allocates nothing; None if there is none.

    A report about an older spec counts as none.
    """
    for ownership in ownerships:
        status = ownership.status
        if ownership.metadata.name != OWNERSHIP or status is None:
            continue
        for condition in status.conditions or ():
            is_current = condition.observed_generation >= ownership.metadata.generation
            if condition.type == SERVING and condition.status == "False" and is_current:
                return condition
    return None


def driver_settings(ownerships: Iterable[AllocatorOwnership]) -> tuple[OwnedDriver, ...]:
    """Return the owned drivers that have settings, by name."""
    drivers = {
        driver.name: driver
        for ownership in ownerships
        if ownership.metadata.name == OWNERSHIP
        for driver in ownership.spec.drivers or ()
        if driver != OwnedDriver(name=driver.name)
    }
    return tuple(drivers[name] for name in sorted(drivers))


def node_pools(driver: OwnedDriver) -> tuple[NodePool, ...]:
    """Return the pools of a driver, each with the driver's settings in place of those that it lacks."""
    return tuple(
        replace(
            pool,
            capacity_weights=driver.capacity_weights
            if pool.capacity_weights is None
            else pool.capacity_weights,
            max_consumers_per_device=driver.max_consumers_per_device
            if pool.max_consumers_per_device is None
            else pool.max_consumers_per_device,
            max_consumers_per_node=driver.max_consumers_per_node
            if pool.max_consumers_per_node is None
            else pool.max_consumers_per_node,
        )
        for pool in driver.pools or ()
    )


def bridge_scheduler(ownerships: Iterable[AllocatorOwnership]) -> str:
    """Return the schedulerName of the bridge: as it reports, or the usual one."""
    for ownership in ownerships:
        if ownership.metadata.name == OWNERSHIP and ownership.status is not None:
            return ownership.status.scheduler_name or SCHEDULER_NAME
    return SCHEDULER_NAME


def owned_drivers(ownerships: Iterable[AllocatorOwnership]) -> frozenset[str]:
    """Return the names of the drivers that the bridge owns; objects of other names do not count."""
    return frozenset(
        driver.name
        for ownership in ownerships
        if ownership.metadata.name == OWNERSHIP
        for driver in ownership.spec.drivers or ()
    )
