"""The published name most likely meant by a selector that reads a name of no device.

Source: resource.k8s.io/v1, Device: a name without a domain belongs to the domain of the driver.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from allocator.model.selectors import DeviceField
from findings.text import quote_text
from kube.api.resource import Device, ResourceSlice
from rules.model.naming import MAX_COMPARED, MAX_LISTED, find_similar_name

MAX_FIELDS_LISTED: Final = 24
"""Names of fields in one suggestion."""
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class PublishedNames(msgspec.Struct, frozen=True, kw_only=True):
    """The names of attributes and capacities that devices publish.

    Attributes:
        attributes: Pairs of domain and identifier.
        capacities: Pairs of domain and identifier, as in `attributes`.
    """

    attributes: frozenset[tuple[str, str]] = frozenset()
    capacities: frozenset[tuple[str, str]] = frozenset()

    def __or__(self, other: "PublishedNames") -> "PublishedNames":
        return PublishedNames(
            attributes=self.attributes | other.attributes,
            capacities=self.capacities | other.capacities,
        )

    def has(self, field: DeviceField) -> bool:
        """Return True if some device publishes a field."""
        names = self.capacities if field.is_capacity else self.attributes
        return (field.domain, field.identifier) in names


def names_of_slices(slices: Iterable[ResourceSlice]) -> PublishedNames:
    """Return the names that the devices of slices publish."""
    return names_of_devices(
        (device, slice_.spec.driver) for slice_ in slices for device in slice_.spec.devices or ()
    )


def names_of_devices(devices: Iterable[tuple[Device, str]]) -> PublishedNames:
    """Return the names that devices publish, each with its driver."""
    attributes: set[tuple[str, str]] = set()
    capacities: set[tuple[str, str]] = set()
    for device, driver in devices:
        attributes.update(_qualified_name(name, driver) for name in device.attributes or ())
        capacities.update(_qualified_name(name, driver) for name in device.capacity or ())
    return PublishedNames(attributes=frozenset(attributes), capacities=frozenset(capacities))


def _qualified_name(name: str, driver: str) -> tuple[str, str]:
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def suggest_published_field(
    fields: Iterable[DeviceField] | None,
    names: PublishedNames,
    of_class: PublishedNames | None = None,
) -> str:
    """Return advice for the first field that no device has; empty if all are published.

    Args:
        fields: The fields that selectors read; None where they may read any.
        names: The names of all devices.
        of_class: The names to suggest, those of the devices of a class; None for all.

    >>> names = PublishedNames(attributes=frozenset({("gpu.example.com", "productName")}))
    >>> print(suggest_published_field([DeviceField("gpu.example.com", "productNme")], names))
    no device has attribute gpu.example.com/productNme; did you mean device.attributes["gpu.example.com"].productName?
    """
    for field in fields or ():
        if field.identifier and not names.has(field):
            kind = "capacity" if field.is_capacity else "attribute"
            name = quote_text(f"{field.domain}/{field.identifier}").strip('"')
            suggestion = _suggest(field, names if of_class is None else of_class)
            return f"no device has {kind} {name}" + (f"; {suggestion}" if suggestion else "")
    return ""


def misspelt_field(
    fields: Iterable[DeviceField] | None, names: PublishedNames
) -> tuple[str, str] | None:
    """Return the first identifier that no device has, and the published one of its domain that it misspells.

    Args:
        fields: The fields that selectors read; None where they may read any.

    >>> names = PublishedNames(attributes=frozenset({("gpu.example.com", "productName")}))
    >>> misspelt_field([DeviceField("gpu.example.com", "productNme")], names)
    ('productNme', 'productName')
    """
    for field in fields or ():
        if field.identifier and not names.has(field):
            own = names.capacities if field.is_capacity else names.attributes
            in_domain = sorted(identifier for domain, identifier in own if domain == field.domain)
            similar = find_similar_name(field.identifier, in_domain)
            return (field.identifier, similar) if similar else None
    return None


def _suggest(field: DeviceField, names: PublishedNames) -> str:
    """Return the closest published field, or the names in its domain."""
    own = names.capacities if field.is_capacity else names.attributes
    others = names.attributes if field.is_capacity else names.capacities
    in_domain = sorted(identifier for domain, identifier in own if domain == field.domain)
    if closest := _closest(field.identifier, in_domain):
        return _did_you_mean(DeviceField(field.domain, closest, field.is_capacity))
    if (field.domain, field.identifier) in others:
        return _did_you_mean(DeviceField(field.domain, field.identifier, not field.is_capacity))
    domains = sorted(domain for domain, identifier in own if identifier == field.identifier)
    if domains:
        domain = _closest(field.domain, domains) or domains[0]
        return _did_you_mean(DeviceField(domain, field.identifier, field.is_capacity))
    if in_domain:
        return _list_fields(field.domain, own)
    domain = _closest(field.domain, sorted({domain for domain, _ in own}))
    return f"did you mean domain {quote_text(domain)}?" if domain else ""


def _list_fields(domain: str, names: Collection[tuple[str, str]]) -> str:
    """Return a suggestion that lists names: those of a domain, then those of others, each with its domain."""
    in_domain = sorted(identifier for own, identifier in names if own == domain)
    elsewhere = sorted("/".join(name) for name in names if name[0] != domain)
    # Those without the driver's domain are the same on all drivers, and fewer.
    room = MAX_FIELDS_LISTED - min(len(elsewhere), MAX_LISTED)
    quoted = [quote_text(name) for name in (*in_domain[:room], *elsewhere[:MAX_LISTED])]
    left = len(names) - len(quoted)
    return f"known names: {', '.join(quoted)}{', ...' if left else ''}"


def _closest(name: str, names: Iterable[str]) -> str:
    by_lower: Mapping[str, str] = {
        candidate.lower(): candidate for candidate in [*names][:MAX_COMPARED]
    }
    closest = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[closest[0]] if closest else ""


def _did_you_mean(field: DeviceField) -> str:
    return f"did you mean {_as_cel(field)}?"


def _as_cel(field: DeviceField) -> str:
    """Return the CEL that reads a field in a selector; names are shown without control characters."""
    map_name = "capacity" if field.is_capacity else "attributes"
    in_domain = f"device.{map_name}[{quote_text(field.domain)}]"
    if _IDENTIFIER.fullmatch(field.identifier):
        return f"{in_domain}.{field.identifier}"
    return f"{in_domain}[{quote_text(field.identifier)}]"
