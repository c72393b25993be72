"""Where pods and claims would go: the scheduler's own decisions, on a picture of a cluster.

Pods come first, then claims that no pod brings along, each in order; what one gets counts for the
next. `together` asks what upstream is asked in one call: all claims at once, on one node.

What a claim gets is decided by the allocator, whether a node takes a pod at all by
`allocator.eligibility`, whose `NOT_MODELLED` says what neither looks at.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from allocator.cluster import Cluster, Verdicts
from allocator.core.model import Asked, Budget, Plan
from allocator.core.outcome import AttemptFailed, Reason
from allocator.core.results import allocations, share_ids
from allocator.core.search import DEFAULT_BUDGET
from allocator.eligibility import is_for, obstacle
from allocator.explain import explained
from allocator.extended_resource_claim import (
    extended_resource_claim,
    mapped_resources,
    plugged_in,
    unprovided,
)
from allocator.failure import Explain, Failure, NodeAnswer, NodeReason, Refused, ended
from allocator.near import nearest_now, nearest_when_empty
from allocator.pod_claims import Name, PodClaims, allocation_of, claim_name, pod_claims, pod_name
from allocator.strategies import registry
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.strategy import Strategy
from kube.api.core import Pod
from kube.api.meta import encode
from kube.api.resource import (
    AllocationResult,
    DeviceClass,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClaimTemplate,
)
from kube.errors import FieldError

TOGETHER: Final = "all claims together"
"""The title of the failure of claims that were asked about at once."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be placed, beside what there is. Every object says its namespace.

    Attributes:
        pods: To be placed, in order; none is bound yet.
        claims: To be placed, in order; those that pods refer to are placed with them.
        known: All claims by namespace and name, allocated or not, those above included.
        templates: By namespace and name.
        classes: By name.
        extended_resources: Name of an extended resource to name of the class that maps it.
    """

    pods: tuple[Pod, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    known: Mapping[Name, ResourceClaim] = msgspec.field(default_factory=dict)
    templates: Mapping[Name, ResourceClaimTemplate] = msgspec.field(default_factory=dict)
    classes: Mapping[str, DeviceClass] = msgspec.field(default_factory=dict)
    extended_resources: Mapping[str, str] = msgspec.field(default_factory=dict)


class Ways(msgspec.Struct, frozen=True, kw_only=True):
    """How it is to be decided.

    Attributes:
        strategy: Beats what pods and classes say; None leaves it to them.
        budget: Of each search.
        explain: Finds out why claims do not fit a node.
        told: How many failures are explained, beside the last.
        misses: Of how many failures the nearest miss is looked for, which may take two seconds each.
        progress: Called with how many pods and claims are done, after each.
    """

    strategy: Strategy | None = None
    budget: Budget = DEFAULT_BUDGET
    explain: Explain = explained
    told: int = 0
    misses: int = 0
    progress: Callable[[int], None] = lambda _done: None


class PlacedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a claim.

    Attributes:
        node: To which its allocation pins it; None without an allocation or when it is not pinned.
        allocation: As in `status.allocation`, without a timestamp; None when it was not placed.
    """

    namespace: str
    name: str
    node: str | None = None
    allocation: AllocationResult | None = None


