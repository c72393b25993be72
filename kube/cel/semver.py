"""Semantic versions with the rules of Kubernetes' CEL library.

Source: k8s.io/apiserver v0.37.1, pkg/cel/library/semverlib.go, on blang/semver v4.0.0.
"""

import re
from typing import Final, Self

import msgspec

MAX_TEXT: Final = 256
"""Characters. Unlike upstream, which has no limit; the API allows an attribute 64 bytes."""

_NUMBER: Final = r"0|[1-9][0-9]*"
_PRERELEASE: Final = rf"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION: Final = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})"
    rf"(?:-({_PRERELEASE}(?:\.{_PRERELEASE})*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_MAX_NUMBER: Final = 2**64 - 1


class Semver(msgspec.Struct, frozen=True):
    """A version without build metadata; neither equality nor order depend on that."""

    major: int
    minor: int
    patch: int
    prerelease: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a version strictly: three numbers, no leading `v`.

        Raises:
            ValueError: The text is not such a version.

        >>> Semver.parse("1.2.3-rc.1+build")
        Semver(major=1, minor=2, patch=3, prerelease='rc.1')
        """
        match = _VERSION.fullmatch(text) if len(text) <= MAX_TEXT else None
        if match is None:
            raise ValueError(f"{text[:64]!r} is not a semantic version such as 1.2.3")
        major, minor, patch = (int(number) for number in match.groups()[:3])
        prerelease = match[4] or ""
        numbers = (int(part) for part in prerelease.split(".") if part.isdigit())
        if max(major, minor, patch, *numbers) > _MAX_NUMBER:
            raise ValueError(f"{text[:64]!r} has a number beyond 64 bits")
        return cls(major, minor, patch, prerelease)

    @classmethod
    def parse_tolerant(cls, text: str) -> Self:
        """Parse a version that may have a leading `v`, fewer than three numbers or leading zeros.

        Raises:
            ValueError: The text is not such a version.

        >>> Semver.parse_tolerant("v01.2")
        Semver(major=1, minor=2, patch=0, prerelease='')
        """
        parts = [_strip_leading_zeros(part) for part in text.removeprefix("v").split(".", 2)]
        if len(parts) < 3 and set(parts[-1]) & set("+-"):
            raise ValueError("a short version cannot have prerelease or build parts")
        return cls.parse(".".join([*parts, "0", "0"][: max(3, len(parts))]))

    def compare(self, other: "Semver") -> int:
        """Return -1, 0 or 1: this version is older than, equal to or newer than another."""
        return (_sort_key(self) > _sort_key(other)) - (_sort_key(self) < _sort_key(other))


def _sort_key(version: Semver) -> tuple[object, ...]:
    """Return the sort key of a version: a prerelease sorts before its release.

    Among prereleases, numbers sort before words, and fewer parts before more.
    """
    parts = tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in version.prerelease.split(".")
        if part
    )
    return (version.major, version.minor, version.patch, not parts, parts)


def _strip_leading_zeros(part: str) -> str:
    if len(part) <= 1:
        return part
    significant_digits = part.lstrip("0")
    return significant_digits if significant_digits[:1].isdigit() else f"0{significant_digits}"


def is_semver(text: str) -> bool:
    """Check that a text is a version as `Semver.parse` reads it.

    >>> is_semver("8.9.0"), is_semver("8.9")
    (True, False)
    """
    try:
        Semver.parse(text)
    except ValueError:
        return False
    return True
