"""Follows the objects of the fence, each by its name, since the account may read no others."""

from collections.abc import Callable
from typing import Any, Final

from kube.api.ownership import project_fence_policy
from kube.api.urls import VALIDATING_ADMISSION_POLICIES, VALIDATING_ADMISSION_POLICY_BINDINGS
from kube.names import FENCE, HOLDER_FENCE
from kube.runtime.informers import InformerFactory, Subscription
from sidecar.ownership.fence import UNKNOWN_FENCE, Fence, Part, fence_of
from sidecar.state.projections import project_fence_binding


class FenceView:
    """The policies of the fence and their bindings, as the API server has them.

    Attributes:
        subscriptions: The subscriptions of all parts; a part that the account may not read is never
            synced.
    """

    def __init__(self, informers: InformerFactory, *, on_change: Callable[[], None]) -> None:
        """Subscribe to all parts.

        Args:
            on_change: Called after each change of one.
        """
        # Each decision reads the fence, which hardly ever changes.
        self._fence: Fence | None = None
        self._synced_count = 0
        self._closed_for = (UNKNOWN_FENCE, frozenset[str](), frozenset[str]())

        def changed(*_: object) -> None:
            self._fence = None
            on_change()

        names = (
            (FENCE, Part.POLICY, Part.BINDING),
            (HOLDER_FENCE, Part.HOLDER_POLICY, Part.HOLDER_BINDING),
        )
        self._parts: Final[dict[Part, Subscription[Any]]] = {}
        for name, policy, binding in names:
            selector = f"metadata.name={name}"
            self._parts[policy] = informers.subscribe(
                VALIDATING_ADMISSION_POLICIES,
                project_fence_policy,
                field_selector=selector,
                handlers=[changed],
            )
            self._parts[binding] = informers.subscribe(
                VALIDATING_ADMISSION_POLICY_BINDINGS,
                project_fence_binding,
                field_selector=selector,
                handlers=[changed],
            )
        self.subscriptions: Final = tuple(self._parts.values())

    def read(self) -> Fence:
        """Return the state of the fence."""
        # A first list without objects changes nothing, so no handler is called.
        synced_count = sum(subscription.synced.is_set() for subscription in self.subscriptions)
        if self._fence is None or synced_count != self._synced_count:
            self._synced_count = synced_count
            self._fence = fence_of(
                {
                    part: next(iter(subscription.store.values()), None)
                    for part, subscription in self._parts.items()
                    if subscription.synced.is_set()
                }
            )
        return self._fence

    def fenced(self, drivers: frozenset[str]) -> frozenset[str]:
        """Return those of some drivers with devices that others are kept from."""
        fence = self.read()
        known_fence, known_drivers, fenced_drivers = self._closed_for
        if known_fence is not fence or known_drivers != drivers:
            fenced_drivers = frozenset(filter(fence.keeps_others_from, drivers))
            self._closed_for = (fence, drivers, fenced_drivers)
        return fenced_drivers
