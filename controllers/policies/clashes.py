"""Devices in use whose claims break a DeviceCompatibilityPolicy, or the configuration of a device.

Claims are named here; whoever publishes a conflict decides whose names it may show.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Final

import msgspec

from allocator.compatibility.compile import CompiledPolicy
from allocator.compatibility.pairs import Occupancy, PolicyPool, Site, describe_site, rank_causes
from allocator.features.co_tenant_config import contradictions_on
from allocator.model.devices import DeviceId, Pool, PoolId
from allocator.model.usage import Usage

MAX_SUSPECTS: Final = 64
"""Devices in use in one pool whose pairs are compared; more than any node has had so far."""


class Clash(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of one pool that are in use together and that the policy keeps apart.

    Attributes:
        devices: Two, or more where only all of them together break it. One device that claims share
            with contradicting configurations.
        holders: Device to namespace and name of each claim that holds it.
    """

    pool: PoolId
    devices: tuple[str, ...]
    reason: str
    holders: Mapping[str, tuple[tuple[str, str], ...]]


def clashes(policy: CompiledPolicy, pool: Pool, usage: Usage) -> Iterator[Clash]:
    """Yield what in use in one pool the policy keeps apart, whoever was there first."""
    use = usage.pools.get(pool.id, {})
    catalogue = PolicyPool(policy, (*pool.devices, *pool.elsewhere))
    tenants = [catalogue.devices[name] for name in sorted(use) if name in catalogue.devices]
    if len(tenants) < 2:
        return
    here = Occupancy(catalogue)
    for tenant in tenants:
        here.add(tenant)
    places = {place for each in tenants for place in catalogue.policy_device(each).sites}
    broken = {place: list(dict.fromkeys(here.inconsistent(place))) for place in sorted(places)}
    for devices, reason in _apart(catalogue, broken, pool.id.pool):
        yield Clash(
            pool=pool.id,
            devices=devices,
            reason=reason,
            holders={
                name: tuple(
                    dict.fromkeys((one.namespace, one.claim) for one in use[name].consumers)
                )
                for name in devices
            },
        )


def configuration_clashes(pool: PoolId, usage: Usage, drivers: Collection[str]) -> Iterator[Clash]:
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
            yield Clash(
                pool=pool,
                devices=(name,),
                reason=f"claims share device {name} with contradicting "
                f"{contradiction.kind or 'configuration'}s, and driver {pool.driver} rejects a pod "
                "whose configuration differs from the first that it prepared",
                holders={name: claims},
            )


def _apart(
    catalogue: PolicyPool, broken: Mapping[Site, Sequence[DeviceId]], pool: str
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield pairs that exclude each other, and those whom only the company of all excludes."""
    suspects = sorted({each for devices in broken.values() for each in devices})
    pairs: set[tuple[str, str]] = set()
    for one, other in combinations(islice(suspects, MAX_SUSPECTS), 2):
        meeting = Occupancy(catalogue)
        meeting.add(catalogue.devices[one.device])
        causes = rank_causes(meeting.causes(catalogue.devices[other.device]))
        if causes:
            pairs.add((one.device, other.device))
            yield (one.device, other.device), causes[0].message
    told: set[tuple[str, ...]] = set()
    for place, devices in broken.items():
        names = tuple(sorted(each.device for each in devices))
        if names and names not in told and pairs.isdisjoint(combinations(names, 2)):
            told.add(names)
            yield names, f"no compatibility group is common to all of {describe_site(place, pool)}"
