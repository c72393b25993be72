"""The placement of pods and claims as the scheduler would decide it, on a snapshot of a cluster.

Pods come first, then claims that belong to no pod, each in order; what one is given is in use for the
next. The pods of a group are placed with the first of them, together or not at all. `simulate_together` is one call of upstream's Allocate: all claims at once, on one node.

The allocator decides on devices, `allocator.pods.node_eligibility` on whether a node is eligible for
a pod at all, and `allocator.simulation.resources` on whether it has the CPU, the memory and what else is counted.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.cluster.verdicts import Verdicts
from allocator.declarations.model import DeclaredGroup, GroupName
from allocator.explain.closest_fit import closest_fit_now, closest_fit_when_idle
from allocator.explain.failure import (
    FailedAttempt,
    Failure,
    NodeReason,
    NodeResult,
    abort_nodes,
)
from allocator.explain.trace import Evaluated, PlacementTrace, trace_placement
from allocator.groups.model import GroupPlan
from allocator.model.outcome import AttemptFailed, Reason
from allocator.model.requests import PendingClaims
from allocator.pods.claims import Name, PodClaims, claim_name, pod_name
from allocator.simulation.attempt import BestNode, PlacementAttempt
from allocator.simulation.best_verdicts import best_verdicts
from allocator.simulation.group_attempt import (
    build_question,
    decide_within,
    describe,
    describe_excess,
    domain_left,
    failed_group,
    member,
    member_name,
    new_result,
    obstacle,
    pods_left,
)
from allocator.simulation.group_closest_fit import closest_fit_of_group, has_equal_members
from allocator.simulation.model import (
    PlacedGroup,
    PlacedPod,
    SimulationInput,
    SimulationOptions,
    SimulationResult,
)
from allocator.simulation.node_choice import NodeChoice
from allocator.simulation.placements import HeldBackPods, Placements
from allocator.simulation.quotas import HeldBack
from kube.api.core import Pod
from kube.api.resource import ResourceClaim

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


class _Run:
    """Places pods and claims in order, and records the results."""

    def __init__(
        self,
        cluster: Cluster,
        objects: SimulationInput,
        options: SimulationOptions,
        other_views: Mapping[str, Cluster] = MappingProxyType({}),
    ) -> None:
        self._state = Placements(
            cluster,
            objects,
            other_views,
            named_nodes_only=options.named_nodes_only,
            nodes=options.nodes,
        )
        self._objects = objects
        self._options = options
        self._pods: list[PlacedPod] = []
        self._node_results: tuple[NodeResult, ...] = ()
        self._failed: list[FailedAttempt] = []
        self._error: str | None = None
        self._choice = NodeChoice(self._state, objects, options)
        self._traces: list[PlacementTrace] = []
        self._quotas = objects.quotas
        self._waiting = HeldBackPods(self._state, objects)
        self._groups: dict[GroupName, PlacedGroup] = {}
        self._group_nodes: dict[Name, str] = {}
        self._group_of = {
            _name_of(pod): group for group in objects.groups.groups for pod in group.waiting
        }

    def result(self) -> SimulationResult:
        """Return the result so far."""
        nodes, failures = self._node_results, []
        for number, attempt in enumerate(self._failed, start=1):
            failure = Failure(title=attempt.title, summary=attempt.summary, event=attempt.event)
            is_named = attempt.title == self._options.explained_title
            is_last = number == len(self._failed)
            if number <= self._options.explained_failures or is_named or is_last:
                nodes = attempt.node_results(self._options.explain)
                failure = attempt.failure(nodes, self._state.cluster)
            failures.append(failure)
        return SimulationResult(
            claims=tuple(self._state.claims.values()),
            pods=tuple(self._pods),
            nodes=nodes,
            error=self._error,
            uses=self._state.uses,
            failures=tuple(failures),
            notes=(
                *dict.fromkeys(remark.detail for remark in self._objects.groups.remarks.values()),
                *self._choice.notes,
            ),
            traces=tuple(self._traces),
            resources=self._state.ledger.resources,
            groups=tuple(self._groups.values()),
            held_back=self._waiting.reasons,
        )

    # --- what is tried ---------------------------------------------------------------------------

    def place_pod(self, pod: Pod) -> None:
        """Try a pod with all claims that it needs, or the group that it is the first of."""
        self._state.see_as(pod.spec.scheduler_name)
        name = _name_of(pod)
        group = self._group_of.get(name)
        fault = self._objects.groups.faults.get(name)
        if group is not None:
            if group.name not in self._groups:
                self._place_group(group)
            self._pods.append(self._waiting.placed_pod(name, self._group_nodes.get(name)))
        elif fault is not None:
            attempt = self._state.attempt(pod)
            self._reject(attempt, NodeReason(code=fault.code, message=fault.message))
            self._add_pod(attempt, None)
        elif self._waiting.is_held_back(pod):
            self._pods.append(self._waiting.placed_pod(name, None))
        else:
            attempt = self._state.attempt(pod)
            self._add_pod(attempt, self._place(attempt))

    def place_claim(self, claim: ResourceClaim) -> None:
        """Try a claim on its own, unless it belongs to a pod."""
        self._state.see_as(None)
        if claim_name(claim) not in self._state.claims:
            title = f"ResourceClaim {'/'.join(claim_name(claim))}"
            self._place(PlacementAttempt(title=title, claims=PodClaims(open=(claim,))))

    def place_together(self, node: str) -> None:
        """Try all claims at once on one node."""
        pods = [pod for pod in self._objects.pods if not self._waiting.is_held_back(pod)]
        attempts = [self._state.attempt(pod) for pod in pods]
        claims = {claim_name(claim): claim for attempt in attempts for claim in attempt.claims.open}
        claims |= {
            name: claim
            for claim in self._objects.claims
            if (name := claim_name(claim)) not in self._state.claims
        }
        for attempt in attempts:
            resources = self._state.filter.resources_for_claims(attempt, node)
            extended = self._state.extended_claims(attempt, resources)
            claims |= {claim_name(claim): claim for claim in extended}
        self._state.expect(claims.values())
        failed_attempt = FailedAttempt(
            title=TOGETHER, usage=self._state.cluster.usage, rules=self._state.cluster.options
        )
        reasons = [
            reason
            for attempt in attempts
            if (excluded := self._state.filter.excluded(attempt, node)) is not None
            for reason in excluded.result.reasons
        ]
        reasons += self._state.filter.lacks_together(attempts, node)
        try:
            if reasons:
                result = NodeResult(name=node, fits=False, reasons=tuple(reasons))
                failed_attempt = replace(failed_attempt, excluded={node: result})
            else:
                verdicts_and_claims = self._place_claims(node, tuple(claims.values()))
                failed_attempt = replace(failed_attempt, evaluated=(verdicts_and_claims,))
        except AttemptFailed as error:
            failed_attempt = replace(failed_attempt, excluded=self._abort((node,), error))
        results = failed_attempt.node_results(self._options.explain)
        fits = all(result.fits for result in results)
        if fits:
            self._node_results = results
        else:
            self._failed.append(failed_attempt)
        for attempt in attempts:
            self._add_pod(attempt, node if fits else None)
        self._pods += [self._waiting.placed_pod(name, None) for name in self._waiting.reasons]

    def _place_claims(
        self, node: str, claims: Sequence[ResourceClaim]
    ) -> tuple[Verdicts, PendingClaims]:
        """Allocate claims together on one node if they fit; return the verdict.

        Raises:
            AttemptFailed: The attempt ends on all nodes.
        """
        pending = self._state.cluster.resolve(claims)
        first = self._objects.pods[0] if self._objects.pods else None
        verdicts = best_verdicts(
            self._state.cluster,
            pending,
            self._choice.strategy(first, claims),
            self._options.budget,
            (node,),
        )
        plan = verdicts.plan(node)
        if plan is not None:
            self._state.allocate(plan, pending)
        return verdicts, pending

    def _add_pod(self, attempt: PlacementAttempt, node: str | None) -> None:
        assert attempt.pod is not None
        self._pods.append(self._waiting.placed_pod(_name_of(attempt.pod), node))
        if node is not None:
            self._state.use_node(attempt, node)
        elif self._quotas is not None:
            self._quotas.release(attempt.pod)

    # --- groups ----------------------------------------------------------------------------------

    def _place_group(self, group: DeclaredGroup) -> None:
        """Place enough pods of a group, or none of them."""
        group = self._waiting.without_members(group)
        result = self._groups[group.name] = new_result(group)
        attempts = [self._state.attempt(pod) for pod in group.waiting]
        for attempt in attempts:
            self._state.expect(attempt.claims.open)
        reason = obstacle(group)
        if reason is not None:
            self._reject(PlacementAttempt(title=result.title), reason)
        elif attempts:
            reason = self._try_group(group, attempts)
        if reason is not None:
            self._groups[group.name] = replace(result, code=reason.code, reason=reason.message)
            for attempt in attempts:
                self._state.expect(self._state.extended_claims(attempt, attempt.resources))

    def _try_group(
        self, group: DeclaredGroup, attempts: Sequence[PlacementAttempt]
    ) -> NodeReason | None:
        """Place a group; return the reason if it does not fit."""
        result, checkpoint = self._groups[group.name], self._state.checkpoint()
        members = [member(attempt, self._state.options(attempt)) for attempt in attempts]
        claims = tuple(claim for option in members[0].options for claim in option.claims)
        question = build_question(
            group,
            members,
            self._state.ledger.resources,
            frozenset(self._objects.extended_resources),
            self._choice.strategy(group.waiting[0], claims),
        )
        try:
            outcome, excess = decide_within(
                *(self._state.cluster, group, question, self._quotas), self._options.group_budget
            )
            if isinstance(outcome, GroupPlan):
                places = self._state.take_places(attempts, outcome)
                if self._quotas is not None:
                    self._quotas.charge(group, outcome)
                nodes = self._place_others(group, places)
                self._group_nodes |= nodes
                self._groups[group.name] = replace(result, placed=len(nodes), score=outcome.score)
                return None
            if excess:
                reason = describe_excess(group, outcome, excess)
                self._reject(PlacementAttempt(title=result.title), reason)
                return reason
            reason = describe(group, outcome)
            is_uniform = has_equal_members(question)
            fit = None
            if is_uniform and len(self._failed) < self._options.closest_fits:
                fit = closest_fit_of_group(self._state.cluster, question)
            failed_attempt = failed_group(group, outcome, reason, fit)
            self._explain_group(attempts, outcome.closest, failed_attempt, is_uniform=is_uniform)
        except AttemptFailed as error:
            self._state.take_back(checkpoint)
            aborted = self._abort(self._state.cluster.nodes, error)
            reason = NodeReason(code=Reason.ATTEMPT_FAILED, message=str(error))
            self._add_failure(FailedAttempt(title=result.title, excluded=aborted))
        return reason

    def _place_others(self, group: DeclaredGroup, nodes: Mapping[Name, str]) -> dict[Name, str]:
        """Try the pods that a placed group does without, one by one; return their nodes and those of the others."""
        placed = dict(nodes)
        domain = domain_left(group, nodes.values(), self._state.cluster)
        for pod in pods_left(group, nodes):
            if self._waiting.is_held_back(pod):
                continue
            attempt = self._state.attempt(pod, domain)
            node = self._place(attempt)
            if node is not None:
                self._state.use_node(attempt, node)
                placed[_name_of(pod)] = node
            elif self._quotas is not None:
                self._quotas.release(pod)
        return placed

    def _explain_group(
        self,
        attempts: Sequence[PlacementAttempt],
        closest: GroupPlan,
        failed_attempt: FailedAttempt,
        *,
        is_uniform: bool,
    ) -> None:
        """Record the reason for the first pod that has no place beside the others."""
        checkpoint = self._state.checkpoint()
        try:
            self._state.take_places(attempts, closest)
            left = next(
                attempt.pod
                for attempt in attempts
                if attempt.pod is not None and member_name(attempt.pod) not in closest.nodes
            )
            attempt = self._state.attempt(left)
            filtered, evaluated = self._state.filter.filter(attempt), list[Evaluated]()
            self._choice.best(attempt, filtered.feasible, evaluated)
            failed_attempt = replace(
                failed_attempt,
                usage=self._state.cluster.usage,
                rules=self._state.cluster.options,
                excluded=self._state.filter.results(attempt, filtered),
                evaluated=tuple((entry.verdicts, entry.pending) for entry in evaluated),
            )
            if not is_uniform:
                failed_attempt = self._with_closest_fit(failed_attempt, attempt, filtered.feasible)
            # On the idle cluster the others of the group would be in the way as well.
            self._add_failure(replace(failed_attempt, closest_fit_when_idle=None))
        finally:
            self._state.take_back(checkpoint)

    def _reject(self, attempt: PlacementAttempt, reason: NodeReason) -> None:
        """Record a failure that has nothing to do with any node."""
        nodes = self._state.cluster.nodes
        self._add_failure(
            FailedAttempt(
                title=attempt.title,
                group_reason=reason,
                excluded={
                    name: NodeResult(name=name, fits=False, reasons=(reason,)) for name in nodes
                },
            )
        )
        self._state.expect(
            (*attempt.claims.open, *self._state.extended_claims(attempt, attempt.resources))
        )

    # --- nodes -----------------------------------------------------------------------------------

    def _place(self, attempt: PlacementAttempt) -> str | None:
        """Place a pod or claim on the best node and return that; None when it fits none."""
        self._state.expect(attempt.claims.open)
        filtered = self._state.filter.filter(attempt)
        nodes = filtered.feasible
        evaluated: list[Evaluated] = []
        failed_attempt = FailedAttempt(
            title=attempt.title, usage=self._state.cluster.usage, rules=self._state.cluster.options
        )
        try:
            best = self._choice.best(attempt, nodes, evaluated)
            if len(self._traces) < self._options.traces:
                plan = best.plan if isinstance(best, BestNode) else None
                usage, rules = self._state.cluster.usage, self._state.cluster.options
                results = self._state.filter.results(attempt, filtered)
                trace = trace_placement(
                    attempt.title, results, evaluated, plan, usage=usage, rules=rules
                )
                self._traces.append(trace)
            if isinstance(best, HeldBack) and attempt.pod is not None:
                self._waiting.note(attempt.pod, best)
                return None
            if isinstance(best, BestNode):
                self._state.allocate(best.plan, best.pending)
                if self._quotas is not None and attempt.pod is not None:
                    self._quotas.charge_devices(attempt.pod, best.pending, best.plan)
                return best.node
        except AttemptFailed as error:
            aborted = self._abort(self._state.cluster.nodes, error)
            failed_attempt = replace(failed_attempt, excluded=aborted)
        else:
            failed_attempt = replace(
                failed_attempt,
                event=self._state.filter.event(attempt, filtered),
                excluded=self._state.filter.results(attempt, filtered),
                evaluated=tuple((entry.verdicts, entry.pending) for entry in evaluated),
            )
            failed_attempt = self._with_closest_fit(failed_attempt, attempt, nodes)
        self._add_failure(failed_attempt)
        self._state.expect(self._state.extended_claims(attempt, attempt.resources))
        return None

    # --- outcomes --------------------------------------------------------------------------------

    def _add_failure(self, failed_attempt: FailedAttempt) -> None:
        """Record a failure; of those that are not explained only the last is kept whole."""
        last = self._failed[-1] if len(self._failed) > self._options.explained_failures else None
        if last is not None and last.title != self._options.explained_title:
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
        is_early = len(self._failed) < self._options.closest_fits
        if not nodes or not (is_early or attempt.title == self._options.explained_title):
            return failed_attempt
        resources, names = next(iter(nodes.items()))
        claims = (*attempt.claims.open, *self._state.extended_claims(attempt, resources))
        now = closest_fit_now(self._state.cluster, claims, nodes=names)
        when_idle = closest_fit_when_idle(self._state.cluster, claims, nodes=names)
        return replace(failed_attempt, closest_fit=now, closest_fit_when_idle=when_idle)


def _name_of(pod: Pod) -> Name:
    return pod.metadata.namespace, pod_name(pod)
