"""The kinds that Drawbridge defines: one row each.

`make fix` writes from a row and the types that it names: the CustomResourceDefinition, the rules of the
processes' ClusterRoles, the aggregated ClusterRoles for people, the chart's copies of all of them, the
section of docs/reference/kinds.md, and the kind's lines in tests/golden/public.txt. The URL path, and
whether the webhook validates the kind, come from the row, too.
"""

from enum import StrEnum
from typing import Final

import msgspec

from kube.api import device_quota, ownership, policy, translation_profile
from kube.api.meta import ApiStruct
from kube.api.schema import Schema
from kube.names import GROUP, NAME

FOLLOW: Final = ("list", "watch")
READ: Final = ("get", "list", "watch")


class Account(StrEnum):
    """A service account of a process, and its ClusterRole."""

    WEBHOOK = f"{NAME}-webhook"
    CONTROLLER = f"{NAME}-controller"
    CERTIFICATES = f"{NAME}-certificates"
    BRIDGE = f"{NAME}-bridge"
    DRIVER = f"{NAME}-driver"
    OBSERVER = f"{NAME}-observer"


class Audience(StrEnum):
    """A ClusterRole of Kubernetes for people that aggregates rules of other roles.

    `edit` has the rules of `view`, and `admin` those of `edit`.
    """

    VIEW = "view"
    EDIT = "edit"
    ADMIN = "admin"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The rights of one process on a kind.

    Attributes:
        verbs: The verbs on the objects.
        object_names: The names of the objects; all objects without any.
        writes_status: The process patches the status.
    """

    account: Account
    verbs: tuple[str, ...] = FOLLOW
    object_names: tuple[str, ...] = ()
    writes_status: bool = False


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The rights of people on a kind, through an aggregated ClusterRole."""

    audience: Audience
    verbs: tuple[str, ...] = READ


class Column(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A column of `kubectl get`; one of priority 1 is shown with `-o wide`."""

    name: str
    json_path: str
    type: str = "string"
    priority: int = 0


class OwnKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of ours.

    Attributes:
        view: The type of its objects; the name of the class is the kind, and the docstrings of it and
            of the types below it are the words of `kubectl explain`.
        schema: The limits and rules that the types cannot express.
        is_validated: The webhook validates objects when they are written.
        access: The rights of the processes.
        people: The rights of people.
    """

    view: type[ApiStruct]
    schema: Schema = Schema()
    version: str
    plural: str
    short_names: tuple[str, ...]
    namespaced: bool = False
    categories: tuple[str, ...] = (NAME,)
    columns: tuple[Column, ...]
    is_validated: bool = False
    access: tuple[Access, ...] = ()
    people: tuple[Grant, ...] = (Grant(audience=Audience.VIEW),)

    @property
    def kind(self) -> str:
        """Return the name of the kind."""
        return self.view.__name__

    @property
    def api_version(self) -> str:
        """Return group and version."""
        return f"{GROUP}/{self.version}"

    @property
    def scope(self) -> str:
        """Return the scope, as definitions and rules of webhooks have it."""
        return "Namespaced" if self.namespaced else "Cluster"


def condition(type_: str) -> Column:
    """Return the column of the status of a condition."""
    return Column(type_, f'.status.conditions[?(@.type=="{type_}")].status')


AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")

DEVICE_COMPATIBILITY_POLICY: Final = OwnKind(
    view=policy.DeviceCompatibilityPolicy,
    schema=policy.SCHEMA,
    version=policy.VERSION,
    plural="devicecompatibilitypolicies",
    short_names=("dcp",),
    columns=(
        Column("Driver", ".spec.driver"),
        Column("Enforcement", ".spec.enforcement"),
        *map(condition, ("Valid", "Symmetric", "Accepted", "Enforced")),
        Column("Rules", ".status.rules", "integer"),
        Column("Summary", ".status.summary", priority=1),
        Column("Conflicts", ".status.conflicts.count", "integer", priority=1),
        AGE,
    ),
    is_validated=True,
    access=(
        Access(account=Account.WEBHOOK),
        Access(account=Account.CONTROLLER, writes_status=True),
        Access(account=Account.BRIDGE),
        Access(account=Account.DRIVER),
        Access(account=Account.OBSERVER),
    ),
)
DEVICE_TRANSLATION_PROFILE: Final = OwnKind(
    view=translation_profile.DeviceTranslationProfile,
    schema=translation_profile.SCHEMA,
    version=translation_profile.VERSION,
    plural="devicetranslationprofiles",
    short_names=("dtp",),
    columns=(
        condition("Accepted"),
        Column("Devices", ".status.devices", "integer"),
        Column("Keys", ".status.keyCount", "integer"),
        Column("Conflicts", ".status.conflictCount", "integer"),
        Column("Versions", ".status.keptVersions", "integer"),
        Column("Version", ".status.version", priority=1),
        Column("Replaces", ".status.replaces", priority=1),
        Column("Reason", '.status.conditions[?(@.type=="Accepted")].message', priority=1),
        AGE,
    ),
    is_validated=True,
    access=(Access(account=Account.CONTROLLER, writes_status=True),),
)
ALLOCATOR_OWNERSHIP: Final = OwnKind(
    view=ownership.AllocatorOwnership,
    schema=ownership.SCHEMA,
    version=ownership.VERSION,
    plural="allocatorownerships",
    short_names=("aown",),
    columns=(
        Column("Drivers", ".spec.drivers[*].name"),
        Column("Holder", ".status.holder"),
        condition("Serving"),
        AGE,
    ),
    is_validated=True,
    access=(
        Access(account=Account.WEBHOOK),
        Access(account=Account.CONTROLLER),
        Access(account=Account.CERTIFICATES, object_names=(ownership.OWNERSHIP,)),
        Access(account=Account.BRIDGE, verbs=READ, writes_status=True),
        Access(account=Account.OBSERVER),
    ),
)

DEVICE_QUOTA: Final = OwnKind(
    view=device_quota.DeviceQuota,
    schema=device_quota.SCHEMA,
    version=device_quota.VERSION,
    plural="devicequotas",
    short_names=("dq",),
    columns=(
        Column("Left", ".status.summary"),
        Column("Namespaces", ".status.namespaceCount", "integer"),
        *map(condition, ("Accepted", "Enforced")),
        Column("Alert", '.status.conditions[?(@.type=="AlertThresholdReached")].status'),
        Column("Enforcement", ".spec.enforcement", priority=1),
        Column("Budget", ".spec.budget", priority=1),
        AGE,
    ),
    is_validated=True,
    access=(
        Access(account=Account.WEBHOOK),
        Access(account=Account.CONTROLLER, writes_status=True),
        Access(account=Account.BRIDGE),
    ),
)

OWN_KINDS: Final = (
    DEVICE_COMPATIBILITY_POLICY,
    DEVICE_TRANSLATION_PROFILE,
    ALLOCATOR_OWNERSHIP,
    DEVICE_QUOTA,
)
VALIDATED_OWN_KINDS: Final = tuple(kind for kind in OWN_KINDS if kind.is_validated)
