"""Claims that users wrote against the sidecar: it reads every one that the API server stores."""

import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kube.api.urls import RESOURCE_CLAIMS
from sidecar.state.projections import project_claim
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, until
from testing.sidecar.scheduler import (
    FakeScheduler,
    Sidecar,
    publish,
    put_claim,
    put_pod,
    sidecar_beside,
)

DRIVER = "gpu.example.com"
NO_UNICODE: Document = {"opaque": {"driver": DRIVER, "parameters": {"a": "\ud800", "\udc00": 1}}}


def configure(server: FakeApiServer, name: str, config: Document) -> Document:
    """Give a stored claim parameters for the driver."""
    stored = server.find(RESOURCE_CLAIMS, name, "default")
    assert stored is not None
    stored["spec"]["devices"]["config"] = [config]
    return server.put(RESOURCE_CLAIMS, stored)


def is_configured(sidecar: Sidecar, name: str) -> bool:
    claim = sidecar.state.claims.store.get(("default", name))
    return claim is not None and claim.spec.devices.config is not None


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
                await until(lambda: is_configured(sidecar, "gpu-a"))
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


async def test_a_claim_with_parameters_of_too_many_values_is_not_allocated(tmp_path: Path) -> None:
    """An allocation copies them, and the sidecar does not keep them: they take 25 times their text."""
    wide: Document = {"opaque": {"driver": DRIVER, "parameters": {"a": [[] for _ in range(2000)]}}}
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        for name in ("wide", "gpu-a"):
            put_claim(server, name)
        configure(server, "wide", wide)
        pods = [put_pod(server, name, claim) for name, claim in (("w", "wide"), ("a", "gpu-a"))]
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            assert (await scheduler.hello())["ready"]

            answer = await scheduler.prefilter(pods[0])

            assert (answer["verdict"], answer["code"]) == ("unresolvable", "tooManyParameters")
            assert "ResourceClaim wide have more than 1000 values" in answer["message"]
            assert await nodes_for(scheduler, pods[1]) == ["node-1"]


def test_what_is_kept_of_a_claim_is_about_as_large_as_its_text() -> None:
    """The largest claims that the API server takes, by the most memory for their text."""
    for document in largest_claims():
        raw = msgspec.json.encode(document)

        gc.collect()
        tracemalloc.start()
        claims = [project_claim(raw) for _ in range(4)]
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        assert len(claims) == 4
        assert size / 4 < 8 * len(raw) + 2048


def largest_claims() -> Iterator[Document]:
    values = {"lists": [[] for _ in range(3400)], "objects": [{"a": 1} for _ in range(1250)]}
    for parameters in values.values():
        opaque = {"driver": DRIVER, "parameters": {"a": parameters}}
        config = [{"opaque": opaque}] * 32
        yield claim_of({"config": config})
        allocated = [{"source": "FromClaim", **entry} for entry in config]
        results = [{"request": "r", "driver": DRIVER, "pool": "p", "device": "d"}]
        report = {**results[0], "data": {"a": parameters}}
        yield {
            **claim_of({}),
            "status": {
                "allocation": {"devices": {"results": results, "config": allocated}},
                "devices": [report] * 32,
            },
        }
    for field in (
        {"selectors": [{"cel": {"expression": "1"}}] * 32},
        {"tolerations": [{"operator": "Exists"}] * 16},
        {"capacity": {"requests": {f"c{number}": "1" for number in range(32)}}},
    ):
        alternatives = [{"name": f"s{n}", "deviceClassName": "c", **field} for n in range(8)]
        requests = [{"name": f"r{n}", "firstAvailable": alternatives} for n in range(32)]
        yield claim_of({"requests": requests})


def claim_of(devices: Document) -> Document:
    return {"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": {"devices": devices}}
