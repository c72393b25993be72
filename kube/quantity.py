"""Kubernetes quantities: `500m`, `3Gi`, `1e3`, exactly.

A quantity is a whole number of nano-units and the family of suffixes it was written in. Arithmetic
is on integers, so nothing is lost or rounded after parsing. Why nanos: docs/adr/0005.

Source: k8s.io/apimachinery v0.37.1, pkg/api/resource/quantity.go, amount.go, suffix.go.
"""

import re
from enum import StrEnum
from functools import total_ordering
from typing import Final, Never, Self

from kube.errors import QuantityError

MAX_TEXT: Final = 128
"""Characters of the longest text that is read. Unlike upstream, which has no limit: a hostile text
costs time and memory in proportion to its length, and no sensible amount comes near."""

MAX_EXPONENT: Final = 128
"""Of `1e128`. Unlike upstream, where twelve characters can make a number of gigabytes."""

_NANOS: Final = 10**9
_MAX_BINARY: Final = (2**63 - 1) * _NANOS


class Format(StrEnum):
    """The family of suffixes that a quantity was written in and is printed in."""

    BINARY = "BinarySI"
    DECIMAL = "DecimalSI"
    EXPONENT = "DecimalExponent"


_TEXT: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?P<suffix>|[numkMGTPE]|[KMGTPE]i|[eE](?P<exponent>[+-]?[0-9]+))"
)
_DECIMAL_POWERS: Final = {
    suffix: power
    for power, suffix in zip(range(-9, 19, 3), ("n", "u", "m", "", *"kMGTPE"), strict=True)
}
_DECIMAL_SUFFIXES: Final = tuple(_DECIMAL_POWERS)
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_BINARY_BITS: Final = {suffix: 10 * step for step, suffix in enumerate(_BINARY_SUFFIXES) if step}


@total_ordering
class Quantity:
    """An exact amount, immutable, equal and hashed by its value whatever the text was.

    Args:
        text: What a manifest says, or a plain number (decimal family).

    Attributes:
        nanos: The amount in thousand-millionths of its unit.
        format: The family of its text.

    Raises:
        QuantityError: The text is not a quantity, or beyond `MAX_TEXT` or `MAX_EXPONENT`.

    >>> Quantity("1024Mi"), Quantity("1.5"), Quantity("0.5Gi") + Quantity("1Gi")
    (Quantity('1Gi'), Quantity('1500m'), Quantity('1536Mi'))
    >>> Quantity("1Ki") == Quantity("1024")
    True
    """

    __slots__ = ("format", "nanos")

    nanos: int
    format: Format

    def __init__(self, text: str | int) -> None:
        nanos, family = (text * _NANOS, Format.DECIMAL) if isinstance(text, int) else _parsed(text)
        _set(self, "nanos", nanos)
        _set(self, "format", family)

    @classmethod
    def from_int(cls, amount: int, format: Format = Format.DECIMAL) -> Self:  # noqa: A002
        """Return a whole amount that prints in the given family.

        >>> Quantity.from_int(3 * 2**30, Format.BINARY)
        Quantity('3Gi')
        """
        return cls.from_nanos(amount * _NANOS, format)

    @classmethod
    def from_nanos(cls, nanos: int, format: Format = Format.DECIMAL) -> Self:  # noqa: A002
        """Return an amount of nano-units that prints in the given family."""
        made = object.__new__(cls)
        _set(made, "nanos", nanos)
        _set(made, "format", format)
        return made

    @property
    def is_whole(self) -> bool:
        """Whether the amount has no fraction."""
        return self.nanos % _NANOS == 0

    def rounded_up(self) -> int:
        """Return the nearest whole number that is not closer to zero.

        Source: Quantity.Value. Unlike upstream this does not wrap outside int64, and negative
        amounts of more than 18 digits round like all others.

        >>> Quantity("1500m").rounded_up(), Quantity("-1500m").rounded_up()
        (2, -2)
        """
        return _away_from_zero(self.nanos, _NANOS)

    def __int__(self) -> int:
        if not self.is_whole:
            raise ValueError(f"{self} is not a whole number")
        return self.nanos // _NANOS

    def __float__(self) -> float:
        return self.nanos / _NANOS

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __add__(self, other: object) -> Self:
        if not isinstance(other, Quantity):
            return NotImplemented
        # Zero has no say in how a sum is written, as upstream.
        family = self.format if self.nanos else other.format
        return self.from_nanos(self.nanos + other.nanos, family)

    def __sub__(self, other: object) -> Self:
        if not isinstance(other, Quantity):
            return NotImplemented
        family = self.format if self.nanos else other.format
        return self.from_nanos(self.nanos - other.nanos, family)

    def __mul__(self, times: object) -> Self:
        if not isinstance(times, int):
            return NotImplemented
        return self.from_nanos(self.nanos * times, self.format)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self.nanos < other.nanos if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __str__(self) -> str:
        return _canonical(self.nanos, self.format)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError(f"a Quantity is immutable: {name}")

    def __delattr__(self, name: str) -> Never:
        raise AttributeError(f"a Quantity is immutable: {name}")

    def __reduce__(self) -> tuple[object, ...]:
        return self.from_nanos, (self.nanos, self.format)


