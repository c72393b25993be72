import asyncio
import json
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kubernetes.aio.client import Configuration

from kube.api.core import Pod
from kube.api.urls import Resource
from kube.client import credentials
from kube.client.client import Client, PatchType
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
from testing.documents import api_object
from testing.fake_api_server import FakeApiServer, until

PODS = Resource(version="v1", plural="pods")
CLASSES = Resource(group="resource.k8s.io", version="v1", plural="deviceclasses", namespaced=False)


def pod(name: str = "a", **spec: Any) -> dict[str, Any]:
    return api_object("Pod", name, "default", spec=spec)


@pytest.mark.parametrize(
    ("want", "text"),
    [
        ("/api/v1/pods", PODS.path()),
        ("/api/v1/namespaces/a/pods", PODS.path(namespace="a")),
        (
            "/api/v1/namespaces/a/pods/b/status",
            PODS.path(namespace="a", name="b", subresource="status"),
        ),
        ("/apis/resource.k8s.io/v1/deviceclasses/c", CLASSES.path(name="c")),
        ("/apis/resource.k8s.io/v1/deviceclasses/..%2Fx", CLASSES.path(namespace="a", name="../x")),
    ],
)
def test_path(want: str, text: str) -> None:
    assert want == text


async def test_create_get_patch_and_delete() -> None:
    async with FakeApiServer() as server, server.client() as client:
        object_ = await client.create(PODS, pod(nodeName="n"), Pod, namespace="default")
        value = await client.get(PODS, "a", Pod, namespace="default")
        assert (object_, "n") == (value, value.spec.node_name)

        patched_object = await client.patch(
            PODS, "a", {"spec": {"nodeName": "m"}}, PatchType.MERGE, Pod, namespace="default"
        )
        assert patched_object.spec.node_name == "m"

        operations = [{"op": "replace", "path": "/spec/nodeName", "value": "o"}]
        patched_document = await client.patch(
            PODS, "a", operations, PatchType.JSON, dict[str, Any], namespace="default"
        )
        assert patched_document["spec"] == {"nodeName": "o"}

        status = {"status": {"phase": "Running"}, "spec": {"nodeName": "ignored"}}
        running = await client.patch(
            PODS, "a", status, PatchType.MERGE, Pod, namespace="default", subresource="status"
        )
        assert running.status is not None
        assert (running.status.phase, running.spec.node_name) == ("Running", "o")

        await client.delete(PODS, "a", namespace="default", uid=object_.metadata.uid)
        assert server.objects(PODS) == []


async def test_a_wall_clock_that_is_wrong_is_corrected_by_the_last_answer() -> None:
    date = datetime(2026, 11, 20, tzinfo=UTC)
    async with FakeApiServer() as server, server.client() as client:
        server.now = lambda: date
        assert client.correct(date + timedelta(days=1)) == date + timedelta(days=1), "no answer yet"
        await client.version()

        assert client.server_time == date
        assert client.correct(date) == date
        assert abs(client.correct(date + timedelta(days=1)) - date) < timedelta(minutes=10)
        assert abs(client.correct(date - timedelta(days=1)) - date) < timedelta(minutes=10)


async def test_a_patch_tells_the_server_its_timeout() -> None:
    async with FakeApiServer() as server, server.client() as client:
        await client.create(PODS, pod(), Pod, namespace="default", field_manager="us")
        server.hang()

        with pytest.raises(KubeError, match="no response"):
            await client.patch(
                PODS, "a", {}, PatchType.MERGE, Pod, namespace="default", timeout_s=0.05
            )

        assert server.calls[0].query == {"fieldManager": "us"}
        assert server.calls[1].query["timeout"] == "50ms"
        server.resume()


async def test_a_dry_run_stores_nothing() -> None:
    async with FakeApiServer() as server, server.client() as client:
        object_ = await client.create(PODS, pod(), Pod, namespace="default", dry_run=True)

        assert object_.metadata.uid
        assert server.objects(PODS) == []


async def test_apply_creates_and_then_changes() -> None:
    async with FakeApiServer() as server, server.client() as client:
        for node in ("n", "m"):
            document = pod(nodeName=node)
            await client.patch(
                PODS, "a", document, PatchType.APPLY, Pod, namespace="default", field_manager="us"
            )

        [object_] = server.objects(PODS)
        assert object_["spec"] == {"nodeName": "m"}
        assert server.calls[-1].query == {"fieldManager": "us", "force": "false"}


