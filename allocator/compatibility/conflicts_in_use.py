"""Devices in use that violate a DeviceCompatibilityPolicy or have contradicting configurations.

A conflict names all claims; `describe_conflict` names those of one namespace only.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Final

import msgspec

from allocator.compatibility.compile import CompiledPolicy
from allocator.compatibility.pairs import Occupancy, PolicyPool, Site, describe_site, rank_causes
from allocator.features.co_tenant_config import contradictions_on
from allocator.model.devices import DeviceId, Pool, PoolId
from allocator.model.usage import Usage
from kube.api.policy import KIND

MAX_SUSPECTS: Final = 64
"""Devices in use in one pool that are compared in pairs."""
MAX_NAMED: Final = 5
"""Claims of the same namespace in one description."""

ClaimName = tuple[str, str]
"""Namespace and name."""


class ConflictInUse(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of one pool that are in use and that may not be used together.

    Attributes:
        policy: Name of the policy that they violate; empty for contradicting configurations.
        devices: Two, or more if only all of them together violate the policy. One device that claims
            share with contradicting configurations.
        holders: Device to the claims that hold it.
    """

    pool: PoolId
    policy: str = ""
    devices: tuple[str, ...]
    reason: str
    holders: Mapping[str, tuple[ClaimName, ...]]


def find_policy_conflicts(
    policy: CompiledPolicy, pool: Pool, usage: Usage
) -> Iterator[ConflictInUse]:
    """Yield the devices in use in one pool that violate a policy, in any order of allocation."""
    use = usage.pools.get(pool.id, {})
    policy_pool = PolicyPool(policy, (*pool.devices, *pool.elsewhere))
    tenants = [policy_pool.devices[name] for name in sorted(use) if name in policy_pool.devices]
    if len(tenants) < 2:
        return
    occupancy = Occupancy(policy_pool)
    for tenant in tenants:
        occupancy.add(tenant)
    sites = {site for tenant in tenants for site in policy_pool.policy_device(tenant).sites}
    inconsistent = {
        site: list(dict.fromkeys(occupancy.inconsistent(site))) for site in sorted(sites)
    }
    for devices, reason in _incompatible_sets(policy_pool, inconsistent, pool.id.pool):
        yield ConflictInUse(
            pool=pool.id,
            policy=policy.name,
            devices=devices,
            reason=reason,
            holders={
                name: tuple(
                    dict.fromkeys(
                        (consumer.namespace, consumer.claim) for consumer in use[name].consumers
                    )
                )
                for name in devices
            },
        )


def find_config_conflicts(
    pool: PoolId, usage: Usage, drivers: Collection[str]
) -> Iterator[ConflictInUse]:
    """Yield the devices in one pool that claims share with contradicting configurations.

    Args:
        pool: The pool.
        usage: Usage by allocated claims.
        drivers: Drivers that reject contradicting sharing configurations.
    """
    if pool.driver not in drivers:
        return
    for name, use in sorted(usage.pools.get(pool, {}).items()):
        for contradiction in contradictions_on(DeviceId(pool.driver, pool.pool, name), use):
            claims = tuple(
                dict.fromkeys(
                    (consumer.namespace, consumer.claim) for consumer in contradiction.consumers
                )
            )
            yield ConflictInUse(
                pool=pool,
                devices=(name,),
                reason=f"claims share device {name} with contradicting "
                f"{contradiction.kind or 'configuration'}s, and driver {pool.driver} rejects a pod "
                "whose configuration differs from the first that it prepared",
                holders={name: claims},
            )


def _incompatible_sets(
    policy_pool: PolicyPool, inconsistent: Mapping[Site, Sequence[DeviceId]], pool: str
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield incompatible pairs, and larger sets that are incompatible only as a whole."""
    suspects = sorted({device for devices in inconsistent.values() for device in devices})
    pairs: set[tuple[str, str]] = set()
    for device, other in combinations(islice(suspects, MAX_SUSPECTS), 2):
        occupancy = Occupancy(policy_pool)
        occupancy.add(policy_pool.devices[device.device])
        causes = rank_causes(occupancy.causes(policy_pool.devices[other.device]))
        if causes:
            pairs.add((device.device, other.device))
            yield (device.device, other.device), causes[0].message
    larger: set[tuple[str, ...]] = set()
    for site, devices in inconsistent.items():
        names = tuple(sorted(device.device for device in devices))
        if names and names not in larger and pairs.isdisjoint(combinations(names, 2)):
            larger.add(names)
            yield names, f"no compatibility group is common to all of {describe_site(site, pool)}"


# --- text -----------------------------------------------------------------------------------------


def describe_conflict(conflict: ConflictInUse, device: str, claim: ClaimName) -> str:
    """Return a conflict in a sentence, for readers of the namespace of a claim that holds a device."""
    others = [other for other in conflict.devices if other != device]
    consumers = {consumer for other in others or (device,) for consumer in conflict.holders[other]}
    claim_names = _name_claims(consumers - {claim}, claim[0])
    place = f"Device {device} of pool {conflict.pool.pool}"
    if not conflict.policy:
        shared_with = f" with {', '.join(claim_names)}" if claim_names else ""
        return f"{place} is shared{shared_with}: {conflict.reason}."
    held_by = f" (held by {', '.join(claim_names)})" if claim_names else ""
    return (
        f"{place} is in use beside {', '.join(others)}{held_by}, against {KIND} {conflict.policy}: "
        f"{conflict.reason}."
    )


def _name_claims(claims: Iterable[ClaimName], namespace: str) -> list[str]:
    """Return claims in words; those of other namespaces are not named."""
    names = sorted(claims)
    own = [f"claim {name}" for owner, name in names if owner == namespace][:MAX_NAMED]
    if any(owner != namespace for owner, _ in names):
        own.append("a claim in another namespace")
    return own
