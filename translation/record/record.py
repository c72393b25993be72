"""The translation record: the annotation of a translated pod that its claims derive from.

It holds the original keys and values, the translation version, the profile of each vocabulary with
its content hash, and the facts of the inventory that the translation used. The claim specs are a
pure function of it, so the controller derives them again from the persisted pod. Readers treat it as
untrusted: at worst its author gets what the same keys could have requested.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from findings.field_path import FieldPath
from kube.api.meta import decode
from kube.quantity import Quantity
from translation.compiling.claims import TRANSLATION_VERSION
from translation.model.choices import Choices
from translation.model.intents import DeviceKind, LegacyContainer, LegacyPod, Vocabulary
from translation.profiles.device_facts import UNKNOWN, Facts
from translation.profiles.profile import Profile
from translation.profiles.resource_profiles import vocabulary_of

MAX_BYTES: Final = 64 * 1024
MAX_CONTAINERS: Final = 256
MAX_SIZES: Final = 64

_TOO_LONG: Final = f"longer than {MAX_BYTES} bytes"


RECORDED: Final = Choices()
"""The choices of records without any."""


class RecordError(ValueError):
    """Text that is not a translation record of this version; the message has the reason."""


class RecordVersionError(RecordError):
    """The record of another translation version, regardless of its other content."""


class _Version(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of a record that all versions have."""

    translation_version: int


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of the record."""


class UsedProfile(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """The profile that served a vocabulary, and the facts of its devices.

    Attributes:
        hash: The content hash of the profile.
        facts: The facts that the translation used, no others.
    """

    vocabulary: str
    name: str
    hash: str
    facts: Mapping[DeviceKind, Facts] = {}


class VocabularyDriver(NamedTuple):
    """A vocabulary of a pod's keys, and its driver; empty without one."""

    vocabulary: str
    driver: str


class RecordedContainer(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """The device keys in the limits of one container; none if it only uses devices of others."""

    name: str
    limits: Mapping[str, Quantity]
    init: bool = False
    sidecar: bool = False


class TranslationRecord(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """The content of the annotation.

    Attributes:
        profiles: The profiles in the order that decides which vocabulary owns a key that several
            handle.
        containers: The containers with device keys, in the order of the pod; all containers where a
            vocabulary gives its devices to the whole pod.
        annotations: The pod annotations that its vocabularies depend on.
        choices: The operator's choices that made a difference.
    """

    translation_version: int
    profiles: tuple[UsedProfile, ...]
    containers: tuple[RecordedContainer, ...]
    annotations: Mapping[str, str] = {}
    choices: Choices = RECORDED

    def encode(self) -> str:
        """Return the annotation's text; the same record always gives the same text."""
        text: str = msgspec.json.encode(self, enc_hook=str, order="sorted").decode()
        return text

    def drivers(self) -> Mapping[str, str]:
        """Return vocabulary name to the driver that serves it."""
        return {used.vocabulary: used.name for used in self.profiles}

    def vocabulary_drivers(self) -> tuple[VocabularyDriver, ...]:
        """Return each vocabulary with each driver that serves it."""
        return tuple(VocabularyDriver(used.vocabulary, used.name) for used in self.profiles)

    def legacy_pod(self, paths: Mapping[str, FieldPath] | None = None) -> LegacyPod:
        """Return the pod as vocabularies read it.

        Args:
            paths: Container name to its path in the pod; None where the pod is not known.
        """
        known_paths = paths or {}
        return LegacyPod(
            containers=tuple(
                LegacyContainer(
                    name=container.name,
                    path=known_paths.get(
                        container.name, FieldPath.of("containers").key(container.name)
                    ),
                    limits=container.limits,
                    init=container.init,
                    sidecar=container.sidecar,
                )
                for container in self.containers
            ),
            annotations=self.annotations,
            choices=self.choices,
        )

    def keys(self) -> frozenset[str]:
        """Return the resource names that were removed from the pod."""
        return frozenset(key for container in self.containers for key in container.limits)


def decode_record(text: str) -> TranslationRecord:
    """Decode the text of the annotation.

    Raises:
        RecordVersionError: It is of another translation version.
        RecordError: The text is too long or malformed.
    """
    if len(text) > MAX_BYTES:
        raise RecordError(_TOO_LONG)
    try:
        # First, since another version may have other fields.
        _check_version(decode(text, _Version))
        record = decode(text, TranslationRecord)
        excess = excess_of(record, text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as fault:
        raise RecordError(f"not what the webhook writes: {fault}") from fault
    if excess is not None:
        raise RecordError(excess)
    return record


def _check_version(version: _Version) -> None:
    if version.translation_version != TRANSLATION_VERSION:
        raise RecordVersionError(
            f"translation version {version.translation_version} is not supported, "
            f"only {TRANSLATION_VERSION}"
        )


def excess_of(record: TranslationRecord, text: str) -> str | None:
    """Return the excess of a record over the limits of `decode_record`; None without one.

    Args:
        text: The record, encoded.
    """
    if len(text.encode()) > MAX_BYTES:
        return _TOO_LONG
    if len(record.containers) > MAX_CONTAINERS:
        return f"{len(record.containers)} containers, at most {MAX_CONTAINERS}"
    if any(len(facts.sizes or ()) > MAX_SIZES for facts in _all_facts(record)):
        return f"more than {MAX_SIZES} memory sizes"
    return None


def _all_facts(record: TranslationRecord) -> Iterable[Facts]:
    return (facts for profile in record.profiles for facts in profile.facts.values())


def build_record(
    pod: LegacyPod,
    vocabularies: Sequence[Vocabulary],
    profiles: Sequence[tuple[str, Profile, Mapping[DeviceKind, Facts]]],
) -> TranslationRecord:
    """Build the record of a pod.

    Args:
        pod: Its containers' limits hold only keys that these vocabularies own.
        vocabularies: The owners of the pod's keys.
        profiles: The name of a provider, its profile, and the facts that were used.
    """
    depends_on = {
        name
        for vocabulary in vocabularies
        for name in (*vocabulary.annotations, *vocabulary.recorded_annotations)
    }
    every_container = any(vocabulary.whole_pod for vocabulary in vocabularies)
    return TranslationRecord(
        translation_version=TRANSLATION_VERSION,
        profiles=tuple(
            UsedProfile(
                vocabulary=vocabulary_of(provider),
                name=profile.driver,
                hash=profile.content_hash,
                facts={kind: fact for kind, fact in facts.items() if fact != UNKNOWN},
            )
            for provider, profile, facts in profiles
        ),
        containers=tuple(
            RecordedContainer(
                name=container.name,
                limits=container.limits,
                init=container.init,
                sidecar=container.sidecar,
            )
            for container in pod.containers
            if container.limits or every_container
        ),
        annotations={
            name: text for name, text in sorted(pod.annotations.items()) if name in depends_on
        },
        # The same object, since only that is left out.
        choices=RECORDED if pod.choices == RECORDED else pod.choices,
    )
