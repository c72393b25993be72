"""Devices of several drivers that belong together: groups under one PCIe root, in one claim.

Constraints cannot span claims, so aligned devices are always in one, whatever their drivers. A
single constraint over all of them would want everything under one root, so there is one for each
group: as many devices of the first kind as share a root on most nodes, and with them the others.
Where alignment is only preferred, each device that takes part has two alternatives, `aligned` and
`any`, and the constraint names only the first: a node without room under one root will do, too.

A PCIe root may hold several switches, so this is coarser than what Koordinator calls SamePCIe.
Source: Koordinator, pkg/scheduler/plugins/deviceshare/device_allocator.go; KEP-4816 for
alternatives in constraints.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from kube.api.resource import (
    MAX_ALTERNATIVES,
    MAX_RESULTS,
    DeviceClaim,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
)
from webhook.claims import Claim, Compiled, Use, claim_spec, template_name
from webhook.device_request import RequestCompiler
from webhook.findings import Code, Finding, error, has_errors, warning
from webhook.intents import Alignment, DeviceKind, Intent, Scope
from webhook.inventory import PCIE_ROOT, Facts
from webhook.profile import Profile

ALIGNED: Final = "aligned"
ANY: Final = "any"

Group = Mapping[DeviceKind, int]
"""How many devices of each kind belong together, none of them zero."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """All devices of one kind that take part, with the driver that has them."""

    intent: Intent
    profile: Profile
    facts: Facts


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one kind in one group.

    Attributes:
        aligned: What the group's constraint names; empty where these devices may be anywhere.
        findings: What the request could not hold.
    """

    kind: DeviceKind
    request: DeviceRequest
    aligned: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def compile_joint(alignment: Alignment, members: Sequence[Member], *, prefix: str) -> Compiled:
    """Return the one claim that holds all members.

    Args:
        members: One for each kind of the alignment, in its order.
        prefix: The readable beginning of the template's name, a DNS label.
    """
    total = sum(member.intent.count for member in members)
    if total > MAX_RESULTS:
        return Compiled(findings=(_too_many(Code.TOO_MANY_DEVICES, alignment, total),))
    unrooted = list(_unrooted(alignment, members))
    if has_errors(unrooted):
        return Compiled(findings=tuple(unrooted))
    size, said = _group_size(alignment, members[0])
    findings = unrooted or said
    groups = _groups(alignment, members, size)
    total = sum(count for group in groups for count in group.values())
    if total > MAX_RESULTS:
        # Where more devices share a root, fewer groups need one of the other kinds each.
        return Compiled(findings=(*findings, _too_many(Code.PUBLISHED_OTHERWISE, alignment, total)))
    claim, said = _claim(alignment, members, groups, prefix, align=not unrooted)
    return Compiled(claims=(claim,), findings=tuple(dict.fromkeys((*findings, *said))))


# --- groups ---------------------------------------------------------------------------------------


def _group_size(alignment: Alignment, first: Member) -> tuple[int, list[Finding]]:
    """Return how many devices of the first kind make a group, and what there is to say of it."""
    intent, sizes = first.intent, first.facts.per_root
    if intent.within is Scope.PCIE_ROOT or intent.count == 1:
        return intent.count, []
    if sizes is None:
        return intent.count, [
            warning(
                Code.NOT_PUBLISHED,
                alignment.path,
                f"no inventory shows how many devices of {first.profile.driver} share a PCIe root: "
                f"all {intent.count} are wanted under one",
            )
        ]
    size = sizes[0] if sizes else intent.count
    if all(_split(intent.count, other) == _split(intent.count, size) for other in sizes):
        return size, []
    return size, [
        warning(
            Code.MIXED_HARDWARE,
            alignment.path,
            f"nodes have {' or '.join(map(str, sorted(sizes)))} devices of {first.profile.driver} "
            f"under one PCIe root: groups are of {size}, as on most nodes",
        )
    ]


def _split(count: int, size: int) -> list[int]:
    full, rest = divmod(count, size)
    return [size] * full + ([rest] if rest else [])


def _groups(alignment: Alignment, members: Sequence[Member], size: int) -> list[Group]:
    """Return who belongs together.

    Where alignment is required every group has a device of every kind, however few were asked for.
    Otherwise as many as were asked for are dealt out, and the devices that nobody joins make up the
    last group.
    """
    first, *others = members
    counts = _split(first.intent.count, size)
    dealt = {
        other.intent.kind: _dealt(
            max(other.intent.count, len(counts)) if alignment.required else other.intent.count,
            len(counts),
        )
        for other in others
    }
    groups: list[Group] = []
    alone = 0
    for place, count in enumerate(counts):
        joined = {kind: shares[place] for kind, shares in dealt.items() if shares[place]}
        if joined:
            groups.append({first.intent.kind: count, **joined})
        else:
            alone += count
    return [*groups, {first.intent.kind: alone}] if alone else groups


def _dealt(count: int, groups: int) -> list[int]:
    each, more = divmod(count, groups)
    return [each + (place < more) for place in range(groups)]


# --- the claim ------------------------------------------------------------------------------------


