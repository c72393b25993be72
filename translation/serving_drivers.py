"""The drivers whose profiles serve a legacy resource name."""

from collections.abc import Mapping

from translation.profiles.profile import Profile
from translation.snapshot import TranslationOptions, vocabularies_in_force


def serving_drivers(
    resource: str, options: TranslationOptions, profiles: Mapping[str, Profile]
) -> frozenset[str]:
    """Return the drivers that serve a resource name, whichever vocabulary owns it in a pod."""
    return frozenset(
        options.profiles[name]
        for name, vocabulary in vocabularies_in_force(options, profiles).items()
        if name in options.profiles and vocabulary.handles(resource)
    )
