"""`drawbridge verify --before`: changes since the plan that would have a new one hold the nodes of a wave."""

from pathlib import Path
from typing import Any, Final

import pytest

from kube.names import TRANSLATE_LABEL
from testing.documents import api_object, device_class, namespace, resource_quota
from testing.migration import GPU, SHARE, WHOLE, hami_node, plugin_node, running_job, workload
from testing.plan import call, checks_before, document, held_objects, planned

KEY: Final = f"requests.{GPU}"
NVIDIA: Final = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
Objects = list[dict[str, Any]]


def nodes() -> Objects:
    return [
        *(plugin_node(f"gpu-{number}") for number in range(2)),
        *(hami_node(f"hami-{number}") for number in range(2)),
        namespace("team"),
    ]


def mapped() -> dict[str, Any]:
    """The class as prepare.sh leaves it."""
    selector = "device.driver == 'gpu.nvidia.com'"
    return device_class(selector, name="gpu.nvidia.com", extendedResourceName=GPU)


def stateful_set(name: str, node: str, replicas: int = 1) -> Objects:
    owner, *pods = workload(name, WHOLE, [node], kind="StatefulSet")
    owner["spec"]["replicas"] = replicas
    return [owner, *pods]


def cron_job() -> Objects:
    container = {"name": "c", "image": "a", "resources": {"limits": WHOLE}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": template}}}
    return [api_object("CronJob", "night", "team", spec=spec) | {"apiVersion": "batch/v1"}]


def failed_nodes(tmp_path: Path, objects: Objects, wave: int) -> list[str]:
    """The failed checks of nodes before a wave that name a ResourceQuota."""
    return [
        f"{check['object']} {check['message']}"
        for check in checks_before(tmp_path, objects, wave)
        if check["state"] == "failed" and check["object"].startswith("Node//")
        if "ResourceQuota" in check["message"]
    ]


@pytest.mark.parametrize(
    ("now", "hard", "name"),
    [
        (stateful_set("web", "gpu-0"), "0", "StatefulSet/team/web"),
        (stateful_set("web", "gpu-0", replicas=2), "1", "StatefulSet/team/web"),
        (
            [*stateful_set("web", "gpu-0"), *cron_job()],
            "1",
            "CronJob/team/night, StatefulSet/team/web",
        ),
    ],
    ids=["line", "replica", "workload"],
)
def test_next_pods_without_claims_stop_the_waves_of_all_nodes_that_they_may_use(
    tmp_path: Path, now: Objects, hard: str, name: str
) -> None:
    """Only the wave of the node that they ran on failed; the others were switched, and a new plan holds them."""
    web = stateful_set("web", "gpu-0")
    plan = planned(tmp_path, [*nodes(), *web, resource_quota({KEY: "4", NVIDIA: "1"})])
    own = {node["name"]: wave["wave"] for wave in plan["waves"] for node in wave["nodes"]}
    assert own["gpu-1"] != own["gpu-0"]
    cluster = [*nodes(), mapped()]
    before = [*cluster, *web, resource_quota({KEY: "4", NVIDIA: "1"})]
    assert not failed_nodes(tmp_path, before, own["gpu-1"])

    changed = [*cluster, *now, resource_quota({KEY: "4", NVIDIA: hard})]
    (failed,) = failed_nodes(tmp_path, changed, own["gpu-1"])

    text = f"the next pods of {name} may be placed on it, and would have no devices there"
    assert failed.startswith(f"Node//gpu-1 {text}")
    assert f"raise {NVIDIA} of ResourceQuota/team/gpus to " in failed
    call(tmp_path, changed, folder="again")
    again = held_objects(document(tmp_path, "again"))
    assert again["Node//gpu-1"].startswith(text)


# --- keys that no class maps ----------------------------------------------------------------------


def unmapped() -> dict[str, Any]:
    """The class as its driver brings it."""
    return device_class("device.driver == 'gpu.nvidia.com'", name="gpu.nvidia.com")


def shares() -> Objects:
    return [namespace("ml"), *workload("share", SHARE, ["hami-0"], namespace="ml")]


def planned_for_shares(tmp_path: Path, *quotas: dict[str, Any], size: int = 2) -> int:
    """Plan without a workload of whole GPUs; return the wave of the node gpu-1."""
    plan = planned(tmp_path, [*nodes(), *shares(), *quotas], "--wave-nodes", size)
    assert {} == plan["mappedClasses"]
    (wave,) = [
        wave["wave"] for wave in plan["waves"] if "gpu-1" in {n["name"] for n in wave["nodes"]}
    ]
    return int(wave)


def failed_for_keys(tmp_path: Path, objects: Objects, wave: int) -> dict[str, str]:
    """Return node to message of the failed checks before a wave that name next pods."""
    return {
        check["object"]: check["message"]
        for check in checks_before(tmp_path, objects, wave)
        if check["state"] == "failed" and check["message"].startswith("the next pods of ")
    }


@pytest.mark.parametrize(
    ("now", "name"),
    [
        (stateful_set("web", "gpu-0"), "StatefulSet/team/web"),
        (cron_job(), "CronJob/team/night"),
    ],
    ids=["runs", "starts"],
)
def test_a_workload_that_came_with_a_key_that_no_class_maps_stops_the_wave_of_all_its_nodes(
    tmp_path: Path, now: Objects, name: str
) -> None:
    """The wave switched all of them, and the next pods found no devices."""
    wave = planned_for_shares(tmp_path)
    cluster = [*nodes(), *shares(), unmapped()]
    assert not failed_for_keys(tmp_path, cluster, wave)

    failed = failed_for_keys(tmp_path, [*cluster, *now], wave)

    text = (
        f"the next pods of {name} need its devices by {GPU}, which no DeviceClass maps, neither today nor in this "
        "plan, so they would find none once it is switched: plan again from a new snapshot"
    )
    assert dict.fromkeys(["Node//gpu-0", "Node//gpu-1"], text) == failed
    assert not failed_for_keys(tmp_path, [*cluster[:-1], mapped(), *now], wave)
    call(tmp_path, [*cluster, *now], folder="again")
    assert {GPU: "gpu.nvidia.com"} == document(tmp_path, "again")["mappedClasses"]


@pytest.mark.parametrize("now", [stateful_set("web", "gpu-0"), cron_job()])
def test_lines_count_for_a_key_that_no_class_maps_as_in_a_new_plan(
    tmp_path: Path, now: Objects
) -> None:
    """The lines were compared with the names of the plan alone, and a new one held these nodes."""
    quota = resource_quota({KEY: "4", NVIDIA: "0"})
    wave = planned_for_shares(tmp_path, quota)
    changed = [*nodes(), *shares(), unmapped(), quota, *now]

    failed = failed_nodes(tmp_path, changed, wave)

    assert ["Node//gpu-0", "Node//gpu-1"] == [text.partition(" ")[0] for text in failed]
    call(tmp_path, changed, folder="again")
    assert {"Node//gpu-0", "Node//gpu-1"} <= held_objects(document(tmp_path, "again")).keys()


def finite_job(node: str) -> Objects:
    job, pod = running_job("last", WHOLE, [node])
    job["spec"]["completions"] = 1
    job["status"] = {"active": 1}
    return [job, pod]


@pytest.mark.parametrize(
    ("now", "fails"),
    [
        (stateful_set("web", "gpu-1"), True),
        (stateful_set("web", "gpu-0"), False),
        (cron_job(), False),
        (finite_job("gpu-1"), False),
        ([*stateful_set("web", "gpu-1"), namespace("team", {TRANSLATE_LABEL: "true"})], False),
    ],
    ids=["on it", "elsewhere", "starts elsewhere", "ends", "opted in"],
)
def test_a_key_that_no_class_maps_stops_no_wave_that_leaves_its_pods_devices(
    tmp_path: Path, now: Objects, fails: bool
) -> None:
    wave = planned_for_shares(tmp_path, size=1)
    cluster = [*nodes()[: -1 if now[-1]["kind"] == "Namespace" else None], *shares(), unmapped()]

    failed = failed_for_keys(tmp_path, [*cluster, *now], wave)

    assert (["Node//gpu-1"] if fails else []) == list(failed)
