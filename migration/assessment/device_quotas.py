"""The check that DeviceQuotas let the pods of the assessed workloads through, by the functions of `simulate`."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec

from answers.cluster.budgets import Budgets
from answers.manifests.pod_checks import EVICTED, QUEUE_NAME
from answers.model.cluster_state import ClusterState
from findings.finding import Code, Finding
from findings.text import count_text
from kube.api.core import Pod
from kube.api.workloads import resolve_path
from migration.assessment.blockers import Blocker
from migration.assessment.capacity import (
    MAX_ALL_PODS,
    build_pods,
    build_templates,
    release_claims,
)
from migration.assessment.outcomes import AssessedWorkload

_NEVER_FIX: Final = "request less, or raise the DeviceQuota"
_WAIT_FIX: Final = (
    "raise the DeviceQuota, or expect them to wait; drawbridge simulate names the limit of each"
)


def check_device_quotas(
    workloads: Iterable[AssessedWorkload], state: ClusterState
) -> Iterator[Blocker]:
    """Yield blockers for pods that DeviceQuotas never let through, and for those that would wait.

    Pods are charged one after the other, with the least that they can have, beside what other pods use.

    Args:
        state: The cluster; pods of the workloads do not count twice.
    """
    if not state.quotas:
        return
    moving = [workload for workload in workloads if workload.result is not None]
    budgets = _budgets(moving, state)
    never: dict[Code, dict[str, Finding]] = {}
    waiting: dict[str, int] = {}
    is_any_queued = False
    left = MAX_ALL_PODS
    for workload in moving:
        pods = list(islice(build_pods(workload), left))
        left -= len(pods)
        name = workload.key.reference
        finding = _final(budgets, pods)
        if finding is not None:
            never.setdefault(finding.code, {})[name] = finding
        elif count := _count_waiting(budgets, pods):
            waiting[name] = count
            is_any_queued = is_any_queued or _is_queued(workload, pods)
    for code, by_name in never.items():
        first = next(iter(by_name.values()))
        yield Blocker(
            code=code.value,
            message=f"a DeviceQuota never lets these pods through: {first.detail}",
            fix=_NEVER_FIX,
            objects=tuple(by_name),
        )
    if waiting:
        evicted = EVICTED if is_any_queued else ""
        yield Blocker(
            code=Code.DEVICE_QUOTA_FULL.value,
            message=f"{count_text(sum(waiting.values()), 'pod')} would wait for a DeviceQuota, where it is "
            f"enforced{evicted}",
            fix=_WAIT_FIX,
            objects=tuple(waiting),
        )


def _budgets(workloads: Iterable[AssessedWorkload], state: ClusterState) -> Budgets:
    """Return the budgets beside all that the workloads have today."""
    templates = dict(state.templates)
    members: set[tuple[str, str]] = set()
    for workload in workloads:
        templates.update(build_templates(workload))
        members |= workload.members
    # Pods that have moved already are charged among the others.
    claims = release_claims(state.claims, members)
    return Budgets(msgspec.structs.replace(state, templates=templates, claims=claims), pods=members)


def _final(budgets: Budgets, pods: list[Pod]) -> Finding | None:
    """Return the reason that the equal pods of a workload never get through; None if they may."""
    findings = budgets.find_excesses(pods[0]) if pods else ()
    return next(
        (
            entry
            for entry in findings
            if entry.is_error and entry.code is not Code.DEVICE_QUOTA_FULL
        ),
        None,
    )


def _count_waiting(budgets: Budgets, pods: list[Pod]) -> int:
    """Charge the pods of a workload as far as there is room; return the number of the others."""
    for number, pod in enumerate(pods):
        if any(entry.code is Code.DEVICE_QUOTA_FULL for entry in budgets.find_excesses(pod)):
            return len(pods) - number
        budgets.charge(pod)
    return 0


def _is_queued(workload: AssessedWorkload, pods: list[Pod]) -> bool:
    """Return True if Kueue queues the workload, or its pods."""
    if workload.result is not None:
        _, labels = resolve_path(workload.result.source.document, ("metadata", "labels"))
        if isinstance(labels, Mapping) and QUEUE_NAME in labels:
            return True
    return any(QUEUE_NAME in pod.labels for pod in pods[:1])
