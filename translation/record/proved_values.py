"""The values of keys for claims that request no more than fits, each proved by a translation.

A vocabulary is not inverted by a second table, which could disagree with it: the value of a key is a
proportion of what it requests now, and is proved by a translation of the changed keys. Where the proof
fails, as for an amount that several keys add up to, there are no such values.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from findings.field_path import FieldPath, Key
from findings.fitting import FittingAmount
from kube.errors import QuantityError
from kube.quantity import ZERO, Quantity
from translation.compiling.claims import Claim
from translation.record.key_additions import find_addition
from translation.record.record import TranslationRecord
from translation.record.recorded_translation import (
    ANNOTATIONS,
    KeyFix,
    RecordedTranslation,
    amount_at,
    derive_claims,
    derive_record,
    devices_without,
    identity,
    written_amount,
)
from translation.record.request_totals import request_totals

_MAX_ROUNDS: Final = 8
"""Containers with the next largest amount that are looked for, each by a translation of the pod."""
_REQUEST: Final = "-request"
_LIMIT: Final = "-limit"
"""The ends of the names of annotations that are a request and its limit."""


def find_key_fixes(
    amounts: Sequence[tuple[Claim, FittingAmount]], translation: RecordedTranslation
) -> tuple[KeyFix, ...]:
    """Return the values of keys that make the claims request no more than these amounts.

    Returns:
        One for each key, in the order of the amounts; empty where no values are proved.
    """
    # One key may request several numbers: each the same one, or parts of it, such as the NICs below each PCIe root.
    for proportions in (_proportions, _proportions_of_sums, _proportions_of_requests):
        fixes = _in_proportion(proportions(amounts), translation)
        if fixes and is_proved(amounts, fixes, translation):
            return fixes
        for further in (
            _with_next_largest(amounts, fixes, translation),
            _with_init_containers(fixes, translation),
        ):
            if fixes and further and is_proved(amounts, further, translation):
                return further
    return _fixes_of_totals(amounts, translation) or find_addition(amounts, translation)


def _with_next_largest(
    amounts: Sequence[tuple[Claim, FittingAmount]],
    fixes: tuple[KeyFix, ...],
    translation: RecordedTranslation,
) -> tuple[KeyFix, ...]:
    """Return values of keys with those of the containers that request the most once the values are changed.

    An init container and an app container request the larger of their amounts, so both may be too large.
    """
    places = {identity(claim): number for number, claim in enumerate(derive_claims(translation))}
    values = {fix.path: fix for fix in fixes}
    for _ in translation.record.containers[:_MAX_ROUNDS]:
        changed = replace(translation, record=_changed(translation.record, tuple(values.values())))
        claims = derive_record(changed.record, changed) or ()
        proportions = []
        for claim, amount in amounts:
            number = places.get(identity(claim))
            if number is None or number >= len(claims):
                return ()
            requested = amount_at(claims[number], amount.field)
            if requested is not None and requested > amount.amount:
                path = claims[number].source(amount.field)
                proportions.append(_Proportion(path, amount.amount, requested))
        further = _in_proportion(proportions, changed)
        if not further:
            break
        values |= {fix.path: fix for fix in further}
    return tuple(values.values())


def _with_init_containers(
    fixes: tuple[KeyFix, ...], translation: RecordedTranslation
) -> tuple[KeyFix, ...]:
    """Return values of keys with the same ones for each init container that has more of a key."""
    values = {fix.path: fix for fix in fixes}
    for fix in fixes:
        for container in translation.record.containers:
            place = translation.paths.get(container.name)
            limit = container.limits.get(fix.key)
            runs_first = container.init and not container.sidecar
            if place is None or limit is None or not runs_first or limit <= fix.amount:
                continue
            path = place.child("resources", "limits").key(fix.key)
            values.setdefault(path, replace(fix, container=container.name, path=path))
    return tuple(values.values())


def _fixes_of_totals(
    amounts: Sequence[tuple[Claim, FittingAmount]], translation: RecordedTranslation
) -> tuple[KeyFix, ...]:
    """Return the values of keys by the total number of devices of their claims."""
    counts: dict[tuple[int, int], int] = {}
    claims = derive_record(translation.record, translation) or ()
    places = {identity(claim): number for number, claim in enumerate(claims)}
    for claim, amount in amounts:
        match amount.field.steps:
            case ("requests", int() as index, *_, "count") if (
                identity(claim) in places and amount.amount.is_whole
            ):
                counts[places[identity(claim)], index] = int(amount.amount)
            case _:
                return ()
    before, fitting = request_totals(claims, {}), request_totals(claims, counts)
    if not before or not fitting:
        return ()
    fixes = _in_proportion(
        (
            _Proportion(kind.path, Quantity(fitting[kind]), Quantity(total))
            for kind, total in before.items()
            if fitting[kind] != total
        ),
        translation,
    )
    changed = derive_record(_changed(translation.record, fixes), translation) if fixes else None
    after = request_totals(changed, {}) if changed else None
    is_proved = (
        after is not None
        and after.keys() == fitting.keys()
        and all(0 < after[kind] <= total for kind, total in fitting.items())
    )
    return fixes if is_proved else ()


class _Proportion(NamedTuple):
    """An amount beside the one that the claim requests now, both of the key at a path."""

    path: FieldPath | None
    amount: Quantity
    requested: Quantity | None


def _proportions(amounts: Sequence[tuple[Claim, FittingAmount]]) -> Iterator[_Proportion]:
    for claim, amount in amounts:
        requested = amount_at(claim, amount.field)
        yield _Proportion(claim.source(amount.field), amount.amount, requested)


def _proportions_of_sums(amounts: Sequence[tuple[Claim, FittingAmount]]) -> Iterator[_Proportion]:
    """Yield the amounts, and those requested, summed over the requests of a claim that come from one key."""
    for claim, amount in amounts:
        path = claim.source(amount.field)
        changed = {other.field: other.amount for owner, other in amounts if owner is claim}
        before = after = ZERO
        for field in _fields_like(claim, amount.field):
            requested = amount_at(claim, field)
            if requested is not None and claim.source(field) == path:
                before += requested
                after += changed.get(field, requested)
        yield _Proportion(path, after, before)


def _proportions_of_requests(
    amounts: Sequence[tuple[Claim, FittingAmount]],
) -> Iterator[_Proportion]:
    """Yield the amounts, and for each number of devices the amounts per device of its request.

    A key may be the total of all devices: with fewer of them, the same of each is less in total.
    """
    yield from _proportions(amounts)
    own_fields = {(identity(claim), amount.field) for claim, amount in amounts}
    for claim, amount in amounts:
        count = amount_at(claim, amount.field)
        match amount.field.steps:
            case ("requests", int(), *_, "count") if count is not None:
                path = claim.source(amount.field)
            case _:
                continue
        request = FieldPath((*amount.field.steps[:-1], "capacity", "requests"))
        for field, source in claim.sources.items():
            is_of_request = field.relative_to(request) is not None
            if is_of_request and source != path and (identity(claim), field) not in own_fields:
                yield _Proportion(source, amount.amount, count)


def _fields_like(claim: Claim, field: FieldPath) -> Iterator[FieldPath]:
    """Yield the same field of every request of a claim."""
    match field.steps:
        case ("requests", int(), *below):
            for index in range(len(claim.spec["spec"]["devices"].get("requests") or ())):
                yield FieldPath(("requests", index, *below))
        case _:
            yield field


def _in_proportion(
    proportions: Iterable[_Proportion], translation: RecordedTranslation
) -> tuple[KeyFix, ...]:
    """Return the least value of each key in proportion to its amounts; empty if one has none."""
    fixes: dict[FieldPath, KeyFix] = {}
    for proportion in proportions:
        fix = _proportional(proportion, translation)
        if fix is None:
            return ()
        other = fixes.get(fix.path)
        fixes[fix.path] = fix if other is None or fix.amount < other.amount else other
    return _with_equal_limits(tuple(fixes.values()), translation)


def _proportional(proportion: _Proportion, translation: RecordedTranslation) -> KeyFix | None:
    """Return the value of the key that requested a field, in proportion to the amount."""
    path, amount, requested = proportion
    if path is None or requested is None or requested.nanos <= 0:
        return None
    match path.steps:
        case ("metadata", "annotations", Key(name=name)):
            number = _annotated_amount(name, translation)
            value = share_of(number, amount, requested) if number is not None else None
            return KeyFix(container="", key=name, path=path, amount=value) if value else None
        case _:
            pass
    for container in translation.record.containers:
        place = translation.paths.get(container.name)
        below = path.relative_to(place.child("resources", "limits")) if place is not None else None
        match below:
            case FieldPath(steps=(Key(name=key),)) if key in container.limits:
                value = share_of(container.limits[key], amount, requested)
                if value is None:
                    return None
                return KeyFix(container=container.name, key=key, path=path, amount=value)
    return None


def _annotated_amount(name: str, translation: RecordedTranslation) -> Quantity | None:
    """Return the amount in an annotation; None without one."""
    try:
        return Quantity(translation.record.annotations[name])
    except (KeyError, QuantityError):
        return None


def _with_equal_limits(
    fixes: Sequence[KeyFix], translation: RecordedTranslation
) -> tuple[KeyFix, ...]:
    """Return values with those of annotations of limits that are equal to the requests beside them."""
    annotations = translation.record.annotations
    values = {fix.path: fix for fix in fixes}
    for fix in fixes:
        limit = fix.key.removesuffix(_REQUEST) + _LIMIT
        is_pair = fix.is_annotation and fix.key.endswith(_REQUEST)
        if is_pair and annotations.get(limit) == annotations.get(fix.key):
            path = ANNOTATIONS.key(limit)
            values.setdefault(path, replace(fix, key=limit, path=path))
    return tuple(values.values())


def share_of(value: Quantity, amount: Quantity, requested: Quantity) -> Quantity | None:
    """Return the whole number that is to a key's value as an amount to the requested one."""
    share = int(value) * amount.nanos // requested.nanos if value.is_whole else 0
    return Quantity.from_int(share, value.format) if share > 0 else None


