"""The whole state of a cluster as documents, for commands about a migration. Reads files."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from answers.model.findings import DEFAULT_NAMESPACE
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from answers.model.profiles import profiles_in_force
from answers.model.snapshot_kinds import ALL_KINDS
from answers.model.snapshot_origin import find_origin, unread_kinds
from answers.model.unread import unread_notes
from cli.flags.cluster_flags import LIVE_KUBECONFIG_FLAGS, PROFILES_FLAG, SNAPSHOT_FLAG, add_flags
from cli.flags.completion import FILE_NAME
from cli.flags.plugin import is_plugin
from cli.output.standard_error import print_line
from cli.reading.live_snapshot import LiveSnapshot, read_snapshot
from cli.reading.options import NO_CLUSTER, translation_options
from cli.reading.settings import SharedSettings, read_settings_text, settings_of
from kube.client.client import Client
from kube.manifests.reader import read_paths
from kube.manifests.source import SourceObject
from process.profiles.profile_files import load_profiles
from translation.cluster.snapshot import TranslationOptions
from translation.profiles.profile import Profile

_MOST_NOTES: Final = 3
"""Unreadable resources with a line each: their reasons differ by the names only."""

_MOST_FAULTS: Final = 10
"""Wrong values of a file with a line each: what a converter writes is wrong in each object."""


class ClusterDocuments(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, and the settings that would translate it.

    Attributes:
        version: The API server's version; empty when it is not known.
        unreadable: Resources that could not be read.
        profiles: Driver to profile.
        gates: Feature gates that the settings name, which the cluster has so.
        server: The address of the API server; empty when it is not known.
        settings: Content of the settings file; None without one.
        profile_directory: The directory of profile files; None without one.
        context: The kubeconfig's context of the cluster; empty where it is not known.
        taken_at: The time of its state in RFC 3339; empty where it is not known.
    """

    objects: tuple[SourceObject, ...]
    version: str
    unreadable: tuple[str, ...]
    profiles: Mapping[str, Profile]
    options: TranslationOptions
    gates: Mapping[str, bool] = {}
    server: str = ""
    settings: bytes | None = None
    profile_directory: Path | None = None
    context: str = ""
    taken_at: str = ""


class DocumentFlags(msgspec.Struct, frozen=True, kw_only=True):
    """The flags that name a cluster and its settings, as they were given."""

    snapshots: tuple[str, ...]
    live: bool
    kubeconfig: str | None
    context: str | None
    profile_directory: Path | None
    settings: str | None


_Command = Callable[..., Any]
PROFILE_FLAGS: Final = (
    PROFILES_FLAG,
    click.option(
        "--settings",
        type=FILE_NAME,
        metavar="FILE",
        help="Settings file of the cluster's processes.",
    ),
)
CLUSTER_DOCUMENT_FLAGS: Final = (
    SNAPSHOT_FLAG,
    click.option(
        "--live",
        is_flag=True,
        help="Read the kubeconfig's cluster; the default of kubectl drawbridge.",
    ),
    *LIVE_KUBECONFIG_FLAGS,
    *PROFILE_FLAGS,
)


def with_documents(
    start_progress: Callable[[], Callable[[int], None]],
) -> Callable[[_Command], _Command]:
    """Give a command flags for a cluster and its settings; call it with `documents`.

    Args:
        start_progress: Returns what is called with the number of objects that were read, when
            reading from a live cluster begins.
    """

    def decorate(command: _Command) -> _Command:
        @wraps(command)
        def called(
            *,
            snapshots: tuple[str, ...],
            live: bool,
            kubeconfig: str | None,
            context: str | None,
            profile_directory: Path | None,
            settings: str | None,
            **values: Any,
        ) -> None:
            flags = DocumentFlags(
                snapshots=snapshots,
                live=live,
                kubeconfig=kubeconfig,
                context=context,
                profile_directory=profile_directory,
                settings=settings,
            )
            command(documents=read_documents(flags, start_progress), **values)

        return add_flags(called, CLUSTER_DOCUMENT_FLAGS)

    return decorate


