"""The drivers whose profiles serve a legacy resource name."""

from collections.abc import Mapping

from translation.profiles.profile import Profile
from translation.routing import GPUS, OWN_DRIVER
from translation.snapshot import TranslationOptions, vocabularies_in_force


def serving_drivers(
    resource: str, options: TranslationOptions, profiles: Mapping[str, Profile]
) -> frozenset[str]:
    """Return the drivers that serve a resource name, whichever vocabulary owns it in a pod."""
    if resource in options.drivers:
        return frozenset({options.drivers[resource]})
    vocabularies = vocabularies_in_force(options, profiles)
    names = {name for name, vocabulary in vocabularies.items() if vocabulary.handles(resource)}
    routed = (names & GPUS & options.profiles.keys()) - options.fixed
    return frozenset(
        {
            *(options.profiles[name] for name in names if name in options.profiles),
            *((OWN_DRIVER,) if routed and OWN_DRIVER in profiles else ()),
        }
    )
