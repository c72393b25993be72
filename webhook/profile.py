"""A driver profile: how one DRA driver speaks, as data.

One YAML file per driver stands in `webhook/profiles`; a cluster adds its own as files. Adding a
driver needs no Python. The docstrings here are the reference for who writes one.
"""

from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any

import msgspec
import yaml

from kube.errors import ConfigError
from webhook.intents import DeviceKind

HASH_LENGTH = 16


class Granularity(StrEnum):
    """How many claims a pod gets from one driver."""

    POD = "pod"
    """One, with a request per container; a container sees the devices of its request."""
    CONTAINER = "container"
    """One per container, for drivers that prepare a claim the same way for all its containers."""


class Sharing(StrEnum):
    """Whether several claims may hold a device at the same time."""

    ALWAYS = "always"
    PUBLISHED = "published"
    """As each device says with allowMultipleAllocations; no, while no device is known."""
    NEVER = "never"


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of a profile file; a misspelled field is refused."""


class Attributes(_Part, frozen=True, kw_only=True):
    """Names of attributes; bare ones are in the driver's own domain.

    Attributes:
        uuid: The identity of the card, which users put on lists; for a partition, its parent's.
        model: The product's name, which lists of card types match.
        mig_profile: The name of a MIG profile, such as `1g.10gb+me`.
        numa: The NUMA node.
    """

    uuid: str | None = None
    model: str | None = None
    mig_profile: str | None = None
    numa: str | None = None


class Cores(_Part, frozen=True, kw_only=True):
    """A capacity that stands for the compute of a device.

    Attributes:
        capacity: Its name.
        whole: Its value for a whole device.
    """

    capacity: str
    whole: Annotated[int, msgspec.Meta(ge=1)] = 100


class Mps(_Part, frozen=True, kw_only=True):
    """How the driver is told to start an MPS server.

    Attributes:
        parameters: The opaque configuration.
        threads: Dotted path in it of the percentage of threads.
        memory: Dotted path in it of the memory limit, a quantity.
    """

    parameters: Mapping[str, Any]
    threads: str | None = None
    memory: str | None = None

    def __post_init__(self) -> None:
        """Refuse a path that does not lead through objects."""
        for name, path in (("threads", self.threads), ("memory", self.memory)):
            place: object = self.parameters
            for step in path.split(".")[:-1] if path else ():
                place = place.get(step, {}) if isinstance(place, Mapping) else None
            if not isinstance(place, Mapping):
                raise TypeError(f"{name}: {path} does not lead through objects of parameters")


AttributeValue = bool | int | str
ANY_NAME = "*"
"""As the end of a resource name: whatever follows."""


class NamedDevices(_Part, frozen=True, kw_only=True):
    """Which devices a legacy resource name stands for; what is left out does not matter.

    Attributes:
        class_name: Their DeviceClass; None for that of the kind.
        where: Attribute to value that they have.
        short_name: The attribute that holds what follows the slash of the resource name.
        full_name: The attribute that holds the whole name; beside `short_name` either will do.
    """

    class_name: str | None = msgspec.field(default=None, name="class")
    where: Mapping[str, AttributeValue] = {}
    short_name: str | None = None
    full_name: str | None = None

    @property
    def tells_names_apart(self) -> bool:
        """Whether another name stands for other devices."""
        return self.short_name is not None or self.full_name is not None


class DeviceProfile(_Part, frozen=True, kw_only=True):
    """One kind of device of the driver.

    Attributes:
        class_name: The DeviceClass.
        where: Attribute to value, by which devices of this kind are told apart in slices.
        lacks: Attributes that devices of this kind do not have; those that have one, such as
            partitions, are another kind.
        sharing: Whether several claims may hold a device.
        unique: The attribute that differs between devices, where requests for several devices must
            say so: on devices that can be shared.
        attributes: Names to filter by.
        memory: The capacity that is the device's memory.
        cores: The capacity that is the device's compute.
        replicas: The capacity of which every user takes one, whatever size.
        mps: How to share through an MPS server.
        resources: Legacy resource name to the devices that it stands for; a name may end in `*`.
            Of several that match, the longest counts.
    """

    class_name: str = msgspec.field(name="class")
    where: Mapping[str, str] = {}
    lacks: tuple[str, ...] = ()
    sharing: Sharing = Sharing.NEVER
    unique: str | None = None
    attributes: Attributes = Attributes()
    memory: str | None = None
    cores: Cores | None = None
    replicas: str | None = None
    mps: Mps | None = None
    # Unset, not empty: profiles without it keep the content hash that live pods carry.
    resources: Mapping[str, NamedDevices] | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        """Refuse a resource name with a `*` before its end."""
        for name in self.resources or ():
            if ANY_NAME in name.removesuffix(ANY_NAME):
                raise ValueError(f"resources: {name} has a * before its end")

    def named(self, resource: str) -> tuple[str, NamedDevices] | None:
        """Return the name that matches a legacy resource best, and what it stands for."""
        known = self.resources or {}
        if resource in known:
            return resource, known[resource]
        patterns = [
            name
            for name in known
            if name.endswith(ANY_NAME) and resource.startswith(name.removesuffix(ANY_NAME))
        ]
        best = max(patterns, key=len, default=None)
        return None if best is None else (best, known[best])


class Profile(_Part, frozen=True, kw_only=True):
    """One driver.

    Attributes:
        driver: Its name, which is the profile's name, too.
        claims: How many claims a pod gets from it.
        devices: Kind to how it is spoken of.
        content_hash: Identifies the content: two profiles with one hash derive the same claims.
            Computed when a file is read, whatever the file says here.
    """

    driver: str
    claims: Granularity = Granularity.POD
    devices: Mapping[DeviceKind, DeviceProfile]
    content_hash: str = ""

    def __post_init__(self) -> None:
        """Refuse a driver without devices: no key could be said in its words."""
        if not self.devices:
            raise ValueError("devices: at least one kind")

    def resource_names(self) -> tuple[str, ...]:
        """Return the resource names that it knows by their domain; one may end in `*`.

        A bare `*` says what any name stands for, and gives none to a vocabulary.
        """
        return tuple(
            name
            for device in self.devices.values()
            for name in device.resources or ()
            if "/" in name
        )

    def class_names(self) -> frozenset[str]:
        """Return every DeviceClass that it speaks of."""
        devices = self.devices.values()
        named = (one.class_name for device in devices for one in (device.resources or {}).values())
        return frozenset(
            name
            for name in (*(device.class_name for device in devices), *named)
            if name is not None
        )

    def __hash__(self) -> int:
        """Profiles are equal by content, which the hash stands for."""
        return hash(self.content_hash)

    def qualified(self, name: str) -> tuple[str, str]:
        """Return domain and identifier of an attribute's or capacity's name.

        Source: resource/v1 QualifiedName: a name without "/" is in the domain of the driver.
        """
        domain, slash, identifier = name.partition("/")
        return (domain, identifier) if slash else (self.driver, name)


def parse_profile(text: bytes | str, source: str) -> Profile:
    """Return the profile that a YAML text holds.

    Raises:
        ConfigError: The text is no profile; the message names source and field.
    """
    try:
        read = msgspec.convert(yaml.safe_load(text), Profile)
        blank = msgspec.structs.replace(read, content_hash="")
        canonical = msgspec.json.encode(blank, order="sorted")
    except yaml.MarkedYAMLError as fault:
        where = fault.problem_mark
        line = f"line {where.line + 1}: " if where is not None else ""
        raise _no_profile(source, f"{line}{fault.problem}") from fault
    # A lone surrogate is a ValueError, and so is a date that does not exist.
    except (yaml.YAMLError, msgspec.ValidationError, ValueError, RecursionError) as fault:
        raise _no_profile(source, str(fault)) from fault
    return msgspec.structs.replace(blank, content_hash=sha256(canonical).hexdigest()[:HASH_LENGTH])


def _no_profile(source: str, fault: str) -> ConfigError:
    return ConfigError(f"{source}: not a driver profile: {' '.join(fault.split())}")
