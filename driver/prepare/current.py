"""The current state of the node, as every decision of the driver reads it."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from allocator.compatibility.compile import CompiledPolicy, compile_policy
from driver.model.health import Fault
from driver.model.inventory import Inventory
from driver.plan.prepare import NodeState
from driver.plan.slices import Publication
from kube.api.policy import DeviceCompatibilityPolicy, effective_policies


class CurrentNode:
    """The node's devices, the policies about them, and the prepared claims that were released.

    Attributes:
        inventory: The inventory from the source of devices; empty until the source has delivered
            one.
        released_claims: Uids of claims that are prepared here and that the API server holds for released.
        faults: Unhealthy device to its fault and when it began.
        contested_devices: Devices that were refused because of what is prepared.
    """

    def __init__(self, publication: Publication) -> None:
        self.inventory = Inventory()
        self.released_claims: frozenset[str] = frozenset()
        self.faults: Mapping[str, tuple[Fault, datetime]] = {}
        self.contested_devices: frozenset[str] = frozenset()
        self._publication = publication
        self._policies: tuple[CompiledPolicy, ...] = ()
        self._state: NodeState | None = None
        self._listeners: Final[list[Callable[[], None]]] = []

    @property
    def driver(self) -> str:
        """The driver's name."""
        return self._publication.driver

    @property
    def name(self) -> str:
        """The node's name."""
        return self._publication.node

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have a function called after each change; it must not block."""
        self._listeners.append(listener)

    def state(self) -> NodeState:
        """Return devices and policies as a value; the same object until one of them changes."""
        if self._state is None:
            self._state = NodeState(
                publication=self._publication, inventory=self.inventory, policies=self._policies
            )
        return self._state

    def set_inventory(self, inventory: Inventory) -> None:
        """Take other devices."""
        self.inventory = inventory
        self._state = None
        self.touch()

    def set_policies(self, policies: Iterable[DeviceCompatibilityPolicy]) -> None:
        """Take other policies; those of other drivers do not matter."""
        counting = effective_policies(policies).get(self.driver)
        policy = compile_policy(counting) if counting is not None else None
        self._policies = (policy,) if policy is not None and policy.is_enforced else ()
        self._state = None
        self.touch()

    def set_released(self, uids: frozenset[str]) -> None:
        """Take other claims for released."""
        if uids != self.released_claims:
            self.released_claims = uids
            self.touch()

    def set_contested(self, devices: frozenset[str]) -> None:
        """Take other devices for contested."""
        if devices != self.contested_devices:
            self.contested_devices = devices
            self.touch()

    def set_faults(self, faults: Mapping[str, tuple[Fault, datetime]]) -> None:
        """Take other devices for unhealthy."""
        if faults != self.faults:
            self.faults = faults
            self.touch()

    def touch(self) -> None:
        """Tell listeners that something has changed, here or in the checkpoint."""
        for listener in self._listeners:
            listener()
