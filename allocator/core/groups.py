"""Compatibility groups: which partitions may share one counter set (KEP-5963, alpha in 1.37).

All devices on a counter set have at least one group in common, or none of them has any. That is
one running intersection and no comparison of pairs: {a,b}, {b,c}, {a,c} overlap pairwise, and the
third is refused. Groups are read from the slices as they are now, not as they were at allocation;
the KEP's copy in the allocation result does not exist in 1.37.1.

Source: k8s.io/dynamic-resource-allocation v0.37.1,
structured/internal/experimental/compatibility_groups.go;
allocator_experimental.go, checkAndConsumeCompatibilityGroups.
"""

from collections.abc import Hashable, Iterable
from typing import Final

from allocator.core.model import Features, NodeDevices, Pool, PoolUse, Request, Usage
from allocator.core.outcome import Reason, Refusal
from allocator.core.tracker import Ahead
from kube.api.resource import Device

# Sets of groups are bit masks. Having no group is a group of its own, so that devices without
# groups go together with each other and with nobody else.
_NO_GROUP: Final = 1
_NO_MEMBERS: Final = -1  # All bits: whoever comes first is admitted, and replaces it.
_NOTHING: Final[PoolUse] = {}
_SHOWN: Final = 5


def tracker(
    node: NodeDevices, usage: Usage, features: Features, governed: frozenset[str] = frozenset()
) -> "Groups | None":
    """Return the tracker of an attempt; None when no device near the node declares groups.

    Args:
        governed: Drivers of which a policy of ours judges the groups, more strictly than this.
    """
    judged = [pool for pool in node.pools if pool.id.driver not in governed]
    if not features.compatibility_groups or not any(map(_declares_groups, judged)):
        return None
    return Groups(node, usage, governed)


class Groups:
    """What the members of each counter set have in common, members of this attempt included."""

    def __init__(
        self, node: NodeDevices, usage: Usage, governed: frozenset[str] = frozenset()
    ) -> None:
        """Fold what allocated devices have in common, pool by pool."""
        self._bits: dict[str, int] = {}
        self._sets: dict[tuple[int, str], int] = {}
        self._common: list[int] = []
        self._before: list[list[tuple[int, int]]] = []
        for number, pool in enumerate(node.pools):
            self._fold(number, pool, usage.pools.get(pool.id, _NOTHING))
        self._joins = [
            () if each.id.driver in governed else self._joined(pool, each.device)
            for pool, each in zip(node.pool_of, node.devices, strict=True)
        ]
        numbers: dict[Hashable, int] = {}
        self._ahead: dict[Ahead, tuple[int, ...]] = {}
        self._sees = [numbers.setdefault(joins, len(numbers)) for joins in self._joins]

    def sees(self, position: int) -> Hashable:
        """Return which groups a device brings to which counter set, as a number."""
        return self._sees[position]

    def add(self, request: Request, position: int, *, further_share: bool) -> bool:  # noqa: ARG002
        """Put a device on its counter sets if it has something in common with their members."""
        joins = self._joins[position]
        if further_share or not joins:
            return True
        common = self._common
        for number, groups in joins:
            if not common[number] & groups:
                return False
        self._before.append([(number, common[number]) for number, _ in joins])
        for number, groups in joins:
            common[number] &= groups
        return True

    def undo(self, request: Request, position: int, *, further_share: bool) -> None:  # noqa: ARG002
        """Restore what the members had in common before the latest `add`."""
        if not further_share and self._joins[position]:
            for number, before in self._before.pop():
                self._common[number] = before

    def state(self) -> Hashable:
        """Return what the members of each counter set have in common."""
        return tuple(self._common)

    def outlook(self, ahead: Ahead) -> Hashable:
        """Return what members have in common of the counter sets that devices ahead join."""
        numbers = self._ahead.get(ahead)
        if numbers is None:
            joined = {
                number
                for position, joins in enumerate(self._joins)
                if ahead.positions >> position & 1
                for number, _ in joins
            }
            numbers = self._ahead[ahead] = tuple(sorted(joined))
        common = self._common
        return tuple([common[number] for number in numbers])

    def refusal(self, request: Request, position: int, *, further_share: bool) -> Refusal | None:  # noqa: ARG002
        """Return on which counter set a device has nothing in common with the members."""
        for number, groups in () if further_share else self._joins[position]:
            common = self._common[number]
            if not common & groups:
                name = next(name for (_, name), each in self._sets.items() if each == number)
                detail = (
                    f"on counter set {name}: {self._shown(groups)} beside {self._shown(common)}"
                )
                return Refusal(reason=Reason.GROUPS, detail=detail)
        return None

    def _fold(self, pool_number: int, pool: Pool, use: PoolUse) -> None:
        """Take account of the pool's allocated devices, in order, here and elsewhere."""
        for each in (*pool.devices, *pool.elsewhere):
            if each.id.device not in use:
                continue
            for taken in each.device.consumes_counters or ():
                number = self._number(pool_number, taken.counter_set)
                groups = self._mask(taken.compatibility_groups or ())
                common = self._common[number]
                if common == _NO_MEMBERS:
                    self._common[number] = groups
                elif _NO_GROUP not in {common, groups}:
                    # "Stays defensive for the inconsistent states that slice mutation could
                    # otherwise produce": members with groups beside members without change nothing,
                    # members with nothing in common admit nobody.
                    self._common[number] = common & groups

    def _joined(self, pool_number: int, device: Device) -> tuple[tuple[int, int], ...]:
        """Return the groups that a device brings to each counter set, by the set's number."""
        joins: dict[int, int] = {}
        for taken in device.consumes_counters or ():
            number = self._number(pool_number, taken.counter_set)
            joins[number] = joins.get(number, -1) & self._mask(taken.compatibility_groups or ())
        return tuple(joins.items())

    def _number(self, pool_number: int, counter_set: str) -> int:
        number = self._sets.setdefault((pool_number, counter_set), len(self._sets))
        if number == len(self._common):
            self._common.append(_NO_MEMBERS)
        return number

    def _mask(self, groups: Iterable[str]) -> int:
        mask = 0
        for group in groups:
            mask |= self._bits.setdefault(group, 2 << len(self._bits))
        return mask or _NO_GROUP

    def _shown(self, groups: int) -> str:
        names = sorted(name for name, bit in self._bits.items() if groups & bit)
        if not names:
            return "devices without groups" if groups & _NO_GROUP else "no common group"
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return f"groups {', '.join(names[:_SHOWN])}{more}"


def _declares_groups(pool: Pool) -> bool:
    return any(
        taken.compatibility_groups
        for each in (*pool.devices, *pool.elsewhere)
        for taken in each.device.consumes_counters or ()
    )
