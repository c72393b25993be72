"""Versions of Kubernetes, as flags and API servers write them."""

import re
from typing import Final

Version = tuple[int, int]
"""Major and minor."""
OLDEST_KUBERNETES: Final = (1, 34)
"""Source: resource.k8s.io/v1 is served since 1.34."""
SEPARATE_COUNTERS: Final = (1, 35)
"""The first version with counter sets in slices of their own, without devices."""
EXTENDED_RESOURCES_SINCE: Final = (1, 35)
"""The first version in which claims count in quotas of extended resources.

Source: pkg/quota/v1/evaluator/core/resource_claims.go of Kubernetes 1.34.4 and 1.35.4.
"""
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


def counts_extended(version: Version | None) -> bool:
    """Return True if claims count as extended resources in quotas of a version; None is the newest."""
    return version is None or version >= EXTENDED_RESOURCES_SINCE