async def test_list_reads_all_pages() -> None:
    async with FakeApiServer() as server, server.client() as client:
        for number in range(1201):
            server.put(PODS, pod(f"p{number:04}"))

        listing = await client.list(PODS, Pod)

        assert [f"p{number:04}" for number in range(1201)] == [
            item.metadata.name for item in listing.items
        ]
        assert listing.resource_version == "1201"
        assert [call.query["limit"] for call in server.calls] == ["500", "500", "500"]


async def test_list_selects() -> None:
    async with FakeApiServer() as server, server.client() as client:
        pod_ = pod("b")
        pod_["metadata"]["labels"] = {"app": "x"}
        for document in (pod("a"), pod_):
            server.put(PODS, document)

        by_label = await client.list(PODS, Pod, namespace="default", label_selector="app=x")
        by_field = await client.list(PODS, Pod, field_selector="metadata.name=a")
        elsewhere = await client.list(PODS, Pod, namespace="other")

        assert [
            [item.metadata.name for item in listing.items]
            for listing in (by_label, by_field, elsewhere)
        ] == [["b"], ["a"], []]


async def test_list_whose_continuation_expires() -> None:
    async with FakeApiServer() as server, server.client() as client:
        for number in range(3):
            server.put(PODS, pod(f"p{number}"))
        async with aclosing(client.pages(PODS, limit=2)) as pages:
            await anext(pages)
            server.expire()
            with pytest.raises(Gone):
                await anext(pages)


async def test_a_list_can_go_on_after_its_continuation_expired() -> None:
    async with FakeApiServer() as server, server.client() as client:
        for number in range(5):
            server.put(PODS, pod(f"p{number}"))
        names = []
        async for page in client.pages(PODS, limit=2, resumes=True):
            names += [json.loads(bytes(raw))["metadata"]["name"] for raw in page.items]
            server.expire()

    assert names == ["p0", "p1", "p2", "p3", "p4"]


async def test_watch_yields_events_and_bookmarks_until_it_ends() -> None:
    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, pod("before"))
        notes = []

        async def change() -> None:
            await until(lambda: server.watching == 1)
            server.put(PODS, pod("a"))
            server.put(PODS, pod("a", nodeName="n"))
            server.remove(PODS, "a", "default")
            server.bookmark()
            server.end_watches()

        async with asyncio.TaskGroup() as group:
            group.create_task(change())
            async for event in client.watch(PODS, resource_version="1", timeout_s=5):
                document = msgspec.json.decode(event.object)
                notes.append((event.type, document["metadata"]["resourceVersion"]))

        assert notes == [("ADDED", "2"), ("MODIFIED", "3"), ("DELETED", "4"), ("BOOKMARK", "5")]
        query = server.calls[-1].query
        assert (query["allowWatchBookmarks"], query["timeoutSeconds"]) == ("true", "5")


async def test_watch_replays_what_happened_since() -> None:
    async with FakeApiServer() as server, server.client() as client:
        for name in "abc":
            server.put(PODS, pod(name))
        async with aclosing(client.watch(PODS, resource_version="1")) as events:
            first = await anext(events)

        assert msgspec.json.decode(first.object)["metadata"]["name"] == "b"


async def _drain(client: Client, version: str = "1", idle_s: float = 5.0) -> None:
    async for _ in client.watch(PODS, resource_version=version, timeout_s=5, idle_s=idle_s):
        pass


async def test_watch_from_a_version_that_is_too_old() -> None:
    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, pod())
        server.expire()

        with pytest.raises(Gone, match="too old resource version") as error:
            await _drain(client)

        assert (error.value.status, error.value.reason) == (410, "Expired")


async def test_watch_that_is_interrupted_idle_or_sends_an_endless_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kube.client.responses.MAX_LINE_BYTES", 2**20)
    async with FakeApiServer() as server, server.client() as client:
        with pytest.raises(KubeError, match="no response") as error:
            await _drain(client, idle_s=0.05)
        assert error.value.status == 0
        await until(lambda: server.watching == 0)

        for trouble, words in (
            (server.break_watches, "no response"),
            (lambda: server.send("ADDED", {"a": "x" * 2**21}), "longer than 1 MiB"),
            (lambda: server.send("ERROR", {"code": 500, "message": "etcd"}), "etcd"),
        ):
            async with asyncio.TaskGroup() as group:

                async def strike(trouble: Any = trouble) -> None:
                    await until(lambda: server.watching == 1)
                    trouble()

                group.create_task(strike())
                with pytest.raises(KubeError, match=words):
                    await _drain(client)
            await until(lambda: server.watching == 0)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, KubeError),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Gone),
        (422, Invalid),
        (429, Throttled),
        (500, KubeError),
        (503, KubeError),
    ],
)
async def test_an_error_status_becomes_its_exception(status: int, kind: type[KubeError]) -> None:
    async with FakeApiServer() as server, server.client() as client:
        server.fail(status)

        with pytest.raises(kind, match=f"told to answer {status}") as error:
            await client.get(PODS, "a", Pod)

        assert (type(error.value), error.value.status) == (kind, status)
        assert len(server.calls) == 1


