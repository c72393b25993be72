"""Feasibility of some members of each kind on one node together: devices, CPU and memory.

Claims of several pods on one node are one attempt of the allocator, so that the devices of one member are chosen
with those of the others in view. Nodes of one equivalence class share the answers, and so do kinds of members that
differ in CPU and memory alone.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Final, NamedTuple

from allocator.cluster.cluster import Cluster
from allocator.cluster.verdicts import FeasibilityKey
from allocator.groups.kinds import Counts, MemberKind, claims_of, without_resources
from allocator.groups.model import GroupQuestion
from allocator.groups.shared_pools import without_shared_devices
from allocator.model.outcome import AttemptFailed, BudgetExhausted, DoesNotFit
from allocator.model.plan import Plan
from allocator.nodes.node_resources import NodeResources
from allocator.nodes.resources_fit import has_resources, have_resources, most_equal_pods
from allocator.search.search import DEFAULT_BUDGET, allocate
from kube.api.meta import encode
from kube.cel.scope import current_scope

KINDS_PER_STEP: Final = 64
"""Kinds of members whose numbers are compared in a step."""
_UNLIMITED: Final = NodeResources()


class CandidateNode(NamedTuple):
    """A node that some members may use.

    Attributes:
        place: Equal for nodes with equal options on which equal numbers of members find devices, and take
            equal amounts of the group's budget.
        options: The option of each kind that holds here; -1 for kinds that may not use it.
        headroom: Equal for nodes with equal resources in use.
        is_linked: True if an allocation here may matter on other nodes: devices that several nodes see, or
            a claim of several members.
    """

    name: str
    place: int
    options: tuple[int, ...]
    headroom: Hashable
    is_linked: bool

    @property
    def key(self) -> Hashable:
        """Equal for nodes that nothing tells apart."""
        return self.place, self.headroom


class NodeLoad(NamedTuple):
    """Some members that fit together on a node.

    Attributes:
        counts: Members by the number of their claims and nodes.
        resources: The resources of the node with these members; None where they do not count.
    """

    counts: Counts
    resources: NodeResources | None


class Feasibility:
    """The answers about single nodes, kept for one state of a cluster.

    Attributes:
        steps: Cost of the answers so far.
        error: The first error of a node, which then counts as one without devices.
        is_cut_off: The search of some node was given up, so it may have devices.
        has_other_drivers: Some node has devices of drivers only that may not be given.
    """

    def __init__(
        self, cluster: Cluster, question: GroupQuestion, kinds: Sequence[MemberKind]
    ) -> None:
        self.steps = 0
        self.error: AttemptFailed | None = None
        self.is_cut_off = False
        self.has_other_drivers = False
        self._cluster = cluster
        self._question = question
        self._kinds = kinds
        self._kinds_of_claims = without_resources(kinds)
        self._compared = 0
        self._places: dict[Hashable, int] = {}
        self._fits: dict[Hashable, bool] = {}
        self._most_alone: dict[Hashable, int] = {}
        # The members of a kind that are known to find devices, and whether no more do.
        self._most_known: dict[Hashable, tuple[int, bool]] = {}

    def candidates(self) -> tuple[CandidateNode, ...]:
        """Return the nodes that members may use, by name.

        Raises:
            AttemptFailed: The claims are invalid on every node.
            AnswerInterrupted: The equivalence class of a node is not known yet.
        """
        claims = {
            id(option): claims_of((kind,), (1,), option.nodes[0])
            for kind in self._kinds
            for option in kind.options
            if option.nodes
        }
        pending = self._cluster.resolve([claim for own in claims.values() for claim in own])
        keys = self._cluster.feasibility_keys(pending)
        names = sorted({name for kind in self._kinds for name in kind.option_of})
        return tuple(self._candidate(name, keys[name]) for name in names if name in keys)

    def fits(self, node: CandidateNode, counts: Counts) -> bool:
        """Return True if members of each kind fit together on a node as it is."""
        self.compare(len(counts))
        # What is known of a class of nodes costs less than a sum, and a sum less than a search.
        claims_counts = self._by_claims(counts)
        if self._fits.get((node.place, claims_counts)) is False:
            return False
        return self._has_resources(node, counts) and self._has_devices(node, claims_counts)

    def compare(self, kinds: int) -> None:
        """Count a comparison of the numbers of members of so many kinds."""
        steps, self._compared = divmod(self._compared + kinds, KINDS_PER_STEP)
        if steps:
            self.steps += steps
            current_scope().meter.count(steps)

    def empty(self, node: CandidateNode) -> NodeLoad:
        """Return no members as a load of a node."""
        return NodeLoad((0,) * len(self._kinds_of_claims), self._resources(node))

    def load(self, node: CandidateNode, counts: Counts) -> NodeLoad:
        """Return the load of a node by members that fit there."""
        resources = self._resources(node)
        for kind, count in zip(self._kinds, counts, strict=True):
            if resources is not None and count and kind.request is not None:
                resources = resources.with_pods(kind.request, count)
        return NodeLoad(self._by_claims(counts), resources)

    def with_member(self, node: CandidateNode, load: NodeLoad, kind: int) -> NodeLoad | None:
        """Return a load with one more member of a kind; None if that does not fit on the node."""
        if node.options[kind] < 0:
            return None
        request, resources = self._kinds[kind].request, load.resources
        if resources is not None and request is not None:
            if not has_resources(request, resources, self._question.from_claims):
                return None
            resources = resources.with_pod(request)
        like = self._kinds[kind].like
        self.compare(len(load.counts))
        counts = (*load.counts[:like], load.counts[like] + 1, *load.counts[like + 1 :])
        return NodeLoad(counts, resources) if self._has_devices(node, counts) else None

    def most(self, node: CandidateNode, kind: int, limit: int) -> int:
        """Return the number of members of one kind that fit on an empty node, up to a limit."""
        self.compare(1)
        # CPU and memory differ from node to node, so they are divided and not tried; devices rarely differ.
        return self._most_by_devices(node, kind, self._most_by_resources(node, kind, limit))

    def most_by_devices(self, nodes: Sequence[CandidateNode]) -> int:
        """Return a number of members that no placement exceeds, as members with equal claims share devices."""
        first_kinds = {kind.like: index for index, kind in reversed([*enumerate(self._kinds)])}
        total = 0
        for like, kind in first_kinds.items():
            members, most = len(self._kinds_of_claims[like].members), 0
            for node in nodes:
                if most >= members:
                    break
                if node.options[kind] >= 0:
                    self.compare(1)
                    most += self._most_by_devices(node, kind, members)
            total += min(most, members)
        return total

    def most_alone(self, node: CandidateNode, kind: int, limit: int) -> int:
        """Count members of one kind that fit on a node without the devices that other nodes see."""
        key = (node.key, kind, limit)
        count = self._most_alone.get(key)
        if count is None:
            count = 0
            kinds = len(self._kinds)
            while count < limit and self._fits_alone(node, _counts_of(kind, count + 1, kinds)):
                count += 1
            self._most_alone[key] = count
        return count

    def _has_resources(self, node: CandidateNode, counts: Counts) -> bool:
        if any(count and option < 0 for count, option in zip(counts, node.options, strict=True)):
            return False
        resources = self._resources(node)
        if resources is None:
            return True
        pods = [
            (kind.request, count)
            for kind, count in zip(self._kinds, counts, strict=True)
            if count and kind.request is not None
        ]
        return have_resources(pods, resources, self._question.from_claims)

    def _resources(self, node: CandidateNode) -> NodeResources | None:
        """Return the resources of a node; None if they do not count."""
        resources = self._question.resources
        return None if resources is None else resources.get(node.name) or _UNLIMITED

    def _by_claims(self, counts: Counts) -> Counts:
        """Return the numbers of members by the number of their claims and nodes."""
        if len(self._kinds_of_claims) == len(self._kinds):
            return counts
        totals = [0] * len(self._kinds_of_claims)
        for kind, count in zip(self._kinds, counts, strict=True):
            totals[kind.like] += count
        return tuple(totals)

    def _most_by_resources(self, node: CandidateNode, kind: int, limit: int) -> int:
        if node.options[kind] < 0:
            return 0
        request = self._kinds[kind].request
        resources = self._resources(node)
        if resources is None or request is None:
            return limit
        return most_equal_pods(request, resources, limit, self._question.from_claims)

    def _most_by_devices(self, node: CandidateNode, kind: int, limit: int) -> int:
        like = self._kinds[kind].like
        key = (node.place, like)
        count, is_most = self._most_known.get(key, (0, False))
        if count < limit and not is_most:
            kinds = len(self._kinds_of_claims)
            while count < limit and self._has_devices(node, _counts_of(like, count + 1, kinds)):
                count += 1
            self._most_known[key] = (count, count < limit)
        return min(count, limit)

    def _has_devices(self, node: CandidateNode, counts: Counts) -> bool:
        """Return True if members find devices on a node together.

        Args:
            counts: Members by the number of their claims and nodes.
        """
        key = (node.place, counts)
        fits = self._fits.get(key)
        if fits is None:
            fits = self._fits[key] = self._search(node, counts)
        return fits

    def _search(self, node: CandidateNode, counts: Counts) -> bool:
        claims = claims_of(self._kinds_of_claims, counts, node.name)
        self.steps += 1
        current_scope().meter.count(1)
        if not claims:
            return True
        try:
            outcome = self._cluster.verdict(
                self._cluster.resolve(claims), node.name, budget=DEFAULT_BUDGET
            )
        except AttemptFailed as error:
            self.steps += error.steps
            self.error = self.error or error.without_traceback()
            return False
        self.steps += outcome.steps
        self.is_cut_off |= isinstance(outcome, BudgetExhausted)
        if not isinstance(outcome, Plan):
            return False
        may_give = self._question.may_give(outcome)
        self.has_other_drivers |= not may_give
        return may_give

    def _fits_alone(self, node: CandidateNode, counts: Counts) -> bool:
        if not self.fits(node, counts):
            return False
        devices = without_shared_devices(self._cluster.node_devices(node.name))
        pending = self._cluster.resolve(claims_of(self._kinds, counts, node.name))
        usage, options = self._cluster.usage, self._cluster.options
        self.steps += 1
        try:
            outcome = allocate(devices, pending, usage, options)
        except AttemptFailed as error:
            self.steps += error.steps
            return True  # Nothing is proved.
        self.steps += outcome.steps
        return not isinstance(outcome, DoesNotFit)

    def _candidate(self, name: str, key: FeasibilityKey) -> CandidateNode:
        options = tuple([kind.option_of.get(name, -1) for kind in self._kinds])
        resources = self._question.resources
        headroom = None if resources is None else encode(resources.get(name))
        shares_claims = any(
            option >= 0 and kind.shares_claims
            for option, kind in zip(options, self._kinds, strict=True)
        )
        is_linked = key.sees_shared_pools or shares_claims
        devices, budget = key.devices, self._question.budget
        if budget is not None:
            devices = devices, budget.form(self._cluster.node_devices(name))
        place = self._places.setdefault((devices, options), len(self._places))
        return CandidateNode(name, place, options, headroom, is_linked)


def maximal_counts(
    node: CandidateNode, remaining: Counts, feasibility: Feasibility
) -> Iterator[Counts | None]:
    """Yield the largest numbers of members that fit on a node, the most of the first kind first.

    None stands for numbers that are no larger than others, so that who counts steps can count them. A placement with fewer members on a node is never better, since what fits elsewhere beside more members
    fits there beside fewer.
    """
    largest: list[Counts] = []
    for counts in descending_counts(node, remaining, feasibility):
        if any(_covers(other, counts, feasibility) for other in largest):
            yield None
        else:
            largest.append(counts)
            yield counts


def descending_counts(
    node: CandidateNode, remaining: Counts, feasibility: Feasibility
) -> Iterator[Counts]:
    """Yield the numbers of members that fit on a node, all of them, in descending lexicographic order."""
    kinds = len(remaining)
    # Of each prefix the largest next number; a stack of prefixes instead of a loop per kind.
    stack: list[tuple[int, ...]] = [()]
    while stack:
        prefix = stack.pop()
        index = len(prefix)
        if index == kinds:
            yield prefix
            continue
        rest = (0,) * (kinds - index - 1)
        for count in range(remaining[index] + 1):
            if count and not feasibility.fits(node, (*prefix, count, *rest)):
                break
            stack.append((*prefix, count))


def _covers(larger: Counts, smaller: Counts, feasibility: Feasibility) -> bool:
    for number, (more, less) in enumerate(zip(larger, smaller, strict=True)):
        if more < less:
            feasibility.compare(number + 1)
            return False
    return True


def _counts_of(kind: int, count: int, kinds: int) -> Counts:
    return tuple([count if index == kind else 0 for index in range(kinds)])
