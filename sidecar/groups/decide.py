"""The decision about a group of pods, for the scheduler's group cycle: enough places, or the reason for none.

Whether the pods fit together is the answer of `allocator.groups`, as for `simulate`. Here is what a scheduler adds: pods
without a chance, devices that are kept for others, quotas, what nodes have left, and whether victims could help.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeGuard

import msgspec
from msgspec.structs import replace

from allocator.cluster.search_budget import ANSWER_STEPS
from allocator.groups.arrangement import arrangement_of
from allocator.groups.decide import GroupSearch
from allocator.groups.model import (
    GROUP_BUDGET,
    GroupDoesNotFit,
    GroupMember,
    GroupPlan,
    GroupQuestion,
    GroupUndecided,
    MemberOption,
)
from allocator.groups.wording import describe_counts, describe_outcome
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Budget
from allocator.nodes.amounts import ResourceAmounts
from allocator.nodes.headroom import Headroom
from allocator.nodes.node_resources import NodeResources
from allocator.nodes.pod_requests import PodRequest
from allocator.strategies.first_fit import FIRST_FIT
from kube.api.resource import ResourceClaim
from kube.cel.scope import AnswersPending, BudgetSpent, evaluating, metered
from sidecar.groups.assumptions import Assumption, assume, kept_claims, rivals_of
from sidecar.groups.budget import ChargedPlan, charge_plan, quota_budget
from sidecar.groups.candidates import Candidate, Candidates, find_candidates, find_fault
from sidecar.groups.places import GroupOutcome, Places
from sidecar.groups.searches import GroupSearches, SearchKey
from sidecar.model.protocol import GroupRequest, ResourceRequests
from sidecar.model.rejections import (
    Code,
    Rejection,
    unfinished,
    unresolvable,
    unschedulable,
    with_message,
)
from sidecar.plan.decisions import (
    EVALUATING,
    SEARCHING,
    NoDevicesNeeded,
    could_preempt,
    quota_rejection,
)
from sidecar.plan.placement import attempt_failed, choose_strategy, not_owned
from sidecar.plan.snapshot import Snapshot

ATTEMPT_BUDGET: Final = Budget(steps=10_000)
"""The cost of one attempt, some 0.2 seconds, in which nothing else is scheduled."""
MAX_STEPS: Final = GROUP_BUDGET.steps
"""Steps of all attempts of one search, as many as `simulate` takes."""
CAUSE_BUDGET: Final = Budget(steps=5_000)
"""The cost of finding out whether a group fits but for CPU and memory, or for the owners of drivers."""

TOO_SLOW: Final = "not decided: the search for devices takes too much time"
KEPT_FOR_OLDER_GROUP: Final = (
    "free devices are kept for a group that has waited for longer; this one gets devices beside them, or when the other "
    "has its own"
)
_NEVER: Final = "Never"


class Attempt(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The circumstances of a decision about a group.

    Attributes:
        version: The version of the cluster.
        searches: Keeps a search without an answer; None where there is no next attempt.
        budget: The cost of the search.
        released: Claims that are taken to be released.
        allocated: Claims that are taken to be allocated.
        closed_nodes: Nodes that no pod of the group gets.
        keeps_devices: Devices are left to nominated pods that are as important, and to groups that wait for longer.
        earlier: Pod, as `namespace/name`, to a node that it gets if it fits there.
    """

    version: int = 0
    searches: GroupSearches | None = None
    budget: Budget = ATTEMPT_BUDGET
    released: Sequence[ResourceClaim] = ()
    allocated: Sequence[ResourceClaim] = ()
    closed_nodes: frozenset[str] = frozenset()
    keeps_devices: bool = True
    earlier: Mapping[str, str] = {}


def decide(request: GroupRequest, snapshot: Snapshot, attempt: Attempt) -> GroupOutcome:
    """Return the places of a group.

    Raises:
        EvaluationAbandoned: Nobody waits for the answer any more.
    """
    try:
        return find_places(request, snapshot, attempt)
    except AnswersPending:
        return unfinished(EVALUATING)
    except BudgetSpent:
        return unfinished(SEARCHING)


