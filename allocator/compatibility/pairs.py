"""Devices of one pool that may be in use together, as one policy decides; shared by search and reports.

Two checks must pass. Co-located devices - by default those that share a counter set, else those that
name the same hardware, else all of the pool - must have one compatibility group in common (KEP-5963's
rule, for the groups that slices declare and, separately, for those that rules give). And of every
two of them each must satisfy the other's expressions. An expression that fails, or that cannot be
evaluated, makes the two incompatible.

Source: docs/compatibility.md; KEP-5963.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from allocator.compatibility.compile import CompiledPolicy, FaultKind, Profile
from allocator.model.devices import DeviceId, PoolId, PublishedDevice
from allocator.model.outcome import Reason, RejectionReason, Verb
from kube.api.resource import DeviceAttribute
from kube.cel.device import qualify_name


class Clause(StrEnum):
    """The clause that devices violate, the most telling first."""

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
    """One reason a device may not be used beside others.

    Attributes:
        message: A sentence that names the devices, without their consumers.
        rejection: The same as a rejection of the device, without its name.
        others: The devices beside it that this is about.
        rule: The name of the rule that does not accept a device; empty for all other causes.
    """

    clause: Clause
    message: str
    rejection: RejectionReason
    others: tuple[DeviceId, ...] = ()
    rule: str = ""

    @property
    def reason(self) -> Reason:
        """The reason of the rejection."""
        return self.rejection.reason


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict on devices in use together; without causes they are compatible."""

    causes: tuple[Cause, ...] = ()

    @property
    def is_compatible(self) -> bool:
        """Return True if there is no cause."""
        return not self.causes


# --- sites ----------------------------------------------------------------------------------------

Site = tuple[str, str]
"""A place where devices are co-located: ("set", counter set), ("hardware", value of a physical attribute) or
("pool", "")."""
_POOL: Final[Site] = ("pool", "")
GroupScope = tuple[bool, Site]
"""Two values: True for groups of slices (else of rules), and the site of the groups."""
Groups = frozenset[str] | None
"""None where none are declared, which differs from having none in common."""


