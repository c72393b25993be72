"""The places of pods that rules keep apart: each in its turn, on the nodes that those before it leave. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from migration.plan.stage.separation import PodSeparation
from migration.plan.stage.stage import PlannedPod, PodKey, Stage
from migration.plan.stage.stage_allocator import PlaceKey, StageAllocator


class PodsApart:
    """The pods that have nodes at a stage, as the rules between them count these."""

    def __init__(
        self, separation: PodSeparation, stage: Stage, placed: Mapping[PodKey, str]
    ) -> None:
        """Count pods.

        Args:
            separation: The rules.
            stage: The stage of nodes and namespaces.
            placed: The pods, with their nodes.
        """
        self._separation, self._stage = separation, stage
        self._places: dict[str, Counter[str]] = {}
        for key, node in placed.items():
            self._places.setdefault(key.workload, Counter())[node] += 1
        # Of the workloads and constraints that have been asked about.
        self._values: dict[tuple[str, str], set[str]] = {}
        self._counts: dict[tuple[str, int], Counter[str]] = {}

    def add(self, workload: str, node: str) -> None:
        """Count one more pod of a workload on a node."""
        self._places.setdefault(workload, Counter())[node] += 1
        for (name, key), values in self._values.items():
            if name == workload:
                values.update(self._separation.label(node, key))
        for (name, number), counts in self._counts.items():
            if workload in self._separation.spreads(name)[number].workloads:
                domains = self._separation.domains(name, number, self._stage)
                if node in domains:
                    counts[domains[node]] += 1

    def nodes_left(self, workload: str, names: Sequence[str]) -> list[str]:
        """Return those of some nodes that take one more pod of a workload."""
        label, left = self._separation.label, list(names)
        for key, others in self._separation.apart(workload).items():
            occupied = [self._values_of(other, key) for other in others]
            left = [
                name for name in left if all(map(frozenset(label(name, key)).isdisjoint, occupied))
            ]
        for number, spread in enumerate(self._separation.spreads(workload)):
            takes = self._open_domains(workload, number)
            left = [name for name in left if not takes.isdisjoint(label(name, spread.key))]
        return left

    def _values_of(self, workload: str, key: str) -> set[str]:
        """Return the values that a label has on the nodes with pods of a workload."""
        if (workload, key) not in self._values:
            nodes = self._places.get(workload, ())
            values = {value for name in nodes for value in self._separation.label(name, key)}
            self._values[workload, key] = values
        return self._values[workload, key]

    def _open_domains(self, workload: str, number: int) -> frozenset[str]:
        """Return the domains of a constraint that take one more pod."""
        spread = self._separation.spreads(workload)[number]
        if (workload, number) not in self._counts:
            domains = self._separation.domains(workload, number, self._stage)
            counts = Counter[str](dict.fromkeys(domains.values(), 0))
            for other in spread.workloads:
                for node, pods in self._places.get(other, {}).items():
                    if node in domains:
                        counts[domains[node]] += pods
            self._counts[workload, number] = counts
        counts = self._counts[workload, number]
        smallest = min(counts.values(), default=0) if len(counts) >= spread.min_domains else 0
        most = spread.max_skew + smallest - spread.own
        return frozenset(domain for domain, pods in counts.items() if pods <= most)


def place_apart(
    pods: Iterable[tuple[PlannedPod, PlaceKey]],
    apart: PodsApart,
    allocator: StageAllocator,
    place: Callable[[PlannedPod, Sequence[str]], Mapping[PodKey, str]],
) -> dict[PodKey, str]:
    """Place pods one by one, each on a node that rules between pods leave it; return those with a node.

    Args:
        pods: The pods, each with what its feasible nodes depend on.
        apart: The pods that have a place already; those that get one are added.
        allocator: Has the nodes.
        place: Allocates the devices of a pod on one of some nodes; returns the pod with its node, or nothing.
    """
    nodes: dict[PodKey, str] = {}
    open_: dict[PlaceKey, list[str]] = {}
    for pod, key in pods:
        if key not in open_:
            open_[key] = allocator.eligible_nodes(pod)
        names = apart.nodes_left(pod.key.workload, open_[key])
        own = place(pod, names) if names else {}
        nodes |= own
        for node in own.values():
            apart.add(pod.key.workload, node)
        if names and not own:
            # No equal pod after it is tried on these: a run frees nothing.
            open_[key] = [name for name in open_[key] if name not in names]
    return nodes
