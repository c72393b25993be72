"""The way of a group through the sidecar, over its socket and against an API server."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from allocator.model.plan import Budget
from allocator.model.selectors import clear_selector_caches
from kube.api.urls import ALLOCATOR_OWNERSHIPS, POD_GROUPS, PODS, RESOURCE_CLAIMS
from kube.cel.engine import SIMPLE_LENGTH
from process.selectors.engine import WorkerEngine
from sidecar.answers import group_decisions, groups
from sidecar.answers.decision_turns import GIVEN_UP
from sidecar.plan.decisions import EVALUATING
from testing.allocation.builders import DRIVER, claim, request
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, until
from testing.sidecar.scheduler import (
    FakeScheduler,
    Sidecar,
    debug_view,
    document,
    group_of,
    member_of,
    publish,
    put_claim,
    put_fence,
    put_pod,
    reported_status,
    sidecar_beside,
)


class Scene(NamedTuple):
    """A leading sidecar beside a scheduler."""

    server: FakeApiServer
    sidecar: Sidecar
    scheduler: FakeScheduler


LONG = "device.driver == 'gpu.example.com'".ljust(SIMPLE_LENGTH + 1)


@asynccontextmanager
async def scene(
    tmp_path: Path, *nodes: str, per_node: int = 2, **options: Any
) -> AsyncIterator[Scene]:
    async with FakeApiServer() as server:
        publish(server, *nodes, per_node=per_node)
        async with sidecar_beside(server, tmp_path, **options) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            assert (await scheduler.hello())["ready"]
            yield Scene(server, sidecar, scheduler)


async def put_members(
    scene: Scene, group: str, *names: str, selector: str = "", **spec: object
) -> list[Document]:
    """Store pods of a group with a claim for a device each, and wait until the sidecar has seen them."""
    pods = []
    for name in names:
        if selector:
            requested = document(claim(request("req-0", selector), name=f"gpu-{name}"))
            del requested["metadata"]["uid"]
            scene.server.put(RESOURCE_CLAIMS, requested)
        else:
            put_claim(scene.server, f"gpu-{name}")
        pods.append(scene.server.put(PODS, member_of(group, name, f"gpu-{name}", **spec)))
    await until(
        lambda: all(
            ("default", f"gpu-{name}") in scene.sidecar.state.claims.store for name in names
        )
    )
    return pods


def nodes_of(answer: Document, pods: Sequence[Document]) -> list[str]:
    assert answer["verdict"] == "fits", answer
    return [answer["members"][pod["metadata"]["uid"]]["node"] for pod in pods]


def reserve_all(scene: Scene, group: Document, pods: Sequence[Document], answer: Document) -> None:
    for pod, node in zip(pods, nodes_of(answer, pods), strict=True):
        scene.scheduler.reserve(pod, node, group=group)


async def test_a_group_gets_places_and_the_devices_of_its_plan(tmp_path: Path) -> None:
    async with scene(tmp_path, "node-1", "node-2") as here:
        pods = await put_members(here, "ring", *"abcd")
        group = group_of("ring", 4)

        answer = await here.scheduler.group(group, pods)

        assert nodes_of(answer, pods) == ["node-1", "node-1", "node-2", "node-2"]
        reserve_all(here, group, pods, answer)
        single = put_pod(here.server, "single", "gpu-single")
        put_claim(here.server, "gpu-single")
        await until(lambda: ("default", "gpu-single") in here.sidecar.state.claims.store)
        # The next call of all carries the reservations.
        assert (await here.scheduler.prefilter(single))["code"] == "noDevices"
        assert here.scheduler.acknowledged == 4


async def test_what_is_written_is_what_was_planned(tmp_path: Path) -> None:
    """By itself, each of the small pods would take a device of the only node that suits the large one."""
    async with scene(tmp_path, "node-1", per_node=2) as here:
        publish(here.server, "node-2", per_node=1)
        small = (await put_members(here, "ring", "small"))[0]
        put_claim(here.server, "gpu-large", count=2)
        large = here.server.put(PODS, member_of("ring", "large", "gpu-large"))
        await until(lambda: ("default", "gpu-large") in here.sidecar.state.claims.store)
        await until(lambda: "node-2" in here.sidecar.state.nodes)
        pods, group = [small, large], group_of("ring", 2)

        answer = await here.scheduler.group(group, pods)
        reserve_all(here, group, pods, answer)
        answers = await asyncio.gather(*(here.scheduler.prebind(pod) for pod in pods))

        assert [answer["verdict"] for answer in answers] == ["ok", "ok"]
        assert here.sidecar.devices_of("gpu-small") == ["node-2/gpu-0"]
        assert here.sidecar.devices_of("gpu-large") == ["node-1/gpu-0", "node-1/gpu-1"]


async def test_three_of_four_fit_and_all_wait(tmp_path: Path) -> None:
    async with scene(tmp_path, "node-1", per_node=3) as here:
        pods = await put_members(here, "ring", *"abcd")

        answer = await here.scheduler.group(group_of("ring", 4), pods)

        assert (answer["verdict"], answer["code"]) == ("unresolvable", "groupDoesNotFit")
        assert answer["message"] == (
            "3 of 4 pods fit, and 4 are needed; default/d fits nowhere beside them"
        )


async def test_a_waiting_group_is_woken_once_when_all_of_it_fits(tmp_path: Path) -> None:
    async with scene(tmp_path, "node-1", per_node=3) as here:
        pods = await put_members(here, "ring", *"abcd")
        await here.scheduler.group(group_of("ring", 4), pods)
        assert (await here.scheduler.wake())["pods"] == []

        version = here.sidecar.state.version
        publish(here.server, "node-2", per_node=1)
        await until(lambda: here.sidecar.state.version > version)

        await until_woken(here, [f"default/{name}" for name in "abcd"])
        assert (await here.scheduler.wake())["pods"] == []
        answer = await here.scheduler.group(group_of("ring", 4), pods)
        assert sorted(nodes_of(answer, pods)) == ["node-1", "node-1", "node-1", "node-2"]


async def until_woken(here: Scene, names: list[str]) -> None:
    """Ask until pods are woken; no others may be woken until then."""
    while not (woken := (await here.scheduler.wake())["pods"]):
        pass
    assert woken == names


async def test_a_release_that_does_not_suffice_wakes_no_group(tmp_path: Path) -> None:
    async with scene(tmp_path, "node-1", per_node=2) as here:
        pods = await put_members(here, "ring", *"abcd")
        await here.scheduler.group(group_of("ring", 4), pods)
        assert (await here.scheduler.wake())["pods"] == []

        version = here.sidecar.state.version
        publish(here.server, "node-2", per_node=1)
        await until(lambda: here.sidecar.state.version >= version + 2)

        assert (await here.scheduler.wake())["pods"] == []


async def test_a_pod_beyond_the_minimum_waits_alone(tmp_path: Path) -> None:
    async with scene(tmp_path, "node-1", per_node=2) as here:
        pods = await put_members(here, "ring", *"abc")
        group = group_of("ring", 2)

        answer = await here.scheduler.group(group, pods)

        assert nodes_of(answer, pods) == ["node-1", "node-1", ""]
        left = answer["members"]["uid-c"]
        assert left["code"] == "groupNotNeeded"
        assert left["message"] == (
            "2 of 3 pods fit, and 2 are needed; there is no place for this pod beside them"
        )
        for pod in pods[:2]:
            here.scheduler.reserve(pod, "node-1", group=group)
        assert (await here.scheduler.wake())["pods"] == []
        publish(here.server, "node-2", per_node=1)
        await until_woken(here, ["default/c"])


async def test_a_group_without_claims_is_none_of_ours(tmp_path: Path) -> None:
    async with scene(tmp_path, "node-1") as here:
        pods = [member_of("ring", "a"), member_of("ring", "b")]

        assert (await here.scheduler.group(group_of("ring", 2), pods))["verdict"] == "skip"
        assert (await here.scheduler.group(group_of("ring", 1), []))["verdict"] == "skip"


async def test_a_launcher_without_claims_gets_its_node_from_the_plan(tmp_path: Path) -> None:
    headroom = {
        "number": 1,
        "nodes": [
            {"name": "node-1", "cpuMilli": 1000, "memory": 1 << 30, "pods": 1},
            {"name": "node-2", "cpuMilli": 1000, "memory": 1 << 30, "pods": 5},
        ],
    }
    async with scene(tmp_path, "node-1", "node-2") as here:
        workers = await put_members(here, "ring", "a", "b")
        launcher = member_of("ring", "launcher")
        pods = [launcher, *workers]
        requests = {pod["metadata"]["uid"]: {"cpuMilli": 500, "memory": 0} for pod in pods}

        answer = await here.scheduler.group(
            group_of("ring", 3), pods, headroom=headroom, requests=requests
        )

        # A node takes two pods by its CPU, and node-1 one by its number of pods.
        assert sorted(nodes_of(answer, pods)) == ["node-1", "node-2", "node-2"]
        assert answer["headroom"] == 1

        fourth = (await put_members(here, "ring", "d"))[0]
        requests["uid-d"] = {"cpuMilli": 500, "memory": 0}
        answer = await here.scheduler.group(group_of("ring", 4), [*pods, fourth], requests=requests)
        assert (answer["verdict"], answer["code"]) == ("unschedulable", "groupLacksResources")


async def test_a_shared_claim_is_allocated_once(tmp_path: Path) -> None:
    async with scene(tmp_path, "node-1", "node-2") as here:
        put_claim(here.server, "shared")
        await until(lambda: ("default", "shared") in here.sidecar.state.claims.store)
        pods = [member_of("ring", name, "shared") for name in "abc"]
        group = group_of("ring", 3)

        answer = await here.scheduler.group(group, pods)

        assert nodes_of(answer, pods) == ["node-1"] * 3
        reserve_all(here, group, pods, answer)
        # What is reserved of it pins further pods.
        later = member_of("ring", "d", "shared")
        answer = await here.scheduler.group(
            group, [later], placed=[{"podUID": f"uid-{name}", "node": "node-1"} for name in "abc"]
        )
        assert nodes_of(answer, [later]) == ["node-1"]
        (hold,) = here.sidecar.state.holds.values()
        assert hold.pods == {"uid-a", "uid-b", "uid-c"}


async def test_nodes_that_other_filters_turned_down_are_left_out(tmp_path: Path) -> None:
    async with scene(tmp_path, "node-1", "node-2") as here:
        pods = await put_members(here, "ring", "a", "b")

        answer = await here.scheduler.group(
            group_of("ring", 2), pods, excluded={"uid-a": ["node-1"]}
        )

        assert nodes_of(answer, pods) == ["node-2", "node-1"]


async def test_a_what_if_promises_and_remembers_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path, "node-1", per_node=2) as here:
        victim = put_pod(here.server, "victim", "gpu-victim", nodeName="node-1")
        claim = put_claim(here.server, "gpu-victim")
        result = {
            "request": "req-0",
            "driver": "gpu.example.com",
            "pool": "node-1",
            "device": "gpu-0",
        }
        uid = victim["metadata"]["uid"]
        claim["status"] = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "victim", "uid": uid}],
        }
        here.server.put(RESOURCE_CLAIMS, claim)
        await until(lambda: uid in here.sidecar.state.consumers.claims_of)
        pods = await put_members(here, "ring", "a", "b", priority=10)
        group = group_of("ring", 2, priority=10)

        answer = await here.scheduler.group(group, pods)
        assert (answer["verdict"], answer["code"]) == ("unschedulable", "groupDoesNotFit")
        waiting = here.sidecar.service
        assert waiting is not None
        what_if = {"whatIf": True, "removed": [uid]}
        answer = await here.scheduler.group(group, pods, **what_if)
        assert nodes_of(answer, pods) == ["node-1", "node-1"]
        pinned = {"uid-a": "node-1", "uid-b": "node-1"}
        assert nodes_of(
            await here.scheduler.group(group, pods, **what_if, pinned=pinned), pods
        ) == ["node-1", "node-1"]
        # The pods are those of the what-if before.
        answer = await here.scheduler.group(group, [], **what_if, pinned=pinned)
        assert nodes_of(answer, pods) == ["node-1", "node-1"]
        for same_pods in (pods, []):
            answer = await here.scheduler.group(group, same_pods, whatIf=True, pinned=pinned)
            assert (answer["verdict"], answer["code"]) == ("unschedulable", "groupDoesNotFit")
        of_another = group_of("other", 2, priority=10)
        answer = await here.scheduler.group(of_another, [], whatIf=True, pinned=pinned)
        assert answer["unfinished"]

        # The group waits as before, and nothing is taken.
        assert (await here.scheduler.postfilter(group))["verdict"] == "continue"
        assert here.sidecar.state.holds == {}


async def test_after_a_plan_that_other_filters_turned_down_another_one_is_tried(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path, "node-1") as here:
        pods = await put_members(here, "ring", "a", "b")
        group = group_of("ring", 2)
        await here.scheduler.group(group, pods)

        assert (await here.scheduler.postfilter(group))["verdict"] == "retry"


async def test_a_group_waits_for_releases_that_make_room_for_all_of_it(tmp_path: Path) -> None:
    async with scene(tmp_path, "node-1", per_node=2) as here:
        for number in range(2):
            allocate(here.server, f"held-{number}", f"gpu-{number}", "uid-gone")
        await until(lambda: len(here.sidecar.state.consumers.releasing) == 2)
        pods = await put_members(here, "ring", "a", "b", priority=5)
        group = group_of("ring", 2, priority=5)
        assert (await here.scheduler.group(group, pods))["code"] == "groupDoesNotFit"

        assert (await here.scheduler.postfilter(group))["verdict"] == "wait"

        # Another pod gets one of the devices. Then the group may evict pods.
        allocate(here.server, "held-0", "gpu-0", "uid-other")
        put_pod(here.server, "other", "held-0", nodeName="node-1")
        stored = here.server.find(RESOURCE_CLAIMS, "held-1", "default")
        assert stored is not None
        here.server.put(RESOURCE_CLAIMS, {**stored, "status": {}})
        await until(lambda: not here.sidecar.state.consumers.releasing)
        await until_woken(here, ["default/a", "default/b"])
        await here.scheduler.group(group, pods)
        assert (await here.scheduler.postfilter(group))["verdict"] == "continue"


async def test_a_claim_of_the_group_that_keeps_it_from_nodes_is_released(tmp_path: Path) -> None:
    async with scene(tmp_path, "node-1", "node-2", per_node=1) as here:
        pods = await put_members(here, "ring", "a", "b")
        allocate(here.server, "gpu-a", "gpu-0", "uid-a")
        allocate(here.server, "used", "gpu-0", "uid-x", node="node-2")
        put_pod(here.server, "x", "used", nodeName="node-2")
        await until(lambda: "uid-a" in here.sidecar.state.consumers.claims_of)
        await until(lambda: "uid-x" in here.sidecar.state.consumers.claims_of)
        group = group_of("ring", 2)
        assert (await here.scheduler.group(group, pods))["verdict"] != "fits"

        answer = await here.scheduler.postfilter(group)

        assert answer["verdict"] == "released"
        assert answer["message"] == "deallocated ResourceClaim gpu-a"
        assert here.sidecar.devices_of("gpu-a") == []


def allocate(
    server: FakeApiServer, name: str, device: str, uid: str, *, node: str = "node-1"
) -> None:
    """Store that a claim has a device of a node, for a pod."""
    stored = server.find(RESOURCE_CLAIMS, name, "default") or put_claim(server, name)
    result = {"request": "req-0", "driver": "gpu.example.com", "pool": node, "device": device}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    stored["status"] = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [term]},
        },
        "reservedFor": [{"resource": "pods", "name": uid, "uid": uid}],
    }
    server.put(RESOURCE_CLAIMS, stored)


async def test_a_group_of_which_a_pod_is_deleted_is_not_woken_for_the_others(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path, "node-1", per_node=1) as here:
        pods = await put_members(here, "ring", "a", "b")
        await here.scheduler.group(group_of("ring", 2), pods)
        here.server.remove(PODS, "a", "default")
        await until(lambda: "uid-a" not in here.sidecar.state.consumers.pods)

        assert (await here.scheduler.wake())["pods"] == []

        here.server.remove(PODS, "b", "default")
        service = here.sidecar.service
        assert service is not None
        await until(lambda: len(service._waiting) == 0)


async def test_a_search_without_an_answer_is_tried_again_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And goes on then, if nothing has changed."""
    monkeypatch.setattr(group_decisions, "ATTEMPT_BUDGET", Budget(steps=1))
    async with scene(tmp_path, "node-1", "node-2", per_node=2) as here:
        pods = await put_members(here, "ring", *"abcd")
        verdicts: list[str] = []
        while not verdicts or verdicts[-1] != "fits":
            answer = await here.scheduler.group(group_of("ring", 4), pods)
            verdicts.append(answer["verdict"])
            if answer["verdict"] != "fits":
                assert (answer["code"], answer["unfinished"]) == ("budgetExhausted", True)
                assert (await here.scheduler.postfilter(group_of("ring", 4)))[
                    "verdict"
                ] == "continue"
                woken = await here.scheduler.wake()
                assert woken["pods"] == [f"default/{name}" for name in "abcd"]
        assert len(verdicts) > 1


