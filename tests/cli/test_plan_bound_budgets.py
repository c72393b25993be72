"""`drawbridge plan` and its checks: pods that wait for their node count together under a PodDisruptionBudget.

The first is evicted and waits for the cordoned node, so that the budget never lets the next one go: a drain waited for half an
hour, with half of the workload down.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import api_object, namespace
from testing.migration import GPU, budget, plugin_node, workload
from testing.plan import planned

NODES: Final = ("gpu-0", "gpu-1", "gpu-2")
LOCAL: Final[Mapping[str, Any]] = {"local": {"path": "/disk"}}
HELD: Final = (
    "PodDisruptionBudget team/budget lets 1 of 2 pods go that only gpu-0 takes (by a volume or node selector), and evicted ones "
    "wait until that is back: "
)
UNTIL: Final = "until gpu-0 is switched"
LET_GO: Final = "no PodDisruptionBudget holds its drain"
ZONE: Final = "topology.kubernetes.io/zone"


def pods_with_volumes(
    nodes: Sequence[str], volume: Mapping[str, Any] = LOCAL, keys: Mapping[str, str] = {GPU: "1"}
) -> list[dict[str, Any]]:
    """A StatefulSet with a pod on each of these nodes, each with a volume."""
    owner, *pods = workload("web", dict(keys), nodes, kind="StatefulSet")
    objects = [owner, *pods]
    for number, pod in enumerate(pods):
        claim = {"persistentVolumeClaim": {"claimName": f"data-{number}"}, "name": "data"}
        pod["spec"] = {**pod["spec"], "volumes": [claim]}
        name = f"disk-{number}"
        objects += [
            api_object(
                "PersistentVolumeClaim", f"data-{number}", "team", spec={"volumeName": name}
            ),
            api_object("PersistentVolume", name, spec=dict(volume)),
        ]
    return objects


def cluster(*objects: dict[str, Any], zones: Sequence[str] = "aaa") -> list[dict[str, Any]]:
    """Three nodes with a device plugin, and these objects."""
    nodes = [plugin_node(name) for name in NODES]
    for node, zone in zip(nodes, zones, strict=True):
        node["metadata"]["labels"][ZONE] = zone
    return [*nodes, namespace("team"), *objects]


def asked(tmp_path: Path, objects: Sequence[Mapping[str, Any]], *words: object) -> tuple[int, str]:
    """Return the exit status and the words of `drawbridge verify` about a cluster."""
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(objects))
    result = drawbridge("verify", "--snapshot", file, *words)
    return result.exit_code, " ".join(result.stdout.split())


RAISE: Final = f"raise maxUnavailable to 2 {UNTIL}, or scale down before"


@pytest.mark.parametrize(
    ("nodes", "limits", "expected"),
    [
        (["gpu-0"] * 2, {"maxUnavailable": 1}, [(HELD + "maxUnavailable 1 of its 2 pods", RAISE)]),
        (
            ["gpu-0"] * 2,
            {"maxUnavailable": "50%"},
            [(HELD + "maxUnavailable 50% of its 2 pods", RAISE)],
        ),
        (
            *(["gpu-0", "gpu-0", "gpu-1"], {"minAvailable": 2}),
            [(HELD + "minAvailable 2 of its 3 pods", f"lower minAvailable to 1 {UNTIL}")],
        ),
        (["gpu-0"] * 2, {"maxUnavailable": 2}, []),
        (["gpu-0", "gpu-0", "gpu-1"], {"minAvailable": 1}, []),
        (["gpu-0", "gpu-1"], {"maxUnavailable": 1}, []),
        (["gpu-0"] * 2, {"maxUnavailable": 1, "namespace": "other"}, []),
    ],
    ids=[
        *("one of two", "half of two", "two of three have to run"),
        *("a budget of both", "one of three has to run", "one on each node", "another namespace"),
    ],
)
@pytest.mark.parametrize("keys", [{GPU: "1"}, {"cpu": "1"}], ids=["with devices", "without"])
def test_a_node_is_held_whose_bound_pods_a_budget_lets_go_in_part(
    tmp_path: Path,
    nodes: list[str],
    limits: dict[str, Any],
    expected: list[tuple[str, str]],
    keys: dict[str, str],
) -> None:
    objects = cluster(*pods_with_volumes(nodes, keys=keys), budget(**limits))

    plan = planned(tmp_path, objects, "--wave-nodes", 2)
    stops = drawbridge("assess", "--snapshot", tmp_path / "cluster.yaml", "-o", "json").stdout
    status, text = asked(tmp_path, objects, "--node", "gpu-0", "--budgets")

    own = [
        entry for entry in plan["held"] if entry["object"] in {f"Node//{name}" for name in NODES}
    ]
    assert ["Node//gpu-0"] * len(expected) == [entry["object"] for entry in own]
    assert expected == [(entry["reason"], entry["fix"]) for entry in own]
    own_stops = json.loads(stops)["drainStops"]
    assert expected == [(stop["reason"], stop["fix"]) for stop in own_stops]
    assert len(expected) == status
    assert all(reason in text for reason in [reason for reason, _ in expected] or [LET_GO])


def test_a_pod_without_a_node_does_not_stand_in_for_bound_ones(tmp_path: Path) -> None:
    """It may wait for ever, so the limit has to allow none of the others."""
    *pods, last = workload("web", {GPU: "1"}, ["gpu-0", "gpu-0", ""])
    for pod in pods[1:]:
        pod["spec"] = {**pod["spec"], "nodeSelector": {"kubernetes.io/hostname": "gpu-0"}}
    last["status"] = {"phase": "Pending"}
    objects = cluster(*pods, last, budget(minAvailable=2))
    for document in objects[: len(NODES)]:
        name = document["metadata"]["name"]
        document["metadata"]["labels"]["kubernetes.io/hostname"] = name

    held = {entry["object"]: entry for entry in planned(tmp_path, objects)["held"]}

    assert f"{HELD}minAvailable 2 of its 3 pods" == held["Node//gpu-0"]["reason"]
    assert f"lower minAvailable to 0 {UNTIL}" == held["Node//gpu-0"]["fix"]


def test_a_wave_does_not_begin_at_a_budget_that_has_come_since(tmp_path: Path) -> None:
    pods = pods_with_volumes(["gpu-0"] * 2)
    plan = planned(tmp_path, cluster(*pods), "--wave-nodes", 1)
    number = next(wave["wave"] for wave in plan["waves"] if wave["nodes"][0]["name"] == "gpu-0")
    wave = tmp_path / "plan" / f"wave-{number}"

    _, text = asked(tmp_path, cluster(*pods), "--wave", wave, "--before")
    assert HELD not in text
    status, text = asked(
        tmp_path, cluster(*pods, budget(maxUnavailable=1)), "--wave", wave, "--before"
    )

    assert (1, True) == (status, f"{HELD}maxUnavailable 1 of its 2 pods" in text)


def test_a_volume_of_a_zone_with_one_node_for_its_pods_counts(tmp_path: Path) -> None:
    """Another node of the zone has no devices."""
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}
    volume = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
    cpu_node = api_object("Node", "cpu", status={"allocatable": {"cpu": "8"}})
    cpu_node["metadata"]["labels"] = {ZONE: "a"}
    pods = pods_with_volumes(["gpu-0"] * 2, volume)
    objects = cluster(*pods, cpu_node, zones="abb")

    plan = planned(tmp_path, [*objects, budget(maxUnavailable=1)], "--wave-nodes", 1)

    (reason,) = [entry["reason"] for entry in plan["held"] if entry["object"] == "Node//gpu-0"]
    assert f"{HELD}maxUnavailable 1 of its 2 pods" == reason


HOST: Final = "kubernetes.io/hostname"


def required(key: str, *values: str) -> dict[str, Any]:
    """The affinity of a pod to the nodes with a label."""
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [*values]}]}
    selector = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


@pytest.mark.parametrize(
    ("spec", "is_held"),
    [
        ({"nodeSelector": {HOST: "gpu-0"}}, True),
        ({"affinity": required(HOST, "gpu-0")}, True),
        ({"nodeSelector": {ZONE: "a"}}, True),
        ({"nodeSelector": {ZONE: "a"}, "affinity": required(ZONE, "a", "b")}, True),
        ({"affinity": required(ZONE, "a", "b")}, False),
        ({"nodeSelector": {HOST: "gpu-0"}, "restartPolicy": "Never"}, False),
        ({}, False),
    ],
    ids=[
        *("a name", "an affinity to a name", "the only node of a zone", "of two zones and one"),
        *("of two zones", "to its end", "any node"),
    ],
)
def test_pods_that_select_their_node_count_as_well(
    tmp_path: Path, spec: dict[str, Any], *, is_held: bool
) -> None:
    pods = workload("web", {"cpu": "1"}, ["gpu-0"] * 2, **spec)
    objects = cluster(*pods, budget(maxUnavailable=1), zones="abb")
    for node in objects[: len(NODES)]:
        node["metadata"]["labels"][HOST] = node["metadata"]["name"]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)
    _, text = asked(tmp_path, objects, "--node", "gpu-0", "--budgets")

    held = [entry["reason"] for entry in plan["held"] if entry["object"] == "Node//gpu-0"]
    reason = f"{HELD}maxUnavailable 1 of its 2 pods"
    assert [reason] * is_held == held
    assert is_held is (reason in text)


UNREADY: Final = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}


@pytest.mark.parametrize(
    ("unready", "allowed", "text"),
    [
        ([], 2, LET_GO),
        (["web-2"], 1, f"{HELD}disruptionsAllowed 1 now, maxUnavailable 2 of its 3 pods"),
        (["web-0"], 1, LET_GO),
    ],
    ids=["all are ready", "one elsewhere is not", "one of them is not"],
)
def test_a_budget_that_lets_bound_pods_go_in_part_now_is_waited_for(
    tmp_path: Path, unready: list[str], allowed: int, text: str
) -> None:
    pods = pods_with_volumes(["gpu-0", "gpu-0", "gpu-1"])
    for pod in pods:
        if pod["metadata"]["name"] in unready:
            pod["status"] = UNREADY
    own = budget(maxUnavailable=2)
    own["status"] = {"disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1}

    status, answer = asked(tmp_path, cluster(*pods, own), "--node", "gpu-0", "--budgets")

    assert (int(text != LET_GO), True) == (status, text in answer)
