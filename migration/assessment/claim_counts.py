"""ResourceQuotas that count ResourceClaims and their templates, and that let too few of them be created. Pure.

A pod with devices of a DRA driver has claims of its own: those of a translation, or the one that kube-scheduler creates
for its extended resources. Where a quota lets none be created, the pod waits. A dry run of a pod creates none.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from answers.model.cluster_state import ClusterState
from findings.finding import Code
from findings.text import join_names
from kube.api.core import ResourceQuota
from kube.api.resource import ResourceClaim, ResourceClaimTemplate
from kube.quantity import ZERO, Quantity, format_count
from migration.assessment.blockers import Blocker
from migration.assessment.capacity import build_templates, release_claims
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.evidence import mapping_at
from quotas.resource_quotas.scopes import quota_of
from quotas.resource_quotas.usage import (
    CLAIM_COUNT,
    OBJECT_COUNTS,
    TEMPLATE_COUNT,
)

T = TypeVar("T")

_DEFAULT: Final = "25%"
_DIGITS: Final = 10
"""Digits of a percentage that are read. The API server takes any number of them."""

_WAIT: Final = "pods would wait for claims that are not created"
_REJECTED: Final = "pods would be rejected"
_EARLY: Final = "pods are opted in already, and once prepare.sh and the first wave have changed what counts on a line"


class ClaimShortage(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a ResourceQuota that is less than a namespace needs once all its pods have claims.

    Attributes:
        quota: `ResourceQuota/namespace/name`.
        line: The line, `CLAIM_COUNT`, `TEMPLATE_COUNT`, or one for devices.
        needed: The number that the pods with devices need at a time.
        surge: The number that rollouts need in addition, which start pods before they end one.
        used: The number that others use.
        hard: The line's amount.
        rollouts: The Deployments with such rollouts, as `Kind/namespace/name`.
        workloads: The workloads that need any, likewise; of a line for devices those that a migration has count on it.
        rejects_pods: The API server rejects pods, and not only their claims.
        is_added: The line is added by a plan.
        is_native: All of the workloads are native, so that no label of their namespace has them count on the line.
        is_early: The workloads are opted in already, and what a plan prepares makes the line too low for their next pods.
    """

    quota: str
    line: str
    needed: int
    surge: int = 0
    used: Quantity
    hard: Quantity
    rollouts: tuple[str, ...] = ()
    workloads: tuple[str, ...]
    rejects_pods: bool = False
    is_added: bool = False
    is_native: bool = False
    is_early: bool = False

    @property
    def namespace(self) -> str:
        """The quota's namespace."""
        return self.quota.split("/")[1]

    @property
    def stops_pods(self) -> bool:
        """Return True if some pods would wait for ever, and not only those of a rollout."""
        return self.used + Quantity(self.needed) > self.hard

    @property
    def enough(self) -> Quantity:
        """The least amount that lets all be created."""
        return self.used + Quantity(self.needed + self.surge)

    @property
    def amounts(self) -> str:
        """The amounts in a phrase."""
        more = f" and {self.surge} more for rollouts" if self.surge else ""
        used, hard = format_count(self.used), format_count(self.hard)
        return f"needed {self.needed}{more}, used by others {used}, hard {hard}"

    @property
    def text(self) -> str:
        """The line, its quota and the amounts in a phrase, for devices with the workloads."""
        owners = "" if self.line in OBJECT_COUNTS else f" for {join_names(self.workloads)}"
        return f"{self.line} of {self.quota} ({self.amounts}){owners}"

    @property
    def fix(self) -> str:
        """The change to the quota that solves it."""
        before = " before prepare.sh is run" if self.is_early else ""
        enough = format_count(self.enough)
        if self.is_added:
            return f"add {self.line} with {enough} to {self.quota}{before}"
        return f"raise {self.line} of {self.quota} to {enough}{before}"

    @property
    def effect(self) -> str:
        """The effect on pods in a phrase."""
        effect = _REJECTED if self.rejects_pods else _WAIT
        return f"{_EARLY}, {effect}" if self.is_early else effect


