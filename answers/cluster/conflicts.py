"""Conflicts in use of the devices of claims: with policies, and between sharing configurations. Pure."""

from collections.abc import Iterable, Iterator

from allocator.compatibility.compile import CompiledPolicy, compile_policy
from allocator.compatibility.conflicts_in_use import (
    ConflictInUse,
    describe_conflict,
    find_config_conflicts,
    find_policy_conflicts,
)
from allocator.compatibility.enforcement import groups_reject_the_same, policy_enforcement
from allocator.features.co_tenant_config import UNIFORM_CONFIG_DRIVERS
from allocator.model.devices import Pool, PoolId, pool_of
from allocator.model.feature_gates import Features
from allocator.model.pools import whole_pool
from allocator.model.scheduler_support import SchedulerSupport
from allocator.model.slice_index import build_index
from allocator.model.usage import gather_usage
from allocator.pods.claims import allocation_of, claim_name
from answers.model.cluster_state import ClusterState
from kube.api.policy import effective_policies
from kube.api.resource import ResourceClaim

_FEATURES = Features(compatibility_groups=True)
"""Whatever the scheduler does with groups, this is what slices declare."""


def describe_conflicts(
    claims: Iterable[ResourceClaim], state: ClusterState, support: SchedulerSupport
) -> tuple[str, ...]:
    """Return the conflicts of the devices that claims hold, in sentences.

    Args:
        claims: The claims; a claim without an allocation has no conflicts.
        support: The features that the cluster's schedulers evaluate.
    """
    usage = gather_usage(state.claims.values(), _FEATURES)
    policies = {
        driver: compile_policy(policy)
        for driver, policy in effective_policies(state.policies).items()
    }
    sentences: dict[str, None] = {}
    for claim in claims:
        name = claim_name(claim)
        for pool in _pools_of(claim):
            policy = policies.get(pool.driver)
            conflicts = list(find_config_conflicts(pool, usage, UNIFORM_CONFIG_DRIVERS))
            if policy is not None:
                conflicts += find_policy_conflicts(policy, _pool(pool, state), usage)
            for conflict in conflicts:
                for sentence in _sentences(conflict, name):
                    ending = _ending(policy, state, support) if policy and conflict.policy else ""
                    sentences[f"{sentence}{ending}"] = None
    return tuple(sentences)


def _pools_of(claim: ResourceClaim) -> list[PoolId]:
    allocation = allocation_of(claim)
    results = (allocation.devices.results if allocation is not None else None) or ()
    return sorted({PoolId(result.driver, result.pool) for result in results})


def _pool(id_: PoolId, state: ClusterState) -> Pool:
    slices = [
        slice_
        for slice_ in state.slices
        if (slice_.spec.driver, slice_.spec.pool.name) == (id_.driver, id_.pool)
    ]
    index = build_index(slices, _FEATURES)
    return whole_pool(index, id_) if index.by_pool else Pool(id=id_)


def _sentences(conflict: ConflictInUse, claim: tuple[str, str]) -> Iterator[str]:
    for device, holders in conflict.holders.items():
        if claim in holders:
            yield describe_conflict(conflict, device, claim)


def _ending(policy: CompiledPolicy, state: ClusterState, support: SchedulerSupport) -> str:
    """Return the reason a policy did not prevent a conflict; empty if it is enforced."""
    ids = {pool_of(slice_) for slice_ in state.slices if slice_.spec.driver == policy.driver}
    pools = [_pool(id_, state) for id_ in sorted(ids)] if support.compatibility_groups else []
    enforcement = policy_enforcement(
        policy,
        support,
        has_equivalent_groups=groups_reject_the_same(
            policy, [(*pool.devices, *pool.elsewhere) for pool in pools]
        ),
    )
    return "" if enforcement.is_enforced else f" The policy is not enforced: {enforcement.message}."
