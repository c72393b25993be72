"""Intents and a profile to claim specs, and the names of the templates that hold them.

Pure: the same intents, profile and facts give the same bytes, here and in the controller. A wish
that the driver cannot hold is an error; a wish that it holds only in part is a warning.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from kube.api.meta import ObjectMeta
from kube.api.resource import (
    MAX_REQUESTS,
    MAX_RESULTS,
    DeviceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from webhook.device_request import RequestCompiler
from webhook.findings import Code, Finding, error
from webhook.init_containers import hosts
from webhook.intents import DeviceKind, Intent, LegacyContainer
from webhook.inventory import UNKNOWN, Facts
from webhook.profile import Granularity, Profile

RECIPE: Final = 1
"""The version of this translation, part of every template's name and of every request. Raise it
when the same request would give another spec."""

MAX_LABEL: Final = 63
NAME_HASH_LENGTH: Final = 16
"""Hexadecimal digits in a template's name. Whoever compares contents compares all of them."""


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """A container uses one request of a claim."""

    container: str
    request: str


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One claim that a pod needs.

    Attributes:
        label: What the pod calls it in `spec.resourceClaims`, unless that name is taken.
        template: The name of its template; derives from the content.
        spec: `spec` of the ResourceClaimTemplate, as JSON.
        uses: In the order of the pod's containers.
    """

    label: str
    template: str
    spec: Mapping[str, Any]
    uses: tuple[Use, ...]

    @property
    def digest(self) -> str:
        """What identifies the spec, in full length."""
        return spec_digest(self.spec)

    def class_names(self) -> Iterator[str]:
        """Yield the DeviceClass of every request and alternative."""
        for request in self.spec["spec"]["devices"]["requests"]:
            for asked in request.get("firstAvailable") or [request["exactly"]]:
                yield asked["deviceClassName"]


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """Claims, and what there is to say about them."""

    claims: tuple[Claim, ...] = ()
    findings: tuple[Finding, ...] = ()


def spec_digest(spec: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a template's spec in canonical JSON."""
    return sha256(msgspec.json.encode(spec, order="deterministic")).hexdigest()


def template_digest(template: ResourceClaimTemplate) -> str:
    """Return what `Claim.digest` is for the claim whose template has this content."""
    content = msgspec.to_builtins(template.spec, enc_hook=str)
    if template.spec.metadata == ObjectMeta():
        # The API server writes it even when it is empty.
        content.pop("metadata", None)
    return spec_digest(content)


def template_classes(template: ResourceClaimTemplate) -> frozenset[str]:
    """Return the DeviceClass of every request and alternative."""
    requests = template.spec.spec.devices.requests or ()
    exact = (one.exactly.device_class_name for one in requests if one.exactly is not None)
    either = (way.device_class_name for one in requests for way in one.first_available or ())
    return frozenset((*exact, *either))


def claim_spec(claim: DeviceClaim) -> Mapping[str, Any]:
    """Return the spec of the template that makes such claims, as JSON."""
    return {"spec": msgspec.to_builtins(ResourceClaimSpec(devices=claim), enc_hook=str)}


def template_name(prefix: str, spec: Mapping[str, Any]) -> str:
    """Return the name of the template with this content, a DNS label."""
    named = sha256(f"{RECIPE}:{spec_digest(spec)}".encode()).hexdigest()
    return f"{prefix[: MAX_LABEL - NAME_HASH_LENGTH - 1]}-{named[:NAME_HASH_LENGTH]}"


