"""Pods in order through scheduler, plugin and sidecar allocate the devices that `drawbridge replay` says.

`DRAWBRIDGE_E2E_TRACE="FOLDER 200 1500"` takes so many nodes and pods of the openb trace, whose files are in
the folder; see `bench.openb`. Without it nodes and pods are drawn that have the trace's sizes.
"""

import os
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from allocator.replay.csv_pods import CsvFault, read_pods
from allocator.replay.replay import replay
from allocator.replay.results import StrategyResult
from allocator.replay.workload import Order
from bench import openb
from e2e import inventory
from e2e.access import Access, Object
from e2e.bridge import Bridge, bridged, doubly_held, is_waiting
from e2e.objects import pod
from kube.names import STRATEGY_ANNOTATION
from kube.quantity import Quantity
from testing import documents

STRATEGY: Final = "FragmentationAware"
NODES, PODS = 48, 260
DEMAND: Final = 1.3
POINTS: Final = 2.0
"""The most by which the shares of allocated GPUs differ, in percent of all GPUs."""
OF_ITS_OWN: Final[dict[str, Any]] = {"client_qps": 530}
"""The parameters of the cluster, since FragmentationAware learns the usual pods from all that are there."""
LABEL: Final = {"story": "trace"}
TIMEOUT_S: Final = 600.0
TOGETHER: Final = 20
"""Pods that are created before all of them are decided about, so that a busy machine keeps the order."""
SEED: Final = 20

_SIZES: Final = ((64_000, 393_216, 8), (104_000, 393_216, 2), (32_000, 262_144, 1))
"""CPU, memory and GPUs of nodes like the trace's, with less CPU, so that it is short here as well."""
_KINDS: Final = (
    (4_000, 15_258, 1, 460),
    (8_000, 30_517, 1, 1000),
    (11_900, 51_200, 1, 1000),
    (6_000, 12_288, 1, 810),
    (2_000, 8_192, 1, 250),
    (18_700, 73_728, 1, 1000),
    (24_000, 65_536, 2, 1000),
)
"""CPU, memory, GPUs and thousandths of each of frequent pods, the most frequent first. None is so large that
one of them decides whether the shares agree."""