def is_proved(
    amounts: Sequence[tuple[Claim, FittingAmount]],
    fixes: Sequence[KeyFix],
    translation: RecordedTranslation,
) -> bool:
    """Return True if the changed keys request the same, but for the amounts, and no more of them.

    Fewer constraints count as the same. Less of a capacity fits wherever more of it fits, since request policies round up.
    Other alternatives of a request may have less, too, since one key requests all of them.
    """
    before = derive_record(translation.record, translation)
    after = derive_record(_changed(translation.record, fixes), translation)
    if before is None or after is None:
        return False
    if len(after) < len(before):
        # An init container with less uses the devices of another one, so its own claim is gone.
        labels = {claim.label for claim in after}
        before = tuple(claim for claim in before if claim.label in labels)
    if len(before) != len(after):
        return False
    fields: dict[Hashable, list[FittingAmount]] = {}
    for claim, amount in amounts:
        fields.setdefault(identity(claim), []).append(amount)
        fields[identity(claim)] += _in_other_alternatives(claim, amount)
    return all(
        _is_same_but_for(old, new, fields.get(identity(old), ()))
        for old, new in zip(before, after, strict=True)
    )


def _in_other_alternatives(claim: Claim, amount: FittingAmount) -> Iterator[FittingAmount]:
    """Yield the present amounts of the same key in the other alternatives of a request, as maxima."""
    match amount.field.steps:
        case ("requests", int() as index, "firstAvailable", int() as place, *below):
            alternatives = claim.spec["spec"]["devices"]["requests"][index]["firstAvailable"]
        case _:
            return
    for other in range(len(alternatives)):
        field = FieldPath(("requests", index, "firstAvailable", other, *below))
        requested = amount_at(claim, field)
        is_of_same_key = claim.source(field) == claim.source(amount.field)
        if other != place and requested is not None and is_of_same_key:
            yield FittingAmount(claim=amount.claim, field=field, amount=requested)


