"""Small clusters for replays, and pods that arrive on them."""

from collections.abc import Sequence
from typing import NamedTuple

from allocator.replay.csv_pods import read_pods
from allocator.replay.workload import Inventory, ReplayPod
from kube.api.core import Node, NodeStatus, Pod
from kube.api.meta import ObjectMeta
from kube.quantity import Quantity
from testing.allocation.builders import allocated_claim, amount, classes, device, result, slice_of


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
