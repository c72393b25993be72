"""A small Kubernetes API server in this process: a fake of the network port, not of our code.

It stores objects of any resource and knows create, get, list with paging and selectors, watch with
bookmarks, JSON, merge and apply patches, delete with preconditions and finalizers, uid,
resourceVersion, generateName and dry runs. It validates nothing: there is no admission, validation or
defaulting, no strategic merge, and apply is a merge that creates.

It can also fail on demand: refuse connections, hang, drop, answer any status, expire versions.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus
from typing import Any, Final, Self

import jsonpatch
from aiohttp import web
from kubernetes.aio.client import Configuration

from kube.api.urls import Resource
from kube.client.client import Client
from kube.collections.backoff import Backoff
from kube.runtime.events import EventRecorder, EventRecorderSettings, EventResult
from kube.runtime.informer_settings import InformerSettings
from kube.runtime.informers import InformerFactory
from testing.documents import Document

Key = tuple[str, str]
"""Namespace and name; the namespace of cluster-scoped objects is empty."""

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


VERSION: Final = "v1.37.1"
"""The version of Kubernetes that the server says it is."""


class Refusal(Exception):
    """An error that the server answers instead of an object."""

    def __init__(self, status: int, message: str, reason: str = "", *, cause: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.document = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": message,
            "reason": reason or _REASONS.get(status, HTTPStatus(status).phrase),
            "code": status,
        }
        if cause:
            self.document["details"] = {"causes": [{"reason": cause, "message": message}]}


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request as it arrived; the body is parsed JSON."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    content_type: str
    authorization: str | None

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"


@dataclass(frozen=True, kw_only=True)
class Target:
    """The target of a path: a collection, an object or a subresource."""

    collection: tuple[str, str, str]
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> Key:
        return self.namespace, self.name


@dataclass(frozen=True, kw_only=True)
class Change:
    """One entry of the history that watches replay."""

    version: int
    collection: tuple[str, str, str]
    type: str
    document: Document


@dataclass(kw_only=True)
class Fault:
    """An answer that the next matching calls get instead of the true one; None drops them."""

    remaining: int
    status: int | None
    cause: str
    matches: Callable[[Call], bool]


@dataclass(kw_only=True)
class Delay:
    """Answers of matching calls wait for the event, although the calls take effect."""

    over: asyncio.Event
    matches: Callable[[Call], bool]


@dataclass(kw_only=True)
class Watcher:
    """An open watch: the objects that it may see, and lines to send; None ends it, False breaks it."""

    target: Target
    selects: Callable[[Document], bool]
    lines: "asyncio.Queue[bytes | bool | None]" = field(default_factory=asyncio.Queue)


class FakeApiServer:
    """`async with FakeApiServer() as server, server.client() as client: ...`.

    Attributes:
        now: Its clock, which each response tells; None for that of this machine.
        user: The name of everybody who calls.
        drop_fields: Called with each object that is created, as fields of disabled features are dropped.
    """

    def __init__(self) -> None:
        self.now: Callable[[], datetime] | None = None
        self.user = "tester"
        self.drop_fields: Callable[[Document], None] = lambda _document: None
        self.calls: list[Call] = []
        self._objects: dict[tuple[str, str, str], dict[Key, Document]] = {}
        self._history: list[Change] = []
        self._version = 0
        self._oldest = 0
        self._uids = 0
        self._faults: list[Fault] = []
        self._delays: list[Delay] = []
        self._held: dict[tuple[str, str, str], asyncio.Event] = {}
        self._watchers: list[Watcher] = []
        self._running = asyncio.Event()
        self._running.set()
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def client(self, *, timeout_s: float = 5.0) -> Client:
        return Client(Configuration(host=self.url), timeout_s=timeout_s)

    # The cluster's state, without the network

    def put(self, resource: Resource, document: Document) -> Document:
        """Store an object as if somebody had created or replaced it."""
        collection = _collection(resource)
        metadata = document.get("metadata", {})
        key = (metadata.get("namespace", ""), metadata.get("name", ""))
        stored_object = self._objects.get(collection, {}).get(key)
        return deepcopy(self._store(collection, key, deepcopy(document), stored_object))

    def remove(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Take an object away at once, with any finalizers."""
        self._take_away(_collection(resource), (namespace, name))

    def find(self, resource: Resource, name: str, namespace: str = "") -> Document | None:
        stored_object = self._objects.get(_collection(resource), {}).get((namespace, name))
        return deepcopy(stored_object)

    def objects(self, resource: Resource) -> list[Document]:
        """Return all objects of a resource by namespace and name."""
        stored_objects = self._objects.get(_collection(resource), {})
        return [deepcopy(stored_objects[key]) for key in sorted(stored_objects)]

    @property
    def counts(self) -> Counter[str]:
        """The number of calls by method; watches count as WATCH."""
        return Counter("WATCH" if call.is_watch else call.method for call in self.calls)

    @property
    def watching(self) -> int:
        """The number of open watches."""
        return len(self._watchers)

    # Trouble

    async def refuse(self) -> None:
        """Stop listening: connections are refused, open ones break."""
        self._running.set()
        for watcher in self._watchers:
            watcher.lines.put_nowait(False)
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None

    async def accept(self) -> None:
        """Listen, again on the same port after `refuse`."""
        app = web.Application(client_max_size=2**24)
        app.on_response_prepare.append(self._tell_time)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, shutdown_timeout=0.1, access_log=None, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    def hang(self) -> None:
        """Accept requests and answer none until `resume`."""
        self._running.clear()

    def resume(self) -> None:
        self._running.set()

    def fail(
        self,
        status: int | None,
        *,
        times: int = 1,
        cause: str = "",
        matches: Callable[[Call], bool] = lambda _: True,
    ) -> None:
        """Answer the next matching calls with a status, or with None close the connection.

        Args:
            cause: The reason of a cause that the status has.
        """
        self._faults.append(Fault(remaining=times, status=status, cause=cause, matches=matches))

    def delay(self, matches: Callable[[Call], bool]) -> asyncio.Event:
        """Let matching calls take effect, and answer them only when the event is set."""
        self._delays.append(Delay(over=asyncio.Event(), matches=matches))
        return self._delays[-1].over

    def hold_events(self, resource: Resource) -> asyncio.Event:
        """Have the watches of a resource fall behind until the event is set; lists are answered."""
        return self._held.setdefault(_collection(resource), asyncio.Event())

    def expire(self) -> None:
        """Forget history and continuations, as compaction does: older versions get 410."""
        self._version += 1
        self._oldest = self._version
        self._history.clear()

    def end_watches(self) -> None:
        """End each open watch in good order, as at timeoutSeconds."""
        for watcher in self._watchers:
            watcher.lines.put_nowait(None)

    def break_watches(self) -> None:
        """Cut each open watch in the middle of its body."""
        for watcher in self._watchers:
            watcher.lines.put_nowait(False)

    def send(self, kind: str, document: Document) -> None:
        """Send each open watch an event of any type, such as ERROR with a Status."""
        for watcher in self._watchers:
            watcher.lines.put_nowait(_line(kind, document))

    def bookmark(self) -> None:
        """Send each open watch a bookmark of the present version."""
        self._version += 1
        self.send("BOOKMARK", {"metadata": {"resourceVersion": str(self._version)}})

    # HTTP

    async def _tell_time(self, _request: web.Request, response: web.StreamResponse) -> None:
        if self.now is not None:
            response.headers["Date"] = format_datetime(self.now(), usegmt=True)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        call = Call(
            method=request.method,
            path=request.path,
            query=dict(request.query),
            body=json.loads(raw) if raw else None,
            content_type=request.content_type,
            authorization=request.headers.get("Authorization"),
        )
        self.calls.append(call)
        try:
            self._fail_if_planned(call, request)
            await self._running.wait()
            if call.is_watch:
                return await self._watch(request, call)
            status, document = self._answer(call)
        except Refusal as refusal:
            status, document = refusal.status, refusal.document
        for delay in self._delays:
            if delay.matches(call):
                await delay.over.wait()
        return web.json_response(document, status=status)

    def _fail_if_planned(self, call: Call, request: web.Request) -> None:
        for fault in self._faults:
            if fault.remaining and fault.matches(call):
                fault.remaining -= 1
                if fault.status is None and request.transport is not None:
                    request.transport.close()
                raise Refusal(
                    fault.status or 503, f"told to answer {fault.status}", cause=fault.cause
                )

    def _answer(self, call: Call) -> tuple[int, Document]:
        if call.path == "/version":
            return 200, {"gitVersion": VERSION}
        _, _, group = call.path.rpartition("/apis/")
        versions = sorted({stored[1] for stored in self._objects if stored[0] == group})
        if group and versions:
            served = [{"groupVersion": f"{group}/{name}", "version": name} for name in versions]
            return 200, {"kind": "APIGroup", "name": group, "versions": served}
        if call.path.endswith("/selfsubjectreviews"):
            return 201, {**call.body, "status": {"userInfo": {"username": self.user}}}
        target = _target(call.path)
        match call.method, bool(target.name):
            case "GET", False:
                return 200, self._list(target, call)
            case "GET", True:
                return 200, self._stored(target)
            case "POST", False:
                return 201, self._create(target, call)
            case "PUT", True:
                return 200, self._replace(target, call.body, call)
            case "PATCH", True:
                return self._patch(target, call)
            case "DELETE", True:
                return 200, self._delete(target, call)
            case _:
                raise Refusal(405, f"the server does not allow {call.method} on {call.path}")

    def _stored(self, target: Target) -> Document:
        stored_object = self._objects.get(target.collection, {}).get(target.key)
        if stored_object is None:
            plural, group = target.collection[2], target.collection[0]
            resource_name = f"{plural}.{group}" if group else plural
            raise Refusal(404, f'{resource_name} "{target.name}" not found')
        return stored_object

    def _list(self, target: Target, call: Call) -> Document:
        stored_objects = self._objects.get(target.collection, {})
        selects = _selector(target, call)
        keys = sorted(key for key, document in stored_objects.items() if selects(document))
        version, start = self._version, 0
        if token := call.query.get("continue"):
            version, start = (int(part) for part in token.split(":"))
            if version < self._oldest:
                refusal = Refusal(410, "The provided continue parameter is too old")
                refusal.document["metadata"] = {"continue": f"{self._version}:{start}"}
                raise refusal
        limit = int(call.query.get("limit", 0)) or len(keys)
        more = {"continue": f"{version}:{start + limit}"} if start + limit < len(keys) else {}
        return {
            "apiVersion": f"{target.collection[0]}/{target.collection[1]}".lstrip("/"),
            "kind": "List",
            "metadata": {"resourceVersion": str(version), **more},
            "items": [stored_objects[key] for key in keys[start : start + limit]],
        }

    def _create(self, target: Target, call: Call) -> Document:
        document = deepcopy(call.body)
        metadata = document.setdefault("metadata", {})
        if target.namespace:
            metadata["namespace"] = target.namespace
        if "name" not in metadata:
            if not metadata.get("generateName"):
                raise Refusal(422, "name or generateName is required")
            metadata["name"] = f"{metadata['generateName']}{self._uids + 1:05d}"
        key = (target.namespace, metadata["name"])
        if key in self._objects.get(target.collection, {}):
            raise Refusal(
                409, f'{target.collection[2]} "{metadata["name"]}" already exists', "AlreadyExists"
            )
        if metadata.pop("resourceVersion", ""):
            raise Refusal(400, "resourceVersion should not be set on objects to be created")
        self.drop_fields(document)
        return self._store(target.collection, key, document, None, dry=_is_dry(call))

    def _patch(self, target: Target, call: Call) -> tuple[int, Document]:
        if (
            call.content_type == "application/apply-patch+yaml"
            and target.key not in self._objects.get(target.collection, {})
        ):
            return 201, self._store(
                target.collection, target.key, deepcopy(call.body), None, dry=_is_dry(call)
            )
        stored_object = self._stored(target)
        if call.content_type == "application/json-patch+json":
            try:
                patched_object = jsonpatch.apply_patch(stored_object, call.body)
            except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
                raise Refusal(422, f"the patch does not apply: {error}") from error
        else:
            patched_object = merged(stored_object, call.body)
        return 200, self._replace(target, patched_object, call)

    def _replace(self, target: Target, document: Document, call: Call) -> Document:
        stored_object = self._stored(target)
        document = deepcopy(document)
        for name in ("resourceVersion", "uid"):
            values = document.get("metadata", {}).get(name)
            if values and values != stored_object["metadata"][name]:
                raise Refusal(
                    409,
                    f'Operation cannot be fulfilled on {target.collection[2]} "{target.name}": '
                    "the object has been modified",
                )
        if target.subresource:
            document = {**stored_object, target.subresource: document.get(target.subresource)}
        return self._store(
            target.collection, target.key, document, stored_object, dry=_is_dry(call)
        )

    def _delete(self, target: Target, call: Call) -> Document:
        stored_object = self._stored(target)
        preconditions = (call.body or {}).get("preconditions") or {}
        for name, value in preconditions.items():
            if value != stored_object["metadata"][name]:
                raise Refusal(
                    409, f"Precondition failed: {name} is {stored_object['metadata'][name]}"
                )
        if _is_dry(call):
            return stored_object
        if stored_object["metadata"].get("finalizers"):
            marked_object = deepcopy(stored_object)
            marked_object["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
            return self._store(target.collection, target.key, marked_object, stored_object)
        self._take_away(target.collection, target.key)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    # Storage

    def _store(
        self,
        collection: tuple[str, str, str],
        key: Key,
        document: Document,
        stored_object: Document | None,
        *,
        dry: bool = False,
    ) -> Document:
        metadata = document.setdefault("metadata", {})
        if stored_object is None:
            self._uids += 1
            metadata.setdefault("uid", f"00000000-0000-4000-8000-{self._uids:012d}")
            metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
            metadata["name"] = key[1]
            if key[0]:
                metadata["namespace"] = key[0]
        else:
            for name in ("uid", "resourceVersion", "creationTimestamp", "name", "namespace"):
                if name in stored_object["metadata"]:
                    metadata[name] = stored_object["metadata"][name]
        if dry or document == stored_object:
            return document
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            self._take_away(collection, key)
            return document
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        self._objects.setdefault(collection, {})[key] = document
        self._tell(collection, "ADDED" if stored_object is None else "MODIFIED", document)
        return document

    def _take_away(self, collection: tuple[str, str, str], key: Key) -> None:
        document = deepcopy(self._objects[collection].pop(key))
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        self._tell(collection, "DELETED", document)

    def _tell(self, collection: tuple[str, str, str], kind: str, document: Document) -> None:
        change = Change(
            version=self._version, collection=collection, type=kind, document=deepcopy(document)
        )
        self._history.append(change)
        for watcher in self._watchers:
            if _is_selected(watcher, change):
                watcher.lines.put_nowait(_line(kind, document))

    # Watches

    async def _watch(self, request: web.Request, call: Call) -> web.StreamResponse:
        target = _target(call.path)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        since = int(call.query.get("resourceVersion") or self._version)
        if since < self._oldest:
            refusal = Refusal(410, f"too old resource version: {since} ({self._oldest})")
            await response.write(_line("ERROR", refusal.document))
            return response
        async with self._watcher(target, _selector(target, call)) as watcher:
            for change in self._history:
                if change.version > since and _is_selected(watcher, change):
                    watcher.lines.put_nowait(_line(change.type, change.document))
            await self._write(request, response, watcher, float(call.query["timeoutSeconds"]))
        return response

    @asynccontextmanager
    async def _watcher(
        self, target: Target, selects: Callable[[Document], bool]
    ) -> AsyncIterator[Watcher]:
        watcher = Watcher(target=target, selects=selects)
        self._watchers.append(watcher)
        try:
            yield watcher
        finally:
            self._watchers.remove(watcher)

    async def _write(
        self,
        request: web.Request,
        response: web.StreamResponse,
        watcher: Watcher,
        timeout_s: float,
    ) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while isinstance(line := await watcher.lines.get(), bytes):
                    if (held := self._held.get(watcher.target.collection)) is not None:
                        await held.wait()
                    await response.write(line)
                if line is False and request.transport is not None:
                    request.transport.close()
        except TimeoutError:
            return
        except ConnectionError:
            return


def merged(document: Any, patch: Any) -> Any:
    """Return a document after a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    result = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def _collection(resource: Resource) -> tuple[str, str, str]:
    return resource.group, resource.version, resource.plural


def _target(path: str) -> Target:
    _, root, *parts = path.split("/")
    if root not in {"api", "apis"} or len(parts) < 2:
        raise Refusal(404, f"the server could not find {path}")
    group = parts.pop(0) if root == "apis" else ""
    version = parts.pop(0)
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces" and parts[2] not in {"status", "finalize"}:
        namespace = parts[1]
        parts = parts[2:]
    plural, name, subresource, *_ = [*parts, "", ""]
    return Target(
        collection=(group, version, plural),
        namespace=namespace,
        name=name,
        subresource=subresource,
    )


def _selector(target: Target, call: Call) -> Callable[[Document], bool]:
    """Return a predicate of the namespace and of equality terms in both selectors."""
    labels = [term for term in call.query.get("labelSelector", "").split(",") if term]
    fields = [term for term in call.query.get("fieldSelector", "").split(",") if term]

    def selects(document: Document) -> bool:
        metadata = document["metadata"]
        return (
            target.namespace in {"", metadata.get("namespace", "")}
            and all(_holds(term, (metadata.get("labels") or {}).get) for term in labels)
            and all(_holds(term, lambda path: _field(document, path)) for term in fields)
        )

    return selects


def _holds(term: str, value_of: Callable[[str], str | None]) -> bool:
    if "!=" in term:
        name, value = term.split("!=", 1)
        return value_of(name) != value
    if "=" in term:
        name, value = term.replace("==", "=").split("=", 1)
        return value_of(name) == value
    if term.startswith("!"):
        return value_of(term[1:]) is None
    return value_of(term) is not None


def _field(document: Any, path: str) -> str:
    for part in path.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    return "" if document is None else str(document)


def _is_selected(watcher: Watcher, change: Change) -> bool:
    return change.collection == watcher.target.collection and watcher.selects(change.document)


def _is_dry(call: Call) -> bool:
    return call.query.get("dryRun") == "All"


def _line(kind: str, document: Document) -> bytes:
    return json.dumps({"type": kind, "object": document}).encode() + b"\n"


def quick_informers(client: Client) -> InformerFactory:
    """Return a factory of informers that wait little after a failure."""
    return InformerFactory(client, settings=InformerSettings(backoff_s=0.01))


def quick_recorder(
    client: Client,
    *,
    count: Callable[[EventResult], None] = lambda _: None,
    per_second: float = 1000.0,
) -> EventRecorder:
    """Return a recorder of events that waits little between two, and after a failure."""
    settings = EventRecorderSettings(
        per_second=per_second, backoff=Backoff(initial_s=0.01, max_s=0.02)
    )
    return EventRecorder(
        client,
        controller="drawbridge.test",
        instance="test",
        now=lambda: datetime(2026, 11, 20, tzinfo=UTC),
        count=count,
        settings=settings,
    )


async def until(true: Callable[[], bool], *, timeout_s: float = 60.0) -> None:
    """Wait until something is true; tests follow loops beside them so."""
    async with asyncio.timeout(timeout_s):
        while not true():  # noqa: ASYNC110 - what is waited for has no event of its own.
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(*loops: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run loops beside a test, and cancel them when it is through."""

    async def run(loop: Callable[[], Awaitable[None]]) -> None:
        await loop()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(loop)) for loop in loops]
        try:
            yield
        finally:
            _cancel(tasks)


def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