def find_places(request: GroupRequest, snapshot: Snapshot, attempt: Attempt) -> GroupOutcome:
    """Return the places of a group.

    Raises:
        AnswerInterrupted: There is no answer, for the reason that the class of the error says.
    """
    fault = find_fault(request)
    if fault is not None:
        return fault
    if request.pinned:
        pinned = tuple(pod for pod in request.pods if pod.metadata.uid in request.pinned)
        request = replace(request, pods=pinned)
    others_claims = kept_claims(request, snapshot) if attempt.keeps_devices else ()
    if request.removed and not request.pinned:
        # What is free without victims comes first, so that no more of them are needed than have to be.
        earlier = _places_without_victims(request, snapshot, attempt, others_claims)
        attempt = replace(attempt, earlier=earlier)
    if not others_claims:
        return _find_places(request, snapshot, attempt)
    with_kept = replace(attempt, allocated=(*attempt.allocated, *others_claims))
    outcome = _find_places(request, snapshot, with_kept)
    if request.what_if or not _lacks_devices(outcome):
        return outcome
    # Whether it is for what is kept that the group does not fit.
    freely = replace(attempt, searches=None, budget=CAUSE_BUDGET)
    if isinstance(_find_places(request, snapshot, freely), Places):
        return replace(outcome, code=Code.KEPT_FOR_GROUP, message=KEPT_FOR_OLDER_GROUP)
    return outcome


def _lacks_devices(outcome: GroupOutcome) -> TypeGuard[Rejection]:
    return isinstance(outcome, Rejection) and outcome.code is Code.GROUP_DOES_NOT_FIT


def _places_without_victims(
    request: GroupRequest,
    snapshot: Snapshot,
    attempt: Attempt,
    others_claims: Sequence[ResourceClaim],
) -> Mapping[str, str]:
    """Return the nodes of as many pods as fit while nobody is gone."""
    request = replace(request, removed=())
    attempt = replace(attempt, allocated=(*attempt.allocated, *others_claims))
    try:
        with _deciding(request, snapshot, attempt) as decision:
            return decision.closest_nodes() if isinstance(decision, _Decision) else {}
    except AttemptFailed:
        return {}


def _find_places(request: GroupRequest, snapshot: Snapshot, attempt: Attempt) -> GroupOutcome:
    try:
        with _deciding(request, snapshot, attempt) as decision:
            return decision.outcome() if isinstance(decision, _Decision) else decision
    except AttemptFailed as error:
        return attempt_failed(error)


@contextmanager
def _deciding(
    request: GroupRequest, snapshot: Snapshot, attempt: Attempt
) -> Iterator["_Decision | NoDevicesNeeded | Rejection"]:
    """Have the cluster be as assumed for a decision; or yield the outcome without one."""
    with metered(ANSWER_STEPS), evaluating(tenant=request.group.namespace):
        assumption = assume(
            request,
            snapshot,
            released=attempt.released,
            allocated=attempt.allocated,
            rivals=rivals_of(request, snapshot) if attempt.keeps_devices else (),
        )
        closed_nodes = assumption.unknown_nodes | attempt.closed_nodes
        candidates = find_candidates(request, snapshot, closed_nodes=closed_nodes)
        if isinstance(candidates, Rejection):
            yield candidates
        elif not candidates.needs_devices and not request.pinned:
            yield NoDevicesNeeded()
        else:
            with assumption.on(snapshot.cluster):
                yield _Decision(request, snapshot, attempt, assumption, candidates)


