"""`drawbridge plan` with pods that run, and with claims that do not fit the devices of their own node."""

from pathlib import Path
from typing import Any, Final

from migration.plan.planning.prepared import prepare_cluster
from migration.plan.search.moments import Policy
from migration.plan.stage.placement import Placer
from migration.plan.stage.stage_allocator import StageAllocator, node_of
from testing.counting import counted_calls
from testing.documents import namespace
from testing.migration import GPU, WHOLE, hami_node, plugin_node, workload
from testing.plan import planned, question_of, waves

HAMI: Final = "hami-scheduler"


def wave_of(plan: dict[str, Any], node: str) -> int:
    """Return the number of the wave that switches a node."""
    (number,) = [number for number, (names, _) in enumerate(waves(plan), start=1) if node in names]
    return number


def test_whole_gpus_of_hami_stay_until_their_pods_have_claims(tmp_path: Path) -> None:
    objects = [
        namespace("team"),
        *(hami_node(f"h{number}") for number in range(2)),
        *(plugin_node(f"p{number}", 2) for number in range(3)),
        *workload("segment", {GPU: "2"}, ["h0"], schedulerName=HAMI),
    ]
    plan = planned(tmp_path, objects, "--wave-nodes", 2)

    # h1 has two GPUs, p0 to p2 have six: those of h0 are not free.
    assert 8 == plan["waves"][0]["freeForKeys"]["before"], waves(plan)
    opted_in = next(wave["wave"] for wave in plan["waves"] if "team" in wave["namespaces"])
    switched = {entry["name"] for wave in plan["waves"][:opted_in] for entry in wave["nodes"]}
    assert switched & {"p0", "p1", "p2"}, waves(plan)
    assert wave_of(plan, "h0") > opted_in, waves(plan)


def test_device_keys_of_hami_are_of_no_use_to_a_device_plugin(tmp_path: Path) -> None:
    objects = [
        namespace("team"),
        namespace("other"),
        hami_node("h0"),
        *(plugin_node(f"p{number}", 2) for number in range(2)),
        *workload("segment", {GPU: "2"}, ["h0"], schedulerName=HAMI),
        *workload("web", {GPU: "2"}, ["p0", "p1"], namespace="other"),
    ]
    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    assert [] == plan["waves"], waves(plan)
    reasons = {entry["object"]: entry["reason"] for entry in plan["held"]}
    assert "1 of Deployment/team/segment" in reasons["Node//h0"], reasons


def test_a_pod_with_more_gpus_than_its_node_has_healthy_ones_leaves_with_its_node(
    tmp_path: Path,
) -> None:
    node = plugin_node("n0", 8)
    node["status"]["allocatable"][GPU] = "7"
    objects = [
        namespace("team"),
        *(node, plugin_node("n1", 8), plugin_node("n2", 8)),
        *workload("big", {GPU: "8"}, ["n0"]),
    ]
    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    assert 16 == plan["waves"][0]["freeForKeys"]["before"], waves(plan)
    last = plan["waves"][-1]
    assert [["n0"], 1] == [[entry["name"] for entry in last["nodes"]], last["evictedPods"]]
    (note,) = [text for text in last["notes"] if "evict the only pod" in text]
    assert "Deployment/team/big: none runs" in note, note


def test_shares_stay_where_the_first_device_that_fits_leaves_no_room(tmp_path: Path) -> None:
    shares = {"a": "12000", "b": "24000", "c": "28000", "d": "16000"}
    objects = [
        namespace("team"),
        *(hami_node("h0"), hami_node("h1")),
        *(
            entry
            for name, memory in shares.items()
            for entry in workload(name, {**WHOLE, "nvidia.com/gpumem": memory}, ["h1"])
        ),
    ]
    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    assert ["h0"] == [entry["name"] for entry in plan["waves"][0]["nodes"]], waves(plan)
    assert 0 == plan["waves"][0]["movedPods"]
    assert 2 == plan["waves"][0]["freeForKeys"]["before"]


def test_the_rest_of_such_a_node_is_free(tmp_path: Path) -> None:
    """A pod of one whole GPU leaves the other one of its node of HAMi to shares."""
    objects = [
        *(namespace("team"), namespace("other"), hami_node("h0"), hami_node("h1")),
        *(plugin_node(f"p{number}", 1) for number in range(2)),
        *workload("rank", WHOLE, ["h1"], schedulerName=HAMI),
        *workload("chat", {**WHOLE, "nvidia.com/gpumem": "30000"}, ["h0"], namespace="other"),
    ]
    plan = planned(tmp_path, objects, "--wave-nodes", 1, "--spare-nodes", 0)

    # Of four GPUs of HAMi two are in use.
    assert 4 == plan["waves"][0]["freeForKeys"]["before"], waves(plan)


def test_pods_with_other_devices_than_they_ask_for_are_counted_together(tmp_path: Path) -> None:
    """For each of them all devices and nodes of the cluster were gone through."""
    number = 8
    nodes = [hami_node(f"h{index}") for index in range(number)]
    segments = workload("segment", {GPU: "2"}, [f"h{index}" for index in range(number)])
    for pod in segments[1:]:
        pod["spec"]["schedulerName"] = HAMI
    objects = [namespace("team"), plugin_node("p0"), *nodes, *segments]
    cluster = prepare_cluster(question_of(tmp_path, objects))
    planner = cluster.planner(Policy(wave_nodes=1, keep_free=0))
    with counted_calls() as calls:
        planner.unplaced(cluster.stage(), frozenset())

    placements = calls[Placer.place.__code__]
    assert placements
    assert calls[StageAllocator.occupy.__code__] >= number
    # The devices are gone through to count them, once for each placement, and for each pod those of its node.
    assert calls[StageAllocator.add_pods.__code__] <= 2 * placements
    assert calls[node_of.__code__] <= 4 * number * placements
