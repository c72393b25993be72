"""The verdicts about the nodes of a cluster, one per equivalence class."""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from allocator.cluster.equivalence import Projection
from allocator.model.devices import NodeDevices
from allocator.model.outcome import BudgetExhausted, DoesNotFit
from allocator.model.plan import Choice, Plan
from allocator.model.requests import PendingClaims

Outcome = Plan | DoesNotFit | BudgetExhausted


ClassKey = tuple[int, int, int, int]
"""Numbers of the published key of a node, of the use of its own pools, of its projected key, and of its
shared pools; 0 for no use, and for no shared pool."""

ClassState = tuple[int, int, int, int]
"""The key of a class, with the number of the use of its shared pools instead of that of the pools."""


class FeasibilityKey(NamedTuple):
    """A node's key for some claims: equal for nodes with room for equal numbers of them.

    Attributes:
        sees_shared_pools: Other nodes may see devices that the claims can get here.
    """

    devices: Hashable
    sees_shared_pools: bool


class CachedVerdict(NamedTuple):
    """An outcome for equal questions, the score, the node that was searched, and its state then.

    The requests in a plan are those of the question that was asked first.
    """

    outcome: Outcome
    score: int
    representative: NodeDevices
    state: ClassState

    @property
    def steps(self) -> int:
        """Cost of the search."""
        return self.outcome.steps


class ClassVerdict(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The outcome for the nodes of one class.

    Attributes:
        found: The outcome for an equal question; a plan names the devices of `representative`.
        pending: The claims that were asked about.
        score: Score of the strategy from 0 to 100; 0 if the claims do not fit.
        representative: The node that was searched.
        nodes: All nodes of the class, by name; valid until the cluster changes.
        same_order: The plan holds for all nodes of the class by position. Otherwise it is that of a
            node with the same devices in another order, and the plan of a node needs a search.
        steps: Cost of the search, at least 1; 0 if the verdict was cached.
    """

    found: Outcome
    pending: PendingClaims
    score: int
    representative: NodeDevices
    nodes: Collection[str]
    same_order: bool = True
    steps: int = 0

    @property
    def outcome(self) -> Outcome:
        """The outcome, with the requests of the claims.

        It is made when it is asked for, since few of a cluster's classes are looked at.
        """
        return (
            assign_requests(self.found, self.pending)
            if isinstance(self.found, Plan)
            else self.found
        )


Usable = Callable[[str], bool]
"""Returns whether a node counts."""


def every_node(_name: str) -> bool:
    """Return True."""
    return True


class NodePlans(NamedTuple):
    """The verdicts about all nodes by class, valid until the cluster changes.

    Attributes:
        class_of: Node to its class.
        verdicts: Class to its verdict; the plan is for the node that was searched.
    """

    class_of: Mapping[str, ClassKey]
    verdicts: Mapping[ClassKey, CachedVerdict]

    def fitting(self, node: str) -> CachedVerdict | None:
        """Return the verdict about a node; None if the claims do not fit."""
        verdict = self.verdicts.get(self.class_of[node])
        return verdict if verdict is not None and isinstance(verdict.outcome, Plan) else None


class Verdicts(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The verdict about every node, valid until the cluster changes.

    Attributes:
        equivalence_keys: Projection to the class of each node by name; divides classes further.
        search: Search of one node; used if the plan of its class has another order.
    """

    classes: tuple[ClassVerdict, ...]
    devices: Mapping[str, NodeDevices]
    equivalence_keys: Callable[[Projection], Mapping[str, Hashable]] = lambda _projection: {}
    search: Callable[[str], Outcome] | None = None

    def __iter__(self) -> Iterator[tuple[str, Outcome, int]]:
        """Yield name, outcome and score of each node; the nodes of a class are adjacent."""
        for verdict in self.classes:
            outcome = verdict.outcome
            for node in verdict.nodes:
                yield node, outcome, verdict.score

    def plan(self, node: str) -> Plan | None:
        """Return the plan for a node; None if the claims do not fit."""
        for verdict in self.classes:
            if node in verdict.nodes:
                outcome = verdict.outcome
                if not verdict.same_order and self.search is not None:
                    outcome = self.search(node)
                if not isinstance(outcome, Plan):
                    return None
                if not verdict.same_order:
                    return outcome
                return transfer_plan(outcome, verdict.representative, self.devices[node])
        return None


def transfer_plan(plan: Plan, representative: NodeDevices, node: NodeDevices) -> Plan:
    """Return the plan for another node of the same class: the same positions on that node."""
    if representative is node:
        return plan

    def transfer(choice: Choice) -> Choice:
        position = representative.positions[choice.device.id]
        return msgspec.structs.replace(choice, device=node.devices[position])

    choices = tuple([tuple([transfer(choice) for choice in claim]) for claim in plan.choices])
    return msgspec.structs.replace(plan, node=node.node, choices=choices)


def assign_requests(plan: Plan, pending: PendingClaims) -> Plan:
    """Return the plan of an equal question with the requests of these claims.

    Args:
        plan: The plan.
        pending: Claims that differ from those of the plan in names at most, by position.
    """

    def assign(choice: Choice) -> Choice:
        claim, index = choice.request.claim, choice.request.index
        request = pending.requests[claim][index][plan.alternatives[claim][index]]
        return msgspec.structs.replace(choice, request=request)

    choices = tuple([tuple([assign(choice) for choice in claim]) for claim in plan.choices])
    return msgspec.structs.replace(plan, choices=choices)
