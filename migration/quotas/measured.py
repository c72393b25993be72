"""The lines of a quota as amounts of claims, for any kind of quota that is written from them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from findings.field_path import FieldPath
from kube.quantity import ZERO, Quantity
from migration.conversion.quota_amounts import (
    NamespaceUse,
    count_fault,
    devices_fault,
    divide_amount,
    negative_fault,
    present_classes,
)
from migration.quotas.measures import Measures
from migration.quotas.model import ClaimMeasure, Document, FoundQuota, MeasuredLine, Part, QuotaLine
from translation.model.amounts import is_in_bytes
from translation.model.share_amounts import BLOCKS, GIB, MIB, Unit, wrong_unit

_UNSERVED = "no driver of a profile serves this key"
_OF_DEVICE = "its amounts depend on the device, or no driver publishes such a capacity"
_UNITS: Final = {unit.size: unit for unit in (MIB, GIB, BLOCKS)}


def measure_lines(
    quota: FoundQuota,
    measures: Measures,
    used: NamespaceUse | None,
    absent: Collection[str] = (),
    *,
    counts_pods: bool,
) -> tuple[tuple[MeasuredLine, ...], Mapping[str, str]]:
    """Return the lines of a quota by their measure, and those that measure nothing with the reason.

    Args:
        used: The devices that the pods use, by which those of a key that may become devices of several classes are
            divided; None for the whole amount for each.
        absent: The DeviceClasses that are nowhere in the cluster. They get no part where a key may become devices of others.
        counts_pods: The limits count pods with keys, too, and all of these only with a limit of each class.
    """
    measured_lines: list[MeasuredLine] = []
    missing: dict[str, str] = {}
    for line in quota.lines:
        of_key = measures.of_key(line.key) if line.key else ()
        if line.key and not of_key:
            missing[line.name] = _UNSERVED if measures.counts_devices(line.key) else _OF_DEVICE
            continue
        fault = _fault(line, of_key, measures)
        if fault:
            missing[line.name] = fault
            continue
        if not line.key:
            measured_lines.append(MeasuredLine(line=line, measure=None, amount=line.amount))
            continue
        total = used if line.part is Part.TOTAL else None
        own_classes = [measure.device_class for measure in of_key]
        classes = present_classes(own_classes, absent)
        # A cap holds for each device or request, whichever its class.
        parts = divide_amount(line.amount, classes, total.of(line.key) if total else None)
        of_absent = ZERO if line.part is Part.TOTAL else line.amount
        measured_lines += (
            _measured_line(
                line,
                measure,
                parts.get(measure.device_class, of_absent),
                _room_for_others(quota, line, measure, used, measures),
                is_absent=measure.device_class not in classes,
                legacy_key=measures.legacy_key(line.key, measure),
            )
            for measure in of_key
            if counts_pods or measure.device_class in classes
        )
    return tuple(measured_lines), missing


def _room_for_others(
    quota: FoundQuota,
    line: QuotaLine,
    measure: ClaimMeasure,
    used: NamespaceUse | None,
    measures: Measures,
) -> int | None:
    """Return the room for devices of pods without a key of the lines for a measure.

    Returns:
        None where the use is not known.
    """
    if measure.selectors or line.part is not Part.TOTAL:
        return 0
    if used is None:
        return None
    keys = {line.key for line in quota.lines if line.key and _is_about(measures, line.key, measure)}
    return used.beside(keys).get(measure.device_class, 0)


def _is_about(measures: Measures, key: str, measure: ClaimMeasure) -> bool:
    return any(
        (own.device_class, own.capacity) == (measure.device_class, measure.capacity)
        for own in measures.of_key(key)
    )


def _measured_line(
    line: QuotaLine,
    measure: ClaimMeasure,
    part: Quantity,
    others: int | None,
    *,
    is_absent: bool,
    legacy_key: Document | None,
) -> MeasuredLine:
    """Return a line by one of its measures.

    Args:
        line: The line.
        measure: The measure.
        part: The part of the line for the class of the measure.
        others: The room for devices of pods with other keys, which a limit on a class counts, too; None if not known.
        is_absent: The class of the measure is nowhere in the cluster.
        legacy_key: The entry for pods with the key.
    """
    if measure.capacity:
        beside, amount = 0, measure.amount(line.amount)
    else:
        beside = others or 0
        amount = part + Quantity(beside)
    return MeasuredLine(
        line=line,
        measure=measure,
        amount=amount,
        beside=beside,
        counts_others=others is None or others > beside,
        is_absent=is_absent,
        legacy_key=legacy_key,
    )


def _fault(line: QuotaLine, of_key: Sequence[ClaimMeasure], measures: Measures) -> str:
    """Explain that pods could not request an amount by its key; empty if they could."""
    for measure in of_key:
        if measure.capacity and measure.unit >= MIB.size and is_in_bytes(line.amount):
            finding = wrong_unit(FieldPath(), line.key, line.amount, _unit(measure.unit))
            return f"{finding.message}; {finding.fix}"
    if measures.is_annotation(line.key):
        return negative_fault(line.amount)
    if any(not measure.capacity for measure in of_key):
        return devices_fault(line.amount)
    return count_fault(line.amount)


def _unit(size: int) -> Unit:
    other = Unit(name=f"units of {size // MIB.size} MiB", size=size)
    return _UNITS.get(size, other)
