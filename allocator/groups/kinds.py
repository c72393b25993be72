"""The members of a group by kind: members that are equal up to names are one question."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from allocator.cluster.canonical_requests import encode_requests
from allocator.groups.model import GroupMember, MemberOption
from allocator.nodes.pod_requests import PodRequest
from allocator.pods.claims import Name, claim_name
from allocator.search.attempt import AllocatorOptions
from kube.api.meta import encode
from kube.api.resource import ResourceClaim

Counts = tuple[int, ...]
"""The number of members of each kind: on a node, or without a place."""


class MemberKind(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Members that need the same on the same nodes.

    Attributes:
        members: The members, in order.
        option_of: Node to the index of the option that holds there.
        shares_claims: Some claim of theirs is a claim of another member, too.
        like: The number of the kind's claims and nodes. Kinds with the same number differ in CPU, memory and
            other counted resources alone.
    """

    members: tuple[GroupMember, ...]
    option_of: Mapping[str, int]
    shares_claims: bool
    like: int

    @property
    def request(self) -> PodRequest | None:
        """The resources of each member."""
        return self.members[0].request

    @property
    def options(self) -> tuple[MemberOption, ...]:
        """The options of the first member."""
        return self.members[0].options


def group_kinds(
    members: Sequence[GroupMember], options: AllocatorOptions
) -> tuple[tuple[MemberKind, ...], frozenset[Name]]:
    """Return the kinds of members in order of appearance, and the names of shared claims."""
    consumers: Counter[Name] = Counter()
    for member in members:
        names = {claim_name(claim) for option in member.options for claim in option.claims}
        consumers.update(names)
    shared = frozenset(name for name, count in consumers.items() if count > 1)
    numbers: dict[Hashable, int] = {}
    by_key: dict[tuple[int, Hashable], list[GroupMember]] = {}
    for member in members:
        like = numbers.setdefault(_claims_key(member, shared, options), len(numbers))
        request = None if member.request is None else encode(member.request)
        by_key.setdefault((like, request), []).append(member)
    kinds = tuple(
        MemberKind(
            members=tuple(equal_members),
            option_of={
                node: number
                for number, option in enumerate(equal_members[0].options)
                for node in option.nodes
            },
            shares_claims=any(
                claim_name(claim) in shared
                for option in equal_members[0].options
                for claim in option.claims
            ),
            like=like,
        )
        for (like, _), equal_members in by_key.items()
    )
    return kinds, shared


def without_resources(kinds: Sequence[MemberKind]) -> tuple[MemberKind, ...]:
    """Return the kinds that differ in claims or nodes, each with the members of all kinds like it."""
    by_number: dict[int, MemberKind] = {}
    members: dict[int, list[GroupMember]] = {}
    for kind in kinds:
        by_number.setdefault(kind.like, kind)
        members.setdefault(kind.like, []).extend(kind.members)
    return tuple(
        replace(by_number[like], members=tuple(members[like])) for like in range(len(by_number))
    )


def claims_of(
    kinds: Sequence[MemberKind], counts: Counts, node: str, first: Counts | None = None
) -> tuple[ResourceClaim, ...]:
    """Return the claims of members on a node, each claim once.

    Args:
        kinds: The kinds.
        counts: Members of each kind.
        node: A node that all of these members may use.
        first: The number of the first member of each kind; None for the first ones.
    """
    claims: dict[Name, ResourceClaim] = {}
    for index, (kind, count) in enumerate(zip(kinds, counts, strict=True)):
        start = 0 if first is None else first[index]
        for member in kind.members[start : start + count]:
            for claim in member.options[kind.option_of[node]].claims:
                claims.setdefault(claim_name(claim), claim)
    return tuple(claims.values())


def _claims_key(
    member: GroupMember, shared: frozenset[Name], options: AllocatorOptions
) -> Hashable:
    return tuple(
        (
            option.nodes,
            encode_requests(option.claims, options),
            tuple(_shared_name(claim, shared) for claim in option.claims),
        )
        for option in member.options
    )


def _shared_name(claim: ResourceClaim, shared: Iterable[Name]) -> Name | None:
    name = claim_name(claim)
    return name if name in shared else None
