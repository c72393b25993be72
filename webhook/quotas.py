"""Which pods a ResourceQuota counts: those that all of its scopes match.

Source: k8s.io/kubernetes pkg/quota/v1/evaluator/core, podMatchesScopeFunc; pkg/apis/core/v1/helper/qos,
ComputePodQOS. A quota with a scope counts no claims (resource_claims.go, MatchingScopes).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from kube.api.core import Pod, ResourceQuota
from kube.quantity import Quantity

PRIORITY_CLASS: Final = "PriorityClass"
_QOS_RESOURCES: Final = ("cpu", "memory")


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """One condition on pods.

    Attributes:
        operator: Of `PriorityClass`: Exists, DoesNotExist, In or NotIn; of all others it is Exists.
    """

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """What a ResourceQuota counts.

    Attributes:
        names: The keys of `spec.hard`.
        scopes: A pod is counted that matches all of them.
    """

    names: frozenset[str]
    scopes: tuple[Scope, ...] = ()

    def counts(self, pod: "Scopes") -> bool:
        """Whether a pod uses it."""
        return all(pod.matches(scope) for scope in self.scopes)


class Scopes(msgspec.Struct, frozen=True, kw_only=True):
    """What scopes look at in a pod.

    Attributes:
        names: Of the scopes that match it, other than `PriorityClass`.
        priority_class: Empty for none.
    """

    names: tuple[str, ...] = ()
    priority_class: str = ""

    def matches(self, scope: Scope) -> bool:
        """Whether the pod is in a scope; in one that nobody knows it is not."""
        if scope.name != PRIORITY_CLASS:
            return scope.name in self.names
        has_one, is_listed = bool(self.priority_class), self.priority_class in scope.values
        match scope.operator:
            case "Exists":
                return has_one
            case "DoesNotExist":
                return not has_one
            case "In":
                return has_one and is_listed
            case "NotIn":
                return not (has_one and is_listed)
            case _:
                return False


def quota_of(found: ResourceQuota) -> Quota:
    """Return what a ResourceQuota counts."""
    selected = found.spec.scope_selector
    return Quota(
        names=frozenset(found.spec.hard or ()),
        scopes=(
            *(Scope(name=name) for name in found.spec.scopes or ()),
            *(
                Scope(name=one.scope_name, operator=one.operator, values=one.values or ())
                for one in (selected.match_expressions if selected else None) or ()
            ),
        ),
    )


def scopes_of(pod: Pod) -> Scopes:
    """Return what scopes look at in a pod."""
    deadline_s = pod.spec.active_deadline_seconds
    names = {
        "NotTerminating" if deadline_s is None or deadline_s < 0 else "Terminating",
        "BestEffort" if _is_best_effort(pod) else "NotBestEffort",
    }
    if any(_namespaces_of_others(pod)):
        names.add("CrossNamespacePodAffinity")
    return Scopes(names=tuple(sorted(names)), priority_class=pod.spec.priority_class_name)


def _is_best_effort(pod: Pod) -> bool:
    return not any(
        amount > Quantity(0)
        for amounts in _amounts(pod)
        for name, amount in amounts.items()
        if name in _QOS_RESOURCES
    )


def _amounts(pod: Pod) -> Iterator[Mapping[str, Quantity]]:
    whole = pod.spec.resources
    if whole is not None and (whole.limits or whole.requests):
        # What is said of the pod as a whole beats its containers.
        yield from (whole.limits or {}, whole.requests or {})
        return
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        yield from (container.limits, container.requests)


def _namespaces_of_others(pod: Pod) -> Iterator[bool]:
    """Yield for each term of affinity to pods whether it names other namespaces."""
    affinity = pod.spec.affinity
    for side in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ():
        required = _terms(side, "requiredDuringSchedulingIgnoredDuringExecution")
        preferred = _terms(side, "preferredDuringSchedulingIgnoredDuringExecution")
        inside = (term.get("podAffinityTerm") for term in preferred)
        for term in (*required, *inside):
            if isinstance(term, Mapping):
                yield bool(term.get("namespaces")) or term.get("namespaceSelector") is not None


def _terms(side: Mapping[str, Any] | None, field: str) -> tuple[Mapping[str, Any], ...]:
    found = (side or {}).get(field)
    listed = found if isinstance(found, list | tuple) else ()
    return tuple(term for term in listed if isinstance(term, Mapping))
