import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import structlog
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from kube.api import meta
from kube.api.core import Pod
from kube.api.urls import Resource
from kube.client.client import Client
from kube.runtime.informer_settings import InformerSettings
from kube.runtime.informers import (
    InformerFactory,
    Subscription,
    unsynced_resources,
    wait_synced,
)
from kube.runtime.stores import Handler, Key
from process.serving.metrics import CacheCollector
from testing.documents import api_object
from testing.fake_api_server import FakeApiServer, running, until

PODS = Resource(version="v1", plural="pods")
QUICK = InformerSettings(
    backoff_s=0.01, backoff_limit_s=0.05, healthy_s=0.02, watch_s=(5, 10), idle_s=5, page_size=2
)


def pod(name: str, node: str = "n") -> dict[str, Any]:
    return api_object("Pod", name, "default", spec={"nodeName": node})


def node_of(raw: bytes) -> str | None:
    """Project a pod to its node; pods without one are left out."""
    return meta.decode(raw, Pod).spec.node_name or None


class Followed:
    """A subscription to pods with an informer that runs beside a test, and its changes."""

    def __init__(
        self,
        server: FakeApiServer,
        client: Client,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        **selectors: str,
    ) -> None:
        self.server = server
        self.changes: list[tuple[str, str | None, str | None]] = []
        self.factory = InformerFactory(client, settings=QUICK, clock=clock, jitter=jitter)
        self.pods: Subscription[str] = self.factory.subscribe(
            PODS, node_of, handlers=(self.note,), **selectors
        )

    def note(self, key: Key, old: str | None, new: str | None) -> None:
        self.changes.append((key[1], old, new))

    @property
    def nodes(self) -> dict[str, str]:
        return {name: node for (_, name), node in self.pods.store.items()}

    async def wait_nodes(self, **nodes: str) -> None:
        await until(lambda: self.nodes == nodes)


@asynccontextmanager
async def following(*names: str, **options: Any) -> AsyncIterator[Followed]:
    async with FakeApiServer() as server, server.client() as client:
        for name in names:
            server.put(PODS, pod(name))
        followed = Followed(server, client, **options)
        async with running(followed.factory.run):
            await until(lambda: server.watching == 1)
            yield followed


async def test_a_list_and_then_each_change() -> None:
    async with following("a", "b", "c") as followed_pods:
        assert followed_pods.pods.synced.is_set()
        assert followed_pods.nodes == {"a": "n", "b": "n", "c": "n"}
        assert followed_pods.server.counts == {"GET": 2, "WATCH": 1}

        followed_pods.server.put(PODS, pod("a", "m"))
        followed_pods.server.put(PODS, pod("d"))
        followed_pods.server.remove(PODS, "b", "default")
        await followed_pods.wait_nodes(a="m", c="n", d="n")

        assert followed_pods.changes[3:] == [("a", "n", "m"), ("d", None, "n"), ("b", "n", None)]


async def test_an_object_that_the_projection_leaves_out_is_not_stored() -> None:
    async with following("a") as followed_pods:
        followed_pods.server.put(PODS, pod("b", ""))
        followed_pods.server.put(PODS, pod("a", ""))
        await followed_pods.wait_nodes()

        assert followed_pods.changes == [("a", None, "n"), ("a", "n", None)]


async def test_an_object_that_cannot_be_decoded_is_counted_and_does_not_end_the_loop() -> None:
    async with following("a") as followed_pods:
        followed_pods.server.put(PODS, {**pod("a"), "spec": "nonsense"})
        followed_pods.server.put(PODS, pod("b"))
        await followed_pods.wait_nodes(b="n")

        assert followed_pods.pods.decode_errors == 1