async def test_selectors_of_a_group_are_evaluated_beside_other_decisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "EVALUATION_WAIT_S", 0.0)
    clear_selector_caches()
    async with scene(tmp_path, "node-1", per_node=2, engine=WorkerEngine()) as here:
        pods = await put_members(here, "ring", "a", "b", selector=LONG)
        verdicts: list[str] = []
        while not verdicts or verdicts[-1] != "fits":
            answer = await here.scheduler.group(group_of("ring", 2), pods)
            verdicts.append(answer["verdict"])
            if answer["verdict"] != "fits":
                assert (answer["message"], answer["unfinished"]) == (EVALUATING, True)
                async with asyncio.timeout(30):
                    await until_woken(here, ["default/a", "default/b"])

        # Once for what the selector reads, and once for its verdicts.
        assert verdicts == ["unresolvable", "unresolvable", "fits"]
        assert (await here.scheduler.wake())["nextMillis"] == 0


async def test_a_group_whose_decision_did_not_end_twice_is_given_up(tmp_path: Path) -> None:
    """One pod stands for the group, in any order; one with claims, since others are not known by then."""
    async with FakeApiServer() as server:
        publish(server, "node-1")
        pods = [member_of("ring", "0-launcher"), member_of("ring", "b", "gpu-b")]
        pods.append(server.put(PODS, member_of("ring", "a", "gpu-a")))
        async with sidecar_beside(server, tmp_path, undecided={"uid-a": 2}) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()

            answer = await scheduler.group(group_of("ring", 3), pods)

            assert answer["message"] == GIVEN_UP.message


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"group": group_of("ring", 0)}, "minCount"),
        ({"group": group_of("ring", 1 << 31)}, "minCount"),
        ({"group": group_of("ring", 1, priority=1 << 31)}, "priority"),
        ({"group": {**group_of("ring", 1), "uid": ""}}, "uid"),
        ({"removed": ["uid-x"]}, "whatIf"),
        ({"pinned": {"uid-x": "node-1"}}, "whatIf"),
        ({"whatIf": True, "headroom": {"number": 1}}, "headroom"),
        ({"requests": {"uid-a": {"cpuMilli": 1 << 63}}}, "cpuMilli"),
        ({"requests": {"uid-a": {"memory": -1}}}, "memory"),
        ({"excluded": {"uid-a": [""]}}, "excluded"),
        ({"placed": [{"podUID": "uid-a", "node": "node-1"}]}, "twice"),
    ],
    ids=str,
)
async def test_a_hostile_request_is_malformed(
    tmp_path: Path, fields: Document, problem: str
) -> None:
    async with scene(tmp_path, "node-1") as here:
        body = {"group": group_of("ring", 1), "pods": [member_of("ring", "a")], **fields}

        status, answer = await here.scheduler.call("group", **body)

        assert status == 400
        assert problem in answer["message"]


