"""The drains that do not end: of pods without devices that find no other node, a PodDisruptionBudget lets too few go. Pure.

The first ones are evicted and wait until their node is back, and that is not before the drain ends.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from findings.text import join_names
from migration.cluster.evidence import Disruptions, Evidence, RunningPod


class StuckDrain(NamedTuple):
    """The drain of a node that would not end.

    Attributes:
        budget: The budget that lets too few pods go.
        pods: The pods that it selects, and that wait for the node once they are evicted.
    """

    node: str
    budget: Disruptions
    pods: tuple[RunningPod, ...]

    @property
    def text(self) -> str:
        """Return the reason and the fix."""
        budget, number = self.budget, len(self.pods)
        names = join_names([f"{pod.namespace}/{pod.name}" for pod in self.pods])
        return (
            f"PodDisruptionBudget {budget.namespace}/{budget.name} lets {budget.allowed} of {number} pods go that no other node "
            f"takes, or has the CPU and memory for ({names}), and evicted ones wait until {self.node} is back, so its drain would "
            f"not end: {budget.limit}; {budget.with_pinned(self.node, number).never_fix}"
        )


def running_pods(evidence: Evidence) -> dict[str, RunningPod]:
    """Return the pods with a node, as `Pod/namespace/name`."""
    return {_reference(pod): pod for pods in evidence.pods.values() for pod in pods}


def stuck_drains(
    evidence: Evidence,
    running: Mapping[str, RunningPod],
    unplaced: Iterable[str],
    places: Mapping[str, str] = {},
) -> Iterator[StuckDrain]:
    """Yield the drains that would not end for pods without devices.

    Pods that no node but theirs takes by a volume or a node selector count with them; those alone hold their node already.

    Args:
        evidence: The pods and the budgets.
        running: The pods, as `running_pods` gives them.
        unplaced: The pods without devices that find no other node, as `Pod/namespace/name`.
        places: Those of them that have moved since, each with its node by then.
    """
    names = frozenset(unplaced)
    by_node: dict[str, list[RunningPod]] = {}
    for reference in sorted(names & running.keys()):
        pod = running[reference]
        by_node.setdefault(places.get(reference, pod.node), []).append(pod)
    for node, unplaced_pods in sorted(by_node.items()):
        pinned = [
            pod
            for pod in evidence.leaving(node)
            if (pod.namespace, pod.name) in evidence.pinned and _reference(pod) not in names
        ]
        stuck = [*unplaced_pods, *pinned]
        for budget in evidence.budgets:
            own = tuple(filter(budget.covers, stuck))
            is_guarded = any(budget.holds(pod) and not pod.is_unguarded for pod in own)
            has_others = any((pod.namespace, pod.name) not in evidence.pinned for pod in own)
            if 0 < budget.allowed < len(own) and is_guarded and has_others:
                yield StuckDrain(node, budget, own)


def _reference(pod: RunningPod) -> str:
    return f"Pod/{pod.namespace}/{pod.name}"
