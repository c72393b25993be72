"""A plan as values; they are the document `plan.yaml`, from which `verify --wave` reads it again."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

KIND: Final = "PlanReport"
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_NAMESPACE: Final = re.compile(_LABEL)
_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")


def is_name(text: str) -> bool:
    """Return whether a text can be the name of an object in Kubernetes, a DNS subdomain.

    >>> is_name("gpu-a-00.example"), is_name("$(reboot)"), is_name("--all")
    (True, False, False)
    """
    return _NAME.fullmatch(text) is not None


def is_namespace(text: str) -> bool:
    """Return whether a text can be the name of a namespace, a DNS label."""
    return _NAMESPACE.fullmatch(text) is not None


class PlannedNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node of a wave.

    Attributes:
        source: The system that hands out its devices today.
        devices: How many devices its DRA driver has to publish, by driver.
        resources: Resource name to the amount that its kubelet offers today.
        uuids: Of the devices, where the legacy system registers them.
        labels: To be set when it is switched.
        former_labels: The values that these labels have today; null for a label that is not there.
    """

    name: str
    source: str
    devices: Mapping[str, int]
    resources: Mapping[str, str]
    uuids: tuple[str, ...]
    labels: Mapping[str, str]
    former_labels: Mapping[str, str | None]


class PlannedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload of a namespace that is opted in with a wave; `object` is `Kind/namespace/name`."""

    object: str
    pods: int
    outcome: str

    @property
    def is_translated(self) -> bool:
        """Return whether its new pods have claims."""
        return self.outcome != "native"


class Wave(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Nodes that are switched together, and then the namespaces that are opted in.

    Attributes:
        workloads: Of the namespaces.
        moved_pods: Pods with devices that leave the nodes.
        free_before: Devices without a consumer, of all nodes.
        free_after: As above, when the wave is done.
        split: It has fewer nodes than were asked for, since more did not fit.
        notes: What a person has to know.
    """

    wave: int
    nodes: tuple[PlannedNode, ...]
    namespaces: tuple[str, ...]
    workloads: tuple[PlannedWorkload, ...]
    moved_pods: int
    free_before: int
    free_after: int
    split: bool
    notes: tuple[str, ...]


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A node or a namespace without a wave; `object` is `Node//name` or `Namespace//name`."""

    object: str
    reason: str
    fix: str


class PluginDaemonSet(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A device plugin's DaemonSet that has to stay away from switched nodes.

    Attributes:
        node_selector_terms: Its required node affinity, with switched nodes left out.
    """

    namespace: str
    name: str
    node_selector_terms: tuple[Mapping[str, object], ...]


class DriverRelease(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A Helm release of NVIDIA's DRA driver that the cluster has already.

    Attributes:
        chart: The name of its chart, which other versions do not have.
        waits_for_label: Its DaemonSet runs on nodes with the label of the driver only.
    """

    namespace: str
    name: str
    chart: str
    version: str
    waits_for_label: bool


class Plan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The document of `drawbridge plan`.

    Attributes:
        gpu_operator: Its version; empty where there is none.
        driver_release: Of NVIDIA's DRA driver; null where Helm has installed none.
        drivers: DRA driver to the node label that has to choose the nodes of its DaemonSet.
        mapped_classes: DeviceClass to the resource name that it has to map before the first wave.
        plugins: DaemonSets to keep from switched nodes before the first wave.
        quotas: Namespace to the files below `quotas/` with its quotas.
        held: Nodes and namespaces without a wave.
    """

    kubernetes_version: str
    wave_nodes: int
    keep_free: int
    gpu_operator: str
    drivers: Mapping[str, str]
    mapped_classes: Mapping[str, str]
    plugins: tuple[PluginDaemonSet, ...]
    waves: tuple[Wave, ...]
    held: tuple[Held, ...]
    quotas: Mapping[str, tuple[str, ...]]
    driver_release: DriverRelease | None = None
