"""Aligned devices of several drivers: groups, each under one PCIe root, in one claim.

Constraints cannot span claims, so aligned devices are always in one claim, whatever their drivers. A
single constraint over all of them would require one root for everything, so there is one constraint
per group: as many devices of the first kind as share a root on most nodes, and with them the others.
Where alignment is only preferred, each request has two alternatives, `aligned` and `any`, and the
constraint names only the first: a node without a feasible root is accepted, too. Groups without a
device of another kind get one where as many are free, by alternatives of descending number.

A PCIe root may contain several switches, so this is coarser than Koordinator's SamePCIe.
Source: Koordinator, pkg/scheduler/plugins/deviceshare/device_allocator.go; KEP-4816 for
alternatives in constraints.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, has_errors, warning
from kube.api.resource import (
    MAX_ALTERNATIVES,
    MAX_RESULTS,
    DeviceClaim,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
)
from translation.compiling.claims import Claim, CompiledClaims, Use, build_claim
from translation.compiling.conditions import Condition
from translation.compiling.device_request import CompiledRequest, RequestCompiler
from translation.model.bounds import DerivedSize
from translation.model.intents import Alignment, DeviceKind, Intent, Scope
from translation.profiles.device_facts import PCIE_ROOT, Facts
from translation.profiles.profile import Profile

ALIGNED: Final = "aligned"
ANY: Final = "any"
FURTHER: Final = "devices"
"""The beginning of the names of alternatives with more devices than were requested."""

Group = Mapping[DeviceKind, int]
"""The number of devices of each kind in a group; kinds without any are left out."""


class AlignedIntent(msgspec.Struct, frozen=True, kw_only=True):
    """The intent for one kind of device, and the driver that serves it."""

    intent: Intent
    profile: Profile
    facts: Facts


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """The request for the devices of one kind in one group.

    Attributes:
        aligned: The names in the group's constraint; empty without one.
        findings: The findings on facts that the request cannot express.
    """

    kind: DeviceKind
    compiled: CompiledRequest
    aligned: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def compile_aligned_claim(
    alignment: Alignment,
    members: Sequence[AlignedIntent],
    sizes: DerivedSize,
    *,
    prefix: str,
) -> CompiledClaims:
    """Compile the intents of an alignment to one claim; to none if the pod derives too much.

    Args:
        members: One for each kind of the alignment, in its order.
        sizes: The sizes of the objects derived from the pod so far.
        prefix: The readable prefix of the template's name, a DNS label.
    """
    total = sum(member.intent.count for member in members)
    if total > MAX_RESULTS:
        return CompiledClaims(findings=(_too_many(Code.TOO_MANY_DEVICES, alignment, total),))
    root_findings = list(_check_roots(alignment, members))
    if has_errors(root_findings):
        return CompiledClaims(findings=tuple(root_findings))
    size, size_findings = _group_size(alignment, members[0])
    findings = root_findings or size_findings
    groups = _groups(alignment, members, size)
    total = sum(count for group in groups for count in group.values())
    if total > MAX_RESULTS:
        # Where more devices share a root, there are fewer groups with a device of each other kind.
        return CompiledClaims(
            findings=(*findings, _too_many(Code.UNSUPPORTED_AS_PUBLISHED, alignment, total))
        )
    excess = list(_check_derived(members, groups, sizes))
    if excess:
        return CompiledClaims(findings=(*findings, *excess))
    further = _further(alignment, members, size, MAX_RESULTS - total)
    claim, claim_findings = _claim(
        alignment, members, groups, prefix, align=not root_findings, further=further
    )
    excess = list(sizes.check_spec(members[-1].intent, claim.size))
    if excess:
        return CompiledClaims(findings=(*findings, *excess))
    return CompiledClaims(
        claims=(claim,), findings=tuple(dict.fromkeys((*findings, *claim_findings)))
    )


# --- groups ---------------------------------------------------------------------------------------


def _group_size(alignment: Alignment, first: AlignedIntent) -> tuple[int, list[Finding]]:
    """Return the number of devices of the first kind in a group, and findings about it."""
    intent, sizes = first.intent, first.facts.per_root
    if intent.within is Scope.PCIE_ROOT or intent.count == 1:
        return intent.count, []
    if sizes is None:
        return intent.count, [
            warning(
                Code.NOT_PUBLISHED_BY_DRIVER,
                alignment.path,
                f"no inventory shows how many devices of {first.profile.driver} share a PCIe root: "
                f"all {intent.count} must be under one",
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


def _groups(alignment: Alignment, members: Sequence[AlignedIntent], size: int) -> list[Group]:
    """Divide the devices into groups.

    Where alignment is required, every group has a device of every kind, however few were requested.
    Otherwise the requested number is divided among the groups, and the devices of the first kind
    without others are the last group.
    """
    first, *others = members
    counts = _split(first.intent.count, size)
    shares = {
        other.intent.kind: _group_counts(
            max(other.intent.count, len(counts)) if alignment.required else other.intent.count,
            len(counts),
        )
        for other in others
    }
    groups: list[Group] = []
    alone = 0
    for index, count in enumerate(counts):
        others_in_group = {kind: share[index] for kind, share in shares.items() if share[index]}
        if others_in_group:
            groups.append({first.intent.kind: count, **others_in_group})
        else:
            alone += count
    return [*groups, {first.intent.kind: alone}] if alone else groups


def _further(
    alignment: Alignment, members: Sequence[AlignedIntent], size: int, free: int
) -> Mapping[DeviceKind, int]:
    """Return kind to the devices that a preferred alignment adds for groups without any.

    Source: allocateDevices and defaultAllocateDevices, whose maxDesiredCount is the number of PCIe
    roots of the first kind's devices.

    Args:
        free: The number of devices that the claim may still have.
    """
    if alignment.required:
        return {}
    first, *others = members
    groups = len(_split(first.intent.count, size))
    further = {other.intent.kind: groups - other.intent.count for other in others}
    return {kind: min(count, free) for kind, count in further.items() if min(count, free) > 0}


def _group_counts(count: int, groups: int) -> list[int]:
    quotient, remainder = divmod(count, groups)
    return [quotient + (index < remainder) for index in range(groups)]


# --- the claim ------------------------------------------------------------------------------------


def _claim(
    alignment: Alignment,
    members: Sequence[AlignedIntent],
    groups: Sequence[Group],
    prefix: str,
    *,
    align: bool,
    further: Mapping[DeviceKind, int],
) -> tuple[Claim, list[Finding]]:
    """Return the claim and its findings.

    Args:
        align: The groups have a PCIe root each.
        further: Kind to the number of devices beyond those of the groups, as many as are free.
    """
    requested_kinds = {kind for group in groups[1:] for kind in group}
    parts: list[_Part] = []
    constraints: list[tuple[DeviceConstraint, FieldPath]] = []
    for index, group in enumerate(groups):
        in_group = []
        for member in members:
            kind = member.intent.kind
            if kind in group:
                name = f"{kind}-{index}" if kind in requested_kinds else kind.value
                in_group.append(_part(member, group[kind], name))
        if align and len(group) > 1:
            in_group = _align(in_group, alignment)
            constraints += ((constraint, alignment.path) for constraint in _constraint(in_group))
        parts += in_group
    further = further if align else {}
    for kind, count in further.items():
        last = max(index for index, part in enumerate(parts) if part.kind is kind)
        parts[last] = _with_further(parts[last], count)
    findings = [finding for part in parts for finding in part.findings]
    for member in members:
        kind = member.intent.kind
        count = sum(group.get(kind, 0) for group in groups) + further.get(kind, 0)
        compiler = _compiler(member, count)
        constraints += compiler.constraints(
            *(part.compiled.request.name for part in parts if part.kind is kind)
        )
        findings += compiler.findings
    requests = tuple(part.compiled.request for part in parts)
    devices = DeviceClaim(
        requests=requests,
        constraints=tuple(constraint for constraint, _ in constraints) or None,
    )
    sources: dict[FieldPath, FieldPath] = {}
    conditions: dict[str, tuple[Condition, ...]] = {}
    for index, part in enumerate(parts):
        sources |= part.compiled.sources_at(FieldPath.of("requests", index))
        conditions |= part.compiled.conditions
    for index, (_, path) in enumerate(constraints):
        sources[FieldPath.of("constraints", index)] = path
    readable = "-".join(
        f"{kind}-{sum(group.get(kind, 0) for group in groups)}" for kind in alignment.kinds
    )
    intent = members[0].intent
    claim = build_claim(
        devices,
        label="-".join(alignment.kinds),
        prefix=f"{prefix}-{readable}",
        uses=tuple(
            Use(container=user, request=request.name)
            for request in requests
            for user in (intent.container, *intent.also)
        ),
        drivers=frozenset(member.profile.driver for member in members),
        sources=sources,
        conditions=conditions,
    )
    return claim, findings


def _compiler(member: AlignedIntent, count: int) -> RequestCompiler:
    intent = msgspec.structs.replace(member.intent, count=count)
    device = member.profile.devices[intent.kind]
    facts = member.facts
    if not intent.partition:
        # Groups are aligned by their roots; partitions have a number of devices of their own.
        facts = msgspec.structs.replace(facts, partitions=None)
    return RequestCompiler(member.profile, device, facts, intent)


def _part(member: AlignedIntent, count: int, name: str) -> _Part:
    compiler = _compiler(member, count)
    compiled_request = compiler.request(name)
    return _Part(
        kind=member.intent.kind, compiled=compiled_request, findings=tuple(compiler.findings)
    )


def _align(parts: Sequence[_Part], alignment: Alignment) -> list[_Part]:
    """Return the parts of a group prepared for its constraint; unchanged if one cannot be."""
    aligned_parts = [_align_part(part, alignment) for part in parts]
    if all(part.aligned for part in aligned_parts):
        return aligned_parts
    return [
        msgspec.structs.replace(part, findings=attempt.findings)
        for part, attempt in zip(parts, aligned_parts, strict=True)
    ]


def _constraint(parts: Sequence[_Part]) -> Iterator[DeviceConstraint]:
    names = tuple(name for part in parts for name in part.aligned)
    if names:
        yield DeviceConstraint(requests=names, match_attribute=PCIE_ROOT)


def _align_part(part: _Part, alignment: Alignment) -> _Part:
    """Return the part prepared for its group's constraint."""
    request = part.compiled.request
    if alignment.required:
        return msgspec.structs.replace(part, aligned=(request.name,))
    alternatives = request.first_available or _only(request.exactly)
    if 2 * len(alternatives) > MAX_ALTERNATIVES:
        dropped_preference = warning(
            Code.POLICY_DROPPED,
            alignment.path,
            f"{len(alternatives)} memory sizes, each aligned or not, are more than "
            f"{MAX_ALTERNATIVES} alternatives; the preference is dropped",
        )
        return msgspec.structs.replace(part, findings=(*part.findings, dropped_preference))
    aligned_alternatives = tuple(
        _rename_alternative(ALIGNED, alternative) for alternative in alternatives
    )
    anywhere = tuple(_rename_alternative(ANY, alternative) for alternative in alternatives)
    compiled_request = CompiledRequest(
        request=DeviceRequest(
            name=request.name, first_available=(*aligned_alternatives, *anywhere)
        ),
        sources=_repeat_sources(part.compiled.sources, len(alternatives)),
        conditions=part.compiled.conditions,
    )
    return msgspec.structs.replace(
        part,
        compiled=compiled_request,
        aligned=tuple(f"{request.name}/{alternative.name}" for alternative in aligned_alternatives),
    )


