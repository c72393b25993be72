"""Who may be in use beside whom in one pool, as one policy has it; shared by search and reports.

Two checks, and both must pass. Devices in one *neighbourhood* must all have one compatibility group
in common (KEP-5963's rule, for the groups that slices declare and, separately, for those that rules
give). And of every two of them each must satisfy the other's expressions. What raises, or cannot be
judged, keeps the pair apart.

Source: DESIGN.md 3.3; research/allocator-features.md 3, whose numbers of messages are E1 to E8.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from allocator.core.model import DeviceId, PoolId, PublishedDevice
from allocator.core.outcome import Reason
from allocator.core.rules import CompiledPolicy, FaultKind, Profile
from kube.api.resource import DeviceAttribute
from kube.cel.device import qualified


class Clause(StrEnum):
    """Which clause two devices break; of several the first here is told first."""

    INVALID = "ruleInvalid"
    UNKNOWN = "unknownTenant"
    COUNTERS = "counters"
    GROUPS = "groupsDisjoint"
    REFUSES = "refusesTenant"
    REFUSED = "refusedByTenant"
    UNDECLARED = "groupsUndeclared"
    INCONSISTENT = "allocatedSetInconsistent"
    FAILED = "ruleEvaluationError"
    BROKEN = "tenantRuleInvalid"


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why a device may not be used beside others.

    Attributes:
        message: Without who holds the others.
        others: The devices beside it that this is about.
    """

    clause: Clause
    message: str
    others: tuple[DeviceId, ...] = ()
    is_native: bool = False

    @property
    def reason(self) -> Reason:
        """In the words of the search: groups of slices, counters, or the policy."""
        if self.clause is Clause.COUNTERS:
            return Reason.COUNTERS
        return Reason.GROUPS if self.is_native else Reason.POLICY


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether devices may be in use together, and if not, why: most telling cause first."""

    causes: tuple[Cause, ...] = ()

    @property
    def is_compatible(self) -> bool:
        """Nothing speaks against it."""
        return not self.causes


# --- neighbourhoods -------------------------------------------------------------------------------

Place = tuple[str, str]
"""("set", counter set), ("hardware", value of a physical attribute) or ("pool", "")."""
_POOL: Final[Place] = ("pool", "")
Membership = tuple[bool, Place]
"""Whether the groups are those of the slice (else those of rules), and where."""
Groups = frozenset[str] | None
"""None where none are declared, which is not the same as having none left in common."""


class Standing(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A device as one policy sees it.

    Attributes:
        kind: Number of all that verdicts depend on; devices of one catalogue with one number are
            treated alike.
        places: Its neighbourhoods; two devices of a pool with one in common are co-tenants.
        groups: What it declares where: per counter set what the slice says, per neighbourhood
            what rules say.
    """

    id: DeviceId
    kind: int
    profile: Profile
    places: frozenset[Place]
    groups: Mapping[Membership, Groups]


class Catalogue:
    """The devices of one pool as one policy sees them.

    Attributes:
        policy: The policy.
        devices: Name to device.
    """

    def __init__(self, policy: CompiledPolicy, devices: Iterable[PublishedDevice]) -> None:
        """Find the neighbourhoods that these devices tell apart."""
        self.policy = policy
        self.devices = {each.id.device: each for each in devices}
        self._sets: set[str] = set()
        self._hardware: dict[str, int] = {}
        self._standings: dict[PublishedDevice, Standing] = {}
        self._kinds: dict[Hashable, int] = {}
        for published in self.devices.values():
            used = sets_of(published)
            self._sets |= used
            named = None if used else _hardware(policy, published)
            if named is not None:
                self._hardware.setdefault(named, len(self._hardware))

    def standing(self, published: PublishedDevice) -> Standing:
        """Return how the policy sees one of the devices; the same object for the same device."""
        found = self._standings.get(published)
        if found is None:
            found = self._standings[published] = self._standing(published)
        return found

    def look(self, published: PublishedDevice) -> Hashable:
        """Return all that verdicts on a device depend on, whatever hardware is called.

        Together with its groups in slices, that is; equal for devices of other pools, too.
        """
        standing = self.standing(published)
        places: list[tuple[str, str | int]] = [
            (kind, self._hardware[name] if kind == "hardware" else name)
            for kind, name in standing.places
        ]
        return standing.profile.number, frozenset(places)

    def _standing(self, published: PublishedDevice) -> Standing:
        profile = self.policy.profile(published)
        places = self._places(published)
        groups: dict[Membership, Groups] = {}
        for taken in published.device.consumes_counters or ():
            at = (True, ("set", taken.counter_set))
            named = frozenset(taken.compatibility_groups or ()) or None
            before = groups.get(at)
            groups[at] = named & before if named and before else named
        if self.policy.has_groups:
            groups |= {(False, place): profile.groups for place in places}
        key = (profile.number, places, frozenset(groups.items()))
        return Standing(
            id=published.id,
            kind=self._kinds.setdefault(key, len(self._kinds)),
            profile=profile,
            places=places,
            groups=groups,
        )

    def _places(self, published: PublishedDevice) -> frozenset[Place]:
        """Return the neighbourhoods of a device.

        Two devices that consume counters meet on a common set. Two that do not meet on the same
        hardware. Where that tells nothing, or one does and one does not, they meet in the pool: so
        a device without counters is on every set, and one that names no hardware on all hardware.
        """
        if self.policy.is_pool_wide:
            return frozenset((_POOL,))
        sets = sets_of(published)
        if sets:
            return frozenset([("set", name) for name in sets])
        named = _hardware(self.policy, published)
        hardware = self._hardware.keys() if named is None else {named}
        places = {("set", name) for name in self._sets}
        places |= {("hardware", name) for name in hardware}
        return frozenset(places if named is not None else places | {_POOL})


