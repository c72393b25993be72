"""The PodDisruptionBudgets that would stop the drains of a migration. Pure.

`plan` holds the nodes of those that never allow an eviction, and its scripts stop at those that allow none at the moment.
"""

from collections.abc import Iterable, Sequence

import msgspec

from findings.text import count_text, join_names
from kube.manifests.source import SourceObject
from migration.cluster.evidence import Disruptions, RunningPod
from migration.cluster.volumes import read_evidence_with_pinned_pods


class DrainStop(msgspec.Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget that allows no eviction of pods of nodes that are to be drained.

    Attributes:
        budget: `PodDisruptionBudget/namespace/name`.
        selects: Its label selector as text.
        never: It never allows one, so that `plan` holds the nodes; else it allows none at the moment.
        reason: Its limit, with what the API server allows now.
        pods: The pods, as `Pod/namespace/name`.
        nodes: Their nodes.
        fix: The change that lets the drains go on.
    """

    budget: str
    selects: str
    never: bool
    reason: str
    pods: tuple[str, ...]
    nodes: tuple[str, ...]
    fix: str


def find_drain_stops(
    objects: Sequence[SourceObject], namespace: str, nodes: Iterable[str]
) -> tuple[DrainStop, ...]:
    """Return the budgets that would stop the drain of some nodes, those that never let a pod go first.

    Args:
        objects: The cluster's objects.
        namespace: The namespace for objects that name none.
        nodes: The nodes.
    """
    evidence = read_evidence_with_pinned_pods(objects, namespace)
    never: dict[Disruptions, list[RunningPod]] = {}
    at_the_moment: dict[Disruptions, list[RunningPod]] = {}
    for node in sorted(nodes):
        for budget, pods in evidence.blocking_budgets(node):
            never.setdefault(budget, []).extend(pods)
        for budget, pods in evidence.exhausted_budgets(node):
            at_the_moment.setdefault(budget, []).extend(pods)
    return (
        *(_stop(budget, never[budget], never=True) for budget in sorted(never, key=_key)),
        *(
            _stop(budget, at_the_moment[budget], never=False)
            for budget in sorted(at_the_moment, key=_key)
        ),
    )


def _key(budget: Disruptions) -> tuple[str, str, tuple[str, ...], str]:
    return budget.namespace, budget.name, budget.others, budget.pinned_to


def _stop(budget: Disruptions, pods: Sequence[RunningPod], *, never: bool) -> DrainStop:
    names = list(dict.fromkeys(pod.node for pod in pods))
    where = f"of {count_text(len(pods), 'pod')} on {join_names(names)}"
    return DrainStop(
        budget=f"PodDisruptionBudget/{budget.namespace}/{budget.name}",
        selects=budget.selects,
        never=never,
        reason=(budget.never_text if never else budget.now_text).format(where),
        pods=tuple(f"Pod/{pod.namespace}/{pod.name}" for pod in pods),
        nodes=tuple(names),
        fix=budget.never_fix if never else budget.now_fix,
    )