async def test_text_that_is_no_unicode_makes_no_other_object_unreadable() -> None:
    """The API server returns the opaque fields of others as they wrote them."""
    half = {"opaque": {"parameters": "\ud800"}}
    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, {**pod("a"), **half})
        server.put(PODS, pod("b"))
        followed_pods = Followed(server, client)
        async with running(followed_pods.factory.run):
            await followed_pods.wait_nodes(a="n", b="n")

            server.put(PODS, {**pod("c"), **half})
            server.put(PODS, pod("d"))
            await followed_pods.wait_nodes(a="n", b="n", c="n", d="n")

        assert followed_pods.pods.decode_errors == 0


async def test_the_store_cannot_be_changed() -> None:
    async with following("a") as followed_pods:
        with pytest.raises(TypeError):
            followed_pods.pods.store["default", "a"] = "m"  # type: ignore[index]


async def test_selectors_and_namespace_reach_the_server() -> None:
    options = {"namespace": "x", "label_selector": "a=b", "field_selector": "spec.nodeName=n"}
    async with following("a", **options) as followed_pods:
        assert followed_pods.nodes == {}
        for call in followed_pods.server.calls:
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
    async with following("a") as followed_pods:
        server = followed_pods.server
        server.bookmark()
        trouble(server)
        await until(lambda: server.counts["WATCH"] == 2)
        server.put(PODS, pod("b"))
        await followed_pods.wait_nodes(a="n", b="n")

        assert server.counts == {"GET": 1, "WATCH": 2}
        assert server.calls[-1].query["resourceVersion"] == "2"
        assert followed_pods.changes == [("a", None, "n"), ("b", None, "n")]


async def test_a_version_that_is_too_old_lists_again_and_tells_the_difference() -> None:
    async with following("same", "changed", "gone") as followed_pods:
        server = followed_pods.server
        await server.refuse()
        server.put(PODS, pod("changed", "m"))
        server.put(PODS, pod("new"))
        server.remove(PODS, "gone", "default")
        server.expire()
        await server.accept()
        await followed_pods.wait_nodes(same="n", changed="m", new="n")
        await until(lambda: server.watching == 1)

        assert sorted(followed_pods.changes[3:]) == [
            ("changed", "n", "m"),
            ("gone", "n", None),
            ("new", None, "n"),
        ]


@pytest.mark.parametrize("code", [410, 500])
async def test_an_error_event_lists_again(code: int) -> None:
    async with following("a") as followed_pods:
        followed_pods.server.send("ERROR", {"kind": "Status", "code": code, "message": "told to"})
        await until(
            lambda: followed_pods.server.watching == 1 and followed_pods.server.counts["WATCH"] == 2
        )

        assert followed_pods.server.counts == {"GET": 2, "WATCH": 2}
        assert followed_pods.changes == [("a", None, "n")]


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_server_is_not_asked_for_the_list_again(status: int) -> None:
    async with following("a") as followed_pods:
        followed_pods.server.fail(status, times=2)
        followed_pods.server.break_watches()
        await until(
            lambda: followed_pods.server.watching == 1 and followed_pods.server.counts["WATCH"] == 4
        )

        assert followed_pods.server.counts["GET"] == 1


async def test_a_list_that_expires_between_pages_begins_again() -> None:
    async with FakeApiServer() as server, server.client() as client:
        for name in "abc":
            server.put(PODS, pod(name))
        server.fail(410, matches=lambda call: "continue" in call.query)
        followed = Followed(server, client)
        async with running(followed.factory.run):
            await followed.wait_nodes(a="n", b="n", c="n")
            await followed.pods.synced.wait()

        assert server.counts["GET"] == 4


async def test_age_of_contact() -> None:
    now = [100.0]
    async with FakeApiServer() as server, server.client() as client:
        followed = Followed(server, client, clock=lambda: now[0])
        assert followed.pods.contact_age_s == float("inf")
        async with running(followed.factory.run):
            await until(lambda: server.watching == 1)
            now[0] = 107.0
            assert followed.pods.contact_age_s == 7.0
            server.bookmark()
            await until(lambda: followed.pods.contact_age_s == 0.0)