def sets_of(published: PublishedDevice) -> frozenset[str]:
    """Return the counter sets that a device consumes."""
    return frozenset([taken.counter_set for taken in published.device.consumes_counters or ()])


def _hardware(policy: CompiledPolicy, published: PublishedDevice) -> str | None:
    """Return the value of the first physical attribute that a device has."""
    attributes = published.device.attributes or {}
    if not attributes:
        return None
    values = {qualified(name, policy.driver): value for name, value in attributes.items()}
    for place in policy.physical_attributes:
        if place in values:
            return _text(values[place])
    return None


def _text(attribute: DeviceAttribute) -> str:
    values = (attribute.string, attribute.version, attribute.int_, attribute.bool_)
    return next((str(value) for value in values if value is not None), repr(attribute))


def where(place: Place, pool: str) -> str:
    """Return a neighbourhood in words."""
    kind, name = place
    return {"set": f"set {name}", "hardware": f"device {name}", "pool": f"pool {pool}"}[kind]


# --- judging --------------------------------------------------------------------------------------


def judge(policy: CompiledPolicy, candidate: PublishedDevice, tenant: PublishedDevice) -> Verdict:
    """Return whether a candidate may join a tenant; both directions are asked.

    Symmetric but for the words. A device goes together with itself: shares of one device are never
    compared.
    """
    return compatible((tenant, candidate), policy)


def compatible(devices: Sequence[PublishedDevice], policy: CompiledPolicy) -> Verdict:
    """Return whether devices may all be in use at once; their order decides the words only.

    Counters are not looked at. Devices of other drivers are compatible with everything.
    """
    causes: list[Cause] = []
    by_pool: dict[PoolId, dict[DeviceId, PublishedDevice]] = {}
    for each in devices:
        if each.id.driver == policy.driver:
            pool = PoolId(each.id.driver, each.id.pool)
            by_pool.setdefault(pool, {})[each.id] = each
    for members in by_pool.values():
        neighbours = Neighbourhoods(Catalogue(policy, members.values()))
        for published in members.values():
            causes += neighbours.causes(published)
            neighbours.join(published)
    return Verdict(causes=ranked(causes))


_ORDER: Final = {clause: place for place, clause in enumerate(Clause)}


