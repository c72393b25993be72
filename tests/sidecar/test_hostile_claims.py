"""Claims that users wrote against the sidecar: it reads every one that the API server stores."""

from pathlib import Path

import pytest

from kube.api.urls import RESOURCE_CLAIMS
from testing.builders import Document
from testing.fake_api_server import FakeApiServer
from testing.sidecar.scheduler import FakeScheduler, publish, put_claim, put_pod, sidecar_beside

DRIVER = "gpu.example.com"
NO_UNICODE: Document = {"opaque": {"driver": DRIVER, "parameters": {"a": "\ud800", "\udc00": 1}}}


def configure(server: FakeApiServer, name: str, config: Document) -> Document:
    """Give a stored claim parameters for the driver."""
    stored = server.find(RESOURCE_CLAIMS, name, "default")
    assert stored is not None
    stored["spec"]["devices"]["config"] = [config]
    return server.put(RESOURCE_CLAIMS, stored)


async def nodes_for(scheduler: FakeScheduler, pod: Document) -> list[str]:
    answer = await scheduler.prefilter(pod)
    assert answer["verdict"] == "fits", answer
    return [node["name"] for node in answer["nodes"]]


@pytest.mark.parametrize("is_there_before", [True, False], ids=["listed", "watched"])
async def test_a_claim_with_text_that_is_no_unicode_is_allocated(
    is_there_before: bool, tmp_path: Path
) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        if is_there_before:
            put_claim(server, "gpu-a")
            configure(server, "gpu-a", NO_UNICODE)
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            assert (await scheduler.hello())["ready"]
            if not is_there_before:
                put_claim(server, "gpu-a")
                configure(server, "gpu-a", NO_UNICODE)
            pod = put_pod(server, "a", "gpu-a")

            assert await nodes_for(scheduler, pod) == ["node-1"]
            scheduler.reserve(pod, "node-1")
            assert (await scheduler.prebind(pod))["verdict"] == "ok"

            allocation = sidecar.claim("gpu-a")["status"]["allocation"]
            (config,) = allocation["devices"]["config"]
            assert config["opaque"]["parameters"] == {"a": "\ufffd", "\ufffd": 1}


async def test_the_device_of_a_claim_with_text_that_is_no_unicode_is_in_use(tmp_path: Path) -> None:
    """A claim that cannot be read would leave its device to the next pod."""
    async with FakeApiServer() as server:
        publish(server, "node-1", "node-2", per_node=1)
        put_claim(server, "theirs")
        stored = configure(server, "theirs", NO_UNICODE)
        result = {"request": "req-0", "driver": DRIVER, "pool": "node-1", "device": "gpu-0"}
        devices = {"results": [result], "config": [{"source": "FromClaim", **NO_UNICODE}]}
        stored["status"] = {"allocation": {"devices": devices}}
        server.put(RESOURCE_CLAIMS, stored)
        put_claim(server, "gpu-a")
        pod = put_pod(server, "a", "gpu-a")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            assert (await scheduler.hello())["ready"]

            assert await nodes_for(scheduler, pod) == ["node-2"]
