"""The key to add to a container, for an amount that none of its keys requests.

The author of `nvidia.com/gpu: 1` requests all memory of a GPU, and no key says so. Where a quota allows less,
the fix names the key that the vocabulary has for it, such as `nvidia.com/gpumem`. A translation of the pod with
that key proves it; where it requests more than before, or other devices, there is no such fix.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from findings.field_path import FieldPath, Key
from findings.fitting import FittingAmount
from kube.quantity import ZERO, Format, Quantity
from translation.compiling.claims import Claim
from translation.model.keys import KeyOutcome, Place
from translation.reading import arbiter
from translation.reading.renamed_keys import with_vocabulary_names
from translation.record.record import RecordedContainer, TranslationRecord
from translation.record.recorded_translation import (
    KeyFix,
    RecordedTranslation,
    amount_at,
    derive_record,
    devices_without,
    identity,
)

_BYTES: Final[Mapping[str, int]] = {"MiB": 2**20, "bytes": 1}
"""Unit of keys that are amounts of memory to the number of bytes that it means."""


def find_addition(
    amounts: Sequence[tuple[Claim, FittingAmount]], translation: RecordedTranslation
) -> tuple[KeyFix, ...]:
    """Return the key to add for a capacity that no key requests, such as the memory of a whole GPU.

    Returns:
        One; empty where there is no such key, or where it is not proved.
    """
    if len(amounts) != 1 or translation.choices is None:
        return ()
    ((claim, amount),) = amounts
    renamed_keys = translation.choices.renamed_keys
    names = {key: name for name, key in renamed_keys.items()}
    for container, place, counted in _counting_keys(claim, amount.field, translation):
        for key, unit in _amount_keys(renamed_keys.get(counted, counted)):
            name = names.get(key, key)
            format_ = Format.BINARY if unit == 1 else Format.DECIMAL
            most = Quantity.from_int(amount.amount.nanos // (unit * 10**9), format_)
            fix = KeyFix(
                container=container.name,
                key=name,
                path=place.key(name),
                amount=most,
                is_added=True,
            )
            if name not in container.limits and _is_proved_addition(
                claim, amount, fix, translation
            ):
                return (fix,)
    return ()


def _counting_keys(
    claim: Claim, field: FieldPath, translation: RecordedTranslation
) -> Iterator[tuple[RecordedContainer, FieldPath, str]]:
    """Yield the container, the path of its limits and the key that requested the devices without a capacity."""
    match field.steps:
        case ("requests", int() as index, "exactly", "capacity", "requests", Key()):
            source = claim.source(FieldPath.of("requests", index))
        case _:
            return
    if source is None or amount_at(claim, field) is not None:
        return
    for container in translation.record.containers:
        path = translation.paths.get(container.name)
        if path is None:
            continue
        limits = path.child("resources", "limits")
        match source.relative_to(limits):
            case FieldPath(steps=(Key(name=key),)) if key in container.limits:
                yield container, limits, key


def _amount_keys(counted: str) -> Iterator[tuple[str, int]]:
    """Yield the keys of capacities beside a key that counts devices, each with the bytes that 1 of it means."""
    domain = counted.partition("/")[0]
    for vocabulary in arbiter.VOCABULARIES.values():
        if vocabulary.handles(counted):
            for row in vocabulary.table:
                if (
                    (row.place, row.outcome) == (Place.LIMIT, KeyOutcome.CAPACITY)
                    and row.name.partition("/")[0] == domain
                    and row.unit in _BYTES
                ):
                    yield row.name, _BYTES[row.unit]


def _is_proved_addition(
    claim: Claim, amount: FittingAmount, fix: KeyFix, translation: RecordedTranslation
) -> bool:
    """Return True if the added key only makes one request smaller: to this amount, and no more."""
    changed = _with_key(fix, translation)
    before = derive_record(translation.record, translation)
    after = derive_record(changed, translation) if changed is not None else None
    if before is None or after is None or len(before) != len(after):
        return False
    for old, new in zip(before, after, strict=True):
        if (old.uses, old.drivers) != (new.uses, new.drivers):
            return False
        if identity(old) != identity(claim):
            if old.spec != new.spec:
                return False
        elif not _requests_no_more(old, new, amount):
            return False
    return True


def _requests_no_more(old: Claim, new: Claim, amount: FittingAmount) -> bool:
    """Return True if a claim is another one with no more of any capacity of one request."""
    requested = amount_at(new, amount.field)
    if requested is None or not ZERO < requested <= amount.amount:
        return False
    (old_devices, old_amounts), (new_devices, new_amounts) = (
        _without_capacity(devices, amount.field) for devices in (old, new)
    )
    return old_devices == new_devices and all(
        name not in old_amounts or Quantity(str(value)) <= Quantity(str(old_amounts[name]))
        for name, value in new_amounts.items()
    )


def _without_capacity(
    claim: Claim, field: FieldPath
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the devices of a claim without the capacity of a request, and the amounts of that."""
    devices = devices_without(claim, ())
    _, index, *_ = field.steps
    capacity = devices["requests"][index]["exactly"].pop("capacity", None) or {}
    return devices, capacity.get("requests") or {}


def _with_key(fix: KeyFix, translation: RecordedTranslation) -> TranslationRecord | None:
    """Return the record with an added key; None if several vocabularies would take it over."""
    record = translation.record
    containers = tuple(
        replace(container, limits={**container.limits, fix.key: fix.amount})
        if container.name == fix.container
        else container
        for container in record.containers
    )
    record = replace(record, containers=containers, choices=translation.choices or record.choices)
    legacy = with_vocabulary_names(record.legacy_pod(), record.choices.renamed_keys)
    new_owners, old_owners = arbiter.owners(legacy), list(record.drivers())
    gained = [name for name in new_owners if name not in old_owners]
    lost = [name for name in old_owners if name not in new_owners]
    if len(gained) != len(lost) or len(lost) > 1:
        return None
    vocabularies = dict(zip(lost, gained, strict=True))
    profiles = tuple(
        replace(used, vocabulary=vocabularies.get(used.vocabulary, used.vocabulary))
        for used in record.profiles
    )
    return replace(record, profiles=profiles)
