"""ResourceQuotas charged with claims and pods, one after the other.

The API server rejects a claim, or a pod with extended resources, that would exceed a quota. The claims
of a pod's templates are made later, so such a pod is accepted, and waits for its claims.

Source: k8s.io/apiserver v0.37.1, plugin/resourcequota, CheckRequest; pkg/quota/v1/evaluator/core of
k8s.io/kubernetes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from allocator.pods.claims import Name
from allocator.pods.extended_resource_claim import (
    device_plugin_resources,
    extended_resource_claim,
    mapped_resources,
)
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from findings.fitting import FittingAmount, FittingAmounts
from findings.text import count_text, join_names, printable
from kube.api.core import FINISHED_PHASES, Node, Pod, ResourceQuota
from kube.api.extended_resources import extended_resources
from kube.api.resource import DeviceClaim, DeviceClass, ResourceClaim, ResourceClaimTemplate
from kube.quantity import ZERO, Quantity
from quotas.resource_quotas.scopes import Quota, quota_of, scopes_of
from quotas.resource_quotas.usage import REQUESTS, Usage, claim_usage, pod_usage, subtract_usage

_DEVICES: Final = FieldPath.of("spec", "devices")
_COUNT: Final = FieldPath.of("requests", 0, "exactly", "count")
_OTHERWISE: Final = "delete what is not in use, or raise the quota"
_TAKERS_SHOWN: Final = 3
_FIX: Final = f"request less, {_OTHERWISE}"


class ClusterObjects(Protocol):
    """The objects of a cluster that count in quotas, and those that define the counting."""

    @property
    def classes(self) -> Mapping[str, DeviceClass]:
        """Name to DeviceClass."""
        ...

    @property
    def templates(self) -> Mapping[Name, ResourceClaimTemplate]:
        """Namespace and name to template."""
        ...

    @property
    def claims(self) -> Mapping[Name, ResourceClaim]:
        """Namespace and name to claim."""
        ...

    @property
    def pods(self) -> Mapping[Name, Pod]:
        """Namespace and name to pod."""
        ...

    @property
    def nodes(self) -> Iterable[Node]:
        """All nodes."""
        ...


class _Exceeded(NamedTuple):
    """A resource that would exceed a quota."""

    resource: str
    amount: Quantity
    used: Quantity
    added: Mapping[str, Quantity]
    hard: Quantity

    @property
    def left(self) -> Quantity:
        """The amount that the usage of the cluster and that charged before leave."""
        return max(self.hard - self.used - sum(self.added.values(), ZERO), ZERO)

    @property
    def usage(self) -> str:
        """The usage of the cluster, that charged before, and the limit, as words."""
        takers = [f"{printable(name)} takes {amount}" for name, amount in self.added.items()]
        if not takers:
            return f"used {self.used}, hard {self.hard}"
        unused = max(self.hard - self.used, ZERO)
        return (
            f"{self.hard} - {self.used} used leaves {unused}; {join_names(takers, _TAKERS_SHOWN)}"
        )


class _Excess(NamedTuple):
    """A quota that would be exceeded."""

    quota: str
    resources: tuple[_Exceeded, ...]

    def message(self, pods: int = 1) -> str:
        """Return the amounts in one phrase, as those of a number of pods."""
        by = f" by {pods} pods" if pods > 1 else ""
        amounts = (
            f"{resource.resource}: requested {resource.amount}{by}, {resource.usage}"
            for resource in self.resources
        )
        return f"exceeds ResourceQuota {self.quota}: {', and '.join(amounts)}"


class _Account(msgspec.Struct, kw_only=True):
    """A ResourceQuota and its usage.

    Attributes:
        used: The usage of the cluster.
        added: The usage of what is charged, by name of the object; it grows.
    """

    name: str
    quota: Quota
    hard: Usage
    used: dict[str, Quantity]
    added: dict[str, dict[str, Quantity]] = msgspec.field(default_factory=dict)

    def excess(self, usage: Usage) -> _Excess | None:
        """Return the usage that would exceed the quota; None if none would."""
        excesses = [
            _Exceeded(resource, amount, used, added, self.hard[resource])
            for resource, amount in sorted(usage.items())
            if resource in self.hard and amount > ZERO
            for used in (self.used.get(resource, ZERO),)
            for added in (self.added.get(resource, {}),)
            if used + sum(added.values(), ZERO) + amount > self.hard[resource]
        ]
        return _Excess(self.name, tuple(excesses)) if excesses else None

    def charge(self, usage: Usage, name: str) -> None:
        """Add an amount of an object to the charged usage."""
        for resource, amount in usage.items():
            if amount != ZERO:
                _add(self.added.setdefault(resource, {}), {name: amount})


class EqualPods(NamedTuple):
    """Pods that are made of one template.

    Attributes:
        name: The name of their workload, or of its part.
        number: The number of pods at a time.
        number_paths: The fields of their object that the number is a product of, with their values.
    """

    name: str
    number: int = 1
    number_paths: Mapping[FieldPath, int] = {}


class _NewClaim(NamedTuple):
    """A claim that is created for a pod.

    Attributes:
        place: The path in the pod.
        devices: Its spec.
        own: The extended resources of the pod that it provides, which count with the pod already.
    """

    place: FieldPath
    devices: DeviceClaim
    own: Usage


class _PodRequest(NamedTuple):
    """The usage of one pod.

    Attributes:
        own: Its extended resources.
        claims: The claims that are created for it.
    """

    own: Usage
    claims: tuple[_NewClaim, ...]


class QuotaLedger:
    """The ResourceQuotas of all namespaces and their usage."""

    def __init__(
        self,
        quotas: Iterable[tuple[str, ResourceQuota]],
        *,
        before: ClusterObjects,
        state: ClusterObjects,
        counts_extended: bool = True,
    ) -> None:
        """Begin with the usage of the cluster's objects.

        Args:
            quotas: Each with its namespace.
            before: The cluster without the manifests.
            state: The cluster with the manifests.
            counts_extended: True if claims count as extended resources, as from Kubernetes 1.35 on.
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
                _add(account.used, self._claim_usage(claim.spec.devices, self._before))
        for (place, _), pod in self._before.pods.items():
            if (
                place == namespace
                and not _is_finished(pod)
                and account.quota.counts(scopes_of(pod))
            ):
                _add(account.used, pod_usage(pod))
        return account

    def charge_claim(self, namespace: str, claim: ResourceClaim) -> tuple[Finding, ...]:
        """Return an error for each exceeded quota; charge the claim if there is none."""
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
                account.charge(usage, claim.metadata.name)
        return tuple(
            error(Code.EXCEEDS_QUOTA, _DEVICES, excess.message(), _FIX) for excess in excesses
        )

    def charge_pods(
        self, namespace: str, pod: Pod, path: FieldPath, pods: EqualPods | None = None
    ) -> tuple[Finding, ...]:
        """Charge the pods that can be created, and return findings about the rest.

        An error means that not even one pod would be created. A pod whose claims would not be
        created waits for them, which is a warning.

        Args:
            path: The pod's path in its object.
            pods: Their name and number; None for one pod.
        """
        accounts = self._accounts.get(namespace, ())
        pods = pods or EqualPods(pod.metadata.name)
        if not accounts or not pods.number or self._exists(namespace, pod):
            return ()
        request = self._pod_request(namespace, pod)
        findings = [*self._charge_own(accounts, pod, request.own, path, pods)]
        if any(finding.is_error for finding in findings):
            return tuple(findings)
        return (*findings, *self._charge_claims(accounts, request.claims, path, pods))

    def charge_new_claims(self, namespace: str, pod: Pod) -> tuple[Finding, ...]:
        """Charge the claims of a new pod, regardless of others of its workload.

        Returns:
            A warning for each quota that keeps one from being created.
        """
        accounts = self._accounts.get(namespace, ())
        if not accounts or (namespace, pod.metadata.name) in self._before.pods:
            return ()
        request = self._pod_request(namespace, pod)
        return tuple(
            self._charge_claims(accounts, request.claims, FieldPath(), EqualPods(pod.metadata.name))
        )

    def _charge_own(
        self, accounts: Sequence[_Account], pod: Pod, usage: Usage, path: FieldPath, pods: EqualPods
    ) -> Iterator[Finding]:
        """Yield the reasons that the API server would not create the pods."""
        scopes = scopes_of(pod)
        counting = [account for account in accounts if account.quota.counts(scopes)]
        for make, times in ((error, 1), (warning, pods.number)):
            excesses = _excesses(counting, _times(usage, times))
            for excess in excesses:
                resource = excess.resources[0].resource.removeprefix(REQUESTS)
                place = path.join(_place_of_resource(pod, resource))
                finding = make(Code.EXCEEDS_QUOTA, place, excess.message(times), _FIX)
                yield finding if times == 1 else _with_pods_left(finding, excess, pods)
            if excesses:
                return
        for account in counting:
            account.charge(_times(usage, pods.number), pods.name)

    def _charge_claims(
        self,
        accounts: Sequence[_Account],
        claims: Iterable[_NewClaim],
        path: FieldPath,
        pods: EqualPods,
    ) -> Iterator[Finding]:
        """Yield the reasons that the claims of the pods would not be created."""
        counting = [account for account in accounts if not account.quota.scopes]
        # A pod may have a thousand claims of one template.
        usages: dict[int, Usage] = {}
        for claim in claims:
            usage = usages.get(id(claim.devices))
            if usage is None:
                usage = usages[id(claim.devices)] = self._usage_of_new(claim)
            for times in dict.fromkeys((1, pods.number)):
                excesses = _excesses(counting, _times(usage, times))
                waits = (
                    "the pod waits for its claim"
                    if times == 1
                    else "some pods wait for their claims"
                )
                for excess in excesses:
                    text = f"{excess.message(times)}; {waits}"
                    finding = warning(Code.EXCEEDS_QUOTA, path.join(claim.place), text, _FIX)
                    # Lower numbers of single pods would let more of them in, not all.
                    yield (
                        self._with_number_left(finding, claim, counting)
                        if times == 1
                        else _with_pods_left(finding, excess, pods)
                    )
                if excesses:
                    break
            else:
                for account in counting:
                    account.charge(_times(usage, pods.number), pods.name)

    def _with_number_left(
        self, finding: Finding, claim: _NewClaim, accounts: Sequence[_Account]
    ) -> Finding:
        """Return a finding with the number of devices that all quotas have left for a claim's only request."""
        requests = claim.devices.requests or ()
        exactly = requests[0].exactly if len(requests) == 1 else None
        excesses = _excesses(accounts, self._usage_of_new(claim))
        left = min(amount.left for excess in excesses for amount in excess.resources)
        number = left.nanos // Quantity(1).nanos
        is_beside_others = any(amount.added for excess in excesses for amount in excess.resources)
        if exactly is not None and not number and is_beside_others and (exactly.count or 1) == 1:
            return replace(finding, fix=f"create fewer pods, {_OTHERWISE}")
        if exactly is None or not 0 < number < (exactly.count or 1):
            return finding
        fewer = replace(requests[0], exactly=replace(exactly, count=number))
        devices = replace(claim.devices, requests=(fewer,))
        if _excesses(accounts, self._usage_of_new(claim._replace(devices=devices))):
            return finding
        amount = FittingAmount(claim=finding.path, field=_COUNT, amount=Quantity(number))
        name = f"ResourceQuota {excesses[0].quota}"
        return replace(
            finding,
            cause=_COUNT,
            fix=f"request {count_text(number, 'device')} to fit what is left of {name}, {_OTHERWISE}",
            fitting=FittingAmounts(amounts=(amount,), quota=name),
        )

    def _usage_of_new(self, claim: _NewClaim) -> Usage:
        return subtract_usage(self._claim_usage(claim.devices), claim.own)

    def _exists(self, namespace: str, pod: Pod) -> bool:
        """Return True if the cluster has the pod, or pods of its workload; these count already."""
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
            place = FieldPath.of("spec", "containers")
            claims.append(_NewClaim(place, claim.spec.devices, own))
        return _PodRequest(own, tuple(claims))

    def _template_claims(self, namespace: str, pod: Pod) -> Iterator[_NewClaim]:
        for index, entry in enumerate(pod.spec.resource_claims or ()):
            name: Name = (namespace, entry.resource_claim_template_name or "")
            template = self._state.templates.get(name)
            if template is not None:
                path = FieldPath.of("spec", "resourceClaims", index, "resourceClaimTemplateName")
                yield _NewClaim(path, template.spec.spec.devices, {})

    def _claim_usage(self, claim: DeviceClaim, state: ClusterObjects | None = None) -> Usage:
        classes = (state or self._state).classes
        return claim_usage(claim, classes, counts_extended=self._counts_extended)