async def test_already_exists_is_not_conflict() -> None:
    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, pod())

        with pytest.raises(AlreadyExists) as exists:
            await client.create(PODS, pod(), Pod, namespace="default")
        stale = {"metadata": {"resourceVersion": "0"}}
        with pytest.raises(Conflict, match="has been modified"):
            await client.patch(PODS, "a", stale, PatchType.MERGE, Pod, namespace="default")
        with pytest.raises(Conflict, match="Precondition"):
            await client.delete(PODS, "a", namespace="default", uid="other")
        with pytest.raises(Conflict, match="Precondition"):
            await client.delete(PODS, "a", namespace="default", resource_version="0")
        with pytest.raises(NotFound, match='pods "b" not found'):
            await client.delete(PODS, "b", namespace="default")
        test = [{"op": "test", "path": "/metadata/name", "value": "b"}]
        with pytest.raises(Invalid):
            await client.patch(PODS, "a", test, PatchType.JSON, Pod, namespace="default")

        assert (exists.value.status, exists.value.reason) == (409, "AlreadyExists")


async def test_no_response_is_a_kube_error_without_status() -> None:
    async with FakeApiServer() as server:
        async with server.client(timeout_s=0.1) as client:
            server.hang()
            with pytest.raises(
                KubeError, match=r"GET /api/v1/.*/pods/a: no response: TimeoutError"
            ) as hung:
                await client.get(PODS, "a", Pod, namespace="default")
            server.resume()
            server.fail(None, times=2)
            with pytest.raises(KubeError, match="no response") as excinfo:
                await client.get(PODS, "a", Pod, namespace="default")
            await server.refuse()
            with pytest.raises(KubeError, match="no response") as excinfo:
                await client.get(PODS, "a", Pod, namespace="default")

        assert [error_info.value.status for error_info in (hung, excinfo, excinfo)] == [0, 0, 0]


async def test_an_unexpected_response_is_a_kube_error() -> None:
    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, {**pod(), "spec": "nonsense"})

        with pytest.raises(KubeError, match=r"unexpected response: .*\$\.spec"):
            await client.get(PODS, "a", Pod, namespace="default")


async def test_use_of_a_closed_client_is_a_bug() -> None:
    client = Client(Configuration(host="http://127.0.0.1:9"))

    with pytest.raises(RuntimeError, match="async with"):
        await client.get(PODS, "a", Pod)


def kubeconfig(folder: Path, host: str, user: dict[str, Any]) -> str:
    file = folder / "config"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": host}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
    }
    file.write_text(json.dumps(document))
    return str(file)


async def test_kubeconfig_token_file_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "MAX_TOKEN_AGE_S", 0.0)
    token = tmp_path / "token"
    token.write_text("first\n")
    async with FakeApiServer() as server:
        path = kubeconfig(tmp_path, server.url, {"tokenFile": "token"})
        async with await Client.from_kubeconfig(path) as client:
            await client.list(PODS, Pod)
            token.write_text("second\n")
            await client.list(PODS, Pod)

        assert [call.authorization for call in server.calls] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("text", [None, "", "[]", "a: b: c", "{}", "kind: Config", "\xff\x00"])
async def test_kubeconfig_that_is_missing_or_invalid(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "config"
    if text is not None:
        file.write_text(text)

    with pytest.raises(ConfigError):
        await Client.from_kubeconfig(str(file))


async def test_kubeconfig_without_the_context(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "http://127.0.0.1:9", {})

    with pytest.raises(ConfigError, match='context "two" does not exist; contexts are: one'):
        await Client.from_kubeconfig(path, "two")


async def test_a_missing_kubeconfig_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match="no kubeconfig at"):
        await Client.from_kubeconfig(str(tmp_path / "config"))

    assert "" == caplog.text


async def test_in_cluster_needs_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(ConfigError, match="in-cluster"):
        await Client.in_cluster()


async def test_credentials_that_become_invalid_are_an_error_of_the_call() -> None:
    async def broken(_: Configuration) -> None:
        raise KeyError("token")

    async with FakeApiServer() as server:
        configuration = Configuration(host=server.url, api_key={"BearerToken": "t"})
        configuration.refresh_api_key_hook = broken  # type: ignore[assignment]
        async with Client(configuration) as client:
            with pytest.raises(KubeError, match="credentials: KeyError"):
                await client.get(PODS, "a", Pod, namespace="default")
