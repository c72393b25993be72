"""The DeviceTranslationProfile API: names that one DRA driver uses, as an object of the cluster.

What the spec may say is decided in `translation.profiles.profile`, as for a profile in a file.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import field

from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.policy import Condition
from kube.api.schema import CONDITIONS, COUNT, Schema, Validation, entries, entries_by_key, text
from kube.names import GROUP

VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "DeviceTranslationProfile"
MAX_LISTED_KEYS: Final = 256
"""Resource names in a status."""
MAX_LISTED_CONFLICTS: Final = 32
MAX_LISTED_KINDS: Final = 7
"""The maximum number of kinds of devices in a profile."""
HASH_LENGTH: Final = 16
"""Characters of a content hash."""
_MAX_RESOURCE_NAME: Final = 253 + 1 + 63 + 1
"""Characters of a domain, a name, and the two signs between and behind them."""


class PublishedKind(ApiStruct, frozen=True, kw_only=True):
    """One kind of device of a profile, with its class and devices in the cluster.

    Attributes:
        kind: The kind, as under spec.devices.
        class_name: Its DeviceClass.
        class_exists: True if the cluster has the class.
        devices: Published devices of this kind, in the newest ResourceSlices of each pool.
    """

    kind: str
    class_name: str = field(name="class", default="")
    class_exists: bool = False
    devices: int = 0


class KeyConflict(ApiStruct, frozen=True, kw_only=True):
    """A resource name that a profile lists, and that it does not serve.

    Attributes:
        key: The resource name.
        owner: The driver that serves it, or the vocabulary that it belongs to; empty where there is none.
        message: The reason, and the fix.
    """

    key: str
    owner: str = ""
    message: str = ""


class DeviceTranslationProfileStatus(ApiStruct, frozen=True, kw_only=True):
    """The effect of a profile on the cluster.

    Attributes:
        observed_generation: The generation of the spec that this is about.
        conditions: Accepted: the present spec is in force. DevicesFound: the cluster has the classes
            and devices of the profile. NoConflicts: it serves every resource name that it lists.
        version: Content hash of the version in force, as in the annotation of translated pods; empty
            if none is.
        replaces: The source of the profile that this one is used instead of: shipped, file, or
            nothing.
        keys: Resource names that pods request and this profile serves, sorted.
        key_count: The number of keys, including those not listed.
        kinds: Its kinds of devices, with their classes and devices in the cluster.
        slices: ResourceSlices of the driver.
        devices: Published devices of all kinds.
        conflicts: Resource names that it lists and does not serve, sorted.
        conflict_count: The number of conflicts, including those not listed.
        kept_versions: Versions of the profile of this driver that are kept, since live pods name them,
            and the one in force.
    """

    observed_generation: int = 0
    conditions: tuple[Condition, ...] | None = None
    version: str = ""
    replaces: str = ""
    keys: tuple[str, ...] | None = None
    key_count: int = 0
    kinds: tuple[PublishedKind, ...] | None = None
    slices: int = 0
    devices: int = 0
    conflicts: tuple[KeyConflict, ...] | None = None
    conflict_count: int = 0
    kept_versions: int = 0


class DeviceTranslationProfile(ApiStruct, frozen=True, kw_only=True):
    """The names of a DRA driver's classes, attributes and capacities.

    With them, legacy resource names become claims for its devices. Only Drawbridge reads it.

    Attributes:
        spec: The profile, as in a file. It replaces the shipped profile of the driver as a whole.
        status: The effect of the profile on the cluster, as reported by our controllers.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any]
    status: DeviceTranslationProfileStatus | None = None


SCHEMA: Final = Schema(
    limits={
        DeviceTranslationProfileStatus: {
            "observedGeneration": COUNT,
            "conditions": CONDITIONS,
            "version": text(HASH_LENGTH),
            "replaces": text(16),
            "keys": entries(MAX_LISTED_KEYS, text(_MAX_RESOURCE_NAME)),
            "keyCount": COUNT,
            "kinds": entries_by_key("kind", most=MAX_LISTED_KINDS),
            "slices": COUNT,
            "devices": COUNT,
            "conflicts": entries_by_key("key", most=MAX_LISTED_CONFLICTS),
            "conflictCount": COUNT,
            "keptVersions": COUNT,
        },
        PublishedKind: {"kind": text(16), "class": text(253), "devices": COUNT},
        KeyConflict: {
            "key": text(_MAX_RESOURCE_NAME),
            "owner": text(253),
            "message": text(1024),
        },
    },
    validations={
        DeviceTranslationProfile: (
            Validation(
                rule="self.metadata.name == self.spec.driver",
                message="the object is named after its driver, so that there is one for each",
                field_path=".spec.driver",
            ),
        )
    },
)
"""The schema of the status; that of the spec is beside its types, in translation/profiles."""
