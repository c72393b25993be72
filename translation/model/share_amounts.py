"""Amounts of shares of GPUs in a container, and lists of devices in annotations.

What several legacy systems have in common: an amount is a whole number with a limit, and a list is
separated by commas. Every fault is a finding with the field.
"""

from collections.abc import Collection, Mapping
from string import ascii_lowercase, ascii_uppercase
from typing import Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, has_errors, warning
from findings.text import printable, quote_text
from kube.quantity import ZERO, Format, Quantity
from translation.model.amounts import is_meant_in_bytes, whole_amount
from translation.model.intents import Intent, LegacyContainer, annotation_path

MAX_MEMORY_MIB: Final = 2**31 - 1
LEAST_MEMORY_MIB: Final = 256
"""Less than a process needs to open a GPU: a context of CUDA or ROCm alone takes more."""
LEAST_MEMORY: Final = Quantity(f"{LEAST_MEMORY_MIB}Mi")
"""The same amount in bytes."""
MAX_PERCENT: Final = 100
_LOWER_ASCII: Final = str.maketrans(ascii_uppercase, ascii_lowercase)


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """The unit of an amount of memory.

    Attributes:
        name: The unit's name in messages, such as "MiB".
        size: Bytes.
    """

    name: str
    size: int


MIB: Final = Unit(name="MiB", size=2**20)
GIB: Final = Unit(name="GiB", size=2**30)
BLOCKS: Final = Unit(name="blocks of 256 MiB", size=2**28)


def units_of_mebibytes(factor: int) -> Unit:
    """Return the unit of a key that counts so many MiB, by a setting of its system."""
    return MIB if factor == 1 else Unit(name=f"units of {factor} MiB", size=factor * MIB.size)


