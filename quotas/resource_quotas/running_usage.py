"""ResourceQuotas charged with pods that come and go, and their claims.

Of the amounts of pods those are counted that a replay knows: pods, requests of CPU, memory, ephemeral storage and
extended resources, and of claims their number and their devices by class.

Source: k8s.io/kubernetes v1.37.1, pkg/quota/v1/evaluator/core, PodUsageFunc and claimEvaluator.Usage.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from allocator.nodes.amounts import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from allocator.nodes.pod_requests import pod_request
from allocator.pods.claims import pod_place
from allocator.pods.extended_resource_claim import ANNOTATION
from kube.api.core import Pod, ResourceQuota
from kube.api.resource import DeviceClass, ResourceClaim
from kube.quantity import ZERO, Quantity
from quotas.resource_quotas.scopes import Quota, quota_of, scopes_of
from quotas.resource_quotas.usage import (
    CLAIM_COUNT,
    REQUESTS,
    Usage,
    claim_usage,
    is_of_devices,
    pod_usage,
    subtract_usage,
)

_COUNT_PODS: Final = "count/pods"
_NATIVE: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
_COUNTED: Final = frozenset(
    {PODS, _COUNT_PODS, CLAIM_COUNT, *_NATIVE, *(f"{REQUESTS}{name}" for name in _NATIVE)}
)


class _Account:
    """A quota and its usage."""

    def __init__(self, quota: ResourceQuota) -> None:
        self.name = quota.metadata.name
        self.hard: Usage = quota.spec.hard or {}
        self.used: dict[str, Quantity] = {}
        self.scopes: Quota = quota_of(quota)

    def is_exceeded_by(self, usage: Usage) -> str:
        """Return the first resource that a usage would exceed; empty if none."""
        for resource, amount in usage.items():
            hard = self.hard.get(resource)
            if hard is not None and amount > ZERO and self.used.get(resource, ZERO) + amount > hard:
                return resource
        return ""

    def add(self, usage: Usage, sign: int) -> None:
        """Add a usage, or take it back with a sign of -1."""
        for resource, amount in usage.items():
            before = self.used.get(resource, ZERO)
            self.used[resource] = Quantity.from_nanos(
                before.nanos + sign * amount.nanos, amount.format
            )


class _Charge(NamedTuple):
    """The usage of a pod in an account."""

    account: _Account
    usage: Usage


class RunningUsage:
    """The ResourceQuotas of all namespaces, and their use by pods."""

    def __init__(self, quotas: Iterable[ResourceQuota], classes: Mapping[str, DeviceClass]) -> None:
        """Begin without pods.

        Args:
            quotas: Each with its namespace.
            classes: Name to DeviceClass.
        """
        self._classes = classes
        self._accounts: dict[str, list[_Account]] = {}
        for quota in quotas:
            self._accounts.setdefault(quota.metadata.namespace, []).append(_Account(quota))
        self._charges: dict[Hashable, Sequence[_Charge]] = {}

    def replace_classes(self, classes: Mapping[str, DeviceClass]) -> None:
        """Take other DeviceClasses; earlier charges stay as they are."""
        self._classes = classes

    def excess(self, pod: Pod, claims: Sequence[ResourceClaim]) -> str:
        """Return the first quota and resource that a pod would exceed; empty if it exceeds none."""
        for account, usage in self._charges_of(pod, claims):
            resource = account.is_exceeded_by(usage)
            if resource:
                return f"{account.name}, {resource}"
        return ""

    def charge(self, pod: Pod, claims: Sequence[ResourceClaim]) -> None:
        """Charge a pod and its claims, in place of any earlier charge."""
        self.release(pod)
        charges = tuple(self._charges_of(pod, claims))
        self._charges[pod_place(pod)] = charges
        for account, usage in charges:
            account.add(usage, 1)

    def release(self, pod: Pod) -> None:
        """Take back the charge of a pod."""
        self.release_claim(pod_place(pod))

    def charge_claim(self, key: Hashable, claim: ResourceClaim) -> None:
        """Charge a claim that several pods use, in place of any earlier charge.

        Args:
            key: No pod's namespace and name.
        """
        self.release_claim(key)
        usage = claim_usage(claim.spec.devices, self._classes)
        accounts = self._accounts.get(claim.metadata.namespace, ())
        self._charges[key] = [
            _Charge(account, usage) for account in accounts if not account.scopes.scopes
        ]
        for account, amount in self._charges[key]:
            account.add(amount, 1)

    def release_claim(self, key: Hashable) -> None:
        """Take back the charge of a claim; arguments as of `charge_claim`."""
        for account, usage in self._charges.pop(key, ()):
            account.add(usage, -1)

    def _charges_of(self, pod: Pod, claims: Sequence[ResourceClaim]) -> Iterator[_Charge]:
        accounts = self._accounts.get(pod.metadata.namespace, ())
        if not accounts:
            return
        own, scopes = _pod_usage(pod), scopes_of(pod)
        of_claims: dict[str, Quantity] = {}
        for claim in claims:
            usage = claim_usage(claim.spec.devices, self._classes)
            if (claim.metadata.annotations or {}).get(ANNOTATION) == "true":
                # Its extended resources count with the pod already.
                usage = subtract_usage(usage, own)
            _add(of_claims, usage)
        for account in accounts:
            total: dict[str, Quantity] = {}
            if account.scopes.counts(scopes):
                _add(total, own)
            if not account.scopes.scopes:
                _add(total, of_claims)
            yield _Charge(account, total)


def uncounted_resources(quota: ResourceQuota) -> tuple[str, ...]:
    """Return the resources of a quota that are not counted.

    >>> from kube.api.core import ResourceQuotaSpec
    >>> hard = {"limits.cpu": ZERO, "requests.cpu": ZERO, "services": ZERO}
    >>> uncounted_resources(ResourceQuota(spec=ResourceQuotaSpec(hard=hard)))
    ('limits.cpu', 'services')
    """
    names = sorted(quota.spec.hard or ())
    return tuple(name for name in names if name not in _COUNTED and not is_of_devices(name))


def _pod_usage(pod: Pod) -> Usage:
    amounts = pod_request(pod).amounts
    native = {
        CPU: Quantity.from_nanos(amounts.cpu_milli * 10**6),
        MEMORY: Quantity(amounts.memory),
        EPHEMERAL_STORAGE: Quantity(amounts.ephemeral_storage),
    }
    requests = {f"{REQUESTS}{name}": amount for name, amount in native.items()}
    pod_count = Quantity(1)
    return {PODS: pod_count, _COUNT_PODS: pod_count, **native, **requests, **pod_usage(pod)}


def _add(sums: dict[str, Quantity], usage: Usage) -> None:
    for name, amount in usage.items():
        sums[name] = sums[name] + amount if name in sums else amount
