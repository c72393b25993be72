"""PodGroups for gangs, against an API server: created once, and deleted when no pod is left."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from allocator.declarations.adopted import adopted_name
from allocator.declarations.model import GroupName, GroupSystem
from controllers.groups import controller as groups_controller
from controllers.groups.controller import MAX_EVENTS, GangController, Key
from controllers.model.settings import ControllerSettings
from kube.api.urls import EVENTS, POD_GROUPS, PODS, VOLCANO_POD_GROUPS
from kube.names import GANG_ANNOTATION, MANAGED_LABEL
from kube.runtime.controller import Controller
from kube.runtime.work_queue import WorkQueue
from process.model.durations import PositiveDuration
from testing.documents import Document
from testing.fake_api_server import (
    Call,
    FakeApiServer,
    quick_informers,
    quick_recorder,
    running,
    until,
)
from testing.gang_pods import ADOPTED, GANG, NAME, document

FAST: Final = ControllerSettings(
    pod_group_unused_period=PositiveDuration(0.05),
    initial_backoff=PositiveDuration(0.02),
    max_backoff=PositiveDuration(0.05),
)
VOLCANO: Final = "scheduling.k8s.io/group-name"


@asynccontextmanager
async def controlling(server: FakeApiServer) -> AsyncIterator[Controller[Key]]:
    async with server.client() as client:
        informers, recorder = quick_informers(client), quick_recorder(client)
        (controller,) = GangController(client, informers, recorder, FAST).controllers
        async with running(informers.run, recorder.run, controller.run):
            yield controller


def groups(server: FakeApiServer) -> list[Document]:
    return server.objects(POD_GROUPS)


def events(server: FakeApiServer) -> list[tuple[str, str]]:
    return [(event["reason"], event["regarding"]["name"]) for event in server.objects(EVENTS)]


def is_create(call: Call) -> bool:
    return call.method == "POST" and call.path.endswith("/podgroups")


def creations(server: FakeApiServer) -> int:
    return sum(map(is_create, server.calls))


async def test_a_gang_gets_one_pod_group_which_goes_with_its_last_pod() -> None:
    async with FakeApiServer() as server, controlling(server):
        for index in range(3):
            server.put(PODS, document(f"ring-{index}"))
        await until(lambda: bool(groups(server)))
        (group,) = groups(server)
        assert group["metadata"]["name"] == ADOPTED
        assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}}
        for index in range(3):
            assert groups(server) == [group]
            server.remove(PODS, f"ring-{index}", "team")
        await until(lambda: not groups(server))

        # The same gang again.
        server.put(PODS, document("ring-0", minimum="5"))
        await until(lambda: bool(groups(server)))

        assert groups(server)[0]["spec"]["schedulingPolicy"]["gang"]["minCount"] == 5
    assert creations(server) == 2
    assert events(server) == []


async def test_what_does_not_matter_of_a_pod_is_no_reason_to_look_at_its_gang() -> None:
    async with FakeApiServer() as server, controlling(server) as controller:
        pod = document("ring-0")
        server.put(PODS, pod)
        await until(lambda: len(groups(server)) == 1)
        before = controller.queue.added
        for number in range(50):
            # Each is processed by itself, so that none of them waits for another.
            pod["metadata"]["labels"] = {"a": str(number)}
            server.put(PODS, pod)
            await asyncio.sleep(0.01)
        other = document("other-0", group=adopted_name(GroupName(GANG.system, "team", "other")))
        other["metadata"]["annotations"][NAME] = "other"
        server.put(PODS, other)
        await until(lambda: len(groups(server)) == 2)

        assert controller.queue.added - before < 10


async def test_a_start_in_the_middle_creates_and_deletes_what_is_missing() -> None:
    async with FakeApiServer() as server:
        server.put(PODS, document("ring-0"))
        server.put(POD_GROUPS, unused_group())
        async with controlling(server):
            await until(
                lambda: [group["metadata"]["name"] for group in groups(server)] == [ADOPTED]
            )


async def test_pods_that_end_get_no_pod_group_again() -> None:
    """It went with their owner, and was made anew for an owner that is gone."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "ring", "uid": "gone"}
    async with FakeApiServer() as server:
        for index in range(2):
            server.put(PODS, document(f"ring-{index}", owner=owner, is_deleted=True))
        async with controlling(server):
            server.put(PODS, volcano_pod())
            await until(lambda: bool(events(server)))
            assert groups(server) == []

            server.put(PODS, document("ring-2", minimum="3"))
            await until(lambda: bool(groups(server)))

        (group,) = groups(server)
    assert "ownerReferences" not in group["metadata"]
    assert group["spec"]["schedulingPolicy"]["gang"]["minCount"] == 3


