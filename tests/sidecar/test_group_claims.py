"""A claim that pods share through their PodGroup is reserved for the group, while one of them uses it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from kube.api.urls import POD_GROUPS, PODS, RESOURCE_CLAIMS
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

SHARED = "gpu"
GROUP = "ring"
MEMBERS = tuple(f"pod-{number:03}" for number in range(300))


class Story(NamedTuple):
    """A group of pods that share a claim."""

    server: FakeApiServer
    sidecar: Sidecar
    scheduler: FakeScheduler
    pods: dict[str, Document]
    group: Document

    async def places(self) -> Document:
        """Return the places of all pods; the scheduler asks again while the search is not over."""
        pods = list(self.pods.values())
        async with asyncio.timeout(60.0):
            answer = await self.scheduler.group(self.group, pods)
            while answer["unfinished"]:
                answer = await self.scheduler.group(self.group, pods)
        return answer

    def reserve(self, *names: str) -> None:
        for name in names:
            self.scheduler.reserve(self.pods[name], "node-1", group=self.group)

    async def bind(self, *names: str) -> set[str]:
        """Return the verdicts of the Bindings of pods."""
        answers = await asyncio.gather(*(self.scheduler.prebind(self.pods[name]) for name in names))
        return {answer["verdict"] for answer in answers}

    async def see_bound(self, name: str) -> None:
        """Have the API server bind a pod."""
        pod = self.server.find(PODS, name, "default")
        assert pod is not None
        pod["spec"]["nodeName"] = "node-1"
        self.server.put(PODS, pod)
        groups, uid = self.sidecar.state.groups, pod["metadata"]["uid"]
        await until(lambda: uid in groups.bound(("default", GROUP)))

    @property
    def consumers(self) -> list[tuple[str, str]]:
        status = self.sidecar.claim(SHARED).get("status") or {}
        return [(entry["resource"], entry["name"]) for entry in status.get("reservedFor") or ()]

    @property
    def is_allocated(self) -> bool:
        return bool((self.sidecar.claim(SHARED).get("status") or {}).get("allocation"))


@asynccontextmanager
async def group_of(tmp_path: Path, *names: str, min_count: int = 0) -> AsyncIterator[Story]:
    """Yield a group; without a minimum each of its pods is bound by itself."""
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=2)
        put_claim(server, SHARED)
        entry = {"name": SHARED, "resourceClaimName": SHARED}
        policy: Document = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
        spec = {"resourceClaims": [entry], "schedulingPolicy": policy}
        metadata = {"name": GROUP, "namespace": "default"}
        pod_group = server.put(POD_GROUPS, {"metadata": metadata, "spec": spec})
        pods = {
            name: put_pod(server, name, SHARED, schedulingGroup={"podGroupName": GROUP})
            for name in names
        }
        group = {
            **metadata,
            "uid": pod_group["metadata"]["uid"],
            "minCount": max(1, min_count),
            "policy": "gang" if min_count else "basic",
        }
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            assert (await scheduler.hello())["ready"]
            await until(lambda: len(sidecar.state.groups.members(("default", GROUP))) == len(names))
            yield Story(server, sidecar, scheduler, pods, group)


async def test_more_pods_than_entries_share_a_claim_of_their_group(tmp_path: Path) -> None:
    async with group_of(tmp_path, *MEMBERS, min_count=len(MEMBERS)) as story:
        assert len((await story.places())["members"]) == len(MEMBERS)
        story.reserve(*MEMBERS)

        assert await story.bind(*MEMBERS) == {"ok"}

        assert story.consumers == [("podgroups", GROUP)]
        written = [call for call in story.server.calls if call.method == "PATCH"]
        assert len(written) == len(["finalizer", "status"])


async def test_the_entry_of_a_group_leaves_with_the_last_pod_that_gives_up(tmp_path: Path) -> None:
    async with group_of(tmp_path, "a", "b") as story:
        story.reserve("a", "b")
        assert await story.bind("a") == {"ok"}
        assert story.consumers == [("podgroups", GROUP)]

        await story.scheduler.unreserve(story.pods["b"])
        assert story.consumers == [("podgroups", GROUP)]

        await story.scheduler.unreserve(story.pods["a"])
        assert story.consumers == []


async def test_a_bound_pod_keeps_the_claim_of_its_group(tmp_path: Path) -> None:
    async with group_of(tmp_path, "a", "b") as story:
        story.reserve("a", "b")
        assert await story.bind("a", "b") == {"ok"}
        await story.see_bound("a")

        await story.scheduler.unreserve(story.pods["b"])

        assert story.consumers == [("podgroups", GROUP)]
        assert story.is_allocated


async def test_a_commit_in_vain_takes_the_group_out_of_its_claim(tmp_path: Path) -> None:
    async with group_of(tmp_path, "a", "b", min_count=2) as story:
        put_claim(story.server, "own")
        story.pods["b"] = put_pod(
            story.server, "b", SHARED, "own", schedulingGroup={"podGroupName": GROUP}
        )
        state = story.sidecar.state
        await until(lambda: len(state.consumers.pods["uid-b"].spec.resource_claims or ()) > 1)
        story.server.fail(403, times=9, matches=lambda call: call.path.endswith("/own/status"))
        story.reserve("a", "b")

        assert await story.bind("a", "b") == {"unschedulable"}

        await until(lambda: not story.is_allocated)
        assert story.consumers == []


async def test_devices_of_a_pod_that_was_deleted_by_force_are_held_back_from_others(
    tmp_path: Path,
) -> None:
    """The claim of its group goes with the PodGroup, and its containers may still run."""
    async with group_of(tmp_path, "a") as story:
        story.reserve("a")
        assert await story.bind("a") == {"ok"}
        await story.see_bound("a")

        story.server.remove(PODS, "a", "default")

        held_back = story.sidecar.state.held_back
        await until(lambda: len(held_back.claims) == 1)
        stored = story.server.find(RESOURCE_CLAIMS, SHARED, "default")
        assert stored is not None
        story.server.put(RESOURCE_CLAIMS, stored | {"status": {}})
        await until(lambda: not story.is_allocated)
        (in_use,) = story.sidecar.state.claims_in_use()
        assert in_use.status is not None
        assert in_use.status.allocation is not None