class _Need(msgspec.Struct, frozen=True, kw_only=True):
    """The number of objects that a namespace needs of a kind, with the workloads that need them."""

    number: int
    own: int
    surge: int = 0
    rollouts: tuple[str, ...] = ()
    workloads: tuple[str, ...]


def find_claim_shortages(
    workloads: Iterable[AssessedWorkload], state: ClusterState
) -> Iterator[ClaimShortage]:
    """Yield the lines of ResourceQuotas that are less than namespaces need once all their pods have claims.

    Args:
        workloads: The workloads.
        state: The cluster; claims and templates of the workloads do not count twice.
    """
    by_namespace: dict[str, list[AssessedWorkload]] = {}
    counting = {quota.metadata.namespace for quota in state.claim_quotas}
    for workload in workloads:
        if workload.result is not None and workload.key.namespace in counting:
            by_namespace.setdefault(workload.key.namespace, []).append(workload)
    claims = _of_namespaces(state.claims, counting)
    templates = _of_namespaces(state.templates, counting)
    native = {
        workload.key.reference
        for own in by_namespace.values()
        for workload in own
        if workload.outcome is Outcome.NATIVE
    }
    for quota in state.claim_quotas:
        namespace = quota.metadata.namespace
        for line, hard in _lines(quota).items():
            members = by_namespace.get(namespace, [])
            if line == CLAIM_COUNT:
                need = _needed_claims(members, claims[namespace])
                existing = len(claims[namespace])
            else:
                need = _needed_templates(members, templates[namespace])
                existing = len(templates[namespace])
            used = (quota.status.used or {}).get(line)
            if used is None:
                used = Quantity(existing)
            shortage = ClaimShortage(
                quota=f"ResourceQuota/{namespace}/{quota.metadata.name}",
                line=line,
                needed=need.number,
                surge=need.surge,
                used=max(used - Quantity(need.own), ZERO),
                hard=hard,
                rollouts=need.rollouts,
                workloads=need.workloads,
                is_native=native.issuperset(need.workloads),
            )
            if need.number and shortage.enough > hard:
                yield shortage


def describe_shortages(shortages: Sequence[ClaimShortage]) -> tuple[str, str]:
    """Return the effect of shortages and their fix, in a phrase each."""
    effects: dict[str, list[str]] = {}
    for shortage in shortages:
        effects.setdefault(shortage.effect, []).append(shortage.text)
    reasons = [f"{effect}: {join_names(texts)}" for effect, texts in effects.items()]
    fixes: dict[tuple[str, str], str] = {}
    for shortage in shortages:
        # A line has one amount for all its workloads, and it is due before the earliest change.
        if shortage.is_early or (shortage.quota, shortage.line) not in fixes:
            fixes[shortage.quota, shortage.line] = shortage.fix
    return "; ".join(reasons), join_names([*fixes.values()])


def check_claim_counts(shortages: Iterable[ClaimShortage]) -> Iterator[Blocker]:
    """Yield a blocker for each kind of line that pods would wait for."""
    by_line: dict[str, list[ClaimShortage]] = {}
    for shortage in shortages:
        if shortage.stops_pods:
            by_line.setdefault(shortage.line, []).append(shortage)
    for own in by_line.values():
        message, fix = describe_shortages(own)
        yield Blocker(
            code=Code.EXCEEDS_QUOTA.value,
            message=message,
            fix=fix,
            objects=tuple(dict.fromkeys(name for entry in own for name in entry.workloads)),
        )


def _lines(quota: ResourceQuota) -> Mapping[str, Quantity]:
    """Return the lines of a quota that count claims or templates; one with scopes counts neither."""
    if quota_of(quota).scopes:
        return {}
    hard = quota.spec.hard or quota.status.hard or {}
    return {line: hard[line] for line in (CLAIM_COUNT, TEMPLATE_COUNT) if line in hard}


