"""Findings on a policy, or on the groups that slices declare, on devices as published.

The allocator evaluates any policy and is safe: rules that are asymmetric or fail make devices
incompatible. Findings tell authors what they may not have intended. Devices that a policy does not
distinguish are compared once, and what holds in many pools is reported once, with an example and a
count.

Source: docs/compatibility.md.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Final

import msgspec

from allocator.compatibility.compile import CompiledPolicy, FaultKind
from allocator.compatibility.lint_findings import (
    SEVERITIES,
    Code,
    Place,
    PolicyFinding,
    PoolFinding,
    PoolFindings,
)
from allocator.compatibility.lint_text import Expression, expressions_of, lint_text
from allocator.compatibility.matrix import Groups, empty_policy, share_groups
from allocator.compatibility.pairs import (
    Occupancy,
    PolicyDevice,
    PolicyPool,
    accepts,
    agree,
    describe_site,
)
from allocator.features.partitionable_devices import pool_counters
from allocator.model.devices import Pool, PublishedDevice
from allocator.model.usage import Usage
from findings.field_path import FieldPath
from findings.text import join_names
from kube.api.policy import MAX_GROUPS
from kube.cel.device import qualify_name

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MAX_CLAIMS: Final = 5
_LIKELY: Final = frozenset({Code.ASYMMETRIC_RULE, Code.UNKNOWN_ATTRIBUTE, Code.UNKNOWN_LITERAL})
"""Findings on a policy's text that findings on published devices replace."""


def lint_pools(
    policy: CompiledPolicy | None, pools: Sequence[Pool], usage: Usage
) -> tuple[PolicyFinding, ...]:
    """Return the findings, errors first.

    Args:
        policy: None to check only what slices declare.
        pools: Pools of the driver; those of other drivers are left out, as are incomplete ones.
        usage: Messages name claims of any namespace that use inconsistent devices: they are for
            readers who may read claims everywhere.
    """
    relevant = [pool for pool in pools if policy is None or pool.id.driver == policy.driver]
    return merge_findings(policy, [lint_pool(policy, pool, usage) for pool in relevant])


def lint_pool(policy: CompiledPolicy | None, pool: Pool, usage: Usage) -> PoolFindings:
    """Return the findings on one pool of the policy's driver."""
    published_devices = (*pool.devices, *pool.elsewhere)
    evaluated_policy = policy if policy is not None else empty_policy(pool.id.driver)
    named_places = {
        place for expression in _expressions(evaluated_policy) for place in expression.attributes
    }
    attributes = _published_literals(published_devices, named_places, evaluated_policy.driver)
    return PoolFindings(
        found=tuple(_of_pool(evaluated_policy, pool, usage)),
        attributes=frozenset(attributes),
        texts=frozenset((place, text) for place, texts in attributes.items() for text in texts),
        has_devices=bool(published_devices),
    )


def merge_findings(
    policy: CompiledPolicy | None, parts: Iterable[PoolFindings]
) -> tuple[PolicyFinding, ...]:
    """Return the findings on a policy's text and on pools together, errors first.

    Args:
        policy: None for only what slices declare.
        parts: Findings on pools; the first example of several is reported.
    """
    firsts: dict[tuple[Code, tuple[object, ...]], PolicyFinding] = {}
    counts: Counter[tuple[Code, tuple[object, ...]]] = Counter()
    attributes: set[Place] = set()
    texts: set[tuple[Place, str]] = set()
    has_devices = False
    for part in parts:
        has_devices |= part.has_devices
        attributes |= part.attributes
        texts |= part.texts
        for code, key, message, devices in part.found:
            counts[code, key] += 1
            if (code, key) not in firsts:
                firsts[code, key] = PolicyFinding(
                    severity=SEVERITIES[code], code=code, message=message, devices=devices
                )
    findings = [] if policy is None else [*_of_text(policy), *_text_findings(policy)]
    if policy is not None and has_devices:
        # Published devices prove what the text makes likely.
        findings = [finding for finding in findings if finding.code not in _LIKELY]
        findings += _unpublished_names(policy, attributes, texts)
    findings += [
        msgspec.structs.replace(finding, count=counts[key]) if counts[key] > 1 else finding
        for key, finding in firsts.items()
    ]
    order = {code: place for place, code in enumerate(Code)}
    return tuple(sorted(findings, key=lambda finding: order[finding.code]))


