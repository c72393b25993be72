"""A proxy between a process and the API server that holds, loses and cuts connections as a story says.

It has a certificate of its own and passes everything on, with the caller's own token. A held write is
sent on when the story says so, however long that is after its caller has given up. It runs in a
thread, so that stories stay plain functions.
"""

import asyncio
import json
import ssl
import threading
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, Self

import yaml
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

from e2e.access import Access
from e2e.credentials import Authority, cluster_entry, write_secret
from testing.ports import free_ports

CHUNK: Final = 2**16
HOST: Final = "127.0.0.1"
EXPIRED: Final = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "message": "too old resource version",
    "reason": "Expired",
    "code": 410,
}
_HOP: Final = frozenset({"host", "content-length", "transfer-encoding", "connection"})


class Outcome(Enum):
    """An outcome of a write."""

    PASS = "pass"
    LOSE = "lose"
    """It never arrives, and the caller hears nothing."""
    MUTE = "mute"
    """It is made, and the caller hears nothing."""
    HOLD = "hold"
    """It arrives when the story says so, and the caller hears nothing."""


class LateWrite(NamedTuple):
    """A write that was held.

    Attributes:
        path: The path of the object.
        status: The status of the API server's answer.
    """

    path: str
    status: int


class Interposer:
    """The proxy; `with Interposer(cluster) as proxy`.

    Attributes:
        url: The address that it listens at.
    """

    def __init__(self, cluster: Access, resource: str = "resourceclaims") -> None:
        """Remember the cluster; nothing listens yet.

        Args:
            resource: The resource with the writes to decide about.
        """
        self._resource = resource
        entry = cluster.entry()
        self._server = entry["server"]
        self._tls = ssl.create_default_context(
            cadata=b64decode(entry["certificate-authority-data"]).decode()
        )
        (self._port,) = free_ports(1)
        self.url = f"https://{HOST}:{self._port}"
        self._authority = Authority("interposer-authority")
        self._outcome: Callable[[str], Outcome] = lambda _path: Outcome.PASS
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="interposer")
        self._held: list[tuple[str, Callable[[], Awaitable[LateWrite]]]] = []
        self._watches: dict[asyncio.Task[Any], str] = {}
        self._withheld: frozenset[str] = frozenset()
        self._resumed = asyncio.Event()
        self._expired: set[tuple[str, str]] | None = None
        self.counts: dict[Outcome, int] = dict.fromkeys(Outcome, 0)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def redirect(self, kubeconfig: Path) -> None:
        """Have the user of a kubeconfig come here."""
        document = yaml.load(kubeconfig.read_text(), Loader=yaml.CSafeLoader)
        entry = cluster_entry(self.url, self._authority.certificate)
        document["clusters"][0]["cluster"] = entry
        kubeconfig.unlink()
        write_secret(kubeconfig, json.dumps(document))

    def decide(self, outcome: Callable[[str], Outcome]) -> None:
        """Decide by a function of the path on the outcome of each later write of an object."""
        self._outcome = outcome

    def release(self) -> list[LateWrite]:
        """Send the held writes on, and return the API server's answers."""

        async def send() -> list[LateWrite]:
            held, self._held = self._held, []
            return [await write() for _, write in held]

        return asyncio.run_coroutine_threadsafe(send(), self._loop).result(60)

    def held(self) -> set[str]:
        """Return the paths of the writes that are held."""
        return {path for path, _ in self._held}

    def withhold_watches(self, *resources: str) -> None:
        """Cut the watches of resources, and leave later ones without an answer until `expire_watches`."""

        async def cut() -> None:
            self._withheld = frozenset(resources)
            self._resumed.clear()
            self._cut(self._is_withheld)

        asyncio.run_coroutine_threadsafe(cut(), self._loop).result(10)

    def expire_watches(self) -> None:
        """Cut all watches, and answer the next one of each client and resource with 410."""

        async def cut() -> None:
            self._expired = set()
            self._withheld = frozenset()
            self._resumed.set()
            self._cut(lambda _path: True)

        asyncio.run_coroutine_threadsafe(cut(), self._loop).result(10)

    # --- in the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        timeout = ClientTimeout(total=None)
        connector = TCPConnector(ssl=self._tls, limit=0)
        async with ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False
        ) as self._session:
            app = web.Application(client_max_size=64 << 20)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
            await runner.setup()
            await web.TCPSite(runner, HOST, self._port, ssl_context=self._own_tls()).start()
            self._listening.set()
            await self._ended.wait()
            await runner.cleanup()

    def _own_tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        with TemporaryDirectory() as folder:
            certificate, key = self._authority.issue("interposer").write(Path(folder), "tls")
            context.load_cert_chain(certificate, key)
        return context

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.method == "PATCH" and f"/{self._resource}/" in request.path:
            outcome = self._outcome(request.path)
            self.counts[outcome] += 1
            if outcome is not Outcome.PASS:
                return await self._silence(request, body, outcome)
        if request.query.get("watch") in {"true", "1"}:
            return await self._watch(request)
        return await self._pass(request, body)

    async def _silence(
        self, request: web.Request, body: bytes, outcome: Outcome
    ) -> web.StreamResponse:
        """Let a write go its way, and give its caller no answer."""
        method, path, headers = request.method, request.path_qs, _kept(request.headers)

        async def send() -> LateWrite:
            async with self._session.request(
                method, self._server + path, data=body, headers=headers
            ) as answer:
                await answer.read()
                return LateWrite(request.path, answer.status)

        if outcome is Outcome.MUTE:
            await send()
        elif outcome is Outcome.HOLD:
            self._held.append((request.path, send))
        if request.transport is not None:
            request.transport.abort()
        raise web.HTTPBadGateway

    def _cut(self, is_cut: Callable[[str], bool]) -> None:
        for task, path in tuple(self._watches.items()):
            if is_cut(path):
                task.cancel()

    def _is_withheld(self, path: str) -> bool:
        return path.rpartition("/")[2] in self._withheld

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if self._is_withheld(request.path):
            await self._resumed.wait()
        client = (request.headers.get("User-Agent", ""), request.path)
        if self._expired is not None and client not in self._expired:
            self._expired.add(client)
            return web.json_response(EXPIRED, status=410)
        task = asyncio.current_task()
        assert task is not None
        self._watches[task] = request.path
        try:
            return await self._pass(request, b"")
        except asyncio.CancelledError:
            if request.transport is not None:
                request.transport.abort()
            raise
        finally:
            del self._watches[task]

    async def _pass(self, request: web.Request, body: bytes) -> web.StreamResponse:
        url = self._server + request.path_qs
        try:
            # Compressed, the events with which client-go begins a watch never reach it from here.
            headers = {**_kept(request.headers), "Accept-Encoding": "identity"}
            async with self._session.request(
                request.method, url, data=body or None, headers=headers
            ) as answer:
                response = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                with suppress(ConnectionError):
                    await response.write_eof()
                return response
        except ClientError as error:
            raise web.HTTPBadGateway(text=str(error)) from error


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP}
