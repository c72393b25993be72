"""Gangs of Koordinator and Volcano as their users wrote them, adopted: the bridge places them whole or not at all.

Two nodes have four GPUs each. Neither of the two schedulers runs.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from e2e import groups, inventory
from e2e.access import Access, Object, stream
from e2e.bridge import Bridge, doubly_held
from e2e.conftest import IMPATIENT
from e2e.drawbridge import command_line, install_drawbridge, merged
from e2e.inventory import NVIDIA
from e2e.objects import pod
from e2e.routed import routing_rules
from kube.names import DEFAULT_SCHEDULER_NAME, SCHEDULER_NAME

TIMEOUT_S: Final = 60.0
OF_ITS_OWN: Final[dict[str, Any]] = {**groups.CLUSTER, "client_qps": 580}
KOORDINATOR: Final = "koord-scheduler"
VOLCANO: Final = "volcano"
KIND: Final = "podgroups.scheduling.k8s.io"
SETTINGS: Final = merged(
    IMPATIENT,
    {
        "translation": {
            "adoptSchedulers": {
                KOORDINATOR: DEFAULT_SCHEDULER_NAME,
                VOLCANO: DEFAULT_SCHEDULER_NAME,
            }
        }
    },
)

pytestmark = pytest.mark.parametrize("cluster", [OF_ITS_OWN], indirect=True, scope="session")


@pytest.fixture(scope="module")
def adopting(cluster: Access) -> Iterator[Access]:
    """The bridge owns the driver, and the pods of both schedulers are adopted."""
    cluster.apply(inventory.device_classes())
    nodes = cluster.add_nodes(
        inventory.kwok_nodes(2, prefix="gang"), lambda node: inventory.nvidia_gpus(node, gpus=4)
    )
    drawbridge = install_drawbridge(cluster, settings=SETTINGS)
    bridge = Bridge(cluster, drivers=(), scheduler_flags=groups.SCHEDULER_FLAGS)
    bridge.install()
    bridge.ensure()
    owned = command_line(cluster, "bridge", "own", NVIDIA, "--apply")
    assert owned.returncode == 0, owned.stderr
    cluster.wait_until(lambda: routing_rules(cluster), "pods are routed", timeout_s=TIMEOUT_S)
    yield cluster
    command_line(cluster, "bridge", "release", NVIDIA, "--apply")
    bridge.uninstall()
    drawbridge.uninstall()
    cluster.remove_nodes(nodes)


def koordinator_pod(name: str, gang: str) -> Object:
    """Return a pod of a gang of three, with two whole GPUs."""
    annotations = {
        "gang.scheduling.koordinator.sh/name": gang,
        "gang.scheduling.koordinator.sh/min-available": "3",
    }
    limits = {"koordinator.sh/gpu-core": 200, "koordinator.sh/gpu-memory-ratio": 200}
    return pod(name, limits=limits, annotations=annotations, schedulerName=KOORDINATOR)


def volcano_pod(name: str, group: str) -> Object:
    """Return a pod as Volcano's controller makes those of a Job with three tasks, with a whole GPU."""
    annotations = {
        "scheduling.k8s.io/group-name": group,
        "scheduling.volcano.sh/group-min-member": "3",
    }
    limits = {"nvidia.com/gpu": 1}
    return pod(name, limits=limits, annotations=annotations, schedulerName=VOLCANO)


def test_gangs_of_two_systems_run_whole_one_after_the_other(
    adopting: Access, namespace: str
) -> None:
    def apply(*documents: Object) -> None:
        adopting.kubectl("apply", "-n", namespace, "-f", "-", input=stream(list(documents)))

    def bound(prefix: str) -> int:
        pods = adopting.objects("pods", namespace)
        return sum(
            bool(entry["spec"].get("nodeName"))
            for entry in pods
            if entry["metadata"]["name"].startswith(prefix)
        )

    ring = [f"ring-{number}" for number in range(3)]
    apply(*(koordinator_pod(name, "ring") for name in ring))
    for name in ring:
        running = adopting.wait_running(name, namespace, timeout_s=TIMEOUT_S)
        assert running["spec"]["schedulerName"] == SCHEDULER_NAME

    # Two GPUs are left for three pods.
    names = [f"job-{number}" for number in range(3)]
    apply(*(volcano_pod(name, "job") for name in names))
    group = adopting.get("pods", names[0], namespace)["spec"]["schedulingGroup"]["podGroupName"]

    def says_why(object_: Object) -> bool:
        conditions = object_.get("status", {}).get("conditions", ())
        return any("2 of 3 pods fit" in entry["message"] for entry in conditions)

    adopting.wait_for(KIND, group, namespace, until=says_why, timeout_s=TIMEOUT_S)
    assert bound("job") == 0
    assert bound("ring") == 3

    adopting.kubectl("delete", "pods", "-n", namespace, "--wait=false", *ring)
    for name in names:
        adopting.wait_running(name, namespace, timeout_s=TIMEOUT_S)
    assert [] == doubly_held(adopting)
