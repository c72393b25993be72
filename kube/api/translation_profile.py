"""The DeviceTranslationProfile API: how one DRA driver names things, as an object of the cluster.

What the spec may say is decided in `translation.profiles.profile`, as for a profile in a file.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import field

from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.policy import Condition
from kube.names import GROUP

VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "DeviceTranslationProfile"
MAX_LISTED_KEYS: Final = 256
"""Resource names in a status."""
MAX_LISTED_CONFLICTS: Final = 32


class PublishedKind(ApiStruct, frozen=True, kw_only=True):
    """One kind of device of a profile, and what the cluster has of it.

    Attributes:
        class_exists: Whether the cluster has the DeviceClass.
        devices: Of this kind in the newest ResourceSlices of each pool.
    """

    kind: str
    class_name: str = field(name="class", default="")
    class_exists: bool = False
    devices: int = 0


class KeyConflict(ApiStruct, frozen=True, kw_only=True):
    """A resource name that a profile lists, and that it does not serve.

    Attributes:
        owner: The driver that serves it, or the vocabulary; empty where nothing does.
    """

    key: str
    owner: str = ""
    message: str = ""


class DeviceTranslationProfileStatus(ApiStruct, frozen=True, kw_only=True):
    """The effect of a profile on the cluster.

    Attributes:
        version: The content hash of the version in force, as in the annotation of pods; empty if no
            version is.
        replaces: What the profile is used instead of: `shipped`, `file`, or nothing.
        keys: The resource names that it serves, sorted; at most `MAX_LISTED_KEYS`.
        key_count: The number of all of them, for a column.
        slices: The number of ResourceSlices of the driver.
        devices: The number of devices of all kinds, for a column.
        conflicts: At most `MAX_LISTED_CONFLICTS`, sorted by key.
        conflict_count: The number of all of them, for a column.
        kept_versions: The number of versions of the driver's profile that live pods name, this one
            included.
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
    """A profile of one driver; cluster-scoped, named after the driver, short name `dtp`.

    Attributes:
        spec: As a profile in a file.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any]
    status: DeviceTranslationProfileStatus | None = None
