"""The possible places of groups: every placement tried without the allocator, and upstream's, pod by pod."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.groups.model import GroupPlan
from allocator.model.plan import Plan
from allocator.nodes.resources_fit import has_resources
from allocator.pods.claims import Name, allocation_of, claim_name
from allocator.pods.node_eligibility import is_for
from allocator.search.results import allocations, share_ids
from kube.api.resource import ResourceClaim, ResourceClaimStatus
from testing.allocation.groups import (
    NETWORK_POOL,
    Case,
    GroupClaim,
    GroupDevice,
    cluster_of,
    question_of,
    resources_of,
)


def most_members(case: Case) -> int:
    """Return the number of members of the largest placement, found by trying all of them."""
    devices = tuple(entry for entry in case.devices if entry.is_free)
    dead: set[object] = set()
    best = 0

    def visit(
        number: int, placed: int, used: frozenset[GroupDevice], cpu: tuple[int, ...], common: object
    ) -> None:
        nonlocal best
        best = max(best, placed)
        state = (number, placed, used, cpu, common)
        if number == len(case.pods) or placed + len(case.pods) - number <= best or state in dead:
            return
        dead.add(state)
        pod = case.pods[number]
        for name in pod.nodes:
            place = case.nodes.index(name)
            if pod.cpu > cpu[place]:
                continue
            left = (*cpu[:place], cpu[place] - pod.cpu, *cpu[place + 1 :])
            for taken, then in _choices(pod.claims, devices, used, name, common):
                visit(number + 1, placed + 1, used | taken, left, then)
        visit(number + 1, placed, used, cpu, common)

    visit(0, 0, frozenset(), tuple(case.cpu[name] for name in case.nodes), None)
    return best


def _choices(
    claims: Sequence[GroupClaim],
    devices: Sequence[GroupDevice],
    used: frozenset[GroupDevice],
    node_name: str,
    common: object,
) -> Iterator[tuple[frozenset[GroupDevice], object]]:
    """Yield the devices for claims on a node, and the shared claim's place then: a node, or "all"."""
    if not claims:
        yield frozenset(), common
        return
    wanted, *rest = claims
    if wanted.name == "common" and common is not None:
        if common in {node_name, "all"}:
            yield from _choices(rest, devices, used, node_name, common)
        return
    candidates = [
        entry
        for entry in devices
        if entry not in used
        and entry.pool in {node_name, NETWORK_POOL}
        and wanted.model in {"", entry.model}
    ]
    for chosen in combinations(candidates, wanted.devices):
        if wanted.is_aligned and len({entry.root for entry in chosen}) > 1:
            continue
        then = common
        if wanted.name == "common":
            is_local = any(entry.pool == node_name for entry in chosen)
            then = node_name if is_local else "all"
        taken = frozenset(chosen)
        for more, last in _choices(rest, devices, used | taken, node_name, then):
            yield taken | more, last


# --- upstream's way -------------------------------------------------------------------------------


def placed_pod_by_pod(case: Case) -> int:
    """Return the number of members that are placed one after the other, first fit, without looking back."""
    cluster, question = cluster_of(case), question_of(case)
    resources = resources_of(case)
    allocated: dict[Name, ResourceClaim] = {}
    placed = 0
    for member in question.members:
        (option,) = member.options
        assert member.request is not None
        for name in sorted(option.nodes):
            held = [
                allocated[claim_name(entry)]
                for entry in option.claims
                if claim_name(entry) in allocated
            ]
            if not all(_is_usable(entry, name, cluster) for entry in held):
                continue
            if not has_resources(member.request, resources[name]):
                continue
            waiting = [entry for entry in option.claims if claim_name(entry) not in allocated]
            pending = cluster.resolve(waiting)
            outcome = cluster.verdict(pending, name)
            if isinstance(outcome, Plan):
                for entry in _allocated(outcome, pending.claims, cluster, waiting):
                    allocated[claim_name(entry)] = entry
                    cluster.allocate(entry)
                resources[name] = resources[name].with_pod(member.request)
                placed += 1
                break
    return placed


def _is_usable(entry: ResourceClaim, name: str, cluster: Cluster) -> bool:
    allocation = allocation_of(entry)
    selector = allocation.node_selector if allocation is not None else None
    return selector is None or is_for(selector, cluster.nodes[name])


def _allocated(
    plan: Plan, claims: Sequence[ResourceClaim], cluster: Cluster, waiting: Sequence[ResourceClaim]
) -> Iterator[ResourceClaim]:
    pending = cluster.resolve(waiting)
    results = allocations(plan, pending, cluster.options.features, share_ids(plan.node))
    for entry, allocation in zip(claims, results, strict=True):
        yield replace(entry, status=ResourceClaimStatus(allocation=allocation))


# --- a plan, checked without the allocator --------------------------------------------------------


def plan_faults(case: Case, plan: GroupPlan) -> list[str]:
    """Return the faults of a plan, in sentences."""
    devices = {(entry.pool, entry.name): entry for entry in case.devices}
    claims = {wanted.name: wanted for pod in case.pods for wanted in pod.claims}
    faults: list[str] = []
    where: dict[str, str] = {}
    used: set[GroupDevice] = set()
    for share in plan.shares:
        for entry, choices in zip(share.pending.claims, share.plan.choices, strict=True):
            wanted = claims[entry.metadata.name]
            taken = [devices[choice.device.id.pool, choice.device.id.device] for choice in choices]
            is_local = any(device.pool != NETWORK_POOL for device in taken)
            where[wanted.name] = share.node if is_local else "all"
            faults += _claim_faults(wanted, taken, share.node, used)
            used |= set(taken)
    return [*faults, *_pod_faults(case, plan, where)]


def _claim_faults(
    wanted: GroupClaim,
    taken: Sequence[GroupDevice],
    node: str,
    used: set[GroupDevice],
) -> Iterator[str]:
    if len(set(taken)) != wanted.devices:
        yield f"{wanted.name} has {len(set(taken))} devices"
    if wanted.is_aligned and len({device.root for device in taken}) > 1:
        yield f"{wanted.name} has several roots"
    for device in taken:
        if not device.is_free or device in used:
            yield f"{wanted.name} has {device.name}, which is in use"
        if wanted.model not in {"", device.model}:
            yield f"{wanted.name} has {device.name} of another model"
        if device.pool not in {node, NETWORK_POOL}:
            yield f"{wanted.name} has {device.name} of node {device.pool}"


def _pod_faults(case: Case, plan: GroupPlan, where: Mapping[str, str]) -> Iterator[str]:
    cpu = dict(case.cpu)
    for pod in case.pods:
        node = plan.nodes.get(f"default/{pod.name}")
        if node is None:
            continue
        cpu[node] -= pod.cpu
        if node not in pod.nodes:
            yield f"{pod.name} is on {node}"
        for wanted in pod.claims:
            if where.get(wanted.name) not in {node, "all"}:
                yield f"{wanted.name} is not allocated for {node}"
    yield from (f"{node} has too little CPU" for node, left in cpu.items() if left < 0)
