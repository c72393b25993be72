"""The pods that DeviceQuotas stop once a namespace is opted in, and not today, and those that they stop anyway. Pure.

A pod that waits for a quota today waits afterwards, too, and stops nothing. Native pods keep their keys, whatever label
their namespace has. Limits that nobody enforces have no pod wait; pods above a cap, or above a whole limit, are rejected
by the webhook all the same.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from answers.cluster.budgets import Budgets
from answers.cluster.quota_status import unenforced_limits
from answers.manifests.pod_checks import EVICTED, QUEUE_NAME
from answers.model.cluster_state import ClusterState
from findings.finding import Code, Finding
from findings.text import count_text
from kube.api.core import Pod
from kube.api.workloads import resolve_path
from kube.names import TRANSLATE_LABEL
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.blockers import Blocker
from migration.assessment.capacity import (
    MAX_ALL_PODS,
    build_pods,
    build_templates,
    release_claims,
)
from migration.assessment.claim_counts import surge_of
from migration.assessment.device_needs import pods_to_start
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.device_pods import pod_of
from quotas.device_quotas.ledger import Excess
from quotas.device_quotas.tenants import Account

_NEVER: Final = "a DeviceQuota never lets these pods through: {}"
_FULL: Final = (
    "a DeviceQuota does not let {} through yet: {}; where the quota is enforced, the pod waits"
)
_LATER: Final = "once {}, {} would be stopped with claims, and {} with their keys: {}"
_LESS: Final = "request less, or raise the DeviceQuota"
_AGAIN: Final = f"{_LESS}; then plan again from a new snapshot"
_WAIT: Final = (
    "raise the DeviceQuota, or expect them to wait; drawbridge simulate names the limit of each"
)


class _Pods(NamedTuple):
    """A workload, and namespace and name of the pods of it that run."""

    workload: AssessedWorkload
    running: Sequence[tuple[str, str]]

    @property
    def reference(self) -> str:
        return self.workload.key.reference


class _Full(NamedTuple):
    """A limit with too little left for some pods of a workload, and their number."""

    excess: Excess
    pods: int


class _Stop(NamedTuple):
    """The reason that a pod does not get through, now or ever."""

    code: Code
    text: str

    @property
    def is_full(self) -> bool:
        return self.code is Code.DEVICE_QUOTA_FULL


class _Ledger:
    """The DeviceQuotas of a cluster with the use of today, without the pods of workloads that do not run."""

    def __init__(self, entries: Iterable[_Pods], state: ClusterState) -> None:
        """Charge the cluster.

        Args:
            entries: The workloads whose pods are asked about.
            state: The cluster.
        """
        templates = dict(state.templates)
        waiting: set[tuple[str, str]] = set()
        for workload, running in entries:
            templates.update(build_templates(workload))
            waiting |= workload.members.difference(running)
        charged = msgspec.structs.replace(state, templates=templates)
        self.budgets = Budgets(charged, pods=waiting)
        self._unenforced = unenforced_limits(state)

    def left(self, account: Account) -> int:
        """Return the amount that is left of an account, negative if more is used."""
        return 0 if self.budgets.ledger is None else self.budgets.ledger.left(account)

    def charges(self, pod: Pod) -> dict[Account, int]:
        """Return the least that a pod is charged with, of limits that somebody enforces."""
        return {
            account: amount
            for account, amount in self.budgets.least_charges(pod).items()
            if account.limit.is_enforced
            and (account.limit.quota, account.limit.name) not in self._unenforced
        }

    def excesses(
        self, charges: Mapping[Account, int], also: Mapping[Account, int] = {}
    ) -> tuple[Excess, ...]:
        """Return the limits that have less left than some charges, beside amounts that count, too."""
        ledger = self.budgets.ledger
        return () if ledger is None else ledger.excesses(charges, also=also)

    def stop_of(
        self, pod: Pod, others: int = 0, changes: Mapping[Account, int] = {}
    ) -> _Stop | None:
        """Return the reason that a pod does not get through; None if it does.

        Args:
            pod: The pod.
            others: The number of pods like it that got through before it, and are not charged.
            changes: The changes of what is charged today, in nano-units.
        """
        findings = self.budgets.find_excesses(pod)
        final = [entry for entry in findings if entry.code is not Code.DEVICE_QUOTA_FULL]
        if final:
            return _Stop(final[0].code, final[0].detail)
        charges = self.charges(pod)
        also = {
            account: amount * others + changes.get(account, 0)
            for account, amount in charges.items()
        }
        excess = next(iter(self.excesses(charges, also)), None)
        return None if excess is None else _Stop(Code.DEVICE_QUOTA_FULL, excess.message)

    def count_passing(self, pod: Pod, most: int, changes: Mapping[Account, int] = {}) -> int:
        """Return the number of pods like this one, up to a number, that get through one after the other."""
        if self.stop_of(pod, changes=changes) is not None:
            return 0
        fitting = (
            (self.left(account) - changes.get(account, 0)) // amount
            for account, amount in self.charges(pod).items()
        )
        return min([most, *fitting])

    def changes_of(self, entries: Iterable[_Pods]) -> Counter[Account]:
        """Return the changes of the charges once the running pods of some workloads have claims, in nano-units."""
        changes: Counter[Account] = Counter()
        for entry in entries:
            pod = next(build_pods(entry.workload), None) if entry.running else None
            charges = self.charges(pod) if pod is not None else {}
            changes.update(
                {account: amount * len(entry.running) for account, amount in charges.items()}
            )
            for name in entry.running:
                changes.subtract(self.budgets.released_charges(name))
        return changes

    def final_stop(self, pod: Pod) -> Finding | None:
        """Return the reason that a pod never gets through; None if it may."""
        findings = self.budgets.find_excesses(pod)
        codes = (Code.EXCEEDS_DEVICE_QUOTA, Code.EXCEEDS_PER_REQUEST_QUOTA)
        return next((entry for entry in findings if entry.is_error and entry.code in codes), None)


# --- pods that the label of their namespace stops -------------------------------------------------


def check_stopped_pods(
    workloads: Iterable[AssessedWorkload],
    state: ClusterState,
    opted_in: Collection[str] = frozenset(),
) -> Iterator[Blocker]:
    """Yield blockers for the pods of each namespace that DeviceQuotas stop with claims, and not with their keys.

    One namespace is opted in after the other: those of its pods that run have claims then, and those of a namespace that
    is stopped keep their keys. A limit that is exceeded today stops pods that are too large for it, and those of
    workloads with keys that count for nothing in it.

    Args:
        workloads: The workloads.
        state: The cluster as it is today.
        opted_in: The namespaces that are opted in already.
    """
    if not state.quotas:
        return
    moving = {
        namespace: own
        for namespace, own in _by_namespace(_moving(workloads, state)).items()
        if namespace not in opted_in
    }
    ledger = _Ledger([entry for own in moving.values() for entry in own], state)
    changes: Counter[Account] = Counter()
    for _, own in sorted(moving.items()):
        never = {entry.reference: _final_excess(ledger, entry) for entry in own}
        left = [entry for entry in own if never[entry.reference] is None]
        full, own_changes = _charge_claims(ledger, left, changes)
        if not full and len(left) == len(own):
            changes = own_changes
        yield from _describe_never(never)
        if full:
            number = count_text(sum(entry.pods for entry in full.values()), "pod")
            first = next(iter(full.values())).excess.message
            yield Blocker(
                code=Code.DEVICE_QUOTA_FULL.value,
                message=_FULL.format(number, first),
                fix=_AGAIN,
                objects=tuple(full),
            )


def _moving(workloads: Iterable[AssessedWorkload], state: ClusterState) -> Iterator[_Pods]:
    """Yield the workloads with pods that get claims of a translation."""
    for workload in workloads:
        if workload.result is not None and workload.outcome is not Outcome.NATIVE:
            yield _with_running(workload, state)


def _by_namespace(entries: Iterable[_Pods]) -> dict[str, list[_Pods]]:
    by_namespace: dict[str, list[_Pods]] = {}
    for entry in entries:
        by_namespace.setdefault(entry.workload.key.namespace, []).append(entry)
    return by_namespace


def _with_running(workload: AssessedWorkload, state: ClusterState) -> _Pods:
    running = [name for name in sorted(workload.members) if _runs(state.pods.get(name))]
    return _Pods(workload, running)


def _runs(pod: Pod | None) -> bool:
    return pod is not None and bool(pod.spec.node_name) and pod.metadata.deletion_timestamp is None


def _final_excess(ledger: _Ledger, entry: _Pods) -> Finding | None:
    """Return the reason that the equal pods of a workload never get through with claims; None if they may.

    Pods that are still to come, and never get through with their keys either, have none.
    """
    pod = next(build_pods(entry.workload), None)
    finding = ledger.final_stop(pod) if pod is not None else None
    if pod is None or finding is None or entry.running:
        return finding
    today = _with_keys(entry.workload, pod)
    return None if today is not None and ledger.final_stop(today) is not None else finding


def _with_keys(workload: AssessedWorkload, pod: Pod) -> Pod | None:
    """Return a pod of a workload as it is without claims of a translation; None if it cannot be read."""
    today = pod_of(workload.result.source) if workload.result is not None else None
    return today and msgspec.structs.replace(today, metadata=pod.metadata)


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
            message=_NEVER.format(first.detail),
            fix=_AGAIN,
            objects=tuple(by_name),
        )


def _charge_claims(
    ledger: _Ledger, entries: Sequence[_Pods], changes: Counter[Account]
) -> tuple[dict[str, _Full], Counter[Account]]:
    """Return the workloads of a namespace with pods that wait with claims, and the changes with those of the namespace.

    Args:
        ledger: The charges of today.
        entries: The workloads of the namespace.
        changes: The changes of namespaces before it, in nano-units.
    """
    changes = Counter(changes)
    # Pods with keys that count in an exceeded limit wait today, too.
    waits: set[tuple[str, Account]] = set()
    for entry in entries:
        keys = sum(map(ledger.budgets.released_charges, entry.running), Counter[Account]())
        for account, amount in keys.items():
            if ledger.left(account) < 0:
                waits.add((entry.reference, account))
            else:
                changes[account] -= amount
    full: dict[str, _Full] = {}
    for entry in entries:
        pod = next(build_pods(entry.workload), None)
        if pod is None or not entry.running:
            continue
        charges = {
            account: amount
            for account, amount in ledger.charges(pod).items()
            if (entry.reference, account) not in waits
        }
        number = len(entry.running)
        for account, amount in charges.items():
            number = max(0, min(number, (ledger.left(account) - changes[account]) // amount))
        changes.update({account: amount * number for account, amount in charges.items()})
        if number < len(entry.running):
            (excess,) = ledger.excesses(charges, changes)[:1]
            full[entry.reference] = _Full(excess, len(entry.running) - number)
    return full, changes


# --- pods that no move stops ----------------------------------------------------------------------


class QuotaNotes(msgspec.Struct, frozen=True, kw_only=True):
    """The pods with too little left of a DeviceQuota that hold nothing.

    Attributes:
        waiting: The pods that do not run, and find too little left today, too.
        later: The workloads without pods that claims alone would stop once they are started.
        rollouts: Each workload with a rollout that starts a pod before it ends one, to the DeviceQuotas with too little left
            for that pod.
    """

    waiting: tuple[Blocker, ...] = ()
    later: tuple[Blocker, ...] = ()
    rollouts: Mapping[str, tuple[str, ...]] = {}


class QuotaStops(NamedTuple):
    """The pods that DeviceQuotas stop: by a migration, and without one."""

    blockers: tuple[Blocker, ...] = ()
    notes: tuple[Blocker, ...] = ()


def find_quota_stops(cluster: AssessedCluster) -> QuotaStops:
    """Return the pods that DeviceQuotas stop, as an assessment has them."""
    workloads, state = cluster.workloads, cluster.state
    blockers = tuple(check_stopped_pods(workloads, state, _opted_in(state)))
    stopped = {name for blocker in blockers for name in blocker.objects}
    notes = find_quota_notes(workloads, state, stopped)
    return QuotaStops(blockers, (*notes.waiting, *notes.later))


def find_quota_notes(
    workloads: Sequence[AssessedWorkload], state: ClusterState, stopped: Collection[str] = ()
) -> QuotaNotes:
    """Return the pods with too little left of a DeviceQuota that block nothing.

    Args:
        workloads: The workloads.
        state: The cluster.
        stopped: The workloads with pods that block a move, as `Kind/namespace/name`.
    """
    if not state.quotas:
        return QuotaNotes()
    entries = [_with_running(entry, state) for entry in workloads if entry.result is not None]
    others = [entry.workload.members.difference(entry.running) for entry in entries]
    # A claim of a pod that is charged below would count twice.
    claims = release_claims(state.claims, frozenset[tuple[str, str]]().union(*others))
    ledger = _Ledger(entries, msgspec.structs.replace(state, claims=claims))
    moving = [entry for entry in _moving(workloads, state) if entry.reference not in stopped]
    opted_in = _opted_in(state)
    by_namespace = _by_namespace(moving)
    later = tuple(
        blocker
        for namespace, own in by_namespace.items()
        if namespace not in opted_in
        for blocker in _stopped_later(ledger, own)
    )
    references = {*stopped, *(name for blocker in later for name in blocker.objects)}
    return QuotaNotes(
        later=later,
        rollouts={
            entry.reference: quotas
            for namespace, own in by_namespace.items()
            for changes in [Counter() if namespace in opted_in else ledger.changes_of(own)]
            for entry in own
            if entry.running and (quotas := _quotas_of_rollout(ledger, entry.workload, changes))
        },
        # What waits is charged last, since it takes what is left.
        waiting=tuple(_waiting_pods(ledger, entries, references)),
    )


def _opted_in(state: ClusterState) -> frozenset[str]:
    """Return the namespaces that are opted in already."""
    return frozenset(
        name for name, labels in state.namespaces.items() if labels.get(TRANSLATE_LABEL) == "true"
    )


def _stopped_later(ledger: _Ledger, entries: Sequence[_Pods]) -> Iterator[Blocker]:
    """Yield the workloads of a namespace without pods that find less room with claims than with keys once they are started."""
    changes = ledger.changes_of(entries)
    for workload, _ in entries:
        number = 0 if workload.members else pods_to_start(workload, 0)
        pod = next(build_pods(msgspec.structs.replace(workload, pods=1)), None) if number else None
        if pod is None:
            continue
        passing = ledger.count_passing(pod, number, changes)
        stop = ledger.stop_of(pod, passing, changes)
        today = _with_keys(workload, pod)
        left_today = number - ledger.count_passing(today, number) if today is not None else 0
        stopped = number - passing
        if stop is not None and stopped > left_today:
            started = "resumed" if workload.suspended else "started"
            pods = "its pods" if stopped == number else f"{stopped} of its {number} pods"
            text = _LATER.format(started, pods, left_today or "not", stop.text)
            objects = (workload.key.reference,)
            yield Blocker(code=stop.code.value, message=text, fix=_LESS, objects=objects)


def _quotas_of_rollout(
    ledger: _Ledger, workload: AssessedWorkload, changes: Mapping[Account, int]
) -> tuple[str, ...]:
    """Return the DeviceQuotas with too little left for a pod that a rollout starts before it ends one.

    The rollout of a wave starts it beside pods as they are today, the next ones beside pods with claims.

    Args:
        ledger: The charges of today.
        workload: The workload.
        changes: The changes of the charges once the pods of its namespace have claims, in nano-units.
    """
    pod = next(build_pods(workload), None) if surge_of(workload) else None
    charges = ledger.charges(pod) if pod is not None else {}
    excesses = (*ledger.excesses(charges), *ledger.excesses(charges, changes))
    return tuple(sorted({excess.account.limit.quota for excess in excesses}))


def _waiting_pods(
    ledger: _Ledger, entries: Iterable[_Pods], stopped: Collection[str]
) -> Iterator[Blocker]:
    """Yield the pods of each namespace that do not run, and that a DeviceQuota does not let through.

    Pods are charged one after the other, with the least that they can have, beside all that run.
    """
    groups: dict[tuple[bool, Code, str], list[tuple[str, _Stop, int, bool]]] = {}
    left = MAX_ALL_PODS
    for entry in entries:
        workload = entry.workload
        number = max(0, workload.pods - len(entry.running))
        pods = list(islice(build_pods(workload), min(number, left)))
        left -= len(pods)
        stop, number = _charge(ledger, pods)
        if stop is not None and entry.reference not in stopped:
            is_queued = stop.is_full and _is_queued(workload, pods)
            place = (stop.is_full, stop.code, workload.key.namespace)
            groups.setdefault(place, []).append((entry.reference, stop, number, is_queued))
    for (is_full, code, _), own in sorted(groups.items(), key=lambda group: group[0]):
        pods_text = count_text(sum(number for _, _, number, _ in own), "pod")
        text = own[0][1].text
        evicted = EVICTED if any(is_queued for *_, is_queued in own) else ""
        yield Blocker(
            code=code.value,
            message=f"{_FULL.format(pods_text, text) if is_full else _NEVER.format(text)}{evicted}",
            fix=_WAIT if is_full else _LESS,
            objects=tuple(reference for reference, *_ in own),
        )


def _charge(ledger: _Ledger, pods: Sequence[Pod]) -> tuple[_Stop | None, int]:
    """Charge equal pods as far as there is room; return the reason that the others are stopped, and their number."""
    for number, pod in enumerate(pods):
        stop = ledger.stop_of(pod)
        if stop is not None:
            return stop, len(pods) - number
        ledger.budgets.charge(pod)
    return None, 0


def _is_queued(workload: AssessedWorkload, pods: Sequence[Pod]) -> bool:
    """Return True if Kueue queues the workload, or its pods."""
    if workload.result is not None:
        _, labels = resolve_path(workload.result.source.document, ("metadata", "labels"))
        if isinstance(labels, Mapping) and QUEUE_NAME in labels:
            return True
    return any(QUEUE_NAME in pod.labels for pod in pods[:1])