async def test_a_pod_group_of_somebody_else_stays_as_it_is() -> None:
    theirs = {"metadata": {"name": ADOPTED, "namespace": "team"}, "spec": {}}
    async with FakeApiServer() as server:
        server.put(POD_GROUPS, theirs)
        server.put(PODS, document("ring-0"))
        async with controlling(server):
            await until(lambda: server.watching > 0)
            server.remove(PODS, "ring-0", "team")
            server.put(PODS, document("other", group="x"))
            server.put(PODS, volcano_pod())
            await until(lambda: bool(events(server)))
            # One of ours that is unused, later, is deleted.
            server.put(POD_GROUPS, unused_group())
            await until(lambda: len(groups(server)) == 1)

        assert [group["metadata"]["name"] for group in groups(server)] == [ADOPTED]
    calls = [call for call in server.calls if call.method in {"DELETE", "PATCH"}]
    assert [call.path.rpartition("/")[2] for call in calls] == ["left-0123456789abcdef"]


def unused_group() -> Document:
    """A PodGroup that we have created for a gang without a pod."""
    metadata = {
        "name": "left-0123456789abcdef",
        "namespace": "team",
        "labels": {MANAGED_LABEL: "true"},
        "annotations": {GANG_ANNOTATION: "Koordinator gang left"},
    }
    return {"metadata": metadata, "spec": {}}


def volcano_pod() -> Document:
    """A pod of a Volcano Job with the minimum in its PodGroup."""
    name = adopted_name(GroupName(GroupSystem.VOLCANO, "team", "job-1"))
    pod = document("worker-0", group=name)
    pod["metadata"]["annotations"] = {VOLCANO: "job-1"}
    return pod


async def test_without_a_minimum_the_gang_waits_and_says_so() -> None:
    async with FakeApiServer() as server, controlling(server):
        server.put(PODS, volcano_pod())
        await until(lambda: events(server) == [("GangMinimumUnknown", "worker-0")])
        assert groups(server) == []
        own: dict[str, Any] = {"metadata": {"name": "job-1", "namespace": "team"}}
        server.put(VOLCANO_POD_GROUPS, {**own, "spec": {"minMember": 3}})

        await until(lambda: bool(groups(server)))

        assert groups(server)[0]["spec"]["schedulingPolicy"]["gang"]["minCount"] == 3


async def test_pods_that_disagree_are_told_so() -> None:
    """Both came before the PodGroup, so that the webhook could not deny them by it."""
    async with FakeApiServer() as server:
        server.put(PODS, document("ring-0", minimum="2"))
        server.put(PODS, document("ring-1", minimum="3", created="2026-11-20T10:00:01Z"))
        async with controlling(server):
            await until(lambda: events(server) == [("GangMinimumDiffers", "ring-1")])

        assert groups(server)[0]["spec"]["schedulingPolicy"]["gang"]["minCount"] == 2


async def test_a_pod_group_of_the_gangs_own_scheduler_that_disagrees_is_told_to_a_pod() -> None:
    """The number of the pods counts."""
    pod = volcano_pod()
    pod["metadata"]["annotations"]["scheduling.volcano.sh/group-min-member"] = "4"
    async with FakeApiServer() as server:
        own = {"metadata": {"name": "job-1", "namespace": "team"}, "spec": {"minMember": 3}}
        server.put(VOLCANO_POD_GROUPS, own)
        server.put(PODS, pod)
        async with controlling(server):
            await until(lambda: events(server) == [("GangMinimumDiffers", "worker-0")])

        assert groups(server)[0]["spec"]["schedulingPolicy"]["gang"]["minCount"] == 4