def _add(sums: dict[str, Quantity], usage: Usage) -> None:
    for resource, amount in usage.items():
        sums[resource] = sums.get(resource, ZERO) + amount


def _times(usage: Usage, number: int) -> Usage:
    return {name: amount * number for name, amount in usage.items()}


def _excesses(accounts: Iterable[_Account], usage: Usage) -> list[_Excess]:
    excesses = (account.excess(usage) for account in accounts)
    return [excess for excess in excesses if excess is not None]


def _with_pods_left(finding: Finding, excess: _Excess, pods: EqualPods) -> Finding:
    """Return a finding at the field with the number of pods, if fewer of them are within a quota."""
    left = min(
        amount.left.nanos * pods.number // amount.amount.nanos for amount in excess.resources
    )
    if not pods.number_paths or not left:
        return finding
    first, *_ = pods.number_paths
    names = [*dict.fromkeys(str(path.steps[-1]) for path in pods.number_paths)]
    # A product of several fields has several ways to be less.
    is_exact = tuple(pods.number_paths.values()) == (pods.number,)
    how = f"write {names[0]}: {left}" if is_exact else f"write less in {' or '.join(names)}"
    if "parallelism" in names:
        how += ", and in completions unless pods may run one after the other"
    pods_left = count_text(left, "pod")
    return replace(finding, path=first, fix=f"create at most {pods_left} here ({how}), {_FIX}")


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