def read_documents(
    flags: DocumentFlags,
    start_progress: Callable[[], Callable[[int], None]],
    kinds: Collection[str] = ALL_KINDS,
) -> ClusterDocuments:
    """Read the cluster that the flags name.

    Args:
        flags: The flags as they were given.
        start_progress: The argument of `with_documents`.
        kinds: The kinds to be read from a live cluster.

    Raises:
        click.UsageError: The flags name no cluster, or contradict each other.
        DrawbridgeError: A file or the cluster cannot be read.
    """
    if flags.live and flags.snapshots:
        raise click.UsageError("--live and --snapshot are mutually exclusive.")
    is_live = reads_live(flags)
    if not is_live and not flags.snapshots:
        raise click.UsageError(NO_CLUSTER)
    if not is_live and (flags.kubeconfig or flags.context):
        raise click.UsageError("--kubeconfig and --context require --live.")
    files = load_profiles(flags.profile_directory)
    settings, shared_settings = _read_settings(flags.settings)
    options = translation_options((), files, shared_settings, others_may_come=True)
    if is_live:
        state = asyncio.run(_read_live(flags, start_progress(), kinds))
        documents = _of_cluster(state, files, options)
    else:
        documents = _of_files(flags.snapshots, files, options)
    in_force = profiles_in_force(files, documents.objects)
    for note in in_force.notes:
        print_line(f"note: {note}")
    return msgspec.structs.replace(
        documents,
        profiles=in_force.profiles,
        options=translation_options((), in_force.profiles, shared_settings),
        gates=shared_settings.validation.feature_gates,
        settings=settings,
        profile_directory=flags.profile_directory,
    )


def _read_settings(path: str | None) -> tuple[bytes | None, SharedSettings]:
    """Return a settings file as text and as settings; a pipe can be read only once."""
    if path is None:
        return None, SharedSettings()
    text = read_settings_text(path)
    return text, settings_of(text, path)


def reads_live(flags: DocumentFlags) -> bool:
    """Return True if the cluster is the kubeconfig's."""
    return flags.live or (is_plugin() and not flags.snapshots)


async def _read_live(
    flags: DocumentFlags, progress: Callable[[int], None], kinds: Collection[str]
) -> LiveSnapshot:
    async with await Client.from_kubeconfig(flags.kubeconfig, flags.context) as client:
        return await read_snapshot(client, progress, kinds)


def print_unreadable(state: LiveSnapshot) -> None:
    """Print on standard error the resources that the user may not list, many in one line."""
    missing = state.unreadable
    if len(missing) > _MOST_NOTES:
        names = ", ".join(entry.resource for entry in missing)
        note = f"note: {len(missing)} resources cannot be read, and are left out: {names}: {missing[0].reason}"
        print_line(note)
        return
    for entry in missing:
        note = f"note: {entry.resource} cannot be read, and are left out: {entry.reason}"
        print_line(note)


def _of_cluster(
    state: LiveSnapshot, profiles: Mapping[str, Profile], options: TranslationOptions
) -> ClusterDocuments:
    print_unreadable(state)
    return ClusterDocuments(
        objects=tuple(
            SourceObject(document=dict(item), source="the cluster", line=0) for item in state.items
        ),
        version=state.version,
        server=state.server,
        unreadable=tuple(missing.resource for missing in state.unreadable),
        profiles=profiles,
        options=options,
        context=state.context,
        taken_at=state.read_at,
    )


def _of_files(
    paths: Sequence[str], profiles: Mapping[str, Profile], options: TranslationOptions
) -> ClusterDocuments:
    """Return the objects of files, and the facts that a snapshot records about its cluster."""
    objects = read_paths(paths)
    origin = find_origin(objects)
    missing = unread_kinds(origin, objects, [("", kind) for kind in ALL_KINDS])
    for note in unread_notes(missing):
        print_line(f"note: {note}")
    _print_left_out(objects)
    return ClusterDocuments(
        objects=tuple(objects),
        version=origin.kubernetes_version,
        server=origin.server,
        unreadable=origin.unreadable,
        profiles=profiles,
        options=options,
        context=origin.context,
        taken_at=origin.taken_at,
    )


def _print_left_out(objects: Collection[SourceObject]) -> None:
    """Print the wrong values of objects in files: no API server stores them, and they are left out."""
    _, faults = decode_objects(objects, STATE_KINDS, DEFAULT_NAMESPACE)
    for fault in faults[:_MOST_FAULTS]:
        print_line(fault.line())
    if faults:
        names = {fault.object for fault in faults}
        print_line(f"note: objects with wrong values are left out: {len(names)}")
