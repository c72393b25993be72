"""The placements of a simulation so far: claims with devices, pods with nodes or held back, resources in use."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.declarations.model import DeclaredGroup
from allocator.groups.model import GroupPlan, MemberOption
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.nodes.node_resources import NodeResources
from allocator.nodes.pod_requests import pod_request
from allocator.pods.claims import (
    Name,
    allocation_of,
    claim_name,
    pinned_to,
    pod_claims,
    pod_name,
)
from allocator.pods.extended_resource_claim import extended_resource_claim, mapped_resources
from allocator.search.results import allocations, share_ids
from allocator.simulation.attempt import NodeDomain, PlacementAttempt
from allocator.simulation.group_attempt import member_name
from allocator.simulation.model import PlacedClaim, PlacedPod, SimulationInput
from allocator.simulation.node_filter import NodeFilter
from allocator.simulation.quotas import HeldBack
from allocator.simulation.resources import ResourceLedger
from kube.api.core import Pod
from kube.api.resource import ResourceClaim, ResourceClaimStatus


class Placements:
    """The state of a simulation. The views of the cluster have the allocations, too.

    Attributes:
        cluster: The view of the scheduler at work.
        claims: The results for claims, in the order of the attempts.
        uses: Names of the claims of each pod that is placed.
        ledger: The resources of nodes.
        filter: The nodes for pods and claims, devices aside.
    """

    def __init__(
        self,
        cluster: Cluster,
        objects: SimulationInput,
        other_views: Mapping[str, Cluster],
        *,
        named_nodes_only: bool = False,
        nodes: Collection[str] | None = None,
    ) -> None:
        """Begin with the cluster as it is.

        Args:
            other_views: The views of `simulate_in_order`.
            named_nodes_only: The flag of `SimulationOptions`.
            nodes: Those of `SimulationOptions`.
        """
        self.cluster = self._first_view = cluster
        self.claims: dict[Name, PlacedClaim] = {}
        self.uses: dict[Name, tuple[str, ...]] = {}
        self.ledger = ResourceLedger(objects.resources, objects.extended_resources)
        self.filter = NodeFilter(
            *(cluster.nodes, self.ledger, objects.extended_resources),
            named_nodes_only=named_nodes_only,
            only=nodes,
        )
        self._other_views = other_views
        # Several schedulers may share one view.
        self._views = tuple({id(view): view for view in (cluster, *other_views.values())}.values())
        self._objects = objects
        self._known = dict(objects.known)

    def see_as(self, scheduler: str | None) -> None:
        """Go on with the view of a scheduler, or with that of claims on their own."""
        self.cluster = self._other_views.get(scheduler or "", self._first_view)

    def attempt(self, pod: Pod, domain: NodeDomain | None = None) -> PlacementAttempt:
        """Return a pod with its claims as they are now.

        Args:
            domain: The nodes that its group leaves it; None for all.
        """
        return PlacementAttempt(
            title=f"Pod {pod.metadata.namespace}/{pod_name(pod)}",
            pod=pod,
            claims=pod_claims(pod, self._known, self._objects.templates),
            resources=mapped_resources(pod, self._objects.extended_resources),
            request=pod_request(pod) if self._objects.resources is not None else None,
            domain=domain,
        )

    def extended_claims(
        self, attempt: PlacementAttempt, resources: Collection[str]
    ) -> tuple[ResourceClaim, ...]:
        """Return the claim that the scheduler makes for these extended resources, if any."""
        if attempt.pod is None or not resources:
            return ()
        mapping = self._objects.extended_resources
        return (extended_resource_claim(attempt.pod, resources, mapping),)

    def options(self, attempt: PlacementAttempt) -> list[MemberOption]:
        """Return the nodes that a member of a group may use, by the claims that it needs there."""
        nodes = self.filter.filter(attempt).feasible
        return [
            MemberOption(
                nodes=tuple(names),
                claims=(*attempt.claims.open, *self.extended_claims(attempt, resources)),
            )
            for resources, names in nodes.items()
        ]

    def expect(self, claims: Iterable[ResourceClaim]) -> None:
        """Add claims to those that are to be placed."""
        for claim in claims:
            namespace, name = claim_name(claim)
            self.claims.setdefault((namespace, name), PlacedClaim(namespace=namespace, name=name))

    def use_node(self, attempt: PlacementAttempt, node: str) -> None:
        """Take a node's resources for a pod, and note its claims."""
        assert attempt.pod is not None
        resources = self.filter.resources_for_claims(attempt, node)
        claims = (*attempt.claims.open, *self.extended_claims(attempt, resources))
        place = attempt.pod.metadata.namespace, pod_name(attempt.pod)
        self.uses[place] = tuple(claim.metadata.name for claim in claims)
        if attempt.request is not None:
            self.ledger.place(attempt.request, node)

    def take_places(
        self, attempts: Sequence[PlacementAttempt], plan: GroupPlan
    ) -> Mapping[Name, str]:
        """Allocate the devices of a group's plan; return its pods' nodes.

        Raises:
            AttemptFailed: The node selectors of the devices cannot be combined.
        """
        for share in plan.shares:
            self.allocate(share.plan, share.pending)
        nodes: dict[Name, str] = {}
        for attempt in attempts:
            assert attempt.pod is not None
            node = plan.nodes.get(member_name(attempt.pod))
            if node is not None:
                self.use_node(attempt, node)
                nodes[attempt.pod.metadata.namespace, pod_name(attempt.pod)] = node
        return nodes

    def allocate(self, plan: Plan, pending: PendingClaims) -> None:
        """Allocate the devices of a plan.

        Raises:
            AttemptFailed: The node selectors of the devices cannot be combined.
        """
        features = self.cluster.options.features
        seed = ",".join("/".join(claim_name(claim)) for claim in pending.claims)
        results = allocations(plan, pending, features, share_ids(seed))
        for claim, allocation in zip(pending.claims, results, strict=True):
            status = replace(claim.status or ResourceClaimStatus(), allocation=allocation)
            allocated_claim = replace(claim, status=status)
            for view in self._views:
                view.allocate(allocated_claim)
            namespace, name = claim_name(claim)
            self._known[namespace, name] = allocated_claim
            self.claims[namespace, name] = PlacedClaim(
                namespace=namespace, name=name, node=pinned_to(allocation), allocation=allocation
            )

    def checkpoint(self) -> "Checkpoint":
        """Return the present placements, for `take_back`."""
        resources = self.ledger.resources
        return Checkpoint(
            known_claims=dict(self._known),
            claims=dict(self.claims),
            uses=dict(self.uses),
            resources=None if resources is None else dict(resources),
        )

    def take_back(self, checkpoint: "Checkpoint") -> None:
        """Take back the placements since a checkpoint; it cannot be used again."""
        for name, claim in self._known.items():
            if checkpoint.known_claims.get(name) is not claim:
                for view in self._views:
                    view.release(claim)
        self._known = checkpoint.known_claims
        self.claims, self.uses = checkpoint.claims, checkpoint.uses
        self.ledger.resources = checkpoint.resources


