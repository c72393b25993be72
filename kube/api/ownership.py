"""The AllocatorOwnership API: the drivers whose devices the bridge allocates.

Nothing in the resource API keeps two schedulers from allocating one device. So each driver has one
allocator: the bridge for the drivers in the object `default`, kube-scheduler for all others.
"""

from collections.abc import Iterable
from typing import Final

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


class OwnedDriver(ApiStruct, frozen=True, kw_only=True):
    """A driver that the bridge allocates."""

    name: str


class AllocatorOwnershipSpec(ApiStruct, frozen=True, kw_only=True):
    """The drivers that the bridge allocates; kube-scheduler allocates the others."""

    drivers: tuple[OwnedDriver, ...] | None = None


class AllocatorOwnershipStatus(ApiStruct, frozen=True, kw_only=True):
    """The report of the bridge.

    Attributes:
        holder: Identity of the leading process; empty while none leads.
    """

    observed_generation: int = 0
    conditions: tuple[Condition, ...] | None = None
    holder: str = ""


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
