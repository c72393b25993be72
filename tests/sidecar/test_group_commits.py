"""The pods of a group are bound together: their claims are written when all have come, or none is."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kube.api.resource import ResourceClaimConsumerReference
from kube.api.urls import NODES, POD_GROUPS, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from sidecar.commit import group_barrier
from sidecar.commit.group_steps import TakeBack
from sidecar.commit.writes import Consumer
from sidecar.model.settings import SidecarSettings
from sidecar.writes import group_commits, group_waits
from testing.allocation.builders import DRIVER
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

GROUP = "job"
MEMBERS = ("a", "b", "c")
NOTHING_YET_S = 0.1
"""Long enough for a write that must not come."""


class Story(NamedTuple):
    """A group of three pods with a claim each, on a node with three devices."""

    server: FakeApiServer
    sidecar: Sidecar
    scheduler: FakeScheduler
    pods: dict[str, Document]

    def reserve(self, *names: str, min_count: int = 3, **fields: Any) -> None:
        group = {"uid": "uid-job", "namespace": "default", "name": GROUP, "minCount": min_count}
        for name in names or MEMBERS:
            self.scheduler.reserve(self.pods[name], "node-1", group=group | fields)

    def begin(self, name: str) -> "asyncio.Task[Document]":
        return asyncio.ensure_future(self.scheduler.prebind(self.pods[name]))

    async def ask(self, name: str) -> Document:
        """Return the answer of one call about a pod."""
        uid = self.uid(name)
        fields = {"podUID": uid, "podNamespace": "default", "podName": name, "node": "node-1"}
        status, answer = await self.scheduler.call("prebind", **fields)
        assert status == 200, answer
        return answer

    def is_waiting(self, name: str) -> bool:
        """Return True if a pod waits for the others."""
        assert self.sidecar.service is not None
        return self.sidecar.service.commits.is_waiting(self.uid(name))

    async def arrive(self, *names: str) -> "list[asyncio.Task[Document]]":
        """Begin the Binding of pods that wait."""
        assert self.sidecar.service is not None
        groups = self.sidecar.service.commits
        tasks = []
        for name in names:
            tasks.append(self.begin(name))
            await until(partial(groups.is_waiting, self.uid(name)))
        return tasks

    def uid(self, name: str) -> str:
        return str(self.pods[name]["metadata"]["uid"])

    def allocated(self) -> str:
        """Return the pods with allocated claims."""
        claims = sorted(
            self.server.objects(RESOURCE_CLAIMS), key=lambda claim: claim["metadata"]["name"]
        )
        return "".join(
            claim["metadata"]["name"][-1]
            for claim in claims
            if claim.get("status", {}).get("allocation")
        )

    def has_allocated(self, count: int) -> bool:
        """Return True if so many claims are allocated."""
        return len(self.allocated()) == count

    def take_back(self, name: str) -> TakeBack:
        """Return the write that takes the claim of a pod back."""
        claim, uid = self.sidecar.claim(f"gpu-{name}"), self.uid(name)
        entry = ResourceClaimConsumerReference(resource="pods", name=name, uid=uid)
        return TakeBack(
            name=("default", f"gpu-{name}"),
            uid=claim["metadata"]["uid"],
            pods=(Consumer(uid, entry),),
            deallocate=True,
        )

    async def bind(self, name: str) -> None:
        """Have the API server bind a pod."""
        pod = self.server.find(PODS, name, "default")
        assert pod is not None
        pod["spec"]["nodeName"] = "node-1"
        self.server.put(PODS, pod)
        await until(lambda: self.uid(name) in self.bound)

    @property
    def bound(self) -> frozenset[str]:
        return self.sidecar.state.groups.bound(("default", GROUP))


@asynccontextmanager
async def group_of_three(tmp_path: Path, **fields: Any) -> AsyncIterator[Story]:
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=len(MEMBERS))
        scheduling_group = {"podGroupName": GROUP}
        for name in MEMBERS:
            put_claim(server, f"gpu-{name}")
        pods = {
            name: put_pod(server, name, f"gpu-{name}", schedulingGroup=scheduling_group)
            for name in MEMBERS
        }
        async with sidecar_beside(server, tmp_path, **fields) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            assert (await scheduler.hello())["ready"]
            yield Story(server, sidecar, scheduler, pods)


def patches_of(name: str) -> Callable[[Call], bool]:
    return lambda call: call.method == "PATCH" and call.path.endswith(f"/gpu-{name}/status")


def verdicts(answers: Sequence[Document]) -> set[tuple[str, str]]:
    return {(answer["verdict"], answer["code"]) for answer in answers}


async def test_nothing_is_written_before_all_have_come(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as story:
        story.reserve()
        waiting = await story.arrive("a", "b")
        await asyncio.sleep(NOTHING_YET_S)
        assert not [call for call in story.server.calls if call.method == "PATCH"]

        answers = await asyncio.gather(*waiting, story.begin("c"))

        assert verdicts(answers) == {("ok", "")}
        assert story.allocated() == "abc"


async def test_a_pod_without_claims_is_waited_for(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as story:
        story.pods["launcher"] = put_pod(
            story.server, "launcher", schedulingGroup={"podGroupName": GROUP}
        )
        await until(lambda: story.sidecar.state.groups.find("uid-launcher") is not None)
        story.reserve(*MEMBERS, "launcher", min_count=4)
        waiting = await story.arrive(*MEMBERS)
        assert not story.allocated()

        answers = await asyncio.gather(*waiting, story.begin("launcher"))

        assert verdicts(answers) == {("ok", "")}
        assert story.allocated() == "abc"
        await story.bind("launcher")
        assert story.sidecar.reservations() == len(MEMBERS)


async def test_a_refused_write_takes_back_what_the_others_got(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as story:
        story.reserve()
        story.server.fail(403, matches=patches_of("b"))

        answers = await asyncio.gather(*map(story.begin, MEMBERS))

        assert verdicts(answers) == {("unschedulable", "devicesGone")}
        assert not story.allocated()
        for name in MEMBERS:
            await story.scheduler.unreserve(story.pods[name])
        story.reserve()
        answers = await asyncio.gather(*map(story.begin, MEMBERS))
        assert verdicts(answers) == {("ok", "")}
        assert story.allocated() == "abc"
        name = "drawbridge_sidecar_group_commit_duration_seconds_count"
        for code in ("devicesGone", ""):
            assert story.sidecar.registry.get_sample_value(name, {"code": code}) == 1


async def test_an_unknown_write_is_settled_before_it_is_taken_back(tmp_path: Path) -> None:
    """It was made, and nobody heard of it in time."""
    async with group_of_three(tmp_path, write_timeout_s=1.0) as story:
        story.reserve()
        over = story.server.delay(patches_of("b"))
        story.server.fail(403, matches=patches_of("c"))

        answers = await asyncio.gather(*map(story.begin, MEMBERS))

        assert verdicts(answers) == {("unschedulable", "devicesGone")}
        over.set()
        await until(lambda: not story.allocated())


async def test_what_is_to_be_taken_back_is_left_to_a_group_that_is_bound_after_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commits, "TAKE_BACK_INTERVAL_S", 0.5)
    async with group_of_three(tmp_path, write_timeout_s=1.0) as story:
        story.reserve()
        over = story.server.delay(patches_of("b"))
        story.server.fail(403, matches=patches_of("c"))
        answers = await asyncio.gather(*map(story.begin, MEMBERS))
        assert verdicts(answers) == {("unschedulable", "devicesGone")}
        over.set()
        for name in MEMBERS:
            story.scheduler.drop(story.pods[name])
        story.reserve()

        answers = await asyncio.gather(*map(story.begin, MEMBERS))
        for name in MEMBERS:
            await story.bind(name)

        assert verdicts(answers) == {("ok", "")}
        await asyncio.sleep(2 * group_commits.TAKE_BACK_INTERVAL_S)
        assert story.allocated() == "abc"


async def test_a_commit_that_outlives_its_scheduler_takes_nothing_from_pods_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next scheduler reserved the group anew, and the claims were taken back when the pods ran."""
    monkeypatch.setattr(group_commits, "TAKE_BACK_INTERVAL_S", 0.2)
    async with group_of_three(tmp_path, binder={"max_claims": 1}) as before:
        before.reserve()
        over = before.server.delay(patches_of("a"))
        interrupted = [before.begin(name) for name in MEMBERS]
        await until(partial(before.has_allocated, 1))
        story = before._replace(scheduler=FakeScheduler(before.sidecar.socket, "scheduler-1"))
        assert (await story.scheduler.hello())["ready"]
        story.reserve()
        again = [story.begin(name) for name in MEMBERS]
        await asyncio.sleep(NOTHING_YET_S)
        assert story.sidecar.service is not None
        barriers = story.sidecar.service.commits._barriers
        assert {barrier.committing for barrier in barriers.values()} == {frozenset()}

        over.set()
        await asyncio.gather(*interrupted, return_exceptions=True)
        while verdicts(await asyncio.gather(*again)) != {("ok", "")}:
            for name in MEMBERS:
                await story.scheduler.unreserve(story.pods[name])
            story.reserve()
            again = [story.begin(name) for name in MEMBERS]
        for name in MEMBERS:
            await story.bind(name)

        await asyncio.sleep(3 * group_commits.TAKE_BACK_INTERVAL_S)
        assert story.allocated() == "abc"


