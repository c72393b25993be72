"""Devices of pods that run on while their claims are gone, since somebody has removed the finalizer."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kube.api.core import Pod, PodSpec, PodStatus
from kube.api.meta import ObjectMeta
from kube.api.urls import PODS, RESOURCE_CLAIMS
from process.model.durations import PositiveDuration
from sidecar.model.settings import SidecarSettings
from sidecar.state.held_back import HeldBackDevices, HeldBackLimits
from testing.allocation.builders import DRIVER, allocated_claim, result
from testing.fake_api_server import FakeApiServer, until
from testing.sidecar.scheduler import (
    FakeScheduler,
    pod_with,
    publish,
    put_claim,
    put_pod,
    sidecar_beside,
)

DAY = datetime(2026, 11, 21, tzinfo=UTC)


async def test_no_pod_gets_the_device_of_one_that_runs_without_its_claim(tmp_path: Path) -> None:
    """Deleting a claim with its finalizer had two pods use one device, five minutes later."""
    settings = SidecarSettings(drivers=(DRIVER,), held_back_timeout=PositiveDuration(0.001))
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        put_claim(server, "gpu-a")
        put_claim(server, "gpu-b", namespace="others")
        async with sidecar_beside(server, tmp_path, settings) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()
            pod = put_pod(server, "a", "gpu-a")
            assert (await scheduler.prefilter(pod))["verdict"] == "fits"
            scheduler.reserve(pod, "node-1")
            assert (await scheduler.prebind(pod))["verdict"] == "ok"
            bound = {**pod, "spec": {**pod["spec"], "nodeName": "node-1"}}
            server.put(PODS, bound | {"status": {"phase": "Running"}})
            server.remove(RESOURCE_CLAIMS, "gpu-a", "default")
            await until(lambda: bool(sidecar.state.held_back.claims))
            await asyncio.sleep(0.01)
            sidecar.state.held_back.expire()

            waiting = pod_with("b", "gpu-b")
            waiting["metadata"] |= {"namespace": "others"}
            waiting = server.put(PODS, waiting)
            assert (await scheduler.prefilter(waiting))["code"] == "noDevices"

            server.put(PODS, bound | {"status": {"phase": "Succeeded"}})
            await until(lambda: not sidecar.state.held_back.claims)
            assert (await scheduler.prefilter(waiting))["verdict"] == "fits"


def test_a_pod_that_runs_without_its_claim_holds_its_devices_until_it_has_ended() -> None:
    """Its author removed the finalizer of the claim: five minutes later another pod got the device beside it."""
    now = DAY
    status = PodStatus(phase="Running")
    pod = Pod(
        metadata=ObjectMeta(namespace="default", name="a", uid="uid-a"),
        spec=PodSpec(node_name="node-1"),
        status=status,
    )
    pods = {"uid-a": pod}
    limits = HeldBackLimits(300.0, 8)
    devices = HeldBackDevices(pods, now=lambda: now, limits=limits, on_change=lambda _: None)
    devices.hold(pod, allocated_claim(result("gpu-0"), name="gpu-a"), ())

    for minutes in (2, 4, 5, 12):
        now = DAY + timedelta(minutes=minutes)
        devices.expire()
        assert devices.claims, minutes
    (held_claim,) = devices.claims.values()
    assert held_claim.until == "2026-11-21T00:17:00Z"

    now = DAY + timedelta(minutes=13)
    devices.pod_gone(pods.pop("uid-a"), (), ())
    now = DAY + timedelta(minutes=17, seconds=59)
    devices.expire()
    assert devices.claims, "the time of a pod that was deleted by force begins with its end"
    now = DAY + timedelta(minutes=18)
    devices.expire()
    assert not devices.claims
