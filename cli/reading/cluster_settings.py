"""The settings of a cluster's processes and its profiles, for commands that read its objects. Reads files."""

import asyncio
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from answers.model.objects import InputObject
from answers.model.profiles import InForce, profiles_in_force
from cli.flags.cluster_flags import add_flags
from cli.output.standard_error import print_notes
from cli.reading.cluster_documents import PROFILE_FLAGS
from cli.reading.options import translation_options
from cli.reading.settings import SharedSettings, read_settings
from process.profiles.profile_files import load_profiles
from translation.cluster.snapshot import TranslationOptions

if TYPE_CHECKING:
    from cli.reading.live import LiveSettings

_Command = Callable[..., Any]


class ClusterTranslation(NamedTuple):
    """The options and profiles for the translation of a cluster's pods."""

    options: TranslationOptions
    in_force: InForce


class SettingsFlags(msgspec.Struct, frozen=True, kw_only=True):
    """The flags that name settings, profiles and a kubeconfig, as they were given."""

    settings: str | None
    profile_directory: Path | None
    kubeconfig: str | None
    context: str | None

    def read(self, objects: Iterable[InputObject], *, is_live: bool) -> ClusterTranslation:
        """Return the options and profiles for the translation of the cluster's pods.

        Args:
            objects: The cluster's objects, profiles among them.
            is_live: True to use the settings of the kubeconfig's cluster if no file is given.

        Raises:
            DrawbridgeError: A file or the cluster cannot be read, or the settings make no sense.
        """
        shared_settings = SharedSettings()
        if self.settings is not None:
            shared_settings = read_settings(self.settings)
        elif is_live:
            live = asyncio.run(self._read_live())
            shared_settings = live.settings
            print_notes(live.notes)
        in_force = profiles_in_force(load_profiles(self.profile_directory), objects)
        options = translation_options((), in_force.profiles, shared_settings)
        return ClusterTranslation(options, in_force)

    async def _read_live(self) -> "LiveSettings":
        # The client takes twice as long to import as all the rest.
        from cli.reading.live import find_settings  # noqa: PLC0415
        from kube.client.client import Client  # noqa: PLC0415

        async with await Client.from_kubeconfig(self.kubeconfig, self.context) as client:
            return await find_settings(client)


def with_settings(command: _Command) -> _Command:
    """Give a command that has flags for a cluster those for settings; call it with `settings_flags`."""

    @wraps(command)
    def run_command(
        *,
        settings: str | None,
        profile_directory: Path | None,
        kubeconfig: str | None,
        context: str | None,
        **values: Any,
    ) -> None:
        flags = SettingsFlags(
            settings=settings,
            profile_directory=profile_directory,
            kubeconfig=kubeconfig,
            context=context,
        )
        command(kubeconfig=kubeconfig, context=context, settings_flags=flags, **values)

    return add_flags(run_command, PROFILE_FLAGS)
