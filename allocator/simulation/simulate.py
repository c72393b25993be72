"""The placement of pods and claims as the scheduler would decide it, on a snapshot of a cluster.

Pods come first, then claims that belong to no pod, each in order; what one is given is in use for the
next. `simulate_together` is one call of upstream's Allocate: all claims at once, on one node.

The allocator decides on devices, `allocator.pods.node_eligibility` on whether a node is eligible for
a pod at all; its `NOT_MODELLED` lists what neither checks.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.cluster.verdicts import Verdicts
from allocator.explain.closest_fit import closest_fit_now, closest_fit_when_idle
from allocator.explain.failure import FailedAttempt, Failure, NodeReason, NodeResult, abort_nodes
from allocator.explain.trace import Evaluated, PlacementTrace, trace_placement
from allocator.model.outcome import AttemptFailed, Reason
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.pods.claims import Name, PodClaims, allocation_of, claim_name, pod_claims, pod_name
from allocator.pods.extended_resource_claim import (
    device_plugin_resources,
    extended_resource_claim,
    mapped_resources,
    unavailable_resources,
)
from allocator.pods.node_eligibility import is_for, node_rejection
from allocator.search.results import allocations, share_ids
from allocator.simulation.attempt import PlacementAttempt, class_names, eligibility_key
from allocator.simulation.model import (
    PlacedClaim,
    PlacedPod,
    SimulationInput,
    SimulationOptions,
    SimulationResult,
)
from allocator.strategies import registry
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.strategy import Strategy
from kube.api.core import Pod
from kube.api.resource import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from kube.errors import FieldError

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


def pinned_to(allocation: AllocationResult) -> str | None:
    """Return the node to which an allocation is local; None when it is usable on several."""
    selector = allocation.node_selector
    for term in selector.node_selector_terms if selector is not None else ():
        for field in term.match_fields or ():
            if field.key == "metadata.name" and field.operator == "In" and field.values:
                return field.values[0]
    return None


class _Best(msgspec.Struct, frozen=True, kw_only=True):
    """The best node so far, with its plan; the greater `rank` wins, then the smaller name."""

    rank: int
    node: str
    plan: Plan
    pending: PendingClaims


_CACHED_PODS: Final = 64
"""Different pods whose eligible nodes are cached."""

_EligibleNodes = tuple[Mapping[frozenset[str], Sequence[str]], Mapping[str, NodeResult]]


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
        self._eligible: dict[bytes, _EligibleNodes] = {}
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
            failure = Failure(title=attempt.title)
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
            resources = self._resources_for_claims(attempt, node)
            extended = self._extended_claims(attempt, resources)
            claims |= {claim_name(claim): claim for claim in extended}
        self._expect(claims.values())
        failed_attempt = FailedAttempt(
            title=TOGETHER, usage=self._cluster.usage, rules=self._cluster.options
        )
        reasons = [reason for attempt in attempts for reason in self._node_reasons(attempt, node)]
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
        )

    def _add_pod(self, attempt: PlacementAttempt, node: str | None) -> None:
        assert attempt.pod is not None
        namespace, name = attempt.pod.metadata.namespace, pod_name(attempt.pod)
        self._pods.append(PlacedPod(namespace=namespace, name=name, node=node))
        if node is not None:
            resources = self._resources_for_claims(attempt, node)
            claims = (*attempt.claims.open, *self._extended_claims(attempt, resources))
            self._uses[namespace, name] = tuple(claim.metadata.name for claim in claims)

    # --- nodes -----------------------------------------------------------------------------------

    def _place(self, attempt: PlacementAttempt) -> str | None:
        """Place a pod or claim on the best node and return that; None when it fits none."""
        self._expect(attempt.claims.open)
        nodes, excluded_results = self._eligible_nodes(attempt)
        evaluated: list[Evaluated] = []
        failed_attempt = FailedAttempt(
            title=attempt.title, usage=self._cluster.usage, rules=self._cluster.options
        )
        try:
            best = self._best(attempt, nodes, evaluated)
            if len(self._traces) < self._options.traces:
                plan = best.plan if best is not None else None
                usage, rules = self._cluster.usage, self._cluster.options
                trace = trace_placement(
                    attempt.title, excluded_results, evaluated, plan, usage=usage, rules=rules
                )
                self._traces.append(trace)
            if best is not None:
                self._allocate(best.plan, best.pending)
                return best.node
        except AttemptFailed as error:
            excluded_results = self._abort(self._cluster.nodes, error)
            failed_attempt = msgspec.structs.replace(failed_attempt, excluded=excluded_results)
        else:
            failed_attempt = msgspec.structs.replace(
                failed_attempt,
                excluded=excluded_results,
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
                rank, node = 0 if strategy is FIRST_FIT else verdict.score, min(verdict.nodes)
                if best is None or (-rank, node) < (-best.rank, best.node):
                    plan = verdicts.plan(node)
                    assert plan is not None
                    best = _Best(rank=rank, node=node, plan=plan, pending=pending)
        return best

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

    def _eligible_nodes(self, attempt: PlacementAttempt) -> _EligibleNodes:
        """Return the eligible nodes, and the results of the others.

        Nodes are by the extended resources that a claim has to provide there. Replicas have the
        same nodes, so these are cached.
        """
        key = eligibility_key(attempt)
        cached_result = self._eligible.get(key) if key is not None else None
        if cached_result is not None:
            return cached_result
        nodes: dict[frozenset[str], list[str]] = {}
        excluded_results: dict[str, NodeResult] = {}
        for name in self._cluster.nodes:
            reasons = self._node_reasons(attempt, name)
            if reasons:
                excluded_results[name] = NodeResult(name=name, fits=False, reasons=reasons)
            else:
                nodes.setdefault(self._resources_for_claims(attempt, name), []).append(name)
        if key is not None:
            if len(self._eligible) >= _CACHED_PODS:
                self._eligible.clear()
            self._eligible[key] = (nodes, excluded_results)
        return nodes, excluded_results

    def _node_reasons(self, attempt: PlacementAttempt, name: str) -> tuple[NodeReason, ...]:
        """Return the reasons why a node is rejected before any device is evaluated."""
        if attempt.claims.missing:
            return tuple(
                NodeReason(code=missing.code, message=missing.message)
                for missing in attempt.claims.missing
            )
        node = self._cluster.nodes[name]
        details: list[str] = []
        if attempt.pod is not None:
            rejection = node_rejection(attempt.pod, node)
            details += [rejection.detail] if rejection is not None else []
            resources = self._objects.extended_resources
            details += [
                f"no {resource} on the node, and no DeviceClass maps it"
                for resource in unavailable_resources(attempt.pod, node, resources)
            ]
        for claim in attempt.claims.held:
            allocation = allocation_of(claim)
            selector = allocation.node_selector if allocation is not None else None
            if selector is not None and not is_for(selector, node):
                local = pinned_to(allocation) if allocation is not None else None
                where = f"on node {local}" if local else "for other nodes"
                details.append(f"claim {'/'.join(claim_name(claim))} is allocated {where}")
        return tuple(
            NodeReason(code=Reason.NODE_NOT_ELIGIBLE, message=detail) for detail in details
        )

    def _resources_for_claims(self, attempt: PlacementAttempt, node: str) -> frozenset[str]:
        """Return the extended resources that no device plugin of the node offers."""
        if not attempt.resources:
            return frozenset()
        return attempt.resources - device_plugin_resources(self._cluster.nodes[node])

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
            self._failed[-1] = FailedAttempt(title=self._failed[-1].title)
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
