"""`drawbridge verify --before`: pods that had a node when the plan was made, and wait now, have to get devices."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.documents import namespace, node
from testing.migration import (
    GPU,
    SHARE,
    daemon_set,
    hami_node,
    resource_slice,
    running_job,
    workload,
)
from testing.plan import checks_before, document, failed_before, planned

Objects = Sequence[Mapping[str, Any]]
HAMI: Final = "hami-core-gpu.project-hami.io"
DRIVER: Final = daemon_set(
    "hami-dra-driver",
    nodeSelector={"drawbridge.internal/dra-driver": HAMI},
    volumes=[{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}],
)
ALL_OF_A_NODE: Final = {GPU: "2", "nvidia.com/gpumem": "40960"}
FLAGS: Final = ("--wave-nodes", 1, "--keep-free", 0, "--spare-nodes", 0)
WAITS: Final = (
    "1 pod has no devices: 1 of Deployment/large/big; among those that wait now, 1 of Deployment/large/big had a node when the "
    "plan was made: see that they get devices first, or plan again from a new snapshot"
)


def cluster(*more: Mapping[str, Any], pools: Mapping[int, str] = {1: "a"}) -> list[Any]:
    """The first of three nodes has a pod, and the last one none."""
    nodes = [hami_node(f"hami-{number}") for number in range(3)]
    for number, pool in pools.items():
        nodes[number]["metadata"]["labels"]["pool"] = pool
    web = workload("web", SHARE, ["hami-0"])
    return [*nodes, namespace("team"), namespace("large"), *web, DRIVER, *more]


def big(node: str = "") -> list[dict[str, Any]]:
    """A Deployment with a pod that needs all devices of a node of its pool; without a node it waits."""
    owner, pod = workload(
        "big", ALL_OF_A_NODE, [node], namespace="large", nodeSelector={"pool": "a"}
    )
    pod["status"] = {"phase": "Running" if node else "Pending"}
    return [owner, pod]


LATE: Final = workload("late", SHARE, ["hami-1"], namespace="large")


@pytest.mark.parametrize(
    ("before", "stops"),
    [(big("hami-1"), True), ([*big(), *LATE], False)],
    ids=["it ran when the plan was made", "it waited already"],
)
def test_a_pod_that_ran_when_the_plan_was_made_needs_devices(
    tmp_path: Path, before: Objects, *, stops: bool
) -> None:
    """It was left out of the count, and a wave began though the plan had counted on its devices."""
    plan = planned(tmp_path, cluster(*before), *FLAGS)
    assert ["hami-2"] == names(plan["waves"][0])

    failed = failed_before(tmp_path, cluster(*big(), *LATE))

    assert (["Wave//1"] if stops else []) == [*failed]
    assert all(text.endswith(WAITS) and text.startswith("with hami-2") for text in failed.values())


def test_a_pod_that_waits_is_no_reason_against_a_drain(tmp_path: Path) -> None:
    """It was named as one to get devices first, though those of the drained node lack them without it, too."""
    planned(tmp_path, cluster(*big("hami-1")), *FLAGS)
    other = workload("other", ALL_OF_A_NODE, ["hami-2"])

    failed = failed_before(tmp_path, cluster(*big(), *LATE, *other))

    text = "while draining hami-2, 1 pod has no devices: 1 of Deployment/team/other: plan again from a new snapshot"
    assert text == failed["Wave//1"]


def test_a_wave_that_has_devices_for_it_may_begin(tmp_path: Path) -> None:
    """The only switched node is out of order, so the pod waits for the next one, and has none while that is drained."""
    nodes = [hami_node(f"hami-{number}") for number in range(3)]
    for entry in nodes[1:]:
        entry["metadata"]["labels"]["pool"] = "a"
    rest = [*running_job("train", SHARE, ["hami-0"]), DRIVER]
    spaces = [namespace("team"), namespace("large")]
    first, second, *_ = planned(tmp_path, [*nodes, *spaces, *big("hami-1"), *rest], *FLAGS)["waves"]
    assert (["hami-2"], ["hami-1"]) == (names(first), names(second))
    assert ["large", "team"] == first["namespaces"]
    switched = node("hami-2", {}, dict(first["nodes"][0]["labels"]), {})
    switched["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    opted_in = [
        namespace(name, {"drawbridge.internal/translate": "true"}) for name in ("team", "large")
    ]
    published = resource_slice("hami-2", HAMI, first["nodes"][0]["uuids"])

    now = [*nodes[:2], switched, published, *opted_in, *big(), *rest]

    assert {} == failed_before(tmp_path, now, 2)


def names(wave: Mapping[str, Any]) -> list[str]:
    """Return the nodes of a wave."""
    return [entry["name"] for entry in wave["nodes"]]


def test_a_plan_of_an_earlier_version_leaves_pods_out_that_wait(tmp_path: Path) -> None:
    planned(tmp_path, cluster(*big("hami-1")), *FLAGS)
    plan = document(tmp_path)
    del plan["scheduledPods"]
    (tmp_path / "plan" / "plan.yaml").write_text(dump_yaml([plan]))

    assert {} == failed_before(tmp_path, cluster(*big(), *LATE))


def test_as_many_pods_as_ran_are_counted(tmp_path: Path) -> None:
    """One more than the plan saw waits, as after a scale-up."""
    planned(tmp_path, cluster(*big("hami-1")), *FLAGS)
    owner, first, second = workload(
        "big", ALL_OF_A_NODE, ["hami-1", ""], namespace="large", nodeSelector={"pool": "a"}
    )
    second["status"] = {"phase": "Pending"}

    checks = checks_before(tmp_path, cluster(owner, first, second))

    assert "ok" in [check["state"] for check in checks if check["object"] == "Wave//1"]


def test_pods_that_come_with_work_or_with_nodes_are_not_counted(tmp_path: Path) -> None:
    """The next pod of a Job may wait for devices that others have by then."""
    job = running_job("train", SHARE, ["hami-0"])
    probe = workload("probe", SHARE, ["hami-0"], kind="DaemonSet")
    idle = workload("idle", SHARE, [])
    plain = workload("plain", {"cpu": "1"}, ["hami-0"])

    plan = planned(tmp_path, cluster(*job, *probe, *idle, *plain, *big("hami-1")), *FLAGS)

    assert {
        "Deployment/large/big": 1,
        "Deployment/team/idle": 0,
        "Deployment/team/web": 1,
    } == plan["scheduledPods"]
