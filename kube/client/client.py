"""A client of the Kubernetes API: HTTP calls with responses that msgspec decodes to views.

Configuration, authentication and TLS are those of `kubernetes.aio`. Its models are not used: they
drop unknown fields and cost twenty times as much (docs/adr/0011-a-thin-client-of-our-own.md). Every
call has a timeout, and every failure is a KubeError.

The client does not retry: the caller knows whether a second attempt is safe. aiohttp itself repeats
a GET or DELETE if a kept-alive connection turns out to be closed, so a DELETE may return NotFound
although it succeeded.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec

from kube.api.urls import Resource
from kube.client.connection import (
    KUBE_CONFIG_DEFAULT_LOCATION,
    ConfigException,
    Configuration,
    KubeConfigLoader,
    RESTClientObject,
    load_incluster_config,
)
from kube.client.credentials import (
    KUBECONFIG_ERRORS,
    check_context,
    credential_refresher,
    has_service_account,
    merge_kubeconfigs,
)
from kube.client.paging import Paging, read_within
from kube.client.proxies import proxy_of
from kube.client.responses import (
    Listing,
    ServerVersion,
    T,
    WatchEvent,
    decode_response,
    error_from_status,
    read_lines,
)
from kube.client.server_clock import ServerTime, correct_time
from kube.client.transport import Transport
from kube.errors import ConfigError, Gone, KubeError
from kube.names import NAME

PAGE_SIZE: Final = 500
"""Objects per page of a list; client-go's default."""
TIMEOUT_S: Final = 30.0
"""The timeout of each call except watches."""


ANSWER_S: Final = 0.5
"""The time for the answer to a call that the API server gave up."""


