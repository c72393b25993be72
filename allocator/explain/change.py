"""Changes to claims, and the closest fit that they make."""

from typing import Final

import msgspec

from allocator.explain.relaxation import Kind
from allocator.explain.selector import one_line
from findings.field_path import FieldPath
from findings.fitting import OtherValue
from findings.text import count_text
from kube.api.resource import ResourceClaim
from kube.quantity import Quantity

_MAX_CHANGES: Final = 4
_MAX_CHANGE: Final = 400
"""The length of a change in words: an attribute with its domain and the names of a few requests."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change to a claim.

    Attributes:
        claim: `namespace/name`.
        request: `name`, or `parent/name` of an alternative; empty for a constraint.
        detail: The change in the imperative: `request 2 devices`.
        cost: The cost of the change, as in `allocator.explain.relaxations`.
        position: The index of the claim among all claims of the attempt.
        field: The field below the claim's devices that gets `amount`, or the constraint; None of other
            changes.
        amount: The count, or the amount of a capacity, to request.
        value: The value that a selector is to require instead of another; None for other changes.
        taints: The keys of the taints to tolerate; none for other changes.
    """

    claim: str
    request: str
    kind: Kind
    detail: str
    cost: int
    position: int = 0
    field: FieldPath | None = None
    amount: Quantity | None = None
    value: OtherValue | None = None
    taints: tuple[str, ...] = ()


def chosen_by(change: Change, claim: ResourceClaim) -> FieldPath | None:
    """Return the field of a change's claim with the choice of devices that it widens; None for other changes."""
    if change.kind is Kind.CONSTRAINT:
        return change.field
    names = [request.name for request in claim.spec.devices.requests or ()]
    if change.kind is not Kind.SELECTOR or change.request not in names:
        return None
    return FieldPath.of("requests", names.index(change.request), "exactly", "selectors")


class ClosestFit(msgspec.Struct, frozen=True, kw_only=True):
    """Claims that fit a node, and the changes that make them fit.

    Attributes:
        changes: The changes, by claim; empty where the claims fit unchanged.
        claims: All claims of the attempt, in order, changed.
        node: The node that the changed claims fit.
        fix_in_keys: The changes as values of the keys that requested the claims; empty where the author
            of the pod wrote claims.
        pods: The number of equal pods of a group that all are to be changed; 0 for a pod on its own.
        alternative: A change that is enough as well: one of the same cost to another request, or without
            that a constraint that is dropped instead of smaller requests or other devices; None without one.
        smaller_group: A change of the group to fewer pods that loses less, in the imperative; empty
            without one.
    """

    changes: tuple[Change, ...]
    claims: tuple[ResourceClaim, ...]
    node: str
    fix_in_keys: str = ""
    pods: int = 0
    alternative: "ClosestFit | None" = None
    smaller_group: str = ""

    @property
    def cost(self) -> int:
        """The sum of the costs of all changes."""
        return sum(change.cost for change in self.changes)

    @property
    def keeps_kinds(self) -> bool:
        """True if its devices are of the kind that was requested; so if nothing is changed."""
        return self.only_lowers_amounts or self.only_drops_constraints

    @property
    def only_lowers_amounts(self) -> bool:
        """True if all changes are smaller numbers; so if there are none."""
        return all(change.amount is not None for change in self.changes)

    @property
    def only_drops_constraints(self) -> bool:
        """True if all changes are to constraints; so if there are none."""
        return all(change.kind is Kind.CONSTRAINT for change in self.changes)

    @property
    def only_changes_selectors(self) -> bool:
        """True if all changes select other devices; so if there are none."""
        return all(change.kind is Kind.SELECTOR for change in self.changes)

    @property
    def drops_constraint_instead(self) -> bool:
        """True if the alternative to smaller numbers is to drop a constraint."""
        other = self.alternative
        return self.only_lowers_amounts and other is not None and other.only_drops_constraints

    @property
    def summary(self) -> str:
        """The changes and the node: `request 2 devices (node-a)`; without the alternative."""
        return f"{self._description() or 'unchanged'} ({one_line(self.node)})"

    @property
    def fix(self) -> str:
        """The changes as a fix: `request 2 devices to fit node node-a`, and the others."""
        first = f"{self.smaller_group}, or " if self.smaller_group else ""
        other = f", or {self.alternative.fix}" if self.alternative is not None else ""
        return f"{first}{self._own_fix}{other}"

    @property
    def _own_fix(self) -> str:
        """The changes as a fix, without the alternative."""
        if self.fix_in_keys:
            return self.fix_in_keys
        node = f"node {one_line(self.node)}"
        changes = self._description()
        if self.pods:
            return f"{changes}{self.in_all_pods}"
        return f"{changes} to fit {node}" if changes else f"fits {node} unchanged"

    @property
    def in_all_pods(self) -> str:
        """The words after changes to all pods of a group; empty for a pod on its own."""
        return f" in each of the {self.pods} pods" if self.pods else ""

    def _description(self) -> str:
        names_claim = len(self.claims) > 1
        places = {(change.claim, change.request) for change in self.changes}
        names_request = len(places) > 1 or any(
            len(claim.spec.devices.requests or ()) > 1 for claim in self.claims
        )
        parts = []
        for change in self.changes[:_MAX_CHANGES]:
            is_named = change.request and (names_request or "/" in change.request)
            places_named = [f"request {change.request}"] if is_named else []
            places_named += [f"claim {change.claim}"] if names_claim else []
            where = f" in {' of '.join(places_named)}" if places_named else ""
            parts.append(one_line(change.detail + where, _MAX_CHANGE))
        more = len(self.changes) - len(parts)
        parts += [count_text(more, "more change")] if more else []
        return ", ".join(parts)
