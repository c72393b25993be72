"""`drawbridge verify --before`: changes since the plan that would have a new one hold the nodes of a wave."""

from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import api_object, device_class, namespace, resource_quota
from testing.migration import GPU, WHOLE, hami_node, plugin_node, workload
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
