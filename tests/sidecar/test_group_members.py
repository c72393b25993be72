"""PodGroups and their pods as they are seen."""

from pathlib import Path

import pytest

from kube.api.urls import POD_GROUPS, PODS
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, until
from testing.sidecar.scheduler import Sidecar, pod_with, publish, put_pod, sidecar_beside

GROUP = ("default", "job")


def put_group(server: FakeApiServer, policy: Document) -> Document:
    metadata = {"name": "job", "namespace": "default"}
    return server.put(POD_GROUPS, {"metadata": metadata, "spec": {"schedulingPolicy": policy}})


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        ({"gang": {"minCount": 3}}, 3),
        ({"basic": {}}, 1),
        ({}, 1),
        ({"gang": {}}, 1),
        ({"gang": {"minCount": -7}}, 1),
    ],
    ids=["a gang", "basic", "no policy", "a gang without a number", "a number that is none"],
)
async def test_min_count(tmp_path: Path, policy: Document, want: int) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1")
        uid = put_group(server, policy)["metadata"]["uid"]
        async with sidecar_beside(server, tmp_path) as sidecar:
            groups = sidecar.state.groups

            assert groups.min_count(GROUP) == want
            assert groups.min_count(GROUP, uid) == want
            assert groups.min_count(GROUP, "another") is None
            assert groups.min_count(("default", "other")) is None


async def bound_after(
    server: FakeApiServer, sidecar: Sidecar, pod: Document, want: set[str]
) -> None:
    server.put(PODS, pod)
    await until(lambda: sidecar.state.groups.bound(GROUP) == want)


async def test_pods_count_from_their_binding_to_their_end(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1")
        put_pod(server, "single", nodeName="node-1")
        put_pod(server, "hostile", schedulingGroup={"podGroupName": ["job"]}, nodeName="node-1")
        async with sidecar_beside(server, tmp_path) as sidecar:
            groups = sidecar.state.groups
            ended: list[str] = []
            groups.on_end = ended.append
            pod = pod_with("a", schedulingGroup={"podGroupName": "job"})
            await bound_after(server, sidecar, pod, set())
            await until(lambda: groups.names == (GROUP,))
            pod["spec"]["nodeName"] = "node-1"
            await bound_after(server, sidecar, pod, {"uid-a"})
            assert ended == ["uid-a"]
            pod["status"]["phase"] = "Succeeded"
            await bound_after(server, sidecar, pod, set())
            assert groups.members(GROUP).keys() == {"uid-a"}

            server.remove(PODS, "a", "default")

            await until(lambda: not groups.names)
            assert ended == ["uid-a", "uid-a"]
            assert groups.find("uid-a") is None
