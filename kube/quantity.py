"""Kubernetes quantities such as `500m`, `3Gi` and `1e3`, with exact arithmetic.

A quantity is a whole number of nano-units and the format it was written in. Arithmetic is on
integers, so nothing is rounded after parsing (docs/adr/0005-quantities-in-nanos.md).

Source: k8s.io/apimachinery v0.37.1, pkg/api/resource/quantity.go, amount.go, suffix.go.
"""

import re
from enum import StrEnum
from typing import Final, Never, Self

from kube.errors import QuantityError

MAX_TEXT: Final = 128
"""The longest text that is parsed, in characters. Upstream has no limit; a hostile text would cost
time and memory in proportion to its length, and no realistic amount is near it."""

MAX_EXPONENT: Final = 128
"""The largest exponent, as in `1e128`. Upstream has no limit: twelve characters can make a number
of gigabytes."""

_NANOS: Final = 10**9
_MAX_BINARY: Final = (2**63 - 1) * _NANOS


_INT32: Final = 2**32
_INT64_DIGITS: Final = 19
_LONG_COUNT: Final = 10**18
"""The least number that people read better with an exponent."""


class Format(StrEnum):
    """The suffixes of a quantity's text; upstream's Format."""

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


class Quantity:
    """An exact, immutable amount; equality and hash depend on the value, not on the text.

    Args:
        text: The text of a manifest, or a number (decimal format).

    Attributes:
        nanos: The amount in nano-units.
        format: The format of its text.

    Raises:
        QuantityError: The text is not a quantity, or exceeds `MAX_TEXT` or `MAX_EXPONENT`.

    >>> Quantity("1024Mi"), Quantity("1.5"), Quantity("0.5Gi") + Quantity("1Gi")
    (Quantity('1Gi'), Quantity('1500m'), Quantity('1536Mi'))
    >>> Quantity("1Ki") == Quantity("1024")
    True
    """

    __slots__ = ("format", "nanos")

    nanos: int
    format: Format

    def __init__(self, text: str | int) -> None:
        nanos, family = (text * _NANOS, Format.DECIMAL) if isinstance(text, int) else _parse(text)
        _set(self, "nanos", nanos)
        _set(self, "format", family)

    @classmethod
    def from_int(cls, amount: int, format: Format = Format.DECIMAL) -> Self:  # noqa: A002
        """Return a whole amount in a format.

        >>> Quantity.from_int(3 * 2**30, Format.BINARY)
        Quantity('3Gi')
        """
        return cls.from_nanos(amount * _NANOS, format)

    @classmethod
    def from_nanos(cls, nanos: int, format: Format = Format.DECIMAL) -> Self:  # noqa: A002
        """Return an amount of nano-units in a format."""
        quantity = object.__new__(cls)
        _set(quantity, "nanos", nanos)
        _set(quantity, "format", format)
        return quantity

    @property
    def is_whole(self) -> bool:
        """Return True if the amount has no fraction."""
        return self.nanos % _NANOS == 0

    def round_up(self) -> int:
        """Return the amount rounded away from zero to a whole number.

        Source: Quantity.Value. Unlike upstream, the result does not wrap outside int64, and negative
        amounts of more than 18 digits are rounded like all others.

        >>> Quantity("1500m").round_up(), Quantity("-1500m").round_up()
        (2, -2)
        """
        return _divide_away_from_zero(self.nanos, _NANOS)

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
        # As upstream, the format of zero does not determine that of the sum.
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

    # Written out, since amounts are compared often and total_ordering takes twice as long.
    def __lt__(self, other: object) -> bool:
        return self.nanos < other.nanos if isinstance(other, Quantity) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self.nanos <= other.nanos if isinstance(other, Quantity) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return self.nanos > other.nanos if isinstance(other, Quantity) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return self.nanos >= other.nanos if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __str__(self) -> str:
        return _canonical_text(self.nanos, self.format)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError(f"a Quantity is immutable: {name}")

    def __delattr__(self, name: str) -> Never:
        raise AttributeError(f"a Quantity is immutable: {name}")

    def __reduce__(self) -> tuple[object, ...]:
        return self.from_nanos, (self.nanos, self.format)


_set: Final = object.__setattr__
ZERO: Final = Quantity(0)
MAX_STORED: Final = Quantity.from_nanos(10**MAX_EXPONENT * _NANOS, Format.EXPONENT)
"""The largest amount that `read_stored` returns; more than anything has, of anything."""
MIN_STORED: Final = -1 * MAX_STORED