# --- the text of a policy -------------------------------------------------------------------------


def _of_text(policy: CompiledPolicy) -> Iterator[PolicyFinding]:
    for fault in policy.faults:
        code = Code.RULE_INVALID if fault.kind is FaultKind.INVALID else Code.RULE_NOT_EVALUATED
        verb = "is invalid" if fault.kind is FaultKind.INVALID else "cannot be evaluated"
        yield _finding(code, f"rule {fault.rule} {verb}: {fault.why}", fault.path)
    for place, rule in enumerate(policy.source.spec.rules or ()):
        wrong = _wrong_names(rule.compatibility_groups or ())
        if wrong:
            path = FieldPath.of("spec", "rules", place, "compatibilityGroups")
            yield _finding(Code.INVALID_COMPATIBILITY_GROUPS, f"rule {rule.name}: {wrong}", path)


def _finding(code: Code, message: str, path: FieldPath) -> PolicyFinding:
    return PolicyFinding(severity=SEVERITIES[code], code=code, message=message, path=path)


def _wrong_names(names: Sequence[str]) -> str:
    """Return the reason the API server would reject groups; empty when it would not."""
    for name, times in Counter(names).items():
        if times > 1:
            return f"group {name} is named twice"
        if not _NAME.fullmatch(name):
            return f"group {name!r} is not a lowercase name of at most 63 letters, digits and '-'"
    return (
        f"{len(names)} groups, at most {MAX_GROUPS} are allowed" if len(names) > MAX_GROUPS else ""
    )


@lru_cache(maxsize=64)
def _text_findings(policy: CompiledPolicy) -> tuple[PolicyFinding, ...]:
    return lint_text(policy.source)


@lru_cache(maxsize=64)
def _expressions(policy: CompiledPolicy) -> tuple[Expression, ...]:
    return expressions_of(policy)


def _unpublished_names(
    policy: CompiledPolicy, attributes: Collection[Place], texts: Iterable[tuple[Place, str]]
) -> Iterator[PolicyFinding]:
    """Yield attributes and texts that rules name and no device has."""
    names_by_place: dict[Place, set[str]] = {}
    for place, text in texts:
        names_by_place.setdefault(place, set()).add(text)
    for expression in _expressions(policy):
        rule, path = expression.rule_name, expression.path
        for place in sorted(expression.attributes.difference(attributes)):
            message = f"rule {rule} reads {'/'.join(place)}, which no published device has"
            yield _finding(Code.UNKNOWN_ATTRIBUTE, message, path)
        for place, text in expression.texts:
            known_names = names_by_place.get(place, set())
            if text and text not in known_names and place in attributes:
                message = (
                    f'rule {rule} compares {"/".join(place)} with "{text}", which no published '
                    f"device has; they have {_enumerate_texts(known_names)}"
                )
                yield _finding(Code.UNKNOWN_LITERAL, message, path)


def _published_literals(
    devices: Iterable[PublishedDevice], places: Collection[Place], driver: str
) -> Mapping[Place, set[str]]:
    """Return the attributes that devices have among those, with their texts."""
    texts_by_place: dict[Place, set[str]] = {}
    for device in devices if places else ():
        for name, value in (device.device.attributes or {}).items():
            place = qualify_name(name, driver)
            if place in places:
                texts = [
                    text for text in (*(value.strings or ()), value.string) if text is not None
                ]
                texts_by_place.setdefault(place, set()).update(texts)
    return texts_by_place


def _enumerate_texts(texts: Iterable[str]) -> str:
    sorted_texts = sorted(texts)
    return join_names([f'"{text}"' for text in sorted_texts], 5) or "no text"


