"""The openb trace as a snapshot and a CSV of pods, and replays of it.

The trace is not part of the repository. Source: Weng et al., "Beware of Fragmentation" (USENIX ATC 2023);
github.com/hkust-adsl/kubernetes-scheduler-simulator at 8f3d6417, Apache-2.0; the data are also in
github.com/alibaba/clusterdata, cluster-trace-gpu-v2023.

Pods arrive as in the paper: the list is shuffled, and pods are left out or cloned by chance until they
request 1.3 times the GPUs of the cluster. The order of a seed is not the paper's order of that seed; `paper_arrivals` has
that one.

    python -m bench.openb FOLDER --workload default --strategy stock --strategy FragmentationAware
"""

import csv
import gzip
import io
import random
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from allocator.replay.csv_pods import CsvFault, read_pods
from allocator.replay.replay import STRATEGIES, replay
from allocator.replay.results import StrategyResult
from allocator.replay.workload import Inventory, Order, ReplayPod
from kube.api.core import Node
from kube.api.meta import convert
from kube.api.resource import DeviceClass, ResourceSlice
from testing.documents import Document, api_object, class_of_driver, resource_slice

DRIVER: Final = "gpu.example.com"
CLASS: Final = "gpu"
MILLI: Final = "milli"
"""The capacity that pods share: thousandths of a GPU."""
NODES: Final = "openb_node_list_gpu_node.csv.gz"
MAX_PODS: Final = 110 * 10
"""Pods that a node may run, more than any gets."""
WHOLE_MILLI: Final = 1000
_ARRIVALS: Final = Path(__file__).parent / "arrivals" / "main.go"

Row = Mapping[str, str]


def snapshot(nodes: Iterable[Row]) -> Document:
    """Return nodes, slices and the class of a list of nodes, as `kubectl get -o yaml` prints them."""
    items: list[Document] = [class_of_driver(DRIVER, name=CLASS)]
    for row in nodes:
        items += [_node(row), _slice(row)]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _node(row: Row) -> Document:
    allocatable = {
        "cpu": f"{row['cpu_milli']}m",
        "memory": f"{row['memory_mib']}Mi",
        "pods": str(MAX_PODS),
    }
    return api_object("Node", row["sn"], status={"allocatable": allocatable})


def _slice(row: Row) -> Document:
    devices = [
        {
            "name": f"gpu-{number}",
            "allowMultipleAllocations": True,
            "attributes": {"model": {"string": row["model"]}},
            "capacity": {MILLI: {"value": str(WHOLE_MILLI)}},
        }
        for number in range(int(row["gpu"]))
    ]
    return resource_slice(*devices, driver=DRIVER, node=row["sn"], name=f"{row['sn']}-gpus")


def arrivals(pods: Sequence[Row], gpu_milli: int, seed: int, demand: float = 1.3) -> list[Row]:
    """Return pods in the order of arrival until they request so many times the GPUs of a cluster.

    Args:
        pods: The list.
        gpu_milli: Thousandths of all GPUs of the cluster.
        seed: Decides the order, and which pods are left out or cloned.
        demand: The demand as a multiple of the GPUs.
    """
    chance = random.Random(seed)
    left = list(pods)
    chance.shuffle(left)
    wanted = demand * gpu_milli
    arriving, requested = [], 0
    for row in left:
        if requested < wanted:
            arriving.append(row)
            requested += _milli(row)
    number = 0
    while requested < wanted:
        number += 1
        row = chance.choice(pods)
        arriving.append({**row, "name": f"{row['name']}-clone-{number}"})
        requested += _milli(row)
    return arriving


def paper_arrivals(
    pods: Iterable[Row], gpu_milli: int, seed: int, demand: float = 1.3
) -> list[Row]:
    """Return pods in the paper's own order of a seed.

    The order is that of Go's math/rand: needs Go for bench/arrivals.

    Args:
        pods: The list.
        gpu_milli: Thousandths of all GPUs of the cluster.
        seed: The seed.
        demand: The demand as a multiple of the GPUs.
    """
    rows = sorted(pods, key=lambda row: row["name"])
    lines = "".join(f"{_milli(row) and row['gpu_milli']} {_milli(row)}\n" for row in rows)
    ran = subprocess.run(
        ["go", "run", str(_ARRIVALS), str(seed), str(round(demand * gpu_milli))],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
    )
    return [rows[int(line)] for line in ran.stdout.split()]


