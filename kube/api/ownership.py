"""The AllocatorOwnership API: the drivers whose devices the bridge allocates.

Nothing in the resource API keeps two schedulers from allocating one device. So each driver has one
allocator: the bridge for the drivers in the object `default`, kube-scheduler for all others.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

from msgspec import Meta, field

from kube.api.meta import ApiStruct, ObjectMeta, decode
from kube.api.policy import Condition
from kube.names import GROUP

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
MAX_HELD_BACK: Final = 256
"""Claims in the status whose devices are held back."""
SERVING: Final = "Serving"
"""The condition: devices are allocated, of all owned drivers or of one."""


OPEN_CONDITION: Final = {"name": "released", "expression": "false"}
"""The match condition of the fence after the first step of a rescue: it is about no write."""
EXCLUDING_FIELDS: Final = ("excludeResourceRules", "namespaceSelector", "objectSelector")
"""Of a policy's `matchConstraints`: with one of them it is not about all writes of its resources."""


Weight = Annotated[int, Meta(ge=0, le=MAX_WEIGHT)]


class OwnedDriver(ApiStruct, frozen=True, kw_only=True):
    """A driver that the bridge allocates.

    Attributes:
        capacity_weights: Name of a capacity to how much it counts in the load of a shared device.
        max_consumers_per_device: 0 for no limit.
        max_consumers_per_node: Likewise.
    """

    name: str
    capacity_weights: Mapping[str, Weight] | None = None
    max_consumers_per_device: int = 0
    max_consumers_per_node: int = 0


class AllocatorOwnershipSpec(ApiStruct, frozen=True, kw_only=True):
    """The drivers that the bridge allocates; kube-scheduler allocates the others."""

    drivers: tuple[OwnedDriver, ...] | None = None


class OwnedDriverStatus(ApiStruct, frozen=True, kw_only=True):
    """The report on one driver, with the settings that the sidecar has seen."""

    name: str
    capacity_weights: Mapping[str, Weight] | None = None
    max_consumers_per_device: int = 0
    max_consumers_per_node: int = 0
    conditions: tuple[Condition, ...] | None = None


class HeldBackDevice(ApiStruct, frozen=True, kw_only=True):
    """A device, or a share of one, that nobody gets for now.

    Attributes:
        consumed_capacity: Name of a capacity to what the share takes of it, as a quantity.
    """

    driver: str
    pool: str
    device: str
    share_id: str | None = field(default=None, name="shareID")
    consumed_capacity: Mapping[str, str] | None = None


class HeldBackClaim(ApiStruct, frozen=True, kw_only=True):
    """Devices that containers of a pod may still use which was deleted by force.

    Attributes:
        until: When they are given again, unless the driver says earlier that they are free.
    """

    claim_uid: str = field(name="claimUID")
    namespace: str
    pod: str
    pod_uid: str = field(name="podUID")
    node: str
    until: str
    devices: tuple[HeldBackDevice, ...]


class AllocatorOwnershipStatus(ApiStruct, frozen=True, kw_only=True):
    """The report of the bridge.

    Attributes:
        holder: Identity of the process that led last, as in the Lease.
        held_back: Read by the next leader, too.
    """

    observed_generation: int = 0
    conditions: tuple[Condition, ...] | None = None
    holder: str = ""
    drivers: tuple[OwnedDriverStatus, ...] | None = None
    held_back: tuple[HeldBackClaim, ...] | None = None


class AllocatorOwnership(ApiStruct, frozen=True, kw_only=True):
    """The drivers that the bridge owns; cluster-scoped, one object named `default`."""

    metadata: ObjectMeta = ObjectMeta()
    spec: AllocatorOwnershipSpec = AllocatorOwnershipSpec()
    status: AllocatorOwnershipStatus | None = None


def project_ownership(raw: bytes) -> AllocatorOwnership:
    """Project an AllocatorOwnership to its drivers; its status changes with every leader."""
    ownership = decode(raw, AllocatorOwnership)
    return AllocatorOwnership(
        metadata=ObjectMeta(name=ownership.metadata.name), spec=ownership.spec
    )


def not_serving(ownerships: Iterable[AllocatorOwnership]) -> Condition | None:
    """Return the condition by which the bridge says that it allocates nothing; None if it does not say so.

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


def owned_drivers(ownerships: Iterable[AllocatorOwnership]) -> frozenset[str]:
    """Return the names of the drivers that the bridge owns; objects of other names do not count."""
    return frozenset(
        driver.name
        for ownership in ownerships
        if ownership.metadata.name == OWNERSHIP
        for driver in ownership.spec.drivers or ()
    )