# --- the devices of a pool ------------------------------------------------------------------------


class _Kind(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Devices of a pool that a policy does not distinguish, and that consume the same counters."""

    device: PolicyDevice
    devices: tuple[PublishedDevice, ...]

    @property
    def name(self) -> str:
        """The names of its rules, for keys."""
        return "+".join(self.device.profile.rules)

    @property
    def first(self) -> str:
        """Its first device, for messages."""
        return self.device.id.device


def _of_pool(policy: CompiledPolicy, pool: Pool, usage: Usage) -> Iterator[PoolFinding]:
    published_devices = (*pool.devices, *pool.elsewhere)
    policy_pool = PolicyPool(policy, published_devices)
    counters = _Counters(pool)
    kinds_by_key: dict[tuple[object, ...], list[PublishedDevice]] = {}
    for device in published_devices:
        key = (
            policy_pool.policy_device(device).kind,
            counters.consumed_amounts(device),
            _is_shareable(device),
        )
        kinds_by_key.setdefault(key, []).append(device)
    kinds = [
        _Kind(device=policy_pool.policy_device(members[0]), devices=tuple(members))
        for members in kinds_by_key.values()
    ]
    for kind in kinds:
        yield from _of_kind(kind, kinds, counters)
    for first, other in _co_located(kinds):
        yield from _of_pair(policy, first, other, counters)
    yield from _of_groups(policy, published_devices, kinds)
    yield from _of_usage(policy_pool, pool, usage)


def _is_shareable(device: PublishedDevice) -> bool:
    return device.device.allow_multiple_allocations or False


def _co_located(kinds: Sequence[_Kind]) -> Iterator[tuple[_Kind, _Kind]]:
    """Yield the pairs of kinds with devices that can be co-located."""
    for place, kind in enumerate(kinds):
        if len(kind.devices) > 1:
            yield kind, kind
        for other in kinds[:place]:
            if kind.device.sites & other.device.sites:
                yield other, kind


class _Counters:
    """The counters of an idle pool, and their consumption by devices."""

    def __init__(self, pool: Pool) -> None:
        # Without its cache, which would keep all pools of a large cluster.
        self._counters = pool_counters.__wrapped__(pool)

    def consumed_amounts(self, device: PublishedDevice) -> tuple[tuple[int, int], ...]:
        return self._counters.consumption.get(device.id.device, ())

    def suffice_for(self, device: PublishedDevice, other: PublishedDevice) -> bool:
        needed_amounts = Counter(dict(self.consumed_amounts(device)))
        needed_amounts.update(dict(self.consumed_amounts(other)))
        return all(
            nanos <= self._counters.amounts[name].nanos for name, nanos in needed_amounts.items()
        )

    def are_exhausted_by(self, device: PublishedDevice) -> bool:
        """Return True if a device consumes all of every counter set that it consumes from."""
        consumed_amounts = dict(self.consumed_amounts(device))
        sets = {self._counters.names[number][0] for number in consumed_amounts}
        return bool(consumed_amounts) and all(
            consumed_amounts.get(number, 0) >= amount.nanos
            for number, amount in enumerate(self._counters.amounts)
            if self._counters.names[number][0] in sets
        )


def _of_kind(kind: _Kind, kinds: Sequence[_Kind], counters: _Counters) -> Iterator[PoolFinding]:
    profile, example = kind.device.profile, kind.devices[0]
    ids = (kind.device.id,)
    for doubt in profile.doubts:
        if not doubt.is_final:
            message = f"selector of rule {doubt.rule} failed on {kind.first}: {doubt.why}"
            yield _fault_code(doubt.kind), (doubt.rule, doubt.why), message, ids
    has_rule = bool(profile.accepts) or profile.groups is not None
    has_rule |= any(groups is not None for groups in kind.device.groups.values())
    if not has_rule and counters.are_exhausted_by(example):
        message = f"{kind.first} consumes all of its counter sets, so it needs no rule"
        yield Code.FULL_DEVICE, (kind.name,), message, ids
    if _is_shareable(example) and not accepts(profile, profile):
        message = (
            f"the rule of {kind.first}, which can be shared, does not accept devices of its own "
            "kind; shares of one device are never compared, so they are allowed"
        )
        yield Code.SELF_REJECTING_SHARE, (kind.name,), message, ids
    peers = [
        other
        for other in kinds
        if kind.device.sites & other.device.sites
        and (other is not kind or len(kind.devices) > 1)
        and counters.suffice_for(example, other.devices[-1])
    ]
    accepted_kinds = [other for other in peers if accepts(profile, other.device.profile)]
    if profile.accepts and peers and not accepted_kinds:
        message = (
            f"the rule of {kind.first} accepts none of the devices that counters allow beside it"
        )
        yield Code.EXCLUSIVE_BY_RULE, (kind.name,), message, ids


def _fault_code(kind: FaultKind) -> Code:
    return {
        FaultKind.INVALID: Code.RULE_INVALID,
        FaultKind.NOT_EVALUATED: Code.RULE_NOT_EVALUATED,
        FaultKind.FAILED: Code.RULE_EVALUATION_ERROR,
        FaultKind.NOT_BOOLEAN: Code.RULE_NOT_BOOLEAN,
    }[kind]


def _of_pair(
    policy: CompiledPolicy, kind: _Kind, other: _Kind, counters: _Counters
) -> Iterator[PoolFinding]:
    a, b = kind.device, other.device
    key = (kind.name, other.name)
    first, second = kind.devices[0], other.devices[-1]
    ids = (first.id, second.id)
    is_evaluated = True
    for owner, target in dict.fromkeys(((kind, other), (other, kind))):
        for number in owner.device.profile.accepts:
            answer = target.device.profile.answers[number]
            if answer.kind is not None:
                is_evaluated = False
                message = f"rule of {owner.first} failed on {target.first}: {answer.why}"
                yield _fault_code(answer.kind), (owner.name, target.name, answer.why), message, ids
    if not is_evaluated or a.profile.doubts or b.profile.doubts:
        return
    forth, back = accepts(a.profile, b.profile), accepts(b.profile, a.profile)
    if forth != back:
        refusing, refused_kind = (kind, other) if not forth else (other, kind)
        if refused_kind.device.profile.accepts:
            message = (
                f"the rule of {refusing.first} does not accept {refused_kind.first}, whose rule accepts "
                f"{refusing.first}; they are incompatible"
            )
            yield Code.ASYMMETRIC_RULE, key, message, ids
        else:
            message = f"the rule of {refusing.first} does not accept {refused_kind.first}, which has no rule"
            yield Code.ONE_SIDED_RULE, key, message, ids
    by_groups, both_declare = _groups_allow(policy, a, b), _both_declare_groups(a, b)
    have_rules = a.profile.accepts and b.profile.accepts
    if have_rules and both_declare and by_groups != (forth and back):
        rules, groups = (
            ("compatible", "incompatible") if forth and back else ("incompatible", "compatible")
        )
        message = (
            f"{kind.first} and {other.first} are {rules} by their rules, {groups} by their groups"
        )
        yield Code.RULE_GROUP_MISMATCH, key, message, ids
    is_compatible = by_groups and agree(a.profile, b.profile)
    if is_compatible and not counters.suffice_for(first, second):
        message = (
            f"{first.id.device} and {second.id.device} are compatible, but counters do not suffice "
            "for both"
        )
        yield Code.NEVER_CO_FIT, key, message, ids


def _groups_allow(policy: CompiledPolicy, device: PolicyDevice, other: PolicyDevice) -> bool:
    """Return True if groups allow two devices to be in use together, as in the matrix."""
    return all(
        share_groups(groups, other.groups[scope], isolates=policy.isolates)
        for scope, groups in device.groups.items()
        if scope in other.groups
    )


def _both_declare_groups(device: PolicyDevice, other: PolicyDevice) -> bool:
    return any(
        groups is not None and other.groups.get(scope) is not None
        for scope, groups in device.groups.items()
    )


# --- groups of a pool -----------------------------------------------------------------------------


def _of_groups(
    policy: CompiledPolicy, devices: Sequence[PublishedDevice], kinds: Sequence[_Kind]
) -> Iterator[PoolFinding]:
    for device in devices:
        for consumption in device.device.consumes_counters or ():
            wrong = _wrong_names(consumption.compatibility_groups or ())
            if wrong:
                message = f"{device.id.device} on counter set {consumption.counter_set}: {wrong}"
                key = (device.id.device, wrong)
                yield Code.INVALID_COMPATIBILITY_GROUPS, key, message, (device.id,)
    scopes = {scope for kind in kinds for scope in kind.device.groups}
    for scope in sorted(scopes):
        members = [kind for kind in kinds if scope in kind.device.groups]
        where = describe_site(scope[1], kinds[0].device.id.pool)
        yield from _of_scope(policy, where, [(kind, kind.device.groups[scope]) for kind in members])


def _of_scope(
    policy: CompiledPolicy, where: str, members: Sequence[tuple[_Kind, Groups]]
) -> Iterator[PoolFinding]:
    without = [kind for kind, groups in members if groups is None]
    declaring = [(kind, groups) for kind, groups in members if groups is not None]
    if policy.isolates and without and declaring:
        message = (
            f"on {where} {declaring[0][0].first} declares groups and {without[0].first} does not, "
            "so they are incompatible"
        )
        ids = (declaring[0][0].device.id, without[0].device.id)
        yield Code.MIXED_DECLARATION, (without[0].name, declaring[0][0].name), message, ids
    by_group: dict[str, list[_Kind]] = {}
    for kind, groups in declaring:
        for name in groups:
            by_group.setdefault(name, []).append(kind)
    for name, kinds in sorted(by_group.items()):
        if len(kinds) == 1 and len(kinds[0].devices) == 1 and len(members) > 1:
            message = f"on {where} only {kinds[0].first} is in group {name}"
            yield Code.LONELY_GROUP, (name, kinds[0].name), message, (kinds[0].device.id,)
    distinct = {groups: kind for kind, groups in reversed(declaring)}
    for (first, a), (two, b), (three, c) in combinations(
        sorted(distinct.items(), key=lambda entry: sorted(entry[0])), 3
    ):
        if first & two and two & three and first & three and not first & two & three:
            message = (
                f"on {where} {a.first}, {b.first} and {c.first} share groups in pairs, but not all "
                "three, so the last to be allocated is rejected"
            )
            three_ids = (a.device.id, b.device.id, c.device.id)
            yield Code.NON_HELLY_GROUPS, (first, two, three), message, three_ids


# --- devices in use -------------------------------------------------------------------------------


def _of_usage(policy_pool: PolicyPool, pool: Pool, usage: Usage) -> Iterator[PoolFinding]:
    use = usage.pools.get(pool.id, {})
    tenants = [policy_pool.devices[name] for name in sorted(use) if name in policy_pool.devices]
    occupancy = Occupancy(policy_pool)
    for tenant in tenants:
        occupancy.add(tenant)
    sites = {site for tenant in tenants for site in policy_pool.policy_device(tenant).sites}
    for site in sorted(sites):
        devices = tuple(dict.fromkeys(occupancy.inconsistent(site)))
        if devices:
            claims = sorted(
                {
                    f"{consumer.namespace}/{consumer.claim}"
                    for device in devices
                    for consumer in use[device.device].consumers
                }
            )
            message = (
                f"incompatible devices are in use on {describe_site(site, pool.id.pool)} of pool "
                f"{pool.id.pool}: claims {join_names(claims, _MAX_CLAIMS)}"
            )
            yield Code.ALLOCATED_SET_INCONSISTENT, (pool.id, site), message, devices