_set: Final = object.__setattr__


def readable(amount: Quantity) -> str:
    """Return an amount that counts bytes, to all appearances, in Mi, Gi and so on; others as they are.

    >>> readable(Quantity("3145728k")), readable(Quantity("100")), readable(Quantity("80Gi"))
    ('3000Mi', '100', '80Gi')
    """
    if amount.nanos % (2**20 * 10**9) or not amount.nanos:
        return str(amount)
    return str(Quantity.from_nanos(amount.nanos, Format.BINARY))


def _parsed(text: str) -> tuple[int, Format]:
    """Return nano-units and family of a text.

    >>> _parsed("0.5Ki")
    (512000000000, <Format.BINARY: 'BinarySI'>)
    """
    if not text or len(text) > MAX_TEXT or (match := _TEXT.fullmatch(text)) is None:
        raise QuantityError(f"{_shown(text)} is not a quantity such as 500m, 3Gi or 1e3")
    sign, whole, fraction, suffix, exponent = match.groups()
    fraction = fraction or ""
    digits = int(whole + fraction or "0")
    bits = 0
    if exponent is not None:
        family, power = Format.EXPONENT, int(exponent)
        if abs(power) > MAX_EXPONENT:
            raise QuantityError(f"{_shown(text)} has an exponent beyond {MAX_EXPONENT}")
    elif (bits := _BINARY_BITS.get(suffix, 0)) != 0:
        family, power = Format.BINARY, 0
    else:
        family, power = Format.DECIMAL, _DECIMAL_POWERS[suffix]

    # Upstream reads what has no digits as zero ("-", ".", "Mi"), but not on its slow path.
    if not (whole or fraction) and (power < -9 or bits >= _BINARY_BITS["Pi"]):
        raise QuantityError(f"{_shown(text)} has no digits")

    # What is finer than a nano-unit goes up: who wants a little gets a little.
    shift = power - len(fraction) + 9
    nanos = digits << bits
    nanos = nanos * 10**shift if shift >= 0 else _away_from_zero(nanos, 10**-shift)

    if family is Format.BINARY:
        nanos = min(nanos, _MAX_BINARY)
        if 0 < nanos < _NANOS:
            family = Format.DECIMAL
    return -nanos if sign == "-" else nanos, family


def _canonical(nanos: int, family: Format) -> str:
    """Return the text with the largest suffix that leaves no fraction.

    Source: Quantity.CanonicalizeBytes. Unlike upstream, which drops a suffix that does not exist
    and writes 1000E as 1, amounts beyond the largest suffix keep it.

    >>> _canonical(10**9 * 1536 * 2**20, Format.BINARY), _canonical(10**30, Format.DECIMAL)
    ('1536Mi', '1000E')
    """
    if nanos == 0:
        return "0"
    # Small or fractional amounts would lose digits in powers of 1024.
    if family is Format.BINARY and abs(nanos) >= 1024 * _NANOS and nanos % _NANOS == 0:
        amount, steps = _stripped(nanos // _NANOS, 1024, len(_BINARY_SUFFIXES) - 1)
        return f"{amount}{_BINARY_SUFFIXES[steps]}"
    if family is Format.EXPONENT:
        amount, steps = _stripped(nanos, 1000, None)
        return f"{amount}e{3 * steps - 9}" if steps != 3 else str(amount)
    amount, steps = _stripped(nanos, 1000, len(_DECIMAL_SUFFIXES) - 1)
    return f"{amount}{_DECIMAL_SUFFIXES[steps]}"


def _stripped(amount: int, factor: int, limit: int | None) -> tuple[int, int]:
    """Return the amount without factors, and how many were taken, at most `limit`."""
    steps = 0
    while steps != limit and amount % factor == 0:
        amount //= factor
        steps += 1
    return amount, steps


def _away_from_zero(amount: int, divisor: int) -> int:
    return -(-amount // divisor) if amount >= 0 else amount // divisor


def _shown(text: str) -> str:
    """Return a text quoted, and cut where nobody would read on."""
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}..."
