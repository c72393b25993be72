"""Values: quotas as they are found, the measures of their keys in claims, and their conversions."""

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from kube.quantity import Format, Quantity

Document = Mapping[str, Any]

_NOT_IN_NAME: Final = re.compile(r"[^-a-z0-9]+")
_NOT_IN_LABEL: Final = re.compile(r"[^a-z0-9]+")
_KIBI: Final = 1024
MAX_NAME: Final = 63
"""Characters of a name that is written, which is a DNS label."""


class Target(StrEnum):
    """The kind of quota to write."""

    DEVICE = "device"
    """DeviceQuotas."""
    CORE = "core"
    """ResourceQuotas."""
    KUEUE = "kueue"
    """Kueue's deviceClassMappings and ClusterQueues."""
    VOLCANO = "volcano"
    """Capabilities of Volcano's Queues."""


class Part(StrEnum):
    """The scope of a line's amount."""

    TOTAL = "total"
    """All pods together."""
    REQUEST = "request"
    """One pod or request."""
    DEVICE = "device"
    """One device."""


class QuotaLine(msgspec.Struct, frozen=True, kw_only=True):
    """One amount of a quota.

    Attributes:
        name: The line as its object has it, for people.
        key: The resource name or annotation by which pods request it; empty for a number of claims.
        amount: The amount in the unit of the key.
        counted_by: Another line of the object that counts the same devices, and has the amount; empty if none does.
    """

    name: str
    key: str
    amount: Quantity
    part: Part = Part.TOTAL
    counted_by: str = ""


class FoundQuota(msgspec.Struct, frozen=True, kw_only=True):
    """A quota that names devices.

    Attributes:
        object: `Kind/namespace/name`, or `Kind/name`.
        name: The name for what is written in its place.
        is_core: It is a ResourceQuota.
        namespaces: The namespaces that it limits together; empty where they are not known.
        unknown_namespaces: The reason why they are not known.
        lines: The amounts to convert.
        counted_pods: The pods of these namespaces that it counts, as words; empty for all.
        dropped: Other parts of it to the reason why they have no counterpart.
        alert_percent: The percentage of use above which it warns; None for none.
    """

    object: str
    name: str
    is_core: bool = False
    namespaces: tuple[str, ...] = ()
    unknown_namespaces: str = ""
    lines: tuple[QuotaLine, ...] = ()
    counted_pods: str = ""
    dropped: Mapping[str, str] = {}
    alert_percent: int | None = None


class ClaimMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """A part of claims that a key requests.

    Attributes:
        device_class: The DeviceClass of the requests.
        selectors: The expressions by which the requests choose devices of the class.
        capacity: The capacity that the key is an amount of; empty where it is a number of devices.
        unit: The amount of the capacity, in nano-units, for one nano-unit of the key.
    """

    driver: str
    device_class: str
    selectors: tuple[str, ...] = ()
    capacity: str = ""
    unit: int = 1

    def amount(self, of_key: Quantity) -> Quantity:
        """Return an amount of the key in the unit of the measure, in Ki, Mi or Gi if the key counts in them."""
        binary = Format.BINARY if self.unit % _KIBI == 0 else of_key.format
        return Quantity.from_nanos(of_key.nanos * self.unit, binary)


class MeasuredLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line with one of the measures that it becomes.

    Attributes:
        measure: None for a number of claims.
        amount: The amount in the unit of the measure.
        beside: The part of it for pods with other keys, which the line did not count.
        counts_others: The measure counts claims of pods with other keys, for whom there is no room, or none is known.
        is_absent: The class of the measure is nowhere in the cluster, and has no part of the amount.
        legacy_key: The entry of `limits[].legacyKeys` by which pods with the key count in the same limit; None if
            no entry says it.
    """

    line: QuotaLine
    measure: ClaimMeasure | None
    amount: Quantity
    beside: int = 0
    counts_others: bool = False
    is_absent: bool = False
    legacy_key: Document | None = None

    @property
    def own_amount(self) -> Quantity:
        """Return the part of the amount that is the line's."""
        return self.amount - Quantity(self.beside) if self.beside else self.amount

    @property
    def line_amount(self) -> Quantity:
        """Return the whole amount of the line, independent of the measure's part of it."""
        return self.amount if self.measure is None else self.measure.amount(self.line.amount)


class LineChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A difference between a line and its limits.

    Attributes:
        line: The line as its object has it.
        text: The difference in words.
        allows_more: The limits let pods through that the line does not.
        allows_less: The limits hold pods back that the line does not.
    """

    line: str
    text: str
    allows_more: bool = False
    allows_less: bool = False

    @property
    def direction(self) -> str:
        """The difference in a word."""
        return "less than before" if self.allows_less else "more than before"


class QuotaConversion(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The outcome for a quota.

    Attributes:
        object: `Kind/namespace/name`, or `Kind/name`.
        converted: Line to what it became, in words.
        not_convertible: Line, or another part of the quota, to the reason why it has no counterpart.
        documents: The objects to apply, or to merge into objects of the same name.
        counts_pods: The quota goes on counting pods with the key as long as it has the line.
        replaced: Its lines whose pods with the key count in what is written, too, so that they may be removed
            as soon as that is enforced.
        changes: The differences between what these lines allow, and what is written in their place.
    """

    object: str
    converted: Mapping[str, str] = {}
    not_convertible: Mapping[str, str] = {}
    documents: tuple[Document, ...] = ()
    counts_pods: bool = False
    replaced: tuple[str, ...] = ()
    changes: tuple[LineChange, ...] = ()


def name_of(*parts: str) -> str:
    """Return the names of an object and its namespace as one name.

    >>> name_of("team", "gpus"), name_of("", "a.b"), name_of("$(reboot)")
    ('team-gpus', 'a-b', 'reboot')
    """
    text = _NOT_IN_NAME.sub("-", "-".join(filter(None, parts)).lower())[:MAX_NAME].strip("-")
    return text or "converted"


def label_of(text: str) -> str:
    """Return a text as a DNS label.

    >>> label_of("mig-1g.5gb"), label_of("/")
    ('mig-1g-5gb', 'limit')
    """
    label = _NOT_IN_LABEL.sub("-", text.lower())[:MAX_NAME].strip("-")
    return label or "limit"


def free_name(name: str, names_in_use: Collection[str]) -> str:
    """Return a name, with a number if another object has it.

    >>> free_name("memory", {"memory", "memory-2"})
    'memory-3'
    """
    free, number = name, 1
    while free in names_in_use:
        number += 1
        suffix = f"-{number}"
        free = name[: MAX_NAME - len(suffix)] + suffix
    return free
