"""The PodDisruptionBudgets that would stop the drains of a migration. Pure.

`plan` holds the nodes of those that never allow an eviction, and its scripts stop at those that allow none at the moment.
"""

from collections.abc import Iterable, Iterator

import msgspec

from findings.text import count_text, join_names
from migration.assessment.evidence import Disruptions, Evidence, RunningPod


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


def find_drain_stops(evidence: Evidence, nodes: Iterable[str]) -> tuple[DrainStop, ...]:
    """Return the budgets that would stop the drain of some nodes, those that never let a pod go first."""
    names = sorted(nodes)
    never = {
        (budget.namespace, budget.name): budget
        for node in names
        for budget, _ in evidence.blocking_budgets(node)
    }
    at_the_moment = {
        (budget.namespace, budget.name): budget
        for node in names
        for budget, _ in evidence.exhausted_budgets(node)
        if (budget.namespace, budget.name) not in never
    }
    return (
        *(_stop(budget, evidence, names, never=True) for _, budget in sorted(never.items())),
        *(
            _stop(budget, evidence, names, never=False)
            for _, budget in sorted(at_the_moment.items())
        ),
    )


def _stop(
    budget: Disruptions, evidence: Evidence, nodes: Iterable[str], *, never: bool
) -> DrainStop:
    pods = list(_covered(budget, evidence, nodes))
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


def _covered(budget: Disruptions, evidence: Evidence, nodes: Iterable[str]) -> Iterator[RunningPod]:
    """Yield the pods of some nodes that a drain evicts, and that a budget counts."""
    for node in nodes:
        yield from (pod for pod in evidence.leaving(node) if budget.covers(pod))
