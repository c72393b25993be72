"""The closest fit of translated claims, in the keys that requested them.

The author of `nvidia.com/gpumem: 200000` wrote no claim, so `request memory 80Gi` does not say what to
write. Where no values of keys are proved, there is no fix in keys.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from findings.field_path import FieldPath
from findings.finding import Code, Finding
from findings.fitting import (
    Correction,
    DroppedRequest,
    FittingAmount,
    FittingAmounts,
    WiderChoices,
)
from findings.text import printable
from kube.quantity import Quantity
from translation.compiling.claims import Claim
from translation.record.amount_readings import KeyUnit, MebibyteReading, find_sum, unit_of
from translation.record.claim_sources import claim_at, keys_of, widened_at_source
from translation.record.proved_values import find_key_fixes, is_proved, share_of
from translation.record.recorded_translation import (
    MAX_NAME,
    KeyFix,
    RecordedTranslation,
    written_amount,
)

_MAX_QUOTA: Final = MAX_NAME + len("ResourceQuota ")
_IN_CLAIM_UNITS: Final = " (in the claim's units, not those of the pod's keys)"


def with_key_fixes(
    findings: Iterable[Finding],
    pod: FieldPath,
    claims: Sequence[Claim | None],
    translation: RecordedTranslation,
) -> Iterator[Finding]:
    """Yield findings about translated claims with their fixes in the pod's own keys.

    A finding without such a fix says that its amounts are those of the claim. Findings about other
    claims, and those whose fix is another than smaller numbers, are yielded as they are.

    Args:
        findings: Findings whose amounts are at the claims of the pod.
        pod: The path of the pod in the object.
        claims: The translated claim for each entry of the pod's claims; None for other entries.
    """
    # The findings of a pod share a closest fit, and each proof translates the pod twice.
    known_fixes: dict[tuple[FittingAmounts, bool], _FixInKeys] = {}
    for finding in findings:
        fitting = finding.fitting
        widened = _wider_choices(finding.widening, pod, claims, translation)
        if fitting is None:
            yield replace(finding, fix=widened) if widened else finding
            continue
        amounts = [_at_claim(amount, pod, claims) for amount in fitting.amounts]
        known_amounts = [amount for amount in amounts if amount is not None]
        if not known_amounts:
            yield finding
            continue
        is_too_large = finding.code is Code.EXCEEDS_LARGEST_DEVICE
        if (fitting, is_too_large) not in known_fixes:
            is_complete = len(known_amounts) == len(amounts)
            known_fixes[fitting, is_too_large] = (
                _fix_in_keys(known_amounts, fitting, translation, is_too_large=is_too_large)
                if is_complete
                else _NO_FIX
            )
        own = known_fixes[fitting, is_too_large]
        others = tuple(_other_fixes(finding, own, pod, claims, translation)) if own.words else ()
        fixes = dict.fromkeys(filter(None, (own.words, *others, widened)))
        fix = ", or ".join(fixes) or finding.fix + _IN_CLAIM_UNITS
        corrections = tuple(
            Correction(path=pod.join(key_fix.path), amount=key_fix.amount)
            for key_fix in own.settled
            if finding.widening is None and len(fixes) == 1
        )
        cause = own.cause or (_parts(finding, translation) if others else "")
        detail = f"{cause}: {finding.detail}" if cause else finding.detail
        yield replace(finding, detail=detail, fix=fix, corrections=corrections, droppable=())


def _other_fixes(
    finding: Finding,
    own: "_FixInKeys",
    pod: FieldPath,
    claims: Sequence[Claim | None],
    translation: RecordedTranslation,
) -> Iterator[str]:
    """Yield in words of keys the other numbers of a finding, and the requests to drop instead.

    Args:
        own: The first numbers; equal ones are not yielded, since they fit either node.
    """
    other = finding.other_fitting
    is_too_large = finding.code is Code.EXCEEDS_LARGEST_DEVICE
    if other is not None:
        amounts = [_at_claim(amount, pod, claims) for amount in other.amounts]
        known_amounts = [amount for amount in amounts if amount is not None]
        if known_amounts and len(known_amounts) == len(amounts):
            fix = _fix_in_keys(known_amounts, other, translation, is_too_large=is_too_large)
            if fix.values != own.values:
                yield fix.words
    for dropped in finding.droppable:
        keys = keys_of(dropped, pod, claims)
        container = _container_of(dropped, pod, claims, translation)
        if keys and container:
            yield f"drop {' and '.join(keys)} in container {printable(container)}"


def _container_of(
    dropped: DroppedRequest,
    pod: FieldPath,
    claims: Sequence[Claim | None],
    translation: RecordedTranslation,
) -> str:
    """Return the only container with limits for a request; empty without one, and for several."""
    claim = claim_at(dropped.claim, pod, claims)
    place = ("requests", dropped.index)
    names = {
        container.name
        for field, path in (claim.sources.items() if claim is not None else ())
        if field.steps[:2] == place
        for container in translation.record.containers
        if (own := translation.paths.get(container.name)) is not None
        and path.relative_to(own) is not None
    }
    return names.pop() if len(names) == 1 else ""


def _parts(finding: Finding, translation: RecordedTranslation) -> str:
    """Return the amounts of the containers of a pod that are infeasible together; empty for other findings."""
    if finding.code is not Code.JOINTLY_INFEASIBLE:
        return ""
    parts = [
        f"{written_amount(amount)} in container {printable(container.name)}"
        for container in translation.record.containers
        for key, amount in sorted(container.limits.items())
    ]
    keys = {key for container in translation.record.containers for key in container.limits}
    return f"{printable(keys.pop())} is requested as {' + '.join(parts)}" if len(keys) == 1 else ""


class _FixInKeys(NamedTuple):
    """A fix in the keys of a pod.

    Attributes:
        values: The values to write, in words; empty without a fix.
        place: The node or the quota that the values fit, in words.
        settled: The values of keys to write; empty where the fix leaves a choice.
        cause: The sum of a key and its parts; empty where one container alone requests too much.
    """

    values: str
    place: str = ""
    settled: tuple[KeyFix, ...] = ()
    cause: str = ""

    @property
    def words(self) -> str:
        """The fix in words; empty without one."""
        return self.values + self.place


_NO_FIX: Final = _FixInKeys("")


def _fix_in_keys(
    amounts: Sequence[tuple[Claim, FittingAmount]],
    fitting: FittingAmounts,
    translation: RecordedTranslation,
    *,
    is_too_large: bool,
) -> _FixInKeys:
    """Return the fix in the keys of the pod; no words without proved values.

    Args:
        is_too_large: True if no device has the amount, so that another unit may have been meant.
    """
    fixes = find_key_fixes(amounts, translation)
    if not fixes:
        return _fix_of_sum(amounts, fitting, translation)
    units = {fix: unit_of(fix, amounts, translation) for fix in fixes}
    readings: dict[KeyFix, MebibyteReading] = {}
    for fix, unit in units.items():
        reading = unit.in_mebibytes(fix.amount) if unit is not None and is_too_large else None
        if reading is not None:
            readings[fix] = reading
    if readings:
        return _FixInKeys(_describe_readings(units, readings, translation), _place(fitting))
    return _FixInKeys(_describe(units, translation), _place(fitting), fixes)


def _fix_of_sum(
    amounts: Sequence[tuple[Claim, FittingAmount]],
    fitting: FittingAmounts,
    translation: RecordedTranslation,
) -> _FixInKeys:
    """Return the largest total of several containers; no words without a proved one."""
    summed = find_sum(amounts, translation)
    if summed is None:
        return _NO_FIX
    total = share_of(summed.total, amounts[0][1].amount, summed.requested)
    if total is None or not is_proved(amounts, summed.at_most(total), translation):
        return _NO_FIX
    key = summed.parts[0].key_text
    words = (
        f"write at most {key}: {written_amount(total)} in containers {summed.containers} together"
    )
    return _FixInKeys(words, _place(fitting), cause=summed.words)


def _wider_choices(
    widening: WiderChoices | None,
    pod: FieldPath,
    claims: Sequence[Claim | None],
    translation: RecordedTranslation,
) -> str:
    """Return a fix with the keys and annotations that chose devices, if all of them did; else empty."""
    if widening is None:
        return ""
    words = [
        widened_at_source(claim, choice.field, translation, choice.value) if claim else ""
        for choice in widening.choices
        for claim in (claim_at(choice.claim, pod, claims),)
    ]
    if not all(words):
        return ""
    node = printable(widening.node[:MAX_NAME])
    return f"{', '.join(dict.fromkeys(words))} to fit node {node}"


def _at_claim(
    amount: FittingAmount, pod: FieldPath, claims: Sequence[Claim | None]
) -> tuple[Claim, FittingAmount] | None:
    """Return an amount with the translated claim that requests it; None for another claim."""
    claim = claim_at(amount.claim, pod, claims)
    return None if claim is None else (claim, amount)


def _describe(units: Mapping[KeyFix, KeyUnit | None], translation: RecordedTranslation) -> str:
    """Return fixes in words: `write nvidia.com/gpumem: 81920`."""
    words = []
    for fix, unit in units.items():
        # Everybody knows MiB and GiB; of other units the amount says nothing.
        is_known = unit is None or unit.is_plain
        size = "" if is_known or unit is None else f" ({unit.name}: {unit.memory(fix.amount)})"
        words.append(f"{_key_with(fix, fix.amount)}{size}{_container(fix, translation)}")
    verb = "add" if all(fix.is_added for fix in units) else "write"
    return f"{verb} {', '.join(words)}"


def _describe_readings(
    units: Mapping[KeyFix, KeyUnit | None],
    readings: Mapping[KeyFix, MebibyteReading],
    translation: RecordedTranslation,
) -> str:
    """Return the amounts in the other unit in words, and the largest that fit."""
    meant, largest = [], []
    for fix, unit in units.items():
        where = _container(fix, translation)
        size = f" ({unit.memory(fix.amount)})" if unit is not None else ""
        largest.append(f"{_key_with(fix, fix.amount)}{size}{where}")
        reading = readings.get(fix)
        if reading is None:
            meant.append(f"{_key_with(fix, fix.amount)}{where}")
        else:
            meant.append(f"{_key_with(fix, Quantity(reading.value))} ({reading.memory}){where}")
    first = next(iter(readings))
    unit = units[first]
    counted = (
        f"{first.key_text} counts {unit.name}, so {unit.number} is {unit.memory()}: "
        if unit
        else ""
    )
    return (
        f"{counted}write {', '.join(meant)} if it was meant in MiB, or at most {', '.join(largest)}"
    )


def _key_with(fix: KeyFix, amount: Quantity) -> str:
    kind = "annotation " if fix.is_annotation else ""
    return f"{kind}{fix.key_text}: {written_amount(amount)}"


def _container(fix: KeyFix, translation: RecordedTranslation) -> str:
    """Return the container of a key, if the pod has several with keys; else empty."""
    if fix.is_annotation or len(translation.record.containers) < 2:
        return ""
    return f" in container {fix.container_text}"


def _place(fitting: FittingAmounts) -> str:
    """Return the node or the quota that the amounts fit."""
    if fitting.quota:
        name = printable(fitting.quota[:_MAX_QUOTA])
        return f" to fit what is left of {name}, wait, or raise the quota"
    return f" to fit node {printable(fitting.node[:MAX_NAME])}" if fitting.node else ""
