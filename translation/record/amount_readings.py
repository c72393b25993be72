"""Other readings of an amount of memory above that of every device.

A number without a unit counts in that of its key, such as blocks of 256 MiB. One that is too large, and that would
fit if it counted MiB, was probably carried over from another key. A key that several containers have adds
up. In both cases the largest amount that fits is not what was meant.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from findings.field_path import Key
from findings.fitting import FittingAmount
from findings.text import join_names
from kube.quantity import Format, Quantity
from translation.compiling.claims import Claim
from translation.model.share_amounts import LEAST_MEMORY
from translation.record.recorded_translation import (
    KeyFix,
    RecordedTranslation,
    amount_at,
    written_amount,
)

_MEBIBYTE: Final = Quantity("1Mi")
_GIBIBYTE: Final = Quantity("1Gi")
_MAX_PARTS: Final = 4
"""Containers that a sum names."""


class MebibyteReading(NamedTuple):
    """A number of a key read as MiB.

    Attributes:
        memory: The amount of memory that the number is then.
        value: The number to write for it in the unit of the key.
    """

    memory: Quantity
    value: int


class KeyUnit(NamedTuple):
    """The unit of memory of a key without suffixes.

    Attributes:
        number: The number in the pod.
        size: One unit.
    """

    number: int
    size: Quantity

    @property
    def is_plain(self) -> bool:
        """Return True for a unit that needs no explanation."""
        return self.size in {_MEBIBYTE, _GIBIBYTE}

    @property
    def name(self) -> str:
        """Return the unit in words, such as "blocks of 256 MiB"."""
        if self.is_plain:
            return "MiB" if self.size == _MEBIBYTE else "GiB"
        return f"blocks of {self.size.nanos // _MEBIBYTE.nanos} MiB"

    def memory(self, number: Quantity | None = None) -> str:
        """Return a number of units, that of the pod by default, in GiB, or in MiB if it is no whole number of GiB."""
        nanos = self.size.nanos * (self.number if number is None else int(number))
        name, unit = ("Mi", _MEBIBYTE) if nanos % _GIBIBYTE.nanos else ("Gi", _GIBIBYTE)
        return f"{nanos // unit.nanos}{name}"

    def in_mebibytes(self, limit: Quantity) -> MebibyteReading | None:
        """Return the number read as MiB, if that is enough for a process and fits; else None.

        Args:
            limit: The largest number of the key that fits.
        """
        memory = Quantity.from_nanos(_MEBIBYTE.nanos * self.number, Format.BINARY)
        value = -(-memory.nanos // self.size.nanos)
        is_possible = self.size != _MEBIBYTE and memory >= LEAST_MEMORY and value <= int(limit)
        return MebibyteReading(memory, value) if is_possible else None


def unit_of(
    fix: KeyFix,
    amounts: Sequence[tuple[Claim, FittingAmount]],
    translation: RecordedTranslation,
) -> KeyUnit | None:
    """Return the unit of a key that requested memory; None for another key, and for one that counts bytes.

    Args:
        amounts: The amounts that fit, each with its claim; one of them is that of the key.
    """
    limit = _limit(fix, translation)
    if limit is None or limit.format is Format.BINARY or not limit.is_whole or not limit:
        return None
    for claim, amount in amounts:
        requested = amount_at(claim, amount.field)
        if claim.source(amount.field) != fix.path or requested is None:
            continue
        nanos, rest = divmod(requested.nanos, int(limit))
        if not rest and nanos >= _MEBIBYTE.nanos and not nanos % _MEBIBYTE.nanos:
            return KeyUnit(int(limit), Quantity.from_nanos(nanos, Format.BINARY))
    return None


def _limit(fix: KeyFix, translation: RecordedTranslation) -> Quantity | None:
    return next(
        (
            container.limits.get(fix.key)
            for container in translation.record.containers
            if container.name == fix.container
        ),
        None,
    )


class SummedKey(NamedTuple):
    """A key of several containers on the same devices, with their sum.

    Attributes:
        parts: The container and its amount, of each of them.
        requested: The amount of each device for the sum.
    """

    parts: tuple[KeyFix, ...]
    requested: Quantity

    @property
    def total(self) -> Quantity:
        """Return the sum of all containers."""
        return Quantity.from_int(
            sum(int(part.amount) for part in self.parts), self.parts[0].amount.format
        )

    @property
    def words(self) -> str:
        """Return the sum with its parts: `a key adds up to 88 (40 in container a + 48 in container b)`."""
        parts = [
            f"{written_amount(part.amount)} in container {part.container_text}"
            for part in self.parts
        ]
        shown_parts = parts if len(parts) <= _MAX_PARTS else [*parts[:_MAX_PARTS], "..."]
        total = written_amount(self.total)
        return f"{self.parts[0].key_text} adds up to {total} ({' + '.join(shown_parts)})"

    @property
    def containers(self) -> str:
        """Return the names of the containers."""
        names = [part.container_text for part in self.parts]
        return " and ".join(names) if len(names) == 2 else join_names(names, limit=_MAX_PARTS)

    def at_most(self, total: Quantity) -> tuple[KeyFix, ...]:
        """Return amounts in proportion to those of now, with a smaller total."""
        amounts = [int(part.amount) * int(total) // int(self.total) for part in self.parts]
        amounts[0] += int(total) - sum(amounts)
        return tuple(
            replace(part, amount=Quantity.from_int(amount, part.amount.format))
            for part, amount in zip(self.parts, amounts, strict=True)
        )


def find_sum(
    amounts: Sequence[tuple[Claim, FittingAmount]], translation: RecordedTranslation
) -> SummedKey | None:
    """Return the key of several containers with the one amount as their sum; None without one."""
    if len(amounts) != 1:
        return None
    ((claim, amount),) = amounts
    path, requested = claim.source(amount.field), amount_at(claim, amount.field)
    if path is None or requested is None or not isinstance(path.steps[-1], Key):
        return None
    name = path.steps[-1].name
    parts = tuple(_parts(name, translation))
    has_place = any(part.path == path for part in parts)
    return SummedKey(parts, requested) if has_place and len(parts) > 1 else None


def _parts(name: str, translation: RecordedTranslation) -> Iterator[KeyFix]:
    for container in translation.record.containers:
        place = translation.paths.get(container.name)
        amount = container.limits.get(name)
        runs_first = container.init and not container.sidecar
        if place is None or amount is None or runs_first or not amount.is_whole or not amount:
            continue
        path = place.child("resources", "limits").key(name)
        yield KeyFix(container=container.name, key=name, path=path, amount=amount)
