"""Formats of names and values in Kubernetes objects.

Source: k8s.io/apimachinery v0.37.1, pkg/util/validation/validation.go; k8s.io/kubernetes v1.37.1,
pkg/apis/resource/validation/validation.go, for names of drivers, pools, attributes and capacities.
"""

import re
from typing import Final

MAX_DRIVER: Final = 63
MAX_IDENTIFIER: Final = 32
MAX_POOL: Final = 253

_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

A_LABEL: Final = 'a DNS label: lowercase letters, digits and "-", at most 63 characters'
A_SUBDOMAIN: Final = (
    'a DNS subdomain: lowercase letters, digits, "-" and ".", at most 253 characters'
)
A_DRIVER: Final = "a DNS subdomain of at most 63 characters"
AN_IDENTIFIER: Final = 'a C identifier: letters, digits and "_", at most 32 characters'
A_LABEL_KEY: Final = "a label key: an optional DNS subdomain and a slash, and a name"
A_LABEL_VALUE: Final = "a label value: at most 63 letters, digits, '-', '_' and '.'"


def is_dns_label(text: str) -> bool:
    """Return True if a text is a DNS label.

    >>> is_dns_label("gpu-0"), is_dns_label("mig-1g.5gb"), is_dns_label("GPU")
    (True, False, False)
    """
    return _LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """Return True if a text is a DNS subdomain."""
    return _SUBDOMAIN.fullmatch(text) is not None


def is_driver_name(text: str) -> bool:
    """Return True if a text is the name of a driver; upper case is allowed.

    >>> is_driver_name("gpu.example.com"), is_driver_name("GPU.example.com"), is_driver_name("")
    (True, True, False)
    """
    return len(text) <= MAX_DRIVER and is_dns_subdomain(text.lower())


def is_pool_name(text: str) -> bool:
    """Return True if a text is the name of a pool: DNS subdomains with slashes between them."""
    return len(text) <= MAX_POOL and all(map(is_dns_subdomain, text.split("/")))


def is_identifier(text: str) -> bool:
    """Return True if a text is a C identifier of at most 32 characters."""
    return len(text) <= MAX_IDENTIFIER and _IDENTIFIER.fullmatch(text) is not None


def qualified_name_fault(text: str) -> str:
    """Return the fault of a name of an attribute or capacity; empty if the API server accepts it.

    The API server accepts every name with more than one slash.

    >>> qualified_name_fault("gpu.example.com/memory"), qualified_name_fault("a.b")
    ('', 'must be a C identifier: letters, digits and "_", at most 32 characters')
    """
    parts = text.split("/")
    if len(parts) > 2:
        return ""
    *domain, identifier = parts
    if domain and not is_driver_name(domain[0]):
        return f"the domain must be {A_DRIVER}"
    return "" if is_identifier(identifier) else f"must be {AN_IDENTIFIER}"


def is_label_key(text: str) -> bool:
    """Return True if a text is the key of a label, such as `example.com/name`."""
    prefix, slash, name = text.rpartition("/")
    return (not slash or is_dns_subdomain(prefix)) and _LABEL_VALUE.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Return True if a text is the value of a label; that may be empty."""
    return not text or _LABEL_VALUE.fullmatch(text) is not None


def to_dns_label(text: str) -> str:
    """Return the DNS label that is closest to a text; empty if there is none.

    >>> to_dns_label("GPU_0-mig-1g.5gb")
    'gpu-0-mig-1g-5gb'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].rstrip("-")
