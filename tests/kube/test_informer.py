import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from kube.api import meta
from kube.api.core import Pod
from kube.api.url import Resource
from kube.client import Client
from kube.informer import Informer, InformerSettings, Key
from tests.fake_api_server import FakeApiServer, running, until

PODS = Resource(version="v1", plural="pods")
QUICK = InformerSettings(
    backoff_s=0.01, backoff_limit_s=0.05, healthy_s=0.02, watch_s=(5, 10), idle_s=5, page_size=2
)


def pod(name: str, node: str = "n") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}}


def node_of(raw: bytes) -> str | None:
    """Keep the node of pods that have one."""
    return meta.decode(raw, Pod).spec.node_name or None


class Followed:
    """An informer of pods that runs beside a test, and what it told."""

    def __init__(self, server: FakeApiServer, client: Client, **options: Any) -> None:
        self.server = server
        self.changes: list[tuple[str, str | None, str | None]] = []
        self.informer: Informer[str] = Informer(
            client, PODS, node_of, handlers=(self.note,), settings=QUICK, **options
        )

    def note(self, key: Key, old: str | None, new: str | None) -> None:
        self.changes.append((key[1], old, new))

    @property
    def nodes(self) -> dict[str, str]:
        return {name: node for (_, name), node in self.informer.store.items()}

    async def sees(self, **nodes: str) -> None:
        await until(lambda: self.nodes == nodes)


@asynccontextmanager
async def following(*names: str, **options: Any) -> AsyncIterator[Followed]:
    async with FakeApiServer() as server, server.client() as client:
        for name in names:
            server.put(PODS, pod(name))
        followed = Followed(server, client, **options)
        async with running(followed.informer.run):
            await until(lambda: server.watching == 1)
            yield followed


async def test_a_list_and_then_each_change() -> None:
    async with following("a", "b", "c") as followed:
        assert followed.informer.synced.is_set()
        assert followed.nodes == {"a": "n", "b": "n", "c": "n"}
        assert followed.server.counts == {"GET": 2, "WATCH": 1}

        followed.server.put(PODS, pod("a", "m"))
        followed.server.put(PODS, pod("d"))
        followed.server.remove(PODS, "b", "default")
        await followed.sees(a="m", c="n", d="n")

        assert followed.changes[3:] == [("a", "n", "m"), ("d", None, "n"), ("b", "n", None)]


async def test_what_keep_refuses_is_not_stored() -> None:
    async with following("a") as followed:
        followed.server.put(PODS, pod("b", ""))
        followed.server.put(PODS, pod("a", ""))
        await followed.sees()

        assert followed.changes == [("a", None, "n"), ("a", "n", None)]


async def test_what_keep_cannot_read_is_counted_and_does_not_end_the_loop() -> None:
    async with following("a") as followed:
        followed.server.put(PODS, {**pod("a"), "spec": "nonsense"})
        followed.server.put(PODS, pod("b"))
        await followed.sees(b="n")

        assert followed.informer.unreadable == 1


async def test_the_store_cannot_be_changed() -> None:
    async with following("a") as followed:
        with pytest.raises(TypeError):
            followed.informer.store["default", "a"] = "m"  # type: ignore[index]


async def test_selectors_and_namespace_reach_the_server() -> None:
    options = {"namespace": "x", "label_selector": "a=b", "field_selector": "spec.nodeName=n"}
    async with following("a", **options) as followed:
        assert followed.nodes == {}
        for call in followed.server.calls:
            assert call.path == "/api/v1/namespaces/x/pods"
            assert call.query["labelSelector"] == "a=b"
            assert call.query["fieldSelector"] == "spec.nodeName=n"


@pytest.mark.parametrize(
    "trouble",
    [FakeApiServer.end_watches, FakeApiServer.break_watches],
    ids=["a watch that ends", "a watch that breaks"],
)
async def test_a_watch_resumes_from_the_last_bookmark(
    trouble: Callable[[FakeApiServer], None],
) -> None:
    async with following("a") as followed:
        server = followed.server
        server.bookmark()
        trouble(server)
        await until(lambda: server.counts["WATCH"] == 2)
        server.put(PODS, pod("b"))
        await followed.sees(a="n", b="n")

        assert server.counts == {"GET": 1, "WATCH": 2}
        assert server.calls[-1].query["resourceVersion"] == "2"
        assert followed.changes == [("a", None, "n"), ("b", None, "n")]


async def test_a_version_that_is_too_old_lists_again_and_tells_the_difference() -> None:
    async with following("same", "changed", "gone") as followed:
        server = followed.server
        await server.refuse()
        server.put(PODS, pod("changed", "m"))
        server.put(PODS, pod("new"))
        server.remove(PODS, "gone", "default")
        server.expire()
        await server.accept()
        await followed.sees(same="n", changed="m", new="n")
        await until(lambda: server.watching == 1)

        assert sorted(followed.changes[3:]) == [
            ("changed", "n", "m"),
            ("gone", "n", None),
            ("new", None, "n"),
        ]


@pytest.mark.parametrize("code", [410, 500])
async def test_an_error_event_lists_again(code: int) -> None:
    async with following("a") as followed:
        followed.server.send("ERROR", {"kind": "Status", "code": code, "message": "told to"})
        await until(lambda: followed.server.watching == 1 and followed.server.counts["WATCH"] == 2)

        assert followed.server.counts == {"GET": 2, "WATCH": 2}
        assert followed.changes == [("a", None, "n")]


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_server_is_not_asked_for_the_list_again(status: int) -> None:
    async with following("a") as followed:
        followed.server.fail(status, times=2)
        followed.server.break_watches()
        await until(lambda: followed.server.watching == 1 and followed.server.counts["WATCH"] == 4)

        assert followed.server.counts["GET"] == 1


