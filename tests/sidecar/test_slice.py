"""A pod's way through the sidecar: PreFilter, Reserve, PreBind, Unreserve, against an API server."""

from pathlib import Path

from testing.fake_api_server import FakeApiServer
from testing.sidecar.scheduler import FakeScheduler, publish, put_claim, put_pod, sidecar_beside


async def test_a_pod_gets_its_device(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", "node-2")
        put_claim(server, "gpu-a")
        pod = put_pod(server, "a", "gpu-a")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            assert (await scheduler.hello())["ready"]

            answer = await scheduler.prefilter(pod)

            assert answer["verdict"] == "fits", answer
            assert [node["name"] for node in answer["nodes"]] == ["node-1", "node-2"]
            scheduler.reserve(pod, "node-2")
            assert (await scheduler.prebind(pod))["verdict"] == "ok"
            assert sidecar.devices_of("gpu-a") == ["node-2/gpu-0"]
            claim = sidecar.claim("gpu-a")
            assert claim["status"]["reservedFor"] == [
                {"resource": "pods", "name": "a", "uid": pod["metadata"]["uid"]}
            ]
            assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
            assert claim["status"]["allocation"]["allocationTimestamp"] == "2026-11-21T00:00:00Z"
