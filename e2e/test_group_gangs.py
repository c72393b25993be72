"""Gangs of Koordinator and Volcano as their users wrote them, adopted: the bridge places them whole or not at all.

Two nodes have four GPUs each. Neither of the two schedulers runs. `DRAWBRIDGE_E2E_GANGS=24` has so many gangs come at a
time, in any order, while sidecar and scheduler are killed.
"""

import os
import random
import signal
from collections.abc import Iterator
from typing import Any, Final

import pytest

from e2e import groups, inventory
from e2e.access import Access, Object, stream
from e2e.bridge import Bridge, doubly_held
from e2e.conftest import IMPATIENT
from e2e.custom_kinds import served_kind
from e2e.drawbridge import command_line, install_drawbridge, merged
from e2e.inventory import NVIDIA
from e2e.objects import pod
from e2e.routed import routing_rules
from kube.names import DEFAULT_SCHEDULER_NAME, SCHEDULER_NAME
from testing.documents import api_object

TIMEOUT_S: Final = 60.0
GANGS: Final = int(os.environ.get("DRAWBRIDGE_E2E_GANGS", "4"))
PARTS: Final = ("sidecar", "scheduler")
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

pytestmark = pytest.mark.parametrize("cluster", [OF_ITS_OWN], indirect=True, scope="package")


@pytest.fixture(scope="module")
def gang_bridge(cluster: Access) -> Iterator[Bridge]:
    """The bridge owns the driver, and the pods of both schedulers are adopted."""
    cluster.apply(inventory.device_classes())
    nodes = cluster.add_nodes(
        inventory.kwok_nodes(2, prefix="gang"), lambda node: inventory.nvidia_gpus(node, gpus=4)
    )
    with served_kind(cluster, "PodGroup", "podgroups", "scheduling.volcano.sh", "v1beta1"):
        drawbridge = install_drawbridge(cluster, settings=SETTINGS)
        bridge = Bridge(cluster, drivers=(), scheduler_flags=groups.SCHEDULER_FLAGS)
        bridge.install()
        bridge.ensure()
        owned = command_line(cluster, "bridge", "own", NVIDIA, "--apply")
        assert owned.returncode == 0, owned.stderr
        cluster.wait_until(lambda: routing_rules(cluster), "pods are routed", timeout_s=TIMEOUT_S)
        yield bridge
        command_line(cluster, "bridge", "release", NVIDIA, "--apply")
        bridge.uninstall()
        drawbridge.uninstall()
    cluster.remove_nodes(nodes)


@pytest.fixture
def adopting(cluster: Access, gang_bridge: Bridge) -> Access:
    """The cluster, with no device in use."""
    cluster.wait_until(
        lambda: not cluster.objects("resourceclaims") and not cluster.objects("pods"),
        "the pods of other stories are gone",
        timeout_s=TIMEOUT_S,
    )
    gang_bridge.ensure()
    return cluster


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


def of_gang(document: Object, gang: str) -> Object:
    """Return a pod with a label that selects those of its gang."""
    return {**document, "metadata": {**document["metadata"], "labels": {"gang": gang}}}


def koordinator_gang(name: str) -> list[Object]:
    """Return the pods of a gang of three."""
    return [of_gang(koordinator_pod(f"{name}-{number}", name), name) for number in range(3)]


def volcano_job(name: str) -> list[Object]:
    """Return the objects that Volcano's controller makes for a Job: PodGroup, workers with a GPU each, a launcher.

    The pods do not tell how many are needed: the PodGroup does. The Job names the bridge as its scheduler, since nothing
    tells of a launcher without devices that it goes there.
    """
    group = api_object(
        "PodGroup", name, api_version="scheduling.volcano.sh/v1beta1", spec={"minMember": 4}
    )
    annotations = {"scheduling.k8s.io/group-name": name}
    workers = [
        pod(
            f"{name}-worker-{number}",
            limits={"nvidia.com/gpu": 1},
            annotations=annotations,
            schedulerName=SCHEDULER_NAME,
        )
        for number in range(3)
    ]
    launcher = pod(f"{name}-launcher", annotations=annotations, schedulerName=SCHEDULER_NAME)
    return [group, *(of_gang(document, name) for document in (launcher, *workers))]


def shuffled_gangs() -> tuple[dict[str, int], list[Object]]:
    """Return gangs of both systems: the number of pods that each needs, and all objects."""
    sizes: dict[str, int] = {}
    documents: list[Object] = []
    for number in range(GANGS):
        if number % 2:
            name = f"job-{number}"
            sizes[name] = 4
            documents += volcano_job(name)
        else:
            name = f"ring-{number}"
            sizes[name] = 3
            documents += koordinator_gang(name)
    random.Random(GANGS).shuffle(documents)
    return sizes, documents


@pytest.mark.long
def test_gangs_that_come_in_any_order_run_whole_whoever_is_killed(
    adopting: Access, gang_bridge: Bridge, namespace: str
) -> None:
    sizes, documents = shuffled_gangs()

    def apply(*objects: Object) -> None:
        adopting.kubectl("apply", "-n", namespace, "-f", "-", input=stream(list(objects)))

    def bound() -> dict[str, int]:
        counts = dict.fromkeys(sizes, 0)
        for entry in adopting.objects("pods", namespace):
            counts[entry["metadata"]["labels"]["gang"]] += bool(entry["spec"].get("nodeName"))
        return counts

    def minimum_of(gang: str) -> int:
        selected = adopting.objects("pods", namespace, selector=f"gang={gang}")
        (name,) = {entry["spec"]["schedulingGroup"]["podGroupName"] for entry in selected}
        group = adopting.wait_for(KIND, name, namespace, timeout_s=TIMEOUT_S)
        return int(group["spec"]["schedulingPolicy"]["gang"]["minCount"])

    apply(*documents)
    assert {name: minimum_of(name) for name in sizes} == sizes

    def are_whole() -> list[str]:
        gang_bridge.tend("a")
        counts = {name: count for name, count in bound().items() if name in waiting}
        if any(count not in {0, sizes[name]} for name, count in counts.items()):
            return []
        return [name for name, count in counts.items() if count]

    waiting, number = set(sizes), 0
    while waiting:
        adopting.wait_until(
            are_whole, "a gang runs whole, and none in part", timeout_s=3 * TIMEOUT_S
        )
        whole = are_whole()
        assert [] == doubly_held(adopting)
        waiting -= set(whole)
        for name in whole:
            adopting.kubectl(
                "delete", "pods", "-n", namespace, "-l", f"gang={name}", "--wait=false"
            )
        if number % 3 == 1:
            gang_bridge.child(PARTS[number % 2]).signal(signal.SIGKILL)
        number += 1