def _claim(
    alignment: Alignment,
    members: Sequence[Member],
    groups: Sequence[Group],
    prefix: str,
    *,
    align: bool,
) -> tuple[Claim, list[Finding]]:
    numbered = {kind for group in groups[1:] for kind in group}
    parts: list[_Part] = []
    constraints: list[DeviceConstraint] = []
    for place, group in enumerate(groups):
        within = []
        for member in members:
            kind = member.intent.kind
            if kind in group:
                name = f"{kind}-{place}" if kind in numbered else kind.value
                within.append(_part(member, group[kind], name))
        if align and len(group) > 1:
            within = _together(within, alignment)
            constraints += _constraint(within)
        parts += within
    findings = [finding for part in parts for finding in part.findings]
    for member in members:
        kind = member.intent.kind
        compiler = _compiler(member, sum(group.get(kind, 0) for group in groups))
        constraints += compiler.constraints(*(p.request.name for p in parts if p.kind is kind))
        findings += compiler.findings
    requests = tuple(part.request for part in parts)
    spec = claim_spec(DeviceClaim(requests=requests, constraints=tuple(constraints) or None))
    readable = "-".join(
        f"{kind}-{sum(group.get(kind, 0) for group in groups)}" for kind in alignment.kinds
    )
    intent = members[0].intent
    claim = Claim(
        label="-".join(alignment.kinds),
        template=template_name(f"{prefix}-{readable}", spec),
        spec=spec,
        uses=tuple(
            Use(container=user, request=request.name)
            for request in requests
            for user in (intent.container, *intent.also)
        ),
    )
    return claim, findings


def _compiler(member: Member, count: int) -> RequestCompiler:
    intent = msgspec.structs.replace(member.intent, count=count)
    device = member.profile.devices[intent.kind]
    return RequestCompiler(member.profile, device, member.facts, intent)


def _part(member: Member, count: int, name: str) -> _Part:
    compiler = _compiler(member, count)
    request = compiler.request(name)
    return _Part(kind=member.intent.kind, request=request, findings=tuple(compiler.findings))


def _together(parts: Sequence[_Part], alignment: Alignment) -> list[_Part]:
    """Return the parts of a group as its constraint needs them; as they are if one cannot be so."""
    aligned = [_aligned(part, alignment) for part in parts]
    if all(part.aligned for part in aligned):
        return aligned
    return [
        msgspec.structs.replace(part, findings=tried.findings)
        for part, tried in zip(parts, aligned, strict=True)
    ]


def _constraint(parts: Sequence[_Part]) -> Iterator[DeviceConstraint]:
    names = tuple(name for part in parts for name in part.aligned)
    if names:
        yield DeviceConstraint(requests=names, match_attribute=PCIE_ROOT)


def _aligned(part: _Part, alignment: Alignment) -> _Part:
    """Return the part as its group's constraint needs it."""
    request = part.request
    if alignment.required:
        return msgspec.structs.replace(part, aligned=(request.name,))
    alternatives = request.first_available or _only(request.exactly)
    if 2 * len(alternatives) > MAX_ALTERNATIVES:
        dropped = warning(
            Code.POLICY_DROPPED,
            alignment.path,
            f"{len(alternatives)} memory sizes, each aligned or not, are more than "
            f"{MAX_ALTERNATIVES} alternatives; the preference is dropped",
        )
        return msgspec.structs.replace(part, findings=(*part.findings, dropped))
    preferred = tuple(_named(ALIGNED, each) for each in alternatives)
    anywhere = tuple(_named(ANY, each) for each in alternatives)
    return msgspec.structs.replace(
        part,
        request=DeviceRequest(name=request.name, first_available=(*preferred, *anywhere)),
        aligned=tuple(f"{request.name}/{each.name}" for each in preferred),
    )


def _only(exactly: ExactDeviceRequest | None) -> tuple[DeviceSubRequest, ...]:
    """Return a request's one way as an alternative without a name."""
    if exactly is None:
        return ()
    return (
        DeviceSubRequest(
            name="",
            device_class_name=exactly.device_class_name,
            selectors=exactly.selectors,
            allocation_mode=exactly.allocation_mode,
            count=exactly.count,
            capacity=exactly.capacity,
        ),
    )


def _named(prefix: str, alternative: DeviceSubRequest) -> DeviceSubRequest:
    name = f"{prefix}-{alternative.name}" if alternative.name else prefix
    return msgspec.structs.replace(alternative, name=name)


# --- what cannot be -------------------------------------------------------------------------------


def _unrooted(alignment: Alignment, members: Sequence[Member]) -> Iterator[Finding]:
    """Yield a finding for each driver whose devices are known, and publish no PCIe root."""
    for member in members:
        if member.facts.per_root != ():
            continue
        message = f"no device of {member.profile.driver} says under which PCIe root it is"
        if alignment.required:
            yield error(
                Code.PUBLISHED_OTHERWISE,
                alignment.path,
                f"{message}, so none can be aligned",
                "use a driver that publishes it, or leave requiredScope out",
            )
        else:
            yield warning(
                Code.NOT_PUBLISHED, alignment.path, f"{message}; the preference is dropped"
            )


def _too_many(code: Code, alignment: Alignment, total: int) -> Finding:
    return error(
        code,
        alignment.path,
        f"{total} devices that belong together are one claim, and Kubernetes allocates at most "
        f"{MAX_RESULTS} with one; constraints cannot span claims",
        "ask for fewer devices per pod, or remove the annotation",
    )