def _changed(record: TranslationRecord, fixes: Sequence[KeyFix]) -> TranslationRecord:
    amounts = {(fix.container, fix.key): fix.amount for fix in fixes if not fix.is_annotation}
    annotations = {fix.key: written_amount(fix.amount) for fix in fixes if fix.is_annotation}
    containers = tuple(
        replace(
            container,
            limits={
                key: amounts.get((container.name, key), amount)
                for key, amount in container.limits.items()
            },
        )
        for container in record.containers
    )
    return replace(record, containers=containers, annotations={**record.annotations, **annotations})


def _is_same_but_for(old: Claim, new: Claim, amounts: Sequence[FittingAmount]) -> bool:
    for amount in amounts:
        requested = amount_at(new, amount.field)
        if requested is None or not ZERO < requested <= amount.amount:
            return False
    fields = list(dict.fromkeys(amount.field for amount in amounts))
    # The largest of several init containers is the first. Init containers that need less use more claims of others.
    is_same = (old.label, old.drivers) == (new.label, new.drivers) and set(old.uses) <= set(
        new.uses
    )
    old_devices, new_devices = devices_without(old, fields), devices_without(new, fields)
    # A single device has no constraint to others, and fewer constraints fit wherever more of them do.
    old_constraints = old_devices.pop("constraints", None) or []
    new_constraints = new_devices.pop("constraints", None) or []
    is_looser = all(constraint in old_constraints for constraint in new_constraints)
    return is_same and is_looser and old_devices == new_devices
