"""The key `trace` of `drawbridge simulate -o json`: the derivation of the first placements."""

import json
from typing import Any

from testing.simulated_cluster import STATE, claim, holding, node, simulate, slice_of, using

DRIVER = "gpu.example.com"


def trace(*given: dict[str, Any], **call: Any) -> list[dict[str, Any]]:
    options = (*call.pop("options", ()), "-o", "json")
    entries: list[dict[str, Any]] = json.loads(simulate(*given, options=options, **call).stdout)[
        "trace"
    ]
    return entries


def test_a_placement_names_its_node_and_devices() -> None:
    (entry,) = trace(claim("wanted"))

    assert ("ResourceClaim team/wanted", "FirstFit") == (entry["object"], entry["strategy"])
    assert (2, 2, 2) == (entry["before"], entry["eligible"], entry["feasible"])
    assert ("node-a", [f"{DRIVER}/node-a/gpu-0"]) == (entry["node"], entry["devices"])
    (group,) = entry["nodes"]
    assert (["node-a", "node-b"], True, []) == (group["nodes"], group["fits"], group["stages"])


def test_devices_behind_a_reason_with_the_counts_around_it() -> None:
    state = (*STATE[:4], holding("held", "gpu-0", "node-a"))

    (entry,) = trace(claim("wanted"), snapshot=state)

    (stage,) = next(group for group in entry["nodes"] if group["example"] == "node-a")["stages"]
    assert ("gpu", "allocated", 2, 1) == (
        *(stage["request"], stage["code"]),
        *(stage["before"], stage["after"]),
    )
    assert [f"{DRIVER}/node-a/gpu-0"] == stage["devices"]
    # The search takes the other device all the same.
    assert [f"{DRIVER}/node-a/gpu-1"] == entry["devices"]


def test_nodes_that_are_not_eligible_are_counted_with_their_reason() -> None:
    pod = using("web", "wanted", nodeSelector={"kubernetes.io/hostname": "node-z"})

    (entry,) = trace(pod, claim("wanted"))

    assert (2, 0, 0, None) == (
        *(entry["before"], entry["eligible"], entry["feasible"]),
        entry["node"],
    )
    (excluded,) = entry["excluded"]
    assert ["node-a", "node-b"] == excluded["nodes"]
    assert "nodeSelector requires kubernetes.io/hostname=node-z" in excluded["message"]


def test_scores_and_order_are_those_of_the_strategy() -> None:
    state = (*STATE, holding("held", "gpu-0", "node-b"))

    (entry,) = trace(claim("wanted"), snapshot=state, options=("--strategy", "CompactFirst"))

    assert "CompactFirst" == entry["strategy"]
    scores = {group["example"]: group["score"] for group in entry["nodes"]}
    assert scores["node-b"] > scores["node-a"]
    assert "node-b" == entry["node"] == entry["nodes"][0]["example"]
    assert {f"{DRIVER}/node-b/gpu-0", f"{DRIVER}/node-b/gpu-1"} == set(entry["nodes"][0]["order"])


def test_each_placement_sees_what_those_before_it_took() -> None:
    state = (STATE[0], node("node-a"), slice_of("node-a"))

    entries = trace(claim("one"), claim("two"), claim("three"), snapshot=state)

    counts = [
        sum(stage["before"] - stage["after"] for stage in entry["nodes"][0]["stages"])
        for entry in entries
    ]
    assert [0, 1, 2] == counts
    assert [1, 1, 0] == [entry["feasible"] for entry in entries]


def test_only_the_first_placements_are_traced() -> None:
    assert 10 == len(trace(*(claim(f"claim-{number}") for number in range(12))))