def is_quantity(text: str) -> bool:
    """Check that a text is a quantity.

    >>> is_quantity("3Gi"), is_quantity("3GB")
    (True, False)
    """
    try:
        Quantity(text)
    except QuantityError:
        return False
    return True


def read_stored(text: str) -> Quantity:
    """Return the amount of a text that an API server has stored, however large it is.

    An object with such an amount exists, and has to be read like others. Amounts beyond `MAX_STORED` are read as
    `MAX_STORED`.

    Raises:
        QuantityError: The text is not a quantity.

    Source: ParseQuantity, which keeps 32 bits of an exponent, and the text of an amount below 2^63.

    >>> read_stored("1500m"), read_stored("1e400"), read_stored("-" + "9" * 200)
    (Quantity('1500m'), Quantity('100e126'), Quantity('-100e126'))
    >>> read_stored("3e4294967296"), read_stored("0" * 200 + "8Gi")
    (Quantity('3'), Quantity('8Gi'))
    """
    try:
        quantity = Quantity(text)
    except QuantityError:
        beyond = _beyond_bounds(text)
        if beyond is None:
            raise
        quantity = beyond
    return min(max(quantity, MIN_STORED), MAX_STORED)


def _beyond_bounds(text: str) -> Quantity | None:
    """Return the amount of a text that is too long or has too large an exponent; None if it is not a quantity."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    sign, whole, fraction, suffix, exponent = match.groups()
    power = _DECIMAL_POWERS.get(suffix, 0)
    if exponent is not None:
        power = _wrapped_exponent(exponent)
        suffix = f"e{power}"
    whole, fraction = whole.lstrip("0"), (fraction or "").rstrip("0")
    if not (whole or fraction):
        return ZERO
    if whole and len(whole) + power > MAX_EXPONENT:
        return MIN_STORED if sign == "-" else MAX_STORED
    try:
        return Quantity(f"{sign}{whole or 0}.{fraction}{suffix}")
    except QuantityError:
        return None


def _wrapped_exponent(exponent: str) -> int:
    """Return an exponent in 32 bits, as upstream reads it; the largest for more than 64 bits."""
    digits = exponent.lstrip("+-").lstrip("0")
    if len(digits) > _INT64_DIGITS:
        return _INT32 // 2
    power = int(f"-{digits or 0}" if exponent.startswith("-") else digits or "0")
    return (power + _INT32 // 2) % _INT32 - _INT32 // 2


def format_amount(amount: Quantity) -> str:
    """Format an amount for people: whole multiples of Mi in binary suffixes, others as written.

    >>> format_amount(Quantity("3145728k")), format_amount(Quantity("100")), format_amount(Quantity("80Gi"))
    ('3000Mi', '100', '80Gi')
    """
    if amount.nanos % (2**20 * 10**9) or not amount.nanos:
        return str(amount)
    return str(Quantity.from_nanos(amount.nanos, Format.BINARY))


def format_count(amount: Quantity) -> str:
    """Format an amount of a resource that counts: whole numbers without a decimal suffix or an exponent.

    The API server writes 3000 as 3k, which nobody has written so.

    >>> format_count(Quantity("3k")), format_count(Quantity("3e3")), format_count(Quantity("500m"))
    ('3000', '3000', '500m')
    >>> format_count(Quantity("8Gi")), format_count(Quantity("1e30"))
    ('8Gi', '1e30')
    """
    whole, rest = divmod(amount.nanos, _NANOS)
    text = str(amount)
    is_short = amount.format is Format.EXPONENT and abs(whole) < _LONG_COUNT
    return str(whole) if not rest and (is_short or text[-1:] in "kMGTPE") else text


def format_rounded(amount: Quantity, total: Quantity) -> str:
    """Format an amount for a table, with at most one decimal, in the unit that suits a total.

    Amounts of a row in one unit can be compared; what is rounded, is rounded down.

    >>> mebibytes = Quantity("565672Mi")
    >>> format_rounded(mebibytes, Quantity("560Gi")), format_rounded(mebibytes, Quantity("90Ti"))
    ('552.4Gi', '0.5Ti')
    >>> format_rounded(Quantity("21"), Quantity("42"))
    '21'
    """
    if total.nanos % (2**20 * 10**9) or not total.nanos:
        return str(amount)
    suffix, bits = next(
        (unit for unit in _TABLE_UNITS if total.nanos >> unit[1] >= unit[2] * 10**9), ("Mi", 20, 0)
    )[:2]
    tenths = amount.nanos * 10 // (10**9 << bits)
    whole, tenth = divmod(tenths, 10)
    return f"{whole}.{tenth}{suffix}" if tenth else f"{whole}{suffix}"


_TABLE_UNITS: Final = (("Pi", 50, 10), ("Ti", 40, 10), ("Gi", 30, 1))
"""Suffix, its power of two, and the least amount of it that a table shows in it."""


def _parse(text: str) -> tuple[int, Format]:
    """Parse a text to nano-units and format.

    >>> _parse("0.5Ki")
    (512000000000, <Format.BINARY: 'BinarySI'>)
    """
    if not text or len(text) > MAX_TEXT or (match := _TEXT.fullmatch(text)) is None:
        raise QuantityError(f"{_quote_text(text)} is not a quantity such as 500m, 3Gi or 1e3")
    sign, whole, fraction, suffix, exponent = match.groups()
    fraction = fraction or ""
    digits = int(whole + fraction or "0")
    bits = 0
    if exponent is not None:
        family, power = Format.EXPONENT, int(exponent)
        if abs(power) > MAX_EXPONENT:
            raise QuantityError(f"{_quote_text(text)} has an exponent beyond {MAX_EXPONENT}")
    elif (bits := _BINARY_BITS.get(suffix, 0)) != 0:
        family, power = Format.BINARY, 0
    else:
        family, power = Format.DECIMAL, _DECIMAL_POWERS[suffix]

    # Upstream parses texts without digits ("-", ".", "Mi") as zero, but not on its slow path.
    if not (whole or fraction) and (power < -9 or bits >= _BINARY_BITS["Pi"]):
        raise QuantityError(f"{_quote_text(text)} has no digits")

    # Fractions of a nano-unit are rounded up, as upstream.
    shift = power - len(fraction) + 9
    nanos = digits << bits
    nanos = nanos * 10**shift if shift >= 0 else _divide_away_from_zero(nanos, 10**-shift)

    if family is Format.BINARY:
        nanos = min(nanos, _MAX_BINARY)
        if 0 < nanos < _NANOS:
            family = Format.DECIMAL
    return -nanos if sign == "-" else nanos, family


def _canonical_text(nanos: int, family: Format) -> str:
    """Return the text with the largest suffix that needs no fraction.

    Source: Quantity.CanonicalizeBytes. Unlike upstream, which writes 1000E as 1 because there is no
    larger suffix, amounts above the largest suffix keep it.

    >>> _canonical_text(10**9 * 1536 * 2**20, Format.BINARY), _canonical_text(10**30, Format.DECIMAL)
    ('1536Mi', '1000E')
    """
    if nanos == 0:
        return "0"
    # Amounts below 1024 and fractions have no exact binary suffix.
    if family is Format.BINARY and abs(nanos) >= 1024 * _NANOS and nanos % _NANOS == 0:
        amount, steps = _strip_factors(nanos // _NANOS, 1024, len(_BINARY_SUFFIXES) - 1)
        return f"{amount}{_BINARY_SUFFIXES[steps]}"
    # Of a whole amount, as nearly all are, three divisions are known to be even.
    amount, begun = (nanos, 0) if nanos % _NANOS else (nanos // _NANOS, 3)
    if family is Format.EXPONENT:
        amount, steps = _strip_factors(amount, 1000, None)
        steps += begun
        return f"{amount}e{3 * steps - 9}" if steps != 3 else str(amount)
    amount, steps = _strip_factors(amount, 1000, len(_DECIMAL_SUFFIXES) - 1 - begun)
    return f"{amount}{_DECIMAL_SUFFIXES[begun + steps]}"


def _strip_factors(amount: int, factor: int, limit: int | None) -> tuple[int, int]:
    """Divide by a factor as long as it divides evenly, at most `limit` times; return the count too."""
    steps = 0
    while steps != limit and amount % factor == 0:
        amount //= factor
        steps += 1
    return amount, steps


def _divide_away_from_zero(amount: int, divisor: int) -> int:
    return -(-amount // divisor) if amount >= 0 else amount // divisor


def _quote_text(text: str) -> str:
    """Return a quoted text, cut to 40 characters."""
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}..."
