"""The names that a DeviceTranslationProfile may list, and the limits on them.

A resource name of a profile becomes part of expressions that the API server evaluates for every pod.
So a profile of the cluster has only names that a device plugin could have, and no more of them than
those expressions can afford.

Source: k8s.io/kubernetes pkg/apis/core/helper, IsExtendedResourceName; apimachinery IsQualifiedName.
"""

import re
from typing import Final

from translation.profiles.profile import ANY_NAME

MAX_RESOURCES: Final = 64
"""Resource names of one kind of device."""
MAX_PROFILES: Final = 64
"""Profiles of a cluster that are in force."""
MAX_NAMES: Final = 256
"""Resource names of all of them. The API server compares each with each device key of a pod, within
the cost limit of an expression."""
MAX_NAME_CHARACTERS: Final = 16 * 1024
"""Characters of these names. An expression may have 100,000."""
MAX_PROFILE_BYTES: Final = 32 * 1024
"""One profile, as JSON."""
MAX_VERSIONS: Final = 256
MAX_VERSION_BYTES: Final = 768 * 1024
"""All versions that are kept, as JSON: they are stored in one ConfigMap, which holds 1 MiB."""
MAX_NAME: Final = 63
"""Characters of a resource name after the slash."""
MAX_DOMAIN: Final = 253
MAX_DRIVER: Final = 63
MAX_IDENTIFIER: Final = 32
"""Characters of the name of an attribute or a capacity after its domain."""
MAX_VALUE: Final = 64
"""Characters of the value of an attribute."""
MAX_TEXT: Final = 512
"""Characters of a text for people."""
MAX_ENTRIES: Final = 16
"""Entries of a list or map, such as `where`, but not of `resources`."""
MAX_DEPTH: Final = 16
"""Levels of opaque parameters."""

DOMAIN_PATTERN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME_PATTERN: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
IDENTIFIER_PATTERN: Final = r"[a-zA-Z_][a-zA-Z0-9_]*"
_IDENTIFIER: Final = re.compile(IDENTIFIER_PATTERN, re.ASCII)
_DOMAIN: Final = re.compile(DOMAIN_PATTERN, re.ASCII)
_NAME: Final = re.compile(_NAME_PATTERN, re.ASCII)
_BEGINNING: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?", re.ASCII)
_NATIVE_DOMAIN: Final = "kubernetes.io"
_QUOTA_PREFIX: Final = "requests."


def name_fault(name: str) -> str | None:
    """Return the reason a profile cannot list a resource name; None if it can.

    >>> name_fault("vendor.example/gpu"), name_fault("vendor.example/*"), name_fault("cpu")
    (None, None, 'has no domain, as in vendor.example/gpu')
    """
    domain, slash, rest = name.partition("/")
    is_pattern = rest.endswith(ANY_NAME)
    if not slash:
        return "has no domain, as in vendor.example/gpu"
    if not _DOMAIN.fullmatch(domain) or len(domain) > MAX_DOMAIN:
        return "begins with something that is not a DNS subdomain"
    if domain == _NATIVE_DOMAIN or domain.endswith(f".{_NATIVE_DOMAIN}"):
        return f"is in {_NATIVE_DOMAIN}, whose resources are Kubernetes' own"
    if domain.startswith(_QUOTA_PREFIX):
        return f"begins with {_QUOTA_PREFIX}, as only names in ResourceQuotas do"
    plain = rest.removesuffix(ANY_NAME)
    if len(plain) > MAX_NAME or not (_BEGINNING if is_pattern else _NAME).fullmatch(plain):
        return f"does not end in a resource name of at most {MAX_NAME} characters"
    return None


def is_subdomain(name: str, most: int = MAX_DOMAIN) -> bool:
    """Return True if a name is a DNS subdomain, as the names of drivers and DeviceClasses are."""
    return len(name) <= most and _DOMAIN.fullmatch(name) is not None


def is_qualified_name(name: str) -> bool:
    """Return True if a name can be that of an attribute or capacity; its identifier is put into CEL.

    Source: k8s.io/api resource/v1, QualifiedName.

    >>> is_qualified_name("memory"), is_qualified_name("vendor.example/model"), is_qualified_name("a b")
    (True, True, False)
    """
    domain, slash, identifier = name.rpartition("/")
    has_domain = not slash or is_subdomain(domain, MAX_DRIVER)
    is_identifier = _IDENTIFIER.fullmatch(identifier) is not None
    return has_domain and is_identifier and len(identifier) <= MAX_IDENTIFIER