def _milli(row: Row) -> int:
    return int(row["num_gpu"]) * int(row["gpu_milli"] or 0)


def pods_csv(pods: Iterable[Row]) -> str:
    """Return pods as the CSV that `drawbridge replay --pods` reads."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("name", "cpu", "memory", "class", "count", "capacity", "selector"))
    for row in pods:
        cpu, memory = f"{row['cpu_milli']}m", f"{row['memory_mib']}Mi"
        devices = ("", "", "", "")
        if int(row["num_gpu"]):
            models = "|".join(f"'{model}'" for model in row.get("gpu_spec", "").split("|") if model)
            selector = f"device.attributes['{DRIVER}'].model in [{models}]" if models else ""
            selector = selector.replace("|", ", ")
            devices = (CLASS, row["num_gpu"], f"{MILLI}={row['gpu_milli']}", selector)
        writer.writerow((row["name"], cpu, memory, *devices))
    return text.getvalue()


def inventory_of(document: Document) -> Inventory:
    """Return the inventory of a snapshot that `snapshot` made."""
    items = document["items"]

    def of_kind(kind: str) -> Iterator[Document]:
        return (item for item in items if item["kind"] == kind)

    classes = [convert(item, DeviceClass) for item in of_kind("DeviceClass")]
    return Inventory(
        nodes=tuple(convert(item, Node) for item in of_kind("Node")),
        slices=tuple(convert(item, ResourceSlice) for item in of_kind("ResourceSlice")),
        classes={entry.metadata.name: entry for entry in classes},
    )


def pods_of(text: str) -> list[ReplayPod]:
    """Return the pods of a CSV that `pods_csv` made."""
    read = read_pods(text)
    assert all(isinstance(pod, ReplayPod) for pod in read), read[:3]
    return [pod for pod in read if not isinstance(pod, CsvFault)]


def replay_workload(
    nodes: Sequence[Row], pods: Sequence[Row], strategy: str, seed: int
) -> StrategyResult:
    """Return the result of a workload with one strategy and seed, with its CPU time."""
    text = pods_csv(arrivals(pods, total_milli(nodes), seed))
    before = time.process_time()
    result = replay(
        strategy, pods_of(text), inventory_of(snapshot(nodes)), order=Order.FILE, seed=seed
    )
    return msgspec.structs.replace(result, cpu_seconds=round(time.process_time() - before, 1))


def total_milli(nodes: Iterable[Row]) -> int:
    """Return the thousandths of all GPUs."""
    return WHOLE_MILLI * sum(int(row["gpu"]) for row in nodes)


def workload_file(folder: Path, workload: str) -> Path:
    """Return the file of a workload's pods."""
    return folder / f"openb_pod_list_{workload}.csv.gz"


def read_rows(file: Path) -> list[Row]:
    """Return the rows of a compressed CSV."""
    with gzip.open(file, "rt", encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--workload", "workloads", multiple=True, default=("default",))
@click.option("--strategy", "strategies", type=click.Choice(STRATEGIES), multiple=True)
@click.option("--seed", "seeds", type=int, multiple=True, default=(42,))
@click.option(
    "--write",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write snapshot.json and WORKLOAD-SEED.csv into this folder instead.",
)
def main(
    folder: Path,
    workloads: Sequence[str],
    strategies: Sequence[str],
    seeds: Sequence[int],
    write: Path | None,
) -> None:
    """Replay the openb trace in FOLDER, and print one line for each workload, strategy and seed."""
    nodes = read_rows(folder / NODES)
    if write is not None:
        write.mkdir(parents=True, exist_ok=True)
        (write / "snapshot.json").write_bytes(msgspec.json.encode(snapshot(nodes)))
    for workload in workloads:
        pods = read_rows(workload_file(folder, workload))
        for seed in seeds:
            if write is not None:
                text = pods_csv(arrivals(pods, total_milli(nodes), seed))
                (write / f"{workload}-{seed}.csv").write_text(text, encoding="utf-8")
                continue
            for strategy in strategies or STRATEGIES:
                result = replay_workload(nodes, pods, strategy, seed)
                line = {"workload": workload, "share": round(result.capacities[0].percent, 2)}
                click.echo(msgspec.json.encode(line | msgspec.to_builtins(result)))


if __name__ == "__main__":
    main()
