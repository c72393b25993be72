"""The memory of a cluster's inventory, in a process of its own.

Reads a scenario's slices, nodes and claims from JSON, one object per line with its kind in front,
asks one question, and prints the largest resident size of the process in MB.
"""

import sys
from pathlib import Path
from typing import Any

from allocator.cluster.cluster import Cluster
from allocator.search.attempt import AllocatorOptions
from kube.api.core import Node
from kube.api.meta import decode, encode
from kube.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from testing.oracle.scenarios import Scenario

KINDS: dict[str, Any] = {
    "slices": ResourceSlice,
    "nodes": Node,
    "allocated": ResourceClaim,
    "classes": DeviceClass,
    "claims": ResourceClaim,
}


def write(scenario: Scenario, file: Path) -> None:
    """Write a scenario as lines."""
    with file.open("wb") as lines:
        for kind in KINDS:
            for document in scenario[kind]:
                lines.write(kind.encode() + b"\t" + encode(document) + b"\n")


def read_objects(file: Path) -> dict[str, list[Any]]:
    """Return the written objects, by kind."""
    objects: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    with file.open("rb") as lines:
        for line in lines:
            kind, _, content = line.partition(b"\t")
            objects[kind.decode()].append(decode(content, KINDS[kind.decode()]))
    return objects


def peak_mb() -> float:
    """Return the largest resident size that this process has had.

    Of the program that runs: what getrusage tells begins with that of who started it.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return float(value.split()[0]) * 1024 / 1e6
    raise LookupError("no VmHWM in /proc/self/status")


def main() -> None:
    """Read the file that is the only argument."""
    objects = read_objects(Path(sys.argv[1]))
    cluster = Cluster(
        slices=objects["slices"],
        nodes=objects["nodes"],
        claims=objects["allocated"],
        classes={class_.metadata.name: class_ for class_ in objects["classes"]},
        options=AllocatorOptions(),
    )
    cluster.verdicts(cluster.resolve(objects["claims"]))
    print(peak_mb())


if __name__ == "__main__":
    main()
