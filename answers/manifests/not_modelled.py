"""The parts of scheduling that nothing here models, and the pods that use one. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from answers.model.findings import reference
from findings.text import join_names, printable
from kube.manifests.source import SourceObject
from kube.names import QUOTA_GATE

Spec = Mapping[str, Any]
"""The `spec` of a pod as written; any value may be of a wrong type."""

_NAMED: Final = 3
"""Pods that a sentence names."""


class UnmodelledFeature(NamedTuple):
    """A part of scheduling that is not modelled.

    Attributes:
        name: A plural or an uncountable noun.
        is_used: Whether a pod depends on it.
    """

    name: str
    is_used: Callable[[Spec], bool]


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _has_host_ports(spec: Spec) -> bool:
    containers = (*_list(spec.get("containers")), *_list(spec.get("initContainers")))
    return any(
        _mapping(port).get("hostPort")
        for container in containers
        for port in _list(_mapping(container).get("ports"))
    )


def _has_volumes(spec: Spec) -> bool:
    """Return True if a pod has volumes that decide about its node."""
    deciding = {"persistentVolumeClaim", "ephemeral", "csi"}
    return any(deciding & _mapping(volume).keys() for volume in _list(spec.get("volumes")))


def _has_pod_affinity(spec: Spec) -> bool:
    affinity = _mapping(spec.get("affinity"))
    return bool(affinity.get("podAffinity") or affinity.get("podAntiAffinity"))


def _has_preferred_node_affinity(spec: Spec) -> bool:
    node_affinity = _mapping(_mapping(spec.get("affinity")).get("nodeAffinity"))
    return bool(node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution"))


def _has_gates(spec: Spec) -> bool:
    """Return True if a pod has scheduling gates; the DeviceQuotas behind ours are modelled."""
    return any(
        _mapping(gate).get("name") != QUOTA_GATE for gate in _list(spec.get("schedulingGates"))
    )


FEATURES: Final = (
    UnmodelledFeature("host ports", _has_host_ports),
    UnmodelledFeature("volumes", _has_volumes),
    UnmodelledFeature("affinity between pods", _has_pod_affinity),
    UnmodelledFeature("preferred node affinity", _has_preferred_node_affinity),
    UnmodelledFeature("topology spread", lambda spec: bool(spec.get("topologySpreadConstraints"))),
    UnmodelledFeature("scheduling gates", _has_gates),
)
NOT_MODELLED: Final = tuple(feature.name for feature in FEATURES)
"""The checks of a scheduler that nothing here does."""


def used_features(objects: Iterable[SourceObject], namespace: str) -> Iterator[str]:
    """Yield each feature that pods use, with the first of these pods: `volumes (Pod/a/b)`.

    Args:
        objects: Manifests; those that are no pods use nothing.
        namespace: The namespace for objects that name none.
    """
    specs = [
        (printable(reference(pod, namespace)), _mapping(pod.document.get("spec")))
        for pod in objects
        if pod.kind == "Pod"
    ]
    for feature in FEATURES:
        names = [name for name, spec in specs if feature.is_used(spec)]
        if names:
            yield f"{feature.name} ({join_names(names, _NAMED)})"
