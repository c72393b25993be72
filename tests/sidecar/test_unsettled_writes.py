"""A release without an answer takes no devices from a pod that was tried again and runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from kube.api.urls import RESOURCE_CLAIMS
from kube.client.client import PatchType
from kube.errors import Conflict
from testing.documents import Document
from testing.fake_api_server import Call, FakeApiServer, until
from testing.sidecar.scheduler import (
    FakeScheduler,
    Sidecar,
    publish,
    put_claim,
    put_pod,
    sidecar_beside,
)


class Scene(NamedTuple):
    """A pod with two claims; the first was written for it before it was given up."""

    server: FakeApiServer
    sidecar: Sidecar
    scheduler: FakeScheduler
    pod: Document
    late: Call
    """The release of the first claim, which got no answer and was not made yet."""

    async def make_late_write(self) -> None:
        """Make the write that got no answer."""
        async with self.server.client() as client:
            await client.patch(
                RESOURCE_CLAIMS,
                "gpu-1",
                self.late.body,
                PatchType.MERGE,
                dict,
                namespace="default",
                subresource="status",
            )

    def is_whole(self) -> bool:
        """Return True if the first claim has its devices and is reserved for the pod."""
        users = self.sidecar.claim("gpu-1").get("status", {}).get("reservedFor") or ()
        uids = [user["uid"] for user in users]
        return bool(self.sidecar.devices_of("gpu-1")) and uids == [self.pod["metadata"]["uid"]]


@asynccontextmanager
async def given_up_pod(tmp_path: Path, *, was_bound: bool, status: int) -> AsyncIterator[Scene]:
    """Give up a pod after its first claim, or all, were written; the release fails with a status."""
    async with FakeApiServer() as server:
        publish(server, "node-1")
        for name in ("gpu-1", "gpu-2"):
            put_claim(server, name)
        pod = put_pod(server, "a", "gpu-1", "gpu-2")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()
            await scheduler.prefilter(pod)
            scheduler.reserve(pod, "node-1")
            if not was_bound:
                server.fail(403, matches=lambda call: "gpu-2" in call.path)
            assert (await scheduler.prebind(pod))["verdict"] == ("ok" if was_bound else "error")
            server.fail(status, matches=lambda call: call.path.endswith("gpu-1/status"))
            await scheduler.unreserve(pod)
            late = next(call for call in reversed(server.calls) if "gpu-1/status" in call.path)
            scene = Scene(server, sidecar, scheduler, pod, late)
            assert scene.is_whole()
            yield scene


@pytest.mark.parametrize("status", [504, 403], ids=["no answer", "refused, and its copy is late"])
@pytest.mark.parametrize("was_bound", [False, True], ids=["deallocate", "leave"])
async def test_a_pod_is_bound_again_only_when_no_release_of_it_can_be_made(
    tmp_path: Path, was_bound: bool, status: int
) -> None:
    async with given_up_pod(tmp_path, was_bound=was_bound, status=status) as scene:
        await scene.scheduler.prefilter(scene.pod)
        scene.scheduler.reserve(scene.pod, "node-1")
        assert (await scene.scheduler.prebind(scene.pod))["verdict"] == "ok"

        with pytest.raises(Conflict):
            await scene.make_late_write()

        assert scene.is_whole()


async def test_a_release_without_an_answer_is_settled_also_if_the_pod_is_not_tried_again(
    tmp_path: Path,
) -> None:
    async with given_up_pod(tmp_path, was_bound=False, status=504) as scene:
        version = scene.sidecar.claim("gpu-1")["metadata"]["resourceVersion"]

        await until(lambda: scene.sidecar.claim("gpu-1")["metadata"]["resourceVersion"] != version)

        with pytest.raises(Conflict):
            await scene.make_late_write()