def rows() -> tuple[list[openb.Row], list[openb.Row]]:
    """Return nodes, and pods with devices in the order of their arrival."""
    folder, *counts = os.environ.get("DRAWBRIDGE_E2E_TRACE", "").split()[:3] or [""]
    if folder:
        node_count, pod_count = map(int, counts)
        every_node = openb.read_rows(Path(folder) / openb.NODES)
        nodes = every_node[:: len(every_node) // node_count][:node_count]
        pods = openb.read_rows(Path(folder) / "openb_pod_list_default.csv.gz")
        total = 1000 * sum(int(row["gpu"]) for row in nodes)
        arriving = openb.arrivals([row for row in pods if int(row["num_gpu"])], total, SEED, DEMAND)
        return nodes, arriving[:pod_count]
    chance = random.Random(SEED)
    nodes = [
        {"sn": f"{number}", "cpu_milli": str(cpu), "memory_mib": str(memory), "gpu": str(gpus)}
        for number in range(NODES)
        for cpu, memory, gpus in [_SIZES[number % 3]]
    ]
    kinds = chance.choices(_KINDS, weights=range(len(_KINDS), 0, -1), k=PODS)
    pods = [
        {
            "name": f"{number}",
            "cpu_milli": str(cpu),
            "memory_mib": str(memory),
            "num_gpu": str(gpus),
            "gpu_milli": str(milli),
        }
        for number, (cpu, memory, gpus, milli) in enumerate(kinds)
    ]
    return nodes, pods


def as_nodes(nodes: Sequence[openb.Row]) -> list[openb.Row]:
    return [{"model": "any", **row, "sn": f"trace-{row['sn']}"} for row in nodes]


@pytest.fixture
def trace(cluster: Access) -> Iterator[tuple[list[openb.Row], list[openb.Row]]]:
    """The nodes with their devices, and pods in order."""
    nodes, pods = rows()
    nodes = as_nodes(nodes)
    device_class, *pieces = openb.snapshot(nodes)["items"]
    cluster.apply(device_class)
    slices = {piece["spec"]["nodeName"]: piece for piece in pieces if "spec" in piece}
    names = cluster.add_nodes(map(sized, nodes), lambda name: [slices[name]])
    yield nodes, pods
    cluster.remove_nodes(names)


def sized(row: openb.Row) -> Object:
    """A simulated node of the trace."""
    node = inventory.kwok_node(row["sn"])
    room = {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi"}
    room = {**node["status"]["allocatable"], **room}
    node["metadata"]["labels"] |= LABEL
    return {**node, "status": {"capacity": room, "allocatable": room}}


def asking(row: openb.Row, name: str) -> list[Object]:
    """A pod of the trace, and its claim."""
    exactly: dict[str, Any] = {
        "deviceClassName": openb.CLASS,
        "count": int(row["num_gpu"]),
        "capacity": {"requests": {openb.MILLI: row["gpu_milli"]}},
    }
    claim = documents.claim({"name": "devices", "exactly": exactly}, name=name)
    asking_pod = pod(
        name,
        requests={"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi"},
        annotations={STRATEGY_ANNOTATION: STRATEGY},
        resourceClaims=[{"name": "devices", "resourceClaimName": name}],
        nodeSelector=LABEL,
    )
    return [claim, bridged(asking_pod)]


def replayed(nodes: Sequence[openb.Row], pods: Sequence[openb.Row]) -> StrategyResult:
    """Return the result of a replay of the same pods."""
    arriving = [pod_ for pod_ in read_pods(openb.pods_csv(pods)) if not isinstance(pod_, CsvFault)]
    assert len(arriving) == len(pods)
    inventory_ = openb.inventory_of(openb.snapshot(nodes))
    return replay(STRATEGY, arriving, inventory_, order=Order.FILE, seed=SEED)


def allocated_milli(cluster: Access, namespace: str) -> int:
    """Return the thousandths of GPUs that are allocated to the claims of a namespace."""
    return sum(
        Quantity(result["consumedCapacity"][openb.MILLI]).round_up()
        for claim in cluster.objects("resourceclaims", namespace)
        for result in claim.get("status", {}).get("allocation", {"devices": {"results": []}})[
            "devices"
        ]["results"]
    )


@pytest.mark.parametrize("cluster", [OF_ITS_OWN], indirect=True)
def test_pods_in_order_allocate_what_the_replay_says(
    cluster: Access,
    bridge: Bridge,
    namespace: str,
    trace: tuple[list[openb.Row], list[openb.Row]],
) -> None:
    nodes, pods = trace
    before, began = bridge.calls("prefilter", "fits"), time.monotonic()

    def are_decided() -> bool:
        entries = cluster.objects("pods", namespace)
        return all(entry["spec"].get("nodeName") or is_waiting(entry) for entry in entries)

    for first in range(0, len(pods), TOGETHER):
        for number, row in enumerate(pods[first : first + TOGETHER], start=first):
            objects = asking(row, f"pod-{number}")
            for object_ in objects:
                object_["metadata"]["namespace"] = namespace
            cluster.apply(objects)
        what = f"the first {first + TOGETHER} pods have a node or fit nowhere"
        cluster.wait_until(are_decided, what, timeout_s=TIMEOUT_S)
    took_s = time.monotonic() - began
    placed = [
        entry for entry in cluster.objects("pods", namespace) if entry["spec"].get("nodeName")
    ]

    expected = replayed(nodes, pods)
    total = 1000 * sum(int(row["gpu"]) for row in nodes)
    share = 100 * allocated_milli(cluster, namespace) / total
    expected_share = expected.capacities[0].percent
    calls = bridge.calls("prefilter", "fits") - before
    print(
        f"{len(nodes)} nodes, {len(pods)} pods in {took_s:.0f} s: {share:.2f} % and {len(placed)} pods, "
        f"replayed {expected_share:.2f} % and {expected.pods.placed} pods; {calls} answers that fit"
    )
    assert expected.failed_by.get("cpu"), "CPU is short at the end"
    assert abs(share - expected_share) <= POINTS
    assert doubly_held(cluster) == []
    # While there are nodes: pods of nodes that are gone end after minutes.
    cluster.kubectl("delete", "pods", "--all", "-n", namespace)
