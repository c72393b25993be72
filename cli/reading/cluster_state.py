"""The state of the cluster that flags name: its objects, from snapshots or live. Reads files."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from answers.model.findings import DEFAULT_NAMESPACE, namespace_of
from answers.model.kinds import KINDS, STATE_KINDS, Kinds
from answers.model.objects import InputObject
from answers.model.pod_owners import FailedCreation
from answers.model.snapshot_origin import unread_kinds
from answers.model.unread import UnreadKind
from cli.output.standard_error import print_notes
from cli.reading.settings import SharedSettings, read_settings
from cli.reading.snapshots import read_snapshots
from kube.manifests.source import SourceObject

if TYPE_CHECKING:
    from cli.reading.live import LiveSettings


class Scope(Enum):
    """The part of a cluster's state that a command depends on."""

    TRANSLATION = auto()
    ALLOCATION = auto()

    @property
    def kinds(self) -> Kinds:
        """The kinds to read, as a mapping from (apiVersion, kind) to the kind's view."""
        return KINDS if self is Scope.TRANSLATION else STATE_KINDS


class ClusterFlags(msgspec.Struct, frozen=True, kw_only=True):
    """The flags that name objects and a cluster, as they were given."""

    files: tuple[str, ...]
    recursive: bool = False
    exclude: tuple[str, ...] | None = None
    snapshots: tuple[str, ...]
    live: bool
    offline: bool = False
    kubeconfig: str | None
    context: str | None
    namespace: str | None = None


class ReadState(NamedTuple):
    """The state of a cluster: its objects and version, unread kinds, the namespace and its failures."""

    namespace: str
    objects: list[InputObject] | None = None
    unread: Sequence[UnreadKind] = ()
    kubernetes: str = ""
    failed_creations: Sequence[FailedCreation] = ()


def read_state(
    flags: ClusterFlags,
    manifests: Iterable[SourceObject],
    scope: Scope,
    *,
    with_creations: bool = False,
) -> ReadState:
    """Return the state of a cluster; without objects if the flags name no cluster.

    Args:
        manifests: Objects in whose namespaces the cluster is read, too.
        with_creations: Read what keeps pods of the namespace from being created, too.
    """
    namespace = flags.namespace or DEFAULT_NAMESPACE
    if flags.live:
        return asyncio.run(_read_live(flags, manifests, scope, with_creations=with_creations))
    if flags.snapshots:
        objects, origin = read_snapshots(flags.snapshots, scope.kinds)
        unread = unread_kinds(origin, objects, scope.kinds)
        return ReadState(namespace, objects, unread, origin.kubernetes_version)
    return ReadState(namespace)


async def _read_live(
    flags: ClusterFlags,
    manifests: Iterable[SourceObject],
    scope: Scope,
    *,
    with_creations: bool,
) -> ReadState:
    # The client takes twice as long to import as all the rest, and files are the usual case.
    from cli.reading.live import allocation_state, cluster_state, creation_state  # noqa: PLC0415
    from kube.client.client import Client  # noqa: PLC0415
    from kube.errors import Forbidden, NotFound  # noqa: PLC0415

    async with await Client.from_kubeconfig(flags.kubeconfig, flags.context) as client:
        namespace = flags.namespace or client.namespace or DEFAULT_NAMESPACE
        namespaces = {namespace_of(manifest, namespace) for manifest in manifests} - {""}
        state: list[InputObject] = []
        version = ""
        failures: list[FailedCreation] = []
        objects, unread = await cluster_state(client, namespaces)
        state += objects
        if scope is Scope.ALLOCATION:
            more_objects, more_unread = await allocation_state(client)
            state += more_objects
            unread += more_unread
            if with_creations:
                quotas, failures, more_unread = await creation_state(client, namespace)
                state += quotas
                unread += more_unread
            # Without the right, objects are validated as the newest version does it.
            with suppress(Forbidden, NotFound):
                version = await client.version()
        return ReadState(namespace, state, unread, version, failures)


async def read_live_settings(flags: ClusterFlags) -> "LiveSettings":
    """Return the settings of the cluster's processes, and notes on them."""
    from cli.reading.live import find_settings  # noqa: PLC0415
    from kube.client.client import Client  # noqa: PLC0415

    async with await Client.from_kubeconfig(flags.kubeconfig, flags.context) as client:
        return await find_settings(client)


async def _read_live_settings_or_defaults(flags: ClusterFlags) -> "LiveSettings":
    from cli.reading.live import find_settings_or_defaults  # noqa: PLC0415
    from kube.client.client import Client  # noqa: PLC0415

    async with await Client.from_kubeconfig(flags.kubeconfig, flags.context) as client:
        return await find_settings_or_defaults(client)


def settings_of_cluster(flags: ClusterFlags, path: str | None) -> SharedSettings:
    """Return the settings in a file, else those of a live cluster, else defaults; print notes on them.

    Defaults replace those of a live cluster that make no sense to this version.

    Raises:
        DrawbridgeError: The file or the cluster cannot be read, or the settings in the file make no sense.
    """
    if path is not None:
        return read_settings(path)
    if not flags.live:
        return SharedSettings()
    live = asyncio.run(_read_live_settings_or_defaults(flags))
    print_notes(live.notes)
    return live.settings
