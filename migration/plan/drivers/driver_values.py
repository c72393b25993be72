"""The values that a DRA driver's chart needs for the nodes of a plan: tolerations, affinity, the driver's root. Pure.

The DaemonSet controller adds tolerations for the taints of Kubernetes itself; all others stop a driver's
pods, and a switched node would have no devices. NVIDIA's chart also requires a label of Node Feature
Discovery or the GPU Operator, which clouds do not set.

Sources: kubernetes/kubernetes pkg/controller/daemon/util (AddOrUpdateDaemonPodTolerations); values.yaml of
kubernetes-sigs/dra-driver-nvidia-gpu (kubeletPlugin.affinity) and of Project-HAMi/k8s-dra-driver; the install
guide of the former, and GKE's of dynamic resource allocation (nvidiaDriverRoot by image type).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from answers.model.views import decode_view
from findings.text import join_names
from kube.api.core import Taint, Toleration
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from migration.cluster.evidence import list_at, text_map
from migration.legacy.plugin_vendors import NVIDIA
from migration.plan.drivers.vendors import (
    GPU_PRESENT,
    HAMI_DRIVER,
    OPERANDS,
    OPERATOR_PREFIX,
    driver_label,
)
from migration.plan.model.driver_charts import DriverValues
from migration.plan.model.plan import Held, PlannedNode
from translation.cluster.node_taints import tolerates

_OWN_TAINTS: Final = "node.kubernetes.io/"
_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})
_DEFAULTS: Final[Mapping[str, tuple[Mapping[str, str], ...]]] = {
    NVIDIA: ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},)
}
"""Driver to the tolerations that its chart has by itself, and loses when others are set."""
_MAX_TAINTS: Final = 32
"""Taints that a chart gets tolerations for one by one; with more of them it tolerates all."""
_ALL: Final[Mapping[str, str]] = {"operator": "Exists"}
_REQUIRED: Final[Mapping[str, Mapping[str, str]]] = {
    NVIDIA: {
        "feature.node.kubernetes.io/pci-10de.present": "true",
        "feature.node.kubernetes.io/pci-0302_10de.present": "true",
        "feature.node.kubernetes.io/pci-0300_10de.present": "true",
        "feature.node.kubernetes.io/cpu-model.vendor_id": "NVIDIA",
        **GPU_PRESENT,
    }
}
"""Driver to the alternative labels in the required node affinity of its chart."""
_GKE_GPU: Final = "cloud.google.com/gke-accelerator"
_GKE_IMAGE: Final = "cloud.google.com/gke-os-distribution"
_GKE_ROOTS: Final = {"ubuntu": "/opt/nvidia"}
_GKE_ROOT: Final = "/home/kubernetes/bin/nvidia"
"""The directory of GKE's GPU driver on Container-Optimized OS; those of other images are above."""
_ROOT_DRIVERS: Final = frozenset({NVIDIA, HAMI_DRIVER})
"""The drivers with the root of the GPU driver among the values of their chart."""
_GPU_DRIVER: Final = f"{OPERATOR_PREFIX}driver"
_PREINSTALLED: Final = "pre-installed"
"""The value of this label on nodes with a GPU driver in their image.

Source: the release notes of the GPU Operator (its driver container disables itself on such a node by this label)."""
_CONTAINER: Final = "true"
"""The value of this label on nodes that get a GPU driver in the Operator's container, if it brings one.

With driver.enabled=false it sets the label as well, and has no DaemonSet that selects it.
Source: NVIDIA/gpu-operator issue 982, assets/state-driver and manifests/state-driver (0500_daemonset.yaml)."""
_PLACES: Final = {
    _CONTAINER: "in the GPU Operator's container, below /run/nvidia/driver",
    _PREINSTALLED: "in the image",
}
"""Value of the label to the place of the GPU driver, in words; before others if as many nodes have it."""
_OTHER_ROOT: Final = (
    "its GPU driver is {} ({}), and that of {} is {}; the chart of {} has one nvidiaDriverRoot for all "
    "its nodes, so its pods would wait for a GPU driver here"
)
_OR_STAY: Final = "then plan again from a new snapshot; or leave the node as it is"
_ONE_ROOT: Final = {
    _CONTAINER: f"take the GPU driver out of its image, set {_GPU_DRIVER}={_CONTAINER}, so that the Operator gives it one as well; {_OR_STAY}",
    _PREINSTALLED: f"give it an image with the GPU driver, so that the Operator sets {_GPU_DRIVER}={_PREINSTALLED} and starts none; {_OR_STAY}",
}
"""Value of the label of the other nodes to the way to have the same place."""


def read_driver_values(
    objects: Collection[SourceObject], nodes: Iterable[PlannedNode]
) -> dict[str, DriverValues]:
    """Return driver to the values of its chart, for the drivers that need any.

    Args:
        objects: The cluster's objects.
        nodes: The nodes that may be switched.
    """
    documents = {
        source.name: source.document
        for source in objects
        if (source.api_version, source.kind) == ("v1", "Node")
    }
    nodes_of: dict[str, dict[str, Mapping[str, Any]]] = {}
    for node in nodes:
        for driver in node.devices:
            nodes_of.setdefault(driver, {})[node.name] = documents.get(node.name, {})
    selectors = _selectors_of_container(objects)
    values = {
        driver: _values(driver, members, selectors) for driver, members in sorted(nodes_of.items())
    }
    return {driver: entry for driver, entry in values.items() if entry != DriverValues()}


