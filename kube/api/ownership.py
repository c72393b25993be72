"""The AllocatorOwnership API: the drivers whose devices the bridge allocates.

Nothing in the resource API keeps two schedulers from allocating one device. So each driver has one
allocator: the bridge for the drivers in the object `default`, kube-scheduler for all others.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import field

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
MAX_HELD_BACK: Final = 256
"""Claims in the status whose devices are held back."""
SERVING: Final = "Serving"
"""The condition: devices are allocated, of all owned drivers or of one."""


OPEN_CONDITION: Final = {"name": "released", "expression": "false"}
"""The match condition of the fence after the first step of a rescue: it is about no write."""


class OwnedDriver(ApiStruct, frozen=True, kw_only=True):
    """A driver that the bridge allocates."""

    name: str


class AllocatorOwnershipSpec(ApiStruct, frozen=True, kw_only=True):
    """The drivers that the bridge allocates; kube-scheduler allocates the others."""

    drivers: tuple[OwnedDriver, ...] | None = None


class OwnedDriverStatus(ApiStruct, frozen=True, kw_only=True):
    """What the bridge reports of one driver."""

    name: str
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
        holder: Identity of the leading process; empty while none leads.
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


def owned_drivers(ownerships: Iterable[AllocatorOwnership]) -> frozenset[str]:
    """Return the names of the drivers that the bridge owns; objects of other names do not count."""
    return frozenset(
        driver.name
        for ownership in ownerships
        if ownership.metadata.name == OWNERSHIP
        for driver in ownership.spec.drivers or ()
    )
