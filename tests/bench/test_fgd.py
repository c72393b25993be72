"""FGD of the paper, on nodes that are small enough to follow."""

from typing import NamedTuple

import pytest

from bench.fgd import NodeLeft, Task, allocated_share, can_take, typical_tasks, usable
from bench.openb import Row


def node_row(name: str, *, cpu: int = 8000, gpus: int = 2, model: str = "T4") -> Row:
    return {
        "sn": name,
        "cpu_milli": str(cpu),
        "memory_mib": "1024",
        "gpu": str(gpus),
        "model": model,
    }


def pod_row(milli: int, *, cpu: int = 1000, gpus: int = 1, models: str = "") -> Row:
    return {
        "name": "p",
        "cpu_milli": str(cpu),
        "memory_mib": "1",
        "num_gpu": str(gpus),
        "gpu_milli": str(milli),
        "gpu_spec": models,
    }


class Usable(NamedTuple):
    name: str
    want: int
    task: Task
    gpus: tuple[int, ...] = (1000, 300)
    cpu: int = 8000


USABLE = (
    Usable("all that is left", 1300, Task(1000, 0, 1, 300)),
    Usable("not what is left of a GPU with too little", 1000, Task(1000, 0, 1, 301)),
    Usable("nothing without CPU", 0, Task(8001, 0, 1, 300)),
    Usable("nothing where GPUs are too few", 0, Task(1000, 0, 2, 301)),
    Usable("nothing for a task without GPUs", 0, Task(1000, 0, 0, 0)),
    Usable("nothing of another model", 0, Task(1000, 0, 1, 300, frozenset({"P100"}))),
)


@pytest.mark.parametrize("row", USABLE, ids=lambda row: row.name)
def test_what_a_usual_task_can_use(row: Usable) -> None:

    node = NodeLeft(cpu=row.cpu, memory=1024, gpus=row.gpus, model="T4")
    assert usable(node, row.task) == row.want
    assert can_take(node, row.task) == (row.want > 0 or not row.task.gpus)


def test_the_usual_tasks_are_those_of_95_percent_of_the_pods() -> None:
    pods = [pod_row(1000)] * 19 + [pod_row(500)]
    assert [(task.milli, count) for task, count in typical_tasks(pods)] == [(1000, 19)]
    assert len(typical_tasks([*pods, pod_row(500)])) == 2


def test_a_share_goes_to_the_gpu_that_is_in_use() -> None:
    """So the two whole GPUs that come last fit."""
    nodes = [node_row("a"), node_row("b", gpus=1)]
    arriving = [pod_row(500), pod_row(500), pod_row(1000, gpus=2)]
    usual = [pod_row(1000, gpus=2)] * 10 + [pod_row(500)] * 10
    assert allocated_share(nodes, usual, arriving) == 100.0


def test_a_pod_goes_where_cpu_does_not_strand_gpus() -> None:
    """On `a` the pod takes the CPU of the second GPU, so that nobody could use that any more."""
    nodes = [node_row("a", cpu=8000), node_row("b", cpu=64_000)]
    arriving = [pod_row(1000, cpu=6000), *[pod_row(1000, cpu=4000)] * 3]
    assert allocated_share(nodes, [pod_row(1000, cpu=4000)], arriving) == 100.0
