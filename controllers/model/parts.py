"""The parts of one leadership that the controllers share."""

from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from controllers.model.settings import Settings
from kube.client.client import Client
from kube.runtime.events import EventRecorder
from kube.runtime.informers import InformerFactory
from process.profiles.published_profiles import ProfileCache
from translation.cluster.snapshot import TranslationOptions, vocabularies_in_force
from translation.model.intents import Vocabulary
from translation.profiles.profile import Profile


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one leadership.

    Attributes:
        client: The client of the API server.
        informers: The watches of the cluster.
        recorder: The events of the controllers.
        settings: The settings of the process.
        files: Driver to profile, of the package and of files.
        options: The options of the translation.
        profiles: The profiles in force.
        now: The wall clock.
    """

    client: Client
    informers: InformerFactory
    recorder: EventRecorder
    settings: Settings
    files: Mapping[str, Profile]
    options: TranslationOptions
    profiles: ProfileCache
    now: Callable[[], datetime]

    def vocabularies(self) -> Mapping[str, Vocabulary]:
        """Return the vocabularies, extended by the resource names in the profiles in force."""
        return vocabularies_in_force(self.options, self.profiles.profiles)
