"""A translation that can be made again with other values of its keys, to prove a fix."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import msgspec

from findings.field_path import FieldPath, Key
from findings.finding import has_errors
from findings.text import printable
from kube.errors import QuantityError
from kube.quantity import Format, Quantity
from translation.compiling.claims import Claim
from translation.model.choices import Choices
from translation.profiles.profile import Profile
from translation.reading import arbiter
from translation.record.derive import derive
from translation.record.record import TranslationRecord, VocabularyDriver

MAX_NAME: Final = 253
"""Characters of a name in a fix."""
ANNOTATIONS: Final = FieldPath.of("metadata", "annotations")
_MAX_KEY: Final = MAX_NAME + len("/") + 63


class RecordedTranslation(msgspec.Struct, frozen=True, kw_only=True):
    """A translation that can be made again with other values of its keys.

    Attributes:
        paths: Container name to its path in the pod.
        profiles: Driver name to the profile in force.
        versions: Content hash to a version of a profile that is kept.
        choices: The operator's choices, whether they make a difference or not, with all renamed keys;
            None where they are not known, so that no key can be added.
    """

    record: TranslationRecord
    paths: Mapping[str, FieldPath]
    profiles: Mapping[str, Profile]
    versions: Mapping[str, Profile] = {}
    choices: Choices | None = None

    @property
    def drivers(self) -> tuple[VocabularyDriver, ...]:
        """The vocabularies with their drivers, as far as there are such: anybody may have written the record."""
        pairs = dict.fromkeys(self.record.vocabulary_drivers())
        return tuple(
            pair
            for pair in pairs
            if pair.vocabulary in arbiter.VOCABULARIES and pair.driver in self.profiles
        )


def derive_claims(translation: RecordedTranslation) -> tuple[Claim, ...]:
    """Return the claims that derive from the record."""
    return derive(
        translation.record, translation.profiles, translation.paths, translation.versions
    ).claims


class KeyFix(msgspec.Struct, frozen=True, kw_only=True):
    """The value of one key, or annotation, that makes a pod fit.

    Attributes:
        container: The name of the container; empty for an annotation.
        key: The resource name as the translation record has it, or the name of the annotation.
        path: The path of the limit, or the annotation, in the pod.
        is_added: The container has no such key yet.
    """

    container: str
    key: str
    path: FieldPath
    amount: Quantity
    is_added: bool = False

    @property
    def is_annotation(self) -> bool:
        """True for the value of an annotation of the pod."""
        return self.path.steps[:2] == ANNOTATIONS.steps

    @property
    def key_text(self) -> str:
        """The key, fit for a message."""
        return printable(self.key[:_MAX_KEY])

    @property
    def container_text(self) -> str:
        """The name of the container, fit for a message."""
        return printable(self.container[:MAX_NAME])


def written_amount(amount: Quantity) -> str:
    """Return an amount as one writes it for a key: a number of bytes with its suffix, others plain.

    >>> written_amount(Quantity("8Gi")), written_amount(Quantity("3k"))
    ('8Gi', '3000')
    """
    return str(amount) if amount.format is Format.BINARY else str(int(amount))


def derive_record(
    record: TranslationRecord, translation: RecordedTranslation
) -> tuple[Claim, ...] | None:
    """Return the claims that derive from another record of the pod; None if it has errors."""
    derivation = derive(record, translation.profiles, translation.paths, translation.versions)
    return None if has_errors(derivation.findings) else derivation.claims


def identity(claim: Claim) -> Hashable:
    """Return the key of a claim that is equal in another translation of the pod."""
    return claim.label, claim.template, claim.uses


def amount_at(claim: Claim, field: FieldPath) -> Quantity | None:
    """Return the number at a field below the devices of a claim; None if there is none."""
    value: Any = claim.spec["spec"]["devices"]
    for step in _plain_steps(field):
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    try:
        return Quantity(value) if isinstance(value, str | int) else None
    except QuantityError:
        return None


def devices_without(claim: Claim, fields: Sequence[FieldPath]) -> dict[str, Any]:
    """Return the devices of a claim without some numbers; it must have all of them."""
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(claim.spec["spec"]["devices"]))
    for field in fields:
        *parents, last = _plain_steps(field)
        value: Any = copied
        for step in parents:
            value = value[step]
        value.pop(last)
    return copied


def _plain_steps(field: FieldPath) -> list[str | int]:
    return [step.name if isinstance(step, Key) else step for step in field.steps]
