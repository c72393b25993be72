"""What is doubtful about a policy, or about the groups that slices declare, on devices as published.

The allocator judges whatever it is given, and is safe: what is asymmetric or fails keeps devices
apart. This tells authors what they will not have meant. Devices that a policy cannot tell apart
are compared once, and what holds in many pools is told once, with an example and a count.

Source: research/allocator-features.md 3.3.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import combinations
from typing import Final

import msgspec

from allocator.core.counters import declared
from allocator.core.model import DeviceId, Pool, PublishedDevice, Usage
from allocator.core.neighbours import Catalogue, Neighbourhoods, Standing, accepts, agree, where
from allocator.core.rules import CompiledPolicy, FaultKind
from allocator.matrix import MAX_GROUPS, Groups, share_groups, silent
from kube.cel.compile import Environment
from kube.cel.device import qualified
from kube.cel.literals import Compared, compared
from kube.errors import CelError

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MAX_CLAIMS: Final = 5


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Code(StrEnum):
    """What was found; the text under each is its cause."""

    RULE_INVALID = "ruleInvalid"
    """An expression does not compile; its devices cannot be used."""
    RULE_NOT_JUDGED = "ruleNotJudged"
    """An expression is legal and beyond our engine; its devices cannot be used."""
    RULE_EVALUATION_ERROR = "ruleEvaluationError"
    """A rule raises on a device beside which its own devices may come."""
    RULE_NOT_BOOLEAN = "ruleNotBoolean"
    """A rule gives something else than true or false on a device."""
    INVALID_GROUPS = "invalidGroups"
    """Groups that the API server refuses, or a rule that names one badly or twice."""
    ASYMMETRIC_RULE = "asymmetricRule"
    """Two devices have rules, and only one of them accepts the other."""
    RULE_GROUP_MISMATCH = "ruleGroupMismatch"
    """The rules of two devices and their groups say different things."""
    MIXED_DECLARATION = "mixedDeclaration"
    """Some devices of a counter set declare groups and others cannot join them."""
    NON_HELLY_GROUPS = "nonHellyGroups"
    """Three devices share groups in pairs and none together, so the third is refused."""
    UNKNOWN_LITERAL = "unknownLiteral"
    """A rule compares an attribute with a text that no device has there."""
    ALLOCATED_SET_INCONSISTENT = "allocatedSetInconsistent"
    """Devices are in use together that should not be; they stay, and nobody may join them."""
    ONE_SIDED_RULE = "oneSidedRule"
    """A rule refuses a device that has none."""
    EXCLUSIVE_BY_RULE = "exclusiveByRule"
    """A rule accepts nobody, although counters would have room."""
    LONELY_GROUP = "lonelyGroup"
    """A group that a single device of a counter set has."""
    FULL_DEVICE = "fullDevice"
    """A device takes all of a counter set and has no rule; counters exclude it already."""
    SELF_REJECTING_SHARE = "selfRejectingShare"
    """A device that can be shared refuses its own like; its shares go together all the same."""
    NEVER_CO_FIT = "neverCoFit"
    """Two devices may be in use together, and counters have no room for both."""


SEVERITIES: Final = {
    code: Severity.ERROR
    if place <= list(Code).index(Code.INVALID_GROUPS)
    else Severity.INFO
    if place >= list(Code).index(Code.ONE_SIDED_RULE)
    else Severity.WARNING
    for place, code in enumerate(Code)
}


class PolicyFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is doubtful.

    Attributes:
        message: About the first example.
        devices: The example: the one or two devices that it is about, else empty.
        path: In the policy, where it is about its text.
        count: How many pairs of kinds, or devices, in how many pools it holds for.
    """

    severity: Severity
    code: Code
    message: str
    devices: tuple[DeviceId, ...] = ()
    path: str = ""
    count: int = 1


_Found = tuple[Code, tuple[object, ...], str, tuple[DeviceId, ...]]
"""Code, what makes it the same finding in another pool, message, example."""
_Place = tuple[str, str]
"""Domain and identifier of an attribute."""


class PoolFindings(msgspec.Struct, frozen=True, kw_only=True):
    """What one pool adds to the findings about a policy; holds no device.

    Attributes:
        found: What is doubtful in it.
        texts: What its devices have in attributes that the policy compares with texts.
        has_devices: Whether devices were looked at; none are in a pool that is not complete.
    """

    found: tuple[_Found, ...] = ()
    texts: frozenset[tuple[_Place, str]] = frozenset()
    has_devices: bool = False


