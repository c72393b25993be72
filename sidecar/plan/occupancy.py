"""Devices and amounts of tenants in use, as a decision assumes them: with other claims than there are."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from allocator.model import usage
from allocator.model.feature_gates import Features
from allocator.model.usage import Usage, with_claim
from allocator.pods.claims import Name, allocation_of, claim_name
from kube.api.resource import ResourceClaim
from quotas.device_quotas.book import CountedClaim, QuotaBook
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


def with_allocated(
    occupancy: Occupancy, claim: ResourceClaim, features: Features, quotas: QuotaBook | None
) -> Occupancy:
    """Return the occupancy with one more claim; it is allocated."""
    return replace(
        occupancy,
        usage=with_claim(occupancy.usage, claim, features),
        charged=_with_charges(occupancy.charged, claim, quotas),
    )


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
    """Return an allocated claim as quotas count it."""
    return CountedClaim(claim.metadata.namespace, claim.spec.devices, allocation_of(claim))


def _with_charges(
    charged: Mapping[Account, int], claim: ResourceClaim, quotas: QuotaBook | None
) -> Mapping[Account, int]:
    charges = {} if quotas is None else quotas.entry(counted_claim(claim)).charges
    if not charges:
        return charged
    return {**charged, **{name: charged.get(name, 0) + nanos for name, nanos in charges.items()}}