async def test_a_group_from_an_unknown_scheduler_has_to_say_hello(tmp_path: Path) -> None:
    async with scene(tmp_path, "node-1") as here:
        stranger = FakeScheduler(here.sidecar.socket, "stranger")

        status, _ = await stranger.call(
            "group", group=group_of("ring", 1), pods=[member_of("ring", "a")]
        )

        assert status == 409


async def test_a_group_that_has_waited_for_long_keeps_devices_until_it_is_gone(
    tmp_path: Path,
) -> None:
    """A pod by itself is told the reason of its wait, and is woken when nothing is kept any more."""
    old = {"creationTimestamp": "2026-11-20T23:00:00Z"}
    async with scene(tmp_path, "node-1", per_node=3) as here:
        put_fence(here.server, DRIVER)
        ownership = {"metadata": {"name": "default"}, "spec": {"drivers": [{"name": DRIVER}]}}
        here.server.put(ALLOCATOR_OWNERSHIPS, ownership)
        await until(lambda: bool(reported_status(here.server).get("conditions")))
        group = group_of("ring", 2, created=old["creationTimestamp"])
        here.server.put(
            POD_GROUPS,
            {
                "metadata": {"name": "ring", "namespace": "default", "uid": "group-ring", **old},
                "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
            },
        )
        pods = []
        for name in "ab":
            put_claim(here.server, f"gpu-{name}", count=2)
            pod = member_of("ring", name, f"gpu-{name}")
            pods.append(here.server.put(PODS, {**pod, "metadata": {**pod["metadata"], **old}}))
        single = put_pod(here.server, "single", "gpu-single")
        put_claim(here.server, "gpu-single", count=2)
        publish(here.server, "node-2", per_node=2)
        await until(lambda: ("default", "gpu-single") in here.sidecar.state.claims.store)
        await until(lambda: "node-2" in here.sidecar.state.nodes)
        # Another pod uses what the group needs as well.
        other = put_pod(here.server, "other", "gpu-other")
        put_claim(here.server, "gpu-other", count=2)
        await until(lambda: ("default", "gpu-other") in here.sidecar.state.claims.store)
        here.scheduler.reserve(other, "node-2")

        answer = await here.scheduler.group(group, pods)
        assert answer["code"] == "groupDoesNotFit", answer
        devices = [
            f"{DRIVER}/{node}/gpu-{number}" for node in ("node-1", "node-2") for number in "01"
        ]
        (kept,) = (await debug_view(here.sidecar.socket))["keptForGroups"]
        assert kept["group"] == "default/ring"
        assert kept["devices"] == devices
        await until(lambda: bool(reported_status(here.server).get("keptForGroups")))
        (reported,) = reported_status(here.server)["keptForGroups"]
        assert datetime.fromisoformat(reported.pop("since")) == datetime.fromisoformat(
            old["creationTimestamp"]
        )
        assert reported == {
            "groupUID": "group-ring",
            "namespace": "default",
            "group": "ring",
            "devices": 4,
            "nodes": ["node-1", "node-2"],
        }
        answer = await here.scheduler.prefilter(single)
        assert (answer["verdict"], answer["code"]) == ("unresolvable", "keptForGroup")
        assert (await here.scheduler.wake())["pods"] == []

        here.server.remove(POD_GROUPS, "ring", "default")
        await until(lambda: not here.sidecar.state.groups.groups.store)
        await until_woken(here, ["default/single"])
        assert (await debug_view(here.sidecar.socket))["keptForGroups"] == []
        await until(lambda: not reported_status(here.server).get("keptForGroups"))
        assert (await here.scheduler.prefilter(single))["verdict"] == "fits"


