"""The pods that a ResourceQuota counts: those that match all of its scopes.

Source: k8s.io/kubernetes pkg/quota/v1/evaluator/core, podMatchesScopeFunc; pkg/apis/core/v1/helper/qos,
ComputePodQOS. A quota with a scope counts no claims (resource_claims.go, MatchingScopes).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from kube.api.core import Pod, ResourceQuota
from kube.api.extended_resources import IMPLICIT_PREFIX
from kube.quantity import ZERO, Quantity

PRIORITY_CLASS: Final = "PriorityClass"
REQUESTS: Final = "requests."
"""Prefix of the quota resource for an extended resource."""
_DEVICES_OF_CLASS: Final = ".deviceclass.resource.k8s.io/devices"
_QOS_RESOURCES: Final = ("cpu", "memory")


def devices_of_class(name: str) -> str:
    """Return the quota resource for the devices of a DeviceClass.

    >>> devices_of_class("gpu.nvidia.com")
    'gpu.nvidia.com.deviceclass.resource.k8s.io/devices'
    """
    return f"{name}{_DEVICES_OF_CLASS}"


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """A condition on pods.

    Attributes:
        operator: Exists, DoesNotExist, In or NotIn for `PriorityClass`, Exists for all others.
    """

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a ResourceQuota that preflight checks read.

    Attributes:
        names: The keys of `spec.hard`.
        scopes: The scopes that a counted pod must match.
    """

    names: frozenset[str]
    scopes: tuple[Scope, ...] = ()

    def counts(self, pod: "PodScopes") -> bool:
        """Return True if the quota counts a pod."""
        return all(pod.matches(scope) for scope in self.scopes)

    def counts_class(self, name: str) -> bool:
        """Return True if the quota counts the devices of a DeviceClass, by either of its names."""
        implicit_name = f"{REQUESTS}{IMPLICIT_PREFIX}{name}"
        return devices_of_class(name) in self.names or implicit_name in self.names

    def counted_keys(self) -> frozenset[str]:
        """Return the resource names that the quota counts requests of."""
        return frozenset(
            name.removeprefix(REQUESTS) for name in self.names if name.startswith(REQUESTS)
        )


class PodScopes(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a pod that quota scopes match.

    Attributes:
        names: The scopes that match the pod, other than `PriorityClass`.
        priority_class: Empty for none.
    """

    names: tuple[str, ...] = ()
    priority_class: str = ""

    def matches(self, scope: Scope) -> bool:
        """Return True if the pod matches a scope; no pod matches an unknown scope."""
        if scope.name != PRIORITY_CLASS:
            return scope.name in self.names
        has_class, is_listed = bool(self.priority_class), self.priority_class in scope.values
        match scope.operator:
            case "Exists":
                return has_class
            case "DoesNotExist":
                return not has_class
            case "In":
                return has_class and is_listed
            case "NotIn":
                return not (has_class and is_listed)
            case _:
                return False


def quota_of(quota: ResourceQuota) -> Quota:
    """Return the part of a ResourceQuota that preflight checks read."""
    selector = quota.spec.scope_selector
    return Quota(
        names=frozenset(quota.spec.hard or ()),
        scopes=(
            *(Scope(name=name) for name in quota.spec.scopes or ()),
            *(
                Scope(
                    name=requirement.scope_name,
                    operator=requirement.operator,
                    values=requirement.values or (),
                )
                for requirement in (selector.match_expressions if selector else None) or ()
            ),
        ),
    )


def scopes_of(pod: Pod) -> PodScopes:
    """Return the quota scopes that match a pod."""
    deadline_s = pod.spec.active_deadline_seconds
    names = {
        "NotTerminating" if deadline_s is None or deadline_s < 0 else "Terminating",
        "BestEffort" if _is_best_effort(pod) else "NotBestEffort",
    }
    if any(_crosses_namespaces(pod)):
        names.add("CrossNamespacePodAffinity")
    return PodScopes(names=tuple(sorted(names)), priority_class=pod.spec.priority_class_name)


def _is_best_effort(pod: Pod) -> bool:
    return not any(
        amount > ZERO
        for amounts in _amounts(pod)
        for name, amount in amounts.items()
        if name in _QOS_RESOURCES
    )


def _amounts(pod: Pod) -> Iterator[Mapping[str, Quantity]]:
    resources = pod.spec.resources
    if resources is not None and (resources.limits or resources.requests):
        # Pod-level resources take precedence over those of the containers.
        yield from (resources.limits or {}, resources.requests or {})
        return
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        yield from (container.limits, container.requests)


def _crosses_namespaces(pod: Pod) -> Iterator[bool]:
    """Yield for each pod affinity term True if it selects other namespaces."""
    affinity = pod.spec.affinity
    for side in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ():
        required_terms = _terms(side, "requiredDuringSchedulingIgnoredDuringExecution")
        preferred_terms = _terms(side, "preferredDuringSchedulingIgnoredDuringExecution")
        pod_affinity_terms = (term.get("podAffinityTerm") for term in preferred_terms)
        for term in (*required_terms, *pod_affinity_terms):
            if isinstance(term, Mapping):
                yield bool(term.get("namespaces")) or term.get("namespaceSelector") is not None


def _terms(side: Mapping[str, Any] | None, field: str) -> tuple[Mapping[str, Any], ...]:
    listed_terms = (side or {}).get(field)
    terms = listed_terms if isinstance(listed_terms, list | tuple) else ()
    return tuple(term for term in terms if isinstance(term, Mapping))
