"""Compatibility groups: the partitions that can share one counter set (KEP-5963, alpha in 1.37).

All devices on a counter set have at least one group in common, or none of them has any group. This
is a running intersection and no comparison of pairs: {a,b}, {b,c} and {a,c} overlap pairwise, and
the third is rejected. Groups are read from the slices as they are now, not as they were at the time
of the allocation; the KEP's copy in the allocation result does not exist in 1.37.1.

Source: k8s.io/dynamic-resource-allocation v0.37.1,
structured/internal/experimental/compatibility_groups.go;
allocator_experimental.go, checkAndConsumeCompatibilityGroups.
"""

from collections.abc import Hashable, Iterable
from typing import Final

from allocator.model.constraint import RemainingDemand
from allocator.model.devices import NodeDevices, Pool
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason, RejectionReason, Verb
from allocator.model.requests import Request
from allocator.model.usage import PoolUse, Usage
from kube.api.resource import Device

# Sets of groups are bit masks. Having no group is a group of its own, so that devices without
# groups are compatible with each other and with no other device.
_NO_GROUP: Final = 1
_NO_MEMBERS: Final = -1  # All bits: compatible with the first device, whose groups replace it.
_NOTHING: Final[PoolUse] = {}
_MAX_NAMED: Final = 5


def build_constraint(
    node: NodeDevices,
    usage: Usage,
    features: Features,
    governed_drivers: frozenset[str] = frozenset(),
) -> "GroupConstraint | None":
    """Build the constraint of an attempt; None if no device of the node's pools declares groups.

    Args:
        node: Devices of the node.
        usage: Usage by allocated claims.
        features: Feature gates.
        governed_drivers: Drivers whose groups a DeviceCompatibilityPolicy checks, more strictly than this.
    """
    pools = [pool for pool in node.pools if pool.id.driver not in governed_drivers]
    if not features.compatibility_groups or not any(map(_declares_groups, pools)):
        return None
    return GroupConstraint(node, usage, governed_drivers)


class GroupConstraint:
    """The groups that the devices on each counter set have in common, including this attempt's."""

    def __init__(
        self, node: NodeDevices, usage: Usage, governed_drivers: frozenset[str] = frozenset()
    ) -> None:
        """Intersect the groups of allocated devices, pool by pool."""
        self._bits: dict[str, int] = {}
        self._sets: dict[tuple[int, str], int] = {}
        self._common: list[int] = []
        self._before: list[list[tuple[int, int]]] = []
        for number, pool in enumerate(node.pools):
            self._intersect(number, pool, usage.pools.get(pool.id, _NOTHING))
        # By position: number of a counter set to the groups that the device has there.
        self._memberships = [
            ()
            if device.id.driver in governed_drivers
            else self._find_memberships(pool, device.device)
            for pool, device in zip(node.pool_of, node.devices, strict=True)
        ]
        ids: dict[Hashable, int] = {}
        self._keys = [ids.setdefault(memberships, len(ids)) for memberships in self._memberships]
        self._remaining: dict[RemainingDemand, tuple[int, ...]] = {}

    def equivalence_key(self, position: int) -> Hashable:
        """Return a number for the groups that a device has on its counter sets."""
        return self._keys[position]

    def add(self, request: Request, position: int, *, further_share: bool) -> bool:
        """Add a device to its counter sets if it has a group in common with their devices."""
        memberships = self._memberships[position]
        if further_share or not memberships:
            return True
        common = self._common
        for number, groups in memberships:
            if not common[number] & groups:
                return False
        self._before.append([(number, common[number]) for number, _ in memberships])
        for number, groups in memberships:
            common[number] &= groups
        return True

    def remove(self, request: Request, position: int, *, further_share: bool) -> None:
        """Restore the common groups from before the latest `add`."""
        if not further_share and self._memberships[position]:
            for number, before in self._before.pop():
                self._common[number] = before

    def state_key(self) -> Hashable:
        """Return the common groups of each counter set."""
        return tuple(self._common)

    def residual_key(self, remaining: RemainingDemand) -> Hashable:
        """Return the common groups of the counter sets that remaining devices are on."""
        numbers = self._remaining.get(remaining)
        if numbers is None:
            joined_groups = {
                number
                for position, memberships in enumerate(self._memberships)
                if remaining.positions >> position & 1
                for number, _ in memberships
            }
            numbers = self._remaining[remaining] = tuple(sorted(joined_groups))
        common = self._common
        return tuple([common[number] for number in numbers])

    def rejection(
        self, request: Request, position: int, *, further_share: bool
    ) -> RejectionReason | None:
        """Return the first counter set that rejects a device, for lack of a group in common with the others."""
        for number, groups in () if further_share else self._memberships[position]:
            common = self._common[number]
            if not common & groups:
                name = next(name for (_, name), other in self._sets.items() if other == number)
                own, others = self._names(groups), self._names(common)
                return RejectionReason(
                    reason=Reason.GROUPS,
                    verb=Verb.HAVE,
                    subject="compatibility groups" if own else "no compatibility groups",
                    value=own,
                    remark=f"devices in use on counter set {name} have {others or 'none'} in common",
                )
        return None

    def _intersect(self, pool_number: int, pool: Pool, use: PoolUse) -> None:
        """Intersect the groups of the pool's allocated devices, in order, on all nodes."""
        for device in (*pool.devices, *pool.elsewhere):
            if device.id.device not in use:
                continue
            for consumption in device.device.consumes_counters or ():
                number = self._set_number(pool_number, consumption.counter_set)
                groups = self._group_mask(consumption.compatibility_groups or ())
                common = self._common[number]
                if common == _NO_MEMBERS:
                    self._common[number] = groups
                elif _NO_GROUP not in {common, groups}:
                    # "Stays defensive for the inconsistent states that slice mutation could
                    # otherwise produce": a device with groups beside devices without changes
                    # nothing; devices without a common group admit no further device.
                    self._common[number] = common & groups

    def _find_memberships(self, pool_number: int, device: Device) -> tuple[tuple[int, int], ...]:
        """Return the groups that a device has on each counter set, by the number of the set."""
        memberships: dict[int, int] = {}
        for consumption in device.consumes_counters or ():
            number = self._set_number(pool_number, consumption.counter_set)
            memberships[number] = memberships.get(number, -1) & self._group_mask(
                consumption.compatibility_groups or ()
            )
        return tuple(memberships.items())

    def _set_number(self, pool_number: int, counter_set: str) -> int:
        number = self._sets.setdefault((pool_number, counter_set), len(self._sets))
        if number == len(self._common):
            self._common.append(_NO_MEMBERS)
        return number

    def _group_mask(self, groups: Iterable[str]) -> int:
        mask = 0
        for group in groups:
            mask |= self._bits.setdefault(group, 2 << len(self._bits))
        return mask or _NO_GROUP

    def _names(self, groups: int) -> str:
        """Return groups as a set: `{mig, soft}`; empty without any."""
        names = sorted(name for name, bit in self._bits.items() if groups & bit)
        if len(names) > _MAX_NAMED:
            names = [*names[:_MAX_NAMED], f"{len(names) - _MAX_NAMED} more"]
        return f"{{{', '.join(names)}}}" if names else ""


def _declares_groups(pool: Pool) -> bool:
    return any(
        consumption.compatibility_groups
        for device in (*pool.devices, *pool.elsewhere)
        for consumption in device.device.consumes_counters or ()
    )