async def test_attempts_at_a_server_that_refuses_become_rare() -> None:
    settings = msgspec.structs.replace(QUICK, backoff_s=0.02, backoff_limit_s=0.08)
    async with FakeApiServer() as server, server.client() as client:
        await server.refuse()
        factory = InformerFactory(client, settings=settings, jitter=lambda: 1.0)
        pods = factory.subscribe(PODS, node_of)
        async with running(factory.run):
            await asyncio.sleep(0.4)
            # Pauses of 0.02, 0.04, 0.08, 0.08, ... in 0.4 seconds.
            assert pods.failures <= 8
            await until(lambda: pods.failures >= 2)

        assert not pods.synced.is_set()


@pytest.mark.parametrize("trouble", ["ends", "breaks", "expires", "500"])
async def test_a_server_that_ends_each_watch_at_once_is_not_asked_in_a_hot_loop(
    trouble: str,
) -> None:
    settings = msgspec.structs.replace(QUICK, backoff_s=0.02, backoff_limit_s=0.08, healthy_s=1.0)
    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, pod("a"))
        factory = InformerFactory(client, settings=settings, jitter=lambda: 1.0)
        pods = factory.subscribe(PODS, node_of)

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

        async with running(factory.run, strike):
            await asyncio.sleep(0.4)
            assert server.counts["WATCH"] <= 8
            await until(lambda: server.counts["WATCH"] >= 2)

        assert dict(pods.store) == {("default", "a"): "n"}


@pytest.mark.parametrize(("jitter", "want"), [(0.0, "5"), (1.0, "10")])
async def test_times_of_watches_are_spread(jitter: float, want: str) -> None:
    async with following("a", jitter=lambda: jitter) as followed_pods:
        assert want == followed_pods.server.calls[-1].query["timeoutSeconds"]


async def test_a_handler_that_raises_ends_the_loop() -> None:
    def fail(key: Key, old: str | None, new: str | None) -> None:
        raise RuntimeError(key[1])

    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, pod("a"))
        factory = InformerFactory(client)
        factory.subscribe(PODS, node_of, handlers=(fail,))
        with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="a")):
            await factory.run()


async def test_an_event_that_makes_no_sense_is_answered_by_a_new_list() -> None:
    queries: list[str] = []
    async with client_of_raw_server(nested("a", 0), b'"nonsense"', queries) as client:
        factory = InformerFactory(client, settings=QUICK)
        factory.subscribe(PODS, len)
        async with running(factory.run):
            await until(lambda: queries.count("list") > 1)


@asynccontextmanager
async def client_of_raw_server(
    listed: bytes, changed: bytes, queries: list[str]
) -> AsyncIterator[Client]:
    """A server of one page and one event, as bytes that no fake with values in it could hold."""

    async def answer(request: web.Request) -> web.StreamResponse:
        queries.append("watch" if "watch" in request.query else "list")
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


@pytest.mark.parametrize("levels", [600, 5000], ids=["to walk", "to parse"])
async def test_an_object_nested_too_deeply_hides_no_other(levels: int) -> None:
    """The API server takes it in fields that are opaque to it, such as the parameters of a claim."""

    def depth(raw: bytes) -> int:
        return depth_of(meta.decode(raw, dict[str, Any])["spec"])

    listed = b",".join([nested("a", levels), nested("b", 2)])
    async with client_of_raw_server(listed, nested("c", levels), []) as client:
        factory = InformerFactory(client, settings=QUICK)
        pods = factory.subscribe(PODS, depth)
        async with running(factory.run):
            await until(lambda: len(pods.store) == 3)

    assert 1 == pods.store["", "b"]
    assert pods.store["", "a"] > 100
    assert pods.store["", "c"] > 100
    assert 0 == pods.decode_errors


# --- several subscriptions ------------------------------------------------------------------------


def uid_of(raw: bytes) -> str:
    """Project a pod of any other content to its uid."""
    return meta.decode(raw, Pod).metadata.uid


