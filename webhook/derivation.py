"""From a request alone to claims: the half of a translation that needs no pod and no cluster.

It is all that the controller calls, since it trusts nothing but the persisted annotation; so what
is decided here must depend on nothing else.
"""

from collections.abc import Mapping, Sequence

import msgspec

from webhook.claims import Claim, Compiled, compile_claims
from webhook.findings import Code, Finding, error, shown
from webhook.intents import (
    Alignment,
    DeviceKind,
    Intent,
    LegacyPod,
    Translation,
    Variable,
    Vocabulary,
)
from webhook.inventory import UNKNOWN, Facts
from webhook.joint import Member, compile_joint
from webhook.profile import Profile
from webhook.request import Request
from webhook.vocabularies import arbiter

Readings = Mapping[str, Translation]
"""Vocabulary name to what it made of its keys, in the order of ownership."""


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from a request alone."""

    claims: tuple[Claim, ...] = ()
    variables: tuple[Variable, ...] = ()
    findings: tuple[Finding, ...] = ()


def derive(request: Request, profiles: Mapping[str, Profile]) -> Derived:
    """Return the claims that a request asks for.

    Args:
        request: Hostile: every name and amount in it may be invented.
        profiles: Driver name to the profile in force here.
    """
    speakers: dict[str, Profile] = {}
    for place, used in enumerate(request.profiles):
        path = f"profiles[{place}]"
        profile = profiles.get(used.name)
        if used.vocabulary not in arbiter.VOCABULARIES or profile is None:
            unknown = f"{shown(used.vocabulary)} with {shown(used.name)} is not known here"
            return Derived(findings=(error(Code.REQUEST_MALFORMED, path, unknown),))
        if profile.content_hash != used.hash:
            stale = f"profile {used.name} is {profile.content_hash} here, not {shown(used.hash)}"
            fix = "make the pod again from its legacy manifest"
            return Derived(findings=(error(Code.PROFILE_CHANGED, path, stale, fix),))
        speakers[used.vocabulary] = profile
    legacy = request.legacy_pod()
    facts = {used.name: used.facts for used in request.profiles}
    speaking = arbiter.speaking(
        {vocabulary: profile.resource_names() for vocabulary, profile in speakers.items()}
    )
    return claims_of(read(legacy, [speaking[name] for name in speakers]), legacy, speakers, facts)


def read(legacy: LegacyPod, vocabularies: Sequence[Vocabulary]) -> Readings:
    """Return what each vocabulary makes of its keys.

    Args:
        vocabularies: In the order that decides shared keys.
    """
    named = {key for container in legacy.containers for key in container.limits}
    split = arbiter.divided(named, vocabularies)
    return {
        vocabulary.name: vocabulary.translate(arbiter.part_of(legacy, split[vocabulary.name]))
        for vocabulary in vocabularies
    }


def claims_of(
    readings: Readings,
    legacy: LegacyPod,
    speakers: Mapping[str, Profile],
    facts: Mapping[str, Mapping[DeviceKind, Facts]],
) -> Derived:
    """Return the claims that hold the intents.

    Args:
        speakers: Vocabulary to the profile that speaks for it.
        facts: Driver to kind to what its devices tell.
    """
    # Only those with keys: a request records no others, and may not name apart what a pod does.
    containers_by_name = {one.name: one for one in legacy.containers if one.limits}
    claims: list[Claim] = []
    findings: list[Finding] = []
    variables: list[Variable] = []
    for vocabulary, reading in readings.items():
        findings += reading.findings
        variables += reading.variables
        held = _by_speaker(reading, vocabulary, speakers, findings)
        if reading.alignment is not None:
            compiled = _joint(reading.alignment, held, facts, prefix=vocabulary)
            claims += compiled.claims
            findings += compiled.findings
        for profile, intents in held.values():
            compiled = compile_claims(
                _alone(intents, reading.alignment),
                containers_by_name,
                profile,
                facts.get(profile.driver, {}),
                prefix=vocabulary,
            )
            claims += compiled.claims
            findings += compiled.findings
    return Derived(claims=tuple(claims), variables=tuple(variables), findings=tuple(findings))


def _joint(
    alignment: Alignment,
    held: Mapping[str, tuple[Profile, list[Intent]]],
    facts: Mapping[str, Mapping[DeviceKind, Facts]],
    *,
    prefix: str,
) -> Compiled:
    """Return the claim of the intents that belong together; none where a driver lacks one."""
    members = {
        intent.kind: Member(
            intent=intent,
            profile=profile,
            facts=facts.get(profile.driver, {}).get(intent.kind, UNKNOWN),
        )
        for profile, intents in held.values()
        for intent in intents
    }
    if any(kind not in members for kind in alignment.kinds):
        return Compiled()
    return compile_joint(alignment, [members[kind] for kind in alignment.kinds], prefix=prefix)


def _alone(intents: Sequence[Intent], alignment: Alignment | None) -> Sequence[Intent]:
    if alignment is None:
        return intents
    return [intent for intent in intents if intent.kind not in alignment.kinds]


def _by_speaker(
    reading: Translation,
    vocabulary: str,
    speakers: Mapping[str, Profile],
    findings: list[Finding],
) -> Mapping[str, tuple[Profile, list[Intent]]]:
    """Return driver to its profile and the intents that it holds."""
    groups: dict[str, tuple[Profile, list[Intent]]] = {}
    for intent in reading.intents:
        held_by = speaker(intent, vocabulary, speakers)
        if held_by is None:
            own = speakers[vocabulary].driver if vocabulary in speakers else vocabulary
            findings.append(
                error(
                    Code.CANNOT_EXPRESS,
                    intent.path("mode" if intent.through_mps else "count"),
                    f"{own} has no {_wanted(intent)}",
                    f"choose another driver: --profile {vocabulary}=NAME",
                )
            )
            continue
        groups.setdefault(held_by.driver, (held_by, []))[1].append(intent)
    return groups


def speaker(intent: Intent, vocabulary: str, speakers: Mapping[str, Profile]) -> Profile | None:
    """Return the vocabulary's own profile if it holds the intent, else the first that does.

    Without a profile of its own a vocabulary has no place in the request, so nobody could read its
    keys again: nobody speaks for it.
    """
    if vocabulary not in speakers:
        return None
    ordered = sorted(speakers.items(), key=lambda item: item[0] != vocabulary)
    return next((profile for _, profile in ordered if holds(profile, intent)), None)


def holds(profile: Profile, intent: Intent) -> bool:
    """Whether the profile's driver has devices for the intent."""
    device = profile.devices.get(intent.kind)
    return device is not None and not (intent.through_mps and device.mps is None)


def _wanted(intent: Intent) -> str:
    return "MPS server" if intent.through_mps else f"devices of kind {intent.kind}"
