"""`drawbridge plan` with devices for all pods of a stopped training, and nodes that its pods would use."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import api_object, namespace
from testing.migration import budget, hami_node, workload
from testing.plan import Objects, held_objects, planned, waves

FULL: Final = {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "40960"}
"""All of a node."""
VERSION: Final = "kubeflow.org/v1"
OPTIONS: Final = ("--keep-free", 0, "--spare-nodes", 0)


def training(
    name: str, nodes: Sequence[str] = (), *, pods: int = 1, own: str = "team"
) -> list[dict[str, Any]]:
    """A training with a pod on each of some nodes; without any it is suspended."""
    container = {"name": "c", "image": "a", "resources": {"limits": dict(FULL)}}
    worker = {"replicas": len(nodes) or pods, "template": {"spec": {"containers": [container]}}}
    spec = {"pytorchReplicaSpecs": {"Worker": worker}, "runPolicy": {"suspend": not nodes}}
    members = workload(name, FULL, nodes, namespace=own, kind="PyTorchJob")[1:]
    for pod in members:
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = VERSION
    return [api_object("PyTorchJob", name, own, api_version=VERSION, spec=spec), *members]


def cluster(nodes: int, *objects: Objects) -> Objects:
    """Nodes of HAMi, the first with a training that holds it."""
    names = [f"hami-{number}" for number in range(nodes)]
    return [
        *map(hami_node, names),
        namespace("team"),
        namespace("ml"),
        *training("beta", names[:1]),
        *(entry for own in objects for entry in own),
    ]


@pytest.mark.parametrize(("pods", "switched"), [(1, 1), (2, 2), (3, 3)])
def test_nodes_for_all_pods_of_a_stopped_training_are_switched(
    tmp_path: Path, pods: int, switched: int
) -> None:
    """One node was, and the training, to be resumed after that wave, could never start."""
    plan = planned(tmp_path, cluster(5, training("net", pods=pods, own="ml")), *OPTIONS)

    assert switched == sum(len(nodes) for nodes, _ in waves(plan))
    assert "ml" in {name for _, names in waves(plan) for name in names}
    (entry,) = plan["stoppedWorkloads"]
    assert entry["fix"] == f"resume it, or scale it up, after wave {len(plan['waves'])}"


def test_nodes_for_each_of_several_stopped_trainings_are_switched(tmp_path: Path) -> None:
    """Those that find no devices beside each other start one after the other."""
    trainings = [training(name, pods=3, own="ml") for name in ("one", "two")]

    plan = planned(tmp_path, cluster(5, *trainings), *OPTIONS)

    assert 3 <= sum(len(nodes) for nodes, _ in waves(plan))
    assert not any("at a time" in entry["fix"] for entry in plan["stoppedWorkloads"])


def test_waves_take_nothing_from_a_stopped_training_that_cannot_start_today(
    tmp_path: Path,
) -> None:
    plan = planned(tmp_path, cluster(3, training("net", pods=3, own="ml")), *OPTIONS)

    (entry,) = plan["stoppedWorkloads"]
    assert "at a time" not in entry["fix"]


def test_a_stopped_training_that_waves_leave_fewer_devices_says_so(tmp_path: Path) -> None:
    """It was to be resumed after the last wave, and would have waited for devices for ever."""
    held = [*workload("web", {"cpu": "1"}, ["hami-3"]), budget(maxUnavailable=0)]

    plan = planned(tmp_path, cluster(4, training("net", pods=3, own="ml"), held), *OPTIONS)

    assert "never allows the eviction" in held_objects(plan)["Node//hami-3"]
    (entry,) = plan["stoppedWorkloads"]
    last = len(plan["waves"])
    assert entry["fix"] == (
        f"resume it, or scale it up, after wave {last}; free devices that its pods may have are enough for 2 of its 3 pods at "
        "a time then, and for 3 today: free more first, or solve what holds nodes, and plan again from a new snapshot"
    )
    assert "earliestWave" not in entry


def test_a_held_node_names_stopped_trainings_that_may_need_it(tmp_path: Path) -> None:
    """It named those that run alone, on nodes of their own."""
    later = training("later", pods=2)

    plan = planned(tmp_path, cluster(4, training("net", own="ml"), later), *OPTIONS)

    reasons = {
        name: reason
        for name, reason in held_objects(plan).items()
        if name.startswith("Node//") and name != "Node//hami-0"
    }
    assert 2 == len(reasons)
    want = (
        "no pod with claims would use its devices, and pods of PyTorchJob/team/beta keep device keys and would lack them once "
        "they lose their own nodes, which stay as they are; so would the next pods of PyTorchJob/team/later when started"
    )
    assert {want} == set(reasons.values())