class Counted:
    """A projection that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, raw: bytes) -> str | None:
        self.calls += 1
        return node_of(raw)


async def test_a_resource_is_listed_and_watched_once_whoever_subscribes() -> None:
    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, pod("a"))
        factory = InformerFactory(client, settings=QUICK)
        nodes, uids = factory.subscribe(PODS, node_of), factory.subscribe(PODS, uid_of)
        async with running(factory.run):
            await until(lambda: server.watching == 1)

        assert {"GET": 1, "WATCH": 1} == server.counts
        assert {("default", "a"): "n"} == nodes.store
        assert [("default", "a")] == list(uids.store)


async def test_equal_projections_share_a_store_and_each_has_its_handlers() -> None:
    projection, called = Counted(), list[str]()

    def handler(name: str) -> Handler[str]:
        return lambda _key, _old, _new: called.append(name)

    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, pod("a"))
        factory = InformerFactory(client, settings=QUICK)
        subscription = factory.subscribe(PODS, projection, handlers=[handler("one")])
        other = factory.subscribe(PODS, projection, handlers=[handler("other")])
        async with running(factory.run):
            await wait_synced((subscription, other))

        assert subscription.store == other.store == {("default", "a"): "n"}
        assert 1 == projection.calls
        assert ["one", "other"] == called


async def test_other_selectors_are_another_informer() -> None:
    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, pod("a"))
        server.put(PODS, pod("b", "m"))
        factory = InformerFactory(client, settings=QUICK)
        every = factory.subscribe(PODS, node_of)
        subscription = factory.subscribe(PODS, node_of, field_selector="spec.nodeName=m")
        async with running(factory.run):
            await wait_synced((every, subscription))
            await until(lambda: server.watching == 2)

        assert ["n", "m"] == list(every.store.values())
        assert ["m"] == list(subscription.store.values())


async def test_a_version_is_projected_once_even_where_one_projection_leaves_it_out() -> None:
    nowhere, uids = Counted(), Counted()
    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, pod("a", ""))
        factory = InformerFactory(client, settings=QUICK)
        factory.subscribe(PODS, nowhere)
        factory.subscribe(PODS, uid_of)
        factory.subscribe(PODS, uids)
        async with running(factory.run):
            await until(lambda: server.watching == 1)
            server.expire()
            server.break_watches()
            await until(lambda: server.counts["GET"] == 2 and server.watching == 1)

        assert 1 == nowhere.calls == uids.calls


async def test_an_object_that_one_projection_cannot_decode_is_there_for_the_others() -> None:
    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, {**pod("a"), "spec": "nonsense"})
        factory = InformerFactory(client, settings=QUICK)
        nodes = factory.subscribe(PODS, node_of)
        sizes = factory.subscribe(PODS, len)
        async with running(factory.run):
            await wait_synced((nodes, sizes))

        assert (1, {}) == (nodes.decode_errors, nodes.store)
        assert (0, [("default", "a")]) == (sizes.decode_errors, list(sizes.store))


async def test_handlers_see_the_change_in_all_stores() -> None:
    store_sizes: list[bool] = []
    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, pod("a"))
        factory = InformerFactory(client, settings=QUICK)

        def record_store(key: Key, _old: str | None, _new: str | None) -> None:
            store_sizes.append(key in sizes.store)

        nodes = factory.subscribe(PODS, node_of, handlers=(record_store,))
        sizes = factory.subscribe(PODS, len)
        async with running(factory.run):
            await wait_synced((nodes,))

        assert [True] == store_sizes


async def test_nobody_subscribes_once_the_informers_run() -> None:
    async with FakeApiServer() as server, server.client() as client:
        factory = InformerFactory(client, settings=QUICK)
        factory.subscribe(PODS, node_of)
        async with running(factory.run):
            await until(lambda: server.watching == 1)
            with pytest.raises(RuntimeError, match="subscribe to pods before"):
                factory.subscribe(PODS, uid_of)


async def test_readiness_names_the_resources_that_are_waited_for() -> None:
    async with FakeApiServer() as server, server.client() as client:
        factory = InformerFactory(client, settings=QUICK)
        pods = factory.subscribe(PODS, node_of)
        others = factory.subscribe(PODS, node_of, namespace="other")

        assert "waiting for pods" == unsynced_resources((pods, others))
        async with running(factory.run):
            await wait_synced((pods, others))
        assert "" == unsynced_resources((pods, others))


async def test_the_store_never_goes_back_behind_a_write() -> None:
    async with following("a") as followed:
        await followed.wait_nodes(a="n")
        stale = followed.server.find(PODS, "a", "default")
        assert stale is not None
        written = followed.server.put(PODS, pod("a", "m"))
        await followed.wait_nodes(a="m")
        ahead = {**written, "spec": {"nodeName": "k"}}
        ahead["metadata"] = {**written["metadata"], "resourceVersion": "1000"}

        followed.pods.put(msgspec.json.encode(ahead))
        followed.pods.put(msgspec.json.encode(stale))
        followed.server.send("MODIFIED", stale)
        followed.server.send("DELETED", stale)
        followed.server.put(PODS, pod("b"))
        await until(lambda: "b" in followed.nodes)

        assert followed.nodes == {"a": "k", "b": "n"}


async def test_an_event_that_is_newer_than_a_write_counts() -> None:
    async with following("a") as followed:
        await followed.wait_nodes(a="n")
        written = followed.server.put(PODS, pod("a", "m"))
        followed.pods.put(msgspec.json.encode(written))
        assert followed.nodes == {"a": "m"}

        followed.server.put(PODS, pod("a", "o"))

        await followed.wait_nodes(a="o")


async def test_a_list_after_a_write_knows_more_than_the_write() -> None:
    async with following("a") as followed:
        await followed.wait_nodes(a="n")
        written = followed.server.put(PODS, pod("a", "m"))
        followed.pods.put(msgspec.json.encode(written))
        followed.server.remove(PODS, "a", "default")
        followed.server.expire()
        followed.server.break_watches()

        await followed.wait_nodes()


async def test_a_version_can_be_waited_for() -> None:
    async with following("a") as followed:
        await followed.wait_nodes(a="n")
        written = followed.server.put(PODS, pod("a", "m"))

        async with asyncio.timeout(30):
            await followed.pods.wait_seen(
                {("default", "a"): written["metadata"]["resourceVersion"]}
            )
        assert followed.nodes == {"a": "m"}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await followed.pods.wait_seen({("default", "a"): "1000"})


async def test_a_resource_that_is_not_served_is_logged_once_and_again_after_it_was() -> None:
    async with FakeApiServer() as server, server.client() as client:
        factory = InformerFactory(client, settings=QUICK)
        pods = factory.subscribe(PODS, node_of)
        server.fail(404, times=3)
        with structlog.testing.capture_logs() as logs:
            async with running(factory.run):
                await until(pods.synced.is_set)

        assert [(log["event"], log["status"]) for log in logs] == [("watch.failed", 404)]


def shown_of_caches(factory: InformerFactory) -> set[str]:
    """Return the names of the metrics with a sample."""
    metrics = CacheCollector(factory).collect()
    return {metric.name.removeprefix("drawbridge_cache_") for metric in metrics if metric.samples}


async def test_a_resource_is_available_again_once_it_is_served() -> None:
    async with FakeApiServer() as server, server.client() as client:
        factory = InformerFactory(client, settings=QUICK)
        pods = factory.subscribe(PODS, node_of)
        served = asyncio.Event()
        server.fail(404, times=10**6, matches=lambda _: not served.is_set())
        async with running(factory.run):
            await until(lambda: not pods.is_available)
            assert shown_of_caches(factory) == {"objects", "decode_errors"}
            served.set()
            await until(pods.synced.is_set)

            assert pods.is_available
            assert shown_of_caches(factory) == {"objects", "decode_errors", "synced", "age_seconds"}


async def test_a_watch_that_breaks_without_an_event_is_no_failure_if_it_lasted() -> None:
    """As behind a proxy that ends idle connections."""
    settings = InformerSettings(backoff_s=60.0, healthy_s=0.0)
    async with FakeApiServer() as server, server.client() as client:
        factory = InformerFactory(client, settings=settings, jitter=lambda: 1.0)
        pods = factory.subscribe(PODS, node_of)

        def has_broken_some() -> bool:
            server.break_watches()
            return server.counts["WATCH"] > 3

        async with running(factory.run):
            await until(has_broken_some)

            assert not pods.failures


@pytest.mark.parametrize(("refusals", "is_believed"), [(2, False), (3, True)])
async def test_some_refusals_in_a_row_are_believed(refusals: int, is_believed: bool) -> None:
    """An API server that starts refuses some requests before it has read the roles."""
    async with FakeApiServer() as server, server.client() as client:
        factory = InformerFactory(client, settings=QUICK)
        pods = factory.subscribe(PODS, node_of)
        server.fail(403, times=refusals)
        answered = server.delay(lambda _: pods.failures == refusals)
        async with running(factory.run):
            await until(lambda: pods.failures == refusals)

            assert pods.is_available is not is_believed
            answered.set()


class Suffixed:
    """A projection that gives other values once its suffix has changed."""

    def __init__(self) -> None:
        self.suffix = ""

    def project(self, raw: bytes) -> str | None:
        """Project a pod to its node and the suffix."""
        node = node_of(raw)
        return None if node is None else node + self.suffix


async def test_after_a_refresh_every_object_is_projected_anew() -> None:
    suffixed = Suffixed()

    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, pod("a"))
        factory = InformerFactory(client, settings=QUICK)
        pods = factory.subscribe(PODS, suffixed.project)
        async with running(factory.run):
            await until(lambda: server.watching == 1)
            suffixed.suffix = "!"
            pods.refresh()
            await until(lambda: [*pods.store.values()] == ["n!"])
            await until(lambda: server.watching == 1)
            server.put(PODS, pod("b"))
            await until(lambda: sorted(pods.store.values()) == ["n!", "n!"])
            server.remove(PODS, "a", "default")
            await until(lambda: len(pods.store) == 1)


async def test_a_refresh_during_a_list_is_followed_by_another_list() -> None:
    suffixed = Suffixed()

    def refresh_once(_key: Key, old: str | None, _new: str | None) -> None:
        if old is None:
            suffixed.suffix = "!"
            pods.refresh()

    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, pod("a"))
        factory = InformerFactory(client, settings=QUICK)
        pods = factory.subscribe(PODS, suffixed.project, handlers=(refresh_once,))
        async with running(factory.run):
            await until(lambda: [*pods.store.values()] == ["n!"])


async def test_a_refresh_while_a_watch_ends_for_another_changes_nothing() -> None:
    """Profiles that change twice within a turn of the loop ended the webhook."""
    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, pod("a"))
        factory = InformerFactory(client, settings=QUICK)
        pods = factory.subscribe(PODS, node_of)
        async with running(factory.run):
            await until(lambda: server.watching == 1)
            for _ in range(3):
                pods.refresh()
                await asyncio.sleep(0)
            server.put(PODS, pod("b"))
            await until(lambda: len(pods.store) == 2)


async def test_a_refresh_by_a_handler_of_an_event_is_followed_by_a_list() -> None:
    suffixed = Suffixed()

    def refresh_at_b(key: Key, old: str | None, _new: str | None) -> None:
        if key[1] == "b" and old is None:
            suffixed.suffix = "!"
            pods.refresh()

    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, pod("a"))
        factory = InformerFactory(client, settings=QUICK)
        pods = factory.subscribe(PODS, suffixed.project, handlers=(refresh_at_b,))
        async with running(factory.run):
            await until(lambda: server.watching == 1)
            server.put(PODS, pod("b"))
            await until(lambda: sorted(pods.store.values()) == ["n!", "n!"])
