"""The drivers that the bridge owns, or that are being handed over, and the reason it does not serve them.

The fence lists a driver before the bridge owns it, and after the bridge has given it up, each time for as long as
watches and writes under way may take: `drawbridge bridge own` and `release` write them in this order. So what
nobody may allocate in between, nobody decides about either.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kube.api.meta import ObjectMeta, decode
from kube.api.ownership import (
    OWNERSHIP,
    SERVING,
    AllocatorOwnership,
    AllocatorOwnershipStatus,
    FencePolicy,
    owned_drivers,
    project_fence_policy,
)
from kube.api.urls import ALLOCATOR_OWNERSHIPS, VALIDATING_ADMISSION_POLICIES
from kube.cel.quoting import quote
from kube.names import FENCE
from kube.runtime.informers import InformerFactory, Subscription
from quotas.gates.waiting_note import OWNED

HANDED_OVER: Final = (
    "{driver} is being given to the bridge, or taken from it, and nobody allocates its devices meanwhile; `drawbridge "
    "bridge status` says whether the fence and the ownership differ for good"
)


class DriverOwners:
    """Follows the ownership of drivers.

    Attributes:
        subscription: The ownership as it is followed.
        subscriptions: All that is followed.
        listeners: Called when it has changed.
    """

    def __init__(self, informers: InformerFactory) -> None:
        """Subscribe."""
        self.listeners: Final[list[Callable[[], None]]] = []
        self.subscription: Final = informers.subscribe(
            ALLOCATOR_OWNERSHIPS, project_serving, handlers=[self._changed]
        )
        self._fence: Subscription[FencePolicy] = informers.subscribe(
            VALIDATING_ADMISSION_POLICIES,
            project_fence_policy,
            field_selector=f"metadata.name={FENCE}",
            handlers=[self._changed],
        )
        self.subscriptions: Final[tuple[Subscription[Any], ...]] = (self.subscription, self._fence)

    @property
    def drivers(self) -> frozenset[str]:
        """Return the drivers that the bridge owns."""
        return owned_drivers(self.subscription.store.values())

    def withheld(self, drivers: Iterable[str]) -> Mapping[str, str]:
        """Return the drivers of others among some drivers, owned or handed over, with the reason."""
        owned, policy = self.drivers, self._fence.store.get(("", FENCE))
        fence = policy if policy is not None and not policy.is_open else None
        notes: dict[str, str] = {}
        for driver in drivers:
            if driver in owned:
                notes[driver] = OWNED.format(driver=driver)
            elif fence is not None and fence.lists(quote(driver)):
                notes[driver] = HANDED_OVER.format(driver=driver)
        return notes

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