def ranked(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Return each cause once, the most telling first."""
    return tuple(sorted(dict.fromkeys(causes), key=lambda cause: _ORDER[cause.clause]))


class Neighbourhoods:
    """The devices in use in one pool as one policy sees them, by neighbourhood."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Begin with nothing in use."""
        self._catalogue = catalogue
        self._isolates = catalogue.policy.isolates
        self._at: dict[Place, list[Standing]] = {}
        self._members: dict[Membership, list[Standing]] = {}

    def join(self, published: PublishedDevice) -> None:
        """Take a device into use, whatever speaks against it."""
        standing = self._catalogue.standing(published)
        for place in standing.places:
            self._at.setdefault(place, []).append(standing)
        for membership in standing.groups:
            self._members.setdefault(membership, []).append(standing)

    def leave(self, published: PublishedDevice) -> None:
        """Undo the latest `join`, which was this device's."""
        standing = self._catalogue.standing(published)
        for place in standing.places:
            self._at[place].pop()
        for membership in standing.groups:
            self._members[membership].pop()

    def causes(self, published: PublishedDevice) -> Iterator[Cause]:
        """Yield what speaks against a device; a cause may come twice."""
        candidate = self._catalogue.standing(published)
        yield from _unusable(candidate)
        for membership, groups in candidate.groups.items():
            yield from self._disjoint(candidate, membership, groups)
        for place in candidate.places:
            for tenant in self._at.get(place, ()):
                if tenant.id != candidate.id and not agree(candidate.profile, tenant.profile):
                    yield from _disagreements(candidate, tenant)

    def inconsistent(self, place: Place) -> Iterator[DeviceId]:
        """Yield the tenants of a neighbourhood that should not be there together."""
        tenants = self._at.get(place, ())
        for number, one in enumerate(tenants):
            for other in tenants[:number]:
                if one.id != other.id and not agree(one.profile, other.profile):
                    yield one.id
                    yield other.id
        for membership in ((True, place), (False, place)):
            members = self._members.get(membership, ())
            common, undeclared = self._common(membership)
            if len(members) > 1 and (common == frozenset() or (undeclared and common is not None)):
                yield from [member.id for member in members]

    def _common(self, membership: Membership) -> tuple[Groups, bool]:
        """Return what members have in common, None when none declares groups; whether some don't.

        Where the policy lets devices without groups join anything, they do not count.
        """
        groups = [member.groups[membership] for member in self._members.get(membership, ())]
        declared = [each for each in groups if each is not None]
        common = frozenset.intersection(*declared) if declared else None
        return common, self._isolates and len(declared) < len(groups)

    def _disjoint(
        self, candidate: Standing, membership: Membership, groups: Groups
    ) -> Iterator[Cause]:
        """Yield whether a candidate lacks a group that all members have.

        Source: KEP-5963, "Compatibility groups": a running intersection, or nobody declares any.
        """
        members = self._members.get(membership)
        if not members:
            return
        common, undeclared = self._common(membership)
        if groups is None:
            clause = Clause.UNDECLARED if self._isolates and common is not None else None
        elif undeclared:
            clause = Clause.UNDECLARED
        else:
            clause = None if common is None or groups & common else Clause.GROUPS
        if clause is not None:
            is_native, place = membership
            left = frozenset() if undeclared else common
            yield Cause(
                clause=clause,
                message=f"compatibility groups on {where(place, candidate.id.pool)}: device has "
                f"{_shown(groups)}, current tenants leave {_shown(left)}",
                others=tuple(dict.fromkeys(member.id for member in members)),
                is_native=is_native,
            )


def agree(one: Profile, other: Profile) -> bool:
    """Return whether each satisfies the other's expressions, for certain."""
    return not (one.doubts or other.doubts) and accepts(one, other) and accepts(other, one)


def accepts(owner: Profile, other: Profile) -> bool:
    """Return whether one device satisfies all expressions of another."""
    return all(other.answers[number].yes for number in owner.accepts)


def _unusable(candidate: Standing) -> Iterator[Cause]:
    for doubt in candidate.profile.doubts:
        if doubt.is_final:
            yield Cause(clause=Clause.INVALID, message=_broken(candidate.id, doubt.kind, doubt.why))


def _disagreements(candidate: Standing, tenant: Standing) -> Iterator[Cause]:
    """Yield why one device's rules, or what is unknown of them, keep the other away."""
    who, whom = candidate.id.device, tenant.id.device
    yield from _refusals(
        candidate,
        tenant,
        (tenant.id,),
        Cause(
            clause=Clause.REFUSES,
            message=f"device {who} accepts only devices matching its rule; {whom} does not match",
            others=(tenant.id,),
        ),
    )
    for doubt in tenant.profile.doubts:
        if doubt.is_final:
            message = _broken(tenant.id, doubt.kind, doubt.why)
            yield Cause(clause=Clause.BROKEN, message=message, others=(tenant.id,))
    yield from _refusals(
        tenant,
        candidate,
        (tenant.id,),
        Cause(
            clause=Clause.REFUSED,
            message=f"allocated device {whom} does not accept {who}",
            others=(tenant.id,),
        ),
    )


def _refusals(
    owner: Standing, asked: Standing, others: tuple[DeviceId, ...], no: Cause
) -> Iterator[Cause]:
    """Yield what the rules of one device say against another."""
    for doubt in owner.profile.doubts:
        if not doubt.is_final:
            yield _unanswered(owner.id, owner.id, doubt.kind, doubt.why, others)
    for number in owner.profile.accepts:
        answer = asked.profile.answers[number]
        if answer.kind is not None:
            yield _unanswered(owner.id, asked.id, answer.kind, answer.why, others)
        elif not answer.yes:
            yield no


def _unanswered(
    owner: DeviceId, asked: DeviceId, kind: FaultKind, why: str, others: tuple[DeviceId, ...]
) -> Cause:
    if kind is FaultKind.FAILED:
        message = f"compatibility rule of {owner.device} failed on {asked.device}: {why}"
        return Cause(clause=Clause.FAILED, message=message, others=others)
    return Cause(clause=Clause.BROKEN, message=_broken(owner, kind, why), others=others)


def _broken(owner: DeviceId, kind: FaultKind, why: str) -> str:
    verb = "cannot be judged" if kind is FaultKind.UNJUDGED else "is invalid"
    return f"compatibility rule of {owner.device} {verb}: {why}"


def _shown(groups: Groups) -> str:
    """Return groups as a set: `{mig, soft}`."""
    return f"{{{', '.join(sorted(groups or ()))}}}"