def findings(
    policy: CompiledPolicy | None, pools: Sequence[Pool], usage: Usage
) -> tuple[PolicyFinding, ...]:
    """Return what is doubtful, errors first.

    Args:
        policy: None to look only at what slices declare.
        pools: Pools of the driver; those of other drivers are left out, as are incomplete ones.
        usage: Messages name the claims that hold what is inconsistent, of any namespace: they are
            for whoever may read claims everywhere.
    """
    relevant = [pool for pool in pools if policy is None or pool.id.driver == policy.driver]
    return merged(policy, [pool_findings(policy, pool, usage) for pool in relevant])


def pool_findings(policy: CompiledPolicy | None, pool: Pool, usage: Usage) -> PoolFindings:
    """Return what is doubtful in one pool of the policy's driver."""
    published = (*pool.devices, *pool.elsewhere)
    judged = policy if policy is not None else silent(pool.id.driver)
    places = {(each.domain, each.identifier) for *_, each in _literals(judged)}
    return PoolFindings(
        found=tuple(_of_pool(judged, pool, usage)),
        texts=frozenset(_texts(published, places, judged.driver)) if places else frozenset(),
        has_devices=bool(published),
    )


def merged(
    policy: CompiledPolicy | None, parts: Iterable[PoolFindings]
) -> tuple[PolicyFinding, ...]:
    """Return what is doubtful in a policy's text and in pools together, errors first.

    Args:
        policy: None to tell only what slices declare.
        parts: In the order of pools whose examples are told first.
    """
    firsts: dict[tuple[Code, tuple[object, ...]], PolicyFinding] = {}
    counts: Counter[tuple[Code, tuple[object, ...]]] = Counter()
    texts: set[tuple[_Place, str]] = set()
    has_devices = False
    for part in parts:
        has_devices |= part.has_devices
        texts |= part.texts
        for code, key, message, devices in part.found:
            counts[code, key] += 1
            if (code, key) not in firsts:
                firsts[code, key] = PolicyFinding(
                    severity=SEVERITIES[code], code=code, message=message, devices=devices
                )
    found = [] if policy is None else list(_of_text(policy))
    if policy is not None and has_devices:
        found += _unknown_literals(policy, texts)
    found += [
        msgspec.structs.replace(one, count=counts[key]) if counts[key] > 1 else one
        for key, one in firsts.items()
    ]
    order = {code: place for place, code in enumerate(Code)}
    return tuple(sorted(found, key=lambda one: order[one.code]))


# --- the text of a policy -------------------------------------------------------------------------


def _of_text(policy: CompiledPolicy) -> Iterator[PolicyFinding]:
    for fault in policy.faults:
        code = Code.RULE_INVALID if fault.kind is FaultKind.INVALID else Code.RULE_NOT_JUDGED
        verb = "is invalid" if fault.kind is FaultKind.INVALID else "cannot be judged"
        yield _told(code, f"rule {fault.rule} {verb}: {fault.why}", fault.path)
    for place, rule in enumerate(policy.source.spec.rules or ()):
        wrong = _wrong_names(rule.compatibility_groups or ())
        if wrong:
            path = f"spec.rules[{place}].compatibilityGroups"
            yield _told(Code.INVALID_GROUPS, f"rule {rule.name}: {wrong}", path)


def _told(code: Code, message: str, path: str) -> PolicyFinding:
    return PolicyFinding(severity=SEVERITIES[code], code=code, message=message, path=path)


def _wrong_names(names: Sequence[str]) -> str:
    """Return what the API server would say of groups; empty when nothing."""
    for name, times in Counter(names).items():
        if times > 1:
            return f"group {name} is named twice"
        if not _NAME.fullmatch(name):
            return f"group {name!r} is not a lowercase name of at most 63 letters, digits and '-'"
    return f"{len(names)} groups, at most {MAX_GROUPS}" if len(names) > MAX_GROUPS else ""


