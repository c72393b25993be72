"""Claims from intents and a profile, and the names of the templates that hold them.

Pure: equal intents, profiles and facts give equal bytes, here and in the controller. A request that
the driver cannot express is an error; one that it can express only in part is a warning.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from findings.field_path import FieldPath, Key
from findings.finding import Finding
from kube.api.meta import ObjectMeta
from kube.api.resource import (
    MAX_REQUESTS,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from translation.compiling.claim_division import RequestedDevices, check_limits, divide_devices
from translation.compiling.conditions import Condition
from translation.compiling.device_request import RequestCompiler
from translation.model.bounds import DerivedSize
from translation.model.init_containers import MergedIntents, merge_init_intents, reused_intents
from translation.model.intents import DeviceKind, Intent, LegacyContainer
from translation.profiles.device_facts import UNKNOWN, Facts
from translation.profiles.profile import Granularity, Profile
from translation.profiles.resource_profiles import check_rejected

TRANSLATION_VERSION: Final = 1
"""The version of the translation, part of every template's name and of every record. Raise it when
an equal record would give another spec."""

MAX_LABEL: Final = 63
NAME_HASH_LENGTH: Final = 16
"""Hexadecimal digits in a template's name. Comparisons of content use all of them."""


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """The use of one request of a claim by a container."""

    container: str
    request: str


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One claim of a pod.

    Attributes:
        label: Its name in `spec.resourceClaims`, unless the pod uses that name otherwise.
        template: The name of its template, which derives from the content.
        spec: `spec` of the ResourceClaimTemplate, as JSON.
        digest: The full-length digest of the spec.
        size: Bytes of the spec as JSON.
        uses: The uses in the order of the pod's containers.
        drivers: The drivers of its devices, by the profiles.
        sources: Field below `devices` to the path in the pod of the key that requested it.
        conditions: The CEL expression of each selector to the conditions of which it requires one.
    """

    label: str
    template: str
    spec: Mapping[str, Any]
    digest: str
    size: int
    uses: tuple[Use, ...]
    drivers: frozenset[str] = frozenset()
    sources: Mapping[FieldPath, FieldPath] = {}
    conditions: Mapping[str, tuple[Condition, ...]] = {}

    def class_names(self) -> Iterator[str]:
        """Yield the DeviceClass of every request and alternative."""
        for _, name in self.classes_by_request():
            yield name

    def requests(self) -> Iterator[Mapping[str, Any]]:
        """Yield every exact request, and every alternative of the others."""
        for request in self.spec["spec"]["devices"]["requests"]:
            yield from request.get("firstAvailable") or [request["exactly"]]

    def devices(self) -> Counter[str]:
        """Return DeviceClass to the devices that are requested of it; of alternatives the largest counts."""
        counts: Counter[str] = Counter()
        for request in self.spec["spec"]["devices"]["requests"]:
            largest: Counter[str] = Counter()
            for alternative in request.get("firstAvailable") or [request["exactly"]]:
                name = alternative["deviceClassName"]
                largest[name] = max(largest[name], alternative.get("count") or 1)
            counts.update(largest)
        return counts

    def classes_by_request(self) -> Iterator[tuple[int, str]]:
        """Yield the index of each request with the DeviceClass of each of its alternatives."""
        for index, request in enumerate(self.spec["spec"]["devices"]["requests"]):
            for alternative in request.get("firstAvailable") or [request["exactly"]]:
                yield index, alternative["deviceClassName"]

    def classes_by_key(self) -> Iterator[tuple[str, str]]:
        """Yield the resource name of each request with the DeviceClass of each of its alternatives."""
        for index, name in self.classes_by_request():
            match self.source(FieldPath.of("requests", index)):
                case FieldPath(steps=(*_, "resources", "limits", Key(name=key))):
                    yield key, name
                case _:
                    pass

    def source(self, field: FieldPath) -> FieldPath | None:
        """Return the path in the pod of the key that requested a field or its nearest parent.

        All items of a list, such as the selectors of a request, may come from one place.
        """
        of_items = {
            path
            for place, path in self.sources.items()
            if place.steps[:-1] == field.steps and isinstance(place.steps[-1], int)
        }
        if len(of_items) == 1 and field not in self.sources:
            return of_items.pop()
        for length in range(len(field.steps), 0, -1):
            path = self.sources.get(FieldPath(field.steps[:length]))
            if path is not None:
                return path
        return None


class CompiledClaims(msgspec.Struct, frozen=True, kw_only=True):
    """Claims, and the findings of their compilation."""

    claims: tuple[Claim, ...] = ()
    findings: tuple[Finding, ...] = ()


def spec_digest(spec: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a template's spec in canonical JSON."""
    return sha256(_canonical_json(spec)).hexdigest()


