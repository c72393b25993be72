"""The pods and workloads that waited before a history began: a migration has not left them behind."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from e2e.checker.history import (
    LISTED,
    Event,
    Object,
    State,
    controller_of,
    is_leaving,
    label_of,
    node_of,
    phase_of,
)

WORKLOADS: Final = ("deployments", "statefulsets", "daemonsets")
_OWNERS: Final = {"ReplicaSet": "replicasets"}
"""Kind of a controller to its plural, of those that others control."""


class Waiting:
    """The pods without a node by workload, and the missing pods of each workload, as they were at first."""

    def __init__(self) -> None:
        self._pods: Counter[str] = Counter()
        self._missing: dict[tuple[str, str], int] = {}

    def see(self, event: Event, state: State) -> None:
        """Remember an object that was there before the record."""
        if event.type != LISTED:
            return
        if event.kind == "pods" and has_no_node(event.object):
            self._pods[_workload_of(event.object, state)] += 1
        elif event.kind in WORKLOADS:
            missing = desired_pods(event.kind, event.object) - ready_pods(event.object)
            self._missing[event.kind, label_of(event.object)] = missing

    def new_pods(self, state: State) -> Iterator[Object]:
        """Yield the pods without a node, as far as a workload has more of them than at first."""
        seen: Counter[str] = Counter()
        for pod in state.objects("pods"):
            if has_no_node(pod):
                workload = _workload_of(pod, state)
                seen[workload] += 1
                if seen[workload] > self._pods[workload]:
                    yield pod

    def missing_at_first(self, kind: str, workload: Object) -> int:
        """Return the number of pods of a workload that were not ready at first."""
        return self._missing.get((kind, label_of(workload)), 0)


def desired_pods(kind: str, workload: Object) -> int:
    """Return the number of pods that a workload is to have."""
    if kind == "daemonsets":
        return int(workload.get("status", {}).get("desiredNumberScheduled", 0))
    return int(workload["spec"].get("replicas", 1))


def ready_pods(workload: Object) -> int:
    """Return the number of its pods that are ready."""
    status = workload.get("status", {})
    return int(status.get("numberReady", status.get("readyReplicas", 0)))


def has_no_node(pod: Object) -> bool:
    """Return True if a pod waits for a node."""
    return phase_of(pod) == "Pending" and not node_of(pod) and not is_leaving(pod)


def _workload_of(pod: Object, state: State) -> str:
    """Return the workload of a pod as `Kind/namespace/name`, the pod itself without one."""
    namespace = pod["metadata"]["namespace"]
    entry, name = pod, f"Pod/{label_of(pod)}"
    while (owner := controller_of(entry)) is not None:
        name = f"{owner['kind']}/{namespace}/{owner['name']}"
        above = state.find(_OWNERS.get(owner["kind"], ""), owner["uid"])
        if above is None:
            break
        entry = above
    return name
