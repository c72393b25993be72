"""The decision about a group of pods: nodes and devices for enough members, or the reason there are none.

A greedy placement is tried first, and searched on from where it is not enough. Whether the group fits does not depend on
the arrangement, the order of members or the device that some member would have taken first. So it also fits where
upstream, which places pod after pod, turns it away (kubernetes/kubernetes#138765).

With a budget there is no greedy placement: the nodes where members take least of it come first in the search.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from allocator.cluster.cluster import Cluster
from allocator.groups.assignment import assign_members, node_share
from allocator.groups.backtracking import Backtracking, without_surplus
from allocator.groups.budget import Amounts
from allocator.groups.feasibility import CandidateNode, Feasibility
from allocator.groups.greedy import in_order_of_preference, place_greedily
from allocator.groups.kinds import Counts, group_kinds
from allocator.groups.linked_nodes import LinkedNodes
from allocator.groups.model import (
    GROUP_BUDGET,
    MAX_MEMBERS,
    Arrangement,
    GroupDoesNotFit,
    GroupOutcome,
    GroupPlan,
    GroupQuestion,
    GroupUndecided,
    MissingLabel,
)
from allocator.groups.scoring import placement_score
from allocator.model.plan import Budget

_IMPROVEMENT: Final = 8
"""The part of a budget, as a divisor, for members beyond those that the group needs."""
_WHOLE: Final = 1_000_000
"""The whole of an amount that members may take."""


def decide_group(
    cluster: Cluster, question: GroupQuestion, budget: Budget = GROUP_BUDGET
) -> GroupOutcome:
    """Place the members of a group that have no node; the cluster stays as it is.

    Raises:
        AttemptFailed: The claims of a member are invalid, or the group does not fit and some node ends the
            attempt with an error.
        AnswerInterrupted: There is no outcome, for the reason that the class of the error says.
    """
    return GroupSearch(cluster, question).decide(budget)


class GroupSearch:
    """A decision about a group that goes on from the end of its last budget.

    It holds as long as neither the cluster nor the resources of its nodes change. After an AnswerInterrupted
    it has to be begun anew.
    """

    def __init__(self, cluster: Cluster, question: GroupQuestion) -> None:
        """Begin a decision.

        Args:
            cluster: The devices and what is in use, with the members that are placed.
            question: The group, of at most MAX_MEMBERS members.
        """
        if len(question.members) > MAX_MEMBERS:
            raise ValueError(f"a group has at most {MAX_MEMBERS} members")
        self._cluster = cluster
        self._question = question
        self._kinds, shared_claims = group_kinds(question.members, cluster.options)
        self._counts: Counts = tuple([len(kind.members) for kind in self._kinds])
        self._feasibility = Feasibility(cluster, question, self._kinds)
        self._linked = LinkedNodes(cluster, self._kinds, shared_claims, question)
        self._searches: tuple[Backtracking, ...] | None = None
        self._domains: Mapping[str, str] = {}
        self._candidates: Sequence[CandidateNode] = ()

    def decide(self, budget: Budget = GROUP_BUDGET) -> GroupOutcome:
        """Search on; arguments and errors as of `decide_group`."""
        before = self._cost()
        limit = before + budget.steps
        if self._searches is None:
            self._searches = self._begin(limit)
        total, needed = len(self._question.members), self._question.missing
        enough = [search for search in self._searches if search.placed >= max(needed, 1)]
        if not enough:
            for search in self._searches:
                search.run(max(needed, 1), limit)
                if search.placed >= max(needed, 1):
                    enough.append(search)
                    break
        # The groups that get by with fewer members have the more of them the better, but not at any cost: in the
        # place that has room for those that are needed, or in another one.
        if enough:
            improvement_limit = min(limit, self._cost() + budget.steps // _IMPROVEMENT)
            for search in (enough[0], *self._searches):
                if max(other.placed for other in self._searches) < total:
                    search.run(total, improvement_limit)
        best = max(self._searches, key=lambda search: search.placed, default=None)
        plan = self._plan(best) if best is not None else self._empty_plan()
        if len(plan.nodes) >= needed:
            return plan
        return self._rejected(plan, needed, limit)

    def _rejected(
        self, closest: GroupPlan, needed: int, limit: int
    ) -> GroupDoesNotFit | GroupUndecided:
        searches = self._searches or ()
        steps = self._cost()
        is_impossible = all(search.upper_bound < needed for search in searches)
        if self._feasibility.error is not None:
            raise self._feasibility.error.without_traceback()
        why = ""
        if self._feasibility.is_cut_off:
            why = "the search of a node was cut off by its budget"
        elif not is_impossible and not all(search.is_complete for search in searches):
            why = f"the search ended after {steps:,} steps"
        elif not is_impossible and not self._linked.is_exact:
            why = "not every way to share the devices that several nodes see was tried"
        if why:
            is_final = steps <= limit
            return GroupUndecided(
                closest=closest, needed=needed, why=why, steps=steps, is_final=is_final
            )
        return GroupDoesNotFit(
            closest=closest,
            needed=needed,
            steps=steps,
            has_other_drivers=self._feasibility.has_other_drivers,
            missing_label=self._missing_label(closest, limit),
        )

    def _missing_label(self, closest: GroupPlan, limit: int) -> MissingLabel | None:
        """Return the nodes that lack the label of a group that needs one value of it, as far as that is known soon."""
        label = self._question.domain
        if not self._question.needs_one_domain:
            return None
        if not any(label in node.labels for node in self._cluster.nodes.values()):
            return MissingLabel.ALL
        if closest.nodes or self._question.placed:
            return None
        alone = [
            tuple(int(other == kind) for other in range(len(self._kinds)))
            for kind in range(len(self._kinds))
        ]
        for node in self._candidates:
            if node.name in self._domains:
                continue
            if self._cost() > limit:
                return None
            kinds = (kind for kind, option in enumerate(node.options) if option >= 0)
            if any(self._feasibility.fits(node, alone[kind]) for kind in kinds):
                return MissingLabel.SUITABLE
        return None

    def _begin(self, limit: int) -> tuple[Backtracking, ...]:
        """Return a search for each set of nodes that may take the whole group, the most promising first."""
        candidates = self._feasibility.candidates() if self._kinds else ()
        self._candidates = candidates
        label = self._question.domain
        if label:
            self._domains = {
                node.name: value
                for node in candidates
                if (value := self._cluster.nodes[node.name].labels.get(label)) is not None
            }
        regions = tuple(self._regions(candidates))
        searches = [self._new_search(region, limit) for region in regions]
        prefers_one_domain = label and not self._question.needs_one_domain
        if prefers_one_domain and not self._question.earlier and self._question.budget is None:
            self._offer_single_domains(searches[0], candidates, limit)
        return tuple(sorted(searches, key=lambda search: -search.placed))

    def _regions(self, candidates: Sequence[CandidateNode]) -> Iterator[Sequence[CandidateNode]]:
        question = self._question
        if not question.needs_one_domain:
            yield candidates
            return
        nodes = self._cluster.nodes
        placed = {
            nodes[node].labels.get(question.domain) for node in question.placed if node in nodes
        }
        for value in sorted(set(self._domains.values())):
            if placed <= {value}:
                yield [node for node in candidates if self._domains.get(node.name) == value]

    def _new_search(self, nodes: Sequence[CandidateNode], limit: int) -> Backtracking:
        """Return a search that knows the greedy placement already, unless there is a budget."""
        arrangement = self._question.arrangement
        useful_nodes = without_surplus(
            nodes, len(self._question.members), {*self._earlier(), *self._question.placed}
        )
        ordered_nodes = in_order_of_preference(
            useful_nodes, self._counts, self._feasibility, arrangement=arrangement, limit=limit
        )
        if self._question.budget is not None:
            ordered_nodes = self._cheapest_first(ordered_nodes, limit)
        search = Backtracking(ordered_nodes, self._counts, self._feasibility, self._linked)
        if self._question.budget is None:
            search.offer(self._greedy(ordered_nodes, arrangement, limit))
        else:
            search.disregard(max(self._question.missing, 1) - 1)
        return search

    def _cheapest_first(
        self, nodes: Sequence[CandidateNode], limit: int
    ) -> tuple[CandidateNode, ...]:
        """Return the nodes in order of the least part of the budget that a member of each kind takes."""

        def price(node: CandidateNode) -> int:
            return sum(
                _WHOLE if amounts is None else _part(amounts, self._linked.left)
                for amounts in self._linked.least(node, limit)
            )

        return tuple(sorted(nodes, key=price))

    def _greedy(
        self, nodes: Sequence[CandidateNode], arrangement: Arrangement, limit: int
    ) -> Mapping[str, Counts]:
        independent_nodes = [node for node in nodes if not node.is_linked]
        return place_greedily(
            independent_nodes,
            self._counts,
            self._feasibility,
            arrangement=arrangement,
            limit=limit,
            earlier=self._earlier(),
            before=Counter(self._question.placed),
        )

    def _offer_single_domains(
        self, search: Backtracking, candidates: Sequence[CandidateNode], limit: int
    ) -> None:
        """Offer the placement of the whole group in one domain, with the best score."""
        placements: list[tuple[int, str, Mapping[str, Counts]]] = []
        for value in sorted(set(self._domains.values())):
            nodes = [node for node in candidates if self._domains.get(node.name) == value]
            arrangement = self._question.arrangement
            ordered_nodes = in_order_of_preference(
                nodes, self._counts, self._feasibility, arrangement=arrangement, limit=limit
            )
            placement = self._greedy(ordered_nodes, arrangement, limit)
            if sum(map(sum, placement.values())) == len(self._question.members):
                members = assign_members(
                    self._kinds, placement, (0,) * len(self._kinds), self._question.earlier
                )
                score = self._score(
                    {member.name: node for node, own in members.items() for member in own}
                )
                placements.append((-score, value, placement))
        if placements:
            *_, placement = min(placements, key=lambda entry: entry[:2])
            search.replace(placement)

    def _earlier(self) -> Mapping[str, Counts]:
        """Return node to members of each kind in the earlier plan."""
        placement: dict[str, list[int]] = {}
        for index, kind in enumerate(self._kinds):
            for member in kind.members:
                node = self._question.earlier.get(member.name)
                if node is not None and node in kind.option_of:
                    placement.setdefault(node, [0] * len(self._kinds))[index] += 1
        return {node: tuple(counts) for node, counts in placement.items()}

    # --- plans -----------------------------------------------------------------------------------

    def _plan(self, search: Backtracking) -> GroupPlan:
        state = search.best_state
        shares = list(state.shares)
        linked_nodes = {share.node for share in shares}
        placement = {
            node: counts for node, counts in search.best.items() if node not in linked_nodes
        }
        members = assign_members(self._kinds, placement, state.placed, self._question.earlier)
        shares += [
            node_share(self._cluster, self._kinds, node, own, self._question)
            for node, own in members.items()
        ]
        nodes = {name: share.node for share in shares for name in share.members}
        names = [member.name for member in self._question.members]
        placed = {name: nodes[name] for name in names if name in nodes}
        return GroupPlan(
            shares=tuple(shares),
            nodes=placed,
            unplaced=tuple(name for name in names if name not in nodes),
            score=self._score(placed),
            steps=self._cost(),
        )

    def _empty_plan(self) -> GroupPlan:
        names = tuple(member.name for member in self._question.members)
        return GroupPlan(unplaced=names, steps=self._cost())

    def _score(self, nodes: Mapping[str, str]) -> int:
        before = {f"#{number}": node for number, node in enumerate(self._question.placed)}
        domains = {} if self._question.needs_one_domain else self._domains
        return placement_score({**before, **nodes}, domains, self._question.arrangement)

    # --- cost ------------------------------------------------------------------------------------

    def _cost(self) -> int:
        own = sum(search.steps for search in self._searches or ())
        return own + self._feasibility.steps + self._linked.steps


def _part(amounts: Amounts, left: Amounts) -> int:
    """Return the largest part of the amounts left, in millionths."""
    parts = [_WHOLE * amount // max(1, most) for amount, most in zip(amounts, left, strict=True)]
    return max(parts, default=0)
