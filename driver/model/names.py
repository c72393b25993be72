"""The names that Kubernetes, CDI and Linux accept.

Source: k8s.io/apimachinery v0.37.1, pkg/util/validation/validation.go; k8s.io/kubernetes v1.37.1,
pkg/apis/resource/validation/validation.go; tags.cncf.io/container-device-interface v1.1.1,
pkg/parser/parser.go.
"""

import re
from typing import Final

_LABEL: Final = re.compile(r"(?=.{1,63}\Z)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CDI_DEVICE: Final = re.compile(
    r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z](?:[A-Za-z0-9_-]*[A-Za-z0-9])?"
    r"=[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?"
)
_UID: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,62}[a-z0-9])?")
MAX_DOMAIN: Final = 63


def is_dns_label(text: str) -> bool:
    """Return True if a text can name a device, a counter set, a counter or a group.

    >>> is_dns_label("gpu-0"), is_dns_label("GPU_0")
    (True, False)
    """
    return _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Return True if a text can name an object, a driver or a part of a pool's name."""
    return _SUBDOMAIN.fullmatch(text) is not None


def is_qualified_name(text: str) -> bool:
    """Return True if a text can name an attribute or a capacity.

    >>> is_qualified_name("memory"), is_qualified_name("resource.kubernetes.io/pcieRoot")
    (True, True)
    >>> is_qualified_name("compute-units"), is_qualified_name("a/b/c")
    (False, False)
    """
    domain, slash, identifier = text.rpartition("/")
    is_domain = is_subdomain(domain) and len(domain) <= MAX_DOMAIN
    return (is_domain or not slash) and _IDENTIFIER.fullmatch(identifier) is not None


def is_label_key(text: str) -> bool:
    """Return True if a text can be the key of a taint."""
    domain, slash, name = text.rpartition("/")
    return (is_subdomain(domain) or not slash) and bool(name) and is_label_value(name)


def is_label_value(text: str) -> bool:
    """Return True if a text can be the value of a taint."""
    return _LABEL_VALUE.fullmatch(text) is not None


def is_variable(text: str) -> bool:
    """Return True if a text can name an environment variable."""
    return _VARIABLE.fullmatch(text) is not None


def is_cdi_device(text: str) -> bool:
    """Return True if a text is a device's name in CDI, `vendor/class=name`.

    >>> is_cdi_device("nvidia.com/gpu=0"), is_cdi_device("nvidia.com/gpu")
    (True, False)
    """
    return _CDI_DEVICE.fullmatch(text) is not None


def is_uid(text: str) -> bool:
    """Return True if a text can be the uid of a claim, and so a part of a file's name.

    >>> is_uid("2d43b9a7-3cfe-8a2c-8233-6ef0ad5f1c2f"), is_uid("../../etc/passwd"), is_uid("")
    (True, False, False)
    """
    return _UID.fullmatch(text) is not None


def is_plain_path(text: str) -> bool:
    """Return True if a text is an absolute path without `..` and empty parts.

    >>> is_plain_path("/dev/nvidia0"), is_plain_path("/dev/../etc"), is_plain_path("dev/null")
    (True, False, False)
    """
    first, *parts = text.split("/")
    has_odd_parts = any(part in {"", ".", ".."} for part in parts)
    return not first and bool(parts) and not has_odd_parts and "\0" not in text