def _of_namespaces(
    objects: Mapping[tuple[str, str], T], namespaces: Collection[str]
) -> Mapping[str, Mapping[tuple[str, str], T]]:
    """Return each of some namespaces to its objects."""
    groups: dict[str, dict[tuple[str, str], T]] = {namespace: {} for namespace in namespaces}
    for name, entry in objects.items():
        if name[0] in groups:
            groups[name[0]][name] = entry
    return groups


def _needed_claims(
    workloads: Iterable[AssessedWorkload], claims: Mapping[tuple[str, str], ResourceClaim]
) -> _Need:
    """Return the claims that workloads of a namespace need, with those that are there already."""
    number = surge = 0
    names, rollouts = [], []
    members: set[tuple[str, str]] = set()
    for workload in workloads:
        of_pod = _claims_of_pod(workload)
        members |= workload.members
        if not of_pod or not workload.pods:
            continue
        number += of_pod * workload.pods
        names.append(workload.key.reference)
        more = of_pod * surge_of(workload)
        if more:
            surge += more
            rollouts.append(workload.key.reference)
    own = len(claims) - len(release_claims(claims, members))
    return _Need(
        number=number, own=own, surge=surge, rollouts=tuple(rollouts), workloads=tuple(names)
    )


def _needed_templates(
    workloads: Iterable[AssessedWorkload], existing: Mapping[tuple[str, str], ResourceClaimTemplate]
) -> _Need:
    """Return the templates that workloads of a namespace need; equal claims of several have one."""
    templates: set[tuple[str, str]] = set()
    names = []
    for workload in workloads:
        if workload.outcome is Outcome.NATIVE or not workload.pods:
            continue
        own = {name for name, _ in build_templates(workload)}
        if own:
            templates |= own
            names.append(workload.key.reference)
    return _Need(
        number=len(templates), own=len(templates & existing.keys()), workloads=tuple(names)
    )


def _claims_of_pod(workload: AssessedWorkload) -> int:
    """Return the number of claims of one pod; kube-scheduler creates one for all extended resources."""
    claims = workload.result.claims if workload.result is not None else ()
    return min(len(claims), 1) if workload.outcome is Outcome.NATIVE else len(claims)


def surge_of(workload: AssessedWorkload) -> int:
    """Return the number of pods that a rollout of a workload starts before it ends one."""
    if workload.key.kind != "Deployment" or workload.result is None:
        return 0
    return surge_pods(mapping_at(workload.result.source.document, "spec"))


def surge_pods(spec: Mapping[str, Any]) -> int:
    """Return the number of pods that a rollout starts before it ends one; 0 if it ends some first.

    Args:
        spec: The spec of a Deployment.

    Source: k8s.io/kubernetes v1.37.1, pkg/controller/deployment/util, ResolveFenceposts and NewRSNewReplicas; both
    defaults are 25%, and there are never more new pods than replicas.
    """
    replicas = spec.get("replicas", 1)
    strategy = mapping_at(spec, "strategy")
    if strategy.get("type") == "Recreate" or not isinstance(replicas, int) or replicas < 1:
        return 0
    settings = mapping_at(strategy, "rollingUpdate")
    if _share(settings.get("maxUnavailable", _DEFAULT), replicas) > 0:
        return 0
    # If both amounts are 0, one pod may be unavailable.
    return min(_share(settings.get("maxSurge", _DEFAULT), replicas, rounds_up=True), replicas)


def _share(value: object, number: int, *, rounds_up: bool = False) -> int:
    """Return an amount of pods, or a percentage of them."""
    if isinstance(value, int):
        return max(value, 0)
    digits = str(value).removesuffix("%").lstrip("0")[:_DIGITS]
    percentage = int(digits) if digits.isascii() and digits.isdecimal() else 0
    return (number * percentage + (99 if rounds_up else 0)) // 100
