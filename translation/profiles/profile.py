"""A driver profile: the class, attribute and capacity names of one DRA driver, as data.

There is one YAML file per driver in `translation/profiles`; a cluster adds its own as files. Adding a
driver needs no Python. The docstrings here are the reference for authors of profiles.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any

import msgspec
import yaml

from kube.api.translation_profile import HASH_LENGTH
from kube.errors import ConfigError
from translation.model.intents import DeviceKind
from translation.profiles.unknown_fields import find_unknown_field

_PARSER_ERRORS = (
    yaml.YAMLError,
    msgspec.ValidationError,
    RecursionError,
    # A lone surrogate, a date that does not exist, a `!!bool` or `!!timestamp` of another text.
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
)
"""The exceptions that parsers of a profile raise for text that is not a profile."""


class Granularity(StrEnum):
    """The number of claims per pod."""

    POD = "pod"
    """One claim with a request per container; a container sees the devices of its request."""
    CONTAINER = "container"
    """One claim per container, for drivers that prepare a claim equally for all its containers."""


class Sharing(StrEnum):
    """The condition for allocating several claims the same device."""

    ALWAYS = "always"
    PUBLISHED = "published"
    """The value published in allowMultipleAllocations; never, while no device is known."""
    NEVER = "never"


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of a profile file; an unknown field is an error."""


class Attributes(_Part, frozen=True, kw_only=True):
    """Names of attributes; those without a domain are in the driver's.

    Attributes:
        uuid: The identity of the card, as in users' lists; of a partition, its parent's.
        model: The product name, as in users' lists of card types.
        mig_profile: The name of a MIG profile, such as `1g.10gb+me`.
        numa: The NUMA node.
        partition: The id of the partition of N devices to which a device belongs, without the N at
            its end: `partition` for `partition2` and `partition4`. Unset where there are none.
        interface: The name of a network interface of the node. Unset for other devices.
    """

    uuid: str | None = None
    model: str | None = None
    mig_profile: str | None = None
    numa: str | None = None
    # Unset, not empty: profiles without it keep the content hash that live pods carry.
    partition: str | msgspec.UnsetType = msgspec.UNSET
    interface: str | msgspec.UnsetType = msgspec.UNSET


class Cores(_Part, frozen=True, kw_only=True):
    """The capacity that represents the compute of a device.

    Attributes:
        capacity: Its name.
        whole: Its value on a whole device.
    """

    capacity: str
    whole: Annotated[int, msgspec.Meta(ge=1)] = 100


class Mps(_Part, frozen=True, kw_only=True):
    """The configuration that makes the driver start an MPS server.

    Attributes:
        parameters: The opaque parameters.
        threads: Dotted path in them of the percentage of threads.
        memory: Dotted path in them of the memory limit, a quantity.
        feature_gate: The feature gate of the driver without which it rejects the parameters; unset
            where it needs none.
        excludes: Feature gates of the driver that cannot be enabled together with it.
    """

    parameters: Mapping[str, Any]
    threads: str | None = None
    memory: str | None = None
    # Unset, not empty: profiles without them keep the content hash that live pods carry.
    feature_gate: str | msgspec.UnsetType = msgspec.UNSET
    excludes: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        """Check that paths lead through objects."""
        for name, path in (("threads", self.threads), ("memory", self.memory)):
            parent: object = self.parameters
            for field in path.split(".")[:-1] if path else ():
                parent = parent.get(field, {}) if isinstance(parent, Mapping) else None
            if not isinstance(parent, Mapping):
                raise TypeError(f"{name}: {path} does not lead through objects of parameters")


class NetworkConfig(_Part, frozen=True, kw_only=True):
    """The configuration with the network that a NIC is attached to.

    Attributes:
        parameters: The opaque parameters.
        interface: Field of the interface's name in the pod.
        name: Field of the name of the NetworkAttachmentDefinition. Unset for a driver that does not
            read these objects.
        namespace: Field of the namespace of the NetworkAttachmentDefinition. Unset likewise.
        config: Field of the CNI configuration; unset for a driver that runs no CNI plugins.
    """

    parameters: Mapping[str, Any]
    interface: str
    # Unset, not empty: profiles without one keep the content hash that live pods carry.
    name: str | msgspec.UnsetType = msgspec.UNSET
    namespace: str | msgspec.UnsetType = msgspec.UNSET
    config: str | msgspec.UnsetType = msgspec.UNSET


