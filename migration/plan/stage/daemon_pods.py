"""The pods of DaemonSets with claims: each waits on its node until this is switched. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from migration.plan.stage.stage import PlannedPod, Stage
from migration.plan.stage.stage_allocator import Placement


class DaemonPods:
    """The pods of DaemonSets with devices that get claims."""

    def __init__(self, pods: Iterable[PlannedPod]) -> None:
        """Choose pods.

        Args:
            pods: The pods of a cluster.
        """
        self._pods = tuple(pod for pod in pods if pod.is_pinned and pod.has_claims)

    def bound_nodes(self, stage: Stage, placement: Placement) -> frozenset[str]:
        """Return the nodes with a DaemonSet's pod that has to have claims before its node is switched."""
        return frozenset(node for pod, node in self._placed(placement) if not stage.moves(pod))

    def nodes(self, placement: Placement) -> Mapping[str, frozenset[str]]:
        """Return namespace to the nodes with pods of its DaemonSets that get claims."""
        nodes: dict[str, set[str]] = {}
        for pod, node in self._placed(placement):
            nodes.setdefault(pod.namespace, set()).add(node)
        return {namespace: frozenset(names) for namespace, names in nodes.items()}

    def waiting_nodes(self, stage: Stage, placement: Placement) -> Mapping[str, tuple[str, ...]]:
        """Return DaemonSet to the nodes with a device plugin and pods of it that are not restarted yet."""
        nodes: dict[str, set[str]] = {}
        for pod, node in self._placed(placement):
            if stage.moves(pod) and node not in stage.switched:
                nodes.setdefault(pod.key.workload, set()).add(node)
        return {workload: tuple(sorted(names)) for workload, names in nodes.items()}

    def _placed(self, placement: Placement) -> Iterator[tuple[PlannedPod, str]]:
        """Yield the pods that have a place, with their nodes."""
        for pod in self._pods:
            if node := placement.nodes.get(pod.key):
                yield pod, node