def wrong_unit(path: FieldPath, key: str, amount: Quantity, unit: Unit) -> Finding:
    """Return an error for an amount in bytes if a key counts another unit.

    Args:
        key: The key as the object has it, which a cluster may have renamed.
    """
    # A part of a unit counts as one: less would not be what was asked for.
    units, rest = -(-int(amount) // unit.size), int(amount) % unit.size
    finding = error(
        Code.WRONG_UNIT,
        path,
        f"{amount} is a number of bytes, and {key} counts {unit.name}",
        f"write {units} for {amount}",
    )
    # A rounded amount is a choice, and 0 would request nothing.
    return finding.corrected_by(Quantity(units)) if units and not rest else finding


def above_all_of_each(
    path: FieldPath, key: str, amount: int, devices: int, *, memory_key: str = ""
) -> Finding:
    """Return an error for a percentage of each device that is above 100.

    Args:
        key: The key as the object has it, which a cluster may have renamed.
        devices: The number of devices that the container requests.
        memory_key: The key that counts in MiB what this one counts in percent; empty for cores.
    """
    message = f"{amount} percent is more than {MAX_PERCENT}"
    if memory_key and LEAST_MEMORY_MIB <= amount <= MAX_MEMORY_MIB:
        return error(
            Code.OUT_OF_RANGE,
            path,
            f"{message}: {printable(key)} counts the percent of the memory of each device",
            f"write {memory_key}: {amount} in its place if MiB are meant, or at most {MAX_PERCENT} for all of it",
        )
    part = part_of_sum(amount, devices)
    if part is None:
        finding = error(Code.OUT_OF_RANGE, path, message, f"write at most {MAX_PERCENT}")
        return finding.corrected_by(Quantity(MAX_PERCENT))
    # Either the author added up what the key counts of each, or wants all of each.
    return error(
        Code.OUT_OF_RANGE,
        path,
        f"{message}: {printable(key)} counts the percent of each of the {devices} devices",
        f"write {part} if {amount} is the sum of all {devices}, or at most {MAX_PERCENT} for all of each",
    )


def clamped(path: FieldPath, amount: int, devices: int, device: str) -> Finding:
    """Return the warning that a percentage of cores above 100 counts as 100, as HAMi's Fit has it.

    Args:
        devices: The number of devices that the container requests.
        device: The word for a device, such as GPU.
    """
    part = part_of_sum(amount, devices)
    finding = warning(
        Code.CLAMPED,
        path,
        f"{amount} percent of a {device}'s cores counts as {MAX_PERCENT}, as in HAMi",
        f"write {MAX_PERCENT}"
        if part is None
        else f"write {part} if {amount} is the sum of all {devices} {device}s, or {MAX_PERCENT} for all of each",
    )
    return finding.corrected_by(Quantity(MAX_PERCENT)) if part is None else finding


def part_of_sum(amount: int, devices: int) -> int | None:
    """Return the percent of each device, rounded up, if a percentage above 100 is their sum; None if it cannot be.

    >>> part_of_sum(120, 2), part_of_sum(300, 2), part_of_sum(120, 0)
    (60, None, None)
    """
    if devices <= 1:
        return None
    part = -(-amount // devices)
    return part if part <= MAX_PERCENT else None


def too_few_bytes(path: FieldPath, amount: Quantity) -> Finding | None:
    """Return a warning about an amount in bytes that was probably meant in MiB; None for another."""
    if not ZERO < amount < Quantity(MIB.size) or not amount.is_whole:
        return None
    return warning(
        Code.WRONG_UNIT,
        path,
        f"{amount} is less than 1Mi: the amount is in bytes",
        f"write {int(amount)}Mi if MiB are meant",
    )


class AmountReader:
    """Reads the amounts of one container, and collects findings."""

    def __init__(self, container: LegacyContainer, findings: list[Finding]) -> None:
        self._container = container
        self._findings = findings

    def integer(self, key: str, maximum: int | None = None, unit: str = "") -> int | None:
        """Return an amount; None when it is absent or faulty."""
        amount = whole_amount(self._container, key)
        if isinstance(amount, Finding):
            self._findings.append(amount)
            return None
        if amount is not None and maximum is not None and amount > maximum:
            self.fail(
                Code.OUT_OF_RANGE,
                key,
                f"{amount} {unit} is more than {maximum}",
                f"write at most {maximum}",
                right=maximum,
            )
            return None
        return amount

    def percent(self, key: str, devices: int | None = None, *, memory_key: str = "") -> int | None:
        """Return a percentage of each device.

        Args:
            devices: The number of devices that the container requests; None where it is not known.
            memory_key: The key that counts in MiB what this one counts in percent; empty for cores.
        """
        amount = self.integer(key)
        if amount is None or amount <= MAX_PERCENT:
            return amount
        path, original = self._container.limit_path(key), self._container.original_key(key)
        self._findings.append(
            above_all_of_each(path, original, amount, devices or 1, memory_key=memory_key)
        )
        return None

    def cores(self, key: str, devices: int | None, device: str) -> int | None:
        """Return a percentage of the cores of each device, at most 100.

        Args:
            devices: The number of devices that the container requests; None where it is not known.
            device: The word for a device, such as GPU.
        """
        amount = self.integer(key)
        if amount is None or amount <= MAX_PERCENT:
            return amount
        path = self._container.limit_path(key)
        self._findings.append(clamped(path, amount, devices or 1, device))
        return MAX_PERCENT

    def memory(self, key: str, unit: Unit) -> int | None:
        """Return an amount of memory in its unit."""
        amount = self._container.limits.get(key)
        if amount is not None and is_meant_in_bytes(amount):
            path = self._container.limit_path(key)
            original = self._container.original_key(key)
            self._findings.append(wrong_unit(path, original, amount, unit))
            return None
        return self.integer(key, MAX_MEMORY_MIB * MIB.size // unit.size, unit.name)

    def fail(
        self,
        code: Code,
        key: str,
        message: str,
        fix: str,
        *,
        right: int | None = None,
        fix_place: FieldPath | None = None,
    ) -> None:
        """Add an error about a key.

        Args:
            right: The one amount that the fix names; None where it leaves a choice.
            fix_place: The place in the pod that the fix names; None where it names none.
        """
        finding = error(code, self._container.limit_path(key), message, fix)
        finding = msgspec.structs.replace(finding, fix_place=fix_place)
        self._findings.append(finding if right is None else finding.corrected_by(Quantity(right)))


def in_bytes(amount: int, unit: Unit) -> Quantity:
    """Return an amount of memory as a claim has it."""
    return Quantity.from_int(amount * unit.size, Format.BINARY)


def with_pod_findings(
    intents: Collection[Intent], pod_findings: list[Finding], findings: list[Finding]
) -> list[Finding]:
    """Return all findings of a pod; those of its annotations only if a container requests devices.

    Annotations have no effect on a pod without intents.

    Args:
        pod_findings: The findings about annotations.
        findings: The findings about containers.
    """
    return [*pod_findings, *findings] if intents or has_errors(findings) else findings


def list_items(text: str) -> tuple[str, ...]:
    """Return the items of a list that commas separate, without blanks.

    >>> list_items(" a, b,,")
    ('a', 'b')
    """
    return tuple(item for part in text.split(",") if (item := part.strip()))


def lower_ascii(text: str) -> str:
    """Lower the ASCII letters of a text, as CEL's `lowerAscii` in selectors does.

    >>> lower_ascii("A100-ÄÖ")
    'a100-ÄÖ'
    """
    return text.translate(_LOWER_ASCII)


def listed_devices(
    annotations: Mapping[str, str], key: str, findings: list[Finding]
) -> tuple[str, ...] | None:
    """Return the devices that an annotation lists; None if it lists none, as a blank one does."""
    text = annotations.get(key, "")
    if not text.strip():
        return None
    items = list_items(text)
    if not items:
        findings.append(
            error(
                Code.EMPTY_DEVICE_LIST,
                annotation_path(key),
                f"{quote_text(text)} contains only separators, so no device would match",
                "name a device, or remove the annotation",
            )
        )
    return items
