"""The PodDisruptionBudgets of a workload, and the pods that they let go at once. Pure.

Source: k8s.io/kubernetes v1.37.1, pkg/controller/disruption, `getExpectedPodCount`: for `maxUnavailable`, and for a
percentage, the disruption controller asks the controller of each pod for its scale, and lets no pod go where one has none, as
a RayCluster (ray-project/kuberay issue 2662). The pods of a number of `minAvailable` it counts itself.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from migration.cluster.evidence import Disruptions, Evidence
from migration.cluster.owners import controller
from migration.cluster.workloads import Workload

_SCALED: Final = frozenset({"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"})
"""Kinds of controllers of pods that have a scale; a custom resource has one only if its definition says so."""
_NUMBER: Final = (
    "a number one below that of its pods: with maxUnavailable, or a percentage, none would go, unless the custom resource "
    "that owns them has a scale"
)


class WorkloadBudgets(NamedTuple):
    """The PodDisruptionBudgets of a workload.

    Attributes:
        select: One selects a pod of it.
        at_once: The number of its pods that they let go at once.
        has_scale: The disruption controller is sure to count its pods for `maxUnavailable`.
    """

    select: bool
    at_once: int
    has_scale: bool

    def make_wait(self, pods: int) -> bool:
        """Return True if some of the pods that leave at once have to wait for new ones."""
        return self.select and self.at_once < pods

    @property
    def reason(self) -> str:
        """The text about pods that they make none of wait."""
        if self.select:
            return "their PodDisruptionBudget lets all of these go at once"
        return "no PodDisruptionBudget selects them"

    @property
    def fix(self) -> str:
        """The change that makes some wait."""
        begin = "change it to" if self.select else "create one with"
        if self.has_scale:
            return f"{begin} maxUnavailable 1 first"
        return f"{begin} minAvailable first, {_NUMBER}"


def budgets_by_pod(evidence: Evidence) -> dict[tuple[str, str], Disruptions]:
    """Return namespace and name of each pod with a PodDisruptionBudget to the first one."""
    by_pod: dict[tuple[str, str], Disruptions] = {}
    for pods in evidence.pods.values():
        for pod in pods:
            first = next((budget for budget in evidence.budgets if budget.covers(pod)), None)
            if first is not None:
                by_pod[pod.namespace, pod.name] = first
    return by_pod


def budgets_of(
    group: Workload,
    running: Collection[tuple[str, str]],
    budgets: Mapping[tuple[str, str], Disruptions],
) -> WorkloadBudgets:
    """Return the budgets of a workload.

    Args:
        group: The workload.
        running: Namespace and name of its pods that have a node.
        budgets: The same of all pods with a budget, to this.
    """
    own = Counter(budgets[name] for name in running if name in budgets)
    makers = {owner[0] for pod in group.pods if (owner := controller(pod)) is not None}
    allowed = sum(min(budget.allowed, pods) for budget, pods in own.items())
    return WorkloadBudgets(
        select=bool(own),
        at_once=len(running) - own.total() + allowed,
        has_scale=makers <= _SCALED,
    )