def _canonical_json(spec: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(spec, order="deterministic")


def template_digest(template: ResourceClaimTemplate) -> str:
    """Return the `Claim.digest` of the claim with a template of this content."""
    content = msgspec.to_builtins(template.spec, enc_hook=str)
    if template.spec.metadata == ObjectMeta():
        # The API server writes it even when it is empty.
        content.pop("metadata", None)
    return spec_digest(content)


def config_drivers(device_class: DeviceClass) -> frozenset[str]:
    """Return the drivers that a class has a configuration for."""
    return frozenset(
        config.opaque.driver
        for config in device_class.spec.config or ()
        if config.opaque is not None
    )


def template_classes(template: ResourceClaimTemplate) -> frozenset[str]:
    """Return the DeviceClass of every request and alternative."""
    return requested_classes(template.spec.spec.devices)


def requested_classes(claim: DeviceClaim) -> frozenset[str]:
    """Return the DeviceClass of every request and alternative."""
    return frozenset(
        alternative.device_class_name
        for request in claim.requests or ()
        for alternative in (request.exactly, *(request.first_available or ()))
        if alternative is not None
    )


def claim_spec(claim: DeviceClaim) -> Mapping[str, Any]:
    """Return the spec of the template for such claims, as JSON."""
    return {"spec": msgspec.to_builtins(ResourceClaimSpec(devices=claim), enc_hook=str)}


def template_name(prefix: str, digest: str) -> str:
    """Return the name of the template with this digest of its content, a DNS label."""
    name = sha256(f"{TRANSLATION_VERSION}:{digest}".encode()).hexdigest()
    return f"{prefix[: MAX_LABEL - NAME_HASH_LENGTH - 1]}-{name[:NAME_HASH_LENGTH]}"


def build_claim(
    devices: DeviceClaim,
    *,
    label: str,
    prefix: str,
    uses: tuple[Use, ...],
    drivers: frozenset[str],
    sources: Mapping[FieldPath, FieldPath],
    conditions: Mapping[str, tuple[Condition, ...]],
) -> Claim:
    """Return a claim, named after its content.

    Args:
        prefix: The readable prefix of the template's name.
        drivers: The drivers as in `Claim`, and likewise sources and conditions.
    """
    spec = claim_spec(devices)
    text = _canonical_json(spec)
    digest = sha256(text).hexdigest()
    return Claim(
        label=label,
        template=template_name(prefix, digest),
        spec=spec,
        digest=digest,
        size=len(text),
        uses=uses,
        drivers=drivers,
        sources=sources,
        conditions=conditions,
    )


def compile_claims(
    intents: Sequence[Intent],
    containers: Mapping[str, LegacyContainer],
    profile: Profile,
    facts: Mapping[DeviceKind, Facts],
    sizes: DerivedSize,
    *,
    prefix: str,
    merges_init: bool = False,
) -> CompiledClaims:
    """Compile the intents that one driver serves to claims; stop if the pod derives too much.

    Args:
        intents: All of kinds that the profile has, in the order of the pod's containers.
        containers: The pod's containers by name.
        facts: Device kind to the facts of the driver's published devices.
        sizes: The sizes of the objects derived from the pod so far.
        prefix: The readable prefix of template names, a DNS label.
        merges_init: Init containers that need more share the devices of an app container.
    """
    rejection_findings = tuple(check_rejected(intents, profile))
    if rejection_findings:
        return CompiledClaims(findings=rejection_findings)
    merged = MergedIntents(intents=tuple(intents))
    if merges_init:
        merged = merge_init_intents(
            intents,
            containers,
            limits_are_of_claim=profile.claims is Granularity.CONTAINER,
        )
    intents = merged.intents
    reused_indexes, reuse_findings = reused_intents(intents, containers, merged.reused_indexes)
    findings = [*merged.findings, *reuse_findings]
    requested_devices = [
        RequestedDevices(
            intent=intent,
            users=(
                *(
                    intents[init].container
                    for init, place in reused_indexes.items()
                    if place == index
                ),
                intent.container,
                *intent.also,
            ),
        )
        for index, intent in enumerate(intents)
        if index not in reused_indexes
    ]
    groups = [
        (label, part)
        for label, group in _grouped_by_claim(requested_devices, profile)
        for part in divide_devices(group, profile, facts)
    ]
    excess = list(sizes.check_claims(intents, len(groups)))
    claims: list[Claim] = []
    for label, group in groups if not excess else ():
        faults = list(check_limits([devices.intent for devices in group]))
        if faults:
            findings += faults
            continue
        compiled_request = _compile_claim(
            [devices.intent for devices in group], profile, facts, sizes
        )
        findings += compiled_request.findings
        if compiled_request.exceeds:
            break
        count = sum(devices.intent.count for devices in group)
        claim = build_claim(
            compiled_request.claim,
            label=label,
            prefix=f"{prefix}-{group[0].intent.kind}-{count}",
            uses=tuple(
                Use(container=user, request=name)
                for devices, names in zip(group, compiled_request.requests_by_intent, strict=True)
                for user in devices.users
                for name in names
            ),
            drivers=frozenset({profile.driver}),
            sources=compiled_request.sources,
            conditions=compiled_request.conditions,
        )
        excess = list(sizes.check_spec(group[-1].intent, claim.size))
        if excess:
            break
        claims.append(claim)
    return CompiledClaims(claims=tuple(claims), findings=tuple(dict.fromkeys((*findings, *excess))))


# --- one claim ------------------------------------------------------------------------------------


def _grouped_by_claim(
    requested_devices: Sequence[RequestedDevices], profile: Profile
) -> Iterator[tuple[str, list[RequestedDevices]]]:
    """Yield the label of each claim and its requests."""
    if profile.claims is Granularity.POD:
        if requested_devices:
            yield requested_devices[0].intent.kind.value, list(requested_devices)
        return
    # No constraint spans claims, so that of an app container has the further devices of its group.
    app_containers = {
        devices.intent.card_group: devices.intent.container for devices in requested_devices
    }
    by_container: dict[str, list[RequestedDevices]] = {}
    for devices in requested_devices:
        container = devices.intent.container
        if devices.intent.card_group is not None:
            container = app_containers[devices.intent.card_group]
        by_container.setdefault(container, []).append(devices)
    for container, group in by_container.items():
        yield pod_claim_label(group[0].intent.kind.value, container), group


def pod_claim_label(kind: str, container: str) -> str:
    """Return a DNS label for a container's claim; long names end in a hash.

    >>> pod_claim_label("gpu", "train")
    'gpu-train'
    """
    label = f"{kind}-{container}"
    if len(label) <= MAX_LABEL:
        return label
    return f"{label[: MAX_LABEL - 9].rstrip('-')}-{sha256(container.encode()).hexdigest()[:8]}"


class _CompiledClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim, its sources and findings.

    Attributes:
        requests_by_intent: Names of the requests of each intent.
        exceeds: The pod derives too much, so the claim is not complete.
    """

    claim: DeviceClaim
    requests_by_intent: tuple[tuple[str, ...], ...]
    sources: Mapping[FieldPath, FieldPath]
    conditions: Mapping[str, tuple[Condition, ...]]
    findings: tuple[Finding, ...]
    exceeds: bool


def _compile_claim(
    intents: Sequence[Intent],
    profile: Profile,
    facts: Mapping[DeviceKind, Facts],
    sizes: DerivedSize,
) -> _CompiledClaim:
    sources: dict[FieldPath, FieldPath] = {}
    conditions: dict[str, tuple[Condition, ...]] = {}
    requests: list[DeviceRequest] = []
    constraints: list[DeviceConstraint] = []
    configs: list[DeviceClaimConfiguration] = []
    findings: list[Finding] = []
    excess: list[Finding] = []
    by_intent: list[tuple[str, ...]] = []
    # Each device of some intents gets a request of its own, as long as Kubernetes allows so many.
    spare_requests = MAX_REQUESTS - len(intents)
    for intent, name in zip(intents, _request_names(intents), strict=True):
        compiler = _compiler(intent, profile, facts)
        parts = {name: compiler}
        if intent.count <= spare_requests and compiler.may_combine_sizes():
            spare_requests -= intent.count - 1
            single = msgspec.structs.replace(intent, count=1)
            parts = {
                f"{name}-{index}": _compiler(single, profile, facts)
                for index in range(intent.count)
            }
        for part_name, part in parts.items():
            compiled_request = part.request(part_name)
            sources |= compiled_request.sources_at(FieldPath.of("requests", len(requests)))
            conditions |= compiled_request.conditions
            requests.append(compiled_request.request)
            excess += sizes.check_request(intent, compiled_request.request)
            if part is not compiler:
                findings += part.findings
        by_intent.append(tuple(parts))
        relating = _relating_compiler(compiler, intents, len(by_intent) - 1, profile, facts)
        for constraint, path in _related(relating, intents, by_intent):
            sources[FieldPath.of("constraints", len(constraints))] = path
            constraints.append(constraint)
        for part_name in parts:
            for config, path in compiler.configs(part_name):
                sources[FieldPath.of("config", len(configs))] = path
                configs.append(config)
        findings += compiler.findings
        if relating is not compiler:
            findings += relating.findings
        if excess:
            break
    claim = DeviceClaim(
        requests=tuple(requests),
        constraints=tuple(constraints) or None,
        config=tuple(configs) or None,
    )
    return _CompiledClaim(
        claim=claim,
        requests_by_intent=tuple(by_intent),
        sources=sources,
        conditions=conditions,
        findings=(*findings, *excess),
        exceeds=bool(excess),
    )


def _relating_compiler(
    compiler: RequestCompiler,
    intents: Sequence[Intent],
    index: int,
    profile: Profile,
    facts: Mapping[DeviceKind, Facts],
) -> RequestCompiler:
    """Return the compiler of the constraints of an intent, or of the card group that it is in."""
    intent = intents[index]
    if intent.card_group is None:
        return compiler
    count = sum(other.count for other in intents if other.card_group == intent.card_group)
    return _compiler(msgspec.structs.replace(intent, count=count), profile, facts)


def _related(
    compiler: RequestCompiler, intents: Sequence[Intent], by_intent: Sequence[tuple[str, ...]]
) -> Iterator[tuple[DeviceConstraint, FieldPath]]:
    """Yield each constraint with the last of some intents; of a card group, with its last one only.

    Args:
        by_intent: The names of the requests of each intent so far.
    """
    group = intents[len(by_intent) - 1].card_group
    if group is None:
        yield from compiler.constraints(*by_intent[-1])
    elif all(intent.card_group != group for intent in intents[len(by_intent) :]):
        names = [
            name
            for intent, its_names in zip(intents, by_intent, strict=False)
            if intent.card_group == group
            for name in its_names
        ]
        yield from compiler.constraints(*names)


def _compiler(
    intent: Intent, profile: Profile, facts: Mapping[DeviceKind, Facts]
) -> RequestCompiler:
    return RequestCompiler(
        profile,
        profile.devices[intent.kind],
        facts.get(intent.kind, UNKNOWN),
        intent,
        gpu_facts=facts.get(DeviceKind.GPU, UNKNOWN),
    )


def _request_names(intents: Sequence[Intent]) -> list[str]:
    # Names contain no container's name, so that pods which need the same share one template.
    kinds = [intent.kind for intent in intents]
    return [
        kind.value if kinds.count(kind) == 1 else f"{kind}-{kinds[:index].count(kind)}"
        for index, kind in enumerate(kinds)
    ]