def _unknown_literals(
    policy: CompiledPolicy, texts: Iterable[tuple[_Place, str]]
) -> Iterator[PolicyFinding]:
    by_place: dict[_Place, set[str]] = {}
    for place, text in texts:
        by_place.setdefault(place, set()).add(text)
    for rule, path, literal in _literals(policy):
        known = by_place.get((literal.domain, literal.identifier), set())
        if literal.text and literal.text not in known:
            message = (
                f"rule {rule} compares {literal.domain}/{literal.identifier} with "
                f'"{literal.text}", which no device has; they have {_listed(known)}'
            )
            yield _told(Code.UNKNOWN_LITERAL, message, path)


def _texts(
    devices: Iterable[PublishedDevice], places: Collection[_Place], driver: str
) -> Iterator[tuple[_Place, str]]:
    for each in devices:
        for name, value in (each.device.attributes or {}).items():
            place = qualified(name, driver)
            if place in places:
                for text in (*(value.strings or ()), value.string):
                    if text is not None:
                        yield place, text


@lru_cache(maxsize=64)
def _literals(policy: CompiledPolicy) -> tuple[tuple[str, str, Compared], ...]:
    """Return rule, path and comparison, for each text that the policy compares with."""
    return tuple(
        (rule.name, path, literal)
        for number, rule in enumerate(policy.rules)
        for path, expression in _expressions(policy, number)
        for literal in _compared(expression)
    )


def _expressions(policy: CompiledPolicy, place: int) -> Iterator[tuple[str, str]]:
    rule = policy.rules[place]
    for number, selector in enumerate(rule.selectors):
        yield f"spec.rules[{place}].selectors[{number}].cel.expression", selector.expression
    if rule.expression is not None:
        path = f"spec.rules[{place}].compatibleOnlyWith.cel.expression"
        yield path, policy.expressions[rule.expression].expression


def _compared(expression: str) -> tuple[Compared, ...]:
    try:
        return compared(expression, Environment.STORED)
    except CelError:
        return ()


def _listed(texts: Iterable[str]) -> str:
    known = sorted(texts)
    more = f" and {len(known) - 5} more" if len(known) > 5 else ""
    return (", ".join(f'"{text}"' for text in known[:5]) + more) or "no text there"


# --- the devices of a pool ------------------------------------------------------------------------