async def test_no_devices_are_searched_for_a_group_that_would_not_keep_them(tmp_path: Path) -> None:
    """One group of a namespace keeps devices, and one that is as old comes after it by its UID."""
    old = {"creationTimestamp": "2026-11-20T23:00:00Z"}
    async with scene(tmp_path, "node-1", per_node=2) as here:
        other = put_pod(here.server, "other", "gpu-other")
        put_claim(here.server, "gpu-other")
        await until(lambda: ("default", "gpu-other") in here.sidecar.state.claims.store)
        here.scheduler.reserve(other, "node-1")

        async def ask(name: str) -> float:
            """Ask about a group that does not fit, and return the searches for devices to keep."""
            put_claim(here.server, f"gpu-{name}", count=2)
            pod = member_of(name, f"{name}-0", f"gpu-{name}")
            pod = here.server.put(PODS, {**pod, "metadata": {**pod["metadata"], **old}})
            await until(
                lambda: ("default", f"gpu-{name}") in here.sidecar.state.claims.store,
            )
            answer = await here.scheduler.group(
                group_of(name, 1, created="2026-11-20T23:00:00Z"), [pod]
            )
            assert answer["verdict"] != "fits", answer
            count = "drawbridge_sidecar_decision_duration_seconds_count"
            return here.sidecar.registry.get_sample_value(count, {"kind": "find_keep"}) or 0

        assert await ask("b") == 1
        assert await ask("c") == 1
        assert await ask("a") == 2
        (kept,) = (await debug_view(here.sidecar.socket))["keptForGroups"]
        assert kept["group"] == "default/a"


async def test_a_group_that_waits_for_less_keeps_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path, "node-1", per_node=1) as here:
        pods = await put_members(here, "ring", "a", "b")
        single = put_pod(here.server, "single", "gpu-single")
        put_claim(here.server, "gpu-single")
        await until(lambda: ("default", "gpu-single") in here.sidecar.state.claims.store)

        await here.scheduler.group(group_of("ring", 2), pods)

        assert (await here.scheduler.prefilter(single))["verdict"] == "fits"
