"""Limits and rules of a DeviceTranslationProfile's spec that the API server can check.

`translation.profiles.object_checks` checks the same, for manifests without a cluster.
"""

from typing import Final

from kube.api.schema import SUBDOMAIN, Keywords, Schema, Validation, name, text
from translation.profiles.names import (
    DOMAIN_PATTERN,
    IDENTIFIER_PATTERN,
    MAX_DOMAIN,
    MAX_DRIVER,
    MAX_ENTRIES,
    MAX_IDENTIFIER,
    MAX_RESOURCES,
    MAX_TEXT,
    MAX_VALUE,
)
from translation.profiles.profile import (
    Attributes,
    Cores,
    DeviceProfile,
    Mps,
    NamedDevices,
    NetworkConfig,
    Profile,
)

_QUALIFIED: Final = name(
    rf"^({DOMAIN_PATTERN}/)?{IDENTIFIER_PATTERN}$", MAX_DRIVER + 1 + MAX_IDENTIFIER
)
_CLASS: Final = name(SUBDOMAIN, MAX_DOMAIN)
_TEXT: Final[Keywords] = {"minLength": 1, "maxLength": MAX_TEXT}
_TEXTS: Final[Keywords] = {"maxItems": MAX_ENTRIES, "items": _TEXT}
_PATH: Final[Keywords] = {"minLength": 1, "maxLength": 256}
_MAP: Final[Keywords] = {"maxProperties": MAX_ENTRIES}

SCHEMA: Final = Schema(
    limits={
        Profile: {"driver": name(SUBDOMAIN, MAX_DRIVER), "devices": {"minProperties": 1}},
        DeviceProfile: {
            "class": _CLASS,
            "where": {
                **_MAP,
                "additionalProperties": {"type": "string", **text(MAX_VALUE)},
            },
            "lacks": {"maxItems": MAX_ENTRIES, "items": _QUALIFIED},
            "unique": _QUALIFIED,
            "memory": _QUALIFIED,
            "replicas": _QUALIFIED,
            "resources": {"maxProperties": MAX_RESOURCES},
            "labels": {**_MAP, "additionalProperties": {"type": "string", **_QUALIFIED}},
            "virtualFunctions": _MAP,
            "computeUnits": _QUALIFIED,
            "tflops": _QUALIFIED,
            "bandwidth": _QUALIFIED,
            "classConfig": _TEXT,
        },
        Attributes: dict.fromkeys(
            ("uuid", "model", "migProfile", "numa", "partition", "interface"), _QUALIFIED
        ),
        Cores: {"capacity": _QUALIFIED, "whole": {"minimum": 1, "maximum": 2**31 - 1}},
        Mps: {"threads": _PATH, "memory": _PATH, "featureGate": _TEXT, "excludes": _TEXTS},
        NetworkConfig: dict.fromkeys(("interface", "name", "namespace", "config"), _TEXT),
        NamedDevices: {
            "class": _CLASS,
            "where": _MAP,
            "shortName": _QUALIFIED,
            "fullName": _QUALIFIED,
            "countAttribute": _QUALIFIED,
            "connected": {**_MAP, "additionalProperties": {"type": "string", **_QUALIFIED}},
            "variables": _TEXTS,
            "rejected": _TEXT,
            "advice": _TEXT,
        },
    },
    validations={
        NamedDevices: (
            Validation(
                rule="!has(self.advice) || has(self.rejected)",
                message="advice is read only beside rejected",
                field_path=".advice",
            ),
            Validation(
                rule="!has(self.countAttribute) || (has(self.every) && self.every)",
                message="countAttribute is read only where every is true",
                field_path=".countAttribute",
            ),
        ),
        DeviceProfile: (
            Validation(
                rule="!has(self.resources) || "
                "self.resources.all(name, name.contains('/') || name == '*')",
                message="a resource name has a domain, as in vendor.example/gpu",
                field_path=".resources",
            ),
            Validation(
                rule="!has(self.resources) || self.resources.all(name, name.indexOf('*') == -1 "
                "|| name.indexOf('*') == name.size() - 1)",
                message="a resource name has a * only at its end",
                field_path=".resources",
            ),
        ),
    },
    omitted={Profile: frozenset({"contentHash"})},
)
