"""The faults of a DeviceTranslationProfile by itself: one function per fault, in one table.

The webhook, `drawbridge check` and the controllers use the same table. What depends on the cluster is
in `translation.cluster.profile_conflicts`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error
from findings.text import printable, quote_text
from translation.model.intents import DeviceKind
from translation.profiles.names import (
    MAX_DEPTH,
    MAX_DRIVER,
    MAX_ENTRIES,
    MAX_PROFILE_BYTES,
    MAX_RESOURCES,
    MAX_TEXT,
    MAX_VALUE,
    is_qualified_name,
    is_subdomain,
    name_fault,
)
from translation.profiles.profile import (
    ANY_NAME,
    AttributeValue,
    DeviceProfile,
    NamedDevices,
    Profile,
    canonical_content,
    profile_of,
)
from translation.profiles.unknown_fields import UnknownFieldError

SPEC: Final = FieldPath.of("spec")
MAX_FAULT: Final = 512
"""Characters of a parser's message, which may quote the object."""


class NamedProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A profile, and the name of its object."""

    name: str
    profile: Profile


def check_name(named_profile: NamedProfile) -> Iterator[Finding]:
    """Yield an error for an object that is not named after its driver."""
    if named_profile.name and named_profile.name != named_profile.profile.driver:
        yield error(
            Code.INVALID_PROFILE,
            SPEC.child("driver"),
            f"the object is named {quote_text(named_profile.name)}, and its driver is "
            f"{quote_text(named_profile.profile.driver)}",
            "name the object after its driver, so that there is one for each",
        )


_OTHER_TEXTS: Final = frozenset({"class_name", "class_config", "sharing"})
"""Fields of a kind of device whose text is not the name of an attribute or a capacity."""


def check_identifiers(named_profile: NamedProfile) -> Iterator[Finding]:
    """Yield an error for each name of a driver, class, attribute or capacity that is none.

    The API server would reject the claims; and the names of attributes are put into CEL.
    """
    profile = named_profile.profile
    if not is_subdomain(profile.driver, MAX_DRIVER):
        yield _invalid(SPEC.child("driver"), profile.driver, "is not the name of a driver")
    for kind, device in profile.devices.items():
        path = SPEC.child("devices", kind.value)
        yield from _check_classes(device, path)
        for place, name in (*_device_names(device, path), *_resource_names(device, path)):
            if not is_qualified_name(name):
                yield _invalid(place, name, "is not the name of an attribute or a capacity")


def _check_classes(device: DeviceProfile, path: FieldPath) -> Iterator[Finding]:
    classes = [(path.child("class"), device.class_name)]
    for name, devices in (device.resources or {}).items():
        if devices.class_name is not None:
            classes.append((path.child("resources").key(name).child("class"), devices.class_name))
    for place, class_name in classes:
        if not is_subdomain(class_name):
            yield _invalid(place, class_name, "is not the name of a DeviceClass")


def _device_names(device: DeviceProfile, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    """Yield the names of attributes and capacities of a kind of device, but those of `resources`."""
    for name in device.where:
        yield path.child("where").key(name), name
    for label, name in (device.labels or {}).items():
        yield path.child("labels").key(label), name
    for name in device.virtual_functions or ():
        yield path.child("virtualFunctions").key(name), name
    for index, name in enumerate(device.lacks):
        yield path.child("lacks", index), name
    for field in msgspec.structs.fields(device.attributes):
        attribute = getattr(device.attributes, field.name)
        if isinstance(attribute, str):
            yield path.child("attributes", field.encode_name), attribute
    for field in msgspec.structs.fields(device):
        text = getattr(device, field.name)
        if isinstance(text, str) and field.name not in _OTHER_TEXTS:
            yield path.child(field.encode_name), text
    if device.cores is not None:
        yield path.child("cores", "capacity"), device.cores.capacity


def _resource_names(device: DeviceProfile, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    """Yield the names of attributes in the `resources` of a kind of device."""
    for resource, devices in (device.resources or {}).items():
        place = path.child("resources").key(resource)
        for name in devices.where:
            yield place.child("where").key(name), name
        for field_name, encode_name in (
            ("short_name", "shortName"),
            ("full_name", "fullName"),
            ("count_attribute", "countAttribute"),
        ):
            text = getattr(devices, field_name)
            if isinstance(text, str):
                yield place.child(encode_name), text
        for number, name in (devices.connected or {}).items():
            yield place.child("connected").key(number), name


def check_values(named_profile: NamedProfile) -> Iterator[Finding]:
    """Yield an error for each value that no attribute can have, and for texts that nobody could read."""
    for kind, device in named_profile.profile.devices.items():
        path = SPEC.child("devices", kind.value)
        yield from _check_where(device.where, path.child("where"))
        yield from _check_where(device.labels or {}, path.child("labels"))
        yield from _check_where(device.virtual_functions or {}, path.child("virtualFunctions"))
        texts: list[tuple[FieldPath, object]] = [(path.child("classConfig"), device.class_config)]
        for name, devices in (device.resources or {}).items():
            place = path.child("resources").key(name)
            yield from _check_where(devices.where, place.child("where"))
            texts += _texts(devices, place)
        for text_place, text in texts:
            if isinstance(text, str) and (len(text) > MAX_TEXT or not text.isprintable()):
                fault = f"is not one line of at most {MAX_TEXT} printable characters"
                yield _invalid(text_place, text, fault)


def _check_where(where: Mapping[str, AttributeValue], path: FieldPath) -> Iterator[Finding]:
    if len(where) > MAX_ENTRIES:
        message = f"has {len(where)} attributes; at most {MAX_ENTRIES}"
        yield error(Code.PROFILE_TOO_LARGE, path, message, "select by a DeviceClass of your own")
    for name, value in where.items():
        if isinstance(value, str) and len(value) > MAX_VALUE:
            fault = f"is longer than the {MAX_VALUE} characters of an attribute"
            yield _invalid(path.key(name), value, fault)
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            yield _invalid(path.key(name), str(value)[:MAX_VALUE], "is not an integer of 64 bits")


def _texts(devices: NamedDevices, path: FieldPath) -> list[tuple[FieldPath, object]]:
    variables = devices.variables or ()
    return [
        (path.child("rejected"), devices.rejected),
        (path.child("advice"), devices.advice),
        *((path.child("variables", index), text) for index, text in enumerate(variables)),
    ]


def check_parameters(named_profile: NamedProfile) -> Iterator[Finding]:
    """Yield an error for opaque parameters that nest too deep for those that read claims."""
    for kind, device in named_profile.profile.devices.items():
        path = SPEC.child("devices", kind.value)
        mps = device.mps.parameters if device.mps is not None else {}
        network = {} if isinstance(device.network, msgspec.UnsetType) else device.network.parameters
        for field_name, parameters in (("mps", mps), ("network", network)):
            if _is_deeper(parameters, MAX_DEPTH):
                yield error(
                    Code.PROFILE_TOO_LARGE,
                    path.child(field_name, "parameters"),
                    f"nests deeper than {MAX_DEPTH} levels",
                    "write the parameters that the driver documents",
                )


def _is_deeper(value: object, levels: int) -> bool:
    match value:
        case dict():
            return not levels or any(_is_deeper(inner, levels - 1) for inner in value.values())
        case list():
            return not levels or any(_is_deeper(inner, levels - 1) for inner in value)
        case _:
            return False


def _invalid(path: FieldPath, text: str, fault: str) -> Finding:
    fix = "write it as the driver publishes it"
    return error(Code.INVALID_PROFILE, path, f"{quote_text(text)} {fault}", fix)


def check_resource_names(named_profile: NamedProfile) -> Iterator[Finding]:
    """Yield an error for each resource name that no device plugin could have.

    NICs may have names that only mean something beside those of their vocabulary, such as `*`.
    """
    for kind, device in named_profile.profile.devices.items():
        for name in device.resources or ():
            fault = None if _is_relative(name, kind) else name_fault(name)
            if fault is not None:
                yield error(
                    Code.INVALID_PROFILE,
                    SPEC.child("devices", kind.value, "resources").key(name),
                    f"{quote_text(name)} {fault}",
                    "list the name as pods request it",
                )


def _is_relative(name: str, kind: DeviceKind) -> bool:
    """Return True if a name is looked up among the keys that a vocabulary has, and adds none."""
    return kind is not DeviceKind.DEVICE and name == ANY_NAME


def check_advice(named_profile: NamedProfile) -> Iterator[Finding]:
    """Yield an error for advice on a name that is not rejected."""
    for kind, device in named_profile.profile.devices.items():
        for name, devices in (device.resources or {}).items():
            if isinstance(devices.advice, str) and not isinstance(devices.rejected, str):
                yield error(
                    Code.INVALID_PROFILE,
                    SPEC.child("devices", kind.value, "resources").key(name).child("advice"),
                    "is read only beside rejected",
                    "say in rejected why no device can be given, or remove advice",
                )


def check_size(named_profile: NamedProfile) -> Iterator[Finding]:
    """Yield an error for a profile that is larger than processes keep."""
    size = len(canonical_content(named_profile.profile))
    if size > MAX_PROFILE_BYTES:
        yield error(
            Code.PROFILE_TOO_LARGE,
            SPEC,
            f"has {size} bytes as JSON; at most {MAX_PROFILE_BYTES}",
            "list resource names that begin alike as one that ends in *",
        )
    for kind, device in named_profile.profile.devices.items():
        number = len(device.resources or ())
        if number > MAX_RESOURCES:
            yield error(
                Code.PROFILE_TOO_LARGE,
                SPEC.child("devices", kind.value, "resources"),
                f"has {number} names; at most {MAX_RESOURCES}",
                "list resource names that begin alike as one that ends in *",
            )


CHECKS: Final[tuple[Callable[[NamedProfile], Iterator[Finding]], ...]] = (
    check_name,
    check_identifiers,
    check_values,
    check_parameters,
    check_resource_names,
    check_advice,
    check_size,
)
"""The checks in the order of findings."""


def check_spec(name: str, spec: Mapping[str, Any]) -> tuple[Profile | None, tuple[Finding, ...]]:
    """Return the profile in the spec of an object, and the findings about it.

    Args:
        name: The object's name; empty if it is not known.
    """
    try:
        profile = profile_of(spec)
    except UnknownFieldError as fault:
        return None, (_no_profile(SPEC.join(fault.path), fault.message),)
    except ValueError as fault:
        return None, (_no_profile(SPEC, printable(str(fault))[:MAX_FAULT]),)
    named_profile = NamedProfile(name=name, profile=profile)
    return profile, tuple(finding for check in CHECKS for finding in check(named_profile))


def _no_profile(path: FieldPath, fault: str) -> Finding:
    message = f"is not a driver profile: {fault}"
    return error(Code.INVALID_PROFILE, path, message, "docs/profiles.md has every field")
