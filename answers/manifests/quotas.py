"""ResourceQuotas charged with the objects of manifests, one after the other. Pure.

The API server rejects a claim, or a pod with extended resources, that would exceed a quota. The claims
of a pod's templates are made later, so such a pod is accepted, and waits for its claims.

Source: k8s.io/apiserver v0.37.1, plugin/resourcequota, CheckRequest; pkg/quota/v1/evaluator/core of
k8s.io/kubernetes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from allocator.pods.claims import Name
from allocator.pods.extended_resource_claim import (
    device_plugin_resources,
    extended_resource_claim,
    mapped_resources,
)
from answers.manifests.translate import TranslatedObject
from answers.model.cluster_state import ClusterState, build_state
from answers.model.findings import namespace_of
from answers.model.inputs import Inputs
from answers.model.kinds import STATE_KINDS
from answers.model.kubernetes_version import Version
from answers.model.objects import decode_objects, merge_objects, of_kind
from answers.model.views import decode_view
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from kube.api.conversion import CURRENT, to_current_version
from kube.api.core import FINISHED_PHASES, Pod, ResourceQuota
from kube.api.custom_workloads import WorkloadKind, embedded_pods, workload_kind
from kube.api.extended_resources import extended_resources
from kube.api.resource import DeviceClaim, ResourceClaim
from kube.api.workloads import pod_path, resolve_path
from kube.quantity import ZERO, Quantity
from quotas.scopes import Quota, quota_of, scopes_of
from quotas.usage import (
    REQUESTS,
    Usage,
    claim_usage,
    pod_usage,
    subtract_usage,
)
from translation.record.claim_sources import locate_at_keys, match_claims

_DEVICES: Final = FieldPath.of("spec", "devices")
_FIX: Final = "request less, delete what is not in use, or raise the quota"
EXTENDED_RESOURCES_SINCE: Final = (1, 35)
"""From this version on claims count in quotas of extended resources.