class PlacedPod(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a pod; `node` is None when no node takes it."""

    namespace: str
    name: str
    node: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The whole simulation.

    Attributes:
        claims: All that were to be placed, in the order in which they were tried.
        pods: All that were to be placed, in order.
        nodes: By name, what each says of the last pod or claim that was not placed.
        error: The first that ended an attempt on all nodes.
        uses: Names of the claims of each pod that was placed, in order.
        failures: In order; `nodes` is about the last of them.
        notes: What else has to be known.
    """

    claims: tuple[PlacedClaim, ...] = ()
    pods: tuple[PlacedPod, ...] = ()
    nodes: tuple[NodeAnswer, ...] = ()
    error: str | None = None
    uses: Mapping[Name, tuple[str, ...]] = msgspec.field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def all_placed(self) -> bool:
        """Every pod has a node, and every claim its devices."""
        return (
            self.error is None
            and all(pod.node is not None for pod in self.pods)
            and all(claim.allocation is not None for claim in self.claims)
        )


def one_by_one(cluster: Cluster, question: Question, ways: Ways) -> Answer:
    """Place everything, one after the other; the cluster holds the result afterwards."""
    run = _Run(cluster, question, ways)
    for done, pod in enumerate(question.pods, start=1):
        run.place_pod(pod)
        ways.progress(done)
    for done, claim in enumerate(question.claims, start=1 + len(question.pods)):
        run.place_claim(claim)
        ways.progress(done)
    return run.answer()


def together(cluster: Cluster, question: Question, ways: Ways, node: str) -> Answer:
    """Place all claims at once on one node, all or nothing, as one call of upstream's Allocate.

    One search has one strategy: of several pods the first one's counts.

    Args:
        node: One of the cluster's.
    """
    run = _Run(cluster, question, ways)
    run.place_together(node)
    return run.answer()


def pinned_to(allocation: AllocationResult) -> str | None:
    """Return the node to which an allocation is local; None when it is usable on several."""
    selector = allocation.node_selector
    for term in selector.node_selector_terms if selector is not None else ():
        for field in term.match_fields or ():
            if field.key == "metadata.name" and field.operator == "In" and field.values:
                return field.values[0]
    return None


class _Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, or a claim on its own, that is to be placed.

    Attributes:
        pod: None for a claim on its own.
        resources: Extended resources of the pod that a class maps.
    """

    title: str
    pod: Pod | None = None
    claims: PodClaims = PodClaims()
    resources: frozenset[str] = frozenset()


class _Best(msgspec.Struct, frozen=True, kw_only=True):
    """The best node so far, with what it gives; the greater `rank` wins, then the smaller name."""

    rank: int
    node: str
    plan: Plan
    asked: Asked


_LOOKS: Final = 64
"""Different pods of which is remembered which nodes take them."""

_Takers = tuple[Mapping[frozenset[str], Sequence[str]], Mapping[str, NodeAnswer]]


class _Run:
    """Places one after the other and keeps account."""

    def __init__(self, cluster: Cluster, question: Question, ways: Ways) -> None:
        self._cluster = cluster
        self._question = question
        self._ways = ways
        self._known = dict(question.known)
        self._known_takers: dict[bytes, _Takers] = {}
        self._claims: dict[Name, PlacedClaim] = {}
        self._pods: list[PlacedPod] = []
        self._uses: dict[Name, tuple[str, ...]] = {}
        self._fits: tuple[NodeAnswer, ...] = ()
        self._refused: list[Refused] = []
        self._error: str | None = None
        self._notes: dict[str, None] = {}

    def answer(self) -> Answer:
        """Return what became of everything."""
        nodes, failures = self._fits, []
        for number, refused in enumerate(self._refused, start=1):
            failure = Failure(title=refused.title)
            if number <= self._ways.told or number == len(self._refused):
                nodes = refused.answers(self._cluster.rules, self._ways.explain)
                failure = refused.failure(nodes)
            failures.append(failure)
        return Answer(
            claims=tuple(self._claims.values()),
            pods=tuple(self._pods),
            nodes=nodes,
            error=self._error,
            uses=self._uses,
            failures=tuple(failures),
            notes=tuple(self._notes),
        )

    # --- what is tried ---------------------------------------------------------------------------

    def place_pod(self, pod: Pod) -> None:
        """Try a pod with all claims that it needs."""
        attempt = self._attempt(pod)
        self._add_pod(attempt, self._tried(attempt))

    def place_claim(self, claim: ResourceClaim) -> None:
        """Try a claim on its own, unless a pod brought it along."""
        if claim_name(claim) not in self._claims:
            title = f"ResourceClaim {'/'.join(claim_name(claim))}"
            self._tried(_Attempt(title=title, claims=PodClaims(open=(claim,))))

    def place_together(self, node: str) -> None:
        """Try all claims at once on one node."""
        attempts = [self._attempt(pod) for pod in self._question.pods]
        claims = {claim_name(one): one for each in attempts for one in each.claims.open}
        claims |= {claim_name(one): one for one in self._question.claims}
        for attempt in attempts:
            wanted = self._left_to_claims(attempt, node)
            claims |= {claim_name(one): one for one in self._for_extended(attempt, wanted)}
        self._expect(claims.values())
        refused = Refused(title=TOGETHER, usage=self._cluster.usage)
        obstacles = [reason for each in attempts for reason in self._obstacles(each, node)]
        try:
            if obstacles:
                answer = NodeAnswer(name=node, fits=False, reasons=tuple(obstacles))
                refused = msgspec.structs.replace(refused, refusals={node: answer})
            else:
                judged = self._all_at_once(node, tuple(claims.values()))
                refused = msgspec.structs.replace(refused, judged=(judged,))
        except AttemptFailed as error:
            refused = msgspec.structs.replace(refused, refusals=self._ended((node,), error))
        answers = refused.answers(self._cluster.rules, self._ways.explain)
        fits = all(each.fits for each in answers)
        if fits:
            self._fits = answers
        else:
            self._refused.append(refused)
        for attempt in attempts:
            self._add_pod(attempt, node if fits else None)

    def _all_at_once(self, node: str, claims: Sequence[ResourceClaim]) -> tuple[Verdicts, Asked]:
        """Return what a node says; what it gives is counted.

        Raises:
            AttemptFailed: The attempt ends on all nodes.
        """
        asked = self._cluster.ask(claims)
        first = self._question.pods[0] if self._question.pods else None
        verdicts = self._verdicts(asked, self._strategy(first, claims), (node,))
        plan = verdicts.plan(node)
        if plan is not None:
            self._count(plan, asked)
        return verdicts, asked

    def _attempt(self, pod: Pod) -> _Attempt:
        return _Attempt(
            title=f"Pod {pod.metadata.namespace}/{pod_name(pod)}",
            pod=pod,
            claims=pod_claims(pod, self._known, self._question.templates),
            resources=mapped_resources(pod, self._question.extended_resources),
        )

    def _add_pod(self, attempt: _Attempt, node: str | None) -> None:
        assert attempt.pod is not None
        namespace, name = attempt.pod.metadata.namespace, pod_name(attempt.pod)
        self._pods.append(PlacedPod(namespace=namespace, name=name, node=node))
        if node is not None:
            wanted = self._left_to_claims(attempt, node)
            claims = (*attempt.claims.open, *self._for_extended(attempt, wanted))
            self._uses[namespace, name] = tuple(claim.metadata.name for claim in claims)

    # --- nodes -----------------------------------------------------------------------------------

    def _tried(self, attempt: _Attempt) -> str | None:
        """Place what is tried on the best node; None, and what all nodes say, when none will do."""
        self._expect(attempt.claims.open)
        nodes, refusals = self._takers(attempt)
        judged: list[tuple[Verdicts, Asked]] = []
        refused = Refused(title=attempt.title, usage=self._cluster.usage)
        try:
            best = self._best(attempt, nodes, judged)
            if best is not None:
                self._count(best.plan, best.asked)
                return best.node
        except AttemptFailed as error:
            refusals = self._ended(self._cluster.nodes, error)
            refused = msgspec.structs.replace(refused, refusals=refusals)
        else:
            refused = msgspec.structs.replace(refused, refusals=refusals, judged=tuple(judged))
            refused = self._with_nearest(refused, attempt, nodes)
        self._refuse(refused)
        self._expect(self._for_extended(attempt, attempt.resources))
        return None

    def _best(
        self,
        attempt: _Attempt,
        nodes: Mapping[frozenset[str], Collection[str]],
        judged: list[tuple[Verdicts, Asked]],
    ) -> _Best | None:
        """Return the node to take, if there is one; what nodes say is added to `judged`.

        Args:
            nodes: Extended resources that a claim has to provide, to the nodes where that is so.

        Raises:
            AttemptFailed: The attempt ends on all nodes.
        """
        best: _Best | None = None
        for wanted, names in nodes.items():
            claims = (*attempt.claims.open, *self._for_extended(attempt, wanted))
            asked = self._cluster.ask(claims)
            strategy = self._strategy(attempt.pod, claims)
            verdicts = self._verdicts(asked, strategy, names)
            judged.append((verdicts, asked))
            for each in verdicts.classes:
                if not isinstance(each.outcome, Plan):
                    continue
                rank, node = 0 if strategy is FIRST_FIT else each.score, min(each.nodes)
                if best is None or (-rank, node) < (-best.rank, best.node):
                    plan = verdicts.plan(node)
                    assert plan is not None
                    best = _Best(rank=rank, node=node, plan=plan, asked=asked)
        return best

    def _verdicts(self, asked: Asked, strategy: Strategy, nodes: Collection[str]) -> Verdicts:
        """Return verdicts in which the best node is right.

        Raises:
            AttemptFailed: The attempt ends before a node is found.
        """
        budget = self._ways.budget
        try:
            return self._cluster.verdicts(asked, strategy=strategy, budget=budget, nodes=nodes)
        except AttemptFailed:
            if strategy is not FIRST_FIT:
                raise
            # Whoever goes by name meets the node that ends it only if none before it fits.
            for node in sorted(nodes):
                verdicts = self._cluster.verdicts(asked, budget=budget, nodes=(node,))
                if verdicts.plan(node) is not None:
                    return verdicts
            raise

    def _takers(self, attempt: _Attempt) -> _Takers:
        """Return the nodes that are in, and what the others say.

        Nodes are by the extended resources that a claim has to provide there. Replicas get the
        same answer, so it is looked for once.
        """
        look = _look(attempt)
        known = self._known_takers.get(look) if look is not None else None
        if known is not None:
            return known
        nodes: dict[frozenset[str], list[str]] = {}
        refusals: dict[str, NodeAnswer] = {}
        for name in self._cluster.nodes:
            reasons = self._obstacles(attempt, name)
            if reasons:
                refusals[name] = NodeAnswer(name=name, fits=False, reasons=reasons)
            else:
                nodes.setdefault(self._left_to_claims(attempt, name), []).append(name)
        if look is not None:
            if len(self._known_takers) >= _LOOKS:
                self._known_takers.clear()
            self._known_takers[look] = (nodes, refusals)
        return nodes, refusals

    def _obstacles(self, attempt: _Attempt, node: str) -> tuple[NodeReason, ...]:
        """Return why a node is out before any device is looked at."""
        if attempt.claims.missing:
            return tuple(
                NodeReason(code=each.code, message=each.message) for each in attempt.claims.missing
            )
        found = self._cluster.nodes[node]
        details: list[str] = []
        if attempt.pod is not None:
            refusal = obstacle(attempt.pod, found)
            details += [refusal.detail] if refusal is not None else []
            lacking = unprovided(attempt.pod, found, self._question.extended_resources)
            details += [f"it has no {name}, and no DeviceClass maps that" for name in lacking]
        for claim in attempt.claims.held:
            allocation = allocation_of(claim)
            selector = allocation.node_selector if allocation is not None else None
            if selector is not None and not is_for(selector, found):
                pin = pinned_to(allocation) if allocation is not None else None
                where = f"to node {pin}" if pin else "for other nodes"
                details.append(f"claim {'/'.join(claim_name(claim))} is allocated {where}")
        return tuple(NodeReason(code=Reason.NODE, message=detail) for detail in details)

    def _left_to_claims(self, attempt: _Attempt, node: str) -> frozenset[str]:
        """Return the extended resources that no device plugin of the node offers."""
        if not attempt.resources:
            return frozenset()
        return attempt.resources - plugged_in(self._cluster.nodes[node])

    def _for_extended(
        self, attempt: _Attempt, resources: Collection[str]
    ) -> tuple[ResourceClaim, ...]:
        """Return the claim that the scheduler makes for these extended resources, if any."""
        if attempt.pod is None or not resources:
            return ()
        mapping = self._question.extended_resources
        return (extended_resource_claim(attempt.pod, resources, mapping),)

    # --- outcomes --------------------------------------------------------------------------------

    def _count(self, plan: Plan, asked: Asked) -> None:
        """Let the cluster hold what a plan gives.

        Raises:
            AttemptFailed: The devices have node selectors that cannot be joined.
        """
        features = self._cluster.rules.features
        seed = ",".join("/".join(claim_name(claim)) for claim in asked.claims)
        found = allocations(plan, asked, features, share_ids(seed))
        for claim, allocation in zip(asked.claims, found, strict=True):
            status = msgspec.structs.replace(
                claim.status or ResourceClaimStatus(), allocation=allocation
            )
            held = msgspec.structs.replace(claim, status=status)
            self._cluster.allocate(held)
            namespace, name = claim_name(claim)
            self._known[namespace, name] = held
            self._claims[namespace, name] = PlacedClaim(
                namespace=namespace, name=name, node=pinned_to(allocation), allocation=allocation
            )

    def _refuse(self, refused: Refused) -> None:
        """Note a failure; of those that nobody will be told of only the last is kept whole."""
        if len(self._refused) > self._ways.told:
            self._refused[-1] = Refused(title=self._refused[-1].title)
        self._refused.append(refused)

    def _ended(self, nodes: Iterable[str], error: AttemptFailed) -> dict[str, NodeAnswer]:
        self._error = self._error or str(error)
        return ended(nodes, error)

    def _with_nearest(
        self,
        refused: Refused,
        attempt: _Attempt,
        nodes: Mapping[frozenset[str], Sequence[str]],
    ) -> Refused:
        """Return the failure with its nearest misses, on nodes that would take the pod."""
        if len(self._refused) >= self._ways.misses or not nodes:
            return refused
        wanted, names = next(iter(nodes.items()))
        claims = (*attempt.claims.open, *self._for_extended(attempt, wanted))
        now = nearest_now(self._cluster, claims, nodes=names)
        empty = nearest_when_empty(self._cluster, claims, nodes=names)
        return msgspec.structs.replace(refused, nearest=now, nearest_when_empty=empty)

    def _expect(self, claims: Iterable[ResourceClaim]) -> None:
        """List claims among those that are to be placed."""
        for claim in claims:
            namespace, name = claim_name(claim)
            self._claims.setdefault((namespace, name), PlacedClaim(namespace=namespace, name=name))

    def _strategy(self, pod: Pod | None, claims: Iterable[ResourceClaim]) -> Strategy:
        """Return the strategy: of the call, of the pod, of a class, or the default."""
        if self._ways.strategy is not None:
            return self._ways.strategy
        names = dict.fromkeys(name for claim in claims for name in _class_names(claim))
        classes = {name: self._question.classes.get(name) for name in names}
        name = registry.chosen(
            pod.annotations if pod is not None else {},
            {name: one.metadata.annotations or {} for name, one in classes.items() if one},
        )
        found = name if isinstance(name, FieldError) else registry.strategy(name)
        if isinstance(found, FieldError):
            title = f"Pod {pod.metadata.namespace}/{pod_name(pod)}: " if pod is not None else ""
            note = f"{title}{found.path}: {found.message}; {registry.DEFAULT} decides"
            self._notes[note] = None
            return FIRST_FIT
        return found


def _look(attempt: _Attempt) -> bytes | None:
    """Return all of a pod that nodes look at; None where claims elsewhere count, too."""
    if attempt.claims.held or attempt.claims.missing:
        return None
    if attempt.pod is None:
        return b""
    spec = attempt.pod.spec
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    resources = [each.resources for each in containers]
    return encode((spec.node_name, spec.node_selector, spec.affinity, spec.tolerations, resources))


def _class_names(claim: ResourceClaim) -> Iterator[str]:
    for request in claim.spec.devices.requests or ():
        asked = (request.exactly, *(request.first_available or ()))
        yield from (one.device_class_name for one in asked if one is not None)