def _with_further(part: _Part, further: int) -> _Part:
    """Return the part with alternatives for more devices before its own, most devices first.

    A constraint of a group would require one root for all of them, so these are not aligned.
    """
    request = part.compiled.request
    own = request.first_available or _only(request.exactly)
    room = MAX_ALTERNATIVES - len(own)
    counts = range(further + 1, 1, -1)[: max(room, 0)] if request.first_available else ()
    more = tuple(
        msgspec.structs.replace(own[-1], name=f"{FURTHER}-{count}", count=count) for count in counts
    )
    if not more:
        return part
    sources = part.compiled.sources
    shifted_sources = {
        _shift_alternative(field, len(more)): path for field, path in sources.items()
    }
    repeated_sources = {
        FieldPath.of("firstAvailable", index, *field.steps[2:]): path
        for field, path in sources.items()
        if field.steps[:2] == ("firstAvailable", len(own) - 1)
        for index in range(len(more))
    }
    compiled_request = CompiledRequest(
        request=DeviceRequest(name=request.name, first_available=(*more, *own)),
        sources={**shifted_sources, **repeated_sources},
        conditions=part.compiled.conditions,
    )
    return msgspec.structs.replace(part, compiled=compiled_request)


def _shift_alternative(field: FieldPath, by: int) -> FieldPath:
    match field.steps:
        case ("firstAvailable", int(index), *below):
            return FieldPath.of("firstAvailable", index + by, *below)
        case _:
            return field