def compile_claims(
    intents: Sequence[Intent],
    containers: Mapping[str, LegacyContainer],
    profile: Profile,
    facts: Mapping[DeviceKind, Facts],
    *,
    prefix: str,
) -> Compiled:
    """Return the claims in which this driver holds the intents.

    Args:
        intents: All of kinds that the profile has, in the order of the pod's containers.
        containers: By name, to know which are init containers.
        facts: What the inventory tells of the profile's devices.
        prefix: The readable beginning of template names, a DNS label.
    """
    shared, said = hosts(intents, containers)
    findings = list(said)
    wishes = [
        _Wish(
            intent=intent,
            users=(
                *(intents[g].container for g, h in shared.items() if h == place),
                intent.container,
                *intent.also,
            ),
        )
        for place, intent in enumerate(intents)
        if place not in shared
    ]
    claims = []
    for label, group in _grouped(wishes, profile):
        spec, names = _spec(group, profile, facts, findings)
        faults = list(_limits([wish.intent for wish in group]))
        if faults:
            findings += faults
            continue
        devices = sum(wish.intent.count for wish in group)
        readable = f"{prefix}-{group[0].intent.kind}-{devices}"
        claims.append(
            Claim(
                label=label,
                template=template_name(readable, spec),
                spec=spec,
                uses=tuple(
                    Use(container=user, request=name)
                    for wish, name in zip(group, names, strict=True)
                    for user in wish.users
                ),
            )
        )
    return Compiled(claims=tuple(claims), findings=tuple(findings))


# --- one claim ------------------------------------------------------------------------------------


class _Wish(msgspec.Struct, frozen=True, kw_only=True):
    """An intent that becomes a request, and the containers that use it."""

    intent: Intent
    users: tuple[str, ...]


def _grouped(wishes: Sequence[_Wish], profile: Profile) -> Iterator[tuple[str, list[_Wish]]]:
    """Yield the label of each claim and what goes into it."""
    if profile.claims is Granularity.POD:
        if wishes:
            yield wishes[0].intent.kind.value, list(wishes)
        return
    by_container: dict[str, list[_Wish]] = {}
    for wish in wishes:
        by_container.setdefault(wish.intent.container, []).append(wish)
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


def _spec(
    wishes: Sequence[_Wish],
    profile: Profile,
    facts: Mapping[DeviceKind, Facts],
    findings: list[Finding],
) -> tuple[Mapping[str, Any], list[str]]:
    """Return the spec of the template, and the names of its requests, one per wish."""
    intents = [wish.intent for wish in wishes]
    names = _request_names(intents)
    named = [
        (RequestCompiler(profile, profile.devices[i.kind], facts.get(i.kind, UNKNOWN), i), name)
        for i, name in zip(intents, names, strict=True)
    ]
    claim = DeviceClaim(
        requests=tuple(compiler.request(name) for compiler, name in named),
        constraints=tuple(c for compiler, name in named for c in compiler.constraints(name))
        or None,
        config=tuple(c for compiler, name in named for c in compiler.configs(name)) or None,
    )
    for compiler, _ in named:
        findings.extend(compiler.findings)
    return claim_spec(claim), names


def _request_names(intents: Sequence[Intent]) -> list[str]:
    # Names hold no container's name, so that pods which need the same share one template.
    totals = Counter(intent.kind for intent in intents)
    seen: Counter[DeviceKind] = Counter()
    names = []
    for intent in intents:
        alone = totals[intent.kind] == 1
        names.append(intent.kind.value if alone else f"{intent.kind}-{seen[intent.kind]}")
        seen[intent.kind] += 1
    return names


def _limits(intents: Sequence[Intent]) -> Iterator[Finding]:
    total = sum(intent.count for intent in intents)
    if total > MAX_RESULTS:
        yield error(
            Code.TOO_MANY_DEVICES,
            intents[-1].path("count"),
            f"{total} devices in one claim, Kubernetes allocates at most {MAX_RESULTS}",
            "ask for fewer devices per pod",
        )
    if len(intents) > MAX_REQUESTS:
        yield error(
            Code.TOO_MANY_REQUESTS,
            intents[-1].path("count"),
            f"{len(intents)} requests in one claim, Kubernetes takes at most {MAX_REQUESTS}",
            "use fewer containers with devices",
        )