async def test_of_many_pods_that_disagree_some_are_reported() -> None:
    """One event for each of thousands would cost as much again with every change of one."""
    names = [f"ring-{number:02}" for number in range(1, MAX_EVENTS + 5)]
    async with FakeApiServer() as server:
        server.put(PODS, document("ring-00", minimum="2"))
        for name in names:
            server.put(PODS, document(name, minimum="3", created="2026-11-20T10:00:01Z"))
        async with controlling(server):
            await until(lambda: len(events(server)) == MAX_EVENTS)
            server.put(PODS, document("ring-00", minimum="2", created="2026-11-20T10:00:00Z"))
            await asyncio.sleep(0.2)

        assert {name for _, name in events(server)} == set(names[:MAX_EVENTS])


async def test_a_pod_group_that_is_rejected_is_told_to_its_pods() -> None:
    async with FakeApiServer() as server:
        server.fail(422, matches=is_create)
        server.put(PODS, document("ring-0"))
        async with controlling(server):
            await until(lambda: events(server) == [("PodGroupNotCreated", "ring-0")])


async def test_a_lost_answer_is_no_second_pod_group() -> None:
    async with FakeApiServer() as server:
        server.fail(500, times=2, matches=is_create)
        server.put(PODS, document("ring-0"))
        async with controlling(server):
            await until(lambda: bool(groups(server)))

    assert len(groups(server)) == 1


class Unserved:
    """PodGroups that the API server does not have for a while."""

    def __init__(self, server: FakeApiServer) -> None:
        self.is_over = False
        server.fail(404, times=10_000, matches=self._matches)

    def _matches(self, call: Call) -> bool:
        return not self.is_over and f"/{POD_GROUPS.group}/" in call.path


def lists_of_groups(server: FakeApiServer) -> int:
    return sum(
        f"/{POD_GROUPS.group}/" in call.path and call.method == "GET" and not call.is_watch
        for call in server.calls
    )


@asynccontextmanager
async def following(server: FakeApiServer) -> AsyncIterator[WorkQueue[Key]]:
    """Run the controller; its queue tells when it has reconciled."""
    async with server.client() as client:
        informers, recorder = quick_informers(client), quick_recorder(client)
        (controller,) = GangController(client, informers, recorder, FAST).controllers
        async with running(informers.run, recorder.run, controller.run):
            yield controller.queue


def is_reconciled(queue: WorkQueue[Key], added: int) -> bool:
    return queue.added > added and not len(queue) and not queue.active


async def test_a_gang_that_comes_before_its_api_gets_its_pod_group_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The webhook knew PodGroups before the controllers did; their pods waited for ever."""
    monkeypatch.setattr(groups_controller, "UNAVAILABLE_S", 0.01)
    async with FakeApiServer() as server:
        unserved = Unserved(server)
        async with following(server) as queue:
            # The second list comes after the answer to the first.
            await until(lambda: lists_of_groups(server) > 1)
            server.put(PODS, document("ring-0"))
            await until(lambda: is_reconciled(queue, 0))
            assert groups(server) == []

            unserved.is_over = True

            await until(lambda: bool(groups(server)))


async def test_a_pod_group_of_which_the_last_pod_goes_without_the_api_is_deleted_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups_controller, "UNAVAILABLE_S", 0.01)
    async with FakeApiServer() as server, following(server) as queue:
        server.put(PODS, document("ring-0"))
        await until(lambda: bool(groups(server)) and is_reconciled(queue, 1))
        unserved = Unserved(server)
        server.end_watches()
        before = lists_of_groups(server)
        await until(lambda: lists_of_groups(server) > before + 1)
        added = queue.added
        server.remove(PODS, "ring-0", "team")
        await until(lambda: is_reconciled(queue, added))
        assert groups(server)

        unserved.is_over = True

        await until(lambda: not groups(server))


async def test_without_the_api_nothing_is_written() -> None:
    async with FakeApiServer() as server:
        server.fail(404, times=10_000, matches=lambda call: call.path.endswith("/podgroups"))
        async with controlling(server):
            await until(lambda: server.watching > 0)
            server.put(PODS, document("ring-0"))
            server.put(PODS, document("ring-1"))
            await until(lambda: server.watching > 0)

    assert creations(server) == 0