AttributeValue = bool | int | str
ANY_NAME = "*"
"""The wildcard at the end of a resource name."""


class NamedDevices(_Part, frozen=True, kw_only=True):
    """The devices that a legacy resource name means; fields that are not set select nothing.

    Attributes:
        class_name: Their DeviceClass; None for that of the kind.
        where: Attribute to its value on these devices.
        short_name: The attribute whose value is the resource name after the slash.
        full_name: The attribute whose value is the whole resource name; with `short_name`, one of
            the two must match.
        every: The driver gives the devices of a node only all together, whatever their number.
        count_attribute: The attribute with the number of devices of the node; with `every`, it must
            equal the requested number.
        connected: Number of devices to the attribute that is equal on so many connected ones. They
            are preferred; where a driver publishes none, any are accepted.
        variables: The variables that the device plugin sets in containers and the driver does not;
            a finding lists them.
        rejected: The reason no device can be given for the name; a pod that requests it is denied.
        advice: The name or request to write instead, beside `rejected`.
    """

    class_name: str | None = msgspec.field(default=None, name="class")
    where: Mapping[str, AttributeValue] = {}
    short_name: str | None = None
    full_name: str | None = None
    # Unset, not empty: profiles without them keep the content hash that live pods carry.
    every: bool | msgspec.UnsetType = msgspec.UNSET
    count_attribute: str | msgspec.UnsetType = msgspec.UNSET
    connected: (
        Mapping[Annotated[str, msgspec.Meta(pattern="^[1-9][0-9]?$")], str] | msgspec.UnsetType
    ) = msgspec.UNSET
    variables: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    rejected: str | msgspec.UnsetType = msgspec.UNSET
    advice: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def distinguishes_names(self) -> bool:
        """Return True if different names mean different devices."""
        return self.short_name is not None or self.full_name is not None


