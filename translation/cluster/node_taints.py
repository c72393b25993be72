"""Taints of nodes for device keys, and the tolerations of pods for them.

The API server's plugin ExtendedResourceToleration gives each pod with an extended resource a toleration
of the taint of that name. Where the key was removed before the API server sees the pod, nothing does.

Source: kubernetes plugin/pkg/admission/extendedresourcetoleration/admission.go.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kube.api.core import Node, Pod, Taint, Toleration
from kube.api.resource import ResourceSlice
from translation.reading.legacy_pod import containers

EXISTS: Final = "Exists"
NO_SCHEDULE: Final = "NoSchedule"


class NodeTaints(msgspec.Struct, frozen=True, kw_only=True):
    """The taints that keep pods away from nodes, and the tolerations that the API server adds.

    Attributes:
        is_known: True if the nodes are known.
        all_taints: The taints of any node. Likewise `by_driver`, of nodes with devices of a driver.
        by_driver: Driver name to taints, for the drivers whose devices are on nodes by their names.
        are_tolerations_added: True if live pods have tolerations of device keys that their
            templates do not have.
    """

    is_known: bool = False
    all_taints: frozenset[Taint] = frozenset()
    by_driver: Mapping[str, frozenset[Taint]] = {}
    are_tolerations_added: bool = False

    def of_drivers(self, drivers: Iterable[str]) -> frozenset[Taint]:
        """Return the taints of the nodes that have devices of these drivers."""
        return frozenset[Taint]().union(
            *(self.by_driver.get(driver, self.all_taints) for driver in drivers)
        )


def summarize_taints(
    nodes: Iterable[Node],
    slices: Iterable[ResourceSlice],
    *,
    is_known: bool = True,
    are_tolerations_added: bool = False,
) -> NodeTaints:
    """Return the taints of nodes, by the drivers of their devices.

    Args:
        is_known: The field of this name in `NodeTaints`. Likewise `are_tolerations_added`.
    """
    taints = {
        node.metadata.name: frozenset(
            taint for taint in node.spec.taints or () if taint.effect == NO_SCHEDULE
        )
        for node in nodes
    }
    nodes_by_driver: dict[str, set[str]] = {}
    for slice_ in slices:
        if slice_.spec.node_name in taints:
            nodes_by_driver.setdefault(slice_.spec.driver, set()).add(slice_.spec.node_name)
    return NodeTaints(
        is_known=is_known,
        all_taints=frozenset[Taint]().union(*taints.values()),
        by_driver={
            driver: frozenset[Taint]().union(*(taints[name] for name in names))
            for driver, names in sorted(nodes_by_driver.items())
        },
        are_tolerations_added=are_tolerations_added,
    )


def shows_added_tolerations(
    pod: Pod, template: Pod, recorded_keys: Collection[str] = frozenset()
) -> bool:
    """Return True if a pod tolerates a taint of one of its keys as the plugin writes it, unlike its template.

    Args:
        recorded_keys: The keys that a translation removed from the pod.
    """
    keys = {key for _, container in containers(pod) for key in container.limits}
    return any(
        _has_toleration(pod, key) and not _has_toleration(template, key)
        for key in keys.union(recorded_keys)
        if "/" in key
    )


def _has_toleration(pod: Pod, key: str) -> bool:
    return any(
        (toleration.key, toleration.operator, toleration.effect) == (key, EXISTS, NO_SCHEDULE)
        for toleration in pod.spec.tolerations or ()
    )


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return True if a toleration matches a taint.

    Source: k8s.io/component-helpers scheduling/corev1, ToleratesTaint.
    """
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    if toleration.operator == EXISTS:
        return True
    return bool(toleration.key) and toleration.value == taint.value


def untolerated_keys(pod: Pod, keys: Iterable[str]) -> Iterator[str]:
    """Yield the keys, sorted, with a taint of effect NoSchedule that a pod does not tolerate."""
    tolerations = pod.spec.tolerations or ()
    for key in sorted(keys):
        if not any(
            toleration.operator == EXISTS
            and toleration.key in {"", key}
            and toleration.effect in {"", NO_SCHEDULE}
            for toleration in tolerations
        ):
            yield key
