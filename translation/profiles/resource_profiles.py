"""The profiles that serve the vocabulary `resources`: the driver that has the devices of a name.

Every profile with devices of kind `device` serves the names that it lists. Where several list one, the
driver that the options choose for the vocabulary precedes, then the first in the order of names.
"""

from collections.abc import Iterable, Iterator, Mapping

from findings.finding import Code, Finding, error
from findings.text import printable
from kube.collections.latest import keep_latest
from translation.model.intents import DeviceKind, Intent
from translation.profiles.profile import DeviceProfile, Profile
from translation.vocabularies.resources import NAME as RESOURCES

_SEPARATOR = " "
"""The separator of vocabulary and driver in a provider's name; neither contains one."""


@keep_latest
def resource_profiles(
    profiles: Mapping[str, Profile], drivers_by_vocabulary: Mapping[str, str]
) -> tuple[Profile, ...]:
    """Return the profiles that serve resource names, in the order of precedence.

    Args:
        profiles: Driver to profile.
        drivers_by_vocabulary: Vocabulary to driver, as the options have it.
    """
    preferred_driver = drivers_by_vocabulary.get(RESOURCES)
    serving = [profile for profile in profiles.values() if DeviceKind.DEVICE in profile.devices]
    return tuple(
        sorted(serving, key=lambda profile: (profile.driver != preferred_driver, profile.driver))
    )


def resource_profile(resource: str, serving: Iterable[Profile]) -> Profile | None:
    """Return the first profile that has devices of a name; None if no profile has any."""
    return next(
        (
            profile
            for profile in serving
            if profile.devices[DeviceKind.DEVICE].find_resource(resource) is not None
        ),
        None,
    )


def names_for(vocabulary: str, profile: Profile) -> tuple[str, ...]:
    """Return the resource names that a profile adds to a vocabulary."""
    if vocabulary != RESOURCES:
        return profile.resource_names()
    device = profile.devices.get(DeviceKind.DEVICE)
    return () if device is None else tuple(name for name in device.resources or () if "/" in name)


def served_keys(keys: frozenset[str], vocabulary: str, profile: Profile) -> frozenset[str]:
    """Return those of a vocabulary's keys that one of its profiles serves."""
    device = profile.devices.get(DeviceKind.DEVICE)
    if vocabulary != RESOURCES or device is None:
        return keys
    return frozenset(key for key in keys if device.find_resource(key) is not None)


def has_devices_of(device: DeviceProfile, intent: Intent) -> bool:
    """Return True if an intent's resource name, of any vendor, stands for a kind of device."""
    resource = intent.filter.resource
    return (
        intent.kind is not DeviceKind.DEVICE
        or resource is None
        or device.find_resource(resource) is not None
    )


def check_rejected(intents: Iterable[Intent], profile: Profile) -> Iterator[Finding]:
    """Yield an error for each name that a profile rejects, with its reason."""
    for intent in intents:
        resource = intent.filter.resource
        match = (
            profile.devices[intent.kind].find_resource(resource) if resource is not None else None
        )
        if match is not None and isinstance(match[1].rejected, str):
            yield error(
                Code.CANNOT_EXPRESS,
                intent.path("count"),
                f"{printable(resource or '')} {match[1].rejected}",
                match[1].advice if isinstance(match[1].advice, str) else "",
            )


def resource_providers(
    intents: Iterable[Intent], serving: Iterable[Profile]
) -> Mapping[str, Profile]:
    """Return the name of a provider to its profile, for every intent that a profile serves.

    The first has the name of the vocabulary, as any provider has.

    Args:
        serving: The serving profiles in the order of precedence.
    """
    used: dict[str, Profile] = {}
    providers = tuple(serving)
    for intent in intents:
        profile = resource_profile(intent.filter.resource or "", providers)
        if profile is not None and profile not in used.values():
            used[provider_name(RESOURCES, profile.driver, used)] = profile
    return used


def provider_name(
    vocabulary: str, driver: str, profiles_by_vocabulary: Mapping[str, Profile]
) -> str:
    """Return the name of a further provider: the vocabulary's, or with the driver if it is taken."""
    return (
        vocabulary
        if vocabulary not in profiles_by_vocabulary
        else f"{vocabulary}{_SEPARATOR}{driver}"
    )


def vocabulary_of(provider: str) -> str:
    """Return the vocabulary that a provider serves.

    >>> vocabulary_of("resources gpu.amd.com"), vocabulary_of("hami")
    ('resources', 'hami')
    """
    return provider.partition(_SEPARATOR)[0]