class PolicyDevice(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A device as one policy sees it.

    Attributes:
        kind: Number of all that verdicts depend on; devices of one pool with the same number are
            treated alike.
        sites: Two devices of a pool are co-located where they have one in common.
        groups: Its groups: those of the slice per counter set, those of rules per site.
    """

    id: DeviceId
    kind: int
    profile: Profile
    sites: frozenset[Site]
    groups: Mapping[GroupScope, Groups]


class PolicyPool:
    """The devices of one pool as one policy sees them.

    Attributes:
        policy: The policy.
        devices: Name to device.
    """

    def __init__(self, policy: CompiledPolicy, devices: Iterable[PublishedDevice]) -> None:
        """Find the sites of the devices."""
        self.policy = policy
        self.devices = {device.id.device: device for device in devices}
        self._sets: set[str] = set()
        self._hardware: dict[str, int] = {}
        self._devices: dict[PublishedDevice, PolicyDevice] = {}
        self._kinds: dict[Hashable, int] = {}
        for device in self.devices.values():
            sets = counter_sets_of(device)
            self._sets |= sets
            name = None if sets else _hardware_name(policy, device)
            if name is not None:
                self._hardware.setdefault(name, len(self._hardware))

    def policy_device(self, published_device: PublishedDevice) -> PolicyDevice:
        """Return one of the devices as the policy sees it; the same object for the same device."""
        device = self._devices.get(published_device)
        if device is None:
            device = self._devices[published_device] = self._policy_device(published_device)
        return device

    def equivalence_key(self, published_device: PublishedDevice) -> Hashable:
        """Return all that verdicts on a device depend on, beside its groups in slices.

        Equal for devices of different pools and hardware.
        """
        device = self.policy_device(published_device)
        sites: list[tuple[str, str | int]] = [
            (kind, self._hardware[name] if kind == "hardware" else name)
            for kind, name in device.sites
        ]
        return device.profile.number, frozenset(sites)

    def hardware_number(self, device: PublishedDevice) -> int | None:
        """Return the number in `equivalence_key` of a device's hardware; None if the pool lacks it."""
        name = None if counter_sets_of(device) else _hardware_name(self.policy, device)
        return None if name is None else self._hardware.get(name)

    def _policy_device(self, device: PublishedDevice) -> PolicyDevice:
        profile = self.policy.profile(device)
        sites = self._sites(device)
        groups: dict[GroupScope, Groups] = {}
        for consumption in device.device.consumes_counters or ():
            scope = (True, ("set", consumption.counter_set))
            declared_groups = frozenset(consumption.compatibility_groups or ()) or None
            before = groups.get(scope)
            groups[scope] = (
                declared_groups & before if declared_groups and before else declared_groups
            )
        if self.policy.has_groups:
            groups |= {(False, site): profile.groups for site in sites}
        key = (profile.number, sites, frozenset(groups.items()))
        return PolicyDevice(
            id=device.id,
            kind=self._kinds.setdefault(key, len(self._kinds)),
            profile=profile,
            sites=sites,
            groups=groups,
        )

    def _sites(self, device: PublishedDevice) -> frozenset[Site]:
        """Return the sites of a device.

        Two devices that consume counters are co-located on a common counter set, two that do not on
        the same hardware. Where hardware is not named, or only one of two consumes counters, they
        are co-located in the pool: so a device without counters is on every counter set, and one
        that names no hardware is on all hardware.
        """
        if self.policy.is_pool_wide:
            return frozenset((_POOL,))
        sets = counter_sets_of(device)
        if sets:
            return frozenset([("set", name) for name in sets])
        name = _hardware_name(self.policy, device)
        hardware = self._hardware.keys() if name is None else {name}
        sites = {("set", set_name) for set_name in self._sets}
        sites |= {("hardware", hardware_name) for hardware_name in hardware}
        return frozenset(sites if name is not None else sites | {_POOL})


def counter_sets_of(device: PublishedDevice) -> frozenset[str]:
    """Return the counter sets that a device consumes."""
    return frozenset(
        [consumption.counter_set for consumption in device.device.consumes_counters or ()]
    )


def _hardware_name(policy: CompiledPolicy, device: PublishedDevice) -> str | None:
    """Return the value of the first physical attribute that a device has."""
    attributes = device.device.attributes or {}
    if not attributes:
        return None
    values = {qualify_name(name, policy.driver): value for name, value in attributes.items()}
    for name in policy.physical_attributes:
        if name in values:
            return _text(values[name])
    return None


def _text(attribute: DeviceAttribute) -> str:
    values = (attribute.string, attribute.version, attribute.int_, attribute.bool_)
    return next((str(value) for value in values if value is not None), repr(attribute))


def describe_site(site: Site, pool: str) -> str:
    """Return a site in words."""
    kind, name = site
    return {
        "set": f"counter set {name}",
        "hardware": f"hardware {name}",
        "pool": f"pool {pool}",
    }[kind]


# --- evaluation -----------------------------------------------------------------------------------


def evaluate_pair(
    policy: CompiledPolicy, candidate: PublishedDevice, tenant: PublishedDevice
) -> Verdict:
    """Decide if a candidate may be used beside a tenant; both directions are evaluated.

    Symmetric but for the messages. A device is compatible with itself: shares of one device are
    never compared.
    """
    return evaluate_devices((tenant, candidate), policy)


def evaluate_devices(devices: Sequence[PublishedDevice], policy: CompiledPolicy) -> Verdict:
    """Decide if devices may all be in use at once; their order affects the messages only.

    Counters are not checked. Devices of other drivers are compatible with everything.
    """
    causes: list[Cause] = []
    by_pool: dict[PoolId, dict[DeviceId, PublishedDevice]] = {}
    for device in devices:
        if device.id.driver == policy.driver:
            pool = PoolId(device.id.driver, device.id.pool)
            by_pool.setdefault(pool, {})[device.id] = device
    for members in by_pool.values():
        occupancy = Occupancy(PolicyPool(policy, members.values()))
        for device in members.values():
            causes += occupancy.causes(device)
            occupancy.add(device)
    return Verdict(causes=rank_causes(causes))


_ORDER: Final = {clause: number for number, clause in enumerate(Clause)}


def rank_causes(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Return each cause once, the most telling first."""
    return tuple(sorted(dict.fromkeys(causes), key=lambda cause: _ORDER[cause.clause]))


class Occupancy:
    """The devices in use in one pool as one policy sees them, by site."""

    def __init__(self, pool: PolicyPool) -> None:
        """Begin with nothing in use."""
        self._pool = pool
        self._isolates = pool.policy.isolates
        self._at: dict[Site, list[PolicyDevice]] = {}
        self._members: dict[GroupScope, list[PolicyDevice]] = {}

    def add(self, published_device: PublishedDevice) -> None:
        """Count a device as in use, compatible or not."""
        device = self._pool.policy_device(published_device)
        for site in device.sites:
            self._at.setdefault(site, []).append(device)
        for scope in device.groups:
            self._members.setdefault(scope, []).append(device)

    def remove(self, published_device: PublishedDevice) -> None:
        """Undo the latest `add`; it must have added this device."""
        device = self._pool.policy_device(published_device)
        for site in device.sites:
            self._at[site].pop()
        for scope in device.groups:
            self._members[scope].pop()

    def causes(self, device: PublishedDevice) -> Iterator[Cause]:
        """Yield the causes that exclude a device now; a cause may come twice."""
        candidate = self._pool.policy_device(device)
        yield from _invalid_rules(candidate)
        for scope, groups in candidate.groups.items():
            yield from self._group_conflict(candidate, scope, groups)
        for site in candidate.sites:
            for tenant in self._at.get(site, ()):
                if tenant.id != candidate.id and not agree(candidate.profile, tenant.profile):
                    yield from _rule_conflicts(candidate, tenant)

    def inconsistent(self, site: Site) -> Iterator[DeviceId]:
        """Yield the tenants of a site that should not be in use together."""
        tenants = self._at.get(site, ())
        for number, tenant in enumerate(tenants):
            for other in tenants[:number]:
                if tenant.id != other.id and not agree(tenant.profile, other.profile):
                    yield tenant.id
                    yield other.id
        for scope in ((True, site), (False, site)):
            members = self._members.get(scope, ())
            common, has_undeclared = self._common(scope)
            if len(members) > 1 and (
                common == frozenset() or (has_undeclared and common is not None)
            ):
                yield from [member.id for member in members]

    def _common(self, scope: GroupScope) -> tuple[Groups, bool]:
        """Return the groups that all members have in common, and True if some declare none.

        The groups are None when no member declares any. Where the policy lets devices without
        groups join anything, these do not count.
        """
        groups = [member.groups[scope] for member in self._members.get(scope, ())]
        declared_groups = [names for names in groups if names is not None]
        common = frozenset.intersection(*declared_groups) if declared_groups else None
        return common, self._isolates and len(declared_groups) < len(groups)

    def _group_conflict(
        self, candidate: PolicyDevice, scope: GroupScope, groups: Groups
    ) -> Iterator[Cause]:
        """Yield the lack of a group that all members have.

        Source: KEP-5963, "Compatibility groups": a running intersection, unless no member declares
        any.
        """
        members = self._members.get(scope)
        if not members:
            return
        common, has_undeclared = self._common(scope)
        if groups is None:
            clause = Clause.UNDECLARED if self._isolates and common is not None else None
        elif has_undeclared:
            clause = Clause.UNDECLARED
        else:
            clause = None if common is None or groups & common else Clause.GROUPS
        if clause is not None:
            is_native, site = scope
            shared_groups = None if has_undeclared else common
            own = f"groups {_format_groups(groups)}" if groups else "no groups"
            others = f"have {_format_groups(shared_groups) if shared_groups else 'none'} in common"
            if has_undeclared and groups is not None:
                others = "declare none"
            where = describe_site(site, candidate.id.pool)
            yield Cause(
                clause=clause,
                message=f"device {candidate.id.device} has compatibility {own} on {where}, devices "
                f"in use there {others}",
                rejection=RejectionReason(
                    reason=Reason.GROUPS if is_native else Reason.POLICY,
                    verb=Verb.HAVE,
                    subject="compatibility groups" if groups else "no compatibility groups",
                    value=_format_groups(groups) if groups else "",
                    remark=f"devices in use on {where} {others}",
                ),
                others=tuple(dict.fromkeys(member.id for member in members)),
            )


def agree(profile: Profile, other: Profile) -> bool:
    """Return True if each satisfies the other's expressions, for certain."""
    return (
        not (profile.doubts or other.doubts) and accepts(profile, other) and accepts(other, profile)
    )


def accepts(owner: Profile, other: Profile) -> bool:
    """Return True if one device satisfies all expressions of another."""
    return all(other.answers[number].yes for number in owner.accepts)


# --- causes ---------------------------------------------------------------------------------------


def _invalid_rules(candidate: PolicyDevice) -> Iterator[Cause]:
    for doubt in candidate.profile.doubts:
        if doubt.is_final:
            yield Cause(
                clause=Clause.INVALID,
                message=_faulty(candidate.id, doubt.kind, doubt.why),
                rejection=_policy_rejection(
                    Verb.HAVE, "a compatibility rule that", _fault(doubt.kind), doubt.why
                ),
            )


def _rule_conflicts(candidate: PolicyDevice, tenant: PolicyDevice) -> Iterator[Cause]:
    """Yield the conflicts of the rules of one of two devices with the other, known or not."""
    own, other = candidate.id.device, tenant.id.device
    others = (tenant.id,)
    for doubt in candidate.profile.doubts:
        if not doubt.is_final:
            yield Cause(
                clause=_clause(doubt.kind),
                message=_faulty(candidate.id, doubt.kind, doubt.why),
                rejection=_policy_rejection(
                    Verb.HAVE, "a compatibility rule that", _fault(doubt.kind), doubt.why
                ),
                others=others,
            )
    for number, rule in zip(candidate.profile.accepts, candidate.profile.owners, strict=True):
        answer = tenant.profile.answers[number]
        if answer.kind is not None:
            yield Cause(
                clause=_clause(answer.kind),
                message=_faulty(candidate.id, answer.kind, answer.why, on=other),
                rejection=_policy_rejection(
                    Verb.HAVE,
                    f"a compatibility rule that {_fault(answer.kind)} on",
                    other,
                    answer.why,
                ),
                others=others,
            )
        elif not answer.yes:
            yield Cause(
                clause=Clause.REFUSES,
                message=f"the rule of device {own} does not accept device {other}",
                rejection=_policy_rejection(Verb.NOT_ACCEPTING, "device", other),
                others=others,
                rule=rule,
            )
    for doubt in tenant.profile.doubts:
        message = _faulty(tenant.id, doubt.kind, doubt.why)
        yield Cause(
            clause=Clause.BROKEN if doubt.is_final else _clause(doubt.kind),
            message=message,
            rejection=_policy_rejection(Verb.CO_LOCATED, "device", other, message),
            others=others,
        )
    for number, rule in zip(tenant.profile.accepts, tenant.profile.owners, strict=True):
        answer = candidate.profile.answers[number]
        if answer.kind is not None:
            message = _faulty(tenant.id, answer.kind, answer.why, on=own)
            yield Cause(
                clause=_clause(answer.kind),
                message=message,
                rejection=_policy_rejection(
                    Verb.CO_LOCATED,
                    "device",
                    other,
                    f"its rule {_fault(answer.kind)}: {answer.why}",
                ),
                others=others,
            )
        elif not answer.yes:
            yield Cause(
                clause=Clause.REFUSED,
                message=f"the rule of device {other} in use does not accept device {own}",
                rejection=_policy_rejection(Verb.NOT_ACCEPTED, "device", other),
                others=others,
                rule=rule,
            )


def _policy_rejection(verb: Verb, subject: str, value: str, remark: str = "") -> RejectionReason:
    return RejectionReason(
        reason=Reason.POLICY, verb=verb, subject=subject, value=value, remark=remark
    )


def _clause(kind: FaultKind) -> Clause:
    return Clause.FAILED if kind is FaultKind.FAILED else Clause.BROKEN


def _fault(kind: FaultKind) -> str:
    """Return the fault of a rule, as a predicate."""
    return {
        FaultKind.INVALID: "is invalid",
        FaultKind.NOT_BOOLEAN: "gives no boolean",
        FaultKind.FAILED: "fails",
        FaultKind.NOT_EVALUATED: "cannot be evaluated",
    }[kind]


def _faulty(owner: DeviceId, kind: FaultKind, why: str, *, on: str = "") -> str:
    place = f" on device {on}" if on else ""
    return f"the compatibility rule of device {owner.device} {_fault(kind)}{place}: {why}"


def _format_groups(groups: Groups) -> str:
    """Return groups as a set: `{mig, soft}`."""
    return f"{{{', '.join(sorted(groups or ()))}}}"
