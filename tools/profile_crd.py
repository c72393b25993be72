"""The CustomResourceDefinition of DeviceTranslationProfile, made of the types that read profiles.

The spec is what a profile in a file says, so its fields, and the words for them, come from
translation/profiles/profile.py. Limits and rules are here: those that the API server can check. The
same limits are checked again by `translation.profiles.object_checks`, for manifests without a cluster.
"""

import inspect
import re
from collections.abc import Mapping
from typing import Final, get_args

import msgspec

from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.translation_profile import (
    KIND,
    MAX_LISTED_CONFLICTS,
    MAX_LISTED_KEYS,
    VERSION,
    DeviceTranslationProfileStatus,
    KeyConflict,
    PublishedKind,
)
from kube.api.urls import DEVICE_TRANSLATION_PROFILES
from tools.custom_resources import (
    CONDITION_FIELDS,
    CONDITION_REQUIRED,
    SUBDOMAIN,
    Document,
    Entry,
    KindWords,
    column,
    name_schema,
)
from translation.model.intents import DeviceKind
from translation.profiles.names import (
    DOMAIN_PATTERN,
    IDENTIFIER_PATTERN,
    MAX_DOMAIN,
    MAX_DRIVER,
    MAX_ENTRIES,
    MAX_IDENTIFIER,
    MAX_NAME,
    MAX_RESOURCES,
    MAX_TEXT,
    MAX_VALUE,
)
from translation.profiles.profile import (
    HASH_LENGTH,
    Attributes,
    Cores,
    DeviceProfile,
    Mps,
    NamedDevices,
    NetworkConfig,
    Profile,
)

SHORT_NAME: Final = "dtp"

_QUALIFIED: Final = name_schema(
    rf"^({DOMAIN_PATTERN}/)?{IDENTIFIER_PATTERN}$", MAX_DRIVER + 1 + MAX_IDENTIFIER
)
_CLASS: Final = name_schema(SUBDOMAIN, MAX_DOMAIN)
_TEXT: Final = {"minLength": 1, "maxLength": MAX_TEXT}
_PATH: Final = {"minLength": 1, "maxLength": 256}
_MAP: Final = {"maxProperties": MAX_ENTRIES}
_COUNT: Final = {"format": "int64", "minimum": 0}


def field_words(kind: type) -> Mapping[str, str]:
    """Return the fields that a type's docstring explains, under their names in JSON, with the words.

    >>> field_words(Cores)["whole"]
    'Its value on a whole device.'
    """
    _, _, text = (inspect.getdoc(kind) or "").partition("Attributes:\n")
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text, re.MULTILINE)
    words = {name: " ".join(entry.replace("`", "").split()) for name, entry in entries}
    return {
        field.encode_name: words[field.name]
        for field in msgspec.structs.fields(kind)
        if field.name in words
    }


def _entries(kind: type, limits: Mapping[str, Entry], text: Entry = _TEXT) -> Mapping[str, Entry]:
    """Return the schema entries of a type: its words, and the limits of its fields.

    Args:
        text: The limits of a string that has no others.
    """
    words = field_words(kind)
    return {
        field.encode_name: {
            "description": words.get(field.encode_name, "See the other fields."),
            **limits.get(field.encode_name, text if _is_text(field.type) else {}),
        }
        for field in msgspec.structs.fields(kind)
    }


def _is_text(kind: object) -> bool:
    return kind is str or str in get_args(kind)


