"""Small clusters for replays, and pods that arrive on them."""

from collections.abc import Sequence
from typing import NamedTuple

from allocator.replay.csv_pods import read_pods
from allocator.replay.results import StrategyResult
from allocator.replay.workload import Inventory, ReplayGroup, ReplayPod
from kube.api.core import Node, NodeStatus, Pod
from kube.api.meta import ObjectMeta
from kube.quantity import Quantity
from testing.allocation.builders import (
    allocated_claim,
    amount,
    claim,
    classes,
    device,
    request,
    result,
    slice_of,
)


class Machine(NamedTuple):
    """A node with GPUs of 1000 milli that can be shared."""

    name: str
    gpus: int = 1
    cpu: int = 8


def inventory(*machines: Machine, pods: Sequence[Pod] = (), busy: Sequence[str] = ()) -> Inventory:
    """Return a cluster of machines; the first GPU of the busy ones is in exclusive use."""
    return Inventory(
        nodes=tuple(
            Node(
                metadata=ObjectMeta(name=machine.name, labels={"host": machine.name}),
                status=NodeStatus(
                    allocatable={
                        "cpu": Quantity(machine.cpu),
                        "memory": Quantity("64Gi"),
                        "pods": Quantity(110),
                    }
                ),
            )
            for machine in machines
        ),
        slices=tuple(
            slice_of(
                *(
                    device(
                        f"gpu-{number}",
                        shared=True,
                        capacity={"milli": amount("1k"), "memory": amount("80Gi", "0")},
                    )
                    for number in range(machine.gpus)
                ),
                pool=machine.name,
                node=machine.name,
            )
            for machine in machines
            if machine.gpus
        ),
        classes=classes(),
        claims=tuple(
            allocated_claim(result("gpu-0", pool=name), name=f"busy-{name}") for name in busy
        ),
        pods=tuple(pods),
    )


def pods_of(*rows: str, columns: str = "name,cpu,class,capacity") -> list[ReplayPod]:
    """Return the pods of these rows."""
    pods = [pod for pod in read_pods("\n".join((columns, *rows))) if isinstance(pod, ReplayPod)]
    assert len(pods) == len(rows)
    return pods


def whole_devices(**gpus: int) -> Inventory:
    """Return nodes with so many devices each, and CPU for all."""
    status = NodeStatus(allocatable={"cpu": Quantity(64), "pods": Quantity(110)})
    return Inventory(
        nodes=tuple(Node(metadata=ObjectMeta(name=name), status=status) for name in gpus),
        slices=tuple(
            slice_of(*(device(f"gpu-{number}") for number in range(count)), pool=name, node=name)
            for name, count in gpus.items()
        ),
        classes=classes(),
    )


def members(group: ReplayGroup | None, *counts: int, prefix: str = "pod") -> list[ReplayPod]:
    """Return pods of a group with so many devices each."""
    names = [f"{prefix}-{number}" for number in range(len(counts))]
    return [
        ReplayPod(
            pod=Pod(metadata=ObjectMeta(name=name, namespace="default")),
            claims=(claim(request(count=count), name=name),),
            group=group,
        )
        for name, count in zip(names, counts, strict=True)
    ]


def counts(outcome: StrategyResult) -> tuple[int, dict[str, int]]:
    """Return the number of placed pods, and reason to number of the others."""
    return outcome.pods.placed, dict(outcome.failed_by)
