"""The second step of a translation: the profile of the driver that serves each vocabulary."""

from collections.abc import Mapping

import msgspec

from findings.finding import Finding
from translation.cluster.routing import RoutedPod, check_key_drivers, route
from translation.model.intents import Intent
from translation.pipeline.read import PodReading
from translation.profiles.profile import Profile
from translation.profiles.resource_profiles import resource_profiles, resource_providers
from translation.record.derive import serves
from translation.vocabularies.resources import NAME as RESOURCES


class Routing(msgspec.Struct, frozen=True, kw_only=True):
    """The drivers that serve a pod.

    Attributes:
        providers: Vocabulary name to profile, for the owners and for their fallback providers.
        findings: The findings about keys of one vocabulary that the settings give to several drivers.
    """

    providers: Mapping[str, Profile]
    findings: tuple[Finding, ...]


def route_pod(reading: PodReading) -> Routing:
    """Choose the driver that serves each vocabulary of a pod."""
    pod = RoutedPod(
        legacy=reading.legacy,
        owned=reading.owned_keys,
        readings=reading.readings,
        snapshot=reading.snapshot,
        options=reading.options,
    )
    return Routing(providers=_providers(pod), findings=tuple(check_key_drivers(pod)))


def _providers(pod: RoutedPod) -> Mapping[str, Profile]:
    """Return vocabulary name to profile, for the owners and for their fallback providers.

    HAMi's modes mig and mps are served by the profile of the device plugin's vocabulary, and
    Koordinator's NICs by the profile of the RDMA vocabulary.
    """
    drivers = {**pod.options.profiles, **route(pod)}
    profiles = pod.snapshot.profiles
    # In the order of the owners, which the record keeps: it decides whose key a shared one is.
    own: dict[str, Profile] = {}
    for name, reading in pod.readings.items():
        if name == RESOURCES:
            serving = resource_profiles(profiles, drivers)
            own.update(resource_providers(reading.intents, serving))
        elif name in drivers and drivers[name] in profiles:
            own[name] = profiles[drivers[name]]
    unserved_intents = [
        intent
        for vocabulary, reading in pod.readings.items()
        for intent in reading.intents
        if vocabulary in own and vocabulary != RESOURCES and not serves(own[vocabulary], intent)
    ]
    if not unserved_intents:
        return own
    configured_profiles = {
        name: profiles[driver] for name, driver in drivers.items() if driver in profiles
    }
    fallbacks = {
        _fallback_provider(intent, configured_profiles, own) for intent in unserved_intents
    }
    return own | {
        name: configured_profiles[name] for name in configured_profiles if name in fallbacks
    }


def _fallback_provider(
    intent: Intent, configured_profiles: Mapping[str, Profile], own: Mapping[str, Profile]
) -> str | None:
    """Return the vocabulary with a profile that serves an intent; another owner's first."""
    # Profiles of resource names serve nothing else.
    first = [name for name in own if name in configured_profiles]
    names = (*first, *(name for name in configured_profiles if name not in own))
    return next((name for name in names if serves(configured_profiles[name], intent)), None)
