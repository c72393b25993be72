"""A thin client of the Kubernetes API: raw calls in, bytes decoded by msgspec out.

Configuration, authentication and TLS are those of `kubernetes.aio`; its models are not used, since
they drop fields that they do not know and cost twenty times as much. Every call has a timeout, and
every failure to get an answer is a KubeError, so a caller has one tree of exceptions to think of.

Nothing is retried here, since who calls knows whether a second attempt is right. Only aiohttp sends
a GET or DELETE once more when a connection that it kept turns out to be closed, so a DELETE may
find its own work done (NotFound).
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec
import yaml

from kube.api import meta
from kube.api.url import Resource
from kube.connection import (
    KUBE_CONFIG_DEFAULT_LOCATION,
    SERVICE_HOST_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    ConfigException,
    Configuration,
    KubeConfigLoader,
    KubeConfigMerger,
    RESTClientObject,
    load_incluster_config,
)
from kube.errors import (
    AlreadyExists,
    ConfigError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    Throttled,
)
from kube.product import NAME

T = TypeVar("T")

PAGE_SIZE: Final = 500
"""Objects per page of a list, as client-go asks for."""
TIMEOUT_S: Final = 30.0
"""For each call but watches."""
MAX_LINE_BYTES: Final = 16 * 2**20
"""One watch event. etcd holds objects of 1.5 MiB; as JSON they may grow several times."""
TOKEN_AGE_S: Final = 60.0
"""How long credentials of a kubeconfig are used before its files are read again."""


_BROKEN_KUBECONFIG: Final = (
    *(ConfigException, OSError, ValueError, yaml.YAMLError),
    *(TypeError, AttributeError, KeyError),  # The library expects its shape and does not check it.
)


class PatchType(StrEnum):
    """How the API server is to read a patch."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Listing(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A list, or a page of one, and the resourceVersion from which to watch."""

    items: tuple[T, ...]
    resource_version: str


class WatchEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object's bytes."""

    type: str
    object: msgspec.Raw


class _ListMeta(meta.ApiStruct, frozen=True, kw_only=True):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _Page(meta.ApiStruct, frozen=True, kw_only=True):
    metadata: _ListMeta = _ListMeta()
    items: tuple[msgspec.Raw, ...] | None = None


class _Status(meta.ApiStruct, frozen=True, kw_only=True):
    """The parts of meta/v1 Status that we read."""

    message: str = ""
    reason: str = ""
    code: int = 0


