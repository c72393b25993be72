"""Shares of devices of pods that were deleted by force."""

from pathlib import Path

from allocator.pods.claims import allocation_of
from kube.api.resource import DeviceClaimConfiguration
from kube.api.urls import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from sidecar.model.settings import SidecarSettings
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    applied_configuration,
    claim,
    device,
    opaque,
    request,
    result,
    slice_of,
)
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, until
from testing.sidecar.scheduler import (
    FakeScheduler,
    document,
    pod_with,
    publish,
    put_claim,
    put_pod,
    sidecar_beside,
)


async def test_a_share_that_is_held_back_counts_beside_a_new_one_of_its_claim(
    tmp_path: Path,
) -> None:
    async with FakeApiServer() as server:
        # A namespace may have a quarter of the devices held back.
        publish(server, "node-1", "node-2", per_node=7)
        gpu_0 = device("gpu-0", shared=True, capacity={"memory": "80Gi"})
        server.put(RESOURCE_SLICES, document(slice_of(gpu_0, node="node-1", pool="node-1")))
        amount = {"memory": "40Gi"}
        put_claim(server, "gpu-a", capacity=amount)
        stored_claim = put_claim(server, "gpu-c", namespace="others", capacity=amount)
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()
            for number in range(2):
                pod = put_pod(server, f"a-{number}", "gpu-a")
                assert (await scheduler.prefilter(pod))["verdict"] == "fits"
                scheduler.reserve(pod, "node-1")
                assert (await scheduler.prebind(pod))["verdict"] == "ok"
                if not number:
                    bound = {**pod, "status": {"phase": "Running"}}
                    bound["spec"] = {**pod["spec"], "nodeName": "node-1"}
                    server.put(PODS, bound)
                    await until(lambda: len(sidecar.state.consumers.claims_of) == 1)
                    server.remove(PODS, "a-0", "default")
                    await until(lambda: bool(sidecar.state.held_back.claims))
                    server.put(RESOURCE_CLAIMS, {**sidecar.claim("gpu-a"), "status": {}})
                    await until(lambda: not sidecar.state.consumers.claims_of)

            shares = [
                used.share_id
                for counted_claim in sidecar.state.claims_in_use()
                if (allocation := allocation_of(counted_claim)) is not None
                for used in allocation.devices.results or ()
            ]
            assert len(set(shares)) == len(shares) == 2
            waiting = pod_with("c", "gpu-c")
            waiting["metadata"] |= {"namespace": stored_claim["metadata"]["namespace"]}
            assert (await scheduler.prefilter(server.put(PODS, waiting)))["code"] == "noDevices"


async def test_a_share_that_is_held_back_keeps_its_sharing_configuration(tmp_path: Path) -> None:
    settings = SidecarSettings(drivers=(DRIVER,), uniform_config_drivers=(DRIVER,))
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        gpu_0 = device("gpu-0", shared=True)
        server.put(RESOURCE_SLICES, document(slice_of(gpu_0, node="node-1", pool="node-1")))
        held_share = result("gpu-0", pool="node-1", share="1")
        configuration = applied_configuration("req-0", **sharing("1s"))
        held_claim = allocated_claim(held_share, name="gpu-a", config=[configuration])
        pod = put_pod(server, "a", "gpu-a", nodeName="node-1")
        stored_claim = document(held_claim)
        consumer = {"resource": "pods", "name": "a", "uid": pod["metadata"]["uid"]}
        stored_claim["status"]["reservedFor"] = [consumer]
        server.put(RESOURCE_CLAIMS, stored_claim)
        for name, interval in (("b", "1s"), ("c", "2s")):
            config = [DeviceClaimConfiguration(opaque=opaque(**sharing(interval)))]
            other_claim = claim(request(), name=f"gpu-{name}", namespace="others", config=config)
            server.put(RESOURCE_CLAIMS, document(other_claim))
        async with sidecar_beside(server, tmp_path, settings) as sidecar:
            server.remove(PODS, "a", "default")
            await until(lambda: bool(sidecar.state.held_back.claims))
            server.put(RESOURCE_CLAIMS, {**sidecar.claim("gpu-a"), "status": {}})
            await until(lambda: not sidecar.state.consumers.claims_of)
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()
            verdicts = {}
            for name in "bc":
                waiting = pod_with(name, f"gpu-{name}")
                waiting["metadata"] |= {"namespace": "others"}
                reply = await scheduler.prefilter(server.put(PODS, waiting))
                verdicts[name] = reply.get("code") or reply["verdict"]

            assert verdicts == {"b": "fits", "c": "noDevices"}


def sharing(interval: str) -> Document:
    """Return parameters with an interval of time slices."""
    return {"apiVersion": "example.com/v1", "kind": "GpuConfig", "interval": interval}