def held_by_roots(
    nodes: Iterable[PlannedNode], objects: Collection[SourceObject], held_objects: Collection[str]
) -> Iterator[Held]:
    """Yield the nodes with the GPU driver in another place than other nodes of their DRA driver.

    Nodes that have the DRA driver already decide on its root, or else the place that more nodes have.

    Args:
        nodes: The nodes that could be switched.
        objects: The cluster's objects.
        held_objects: The objects that are held for other reasons, as `Node//name`.
    """
    selectors = _selectors_of_container(objects)
    labels_of = {
        source.name: text_map(source.document, "metadata", "labels")
        for source in objects
        if (source.api_version, source.kind) == ("v1", "Node")
    }
    place_of = {name: _place(labels, selectors) for name, labels in labels_of.items()}
    free = [node for node in nodes if f"Node//{node.name}" not in held_objects]
    for driver in sorted(_ROOT_DRIVERS):
        key, value = driver_label(driver)
        own = {node.name for node in free if driver in node.devices}
        switched = {name for name, labels in labels_of.items() if labels.get(key) == value}
        settled, moving = _by_place(switched, place_of), _by_place(own, place_of)
        deciding = settled if any(settled.values()) else moving
        place = max(_PLACES, key=lambda place: len(deciding[place]))
        deciding_names = join_names(deciding[place])
        for other in _PLACES.keys() - {place}:
            here, there = _PLACES[other], _PLACES[place]
            for name in moving[other]:
                own_labels = labels_of.get(name, {})
                is_labelled = own_labels.get(_GPU_DRIVER) == other
                sign = f"{_GPU_DRIVER}={other}" if is_labelled else f"{OPERANDS}=false"
                reason = _OTHER_ROOT.format(here, sign, deciding_names, there, driver)
                yield Held(object=f"Node//{name}", reason=reason, fix=_ONE_ROOT[place])


def _by_place(names: Collection[str], place_of: Mapping[str, str]) -> dict[str, list[str]]:
    """Return each place of GPU drivers, as the value of its label, to those of some nodes that have it."""
    return {
        place: sorted(name for name in names if place_of.get(name) == place) for place in _PLACES
    }


def _selectors_of_container(objects: Iterable[SourceObject]) -> list[Mapping[str, str]]:
    """Return the node selectors of the DaemonSets that bring the GPU driver of the Operator."""
    selectors = (
        text_map(source.document, "spec", "template", "spec", "nodeSelector")
        for source in objects
        if source.kind == DAEMON_SET
    )
    return [selector for selector in selectors if selector.get(_GPU_DRIVER) == _CONTAINER]


def _place(labels: Mapping[str, str], selectors: Iterable[Mapping[str, str]]) -> str:
    """Return the place of a node's GPU driver, as the value of its label; empty if it is not known."""
    if labels.get(OPERANDS) == "false":
        return _PREINSTALLED
    place = labels.get(_GPU_DRIVER, "")
    if place == _CONTAINER:
        is_brought = any(selector.items() <= labels.items() for selector in selectors)
        return place if is_brought else ""
    return place if place in _PLACES else ""


def _values(
    driver: str, nodes: Mapping[str, Mapping[str, Any]], selectors: Sequence[Mapping[str, str]]
) -> DriverValues:
    """Return the values for a driver; its nodes are given as name to document."""
    defaults = _DEFAULTS.get(driver, ())
    taints = untolerated_taints(nodes.values(), defaults)
    tolerations: tuple[Mapping[str, str], ...] = ()
    if taints:
        tolerations = (*defaults, *map(toleration_for, taints))
    if len(taints) > _MAX_TAINTS:
        tolerations = (_ALL,)
    labels_of = {name: text_map(node, "metadata", "labels") for name, node in nodes.items()}
    has_operator_driver = any(
        _place(labels, selectors) == _CONTAINER for labels in labels_of.values()
    )
    required = _REQUIRED.get(driver, {}).items()
    return DriverValues(
        tolerations=tolerations,
        has_operator_driver=has_operator_driver,
        is_preinstalled=not has_operator_driver
        and all(
            _GPU_DRIVER in labels or labels.get(OPERANDS) == "false"
            for labels in labels_of.values()
        ),
        unlabelled_nodes=tuple(
            name
            for name, labels in sorted(labels_of.items())
            if required and not required & labels.items()
        ),
        gke_roots=tuple(sorted(_gke_roots(labels_of.values()))) if driver in _ROOT_DRIVERS else (),
    )


def _gke_roots(nodes: Iterable[Mapping[str, str]]) -> set[str]:
    """Return the directories of the GPU driver on nodes of GKE; the nodes are given as their labels."""
    return {
        _GKE_ROOTS.get(labels.get(_GKE_IMAGE, ""), _GKE_ROOT)
        for labels in nodes
        if _GKE_GPU in labels
    }


def untolerated_taints(
    nodes: Iterable[Mapping[str, Any]], tolerations: Iterable[object]
) -> list[Taint]:
    """Return the taints of nodes that keep the pods of a DaemonSet away, each once.

    Args:
        nodes: Nodes as documents.
        tolerations: The tolerations of the pods, as documents.
    """
    decoded = [decode_view(entry, Toleration) for entry in tolerations]
    accepted = [entry for entry in decoded if isinstance(entry, Toleration)]
    taints = (
        decode_view(entry, Taint) for node in nodes for entry in list_at(node, "spec", "taints")
    )
    blocking = dict.fromkeys(
        taint
        for taint in taints
        if isinstance(taint, Taint)
        and taint.effect in _BLOCKING
        and not taint.key.startswith(_OWN_TAINTS)
        and not any(tolerates(toleration, taint) for toleration in accepted)
    )
    return sorted(blocking, key=lambda taint: (taint.key, taint.value, taint.effect))


def toleration_for(taint: Taint) -> dict[str, str]:
    """Return the toleration of one taint, as in a manifest."""
    value = {"operator": "Equal", "value": taint.value} if taint.value else {"operator": "Exists"}
    return {"key": taint.key, **value, "effect": taint.effect}
