"""Devices and amounts of tenants in use, as a decision assumes them: with other claims than there are."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from allocator.model import usage
from allocator.model.devices import PoolId
from allocator.model.feature_gates import Features
from allocator.model.usage import Usage, with_claim
from allocator.pods.claims import Name, allocation_of, claim_name
from kube.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.counted_claims import CountedClaim
from quotas.device_quotas.tenants import Account


class Occupancy(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The use of devices and quotas.

    Attributes:
        usage: The devices in use.
        released: Claims of the book that are assumed to be released.
        charged: Amounts that are assumed to be used beside those in the book, in nano-units.
    """

    usage: Usage
    released: frozenset[Name] = frozenset()
    charged: Mapping[Account, int] = MappingProxyType({})


class Keep(msgspec.Struct, frozen=True, kw_only=True):
    """Devices that are kept for a group of pods that has waited for long; others may be using them now.

    Attributes:
        group: The UID of the group.
        name: Its name.
        priority: The priority of its pods.
        since: The time since which it waits, in RFC 3339, which orders as text.
        namespace: The namespace of the group.
        claims: Its claims, allocated with these devices.
        nodes: The names of the nodes that its pods are to get.
    """

    group: str
    name: str
    priority: int
    since: str
    namespace: str
    claims: tuple[ResourceClaim, ...]
    nodes: frozenset[str]

    @property
    def importance(self) -> tuple[int, str, str]:
        """The order among groups: by priority, then by the time of waiting; smaller is more important."""
        return (-self.priority, self.since, self.group)


def with_allocated(
    occupancy: Occupancy, claim: ResourceClaim, features: Features, quotas: QuotaBook | None
) -> Occupancy:
    """Return the occupancy with one more claim; it is allocated."""
    return replace(
        occupancy,
        usage=with_claim(occupancy.usage, claim, features),
        charged=_with_charges(occupancy.charged, claim, quotas),
    )


def with_kept(
    occupancy: Occupancy,
    keeps: Iterable[Keep],
    features: Features,
    quotas: QuotaBook | None,
    *,
    pools: Collection[PoolId],
) -> Occupancy:
    """Return the occupancy with those kept claims that have a device of these pools."""
    for keep in keeps:
        for claim in keep.claims:
            if any(PoolId(use.driver, use.pool) in pools for use in _results(claim)):
                occupancy = with_allocated(occupancy, claim, features, quotas)
    return occupancy


def without_claims(
    occupancy: Occupancy, claims: Iterable[ResourceClaim], features: Features
) -> Occupancy:
    """Return the occupancy without claims."""
    claims = tuple(claims)
    return replace(
        occupancy,
        usage=usage.without_claims(occupancy.usage, claims, features),
        released=occupancy.released.union(map(claim_name, claims)),
    )


def counted_claim(claim: ResourceClaim) -> CountedClaim:
    """Return an allocated claim as quotas count it, the same once it is written."""
    allocation = allocation_of(claim)
    if allocation is not None:
        devices = DeviceAllocationResult(results=allocation.devices.results)
        allocation = AllocationResult(devices=devices)
    return CountedClaim(claim.metadata.namespace, claim.spec.devices, allocation)


def _results(claim: ResourceClaim) -> Sequence[DeviceRequestAllocationResult]:
    allocation = allocation_of(claim)
    return () if allocation is None else allocation.devices.results or ()


def _with_charges(
    charged: Mapping[Account, int], claim: ResourceClaim, quotas: QuotaBook | None
) -> Mapping[Account, int]:
    charges = {} if quotas is None else quotas.entry(counted_claim(claim)).charges
    if not charges:
        return charged
    return {**charged, **{name: charged.get(name, 0) + nanos for name, nanos in charges.items()}}
