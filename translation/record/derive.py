"""Claims from a translation record alone, without the pod or the cluster.

The controller calls only this half of the translation, since it trusts nothing but the persisted
annotation. So every decision here depends on the record and the profiles alone.
"""

from collections.abc import Mapping, Sequence

import msgspec

from findings.field_path import FieldPath, Key
from findings.finding import Code, Finding, error
from findings.text import printable, quote_text
from translation.compiling.alignment import AlignedIntent, compile_aligned_claim
from translation.compiling.claims import Claim, CompiledClaims, compile_claims
from translation.model.bounds import DerivedSize
from translation.model.choices import InitContainers
from translation.model.intents import (
    Alignment,
    DeviceKind,
    Intent,
    LegacyPod,
    Translation,
    Variable,
    Vocabulary,
)
from translation.profiles.device_facts import UNKNOWN, Facts
from translation.profiles.profile import Profile
from translation.profiles.resource_profiles import (
    has_devices_of,
    names_for,
    provider_name,
    vocabulary_of,
)
from translation.reading import arbiter
from translation.reading.renamed_keys import with_vocabulary_names
from translation.record.record import TranslationRecord, UsedProfile

Readings = Mapping[str, Translation]
"""Vocabulary name to its translation, in the order of ownership."""


class Derivation(msgspec.Struct, frozen=True, kw_only=True):
    """The claims and variables that derive from a record."""

    claims: tuple[Claim, ...] = ()
    variables: tuple[Variable, ...] = ()
    findings: tuple[Finding, ...] = ()


def derive(
    record: TranslationRecord,
    profiles: Mapping[str, Profile],
    paths: Mapping[str, FieldPath] | None = None,
    versions: Mapping[str, Profile] = {},
) -> Derivation:
    """Derive the claims of a translated pod.

    Args:
        record: Untrusted: every name and amount in it may be invented.
        profiles: Driver name to the profile in force here.
        paths: Container name to its path in the pod; None where the pod is not known.
        versions: Content hash to a version of a profile that is kept for the pods that name it.
    """
    providers: dict[str, Profile] = {}
    for index, used in enumerate(record.profiles):
        path = FieldPath.of("profiles", index)
        profile = _find_version(used, profiles, versions)
        if used.vocabulary not in arbiter.VOCABULARIES or profile is None:
            unknown = (
                f"{quote_text(used.vocabulary)} with {quote_text(used.name)} is not known here"
            )
            return Derivation(findings=(error(Code.TRANSLATION_RECORD_MALFORMED, path, unknown),))
        if profile.content_hash != used.hash:
            problem = (
                f"profile {used.name} is {profile.content_hash} here, not {quote_text(used.hash)}"
            )
            fix = "create the pod again from its legacy manifest"
            return Derivation(findings=(error(Code.PROFILE_CHANGED, path, problem, fix),))
        providers[provider_name(used.vocabulary, used.name, providers)] = profile
    legacy = record.legacy_pod(paths)
    facts = {used.name: used.facts for used in record.profiles}
    vocabularies = arbiter.extended_vocabularies(
        [
            (vocabulary_of(name), names_for(vocabulary_of(name), profile))
            for name, profile in providers.items()
        ],
        record.choices.renamed_keys,
    )
    owners = [vocabularies[name] for name in dict.fromkeys(map(vocabulary_of, providers))]
    readings = read_keys(legacy, owners, arbiter.divide_keys(legacy.keys(), owners))
    return compile_readings(readings, legacy, providers, facts)


def _find_version(
    used: UsedProfile, profiles: Mapping[str, Profile], versions: Mapping[str, Profile]
) -> Profile | None:
    """Return the profile that a record names: the version that it names, if that is known."""
    profile = profiles.get(used.name)
    if profile is not None and profile.content_hash == used.hash:
        return profile
    kept_profile = versions.get(used.hash)
    if kept_profile is not None and kept_profile.driver == used.name:
        return kept_profile
    return profile


def read_keys(
    legacy: LegacyPod,
    vocabularies: Sequence[Vocabulary],
    owned_keys: Mapping[str, frozenset[str]],
) -> Readings:
    """Translate a pod's keys, each by the vocabulary that owns it.

    Args:
        owned_keys: Vocabulary name to the keys that it owns; see `arbiter.divide_keys`.
    """
    return {
        vocabulary.name: vocabulary.translate(
            with_vocabulary_names(
                arbiter.restrict_keys(legacy, owned_keys[vocabulary.name]), vocabulary.renamed_keys
            )
        )
        for vocabulary in vocabularies
    }


