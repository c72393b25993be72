"""Versions of Kubernetes, as flags and API servers write them."""

import re
from typing import Final

import click

Version = tuple[int, int]
"""Major and minor."""
_VERSION: Final = re.compile(r"v?(\d{1,3})\.(\d{1,3})(?:\D.*)?", re.DOTALL)


def parse_version(text: str) -> Version | None:
    """Return major and minor version; None for another text.

    >>> parse_version("v1.37.1"), parse_version("1.38"), parse_version("latest")
    ((1, 37), (1, 38), None)
    """
    match = _VERSION.fullmatch(text)
    return (int(match[1]), int(match[2])) if match is not None else None


def format_version(version: Version) -> str:
    """Return a version as people write it."""
    return ".".join(map(str, version))


class VersionType(click.ParamType[Version]):
    """A version of Kubernetes such as `1.38`."""

    name = "version"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Version:
        """Return major and minor version; click reports another text."""
        if isinstance(value, tuple):
            return value
        version = parse_version(str(value))
        if version is None:
            self.fail(f"{str(value)!r} is not a version such as 1.38", param, ctx)
        return version