_FIELDS: Final[Mapping[type, Mapping[str, Entry]]] = {
    **CONDITION_FIELDS,
    Profile: {
        "driver": {
            "description": "Name of the driver, as in its ResourceSlices, which is also the name of "
            "this object.",
            **name_schema(SUBDOMAIN, MAX_DRIVER),
        },
        "claims": {
            "description": "pod: one claim with a request per container. container: one claim per "
            "container, for drivers that prepare a claim equally for all its containers. By default "
            "pod.",
        },
        "devices": {
            "description": "Kind to the names of its class, attributes and capacities. device is any "
            "whole device that pods request by a name under resources.",
            "minProperties": 1,
        },
    },
    DeviceProfile: _entries(
        DeviceProfile,
        {
            "class": _CLASS,
            "where": {**_MAP, "additionalProperties": {"type": "string", "maxLength": MAX_VALUE}},
            "lacks": {"maxItems": MAX_ENTRIES, "items": _QUALIFIED},
            "classConfig": _TEXT,
            "resources": {"maxProperties": MAX_RESOURCES},
        },
        _QUALIFIED,
    ),
    Attributes: _entries(Attributes, {}, _QUALIFIED),
    Cores: _entries(Cores, {"capacity": _QUALIFIED, "whole": {"minimum": 1, "maximum": 2**31 - 1}}),
    Mps: _entries(
        Mps,
        {
            "threads": _PATH,
            "memory": _PATH,
            "featureGate": _TEXT,
            "excludes": {"maxItems": MAX_ENTRIES, "items": _TEXT},
        },
    ),
    NetworkConfig: _entries(NetworkConfig, {}),
    NamedDevices: _entries(
        NamedDevices,
        {
            "class": _CLASS,
            "where": _MAP,
            "shortName": _QUALIFIED,
            "fullName": _QUALIFIED,
            "countAttribute": _QUALIFIED,
            "connected": {**_MAP, "additionalProperties": {"type": "string", **_QUALIFIED}},
            "variables": {"maxItems": MAX_ENTRIES, "items": _TEXT},
            "rejected": _TEXT,
            "advice": _TEXT,
        },
    ),
    DeviceTranslationProfileStatus: {
        "observedGeneration": {"description": "Of the spec that this is about.", **_COUNT},
        "conditions": {
            "description": "Accepted: the present spec is in force. DevicesFound: the cluster has "
            "the classes and devices of the profile. NoConflicts: it serves every resource name that "
            "it lists.",
            "maxItems": 8,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
        "version": {
            "description": "Content hash of the version in force, as in the annotation of translated "
            "pods.",
            "maxLength": HASH_LENGTH,
        },
        "replaces": {
            "description": "What this profile is used instead of: shipped, file, or nothing.",
            "maxLength": 16,
        },
        "keys": {
            "description": "Resource names that pods request and this profile serves.",
            "maxItems": MAX_LISTED_KEYS,
            "x-kubernetes-list-type": "atomic",
            "items": {"maxLength": MAX_DOMAIN + 1 + MAX_NAME + 1},
        },
        "keyCount": {"description": "How many there are.", **_COUNT},
        "kinds": {
            "description": "Its kinds of devices, and what the cluster has of them.",
            "maxItems": len(DeviceKind),
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["kind"],
        },
        "slices": {"description": "ResourceSlices of the driver.", **_COUNT},
        "devices": {"description": "Published devices of all kinds.", **_COUNT},
        "conflicts": {
            "description": "Resource names that it lists and does not serve.",
            "maxItems": MAX_LISTED_CONFLICTS,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["key"],
        },
        "conflictCount": {"description": "How many there are.", **_COUNT},
        "keptVersions": {
            "description": "Versions of the profile of this driver that are kept, since live pods "
            "name them, and the one in force.",
            **_COUNT,
        },
    },
    PublishedKind: {
        "kind": {"description": "As under spec.devices.", "maxLength": 16},
        "class": {"description": "Its DeviceClass.", "maxLength": MAX_DOMAIN},
        "classExists": {"description": "Whether the cluster has the class."},
        "devices": {"description": "Published devices of this kind.", **_COUNT},
    },
    KeyConflict: {
        "key": {
            "description": "The resource name.",
            "maxLength": MAX_DOMAIN + 1 + MAX_NAME + 1,
        },
        "owner": {
            "description": "The driver that serves it, or the vocabulary that it belongs to.",
            "maxLength": MAX_DOMAIN,
        },
        "message": {"description": "Why, and what to do.", "maxLength": 1024},
    },
}


class _Object(ApiStruct, frozen=True, kw_only=True):
    """A DeviceTranslationProfile, with the type of its spec."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Profile
    status: DeviceTranslationProfileStatus | None = None


_RULES: Final[Mapping[type, list[Document]]] = {
    _Object: [
        {
            "rule": "self.metadata.name == self.spec.driver",
            "message": "the object is named after its driver, so that there is one for each",
            "fieldPath": ".spec.driver",
        }
    ],
    NamedDevices: [
        {
            "rule": "!has(self.advice) || has(self.rejected)",
            "message": "advice is read only beside rejected",
            "fieldPath": ".advice",
        },
        {
            "rule": "!has(self.countAttribute) || (has(self.every) && self.every)",
            "message": "countAttribute is read only where every is true",
            "fieldPath": ".countAttribute",
        },
    ],
    DeviceProfile: [
        {
            "rule": "!has(self.resources) || self.resources.all(name, name.contains('/') || name == '*')",
            "message": "a resource name has a domain, as in vendor.example/gpu",
            "fieldPath": ".resources",
        },
        {
            "rule": "!has(self.resources) || self.resources.all(name, name.indexOf('*') == -1 "
            "|| name.indexOf('*') == name.size() - 1)",
            "message": "a resource name has a * only at its end",
            "fieldPath": ".resources",
        },
    ],
}

WORDS: Final = KindWords(
    kind=KIND,
    short_name=SHORT_NAME,
    version=VERSION,
    resource=DEVICE_TRANSLATION_PROFILES,
    view=_Object,
    description="How a DRA driver names its classes, attributes and capacities, so that legacy "
    "resource names become claims for its devices. Only Drawbridge reads it.",
    parts={
        "spec": "The profile, as in a file. It replaces the shipped profile of the driver as a whole.",
        "status": "What our controllers made of it.",
    },
    columns=(
        column("Accepted", '.status.conditions[?(@.type=="Accepted")].status'),
        column("Devices", ".status.devices", "integer"),
        column("Keys", ".status.keyCount", "integer"),
        column("Conflicts", ".status.conflictCount", "integer"),
        column("Versions", ".status.keptVersions", "integer"),
        column("Version", ".status.version", priority=1),
        column("Replaces", ".status.replaces", priority=1),
        column("Reason", '.status.conditions[?(@.type=="Accepted")].message', priority=1),
        column("Age", ".metadata.creationTimestamp", "date"),
    ),
    fields=_FIELDS,
    rules=_RULES,
    required=CONDITION_REQUIRED,
    omitted={Profile: frozenset({"contentHash"})},
)


def definition() -> Document:
    """Return the definition as it is applied."""
    return WORDS.definition()