class Checkpoint(NamedTuple):
    """The placements of a simulation at some time."""

    known_claims: dict[Name, ResourceClaim]
    claims: dict[Name, PlacedClaim]
    uses: dict[Name, tuple[str, ...]]
    resources: dict[str, NodeResources] | None


class HeldBackPods:
    """The pods of one simulation that are held back.

    Attributes:
        reasons: The reason of each.
    """

    def __init__(self, state: Placements, objects: SimulationInput) -> None:
        """Begin without charges.

        Args:
            state: The placements so far.
        """
        self.reasons: dict[Name, HeldBack] = {}
        self._state = state
        self._objects = objects
        if objects.quotas is not None:
            objects.quotas.begin()

    def is_held_back(self, pod: Pod) -> bool:
        """Return True if a quota keeps a pod from being tried, and note that; charge the pod if none does."""
        quotas = self._objects.quotas
        reason = None if quotas is None else quotas.hold_back(pod)
        if reason is not None:
            self.note(pod, reason)
        return reason is not None

    def without_members(self, group: DeclaredGroup) -> DeclaredGroup:
        """Return a group without pods that are not tried with it, and note these."""
        quotas = self._objects.quotas
        reasons = {} if quotas is None else quotas.hold_back_members(group)
        tried: list[Pod] = []
        for pod in group.waiting:
            reason = reasons.get((pod.metadata.namespace, pod_name(pod)))
            if reason is None:
                tried.append(pod)
            else:
                self.note(pod, reason)
        return replace(group, waiting=tuple(tried), held_back=group.held_back + len(reasons))

    def placed_pod(self, name: Name, node: str | None) -> PlacedPod:
        """Return the result for a pod.

        Args:
            node: The node that it gets; None if it gets none.
        """
        reason = self.reasons.get(name)
        if reason is None:
            return PlacedPod(namespace=name[0], name=name[1], node=node)
        waits = True if reason.waits else msgspec.UNSET
        return PlacedPod(namespace=name[0], name=name[1], reason=reason.reason, waits=waits)

    def note(self, pod: Pod, reason: HeldBack) -> None:
        """Note a pod; claims that it names are not tried for their own sake."""
        namespace = pod.metadata.namespace
        self.reasons[namespace, pod_name(pod)] = reason
        for entry in pod.spec.resource_claims or ():
            claim = self._objects.known.get((namespace, entry.resource_claim_name or ""))
            if claim is not None and allocation_of(claim) is None:
                self._state.expect((claim,))