async def test_a_list_that_expires_between_pages_begins_again() -> None:
    async with FakeApiServer() as server, server.client() as client:
        for name in "abc":
            server.put(PODS, pod(name))
        server.fail(410, matches=lambda call: "continue" in call.query)
        followed = Followed(server, client)
        async with running(followed.informer.run):
            await followed.sees(a="n", b="n", c="n")
            await followed.informer.synced.wait()

        assert server.counts["GET"] == 4


async def test_age_of_contact() -> None:
    now = [100.0]
    async with FakeApiServer() as server, server.client() as client:
        followed = Followed(server, client, clock=lambda: now[0])
        assert followed.informer.contact_age_s == float("inf")
        async with running(followed.informer.run):
            await until(lambda: server.watching == 1)
            now[0] = 107.0
            assert followed.informer.contact_age_s == 7.0
            server.bookmark()
            await until(lambda: followed.informer.contact_age_s == 0.0)


async def test_attempts_at_a_server_that_refuses_become_rare() -> None:
    settings = msgspec.structs.replace(QUICK, backoff_s=0.02, backoff_limit_s=0.08)
    async with FakeApiServer() as server, server.client() as client:
        await server.refuse()
        informer = Informer(client, PODS, node_of, settings=settings, jitter=lambda: 1.0)
        async with running(informer.run):
            await asyncio.sleep(0.4)

        # Pauses of 0.02, 0.04, 0.08, 0.08, ... in 0.4 seconds.
        assert 2 <= informer.failures <= 8
        assert not informer.synced.is_set()


@pytest.mark.parametrize("trouble", ["ends", "breaks", "expires", "500"])
async def test_a_server_that_ends_each_watch_at_once_is_not_asked_in_a_hot_loop(
    trouble: str,
) -> None:
    settings = msgspec.structs.replace(QUICK, backoff_s=0.02, backoff_limit_s=0.08, healthy_s=1.0)
    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, pod("a"))
        informer = Informer(client, PODS, node_of, settings=settings, jitter=lambda: 1.0)

        async def strike() -> None:
            while True:
                await until(lambda: server.watching == 1)
                if trouble == "expires":
                    server.expire()
                if trouble == "ends":
                    server.end_watches()
                elif trouble == "500":
                    server.send("ERROR", {"code": 500})
                else:
                    server.break_watches()
                await until(lambda: server.watching == 0)

        async with running(informer.run, strike):
            await asyncio.sleep(0.4)

        assert 2 <= server.counts["WATCH"] <= 8
        assert dict(informer.store) == {("default", "a"): "n"}


@pytest.mark.parametrize(("jitter", "want"), [(0.0, "5"), (1.0, "10")])
async def test_times_of_watches_are_spread(jitter: float, want: str) -> None:
    async with following("a", jitter=lambda: jitter) as followed:
        assert want == followed.server.calls[-1].query["timeoutSeconds"]


async def test_a_handler_that_raises_ends_the_loop() -> None:
    def fail(key: Key, old: str | None, new: str | None) -> None:
        raise RuntimeError(key[1])

    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, pod("a"))
        with pytest.raises(RuntimeError, match="a"):
            await Informer(client, PODS, node_of, handlers=(fail,)).run()


async def test_an_event_that_makes_no_sense_is_answered_by_a_new_list() -> None:
    asked: list[str] = []
    async with of_a_server_that_has(nested("a", 0), b'"nonsense"', asked) as client:
        informer = Informer(client, PODS, len, settings=QUICK)
        async with running(informer.run):
            await until(lambda: asked.count("list") > 1)


@asynccontextmanager
async def of_a_server_that_has(
    listed: bytes, changed: bytes, asked: list[str]
) -> AsyncIterator[Client]:
    """A server of one page and one event, as bytes that no fake with values in it could hold."""

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append("watch" if "watch" in request.query else "list")
        if "watch" not in request.query:
            return web.Response(body=b'{"metadata":{"resourceVersion":"1"},"items":[%s]}' % listed)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type":"ADDED","object":%s}\n' % changed)
        await asyncio.sleep(5)
        return response

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with (
        TestServer(app) as server,
        Client(Configuration(host=str(server.make_url("")))) as client,
    ):
        yield client


def nested(name: str, depth: int) -> bytes:
    text = b'{"metadata":{"name":"%s","resourceVersion":"1"},"spec":%s}'
    return text % (name.encode(), b"[" * depth + b"]" * depth)


def depth_of(value: list[Any] | None) -> int:
    return 1 + max(map(depth_of, value), default=0) if value else 0


@pytest.mark.parametrize("depth", [600, 5000], ids=["to walk", "to parse"])
async def test_an_object_nested_too_deeply_hides_no_other(depth: int) -> None:
    """The API server takes it where it is opaque to it, such as in the parameters of a claim."""

    def keep(raw: bytes) -> int:
        return depth_of(meta.decode(raw, dict[str, Any])["spec"])

    listed = b",".join([nested("a", depth), nested("b", 2)])
    async with of_a_server_that_has(listed, nested("c", depth), []) as client:
        informer = Informer(client, PODS, keep, settings=QUICK)
        async with running(informer.run):
            await until(lambda: len(informer.store) == 3)

    assert 1 == informer.store["", "b"]
    assert informer.store["", "a"] > 100
    assert informer.store["", "c"] > 100
    assert 0 == informer.unreadable
