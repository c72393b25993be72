"""The pods that DeviceQuotas stop once a namespace is opted in, and not today. Pure.

A pod that waits for a quota today waits afterwards, too, and stops nothing. Native pods keep their keys, whatever label
their namespace has.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from answers.cluster.budgets import Budgets
from answers.model.cluster_state import ClusterState
from findings.finding import Code, Finding
from findings.text import count_text
from kube.api.core import Pod
from migration.assessment.blockers import (
    LESS_OR_MORE,
    NEVER_LET_THROUGH,
    NOT_LET_THROUGH,
    Blocker,
)
from migration.assessment.capacity import build_pods, build_templates
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.device_pods import pod_of
from migration.plan.checks.before import AGAIN
from quotas.device_quotas.ledger import DeviceQuotaLedger, Excess
from quotas.device_quotas.tenants import Account

_FIX: Final = f"{LESS_OR_MORE}; then {AGAIN}"
_FULL: Final = f"{NOT_LET_THROUGH}; where the quota is enforced, the pod waits"


class _Moving(NamedTuple):
    """A workload of a namespace that is to be opted in, and namespace and name of the pods of it that run."""

    workload: AssessedWorkload
    running: Sequence[tuple[str, str]]


class _Full(NamedTuple):
    """A limit with too little left for some pods of a workload, and their number."""

    excess: Excess
    pods: int


def check_stopped_pods(
    workloads: Iterable[AssessedWorkload], state: ClusterState
) -> Iterator[Blocker]:
    """Yield blockers for the pods of each namespace that DeviceQuotas stop with claims, and not with their keys.

    One namespace is opted in after the other: those of its pods that run have claims then, and those of a namespace that
    is stopped keep their keys. A limit that is exceeded today stops pods that are too large for it, and those of
    workloads with keys that count for nothing in it.

    Args:
        workloads: The workloads of the namespaces that are to be opted in.
        state: The cluster as it is today.
    """
    if not state.quotas:
        return
    moving: dict[str, list[_Moving]] = {}
    for workload in workloads:
        if workload.result is not None and workload.outcome is not Outcome.NATIVE:
            running = [name for name in sorted(workload.members) if _runs(state.pods.get(name))]
            moving.setdefault(workload.key.namespace, []).append(_Moving(workload, running))
    budgets = _budgets([entry for own in moving.values() for entry in own], state)
    if budgets.ledger is None:
        return
    changes: Counter[Account] = Counter()
    for _, own in sorted(moving.items()):
        never = {entry.workload.key.reference: _final_excess(budgets, entry) for entry in own}
        left = [entry for entry in own if never[entry.workload.key.reference] is None]
        full, own_changes = _charge_claims(budgets, budgets.ledger, left, changes)
        if not full and len(left) == len(own):
            changes = own_changes
        yield from _describe_never(never)
        if full:
            number = count_text(sum(entry.pods for entry in full.values()), "pod")
            first = next(iter(full.values())).excess.message
            yield Blocker(
                code=Code.DEVICE_QUOTA_FULL.value,
                message=_FULL.format(number, first),
                fix=_FIX,
                objects=tuple(full),
            )


def _runs(pod: Pod | None) -> bool:
    return pod is not None and bool(pod.spec.node_name) and pod.metadata.deletion_timestamp is None


def _budgets(moving: Iterable[_Moving], state: ClusterState) -> Budgets:
    """Return the budgets of today, without the pods of workloads that do not run."""
    templates = dict(state.templates)
    waiting: set[tuple[str, str]] = set()
    for workload, running in moving:
        templates.update(build_templates(workload))
        waiting |= workload.members.difference(running)
    return Budgets(msgspec.structs.replace(state, templates=templates), pods=waiting)


def _final_excess(budgets: Budgets, entry: _Moving) -> Finding | None:
    """Return the reason that the equal pods of a workload never get through with claims; None if they may.

    Pods that are still to come, and never get through with their keys either, have none.
    """
    workload = entry.workload
    pod = next(build_pods(workload), None)
    finding = _find_final(budgets, pod) if pod is not None else None
    if pod is None or finding is None or entry.running or workload.result is None:
        return finding
    today = pod_of(workload.result.source)
    if today is None:
        return finding
    today = msgspec.structs.replace(today, metadata=pod.metadata)
    return None if _find_final(budgets, today) is not None else finding


def _find_final(budgets: Budgets, pod: Pod) -> Finding | None:
    findings = budgets.find_excesses(pod)
    codes = (Code.EXCEEDS_DEVICE_QUOTA, Code.EXCEEDS_PER_REQUEST_QUOTA)
    return next((entry for entry in findings if entry.is_error and entry.code in codes), None)


def _describe_never(findings: Mapping[str, Finding | None]) -> Iterator[Blocker]:
    """Yield a blocker for each code of the pods that never get through."""
    by_code: dict[Code, dict[str, Finding]] = {}
    for reference, finding in findings.items():
        if finding is not None:
            by_code.setdefault(finding.code, {})[reference] = finding
    for code, by_name in sorted(by_code.items()):
        first = next(iter(by_name.values()))
        yield Blocker(
            code=code.value,
            message=NEVER_LET_THROUGH.format(first.detail),
            fix=_FIX,
            objects=tuple(by_name),
        )


def _charge_claims(
    budgets: Budgets,
    ledger: DeviceQuotaLedger,
    entries: Sequence[_Moving],
    changes: Counter[Account],
) -> tuple[dict[str, _Full], Counter[Account]]:
    """Return the workloads of a namespace with pods that wait with claims, and the changes with those of the namespace.

    Args:
        ledger: The charges of today.
        changes: The changes of namespaces before it, in nano-units.
    """
    changes = Counter(changes)
    # Pods with keys that count in an exceeded limit wait today, too.
    waits: set[tuple[str, Account]] = set()
    for workload, running in entries:
        keys = sum(map(budgets.released_charges, running), Counter[Account]())
        for account, amount in keys.items():
            if ledger.left(account) < 0:
                waits.add((workload.key.reference, account))
            else:
                changes[account] -= amount
    full: dict[str, _Full] = {}
    for workload, running in entries:
        pod = next(build_pods(workload), None)
        if pod is None or not running:
            continue
        charges = {
            account: amount
            for account, amount in budgets.least_charges(pod).items()
            if account.limit.is_enforced and (workload.key.reference, account) not in waits
        }
        number = len(running)
        for account, amount in charges.items():
            number = max(0, min(number, (ledger.left(account) - changes[account]) // amount))
        changes.update({account: amount * number for account, amount in charges.items()})
        if number < len(running):
            (excess,) = ledger.excesses(charges, also=changes)[:1]
            full[workload.key.reference] = _Full(excess, len(running) - number)
    return full, changes