class Client:
    """Calls one API server; `async with` opens and closes its connections."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        timeout_s: float = TIMEOUT_S,
        namespace: str = "",
    ) -> None:
        self.namespace = namespace
        """That a kubeconfig's context names, for callers without one of their own; often empty."""
        self._configuration = configuration
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(10.0, timeout_s))
        self._connections: RESTClientObject | None = None

    @classmethod
    async def from_kubeconfig(
        cls,
        path: str | None = None,
        context: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> Self:
        """Return a client of a kubeconfig's context; without a path kubectl's own files are read.

        Tokens, also those of files and of exec plugins that have expired, are read again each
        minute.

        Raises:
            ConfigError: There is no such file or context, or it makes no sense.
        """
        configuration = Configuration()
        try:
            merged = KubeConfigMerger(path or KUBE_CONFIG_DEFAULT_LOCATION)
            if merged.config is None:
                raise ConfigError(f"{path or KUBE_CONFIG_DEFAULT_LOCATION}: no kubeconfig there")
            # Without a base path, files in the kubeconfig are relative to it, as in kubectl.
            loader = KubeConfigLoader(
                config_dict=merged.config, active_context=context, config_base_path=None
            )
            await loader.load_and_set(configuration)
        except _BROKEN_KUBECONFIG as error:
            raise ConfigError(f"kubeconfig: {error}") from error
        # The library calls the hook; its annotation forgot to say what the hook may be.
        configuration.refresh_api_key_hook = _reloaded_each_minute(loader)  # type: ignore[assignment]
        named = loader.current_context["context"].get("namespace") or ""
        return cls(configuration, timeout_s=timeout_s, namespace=named)

    @classmethod
    async def in_cluster(cls, *, timeout_s: float = TIMEOUT_S) -> Self:
        """Return a client with the pod's service account; its token file is read each minute.

        Raises:
            ConfigError: This process does not run in a pod with a service account.
        """
        configuration = Configuration()
        try:
            load_incluster_config(configuration)
        except (ConfigException, OSError) as error:
            raise ConfigError(f"in-cluster configuration: {error}") from error
        return cls(configuration, timeout_s=timeout_s)

    @classmethod
    async def discover(cls, *, timeout_s: float = TIMEOUT_S) -> Self:
        """Return an in-cluster client where there is a service account, else a kubeconfig's."""
        if _has_service_account():
            return await cls.in_cluster(timeout_s=timeout_s)
        return await cls.from_kubeconfig(timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        try:
            self._connections = RESTClientObject(self._configuration)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError.
            raise ConfigError(f"TLS to {self._configuration.host}: {error}") from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._connections is not None:
            await self._connections.close()
        self._connections = None

    async def get(
        self,
        resource: Resource,
        name: str,
        kind: type[T],
        *,
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """Return one object as the view `kind` (`msgspec.Raw` for its bytes).

        Raises:
            NotFound: There is none.
        """
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return _decoded(await self._call("GET", path), kind)

    async def list(
        self,
        resource: Resource,
        kind: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listing[T]:
        """Return all objects as views, read page by page; an empty namespace means all of them.

        Raises:
            Gone: The list took so long that its continuation expired; list again.
        """
        items: list[T] = []
        version = ""
        async for page in self.pages(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
        ):
            items += [_decoded(bytes(raw), kind) for raw in page.items]
            version = page.resource_version
        return Listing(items=tuple(items), resource_version=version)

    async def pages(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE_SIZE,
    ) -> AsyncGenerator[Listing[msgspec.Raw], None]:
        """Yield a list's pages, so that no more than one of them need be in memory."""
        token = ""
        while True:
            query = {
                "limit": str(limit),
                "continue": token,
                "labelSelector": label_selector,
                "fieldSelector": field_selector,
            }
            body = await self._call("GET", resource.path(namespace=namespace), query=query)
            page = _decoded(body, _Page)
            yield Listing(items=page.items or (), resource_version=page.metadata.resource_version)
            token = page.metadata.continue_
            if not token:
                return

    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: float = 300.0,
        idle_s: float = 150.0,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield what changes after a resourceVersion, bookmarks too, until the server ends it.

        Use `contextlib.aclosing` around it when the loop may be left early.

        Args:
            resource: What to watch.
            resource_version: Where to begin: that of a list, an event or a bookmark.
            namespace: Empty for all.
            label_selector: As the API takes it.
            field_selector: As the API takes it.
            timeout_s: After which the server is asked to end the watch.
            idle_s: Of silence, after which the connection counts as dead; the API server sends a
                bookmark about each minute.

        Raises:
            Gone: The resourceVersion is too old; list again.
            KubeError: The watch was refused, broke, or sent an event of type ERROR.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, round(timeout_s))),
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        limits = aiohttp.ClientTimeout(
            total=timeout_s + 30, sock_connect=self._timeout.sock_connect, sock_read=idle_s
        )
        path = resource.path(namespace=namespace)
        async with self._answer("GET", path, query=query, limits=limits) as answer:
            async for line in _lines(answer.content):
                event = _decoded(line, WatchEvent)
                if event.type == "ERROR":
                    raise _refusal(0, bytes(event.object))
                yield event

    async def create(
        self,
        resource: Resource,
        document: object,
        kind: type[T],
        *,
        namespace: str = "",
        dry_run: bool = False,
    ) -> T:
        """Create an object and return what the server made of it.

        Args:
            resource: Its resource.
            document: A dict, or one of our own Structs in full.
            kind: The view to return.
            namespace: Its namespace; empty for cluster-scoped objects.
            dry_run: Let the server judge, but store nothing.

        Raises:
            AlreadyExists: There is an object of this name.
        """
        query = {"fieldManager": NAME, "dryRun": "All" if dry_run else ""}
        path = resource.path(namespace=namespace)
        return _decoded(await self._call("POST", path, query=query, body=document), kind)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: object,
        patch_type: PatchType,
        kind: type[T],
        *,
        namespace: str = "",
        subresource: str = "",
        field_manager: str = NAME,
        force: bool = False,
    ) -> T:
        """Patch an object and return it as it is now.

        Put `metadata.resourceVersion` (or a JSON Patch `test` of it) into the patch to make it
        conditional on what it was decided on.

        Args:
            resource: Its resource.
            name: Its name.
            patch: Operations for JSON, a partial object for MERGE, a whole intent for APPLY.
            patch_type: How to read it; APPLY creates the object when there is none.
            kind: The view to return.
            namespace: Its namespace; empty for cluster-scoped objects.
            subresource: Such as `status`.
            field_manager: Who owns the fields.
            force: With APPLY, take fields from their owners.

        Raises:
            NotFound: There is none, and this is no APPLY.
            Conflict: The resourceVersion in the patch is not the stored one, or, with APPLY,
                somebody else owns a field.
            Invalid: The result is not valid, or a JSON Patch does not apply.
        """
        query = {"fieldManager": field_manager}
        if patch_type is PatchType.APPLY:
            query["force"] = "true" if force else "false"
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        body = await self._call("PATCH", path, query=query, body=patch, content_type=patch_type)
        return _decoded(body, kind)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
    ) -> None:
        """Delete an object, if it still has this uid and resourceVersion where they are given.

        Raises:
            NotFound: There is none.
            Conflict: It is not the one that was meant.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {key: value for key, value in preconditions.items() if value},
        }
        await self._call("DELETE", resource.path(namespace=namespace, name=name), body=options)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> bytes:
        async with self._answer(
            method,
            path,
            query=query or {},
            body=body,
            content_type=content_type,
            limits=self._timeout,
        ) as answer:
            return await answer.read()

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        limits: aiohttp.ClientTimeout,
        body: object = None,
        content_type: str = "application/json",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Give a good answer whose body is still to be read; errors while reading count too."""
        if self._connections is None:
            raise RuntimeError("the client is used outside `async with`")
        given = urlencode({name: value for name, value in query.items() if value})
        url = f"{self._configuration.host}{path}{'?' if given else ''}{given}"
        try:
            headers = {
                "Accept": "application/json",
                "User-Agent": NAME,
                "Content-Type": content_type,
            }
            headers |= await self._authorization()
            answer = await self._connections.request(
                method,
                url,
                headers=headers,
                body=None if body is None else msgspec.to_builtins(body, enc_hook=str),
                _request_timeout=limits,
            )
            async with answer.response as response:
                if response.status >= 400:
                    raise _refusal(response.status, await response.read())
                yield response
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            words = str(error) or type(error).__name__
            raise KubeError(f"{method} {path}: no answer: {words}") from error

    async def _authorization(self) -> dict[str, str]:
        try:
            async with asyncio.timeout(self._timeout.total):
                settings: Mapping[str, Any] = await self._configuration.auth_settings()
        except _BROKEN_KUBECONFIG as error:
            raise KubeError(f"credentials: {error!r}") from error
        return {str(each["key"]): str(each["value"]).strip() for each in settings.values()}


