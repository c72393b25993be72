"""Shares of devices of pods that were deleted by force."""

from pathlib import Path

from allocator.pods.claims import allocation_of
from kube.api.urls import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from testing.allocation.builders import device, slice_of
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
                result.share_id
                for claim in sidecar.state.claims_in_use()
                if (allocation := allocation_of(claim)) is not None
                for result in allocation.devices.results or ()
            ]
            assert len(set(shares)) == len(shares) == 2
            waiting = pod_with("c", "gpu-c")
            waiting["metadata"] |= {"namespace": stored_claim["metadata"]["namespace"]}
            assert (await scheduler.prefilter(server.put(PODS, waiting)))["code"] == "noDevices"