Source: pkg/quota/v1/evaluator/core/resource_claims.go of Kubernetes 1.34.4 and 1.35.4.
"""
_REPLICAS: Final[Mapping[str, str]] = {
    "Deployment": "replicas",
    "ReplicaSet": "replicas",
    "ReplicationController": "replicas",
    "StatefulSet": "replicas",
    "Job": "parallelism",
}
"""Kind of a workload to the field of its spec with the number of pods at a time."""


def check_quotas(
    inputs: Inputs, results: Sequence[TranslatedObject], kubernetes: Version | None = None
) -> list[tuple[Finding, ...]]:
    """Return the findings about quotas for each object, in the order in which they are applied.

    Args:
        kubernetes: Version of the API server; None for the newest.
    """
    templates = [
        replace(result.source, document=dict(template))
        for result in results
        for template in result.templates
    ]
    before, _ = decode_objects(inputs.state, STATE_KINDS, inputs.namespace)
    objects = merge_objects(inputs.state, (*inputs.manifests, *templates), inputs.namespace)
    views, _ = decode_objects(objects, STATE_KINDS, inputs.namespace)
    quotas = of_kind(views, ResourceQuota)
    if not quotas:
        return [()] * len(results)
    quota_ledger = QuotaLedger(
        quotas,
        before=build_state(before),
        state=build_state(views),
        counts_extended=kubernetes is None or kubernetes >= EXTENDED_RESOURCES_SINCE,
    )
    return [_charge(quota_ledger, result, inputs.namespace) for result in results]


def _charge(
    quota_ledger: "QuotaLedger", result: TranslatedObject, namespace: str
) -> tuple[Finding, ...]:
    """Charge an object as it is after its translation; a rejected one counts nothing."""
    if result.document is None:
        return ()
    source, place = result.source, namespace_of(result.source, namespace)
    custom = workload_kind(source.api_version, source.kind)
    if custom is not None:
        return tuple(_charge_custom(quota_ledger, result, custom, place))
    path = pod_path(source.api_version, source.kind)
    if path is None:
        current_document = to_current_version(result.document)
        is_claim = source.kind == "ResourceClaim" and current_document["apiVersion"] == CURRENT
        claim = decode_view(current_document, ResourceClaim) if is_claim else None
        return quota_ledger.charge_claim(place, claim) if isinstance(claim, ResourceClaim) else ()
    _, document = resolve_path(result.document, path)
    pod = decode_view(document, Pod) if document is not None else None
    if not isinstance(pod, Pod):
        return ()
    number = pods_at_a_time(source.kind, result.document)
    findings = quota_ledger.charge_pods(place, pod, FieldPath.of(*path), number)
    if not result.is_translated:
        return findings
    claims = match_claims(pod.spec.resource_claims or (), result.claims)
    return tuple(locate_at_keys(finding, FieldPath.of(*path), claims) for finding in findings)


def _charge_custom(
    quota_ledger: "QuotaLedger", result: TranslatedObject, kind: WorkloadKind, namespace: str
) -> Iterator[Finding]:
    """Charge the pods of a workload of another project; of one without claims nothing is known."""
    if not kind.has_claims:
        return
    for embedded in embedded_pods(kind, result.document or {}):
        pod = decode_view(embedded.template, Pod)
        if not isinstance(pod, Pod):
            continue
        path = FieldPath.of(*embedded.path)
        claims = match_claims(pod.spec.resource_claims or (), result.claims)
        for finding in quota_ledger.charge_pods(namespace, pod, path, embedded.number):
            yield locate_at_keys(finding, path, claims) if result.is_translated else finding


def pods_at_a_time(kind: str, document: Mapping[str, Any]) -> int:
    """Return how many pods an object has at a time; 1 where that is unknown."""
    spec = document.get("spec")
    number = spec.get(_REPLICAS.get(kind, ""), 1) if isinstance(spec, Mapping) else 1
    return number if isinstance(number, int) and number >= 0 else 1


class _Exceeded(NamedTuple):
    """A resource that would exceed a quota."""

    resource: str
    amount: Quantity
    used: Quantity
    hard: Quantity


class _Excess(NamedTuple):
    """A quota that would be exceeded."""

    quota: str
    resources: tuple[_Exceeded, ...]

    def message(self, pods: int = 1) -> str:
        """Return the amounts in one phrase, as those of a number of pods."""
        by = f" by {pods} pods" if pods > 1 else ""
        amounts = (
            f"{resource.resource}: requested {resource.amount}{by}, used {resource.used}, hard {resource.hard}"
            for resource in self.resources
        )
        return f"exceeds ResourceQuota {self.quota}: {', and '.join(amounts)}"


class _Account(msgspec.Struct, kw_only=True):
    """A ResourceQuota, and what is used of it; `used` grows."""

    name: str
    quota: Quota
    hard: Usage
    used: dict[str, Quantity]

    def excess(self, usage: Usage) -> _Excess | None:
        """Return the usage that would exceed the quota; None if none would."""
        excesses = [
            _Exceeded(resource, amount, used, self.hard[resource])
            for resource, amount in sorted(usage.items())
            if resource in self.hard and amount > ZERO
            if (used := self.used.get(resource, ZERO)) + amount > self.hard[resource]
        ]
        return _Excess(self.name, tuple(excesses)) if excesses else None

    def charge(self, usage: Usage) -> None:
        """Add an amount to what is used."""
        for resource, amount in usage.items():
            self.used[resource] = self.used.get(resource, ZERO) + amount


class _PodRequest(NamedTuple):
    """The usage of one pod.

    Attributes:
        own: Its extended resources.
        claims: For each claim that is made for it the path in the pod, and what it counts.
    """

    own: Usage
    claims: tuple[tuple[FieldPath, Usage], ...]


class QuotaLedger:
    """The ResourceQuotas of all namespaces, and what is used of them."""

    def __init__(
        self,
        quotas: Iterable[tuple[str, ResourceQuota]],
        *,
        before: ClusterState,
        state: ClusterState,
        counts_extended: bool = True,
    ) -> None:
        """Begin with what objects of the cluster use.

        Args:
            quotas: Each with its namespace.
            before: The cluster without the manifests.
            state: The cluster with the manifests.
            counts_extended: As of `claim_usage`.
        """
        self._before, self._state = before, state
        self._counts_extended = counts_extended
        self._mapped_resources = extended_resources(state.classes.values())
        self._plugins = frozenset(
            name for node in state.nodes for name in device_plugin_resources(node)
        )
        self._accounts: dict[str, list[_Account]] = {}
        for namespace, quota in quotas:
            self._accounts.setdefault(namespace, []).append(self._account(namespace, quota))

    def _account(self, namespace: str, quota: ResourceQuota) -> _Account:
        hard = quota.status.hard or quota.spec.hard or {}
        account = _Account(name=quota.metadata.name, quota=quota_of(quota), hard=hard, used={})
        if quota.status.used is not None:
            account.used = dict(quota.status.used)
            return account
        for (place, _), claim in self._before.claims.items():
            if place == namespace and not account.quota.scopes:
                account.charge(self._claim_usage(claim.spec.devices, self._before))
        for (place, _), pod in self._before.pods.items():
            if (
                place == namespace
                and not _is_finished(pod)
                and account.quota.counts(scopes_of(pod))
            ):
                account.charge(pod_usage(pod))
        return account

    def charge_claim(self, namespace: str, claim: ResourceClaim) -> tuple[Finding, ...]:
        """Return an error for each exceeded quota; charge the claim where there is none."""
        usage = self._claim_usage(claim.spec.devices)
        stored_claim = self._before.claims.get((namespace, claim.metadata.name))
        if stored_claim is not None:
            usage = subtract_usage(usage, self._claim_usage(stored_claim.spec.devices))
        accounts = [
            account for account in self._accounts.get(namespace, ()) if not account.quota.scopes
        ]
        excesses = _excesses(accounts, usage)
        if not excesses:
            for account in accounts:
                account.charge(usage)
        return tuple(
            error(Code.EXCEEDS_QUOTA, _DEVICES, excess.message(), _FIX) for excess in excesses
        )

    def charge_pods(
        self, namespace: str, pod: Pod, path: FieldPath, number: int = 1
    ) -> tuple[Finding, ...]:
        """Return the findings about pods; charge what can be created of them.

        An error means that not even one pod would be created. A pod whose claims would not be
        created waits for them, which is a warning.

        Args:
            path: Of the pod in its object.
            number: Of equal pods.
        """
        accounts = self._accounts.get(namespace, ())
        if not accounts or not number or self._exists(namespace, pod):
            return ()
        request = self._pod_request(namespace, pod)
        findings = [*self._charge_own(accounts, pod, request.own, path, number)]
        if any(finding.is_error for finding in findings):
            return tuple(findings)
        return (*findings, *self._charge_claims(accounts, request.claims, path, number))

    def _charge_own(
        self, accounts: Sequence[_Account], pod: Pod, usage: Usage, path: FieldPath, number: int
    ) -> Iterator[Finding]:
        """Yield the reasons why the API server would not create the pods."""
        scopes = scopes_of(pod)
        counting = [account for account in accounts if account.quota.counts(scopes)]
        for make, times in ((error, 1), (warning, number)):
            excesses = _excesses(counting, _times(usage, times))
            for excess in excesses:
                resource = excess.resources[0].resource.removeprefix(REQUESTS)
                place = path.join(_place_of_resource(pod, resource))
                yield make(Code.EXCEEDS_QUOTA, place, excess.message(times), _FIX)
            if excesses:
                return
        for account in counting:
            account.charge(_times(usage, number))

    def _charge_claims(
        self,
        accounts: Sequence[_Account],
        claims: Iterable[tuple[FieldPath, Usage]],
        path: FieldPath,
        number: int,
    ) -> Iterator[Finding]:
        """Yield the reasons why the claims of the pods would not be created."""
        counting = [account for account in accounts if not account.quota.scopes]
        for place, usage in claims:
            for times in dict.fromkeys((1, number)):
                excesses = _excesses(counting, _times(usage, times))
                waits = (
                    "the pod waits for its claim"
                    if times == 1
                    else "some pods wait for their claims"
                )
                for excess in excesses:
                    text = f"{excess.message(times)}; {waits}"
                    yield warning(Code.EXCEEDS_QUOTA, path.join(place), text, _FIX)
                if excesses:
                    break
            else:
                for account in counting:
                    account.charge(_times(usage, number))

    def _exists(self, namespace: str, pod: Pod) -> bool:
        """Return whether the cluster has the pod, or pods of its workload, which count already."""
        if (namespace, pod.metadata.name) in self._before.pods:
            return True
        labels = pod.labels.items()
        return bool(labels) and any(
            place == namespace and labels <= other.labels.items()
            for (place, _), other in self._before.pods.items()
        )

    def _pod_request(self, namespace: str, pod: Pod) -> _PodRequest:
        own = pod_usage(pod)
        claims = [*self._template_claims(namespace, pod)]
        resources = mapped_resources(pod, self._mapped_resources) - self._plugins
        if resources:
            claim = extended_resource_claim(pod, resources, self._mapped_resources)
            usage = subtract_usage(self._claim_usage(claim.spec.devices), own)
            claims.append((FieldPath.of("spec", "containers"), usage))
        return _PodRequest(own, tuple(claims))

    def _template_claims(self, namespace: str, pod: Pod) -> Iterator[tuple[FieldPath, Usage]]:
        for index, entry in enumerate(pod.spec.resource_claims or ()):
            name: Name = (namespace, entry.resource_claim_template_name or "")
            template = self._state.templates.get(name)
            if template is not None:
                path = FieldPath.of("spec", "resourceClaims", index, "resourceClaimTemplateName")
                yield path, self._claim_usage(template.spec.spec.devices)

    def _claim_usage(self, claim: DeviceClaim, state: ClusterState | None = None) -> Usage:
        classes = (state or self._state).classes
        return claim_usage(claim, classes, counts_extended=self._counts_extended)


def _times(usage: Usage, number: int) -> Usage:
    return {name: amount * number for name, amount in usage.items()}


def _excesses(accounts: Iterable[_Account], usage: Usage) -> list[_Excess]:
    excesses = (account.excess(usage) for account in accounts)
    return [excess for excess in excesses if excess is not None]


def _place_of_resource(pod: Pod, resource: str) -> FieldPath:
    """Return the path of the first amount of an extended resource."""
    containers = (
        *(("initContainers", *entry) for entry in enumerate(pod.spec.init_containers or ())),
        *(("containers", *entry) for entry in enumerate(pod.spec.containers or ())),
    )
    for field, index, container in containers:
        for section, amounts in (("limits", container.limits), ("requests", container.requests)):
            if resource in amounts:
                return FieldPath.of("spec", field, index, "resources", section).key(resource)
    return FieldPath.of("spec", "containers")


def _is_finished(pod: Pod) -> bool:
    return pod.status is not None and pod.status.phase in FINISHED_PHASES
