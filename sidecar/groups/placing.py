"""The devices of a reserved pod of a group: those of the group's plan, as long as they are free."""

from collections.abc import Mapping, Sequence

from allocator.model.plan import Plan
from allocator.pods.claims import Name, claim_name
from allocator.search.recheck import are_compatible
from kube.api.core import Pod
from kube.api.resource import ResourceClaim
from quotas.device_quotas.affordable_nodes import is_owned
from sidecar.groups.places import Places, PlannedClaim
from sidecar.model.rejections import Rejection
from sidecar.plan.nominations import place_beside_rivals
from sidecar.plan.placement import Placement, are_available
from sidecar.plan.pod_claims import find_placeable_claims
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.tenant_budget import tenant_budget


def place_member(
    pod: Pod, node: str, snapshot: Snapshot, places: Places | None
) -> Placement | Rejection:
    """Return the devices that a reserved pod of a group gets on its node.

    Args:
        places: The last plan of its group; None without one. Where it does not hold any more, the pod is
            placed by itself.
    """
    if places is not None and places.nodes.get(pod.metadata.uid) == node:
        placement = _as_planned(pod, node, snapshot, places.claims)
        if placement is not None:
            return placement
    return place_beside_rivals(pod, node, snapshot)


def _as_planned(
    pod: Pod, node: str, snapshot: Snapshot, planned_claims: Mapping[Name, PlannedClaim]
) -> Placement | None:
    """Return the planned devices of a pod; None if its claims or the use have changed since."""
    claims = find_placeable_claims(pod, snapshot)
    known_node = snapshot.cluster.nodes.get(node)
    if isinstance(claims, Rejection) or known_node is None:
        return None
    planned: list[PlannedClaim] = []
    for claim in claims.open:
        planned_claim = planned_claims.get(claim_name(claim))
        if planned_claim is None or not _is_for(planned_claim, claim):
            return None
        planned.append(planned_claim)
    allocated_claims = [planned_claim.claim for planned_claim in planned]
    if not are_available((*claims.held, *allocated_claims), known_node):
        return None
    plan = Plan(
        node=node,
        choices=tuple(planned_claim.choices for planned_claim in planned),
        alternatives=(),
    )
    if not is_owned(plan, snapshot.drivers) or not _is_free(allocated_claims, plan, snapshot):
        return None
    if not _is_affordable(pod, plan, snapshot):
        return None
    return Placement(
        allocations=tuple(
            (claim, planned_claim.claim.status.allocation)
            for claim, planned_claim in zip(claims.open, planned, strict=True)
            if planned_claim.claim.status is not None
            and planned_claim.claim.status.allocation is not None
        )
    )


def _is_for(planned_claim: PlannedClaim, claim: ResourceClaim) -> bool:
    """Return True if a claim is still the one that was planned for."""
    planned_for = planned_claim.claim
    return planned_for.metadata.uid == claim.metadata.uid and planned_for.spec == claim.spec


def _is_free(claims: Sequence[ResourceClaim], plan: Plan, snapshot: Snapshot) -> bool:
    """Return True if the devices of a plan are published, and can be used beside those in use."""
    devices = snapshot.cluster.node_devices(plan.node)
    is_published = all(
        choice.device.id in devices.positions for choices in plan.choices for choice in choices
    )
    cluster = snapshot.cluster
    return is_published and are_compatible(claims, devices, cluster.usage, cluster.options)


def _is_affordable(pod: Pod, plan: Plan, snapshot: Snapshot) -> bool:
    """Return True if the tenant can still pay a plan."""
    quotas = snapshot.quotas
    if quotas is None:
        return True
    tenant = tenant_budget(pod.metadata.namespace, quotas, snapshot, None)
    return tenant is None or not tenant.excesses_of_plan(plan)
