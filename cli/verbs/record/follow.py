"""A cluster, followed and written down. Read-only."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from answers.model.snapshot_kinds import KINDS
from answers.recording.delta import Delta, ObjectKey, change_of, digest
from answers.recording.lines import Change, Decisions, Gap, Header, Mark, Moment
from answers.recording.projection import project
from cli.verbs.record.file import RecordingFile
from kube.api.meta import decode
from kube.api.urls import Resource
from kube.client.client import Client
from kube.errors import Forbidden, NotFound
from kube.runtime.informers import InformerFactory, Subscription, wait_synced
from kube.runtime.stores import Key

RECORDED: Final = (
    *("Node", "DeviceClass", "ResourceSlice", "DeviceTaintRule", "DeviceCompatibilityPolicy"),
    *("AllocatorOwnership", "Namespace", "ResourceClaimTemplate", "ResourceClaim", "Pod"),
)
"""The kinds that allocation reads."""
NEEDED: Final = frozenset({"Node", "Pod"})
"""The kinds without which there is nothing to replay."""
TICK_S: Final = 1.0
"""Seconds between two looks at the connections."""
FLUSH_TICKS: Final = 5
"""Ticks after which the lines are written."""


class Unlistable(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that the user may not list."""

    resource: str
    reason: str


class _Tracked:
    """The memory of an object: digests of its fields, and their values until they are written."""

    __slots__ = ("digests", "values")

    def __init__(self, values: Mapping[str, bytes]) -> None:
        self.digests = {name: digest(value) for name, value in values.items()}
        self.values: Mapping[str, bytes] | None = values


class _Projection:
    """The projection of a kind to the JSON of the fields that are recorded."""

    def __init__(self, api_version: str, kind: str) -> None:
        self._head = {"apiVersion": api_version, "kind": kind}

    def __call__(self, raw: bytes) -> _Tracked:
        fields = project(decode(raw, dict[str, Any]) | self._head)
        # Go writes the keys of a map in order, but nobody promises that.
        return _Tracked(
            {name: msgspec.json.encode(value, order="sorted") for name, value in fields.items()}
        )


