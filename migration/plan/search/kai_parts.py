"""Shares of KAI that never move for other pods of it, and those that get claims together with such pods. Pure.

KAI leaves a namespace as a whole, with its webhook and its pod grouper. So such shares move in no wave after which pods
of KAI stay in their namespace.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from findings.text import join_names
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.legacy.kai_webhook import KaiPods, staying_with_kai
from migration.plan.model.parts import Divisible, Part
from migration.plan.model.plan import Held
from migration.plan.search.unmovable import Unmovable

_ON_NODE: Final = "pods of {} run on it, with shares that KAI's webhook changes, and other pods of their namespace keep KAI there"
_TOGETHER: Final = "its pods have shares that KAI's webhook changes, so they leave KAI in one wave with {}, and no wave takes all of these at once"
_APART: Final = "move the shares to a namespace of their own, so that the others move one by one; then plan again from a new snapshot"
_NAMES: Final = 5
"""Workloads that a reason names."""


def held_beside_kai(
    kai_pods: KaiPods,
    workloads: Iterable[AssessedWorkload],
    unmovable: Mapping[str, Unmovable],
    divisible: Collection[str],
    *,
    namespaces: Collection[str],
    partial: Collection[str],
) -> dict[str, Unmovable]:
    """Return the workloads with shares that never move, since other pods of KAI never leave their namespace.

    Args:
        kai_pods: The pods of KAI.
        workloads: The cluster's workloads.
        unmovable: The workloads that never move for other reasons, as `Kind/namespace/name`.
        divisible: The workloads that can get claims by themselves.
        namespaces: The namespaces to opt in.
        partial: The namespaces that are never opted in as a whole.
    """
    held_shares: dict[str, Unmovable] = {}
    never_whole = {*partial, *_namespaces_of(unmovable.values())}
    for workload in workloads:
        namespace, reference = workload.key.namespace, workload.key.reference
        is_changed = reference in kai_pods.changed and namespace in namespaces
        if not is_changed or reference in unmovable:
            continue
        moved = kai_pods.leaving - unmovable.keys()
        if namespace in never_whole:
            moved = moved.intersection(divisible)
        if names := kai_pods.staying_beside(reference, moved):
            reason, fix = staying_with_kai(names)
            held_shares[reference] = Unmovable(workload, reason, _ON_NODE, fix, leaves_room=True)
    return held_shares


def divisible_beside_kai(
    kai_pods: KaiPods, unmovable: Mapping[str, Unmovable], divisible: Collection[str]
) -> Divisible:
    """Return the workloads that can get claims by themselves, with those that leave KAI together.

    Where one of these cannot move by itself, shares of its namespace move with the namespace alone.

    Args:
        kai_pods: The pods of KAI.
        unmovable: The workloads that never move, as `Kind/namespace/name`.
        divisible: The workloads that could get claims by themselves.
    """
    together, left = list[frozenset[str]](), set(divisible)
    for names in kai_pods.by_namespace.values():
        own = kai_pods.leaving.intersection(names).difference(unmovable)
        if kai_pods.changed.isdisjoint(own):
            continue
        if own.issubset(left):
            together.append(own)
        else:
            left -= kai_pods.changed.intersection(own)
    return Divisible(workloads=frozenset(left), together=tuple(together))


def held_together(kai_pods: KaiPods, parts: Iterable[Part]) -> Iterator[Held]:
    """Yield the shares without a wave that move together with other pods of KAI alone.

    Args:
        kai_pods: The pods of KAI.
        parts: The parts without a wave.
    """
    for part in parts:
        for share in sorted(kai_pods.changed.intersection(part.workloads)):
            others = [name for name in part.workloads if name not in kai_pods.changed]
            if others:
                yield Held(
                    object=share, reason=_TOGETHER.format(join_names(others, _NAMES)), fix=_APART
                )


def _namespaces_of(unmovable: Iterable[Unmovable]) -> Iterator[str]:
    """Yield the namespaces of workloads that never get their claims."""
    for entry in unmovable:
        if entry.workload.outcome is not Outcome.NATIVE:
            yield entry.workload.key.namespace