def compile_readings(
    readings: Readings,
    legacy: LegacyPod,
    providers: Mapping[str, Profile],
    facts: Mapping[str, Mapping[DeviceKind, Facts]],
) -> Derivation:
    """Compile the intents of all vocabularies to claims.

    Args:
        providers: Vocabulary name to the profile that serves it; see `provider_name`.
        facts: Driver name to device kind to facts.
    """
    # Those with keys precede: others may not be recorded, so they must not make a name ambiguous.
    containers = {
        **{container.name: container for container in legacy.containers},
        **{container.name: container for container in legacy.containers if container.limits},
    }
    sizes = DerivedSize()
    claims: list[Claim] = []
    findings: list[Finding] = []
    variables: list[Variable] = []
    for vocabulary, reading in readings.items():
        findings += reading.findings
        variables += reading.variables
        by_driver = _intents_by_driver(reading, vocabulary, providers, findings)
        if reading.alignment is not None:
            aligned_claim = _compile_alignment(
                reading.alignment, by_driver, facts, sizes, prefix=vocabulary
            )
            claims += aligned_claim.claims
            findings += aligned_claim.findings
        for profile, intents in by_driver.values():
            compiled_claims = compile_claims(
                _unaligned_intents(intents, reading.alignment),
                containers,
                profile,
                facts.get(profile.driver, {}),
                sizes,
                prefix=vocabulary,
                merges_init=legacy.choices.init_containers is InitContainers.LARGEST,
            )
            claims += compiled_claims.claims
            findings += compiled_claims.findings
    return Derivation(claims=tuple(claims), variables=tuple(variables), findings=tuple(findings))


def _compile_alignment(
    alignment: Alignment,
    by_driver: Mapping[str, tuple[Profile, list[Intent]]],
    facts: Mapping[str, Mapping[DeviceKind, Facts]],
    sizes: DerivedSize,
    *,
    prefix: str,
) -> CompiledClaims:
    """Compile the intents to align to one claim; to none if a kind has no driver."""
    members = {
        intent.kind: AlignedIntent(
            intent=intent,
            profile=profile,
            facts=facts.get(profile.driver, {}).get(intent.kind, UNKNOWN),
        )
        for profile, intents in by_driver.values()
        for intent in intents
    }
    if any(kind not in members for kind in alignment.kinds):
        return CompiledClaims()
    return compile_aligned_claim(
        alignment, [members[kind] for kind in alignment.kinds], sizes, prefix=prefix
    )


def _unaligned_intents(intents: Sequence[Intent], alignment: Alignment | None) -> Sequence[Intent]:
    if alignment is None:
        return intents
    return [intent for intent in intents if intent.kind not in alignment.kinds]


def _intents_by_driver(
    reading: Translation,
    vocabulary: str,
    providers: Mapping[str, Profile],
    findings: list[Finding],
) -> Mapping[str, tuple[Profile, list[Intent]]]:
    """Return driver name to its profile and the intents that it serves."""
    by_driver: dict[str, tuple[Profile, list[Intent]]] = {}
    for intent in reading.intents:
        profile = provider(intent, vocabulary, providers)
        if profile is None:
            own = providers[vocabulary].driver if vocabulary in providers else vocabulary
            findings.append(
                error(
                    Code.CANNOT_EXPRESS,
                    intent.path("mode" if intent.through_mps else "count"),
                    f"{own} has no {_device_words(intent)}",
                    _fix_of_unserved(intent, vocabulary),
                )
            )
            continue
        by_driver.setdefault(profile.driver, (profile, []))[1].append(intent)
    return by_driver


def provider(intent: Intent, vocabulary: str, providers: Mapping[str, Profile]) -> Profile | None:
    """Return the vocabulary's own profile if it serves the intent, else the first that does.

    A vocabulary without a profile is not in the record, so nobody could read its keys again: its
    intents have no provider.
    """
    own = providers.get(vocabulary)
    if own is None or serves(own, intent):
        return own
    return next((profile for profile in providers.values() if serves(profile, intent)), None)


def serves(profile: Profile, intent: Intent) -> bool:
    """Return True if the profile's driver has devices for the intent."""
    device = profile.devices.get(intent.kind)
    return (
        device is not None
        and not (intent.through_mps and device.mps is None)
        and has_devices_of(device, intent)
    )


def _fix_of_unserved(intent: Intent, vocabulary: str) -> str:
    if intent.through_mps:
        return f"let another driver serve {vocabulary}"
    last = intent.path("count").steps[-1:]
    names = [printable(step.name) for step in last if isinstance(step, Key) and "/" in step.name]
    return (
        f"name such devices under devices.{intent.kind} in the profile of a driver, and let that driver serve "
        f"{names[0] if names else vocabulary}"
    )


def _device_words(intent: Intent) -> str:
    if intent.through_mps:
        return "MPS server"
    resource = intent.filter.resource
    return f"devices of {printable(resource)}" if resource else f"devices of kind {intent.kind}"