class Follower:
    """The objects of a cluster, followed by informers and written to a file.

    Attributes:
        changes: Changes of objects since the first state.
        gaps: Times in which a resource was not followed.
        is_complete: The first state is written.
    """

    def __init__(
        self,
        informers: InformerFactory,
        file: RecordingFile,
        resources: Mapping[str, Resource],
        clock: Callable[[], float],
        on_first_state: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Subscribe to the kinds; nothing is requested before `run`.

        Args:
            informers: The factory.
            file: The file to write.
            resources: Kind to resource.
            clock: Seconds since the beginning.
            on_first_state: Called with the number of objects when the first state is written.
        """
        self._informers = informers
        self._file = file
        self._clock = clock
        self._on_first_state = on_first_state
        self._lost_at: dict[str, float] = {}
        self._watched: set[str] = set()
        self._at = 0.0
        self.changes = 0
        self.gaps = 0
        self.is_complete = False
        self._subscriptions = [
            self._subscribe(kind, resource) for kind, resource in resources.items()
        ]

    @property
    def objects(self) -> int:
        """The number of objects that are there now."""
        return sum(len(subscription.store) for subscription in self._subscriptions)

    @property
    def decode_errors(self) -> int:
        """The number of objects that could not be read."""
        return sum(subscription.decode_errors for subscription in self._subscriptions)

    def _subscribe(self, kind: str, resource: Resource) -> Subscription[_Tracked]:
        api_version = f"{resource.group}/{resource.version}" if resource.group else resource.version

        def write(key: Key, old: _Tracked | None, new: _Tracked | None) -> None:
            namespace, name = key
            object_key = ObjectKey(
                api_version=api_version, kind=kind, name=name, namespace=namespace
            )
            self._write(object_key, old, new)

        return self._informers.subscribe(
            resource, _Projection(api_version, kind), handlers=(write,)
        )

    def _write(self, key: ObjectKey, old: _Tracked | None, new: _Tracked | None) -> None:
        delta: Delta | None
        if new is None:
            delta = Delta(object=key, deleted=True)
        else:
            values = {name: msgspec.Raw(value) for name, value in (new.values or {}).items()}
            delta = change_of(key, None if old is None else old.digests, new.digests, values)
            new.values = None
        if delta is not None:
            self._file.add(Change(at=self._now(), delta=delta))
            self.changes += self.is_complete

    def _now(self) -> float:
        """Return the second, never less than before."""
        self._at = max(self._at, self._clock())
        return self._at

    def write_decisions(self, view: Mapping[str, msgspec.Raw]) -> None:
        """Write decisions of the bridge.

        Args:
            view: The fields of the sidecar's answer.
        """
        self._file.add(Decisions(at=self._now(), view=view))

    async def run(
        self,
        until: Callable[[], Awaitable[object]],
        *others: Callable[[], Awaitable[object]],
    ) -> None:
        """Follow the cluster until a coroutine ends, and complete the file.

        Args:
            until: The coroutine.
            others: Run meanwhile, and are cancelled then.

        Raises:
            OSError: The file cannot be written.
        """
        try:
            async with asyncio.TaskGroup() as group:
                loops: tuple[Callable[[], Any], ...] = (
                    self._informers.run,
                    self._watch_connections,
                    self._note_first_state,
                    *others,
                )
                tasks = [group.create_task(loop()) for loop in loops]
                try:
                    await until()
                finally:
                    for task in tasks:
                        task.cancel()
        except ExceptionGroup as faults:
            raise _only_os_error(faults) from None
        self._file.add(Moment(at=self._now(), mark=Mark.END))
        self._file.end()

    async def _note_first_state(self) -> None:
        await wait_synced(self._subscriptions)
        self.is_complete = True
        self._file.add(Moment(at=self._now(), mark=Mark.STATE))
        self._file.flush()
        self._on_first_state(self.objects)

    async def _watch_connections(self) -> None:
        """Write gaps into the file, and flush it now and then."""
        ticks = 0
        while True:
            await asyncio.sleep(TICK_S)
            ticks += 1
            for subscription in self._subscriptions:
                self._note_gap(subscription)
            if ticks % FLUSH_TICKS == 0:
                self._file.flush()

    def _note_gap(self, subscription: Subscription[_Tracked]) -> None:
        """Write a gap when it is over: when the API server lets a resource be watched again for a tick."""
        name, is_watched = subscription.resource.plural, subscription.is_watching
        was_watched = name in self._watched
        (self._watched.add if is_watched else self._watched.discard)(name)
        lost_at = self._lost_at.get(name)
        if lost_at is None:
            age_s = subscription.contact_age_s
            # A watch that is resumed at once has lost nothing.
            if self.is_complete and not is_watched and age_s > TICK_S:
                self._lost_at[name] = max(0.0, self._clock() - age_s)
        elif is_watched and was_watched:
            del self._lost_at[name]
            self._file.add(Gap(at=self._now(), since=lost_at, resource=name))
            self.gaps += 1


def _only_os_error(faults: ExceptionGroup[Exception]) -> Exception:
    """Return the first of faults that are all of the operating system; else the group itself."""
    _, others = faults.split(OSError)
    fault: Exception = faults
    while others is None and isinstance(fault, ExceptionGroup):
        fault = fault.exceptions[0]
    return fault


async def find_resources(
    client: Client,
) -> tuple[Mapping[str, Resource], Sequence[Unlistable]]:
    """Return the kinds that the cluster has and shows, with their resources, and those that it does not show.

    Raises:
        KubeError: The API server does not answer, or does not show nodes or pods.
    """
    resources: dict[str, Resource] = {}
    unlistable: list[Unlistable] = []
    for kind in RECORDED:
        resource = KINDS[kind]
        try:
            async for _ in client.pages(resource, limit=1):
                break
        except NotFound:
            continue  # The cluster does not have this kind.
        except Forbidden as refusal:
            if kind in NEEDED:
                raise
            unlistable.append(Unlistable(resource=resource.plural, reason=str(refusal)))
        else:
            resources[kind] = resource
    return resources, unlistable


async def build_header(client: Client, started_at: str, unlistable: Sequence[Unlistable]) -> Header:
    """Return the first line of the file.

    Args:
        started_at: The time of second 0 in RFC 3339.
        unlistable: The resources that the user may not list.
    """
    version = ""
    with suppress(Forbidden, NotFound):
        version = await client.version()
    return Header(
        started_at=started_at,
        kubernetes_version=version,
        server=client.server,
        context=client.context,
        unreadable=tuple(missing.resource for missing in unlistable),
    )