class DeviceProfile(_Part, frozen=True, kw_only=True):
    """One kind of device of the driver.

    Attributes:
        class_name: The DeviceClass.
        where: Attribute to its value on devices of this kind, which distinguishes kinds in slices.
        lacks: Attributes that devices of this kind do not have; devices with one of them, such as
            partitions, are of another kind.
        sharing: The devices' capability to be allocated to several claims.
        unique: The attribute that is different on each device. A request for several shareable
            devices needs it to get distinct ones.
        attributes: Names to filter by.
        memory: The capacity that represents the device's memory.
        cores: The capacity that represents the device's compute.
        replicas: The capacity of which each consumer takes one, whatever its size.
        mps: The configuration for sharing through an MPS server.
        resources: Legacy resource name to the devices that it means; a name may end in `*`. Of
            several that match, the longest applies.
        labels: Label of Koordinator's Device objects to the attribute with its value, for hints that select
            by labels; unset where none is known.
        virtual_functions: Attribute to its value on virtual functions; unset where none is known.
        compute_units: The capacity that counts the device's compute units, where cards have different numbers
            of them and `cores` says none; a percentage is an amount per published number.
        tflops: The capacity that represents the device's compute in TFLOPS; unset where there is none.
        bandwidth: The capacity of a NIC in bits per second; unset where there is none.
        network: The configuration that names the network of a NIC; unset where there is none.
        class_config: The content, in a few words, that the driver needs in the configuration of the
            class; unset where it needs none. A finding shows it where the class has no
            configuration.
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
    labels: Mapping[str, str] | msgspec.UnsetType = msgspec.UNSET
    virtual_functions: Mapping[str, AttributeValue] | msgspec.UnsetType = msgspec.UNSET
    compute_units: str | msgspec.UnsetType = msgspec.UNSET
    tflops: str | msgspec.UnsetType = msgspec.UNSET
    bandwidth: str | msgspec.UnsetType = msgspec.UNSET
    network: NetworkConfig | msgspec.UnsetType = msgspec.UNSET
    class_config: str | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        """Check that resource names have a `*` only at the end."""
        for name in self.resources or ():
            if ANY_NAME in name.removesuffix(ANY_NAME):
                raise ValueError(f"resources: {name} has a * before its end")

    def find_resource(self, resource: str) -> tuple[str, NamedDevices] | None:
        """Return the longest name that matches a legacy resource, and the devices that it means."""
        resources = self.resources or {}
        if resource in resources:
            return resource, resources[resource]
        patterns = [
            name
            for name in resources
            if name.endswith(ANY_NAME) and resource.startswith(name.removesuffix(ANY_NAME))
        ]
        longest = max(patterns, key=len, default=None)
        return None if longest is None else (longest, resources[longest])

    def class_names(self) -> frozenset[str]:
        """Return the DeviceClasses of this kind, and those of its resource names."""
        of_names = (resource.class_name for resource in (self.resources or {}).values())
        return frozenset((self.class_name, *filter(None, of_names)))


class Profile(_Part, frozen=True, kw_only=True):
    """One driver.

    Attributes:
        driver: Name of the driver, as in its ResourceSlices, which is also the name of the profile.
        claims: The number of claims per pod. pod: one claim with a request per container. container:
            one claim per container, for drivers that prepare a claim equally for all its containers.
            By default pod.
        devices: Kind to the names of its class, attributes and capacities. device is any whole device
            that pods request by a name under resources.
        content_hash: Identifies the content: profiles with equal hashes derive equal claims. It is
            computed when a file is read; a value in the file is ignored.
    """

    driver: str
    claims: Granularity = Granularity.POD
    devices: Mapping[DeviceKind, DeviceProfile]
    content_hash: str = ""

    def __post_init__(self) -> None:
        """Check that there is a kind of device."""
        if not self.devices:
            raise ValueError("devices: at least one kind")

    def resource_names(self) -> tuple[str, ...]:
        """Return the resource names with a domain; one may end in `*`.

        A bare `*` applies to any name, and adds none to a vocabulary.
        """
        return tuple(
            name
            for device in self.devices.values()
            for name in device.resources or ()
            if "/" in name
        )

    def class_names(self) -> frozenset[str]:
        """Return every DeviceClass in the profile."""
        return frozenset().union(*(device.class_names() for device in self.devices.values()))

    def __hash__(self) -> int:
        """Return the hash of the content."""
        return hash(self.content_hash)

    def qualified_name(self, name: str) -> tuple[str, str]:
        """Return domain and identifier of the name of an attribute or capacity.

        Source: resource/v1 QualifiedName: a name without "/" is in the domain of the driver.
        """
        domain, slash, identifier = name.partition("/")
        return (domain, identifier) if slash else (self.driver, name)


def profile_of(document: object) -> Profile:
    """Return the profile in a parsed document, with its content hash.

    Raises:
        UnknownFieldError: It has a field that no profile has.
        ValueError: It is not a profile; the message names the field.
    """
    try:
        blank = msgspec.structs.replace(msgspec.convert(document, Profile), content_hash="")
        content = canonical_content(blank)
    except _PARSER_ERRORS as fault:
        unknown_field = find_unknown_field(document, Profile)
        raise (unknown_field or ValueError(" ".join(str(fault).split()))) from fault
    return msgspec.structs.replace(blank, content_hash=content_hash(content))


def canonical_content(profile: Profile) -> bytes:
    """Return the content of a profile as JSON: equal for equal profiles, however they are written."""
    return msgspec.json.encode(msgspec.structs.replace(profile, content_hash=""), order="sorted")


def content_hash(content: bytes) -> str:
    """Return the hash of a canonical content; pods name a version of a profile by it."""
    return sha256(content).hexdigest()[:HASH_LENGTH]


def parse_profile(
    text: bytes | str, source: str, load: Callable[[bytes | str], Any] | None = None
) -> Profile:
    """Parse a profile from YAML.

    Args:
        source: The name of the text in messages.
        load: Parses YAML; None for the library's safe loader, with which texts of ours are read.

    Raises:
        ConfigError: The text is not a profile; the message names source and field.
    """
    try:
        return profile_of((load or yaml.safe_load)(text))
    except yaml.MarkedYAMLError as fault:
        where = fault.problem_mark
        line = f"line {where.line + 1}: " if where is not None else ""
        raise _invalid_profile(source, f"{line}{fault.problem}") from fault
    except _PARSER_ERRORS as fault:
        raise _invalid_profile(source, str(fault)) from fault


def _invalid_profile(source: str, fault: str) -> ConfigError:
    return ConfigError(f"{source}: not a driver profile: {' '.join(fault.split())}")


def put_at(document: Any, path: str, value: object) -> None:
    """Set a value at a dotted path of parameters."""
    *parents, last = path.split(".")
    for parent in parents:
        document = document.setdefault(parent, {})
    document[last] = value