class _Kind(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Devices of a pool that a policy cannot tell apart, and that take the same from counters."""

    standing: Standing
    devices: tuple[PublishedDevice, ...]

    @property
    def name(self) -> str:
        """Of its rules, for keys."""
        return "+".join(self.standing.profile.rules)

    @property
    def first(self) -> str:
        """Its first device, for messages."""
        return self.standing.id.device


def _of_pool(policy: CompiledPolicy, pool: Pool, usage: Usage) -> Iterator[_Found]:
    published = (*pool.devices, *pool.elsewhere)
    catalogue = Catalogue(policy, published)
    room = _Room(pool)
    grouped: dict[tuple[object, ...], list[PublishedDevice]] = {}
    for each in published:
        key = (catalogue.standing(each).kind, room.takes(each), _multi(each))
        grouped.setdefault(key, []).append(each)
    kinds = [
        _Kind(standing=catalogue.standing(members[0]), devices=tuple(members))
        for members in grouped.values()
    ]
    for kind in kinds:
        yield from _of_kind(kind, kinds, room)
    for one, other in _neighbours(kinds):
        yield from _of_pair(policy, one, other, room)
    yield from _of_groups(policy, published, kinds)
    yield from _of_usage(catalogue, pool, usage)


def _multi(published: PublishedDevice) -> bool:
    return published.device.allow_multiple_allocations or False


def _neighbours(kinds: Sequence[_Kind]) -> Iterator[tuple[_Kind, _Kind]]:
    """Yield the pairs of kinds of which two devices can be co-tenants."""
    for place, one in enumerate(kinds):
        if len(one.devices) > 1:
            yield one, one
        for other in kinds[:place]:
            if one.standing.places & other.standing.places:
                yield other, one


class _Room:
    """What counters of a pool have room for when it is empty."""

    def __init__(self, pool: Pool) -> None:
        # Past its memory, which would keep every pool of a cluster that is looked at once.
        self._declared = declared.__wrapped__(pool)

    def takes(self, published: PublishedDevice) -> tuple[tuple[int, int], ...]:
        return self._declared.takes.get(published.id.device, ())

    def has_both(self, one: PublishedDevice, other: PublishedDevice) -> bool:
        needed = Counter(dict(self.takes(one)))
        needed.update(dict(self.takes(other)))
        return all(nanos <= self._declared.amounts[name].nanos for name, nanos in needed.items())

    def is_filled_by(self, published: PublishedDevice) -> bool:
        """Return whether a device takes all of every counter of each set that it consumes."""
        takes = dict(self.takes(published))
        sets = {self._declared.names[number][0] for number in takes}
        return bool(takes) and all(
            takes.get(number, 0) >= amount.nanos
            for number, amount in enumerate(self._declared.amounts)
            if self._declared.names[number][0] in sets
        )


def _of_kind(kind: _Kind, kinds: Sequence[_Kind], room: _Room) -> Iterator[_Found]:
    profile, example = kind.standing.profile, kind.devices[0]
    ids = (kind.standing.id,)
    for doubt in profile.doubts:
        if not doubt.is_final:
            message = f"selector of rule {doubt.rule} failed on {kind.first}: {doubt.why}"
            yield _code_of(doubt.kind), (doubt.rule, doubt.why), message, ids
    has_rule = bool(profile.accepts) or profile.groups is not None
    has_rule |= any(each is not None for each in kind.standing.groups.values())
    if not has_rule and room.is_filled_by(example):
        message = f"{kind.first} takes all of its counters, so nothing fits beside it anyway"
        yield Code.FULL_DEVICE, (kind.name,), message, ids
    if _multi(example) and not accepts(profile, profile):
        message = (
            f"{kind.first} can be shared and its rule rejects its own like; shares of one device "
            "are never compared, so they go together"
        )
        yield Code.SELF_REJECTING_SHARE, (kind.name,), message, ids
    peers = [
        other
        for other in kinds
        if kind.standing.places & other.standing.places
        and (other is not kind or len(kind.devices) > 1)
        and room.has_both(example, other.devices[-1])
    ]
    accepted = [other for other in peers if accepts(profile, other.standing.profile)]
    if profile.accepts and peers and not accepted:
        message = f"the rule of {kind.first} accepts none of the devices that fit beside it"
        yield Code.EXCLUSIVE_BY_RULE, (kind.name,), message, ids


def _code_of(kind: FaultKind) -> Code:
    return {
        FaultKind.INVALID: Code.RULE_INVALID,
        FaultKind.UNJUDGED: Code.RULE_NOT_JUDGED,
        FaultKind.FAILED: Code.RULE_EVALUATION_ERROR,
        FaultKind.NOT_BOOLEAN: Code.RULE_NOT_BOOLEAN,
    }[kind]


def _of_pair(policy: CompiledPolicy, one: _Kind, other: _Kind, room: _Room) -> Iterator[_Found]:
    a, b = one.standing, other.standing
    key = (one.name, other.name)
    first, second = one.devices[0], other.devices[-1]
    ids = (first.id, second.id)
    answered = True
    for owner, asked in dict.fromkeys(((one, other), (other, one))):
        for number in owner.standing.profile.accepts:
            answer = asked.standing.profile.answers[number]
            if answer.kind is not None:
                answered = False
                message = f"rule of {owner.first} failed on {asked.first}: {answer.why}"
                yield _code_of(answer.kind), (owner.name, asked.name, answer.why), message, ids
    if not answered or a.profile.doubts or b.profile.doubts:
        return
    forth, back = accepts(a.profile, b.profile), accepts(b.profile, a.profile)
    if forth != back:
        refusing, refused = (one, other) if not forth else (other, one)
        if refused.standing.profile.accepts:
            message = f"{refusing.first} refuses {refused.first}, which accepts it; they stay apart"
            yield Code.ASYMMETRIC_RULE, key, message, ids
        else:
            message = f"{refusing.first} refuses {refused.first}, which has no rule"
            yield Code.ONE_SIDED_RULE, key, message, ids
    by_groups = _by_groups(policy, a, b)
    have_rules = a.profile.accepts and b.profile.accepts
    if have_rules and by_groups is not None and by_groups != (forth and back):
        rules, groups = ("together", "apart") if forth and back else ("apart", "together")
        message = f"{one.first} and {other.first}: {rules} by their rules, {groups} by their groups"
        yield Code.RULE_GROUP_MISMATCH, key, message, ids
    if agree(a.profile, b.profile) and by_groups is not False and not room.has_both(first, second):
        message = f"{first.id.device} and {second.id.device} may be in use together, and counters "
        yield Code.NEVER_CO_FIT, key, message + "have no room for both", ids


def _by_groups(policy: CompiledPolicy, one: Standing, other: Standing) -> bool | None:
    """Return what groups say of two devices; None where one of them declares none."""
    verdicts = [
        share_groups(groups, other.groups[membership], isolates=policy.isolates)
        for membership, groups in one.groups.items()
        if groups is not None and other.groups.get(membership) is not None
    ]
    return all(verdicts) if verdicts else None


# --- groups of a pool -----------------------------------------------------------------------------


def _of_groups(
    policy: CompiledPolicy, published: Sequence[PublishedDevice], kinds: Sequence[_Kind]
) -> Iterator[_Found]:
    for each in published:
        for taken in each.device.consumes_counters or ():
            wrong = _wrong_names(taken.compatibility_groups or ())
            if wrong:
                message = f"{each.id.device} on set {taken.counter_set}: {wrong}"
                yield Code.INVALID_GROUPS, (each.id.device, wrong), message, (each.id,)
    memberships = {membership for kind in kinds for membership in kind.standing.groups}
    for membership in sorted(memberships):
        members = [kind for kind in kinds if membership in kind.standing.groups]
        place = where(membership[1], kinds[0].standing.id.pool)
        declared_ = [(kind, kind.standing.groups[membership]) for kind in members]
        yield from _of_membership(policy, place, declared_)


def _of_membership(
    policy: CompiledPolicy, place: str, members: Sequence[tuple[_Kind, Groups]]
) -> Iterator[_Found]:
    without = [kind for kind, groups in members if groups is None]
    named = [(kind, groups) for kind, groups in members if groups is not None]
    if policy.isolates and without and named:
        message = (
            f"on {place} {named[0][0].first} declares groups and {without[0].first} does not, so "
            "they never go together"
        )
        ids = (named[0][0].standing.id, without[0].standing.id)
        yield Code.MIXED_DECLARATION, (without[0].name, named[0][0].name), message, ids
    having: dict[str, list[_Kind]] = {}
    for kind, groups in named:
        for name in groups:
            having.setdefault(name, []).append(kind)
    for name, owners in sorted(having.items()):
        if len(owners) == 1 and len(owners[0].devices) == 1 and len(members) > 1:
            message = f"on {place} only {owners[0].first} is in group {name}"
            yield Code.LONELY_GROUP, (name, owners[0].name), message, (owners[0].standing.id,)
    distinct = {groups: kind for kind, groups in reversed(named)}
    for (one, a), (two, b), (three, c) in combinations(
        sorted(distinct.items(), key=lambda each: sorted(each[0])), 3
    ):
        if one & two and two & three and one & three and not one & two & three:
            message = (
                f"on {place} {a.first}, {b.first} and {c.first} share groups in pairs and none "
                "together, so the last of them to come is refused"
            )
            three_ids = (a.standing.id, b.standing.id, c.standing.id)
            yield Code.NON_HELLY_GROUPS, (one, two, three), message, three_ids


# --- what is in use -------------------------------------------------------------------------------


def _of_usage(catalogue: Catalogue, pool: Pool, usage: Usage) -> Iterator[_Found]:
    use = usage.pools.get(pool.id, {})
    tenants = [catalogue.devices[name] for name in sorted(use) if name in catalogue.devices]
    here = Neighbourhoods(catalogue)
    for tenant in tenants:
        here.join(tenant)
    places = {place for each in tenants for place in catalogue.standing(each).places}
    for place in sorted(places):
        devices = tuple(dict.fromkeys(here.inconsistent(place)))
        if devices:
            claims = sorted(
                {
                    f"{holder.namespace}/{holder.claim}"
                    for each in devices
                    for holder in use[each.device].holders
                }
            )
            more = f" and {len(claims) - _MAX_CLAIMS} more" if len(claims) > _MAX_CLAIMS else ""
            message = (
                f"on {where(place, pool.id.pool)} of pool {pool.id.pool} devices are in use that "
                f"exclude each other: claims {', '.join(claims[:_MAX_CLAIMS])}{more}"
            )
            yield Code.ALLOCATED_SET_INCONSISTENT, (pool.id, place), message, devices
