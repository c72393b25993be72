"""The objects of a recording, as decisions that are made again need them. Pure."""

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from allocator.pods.claims import Name, allocation_of, claim_name
from clusterstate.kinds import Changes, Kind
from kube.api.core import Node, Pod
from kube.api.meta import ObjectMeta
from kube.api.ownership import AllocatorOwnership, OwnedDriver, driver_settings
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from sidecar.model.logged_decisions import ClaimDevices
from sidecar.plan.placement import with_allocation

INVENTORY: Final[Mapping[type, Kind]] = {
    Node: Kind.NODE,
    ResourceSlice: Kind.SLICE,
    DeviceClass: Kind.CLASS,
    DeviceTaintRule: Kind.TAINT_RULE,
    DeviceCompatibilityPolicy: Kind.POLICY,
}
"""The kinds of objects that a view of the devices is made of, beside claims."""


class RecordedObjects:
    """The objects of a recording so far.

    Attributes:
        changed_s: The seconds in which the inventory changed.
    """

    def __init__(self) -> None:
        """Begin without objects."""
        self.changed_s: list[float] = []
        self._inventory: dict[Kind, dict[Name, Any]] = {kind: {} for kind in INVENTORY.values()}
        self._ahead: deque[tuple[float, Kind, Name, Any]] = deque()
        self._ownerships: dict[Name, AllocatorOwnership] = {}
        # Those that are gone stay: a decision about them may be read later.
        self._pods: dict[str, Pod] = {}
        self._claims: dict[Name, ResourceClaim] = {}
        self._allocations: dict[Name, AllocationResult] = {}

    def put(self, second: float, name: Name, before: Any, after: Any) -> None:
        """Take a change of an object.

        Args:
            second: The second of the change.
            name: Namespace and name of the object.
            before: The object before; None if it was not there.
            after: The object now; None if it is gone.
        """
        value = after if after is not None else before
        if isinstance(value, AllocatorOwnership):
            self._ownerships.pop(name, None)
            if after is not None:
                self._ownerships[name] = value
        elif type(value) in INVENTORY:
            self._ahead.append((second, INVENTORY[type(value)], name, after))
        elif isinstance(after, Pod):
            self._pods[after.metadata.uid] = after
        elif isinstance(after, ResourceClaim):
            self._put_claim(after)

    def _put_claim(self, claim: ResourceClaim) -> None:
        name, allocation = claim_name(claim), allocation_of(claim)
        self._claims[name] = claim
        if allocation is not None:
            self._allocations[name] = allocation

    @property
    def settings(self) -> tuple[OwnedDriver, ...]:
        """The settings of the owned drivers."""
        return driver_settings(self._ownerships.values())

    def take_inventory(self, second: float) -> Changes:
        """Return the changes of the inventory until a second that were not returned before."""
        changes: dict[Kind, dict[Name, Any]] = {}
        while self._ahead and self._ahead[0][0] <= second:
            changed_s, kind, name, value = self._ahead.popleft()
            self.changed_s.append(changed_s)
            changes.setdefault(kind, {})[name] = value
            if value is None:
                self._inventory[kind].pop(name, None)
            else:
                self._inventory[kind][name] = value
        return changes

    def inventory(self) -> Changes:
        """Return the inventory, as far as it was taken."""
        return {kind: dict(objects) for kind, objects in self._inventory.items()}

    def next_change_s(self) -> float | None:
        """Return the second of the next change of the inventory; None without one."""
        return self._ahead[0][0] if self._ahead else None

    def pod(self, uid: str) -> Pod | None:
        """Return a pod as the scheduler asked about it, without a node; None if it is not recorded."""
        pod = self._pods.get(uid)
        return None if pod is None else replace(pod, spec=replace(pod.spec, node_name=""))

    def claim(self, name: Name, devices: ClaimDevices | None) -> ResourceClaim | None:
        """Return a claim with the devices that the log says; None if it has none, and is not recorded.

        Args:
            name: Its namespace and name.
            devices: Its devices; None for a claim without.
        """
        claim = self._claims.get(name)
        if devices is None or not devices.devices:
            return None if claim is None else replace(claim, status=None)
        if claim is None:
            claim = ResourceClaim(metadata=ObjectMeta(namespace=name[0], name=name[1]))
        allocation = self._allocations.get(name)
        if allocation is None or allocation.devices.results != devices.devices:
            allocation = AllocationResult(devices=DeviceAllocationResult(results=devices.devices))
        return with_allocation(replace(claim, status=None), allocation)
