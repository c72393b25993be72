"""The drivers that the bridge owns, and the reason it does not serve them."""

from collections.abc import Callable
from typing import Final

from kube.api.meta import ObjectMeta, decode
from kube.api.ownership import (
    OWNERSHIP,
    SERVING,
    AllocatorOwnership,
    AllocatorOwnershipStatus,
    owned_drivers,
)
from kube.api.urls import ALLOCATOR_OWNERSHIPS
from kube.runtime.informers import InformerFactory


class DriverOwners:
    """Follows the ownership of drivers.

    Attributes:
        subscription: The ownership as it is followed.
        listeners: Called when it has changed.
    """

    def __init__(self, informers: InformerFactory) -> None:
        """Subscribe."""
        self.listeners: Final[list[Callable[[], None]]] = []
        self.subscription: Final = informers.subscribe(
            ALLOCATOR_OWNERSHIPS, project_serving, handlers=[self._changed]
        )

    @property
    def drivers(self) -> frozenset[str]:
        """Return the drivers that the bridge owns."""
        return owned_drivers(self.subscription.store.values())

    @property
    def fault(self) -> str:
        """Return the reason the bridge does not serve them; empty if it does."""
        return bridge_fault(self.subscription.store.get(("", OWNERSHIP)))

    def _changed(self, _key: object, old: object, new: object) -> None:
        if old != new:
            for listener in self.listeners:
                listener()


def project_serving(raw: bytes) -> AllocatorOwnership:
    """Project an AllocatorOwnership to its drivers, and to the condition that a bridge serves them."""
    ownership = decode(raw, AllocatorOwnership)
    conditions = (ownership.status.conditions if ownership.status is not None else None) or ()
    return AllocatorOwnership(
        metadata=ObjectMeta(name=ownership.metadata.name),
        spec=ownership.spec,
        status=AllocatorOwnershipStatus(
            conditions=tuple(condition for condition in conditions if condition.type == SERVING)
        ),
    )


def bridge_fault(ownership: AllocatorOwnership | None) -> str:
    """Return the reason the bridge does not serve the drivers that it owns; empty if it does."""
    status = ownership.status if ownership is not None else None
    for condition in (status.conditions if status is not None else None) or ():
        if condition.type == SERVING:
            return "" if condition.status == "True" else condition.message or "it does not serve it"
    return "no bridge has reported that it serves them"