class PatchType(StrEnum):
    """The content type of a patch."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Client:
    """A client of one API server; `async with` opens and closes its connections."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        timeout_s: float = TIMEOUT_S,
        namespace: str = "",
        context: str = "",
    ) -> None:
        self.namespace = namespace
        """The namespace of the kubeconfig's context; often empty."""
        self.context = context
        """The name of the kubeconfig's context; empty without one."""
        self._configuration = configuration
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(10.0, timeout_s))
        self._connections: RESTClientObject | None = None
        self._server_time: ServerTime | None = None

    @property
    def server_time(self) -> datetime | None:
        """The API server's clock in its last response, in whole seconds; None if it did not say."""
        return None if self._server_time is None else self._server_time.date

    def correct(self, wall: datetime) -> datetime:
        """Return a wall clock's time, or the API server's if they disagree.

        Args:
            wall: Read now, with a time zone.
        """
        return correct_time(wall, self._server_time, time.monotonic())

    @classmethod
    async def from_kubeconfig(
        cls,
        path: str | None = None,
        context: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> Self:
        """Return a client for a context of a kubeconfig; without a path, of kubectl's own files.

        Credentials, also from token files and exec plugins, are reloaded every minute.

        Raises:
            ConfigError: The file or the context does not exist or is invalid.
        """
        configuration = Configuration()
        try:
            merged_config = merge_kubeconfigs(path or KUBE_CONFIG_DEFAULT_LOCATION)
            check_context(merged_config, context)
            # Without a base path, relative file names are relative to the kubeconfig, as in kubectl.
            loader = KubeConfigLoader(
                config_dict=merged_config, active_context=context, config_base_path=None
            )
            await loader.load_and_set(configuration)
        except KUBECONFIG_ERRORS as error:
            raise ConfigError(f"kubeconfig: {error}") from error
        # The library calls the hook, although its annotation says None.
        configuration.refresh_api_key_hook = credential_refresher(loader)  # type: ignore[assignment]
        current_context = loader.current_context
        return cls(
            configuration,
            timeout_s=timeout_s,
            namespace=current_context["context"].get("namespace") or "",
            context=current_context["name"],
        )

    @classmethod
    async def in_cluster(cls, *, timeout_s: float = TIMEOUT_S) -> Self:
        """Return a client with the pod's service account; the token is reloaded every minute.

        Raises:
            ConfigError: The process does not run in a pod with a service account.
        """
        configuration = Configuration()
        try:
            load_incluster_config(configuration)
        except (ConfigException, OSError) as error:
            raise ConfigError(f"in-cluster configuration: {error}") from error
        return cls(configuration, timeout_s=timeout_s)

    @classmethod
    async def discover(cls, *, timeout_s: float = TIMEOUT_S) -> Self:
        """Return an in-cluster client if there is a service account, else one for a kubeconfig."""
        if has_service_account():
            return await cls.in_cluster(timeout_s=timeout_s)
        return await cls.from_kubeconfig(timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        configuration = self._configuration
        configuration.client_session_kwargs = {"trust_env": False}
        configuration.proxy = configuration.proxy or proxy_of(configuration.host)
        try:
            self._connections = Transport(self._configuration)
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
        """Return an object as a view (`msgspec.Raw` for its bytes).

        Raises:
            NotFound: The object does not exist.
        """
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return decode_response(await self._request("GET", path), kind)

    @property
    def server(self) -> str:
        """The address of the API server, without credentials."""
        address = urlsplit(self._configuration.host)
        return f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"

    async def version(self) -> str:
        """Return the version of the API server, such as `v1.37.1`."""
        return decode_response(await self._request("GET", "/version"), ServerVersion).git_version

    async def metrics(self, path: str = "/metrics") -> str:
        """Return the metrics of the API server, in Prometheus' text format, or the text of another path."""
        return (await self._request("GET", path)).decode(errors="replace")

    async def list(
        self,
        resource: Resource,
        kind: type[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listing[T]:
        """Return all objects of a namespace, or of all namespaces if it is empty, as views.

        Raises:
            Gone: The continue token expired between two pages; list again.
        """
        items: list[T] = []
        version = ""
        async for page in self.pages(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
        ):
            items += [decode_response(bytes(raw), kind) for raw in page.items]
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
        resumes: bool = False,
    ) -> AsyncGenerator[Listing[msgspec.Raw], None]:
        """Yield the pages of a list; a token that expires ends it, or with `resumes` the rest is of now.

        Args:
            limit: The objects of a page at most; there are fewer where they are large.
        """
        path, paging = (
            resource.path(namespace=namespace),
            Paging(limit, label_selector, field_selector),
        )
        while not paging.is_over:
            try:
                async with self._open_response(
                    "GET", path, query=paging.query, limits=self._timeout
                ) as answer:
                    page = paging.take(await read_within(answer, paging.max_bytes))
            except Gone as gone:
                if not resumes or not paging.resume(gone.continuation):
                    raise
                continue
            if page is not None:
                yield page

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
        on_open: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield events after a resourceVersion, including bookmarks, until the server ends the watch.

        Wrap it in `contextlib.aclosing` if the loop may end early.

        Args:
            resource: The resource to watch.
            resource_version: The start: the version of a list, an event or a bookmark.
            namespace: A namespace; empty for all.
            label_selector: A label selector in the API's syntax.
            field_selector: A field selector in the API's syntax.
            timeout_s: The time after which the server ends the watch.
            idle_s: The time without data after which the connection counts as broken; the API
                server sends a bookmark about every minute.
            on_open: Called when the server has accepted the watch.

        Raises:
            Gone: The resourceVersion is too old; list again.
            KubeError: The watch was rejected, was interrupted, or sent an event of type ERROR.
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
        async with self._open_response("GET", path, query=query, limits=limits) as answer:
            on_open()
            async for line in read_lines(answer.content):
                event = decode_response(line, WatchEvent)
                if event.type == "ERROR":
                    raise error_from_status(0, bytes(event.object))
                yield event

    async def create(
        self,
        resource: Resource,
        document: object,
        kind: type[T],
        *,
        namespace: str = "",
        dry_run: bool = False,
        field_manager: str = NAME,
    ) -> T:
        """Create an object and return it as stored.

        Args:
            resource: Its resource.
            document: A dict, or a complete Struct of ours.
            kind: The view to return.
            namespace: Its namespace; empty for cluster-scoped objects.
            dry_run: Admit and validate, but store nothing.
            field_manager: The owner of the fields.

        Raises:
            AlreadyExists: An object of this name exists.
        """
        query = {"fieldManager": field_manager, "dryRun": "All" if dry_run else ""}
        path = resource.path(namespace=namespace)
        return decode_response(await self._request("POST", path, query=query, body=document), kind)

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
        timeout_s: float | None = None,
    ) -> T:
        """Patch an object and return it as stored.

        Include `metadata.resourceVersion` (or a JSON Patch `test` of it) to make the patch
        conditional on the version that it is based on.

        Args:
            resource: Its resource.
            name: Its name.
            patch: Operations for JSON, a partial object for MERGE, a full intent for APPLY.
            patch_type: The type of the patch; APPLY creates a missing object.
            kind: The view to return.
            namespace: Its namespace; empty for cluster-scoped objects.
            subresource: Such as `status`.
            field_manager: The owner of the patched fields.
            force: Takes over fields of other owners with APPLY.
            timeout_s: The time after which the API server gives up, too; None for the client's own
                timeout alone. A write that timed out may have been made, or be made later.

        Raises:
            NotFound: The object does not exist, and the patch is not an APPLY.
            Conflict: The resourceVersion in the patch is not the stored one, or, with APPLY,
                another manager owns a field.
            Invalid: The result is invalid, or a JSON Patch does not apply.
        """
        query = {"fieldManager": field_manager}
        if patch_type is PatchType.APPLY:
            query["force"] = "true" if force else "false"
        if timeout_s is not None:
            query["timeout"] = f"{round(timeout_s * 1000)}ms"
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        body = await self._request(
            "PATCH", path, query=query, body=patch, content_type=patch_type, timeout_s=timeout_s
        )
        return decode_response(body, kind)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
    ) -> None:
        """Delete an object; uid and resourceVersion are preconditions if they are given.

        Raises:
            NotFound: The object does not exist.
            Conflict: A precondition does not hold.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {key: value for key, value in preconditions.items() if value},
        }
        await self._request("DELETE", resource.path(namespace=namespace, name=name), body=options)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
        timeout_s: float | None = None,
    ) -> bytes:
        limits = self._timeout
        if timeout_s is not None:
            # The server's clock starts when the request arrives, and its answer has to come back.
            limits = aiohttp.ClientTimeout(
                total=timeout_s + ANSWER_S,
                sock_connect=min(limits.sock_connect or timeout_s, timeout_s),
            )
        async with self._open_response(
            method,
            path,
            query=query or {},
            body=body,
            content_type=content_type,
            limits=limits,
        ) as answer:
            return await answer.read()

    @asynccontextmanager
    async def _open_response(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        limits: aiohttp.ClientTimeout,
        body: object = None,
        content_type: str = "application/json",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and yield its successful response; the body is not read yet."""
        if self._connections is None:
            raise RuntimeError("the client is used outside `async with`")
        parameters = urlencode({name: value for name, value in query.items() if value})
        url = f"{self._configuration.host}{path}{'?' if parameters else ''}{parameters}"
        try:
            headers = {
                "Accept": "application/json",
                "User-Agent": NAME,
                "Content-Type": content_type,
            }
            headers |= await self._authorization()
            sent_s = time.monotonic()
            answer = await self._connections.request(
                method,
                url,
                headers=headers,
                body=None if body is None else msgspec.to_builtins(body, enc_hook=str),
                _request_timeout=limits,
            )
            async with answer.response as response:
                self._server_time = ServerTime.read(
                    response.headers.get("Date", ""), sent_s, time.monotonic()
                )
                if response.status >= 400:
                    raise error_from_status(response.status, await response.read())
                yield response
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            # uvloop raises RuntimeError where a socket has the number of one that is being closed.
            reason = str(error) or type(error).__name__
            raise KubeError(f"{method} {path}: no response: {reason}") from error

    async def _authorization(self) -> dict[str, str]:
        try:
            async with asyncio.timeout(self._timeout.total):
                settings: Mapping[str, Any] = await self._configuration.auth_settings()
        except KUBECONFIG_ERRORS as error:
            raise KubeError(f"credentials: {error!r}") from error
        return {str(header["key"]): str(header["value"]).strip() for header in settings.values()}
