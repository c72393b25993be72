"""The drivers with profiles that serve a legacy resource name."""

from collections.abc import Mapping

from translation.cluster.routing import GPUS, OWN_DRIVER
from translation.cluster.snapshot import TranslationOptions, vocabularies_in_force
from translation.profiles.profile import Profile
from translation.profiles.resource_profiles import resource_profile, resource_profiles
from translation.vocabularies.resources import NAME as RESOURCES


def serving_drivers(
    resource: str, options: TranslationOptions, profiles: Mapping[str, Profile]
) -> frozenset[str]:
    """Return the drivers that serve a resource name, for any vocabulary that owns it in a pod."""
    if resource in options.drivers:
        return frozenset({options.drivers[resource]})
    vocabularies = vocabularies_in_force(options, profiles)
    names = {name for name, vocabulary in vocabularies.items() if vocabulary.handles(resource)}
    routed_names = (names & GPUS & options.profiles.keys()) - options.fixed
    serving = resource_profiles(profiles, options.profiles) if RESOURCES in names else ()
    of_any_vendor = resource_profile(resource, serving)
    return frozenset(
        {
            *(options.profiles[name] for name in names - {RESOURCES} if name in options.profiles),
            *((OWN_DRIVER,) if routed_names and OWN_DRIVER in profiles else ()),
            *((of_any_vendor.driver,) if of_any_vendor is not None else ()),
        }
    )
