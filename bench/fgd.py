"""FGD of the paper, for comparison in the same harness: places pods of a trace with the least fragmentation.

The fragments of a node are the GPU that a usual task cannot use there: all that is left where the task lacks
CPU, GPUs or their model, else what is left on GPUs with too little for it; the mean over usual tasks. A pod goes where
it adds the fewest, as an integer of 0 to 100; of equal nodes the first by name, as in the paper's patched scheduler.

The usual tasks are those of the whole list, and known from the beginning. Memory filters nodes and is not scored.

Source: Weng et al., "Beware of Fragmentation" (USENIX ATC 2023); hkust-adsl/kubernetes-scheduler-simulator at
8f3d6417, pkg/utils/frag.go and pkg/simulator/plugin/fgd_score.go.
"""

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from bench.openb import WHOLE_MILLI, Row

TYPICAL_SHARE: Final = 0.95
"""The most frequent tasks that have this share of all pods are the usual ones."""
_MAX_SCORE: Final = 100


class Task(NamedTuple):
    """The requests of a pod.

    Attributes:
        cpu: CPU in thousandths of a core.
        memory: Memory in MiB.
        gpus: Number of GPUs.
        milli: Thousandths of each GPU.
        models: Models of which one will do; empty for any.
    """

    cpu: int
    memory: int
    gpus: int
    milli: int
    models: frozenset[str] = frozenset()


class NodeLeft(NamedTuple):
    """The resources left on a node; `gpus` are the thousandths left of each GPU, by position."""

    cpu: int
    memory: int
    gpus: tuple[int, ...]
    model: str


class _Usual(NamedTuple):
    """A usual task, and the number of its pods."""

    task: Task
    pods: int


def task_of(row: Row) -> Task:
    """Return the requests of a pod of the trace."""
    return Task(
        cpu=int(row["cpu_milli"]),
        memory=int(row["memory_mib"]),
        gpus=int(row["num_gpu"]),
        milli=int(row["gpu_milli"] or 0),
        models=frozenset(filter(None, row.get("gpu_spec", "").split("|"))),
    )


def allocated_share(nodes: Iterable[Row], pods: Sequence[Row], arriving: Iterable[Row]) -> float:
    """Return the share of all GPUs, in percent, that FGD allocates.

    Args:
        nodes: The nodes of the trace.
        pods: All pods of the list; the usual tasks are theirs.
        arriving: The pods that arrive, in order.
    """
    cluster = _Cluster(nodes, typical_tasks(pods))
    total = sum(map(sum, (node.gpus for node in cluster.nodes)))
    for row in arriving:
        cluster.place(task_of(row))
    left = sum(map(sum, (node.gpus for node in cluster.nodes)))
    return 100 * (total - left) / total


def typical_tasks(pods: Iterable[Row]) -> tuple[_Usual, ...]:
    """Return the most frequent tasks, those of 95 % of the pods; memory does not tell them apart."""
    counts = Counter(task_of(row)._replace(memory=0) for row in pods)
    total, seen = counts.total(), 0
    usual = []
    for task, count in counts.most_common():
        usual.append(_Usual(task, count))
        seen += count
        if seen >= TYPICAL_SHARE * total:
            break
    return tuple(usual)


class _Order:
    """The nodes that can take a task, by score and name; `changes` of the cluster are taken in."""

    def __init__(self) -> None:
        self.order: list[tuple[int, int]] = []
        self.place_of: dict[int, tuple[int, int]] = {}
        self.changes = 0


class _Cluster:
    """The nodes while pods arrive, sorted by name."""

    def __init__(self, nodes: Iterable[Row], usual: Sequence[_Usual]) -> None:
        rows = sorted(nodes, key=lambda row: row["sn"])
        self.nodes = [
            NodeLeft(
                cpu=int(row["cpu_milli"]),
                memory=int(row["memory_mib"]),
                gpus=(WHOLE_MILLI,) * int(row["gpu"]),
                model=row["model"],
            )
            for row in rows
        ]
        self._usual = usual
        self._count = sum(count for _, count in usual)
        self._changes: list[int] = list(range(len(self.nodes)))
        self._orders: dict[Task, _Order] = {}
        self._fragments: dict[tuple[int, tuple[int, ...], str], int] = {}
        # Only whether the CPU is enough counts of it.
        self._cpus = sorted({task.cpu for task, _ in usual})

    def place(self, task: Task) -> None:
        """Place a task if it fits."""
        order = self._orders.setdefault(task, _Order())
        for number in dict.fromkeys(self._changes[order.changes :]):
            self._update(order, task, number)
        order.changes = len(self._changes)
        if not order.order:
            return
        _, number = order.order[0]
        node = self.nodes[number]
        gpus = self._choose(node, task)[1]
        self.nodes[number] = _after(node, task, gpus)
        self._changes.append(number)

    def _update(self, order: _Order, task: Task, number: int) -> None:
        before = order.place_of.pop(number, None)
        if before is not None:
            del order.order[bisect_left(order.order, before)]
        node = self.nodes[number]
        if can_take(node, task):
            place = order.place_of[number] = (-self._choose(node, task)[0], number)
            insort(order.order, place)

    def _choose(self, node: NodeLeft, task: Task) -> tuple[int, tuple[int, ...]]:
        """Return the score of a node, and the positions of the GPUs that a task gets there."""
        before = self._fragment(node)
        choices: list[tuple[int, ...]]
        if task.gpus == 1 and task.milli < WHOLE_MILLI:
            choices = [(place,) for place, left in enumerate(node.gpus) if left >= task.milli]
        else:
            whole = [place for place, left in enumerate(node.gpus) if left >= task.milli]
            choices = [tuple(whole[: task.gpus])]
        scores = [
            (self._score(before - self._fragment(_after(node, task, gpus))), gpus)
            for gpus in choices
        ]
        best = max(score for score, _ in scores)
        return next(entry for entry in scores if entry[0] == best)

    def _score(self, gain: int) -> int:
        """Return the score of a node for fragments that shrink by thousandths of GPUs, of all usual tasks."""
        return int(_MAX_SCORE / (1 + math.exp(-gain / self._count / WHOLE_MILLI)))

    def _fragment(self, node: NodeLeft) -> int:
        """Return the thousandths of GPUs that usual tasks cannot use, the sum over their pods."""
        cpu = bisect_left(self._cpus, node.cpu + 1)
        key = cpu, tuple(sorted(node.gpus)), node.model
        fragment = self._fragments.get(key)
        if fragment is None:
            total = sum(node.gpus)
            fragment = self._fragments[key] = sum(
                count * (total - usable(node, task)) for task, count in self._usual
            )
        return fragment


def can_take(node: NodeLeft, task: Task) -> bool:
    """Return True if a node has the resources that a task requests."""
    return (
        node.cpu >= task.cpu
        and node.memory >= task.memory
        and (not task.models or node.model in task.models)
        and sum(left >= task.milli for left in node.gpus) >= task.gpus
    )


def usable(node: NodeLeft, task: Task) -> int:
    """Return the thousandths of GPUs that a usual task could get some of; 0 for a task without GPUs."""
    if not task.gpus or node.cpu < task.cpu or (task.models and node.model not in task.models):
        return 0
    enough = [left for left in node.gpus if left >= task.milli]
    return sum(enough) if len(enough) >= task.gpus else 0


def _after(node: NodeLeft, task: Task, gpus: Sequence[int]) -> NodeLeft:
    left = list(node.gpus)
    for place in gpus:
        left[place] -= task.milli
    return node._replace(
        cpu=node.cpu - task.cpu, memory=node.memory - task.memory, gpus=tuple(left)
    )