def _repeat_sources(
    sources: Mapping[FieldPath, FieldPath], count: int
) -> Mapping[FieldPath, FieldPath]:
    """Return the sources of a request with `count` alternatives that are listed twice."""
    repeated_sources: dict[FieldPath, FieldPath] = {}
    for field, path in sources.items():
        match field.steps:
            case ("exactly", *below):
                index = 0
            case ("firstAvailable", int(index), *below):
                pass
            case _:
                repeated_sources[field] = path
                continue
        repeated_sources[FieldPath.of("firstAvailable", index, *below)] = path
        repeated_sources[FieldPath.of("firstAvailable", index + count, *below)] = path
    return repeated_sources


def _only(exactly: ExactDeviceRequest | None) -> tuple[DeviceSubRequest, ...]:
    """Return an exact request as its only alternative, without a name."""
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


def _rename_alternative(prefix: str, alternative: DeviceSubRequest) -> DeviceSubRequest:
    name = f"{prefix}-{alternative.name}" if alternative.name else prefix
    return msgspec.structs.replace(alternative, name=name)


def _check_derived(
    members: Sequence[AlignedIntent], groups: Sequence[Group], sizes: DerivedSize
) -> Iterator[Finding]:
    """Count the claim as if no alternative were repeated; yield the first error."""
    yield from sizes.check_claims([member.intent for member in members], 1)
    for member in members:
        request = _part(member, 1, member.intent.kind.value).compiled.request
        for _ in range(sum(member.intent.kind in group for group in groups)):
            excess = list(sizes.check_request(member.intent, request))
            if excess:
                yield from excess
                return


# --- findings -------------------------------------------------------------------------------------


def _check_roots(alignment: Alignment, members: Sequence[AlignedIntent]) -> Iterator[Finding]:
    """Yield a finding for each driver with known devices that publish no PCIe root."""
    for member in members:
        if member.facts.per_root != ():
            continue
        message = f"no device of {member.profile.driver} publishes its PCIe root"
        if alignment.required:
            yield error(
                Code.UNSUPPORTED_AS_PUBLISHED,
                alignment.path,
                f"{message}, so none can be aligned",
                "use a driver that publishes it, or remove requiredScope",
            )
        else:
            yield warning(
                Code.NOT_PUBLISHED_BY_DRIVER,
                alignment.path,
                f"{message}; the preference is dropped",
            )


def _too_many(code: Code, alignment: Alignment, total: int) -> Finding:
    return error(
        code,
        alignment.path,
        f"{total} aligned devices must be in one claim, and Kubernetes allocates at most "
        f"{MAX_RESULTS} per claim; constraints cannot span claims",
        "request fewer devices per pod, or remove the annotation",
    )