class _Decision:
    """One decision about a group, on a cluster with its assumptions."""

    def __init__(
        self,
        request: GroupRequest,
        snapshot: Snapshot,
        attempt: Attempt,
        assumption: Assumption,
        candidates: Candidates,
    ) -> None:
        self._request = request
        self._snapshot = snapshot
        self._attempt = attempt
        self._assumption = assumption
        self._candidates = candidates
        removed = frozenset(request.removed)
        self._placed = tuple(pod.node for pod in request.placed if pod.pod_uid not in removed)
        # All pods that are asked about have to fit where they are.
        self._min_count = (
            len(self._placed) + len(request.pods) if request.pinned else request.group.min_count
        )
        self._uids = {
            candidate.name: candidate.pod.metadata.uid for candidate in candidates.members
        }

    @property
    def _needed(self) -> int:
        """The pods that have to get a place now: one at least, or nobody is helped."""
        return max(1, self._min_count - len(self._placed))

    def outcome(self) -> Places | Rejection:
        """Return the places of the group, or the reason it has none."""
        members, rejections = self._candidates.members, self._candidates.rejections
        if len(members) < self._needed and rejections:
            return self._without_chance(rejections)
        question = self._question()
        outcome = self._search(question)
        if isinstance(outcome, Rejection):
            return outcome
        if not isinstance(outcome, GroupPlan):
            return self._does_not_fit(question, outcome)
        if not outcome.nodes:
            return self._no_further_pod(question)
        return self._affordable(question, outcome)

    def closest_nodes(self) -> Mapping[str, str]:
        """Return the nodes of as many pods as fit, by name; none without an answer."""
        match self._search(self._question()):
            case GroupPlan(nodes=nodes):
                return nodes
            case GroupDoesNotFit(closest=closest) | GroupUndecided(closest=closest):
                return closest.nodes
            case _:
                return {}

    def _search(
        self, question: GroupQuestion
    ) -> GroupPlan | GroupDoesNotFit | GroupUndecided | Rejection:
        """Search, and keep a search that ended without an answer."""
        group, cluster = self._request.group, self._snapshot.cluster
        searches, budget = self._attempt.searches, self._attempt.budget
        if searches is None:
            return GroupSearch(cluster, question).decide(budget)
        assumed = (self._assumption.released, self._assumption.allocated)
        key = SearchKey(self._attempt.version, question, assumed)
        search, budget = searches.take(group.uid, cluster, key), searches.budget(group.uid, budget)
        try:
            outcome = search.decide(budget)
        except BudgetSpent:
            if searches.shorten(group, budget):
                raise
            return self._by_victims(Code.BUDGET_EXHAUSTED, TOO_SLOW)
        is_undecided = isinstance(outcome, GroupUndecided) and not outcome.is_final
        if is_undecided and outcome.steps < MAX_STEPS:
            searches.keep(group, cluster, key, search)
            return unfinished(SEARCHING)
        return outcome

    def _question(self) -> GroupQuestion:
        request, snapshot = self._request, self._snapshot
        members = tuple(self._member(candidate) for candidate in self._candidates.members)
        strategy = next(
            (
                choose_strategy(candidate.pod, candidate.claims.open, snapshot)
                for candidate in self._candidates.members
                if candidate.claims.open
            ),
            FIRST_FIT,
        )
        return GroupQuestion(
            members=members,
            min_count=self._min_count,
            placed=self._placed,
            resources=self._resources() if request.requests and not request.what_if else None,
            strategy=strategy,
            arrangement=arrangement_of(strategy),
            domain=request.topology,
            needs_one_domain=bool(request.topology),
            earlier=self._attempt.earlier,
            drivers=snapshot.drivers,
        )

    def _member(self, candidate: Candidate) -> GroupMember:
        requests = self._request.requests.get(candidate.pod.metadata.uid)
        return GroupMember(
            name=candidate.name,
            options=(MemberOption(nodes=candidate.nodes, claims=candidate.claims.open),),
            request=None if requests is None else _pod_request(requests),
        )

    def _resources(self) -> Mapping[str, NodeResources]:
        """Return the headroom of nodes; one without an entry has no limits."""
        by_headroom: dict[Headroom, NodeResources] = {}
        resources: dict[str, NodeResources] = {}
        for name, headroom in self._snapshot.room.headroom.items():
            node = by_headroom.get(headroom)
            if node is None:
                node = by_headroom[headroom] = _node_resources(headroom)
            resources[name] = node
        return resources

    # --- outcomes ---------------------------------------------------------------------------------

    def _affordable(self, question: GroupQuestion, plan: GroupPlan) -> Places | Rejection:
        """Return the places of a plan as far as the group can pay them, or those of another one."""
        namespace = self._request.group.namespace
        charged_plan = charge_plan(
            plan, question, namespace, self._snapshot, self._assumption.occupancy
        )
        nodes = {
            self._uids[name]: node
            for name, node in plan.nodes.items()
            if name not in charged_plan.unaffordable
        }
        if len(nodes) < self._needed:
            rejection = self._over_budget(charged_plan, len(nodes))
            return rejection if question.budget is not None else self._cheaper(question, rejection)
        return Places(
            nodes=nodes,
            rejections={
                **self._candidates.rejections,
                **self._left_over(plan, charged_plan, len(nodes)),
            },
            claims=charged_plan.claims,
        )

    def _cheaper(self, question: GroupQuestion, rejection: Rejection) -> Places | Rejection:
        """Return places that the group can pay, on other nodes or with other devices.

        Args:
            rejection: The reason that those it would get by preference are too expensive.
        """
        budget = quota_budget(
            self._request.group.namespace, self._snapshot, self._assumption.occupancy
        )
        within_budget = replace(question, budget=budget)
        outcome = self._search(within_budget)
        if isinstance(outcome, GroupPlan) and outcome.nodes:
            return self._affordable(within_budget, outcome)
        if isinstance(outcome, GroupUndecided):
            message = f"{rejection.message}; not decided about other devices: {outcome.why}"
            return self._by_victims(Code.BUDGET_EXHAUSTED, message)
        return outcome if isinstance(outcome, Rejection) else rejection

    def _left_over(
        self, plan: GroupPlan, charged_plan: ChargedPlan, fitting: int
    ) -> Mapping[str, Rejection]:
        """Return the pods that the group gets by without, and the reasons they have no place."""
        message = f"{self._counts(fitting)}; there is no place for this pod beside them"
        left_over = self._by_victims(Code.GROUP_NOT_NEEDED, message)
        unpaid = left_over
        if charged_plan.excesses:
            unpaid = quota_rejection(self._request.pods[0], charged_plan.excesses, self._snapshot)
        return {
            **{self._uids[name]: left_over for name in plan.unplaced},
            **{self._uids[name]: unpaid for name in charged_plan.unaffordable},
        }

    def _over_budget(self, charged_plan: ChargedPlan, fitting: int) -> Rejection:
        counts = self._counts(fitting)
        if not charged_plan.excesses:
            return self._by_victims(Code.NO_DEVICES, counts)
        rejection = quota_rejection(self._request.pods[0], charged_plan.excesses, self._snapshot)
        return with_message(rejection, f"{counts}: {rejection.message}")

    def _without_chance(self, rejections: Mapping[str, Rejection]) -> Rejection:
        """Return the rejection of a group with too many pods without a chance, for the reason of the first one."""
        pod = next(pod for pod in self._request.pods if pod.metadata.uid in rejections)
        rejection = rejections[pod.metadata.uid]
        return with_message(rejection, f"pod {pod.metadata.name} of the group: {rejection.message}")

    def _does_not_fit(
        self, question: GroupQuestion, outcome: GroupDoesNotFit | GroupUndecided
    ) -> Rejection:
        message = describe_outcome(
            outcome,
            min_count=self._min_count,
            placed=len(self._placed),
            domain=question.domain,
        )
        if isinstance(outcome, GroupUndecided):
            return self._by_victims(Code.BUDGET_EXHAUSTED, message)
        if outcome.has_other_drivers and self._would_fit(replace(question, drivers=None)):
            return self._by_victims(Code.DRIVER_NOT_OWNED, not_owned().message)
        return self._with_cause(Code.GROUP_DOES_NOT_FIT, message, question)

    def _no_further_pod(self, question: GroupQuestion) -> Rejection:
        message = f"{self._counts(0)}; no further pod fits"
        return self._with_cause(Code.GROUP_NOT_NEEDED, message, question)

    def _with_cause(self, code: Code, message: str, question: GroupQuestion) -> Rejection:
        """Return a rejection that is for devices or not."""
        unlimited = replace(question, resources=None)
        if question.resources is None or not self._would_fit(unlimited):
            return self._by_victims(code, message)
        # Pods without devices may have what it lacks, of which nothing is known here.
        may_preempt = any(pod.spec.preemption_policy != _NEVER for pod in self._request.pods)
        reject = unschedulable if may_preempt else unresolvable
        return reject(
            Code.GROUP_LACKS_RESOURCES,
            f"{message}; the devices suffice, but CPU, memory or the number of pods of a node do not",
        )

    def _would_fit(self, question: GroupQuestion) -> bool:
        """Return True if the group fits with fewer demands, as far as is known soon."""
        outcome = GroupSearch(self._snapshot.cluster, question).decide(CAUSE_BUDGET)
        return isinstance(outcome, GroupPlan) and len(outcome.nodes) >= self._needed

    def _by_victims(self, code: Code, message: str) -> Rejection:
        """Return a rejection that preemption could help with or not."""
        if any(could_preempt(pod, self._snapshot) for pod in self._request.pods):
            return unschedulable(code, message)
        return unresolvable(code, message)

    def _counts(self, fitting: int) -> str:
        total = len(self._placed) + len(self._request.pods)
        return describe_counts(fitting + len(self._placed), total, self._min_count)


def _pod_request(requests: ResourceRequests) -> PodRequest:
    return PodRequest(
        amounts=ResourceAmounts(cpu_milli=requests.cpu_milli, memory=requests.memory),
        scored_cpu_milli=0,
        scored_memory=0,
        placed_cpu_milli=0,
        placed_memory=0,
    )


def _node_resources(headroom: Headroom) -> NodeResources:
    """Return a node without pods that has no more than is left of it."""
    limits = (headroom.cpu_milli, headroom.memory, headroom.pods)
    cpu_milli, memory, pods = limits
    if cpu_milli is None or memory is None or pods is None:
        return NodeResources()
    return NodeResources(
        allocatable=ResourceAmounts(cpu_milli=cpu_milli, memory=memory), max_pods=pods
    )
