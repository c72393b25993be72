"""Constraints between the devices of a claim: matchAttribute and distinctAttribute.

The values of an attribute on a device are a set, written as a bit mask: one value for a scalar, any
number for a list. Devices match while all of them have some value in common. They are distinct
while no two of them have a value in common. A constraint never spans claims.

Source: k8s.io/dynamic-resource-allocation v0.37.1, structured/internal/experimental/constraint.go;
allocator_experimental.go, matchAttributeConstraint and lookupAttribute.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from allocator.model.attribute_values import CACHE_SIZE, LIST, Column, Values, bit_mask
from allocator.model.constraint import RemainingDemand
from allocator.model.devices import NodeDevices
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason, RejectionReason, Verb
from allocator.model.requests import PendingClaims, Request
from findings.text import count_text
from kube.api.resource import DeviceConstraint

_ANYTHING: Final = -1
"""All bits: no device has been chosen yet."""

_NamedAttribute = tuple[str, str | None]
"""The full name of an attribute, and its expression if it is derived."""


class DeviceDemand(NamedTuple):
    """The devices that a request still needs.

    Attributes:
        candidates: Mask of the positions that it can still get.
        devices: Number of devices that it needs.
    """

    candidates: int
    devices: int


def build_constraint(
    node: NodeDevices, pending: PendingClaims, features: Features
) -> "AttributeConstraints | None":
    """Build the constraints of all claims of an attempt; None if no claim has any."""
    constraints = [
        (index, constraint)
        for index, claim in enumerate(pending.claims)
        for constraint in claim.spec.devices.constraints or ()
    ]
    if not constraints:
        return None
    requests = [
        request
        for claim_requests in pending.requests
        for alternatives in claim_requests
        for request in alternatives
    ]
    return AttributeConstraints(node, constraints, requests, features)


class AttributeConstraints:
    """The values that chosen devices have in common, or have used, for each constraint."""

    def __init__(
        self,
        node: NodeDevices,
        constraints: Sequence[tuple[int, DeviceConstraint]],
        requests: Sequence[Request],
        features: Features,
    ) -> None:
        """Look up every attribute that a constraint names, on every device.

        Args:
            node: Devices of the node.
            constraints: Each constraint with the index of its claim.
            requests: All alternatives of all claims.
            features: Feature gates.
        """
        self._states: list[int] = []
        self._before: list[list[tuple[int, int]]] = []
        self._rules: list[_Rule] = []
        self._remaining: dict[RemainingDemand, tuple[int, ...]] = {}
        self._rules_of: dict[Request, list[_Rule]] = {}
        applications: list[tuple[int, bool, Request, _NamedAttribute]] = []
        for claim, constraint in constraints:
            # Both may be set by mistake; upstream reads matchAttribute first.
            attribute = constraint.match_attribute or constraint.distinct_attribute or ""
            is_distinct = constraint.match_attribute is None
            number = len(self._states)
            self._states.append(0 if is_distinct else _ANYTHING)
            for request in requests:
                if request.claim == claim and applies(constraint, request):
                    attribute_pair = (attribute, request.derived.get(attribute))
                    applications.append((number, is_distinct, request, attribute_pair))
        distinct_names = tuple(dict.fromkeys(attribute_pair for *_, attribute_pair in applications))
        table = _attribute_table(node, distinct_names, lists=features.list_type_attributes)
        for number, is_distinct, request, attribute_pair in applications:
            rule = _Rule(number, is_distinct, request, table.columns[attribute_pair])
            self._rules.append(rule)
            self._rules_of.setdefault(request, []).append(rule)
        self._all_positions = (1 << len(node.devices)) - 1
        self._values = table.values
        self._table = table
        self._shareable = table.shareable if features.consumable_capacity else 0

    def equivalence_key(self, position: int) -> Hashable:
        """Return a number for the values that a device has of all constrained attributes."""
        return self._table.keys[position]

    def add(self, request: Request, position: int, *, further_share: bool) -> bool:
        """Choose a device if all constraints of the request's claim hold with it.

        Raises:
            AttemptFailed: A derived attribute cannot be compiled or evaluated.
        """
        rules = self._rules_of.get(request)
        if rules is None:
            return True
        states = self._states
        changes = []
        for number, is_distinct, _, column in rules:
            values = column.values[position]
            if values is None:
                values = column.values_at(position)
            state = states[number]
            if is_distinct:
                if not values or state & values:
                    return False
                changes.append((number, state | values | LIST))
            else:
                common = state & values
                if not common:
                    return False
                changes.append((number, common & ~LIST))
        self._before.append([(number, states[number]) for number, _ in changes])
        for number, state in changes:
            states[number] = state
        return True

    def remove(self, request: Request, position: int, *, further_share: bool) -> None:
        """Restore the values from before the latest `add`."""
        if request in self._rules_of:
            for number, state in self._before.pop():
                self._states[number] = state

    def state_key(self) -> Hashable:
        """Return the values that chosen devices have in common, or have used."""
        return tuple(self._states)

    def residual_key(self, remaining: RemainingDemand) -> Hashable:
        """Return the states of constraints that apply to a remaining request."""
        numbers = self._remaining.get(remaining)
        if numbers is None:
            applying = {
                rule.number
                for rule in self._rules
                if (rule.request.claim, rule.request.index) >= (remaining.claim, remaining.index)
            }
            numbers = self._remaining[remaining] = tuple(sorted(applying))
        states = self._states
        return tuple([states[number] for number in numbers])

    def rejection(
        self, request: Request, position: int, *, further_share: bool
    ) -> RejectionReason | None:
        """Return the first constraint that a device would break.

        Raises:
            AttemptFailed: See `add`.
        """
        for number, is_distinct, _, column in self._rules_of.get(request, ()):
            values, state = column.values_at(position), self._states[number]
            text = self._values.format
            subject, value, remark = column.attribute, text(values), ""
            if not values:
                subject, value = "no attribute", column.attribute
            elif is_distinct and state & values:
                value, remark = text(state & values), "as another chosen device"
            elif not is_distinct and not state & values:
                remark = f"chosen devices have {text(state) if state else 'nothing in common'}"
            else:
                continue
            return RejectionReason(
                reason=Reason.CONSTRAINT,
                verb=Verb.HAVE,
                subject=subject,
                value=value,
                remark=remark,
            )
        return None

    def constrains(self, request: Request) -> bool:
        """Return True if a constraint applies to a request."""
        return request in self._rules_of

    @property
    def is_order_sensitive(self) -> bool:
        """Return True if the verdict depends on the order of devices.

        While list attributes are disabled, distinctAttribute accepts a device with a list only as
        the first device.
        """
        return any(rule.is_distinct and rule.column.positions.get(LIST) for rule in self._rules)

    def failing_positions(self, request: Request) -> int:
        """Return a mask of the positions that make `add` raise."""
        mask = 0
        for rule in self._rules_of.get(request, ()):
            mask |= rule.column.failing
        return mask

    # --- pruning ----------------------------------------------------------------------------------

    def allowed_positions(self, request: Request) -> int:
        """Return a mask of the positions that `add` would accept now.

        It includes devices whose derived attribute cannot be evaluated: choosing one is an error.
        """
        allowed_mask = self._all_positions
        for number, is_distinct, _, column in self._rules_of.get(request, ()):
            state = self._states[number]
            if is_distinct:
                matching_mask = (
                    column.valued & ~column.positions_with(state) if state else column.valued
                )
            else:
                matching_mask = (
                    column.valued if state == _ANYTHING else column.positions_with(state)
                )
            allowed_mask &= matching_mask | column.failing
        return allowed_mask

    def infeasibility(self, needs: Mapping[Request, DeviceDemand]) -> RejectionReason | None:
        """Return the reason no choice of candidates satisfies the constraints; None if one may.

        This is a necessary condition, found by counting and not by search. In mode All upstream
        reports a broken constraint as an error, so leave such requests out.

        Args:
            needs: Each remaining request, or alternative, with the devices that it needs.
        """
        by_constraint: dict[int, list[tuple[_Rule, DeviceDemand]]] = {}
        for rule in self._rules:
            need = needs.get(rule.request)
            if need is not None and need.devices > 0:
                by_constraint.setdefault(rule.number, []).append((rule, need))
        for number, demands in by_constraint.items():
            is_distinct = demands[0][0].is_distinct
            find_conflict = self._find_indistinct if is_distinct else self._find_unmatchable
            rejection = find_conflict(self._states[number], demands)
            if rejection is not None:
                return rejection
        return None

    def _find_unmatchable(
        self, state: int, demands: "list[tuple[_Rule, DeviceDemand]]"
    ) -> RejectionReason | None:
        """Return the reason too few candidates have a value in common; None if enough have."""
        total, most = sum(need.devices for _, need in demands), 0
        values = [
            value for rule, need in demands for value in rule.column.values_among(need.candidates)
        ]
        # Last without a value: that counts no more devices than any value does.
        for value in (*dict.fromkeys(values), 0):
            if not value or (state & value and (value != LIST or total == 1)):
                most = max(most, self._max_matching(demands, value))
                if most >= total:
                    return None
        attribute = demands[0][0].column.attribute
        return RejectionReason(
            reason=Reason.CONSTRAINT,
            subject=f"at most {count_text(most, 'suitable device')} with the same "
            f"{attribute}, {total} requested",
        )

    def _max_matching(self, demands: "list[tuple[_Rule, DeviceDemand]]", value: int) -> int:
        """Return an upper bound for the devices with one value; 0 is a value that no device has."""
        dedicated_mask, by_shares, by_request = 0, 0, 0
        for rule, need in demands:
            column = rule.column
            matching_mask = need.candidates & (column.positions.get(value, 0) | column.failing)
            by_request += min(need.devices, matching_mask.bit_count())
            dedicated_mask |= matching_mask & ~self._shareable
            # A device that can be shared serves each request once.
            by_shares += min(need.devices, (matching_mask & self._shareable).bit_count())
        return min(by_request, by_shares + dedicated_mask.bit_count())

    def _find_indistinct(
        self, state: int, demands: "list[tuple[_Rule, DeviceDemand]]"
    ) -> RejectionReason | None:
        """Return the lack of different values for the devices; None if there are enough."""
        all_values: set[int] = set()
        failing = total = 0
        for rule, need in demands:
            column = rule.column
            values = {value for value in column.values_among(need.candidates) if not state & value}
            failing_here = need.candidates & column.failing
            all_values |= values
            failing |= failing_here
            total += need.devices
            if len(values) + failing_here.bit_count() < need.devices:
                return _too_few_values(column.attribute, len(values), need.devices)
        if not failing and len(all_values) < total:
            return _too_few_values(demands[0][0].column.attribute, len(all_values), total)
        return None


class _Rule(NamedTuple):
    """A constraint applied to one request."""

    number: int
    is_distinct: bool
    request: Request
    column: "Column"


class _AttributeTable:
    """The values of some attributes on all devices of a node.

    Attributes:
        columns: Attribute to its values.
        values: The values of all columns, which can be compared with each other.
        shareable: Mask of the devices that allow multiple allocations.
    """

    def __init__(
        self, node: NodeDevices, attributes: Iterable[_NamedAttribute], *, lists: bool
    ) -> None:
        self.values = Values(lists=lists)
        self.columns: Mapping[_NamedAttribute, Column] = {
            attribute: Column(*attribute, node.devices, self.values) for attribute in attributes
        }
        self.shareable = bit_mask(
            [device.device.allow_multiple_allocations for device in node.devices]
        )
        self._size = len(node.devices)

    @cached_property
    def keys(self) -> list[int]:
        """A number by position that devices with the same values in all columns share."""
        if not self.columns:
            return [0] * self._size
        ids: dict[Hashable, int] = {}
        keys = []
        columns = [column.values for column in self.columns.values()]
        for position, values in enumerate(zip(*columns, strict=True)):
            # The error message of a failing attribute names the device, so the device is unique.
            key: Hashable = (None, position) if None in values else values
            keys.append(ids.setdefault(key, len(ids)))
        return keys


@lru_cache(maxsize=CACHE_SIZE)
def _attribute_table(
    node: NodeDevices, attributes: tuple[_NamedAttribute, ...], *, lists: bool
) -> _AttributeTable:
    return _AttributeTable(node, attributes, lists=lists)


def applies(constraint: DeviceConstraint, request: Request) -> bool:
    """Return True if a constraint of its claim names the request or its parent."""
    names = constraint.requests
    if not names:
        return True
    if request.parent is None:
        return request.name in names
    return request.parent in names or request.full_name in names


def _too_few_values(attribute: str, count: int, needed_count: int) -> RejectionReason:
    values = count_text(count, "distinct value")
    return RejectionReason(
        reason=Reason.CONSTRAINT,
        subject=f"suitable devices have only {values} of {attribute}, {needed_count} requested",
    )
