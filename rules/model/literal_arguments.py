"""Literal arguments of semver() and quantity() that these functions do not read, and their spelling."""

import re
from typing import Final, NamedTuple

from kube.cel.semver import Semver, is_semver
from kube.quantity import is_quantity
from rules.model.fatal_errors import is_fatal

_CALL: Final = re.compile(
    r"""(?<![\w.])(?P<name>semver|quantity)\(\s*(?P<quote>["'])(?P<text>[^"'\\\n]{0,64})(?P=quote)\s*\)"""
    r"""|(?P<other>["'])(?:\\.?|(?!(?P=other)).)*(?:(?P=other)|\Z)""",
    re.DOTALL,
)
"""A call with one text, or a text, in which nothing is a call."""
_AMOUNT: Final = re.compile(
    r"\s*(?P<number>[0-9]{1,18}(?:\.[0-9]{1,9})?)\s*(?P<unit>[kKmMgGtTpPeE])(?P<rest>i?[bB]?)\s*"
)


class FaultyArgument(NamedTuple):
    """A call with an error on every device.

    Attributes:
        call: The call as it is written.
        need: The need of the function in words.
        spellings: The calls that were probably meant; of several one is to be chosen.
        is_fatal: True if the expression cannot be true without the call.
    """

    call: str
    need: str
    spellings: tuple[str, ...]
    is_fatal: bool

    @property
    def fix(self) -> str:
        """Return the spelling of the call; without a known one the need of the function."""
        return f"write {' or '.join(self.spellings)}" if self.spellings else self.need


def find_faulty_argument(expression: str) -> FaultyArgument | None:
    """Return the first call with an unreadable argument in an expression; None without one.

    >>> find_faulty_argument('v.compareTo(semver("8.9")) >= 0').spellings
    ('semver("8.9.0")',)
    >>> find_faulty_argument('m.compareTo(quantity("40GB")) >= 0').spellings
    ('quantity("40Gi")', 'quantity("40G")')
    >>> find_faulty_argument('name == "semver(1)" && v.isGreaterThan(semver("1.2.3"))') is None
    True
    """
    faults = [call for call in _CALL.finditer(expression) if _is_faulty(call)]
    if not faults:
        return None
    call, fatal = faults[0], is_fatal(expression, [fault.span() for fault in faults])
    if call["name"] == "semver":
        need = "semver needs three numbers, such as 1.2.3"
        return FaultyArgument(call[0], need, _versions(call["text"]), fatal)
    need = "quantity needs an amount as Kubernetes writes it, such as 500m, 3Gi or 1e3"
    return FaultyArgument(call[0], need, _quantities(call["text"]), fatal)


def _is_faulty(call: re.Match[str]) -> bool:
    match call["name"]:
        case "semver":
            return not is_semver(call["text"])
        case "quantity":
            return not is_quantity(call["text"])
        case _:
            return False


def _versions(text: str) -> tuple[str, ...]:
    try:
        version = Semver.parse_tolerant(text.strip())
    except ValueError:
        return ()
    prerelease = f"-{version.prerelease}" if version.prerelease else ""
    return (f'semver("{version.major}.{version.minor}.{version.patch}{prerelease}")',)


def _quantities(text: str) -> tuple[str, ...]:
    """Return the amounts for one in the units of people; GB are those of 1000 or of 1024."""
    amount = _AMOUNT.fullmatch(text)
    if amount is None:
        return ()
    letter = amount["unit"].upper()
    binary = f'quantity("{amount["number"]}{letter}i")'
    if "i" in amount["rest"]:
        return (binary,)
    return binary, f'quantity("{amount["number"]}{"k" if letter == "K" else letter}")'