def _has_service_account() -> bool:
    return bool(os.environ.get(SERVICE_HOST_ENV_NAME)) and Path(SERVICE_TOKEN_FILENAME).is_file()


def _reloaded_each_minute(loader: KubeConfigLoader) -> Callable[[Configuration], Awaitable[None]]:
    """Return a hook that `kubernetes.aio` calls before it uses a token."""
    loaded_at = time.monotonic()

    async def reload(configuration: Configuration) -> None:
        nonlocal loaded_at
        if time.monotonic() - loaded_at >= TOKEN_AGE_S:
            await loader.load_and_set(configuration)
            loaded_at = time.monotonic()

    return reload


async def _lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a stream, none of them longer than MAX_LINE_BYTES."""
    rest = bytearray()
    async for chunk in content.iter_any():
        first, *others = chunk.split(b"\n")
        rest += first
        if len(rest) > MAX_LINE_BYTES:
            raise KubeError(f"a watch event is longer than {MAX_LINE_BYTES >> 20} MiB", status=200)
        for other in others:
            if rest:
                yield bytes(rest)
            rest = bytearray(other)


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        try:
            return meta.decode(body, kind)
        except RecursionError:
            # Whoever may make a claim can nest its parameters so; one object must not hide all.
            return meta.decode(meta.pruned(body), kind)
    except msgspec.DecodeError as error:
        raise KubeError(f"the server's answer is not as expected: {error}", status=200) from error


_BY_STATUS: Final[Mapping[int, type[KubeError]]] = {
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Throttled,
}


def _refusal(http_status: int, body: bytes) -> KubeError:
    """Return the exception for a Status; that of a watch's ERROR event has its code inside."""
    try:
        status = meta.decode(body, _Status)
    except msgspec.DecodeError:
        status = _Status(message=body[:200].decode(errors="replace"))
    code = http_status or status.code or 500
    kind = AlreadyExists if status.reason == "AlreadyExists" else _BY_STATUS.get(code, KubeError)
    return kind(status.message or f"HTTP {code}", status=code, reason=status.reason)