async def test_nothing_is_taken_back_from_a_pod_that_is_seen_bound(tmp_path: Path) -> None:
    """Its containers may use the devices, for all that the sidecar knows."""
    async with group_of_three(tmp_path) as story:
        story.reserve()
        await asyncio.gather(*map(story.begin, MEMBERS))
        await story.bind("a")
        assert story.sidecar.service is not None
        take_backs = story.sidecar.service.commits._take_backs
        of_pods = [story.take_back(name) for name in ("a", "b")]

        await take_backs.make(of_pods)

        await until(lambda: story.allocated() == "ac")
        assert not take_backs.pending


async def test_a_shared_claim_of_others_stays_theirs(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as story:
        put_claim(story.server, "gpu-x")
        other = put_pod(story.server, "other", "gpu-x")
        await story.scheduler.prefilter(other)
        story.scheduler.reserve(other, "node-1")
        await story.scheduler.prebind(other)
        for name in MEMBERS:
            story.pods[name] = put_pod(
                story.server, name, "gpu-x", schedulingGroup={"podGroupName": GROUP}
            )
        put_claim(story.server, "gpu-c")
        story.pods["c"] = put_pod(
            story.server, "c", "gpu-x", "gpu-c", schedulingGroup={"podGroupName": GROUP}
        )
        await until(lambda: "uid-c" in story.sidecar.state.consumers.pods)
        story.reserve()
        story.server.fail(403, matches=patches_of("c"))

        answers = await asyncio.gather(*map(story.begin, MEMBERS))

        assert verdicts(answers) == {("unschedulable", "devicesGone")}
        assert story.allocated() == "x"
        users = [user["name"] for user in story.sidecar.claim("gpu-x")["status"]["reservedFor"]]
        assert users == ["other"]


async def test_the_claims_of_pods_that_share_one_are_written_once(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as story:
        put_claim(story.server, "gpu-x")
        for name in MEMBERS:
            story.pods[name] = put_pod(
                story.server, name, "gpu-x", schedulingGroup={"podGroupName": GROUP}
            )
        await until(
            lambda: story.sidecar.state.consumers.pods["uid-c"].spec.resource_claims is not None
        )
        story.reserve()

        answers = await asyncio.gather(*map(story.begin, MEMBERS))

        assert verdicts(answers) == {("ok", "")}
        assert len(list(filter(patches_of("x"), story.server.calls))) == 1
        assert len(story.sidecar.claim("gpu-x")["status"]["reservedFor"]) == len(MEMBERS)


async def test_a_large_group_is_written_whole_where_each_write_takes_long(tmp_path: Path) -> None:
    """Its claims are written one after the other here, each within the deadline of one."""
    async with group_of_three(tmp_path, binder={"write_deadline_s": 2.0, "max_claims": 1}) as story:
        story.reserve()
        overs = [story.server.delay(patches_of(name)) for name in MEMBERS]
        tasks = [story.begin(name) for name in MEMBERS]
        for number, over in enumerate(overs, start=1):
            await until(partial(story.has_allocated, number))
            await asyncio.sleep(0.8)
            over.set()

        assert verdicts(await asyncio.gather(*tasks)) == {("ok", "")}


async def test_what_waits_behind_the_writes_of_others_does_not_lose_its_time(
    tmp_path: Path,
) -> None:
    """With one write at a time the last claim's turn comes after its deadline would have ended."""
    settings = SidecarSettings(drivers=(DRIVER,), max_writes_in_flight=1)
    limits = {"write_deadline_s": 2.0}
    async with group_of_three(tmp_path, settings=settings, binder=limits) as story:
        story.reserve()
        overs = [story.server.delay(patches_of(name)) for name in MEMBERS]
        tasks = [story.begin(name) for name in MEMBERS]
        for number, over in enumerate(overs, start=1):
            await until(partial(story.has_allocated, number))
            await asyncio.sleep(0.8)
            over.set()

        assert verdicts(await asyncio.gather(*tasks)) == {("ok", "")}


async def test_a_pod_that_is_unreserved_while_others_wait_is_tried_again(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as story:
        story.reserve()
        waiting = await story.arrive("a", "b")
        await story.scheduler.unreserve(story.pods["b"])
        assert (await waiting[1])["verdict"] == "error"
        story.reserve("b")

        answers = await asyncio.gather(waiting[0], story.begin("b"), story.begin("c"))

        assert verdicts(answers) == {("ok", "")}


async def test_too_few_pods_give_up_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_barrier, "WAIT_S", 0.2)
    async with group_of_three(tmp_path) as story:
        story.reserve("a", "b")

        answers = await asyncio.gather(story.begin("a"), story.begin("b"))

        assert verdicts(answers) == {("unschedulable", "groupNotComplete")}
        assert not story.allocated()


async def test_a_pod_whose_volumes_take_long_is_bound_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_barrier, "WAIT_S", 0.2)
    async with group_of_three(tmp_path) as story:
        story.reserve()
        waiting = await story.arrive("a", "b")
        await asyncio.sleep(0.5)
        assert not story.allocated()

        answers = await asyncio.gather(*waiting, story.begin("c"))

        assert verdicts(answers) == {("ok", "")}
        assert story.allocated() == "abc"


async def test_a_pod_that_is_added_while_others_wait_is_bound_with_them(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as story:
        story.reserve("a", "b", min_count=2)
        waiting = await story.arrive("a")
        story.reserve("c", min_count=2)
        waiting += await story.arrive("b")
        assert not story.allocated()

        answers = await asyncio.gather(*waiting, story.begin("c"))

        assert verdicts(answers) == {("ok", "")}
        assert story.allocated() == "abc"


async def test_a_lost_pod_keeps_the_others_no_longer_than_volumes_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_barrier, "WAIT_S", 0.2)
    async with group_of_three(tmp_path, binder={"binding_timeout_s": 0.3}) as story:
        story.reserve()

        answers = await asyncio.gather(story.begin("a"), story.begin("b"))

        assert verdicts(answers) == {("unschedulable", "groupNotComplete")}
        assert not story.allocated()


async def test_pods_that_wait_for_others_hold_no_turn_of_writes(tmp_path: Path) -> None:
    async with group_of_three(tmp_path, binder={"max_claims": 1}) as story:
        story.reserve("a", "b")
        waiting = await story.arrive("a", "b")
        story.scheduler.reserve(story.pods["c"], "node-1")

        assert (await story.begin("c"))["verdict"] == "ok"
        assert story.allocated() == "c"
        for task in waiting:
            task.cancel()


async def test_a_pod_that_is_deleted_while_its_group_is_written_takes_the_others_along(
    tmp_path: Path,
) -> None:
    async with group_of_three(tmp_path) as story:
        story.reserve()
        over = story.server.delay(patches_of("a"))
        tasks = [story.begin(name) for name in MEMBERS]
        await until(lambda: story.allocated() == "abc")
        story.server.remove(PODS, "b", "default")
        await until(lambda: story.sidecar.reservations() == len(MEMBERS) - 1)
        over.set()

        answers = await asyncio.gather(*tasks)

        assert verdicts([answers[0], answers[2]]) == {("unschedulable", "groupNotComplete")}
        assert not story.allocated()


async def test_unreserve_of_a_pod_waits_for_the_commit_and_takes_back_its_claim_alone(
    tmp_path: Path,
) -> None:
    async with group_of_three(tmp_path) as story:
        story.reserve(min_count=2)
        over = story.server.delay(patches_of("a"))
        tasks = [story.begin(name) for name in MEMBERS]
        await until(lambda: story.allocated() == "abc")
        unreserved = asyncio.ensure_future(story.scheduler.unreserve(story.pods["c"]))
        await until(lambda: story.sidecar.reservations() == len(MEMBERS) - 1)
        over.set()

        answers = await asyncio.gather(*tasks)
        await unreserved

        assert verdicts(answers[:2]) == {("ok", "")}
        assert answers[2]["verdict"] == "error"
        assert story.allocated() == "ab"


async def test_a_pod_whose_binding_fails_keeps_its_devices_and_is_tried_again_alone(
    tmp_path: Path,
) -> None:
    async with group_of_three(tmp_path) as story:
        story.reserve()
        await asyncio.gather(*map(story.begin, MEMBERS))
        await story.bind("a")
        await story.bind("b")
        await story.scheduler.unreserve(story.pods["c"])
        assert story.allocated() == "abc"
        story.reserve("c")

        assert (await story.begin("c"))["verdict"] == "ok"

        users = [user["name"] for user in story.sidecar.claim("gpu-c")["status"]["reservedFor"]]
        assert users == ["c"]


async def test_a_minimum_that_is_raised_while_pods_wait_counts(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as story:
        pod_group = {
            "metadata": {"name": GROUP, "namespace": "default"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
        }
        story.reserve(
            "a", "b", min_count=2, uid=story.server.put(POD_GROUPS, pod_group)["metadata"]["uid"]
        )
        groups = story.sidecar.state.groups
        await until(lambda: groups.min_count(("default", GROUP)) == len(MEMBERS))
        waiting = await story.arrive("a", "b")
        assert not story.allocated()

        pod_group["spec"] = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        story.server.put(POD_GROUPS, pod_group)

        assert verdicts(await asyncio.gather(*waiting)) == {("ok", "")}


async def test_a_node_that_is_lost_while_pods_wait_sends_its_pods_back_alone(
    tmp_path: Path,
) -> None:
    async with group_of_three(tmp_path) as story:
        story.server.put(NODES, {"metadata": {"name": "node-2"}})
        await until(lambda: story.sidecar.state.node("node-2") is not None)
        story.pods["launcher"] = put_pod(
            story.server, "launcher", schedulingGroup={"podGroupName": GROUP}
        )
        await until(lambda: story.sidecar.state.groups.find("uid-launcher") is not None)
        story.reserve(min_count=4)
        group = {"uid": "uid-job", "namespace": "default", "name": GROUP, "minCount": 4}
        story.scheduler.reserve(story.pods["launcher"], "node-2", group=group)
        waiting = await story.arrive("launcher", "a", "b")
        story.server.remove(NODES, "node-2")
        await until(lambda: story.sidecar.state.node("node-2") is None)

        last = await story.arrive("c")

        assert verdicts([await waiting[0]]) == {("unschedulable", "devicesGone")}
        assert not story.allocated()
        story.reserve("launcher", min_count=4)
        answers = await asyncio.gather(*waiting[1:], *last, story.begin("launcher"))
        assert verdicts(answers) == {("ok", "")}


async def test_devices_that_cannot_be_made_ready_are_taken_back_from_all(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as story:
        published = story.server.find(RESOURCE_SLICES, "node-1-slice")
        assert published is not None
        for of_node in published["spec"]["devices"]:
            of_node |= {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
        story.server.put(RESOURCE_SLICES, published)
        slices = story.sidecar.state.slices
        await until(
            lambda: all(
                device.binding_conditions
                for device in next(iter(slices.values())).spec.devices or ()
            )
        )
        story.reserve()
        waiting = [story.begin(name) for name in MEMBERS]
        await until(lambda: story.allocated() == "abc")

        stored = story.sidecar.claim("gpu-b")
        result = stored["status"]["allocation"]["devices"]["results"][0]
        broken = {"type": "Broken", "status": "True", "reason": "x", "message": ""}
        report = {key: result[key] for key in ("driver", "pool", "device")}
        stored["status"]["devices"] = [report | {"conditions": [broken]}]
        story.server.put(RESOURCE_CLAIMS, stored)

        answers = await asyncio.gather(*waiting)
        assert verdicts(answers) == {("unschedulable", "bindingFailed")}
        assert not story.allocated()


async def test_a_pod_whose_end_only_the_scheduler_has_seen_counts_no_more(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as story:
        await story.bind("c")
        story.reserve("a", "b")
        fields = {"uid": "uid-job", "namespace": "default", "name": GROUP, "minCount": 3}
        status, _ = await story.scheduler.call("group", group=fields, placed=[])
        assert status == 200

        waiting = await story.arrive("a", "b")

        assert not story.allocated()
        placed = [{"podUID": story.uid("c"), "node": "node-1"}]
        await story.scheduler.call("group", group=fields, placed=placed)
        await story.scheduler.unreserve(story.pods["b"])
        story.reserve("b")
        answers = await asyncio.gather(waiting[0], story.begin("b"))
        assert verdicts(answers) == {("ok", "")}


async def test_a_sidecar_that_loses_its_lease_while_pods_wait_writes_nothing(
    tmp_path: Path,
) -> None:
    leads = [True]
    async with group_of_three(tmp_path, may_write=lambda: leads[0]) as story:
        story.reserve()
        waiting = await story.arrive("a", "b")
        leads[0] = False

        answers = await asyncio.gather(*waiting, story.begin("c"))

        assert verdicts(answers) == {("unschedulable", "devicesGone")}
        assert not [call for call in story.server.calls if call.method == "PATCH"]


async def test_a_pod_waits_between_its_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is held for minutes would hold a connection of the scheduler for as long."""
    monkeypatch.setattr(group_waits, "HOLD_S", NOTHING_YET_S)
    async with group_of_three(tmp_path) as story:
        story.reserve()
        for name in ("a", "b", "a"):
            answer = await story.ask(name)
            assert answer["verdict"] == "wait"
            assert 0 < answer["retryMillis"] < 1000
        assert story.is_waiting("a")
        assert not story.allocated()

        answer = await story.begin("c")

        assert answer["verdict"] == "ok"
        assert story.allocated() == "abc"
        # Also twice, since an answer may be lost.
        for name in ("a", "b", "a"):
            assert (await story.ask(name))["verdict"] == "ok"


async def test_claims_are_written_whether_somebody_asks_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_waits, "MAX_HELD", 0)
    async with group_of_three(tmp_path) as story:
        story.reserve()
        story.server.fail(403, matches=patches_of("b"))

        answers = [await story.ask(name) for name in MEMBERS]

        assert verdicts(answers) == {("wait", "")}
        await until(lambda: not story.is_waiting("a"))
        answers = await asyncio.gather(*map(story.begin, MEMBERS))
        assert verdicts(answers) == {("unschedulable", "devicesGone")}


async def test_the_wait_between_calls_ends_with_the_reservation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_waits, "HOLD_S", NOTHING_YET_S)
    async with group_of_three(tmp_path) as story:
        story.reserve(min_count=2)
        waiting = await story.arrive("a")
        assert (await story.ask("b"))["verdict"] == "wait"

        await story.scheduler.unreserve(story.pods["b"])

        assert not story.is_waiting("b")
        answers = await asyncio.gather(*waiting, story.begin("c"))
        assert verdicts(answers) == {("ok", "")}


async def test_the_calls_of_one_namespace_are_not_all_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_waits, "MAX_HELD", 1)
    other = {"uid": "uid-other", "namespace": "other", "name": "other", "minCount": 2}
    async with group_of_three(tmp_path) as story:
        story.reserve()
        launcher = put_pod(story.server, "launcher", schedulingGroup={"podGroupName": "other"})
        await until(lambda: story.sidecar.state.groups.find("uid-launcher") is not None)
        story.scheduler.reserve(launcher, "node-1", group=other)
        story.pods["launcher"] = launcher
        waiting = await story.arrive("a")

        assert (await story.ask("b"))["verdict"] == "wait"

        held = asyncio.ensure_future(story.ask("launcher"))
        await until(partial(story.is_waiting, "launcher"))
        await asyncio.sleep(NOTHING_YET_S)
        assert not held.done()
        answers = await asyncio.gather(*waiting, story.begin("b"), story.begin("c"))
        assert verdicts(answers) == {("ok", "")}
        await story.scheduler.unreserve(launcher)
        assert (await held)["code"] == "podUnknown"


async def test_of_many_that_wait_each_asks_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_waits, "MAX_HELD", 0)
    async with group_of_three(tmp_path) as story:
        story.reserve()
        alone, beside = await story.ask("a"), await story.ask("b")

        assert beside["retryMillis"] == 2 * alone["retryMillis"]


async def test_pods_of_a_basic_group_wait_for_nobody(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as story:
        story.reserve(min_count=1, policy="basic")

        assert (await story.begin("a"))["verdict"] == "ok"
        assert story.allocated() == "a"


async def test_a_restarted_sidecar_does_not_wait_for_pods_that_were_let_go(tmp_path: Path) -> None:
    async with group_of_three(tmp_path) as story:
        story.pods["launcher"] = put_pod(
            story.server, "launcher", schedulingGroup={"podGroupName": GROUP}
        )
        story.reserve()
        await asyncio.gather(*map(story.begin, MEMBERS))
        story.reserve("launcher", min_count=4)
        async with sidecar_beside(story.server, tmp_path, instance="instance-1") as sidecar:
            scheduler = FakeScheduler(sidecar.socket, story.scheduler.name)
            scheduler.reservations = story.scheduler.reservations
            assert (await scheduler.hello())["ready"]

            answer = await scheduler.prebind(story.pods["launcher"])

            assert answer["verdict"] == "ok"


async def test_pods_that_go_on_waiting_are_not_woken_by_each_change_of_their_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users change pods as often as they like, and a group has hundreds that wait."""
    launchers = [f"launcher-{number}" for number in range(20)]
    async with group_of_three(tmp_path) as story:
        for name in (*launchers, "late"):
            story.pods[name] = put_pod(story.server, name, schedulingGroup={"podGroupName": GROUP})
        await until(lambda: story.sidecar.state.groups.find("uid-late") is not None)
        story.reserve(*launchers, "late", min_count=21)
        waiting = await story.arrive(*launchers)
        await asyncio.sleep(NOTHING_YET_S)
        decisions: list[str] = []
        decide = group_barrier.decide

        def counted(
            barrier: group_barrier.Barrier, uid: str, *arguments: Any, **named: Any
        ) -> object:
            decisions.append(uid)
            return decide(barrier, uid, *arguments, **named)

        monkeypatch.setattr(group_barrier, "decide", counted)
        for number in range(10):
            story.server.put(PODS, story.pods["late"] | {"status": {"message": f"{number}"}})
        last = put_pod(story.server, "last", schedulingGroup={"podGroupName": GROUP})
        await until(lambda: story.sidecar.state.groups.find(last["metadata"]["uid"]) is not None)
        await asyncio.sleep(NOTHING_YET_S)
        assert len(decisions) <= 11

        answers = await asyncio.gather(*waiting, story.begin("late"))

        assert verdicts(answers) == {("ok", "")}
