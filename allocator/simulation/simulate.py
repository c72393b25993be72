"""The placement of pods and claims as the scheduler would decide it, on a snapshot of a cluster.

Pods come first, then claims that belong to no pod, each in order; what one is given is in use for the
next. `simulate_together` is one call of upstream's Allocate: all claims at once, on one node.

The allocator decides on devices, `allocator.pods.node_eligibility` on whether a node is eligible for
a pod at all, and `allocator.simulation.resources` on whether it has the CPU, the memory and what else is counted.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.cluster.verdicts import ClassVerdict, Verdicts
from allocator.explain.closest_fit import closest_fit_now, closest_fit_when_idle
from allocator.explain.failure import FailedAttempt, Failure, NodeResult, abort_nodes
from allocator.explain.trace import Evaluated, PlacementTrace, trace_placement
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.nodes.pod_requests import pod_request
from allocator.nodes.scoring import score_resources
from allocator.pods.claims import Name, PodClaims, claim_name, pinned_to, pod_claims, pod_name
from allocator.pods.extended_resource_claim import (
    extended_resource_claim,
    mapped_resources,
)
from allocator.search.results import allocations, share_ids
from allocator.simulation.attempt import PlacementAttempt, class_names
from allocator.simulation.model import (
    PlacedClaim,
    PlacedPod,
    SimulationInput,
    SimulationOptions,
    SimulationResult,
)
from allocator.simulation.node_filter import NodeFilter
from allocator.simulation.resources import ResourceLedger
from allocator.strategies import registry
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.strategy import Strategy
from kube.api.core import Pod
from kube.api.resource import (
    ResourceClaim,
    ResourceClaimStatus,
)
from kube.errors import FieldError
from kube.names import DEFAULT_SCHEDULER_NAME

TOGETHER: Final = "all claims together"
"""The title of the failure of claims that were placed at once."""


def simulate_in_order(
    cluster: Cluster,
    objects: SimulationInput,
    options: SimulationOptions,
    other_views: Mapping[str, Cluster] = MappingProxyType({}),
) -> SimulationResult:
    """Place everything in order; the cluster has the allocations afterwards.

    Args:
        other_views: schedulerName to the same cluster as that scheduler sees it, for those that do not
            see it as `cluster` is. They have the allocations afterwards, too.
    """
    run = _Run(cluster, objects, options, other_views)
    for number, pod in enumerate(objects.pods, start=1):
        if options.stops():
            return run.result()
        run.place_pod(pod)
        options.progress(number)
    for number, claim in enumerate(objects.claims, start=1 + len(objects.pods)):
        if options.stops():
            return run.result()
        run.place_claim(claim)
        options.progress(number)
    return run.result()


def simulate_together(
    cluster: Cluster, objects: SimulationInput, options: SimulationOptions, node: str
) -> SimulationResult:
    """Place all claims at once on one node, all or nothing, as one call of upstream's Allocate.

    One search has one strategy; that of the first pod is used.

    Args:
        node: One of the cluster's.
    """
    run = _Run(cluster, objects, options)
    run.place_together(node)
    return run.result()


class _Best(msgspec.Struct, frozen=True, kw_only=True):
    """The best node so far, with its plan; the greater `rank` wins, then the smaller name."""

    rank: int
    node: str
    plan: Plan
    pending: PendingClaims


class _Run:
    """Places pods and claims in order, and records the results."""

    def __init__(
        self,
        cluster: Cluster,
        objects: SimulationInput,
        options: SimulationOptions,
        other_views: Mapping[str, Cluster] = MappingProxyType({}),
    ) -> None:
        self._cluster = self._first_view = cluster
        self._other_views = other_views
        # Several schedulers may share one view.
        self._views = tuple({id(view): view for view in (cluster, *other_views.values())}.values())
        self._objects = objects
        self._options = options
        self._known = dict(objects.known)
        self._ledger = ResourceLedger(objects.resources, objects.extended_resources)
        self._filter = NodeFilter(cluster.nodes, self._ledger, objects.extended_resources)
        self._claims: dict[Name, PlacedClaim] = {}
        self._pods: list[PlacedPod] = []
        self._uses: dict[Name, tuple[str, ...]] = {}
        self._node_results: tuple[NodeResult, ...] = ()
        self._failed: list[FailedAttempt] = []
        self._error: str | None = None
        self._notes: dict[str, None] = {}
        self._traces: list[PlacementTrace] = []

    def result(self) -> SimulationResult:
        """Return the result so far."""
        nodes, failures = self._node_results, []
        for number, attempt in enumerate(self._failed, start=1):
            failure = Failure(title=attempt.title, event=attempt.event)
            if number <= self._options.explained_failures or number == len(self._failed):
                nodes = attempt.node_results(self._options.explain)
                failure = attempt.failure(nodes)
            failures.append(failure)
        return SimulationResult(
            claims=tuple(self._claims.values()),
            pods=tuple(self._pods),
            nodes=nodes,
            error=self._error,
            uses=self._uses,
            failures=tuple(failures),
            notes=tuple(self._notes),
            traces=tuple(self._traces),
            resources=self._ledger.resources,
        )

    # --- what is tried ---------------------------------------------------------------------------

    def place_pod(self, pod: Pod) -> None:
        """Try a pod with all claims that it needs."""
        self._cluster = self._other_views.get(pod.spec.scheduler_name, self._first_view)
        attempt = self._attempt(pod)
        self._add_pod(attempt, self._place(attempt))

    def place_claim(self, claim: ResourceClaim) -> None:
        """Try a claim on its own, unless it belongs to a pod."""
        self._cluster = self._first_view
        if claim_name(claim) not in self._claims:
            title = f"ResourceClaim {'/'.join(claim_name(claim))}"
            self._place(PlacementAttempt(title=title, claims=PodClaims(open=(claim,))))

    def place_together(self, node: str) -> None:
        """Try all claims at once on one node."""
        attempts = [self._attempt(pod) for pod in self._objects.pods]
        claims = {claim_name(claim): claim for attempt in attempts for claim in attempt.claims.open}
        claims |= {claim_name(claim): claim for claim in self._objects.claims}
        for attempt in attempts:
            resources = self._filter.resources_for_claims(attempt, node)
            extended = self._extended_claims(attempt, resources)
            claims |= {claim_name(claim): claim for claim in extended}
        self._expect(claims.values())
        failed_attempt = FailedAttempt(
            title=TOGETHER, usage=self._cluster.usage, rules=self._cluster.options
        )
        reasons = [
            reason
            for attempt in attempts
            if (excluded := self._filter.excluded(attempt, node)) is not None
            for reason in excluded.result.reasons
        ]
        reasons += self._filter.lacks_together(attempts, node)
        try:
            if reasons:
                result = NodeResult(name=node, fits=False, reasons=tuple(reasons))
                failed_attempt = msgspec.structs.replace(failed_attempt, excluded={node: result})
            else:
                verdicts_and_claims = self._place_claims(node, tuple(claims.values()))
                failed_attempt = msgspec.structs.replace(
                    failed_attempt, evaluated=(verdicts_and_claims,)
                )
        except AttemptFailed as error:
            failed_attempt = msgspec.structs.replace(
                failed_attempt, excluded=self._abort((node,), error)
            )
        results = failed_attempt.node_results(self._options.explain)
        fits = all(result.fits for result in results)
        if fits:
            self._node_results = results
        else:
            self._failed.append(failed_attempt)
        for attempt in attempts:
            self._add_pod(attempt, node if fits else None)

    def _place_claims(
        self, node: str, claims: Sequence[ResourceClaim]
    ) -> tuple[Verdicts, PendingClaims]:
        """Allocate claims together on one node if they fit; return the verdict.

        Raises:
            AttemptFailed: The attempt ends on all nodes.
        """
        pending = self._cluster.resolve(claims)
        first = self._objects.pods[0] if self._objects.pods else None
        verdicts = self._verdicts(pending, self._strategy(first, claims), (node,))
        plan = verdicts.plan(node)
        if plan is not None:
            self._allocate(plan, pending)
        return verdicts, pending

    def _attempt(self, pod: Pod) -> PlacementAttempt:
        return PlacementAttempt(
            title=f"Pod {pod.metadata.namespace}/{pod_name(pod)}",
            pod=pod,
            claims=pod_claims(pod, self._known, self._objects.templates),
            resources=mapped_resources(pod, self._objects.extended_resources),
            request=pod_request(pod) if self._objects.resources is not None else None,
        )

    def _add_pod(self, attempt: PlacementAttempt, node: str | None) -> None:
        assert attempt.pod is not None
        namespace, name = attempt.pod.metadata.namespace, pod_name(attempt.pod)
        self._pods.append(PlacedPod(namespace=namespace, name=name, node=node))
        if node is not None:
            resources = self._filter.resources_for_claims(attempt, node)
            claims = (*attempt.claims.open, *self._extended_claims(attempt, resources))
            self._uses[namespace, name] = tuple(claim.metadata.name for claim in claims)
            if attempt.request is not None:
                self._ledger.place(attempt.request, node)

    # --- nodes -----------------------------------------------------------------------------------

    def _place(self, attempt: PlacementAttempt) -> str | None:
        """Place a pod or claim on the best node and return that; None when it fits none."""
        self._expect(attempt.claims.open)
        filtered = self._filter.filter(attempt)
        nodes = filtered.feasible
        evaluated: list[Evaluated] = []
        failed_attempt = FailedAttempt(
            title=attempt.title, usage=self._cluster.usage, rules=self._cluster.options
        )
        try:
            best = self._best(attempt, nodes, evaluated)
            if len(self._traces) < self._options.traces:
                plan = best.plan if best is not None else None
                usage, rules = self._cluster.usage, self._cluster.options
                results = self._filter.results(attempt, filtered)
                trace = trace_placement(
                    attempt.title, results, evaluated, plan, usage=usage, rules=rules
                )
                self._traces.append(trace)
            if best is not None:
                self._allocate(best.plan, best.pending)
                return best.node
        except AttemptFailed as error:
            aborted = self._abort(self._cluster.nodes, error)
            failed_attempt = msgspec.structs.replace(failed_attempt, excluded=aborted)
        else:
            failed_attempt = msgspec.structs.replace(
                failed_attempt,
                event=self._filter.event(attempt, filtered),
                excluded=self._filter.results(attempt, filtered),
                evaluated=tuple((entry.verdicts, entry.pending) for entry in evaluated),
            )
            failed_attempt = self._with_closest_fit(failed_attempt, attempt, nodes)
        self._add_failure(failed_attempt)
        self._expect(self._extended_claims(attempt, attempt.resources))
        return None

    def _best(
        self,
        attempt: PlacementAttempt,
        nodes: Mapping[frozenset[str], Collection[str]],
        evaluated: list[Evaluated],
    ) -> _Best | None:
        """Return the best node, if any; the verdicts are added to `evaluated`.

        Args:
            nodes: Extended resources that a claim has to provide, to the nodes where that is so.

        Raises:
            AttemptFailed: The attempt ends on all nodes.
        """
        best: _Best | None = None
        for resources, names in nodes.items():
            claims = (*attempt.claims.open, *self._extended_claims(attempt, resources))
            pending = self._cluster.resolve(claims)
            strategy = self._strategy(attempt.pod, claims)
            verdicts = self._verdicts(pending, strategy, names)
            evaluated.append(Evaluated(verdicts=verdicts, pending=pending, strategy=strategy))
            for verdict in verdicts.classes:
                if not isinstance(verdict.outcome, Plan):
                    continue
                rank, node = self._best_of_class(attempt, verdict, strategy)
                if best is None or (-rank, node) < (-best.rank, best.node):
                    plan = verdicts.plan(node)
                    assert plan is not None
                    best = _Best(rank=rank, node=node, plan=plan, pending=pending)
        return best

    def _best_of_class(
        self, attempt: PlacementAttempt, verdict: ClassVerdict, strategy: Strategy
    ) -> tuple[int, str]:
        """Return the best score of a class of nodes, and the first node by name that has it."""
        by_strategy = 0 if strategy is FIRST_FIT else verdict.score
        profile = None
        if attempt.pod is not None:
            scheduler = attempt.pod.spec.scheduler_name or DEFAULT_SCHEDULER_NAME
            profile = self._options.profiles.get(scheduler)
        if profile is None or attempt.request is None:
            return by_strategy, min(verdict.nodes)
        request = attempt.request
        less, node = min(
            (-score_resources(request, self._ledger.of(name), profile), name)
            for name in verdict.nodes
        )
        return by_strategy * (profile.strategy_weight or 0) - less, node

    def _verdicts(
        self, pending: PendingClaims, strategy: Strategy, nodes: Collection[str]
    ) -> Verdicts:
        """Return verdicts that include the best node.

        Raises:
            AttemptFailed: The attempt ends before a node is found.
        """
        budget = self._options.budget
        try:
            return self._cluster.verdicts(pending, strategy=strategy, budget=budget, nodes=nodes)
        except AttemptFailed:
            if strategy is not FIRST_FIT:
                raise
            # In order of names, the node that ends the attempt matters only if none before it fits.
            for node in sorted(nodes):
                verdicts = self._cluster.verdicts(pending, budget=budget, nodes=(node,))
                if verdicts.plan(node) is not None:
                    return verdicts
            raise

    def _extended_claims(
        self, attempt: PlacementAttempt, resources: Collection[str]
    ) -> tuple[ResourceClaim, ...]:
        """Return the claim that the scheduler makes for these extended resources, if any."""
        if attempt.pod is None or not resources:
            return ()
        mapping = self._objects.extended_resources
        return (extended_resource_claim(attempt.pod, resources, mapping),)

    # --- outcomes --------------------------------------------------------------------------------

    def _allocate(self, plan: Plan, pending: PendingClaims) -> None:
        """Allocate the devices of a plan in the cluster.

        Raises:
            AttemptFailed: The node selectors of the devices cannot be combined.
        """
        features = self._cluster.options.features
        seed = ",".join("/".join(claim_name(claim)) for claim in pending.claims)
        results = allocations(plan, pending, features, share_ids(seed))
        for claim, allocation in zip(pending.claims, results, strict=True):
            status = msgspec.structs.replace(
                claim.status or ResourceClaimStatus(), allocation=allocation
            )
            allocated_claim = msgspec.structs.replace(claim, status=status)
            for view in self._views:
                view.allocate(allocated_claim)
            namespace, name = claim_name(claim)
            self._known[namespace, name] = allocated_claim
            self._claims[namespace, name] = PlacedClaim(
                namespace=namespace, name=name, node=pinned_to(allocation), allocation=allocation
            )

    def _add_failure(self, failed_attempt: FailedAttempt) -> None:
        """Record a failure; of those that are not explained only the last is kept whole."""
        if len(self._failed) > self._options.explained_failures:
            last = self._failed[-1]
            self._failed[-1] = FailedAttempt(title=last.title, event=last.event)
        self._failed.append(failed_attempt)

    def _abort(self, nodes: Iterable[str], error: AttemptFailed) -> dict[str, NodeResult]:
        self._error = self._error or str(error)
        return abort_nodes(nodes, error)

    def _with_closest_fit(
        self,
        failed_attempt: FailedAttempt,
        attempt: PlacementAttempt,
        nodes: Mapping[frozenset[str], Sequence[str]],
    ) -> FailedAttempt:
        """Return the failure with its closest fits, on eligible nodes."""
        if not nodes or len(self._failed) >= self._options.closest_fits:
            return failed_attempt
        resources, names = next(iter(nodes.items()))
        claims = (*attempt.claims.open, *self._extended_claims(attempt, resources))
        now = closest_fit_now(self._cluster, claims, nodes=names)
        when_idle = closest_fit_when_idle(self._cluster, claims, nodes=names)
        return msgspec.structs.replace(
            failed_attempt, closest_fit=now, closest_fit_when_idle=when_idle
        )

    def _expect(self, claims: Iterable[ResourceClaim]) -> None:
        """Add claims to those that are to be placed."""
        for claim in claims:
            namespace, name = claim_name(claim)
            self._claims.setdefault((namespace, name), PlacedClaim(namespace=namespace, name=name))

    def _strategy(self, pod: Pod | None, claims: Iterable[ResourceClaim]) -> Strategy:
        """Return the strategy: of the call, of the pod, of a class, or the default."""
        strategy = self._options.strategy or self._named_strategy(pod, claims)
        return registry.with_weights(strategy, self._options.weights)

    def _named_strategy(self, pod: Pod | None, claims: Iterable[ResourceClaim]) -> Strategy:
        names = dict.fromkeys(name for claim in claims for name in class_names(claim))
        classes = {name: self._objects.classes.get(name) for name in names}
        name = registry.choose_strategy(
            pod.annotations if pod is not None else {},
            {
                name: device_class.metadata.annotations or {}
                for name, device_class in classes.items()
                if device_class
            },
        )
        strategy = name if isinstance(name, FieldError) else registry.find_strategy(name)
        if isinstance(strategy, FieldError):
            title = f"Pod {pod.metadata.namespace}/{pod_name(pod)}: " if pod is not None else ""
            note = f"{title}{strategy.path}: {strategy.message}, so {registry.DEFAULT} is used; use {strategy.fix}"
            self._notes[note] = None
            return FIRST_FIT
        return strategy
