"""Device plugins, node by node, and those that stay at the switch of their node. Pure.

A DaemonSet elsewhere in the cluster says nothing of a node: a pool may have the plugin of its cloud, another
one that of a team, and a third one a plugin in its image.

Source: kubernetes/kubernetes pkg/controller/daemon (nodeShouldRunDaemonPod: node selector, required affinity
and taints; a cordon and the taints of Kubernetes itself do not count).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from allocator.pods.node_eligibility import is_eligible
from answers.model.views import decode_view
from findings.text import join_names
from kube.api.core import Node, Pod
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from migration.assessment.blockers import STOP_SHARING
from migration.cluster.evidence import controller_kind, list_at, mapping_at
from migration.cluster.node_devices import Source
from migration.legacy.kept_names import NamesInUse
from migration.legacy.plugin_vendors import (
    NVIDIA,
    PluginVendor,
    cloud_driver,
    is_plugin,
    plugin_vendor,
    resource_driver,
    resource_vendor,
)
from migration.plan.drivers.driver_daemon_sets import registers_driver
from migration.plan.drivers.plugin_evidence import (
    EVIDENCE_FIX,
    NO_EVIDENCE,
    PluginEvidence,
    daemon_set_of,
)
from migration.plan.drivers.vendors import OPERATOR_PREFIX, is_managed
from migration.plan.model.node_labels import with_labels
from migration.plan.model.plan import Held, PlannedNode, is_name
from translation.reading.arbiter import VOCABULARIES
from translation.vocabularies.nvidia import is_replica_name, keep_setting

_NOT_KNOWN: Final = "which devices a DRA driver would publish is not known"
_OF_PARTS: Final = "parts of devices by time slicing or MPS are published by none that NVIDIA has"
_OFFERS_NONE: Final = "its device plugin offers none of its devices, so it is not known which a DRA driver would publish"
_SEE_PLUGIN: Final = (
    "look at the plugin's pod and its log on the node, or finish the switch of the node if it has begun; then plan again "
    "from a new snapshot"
)
_BY_HAND: Final = "install the driver and switch the node by hand, if there is one; then plan again from a new snapshot"
_OF_WHOLE_CLUSTERS: Final = frozenset({"hami", "nvidia"})
"""The vocabularies of names that stay on all nodes or on none."""
_FIX: Final = "name a label that keeps it away with plan --plugin-label KEY=VALUE"
_AFFINITY_FIX: Final = (
    "find its DaemonSet, give it a required node affinity that leaves out the nodes with a label of yours (KEY NotIn "
    "[VALUE]), and name that label with plan --plugin-label KEY=VALUE"
)
_PLUGIN: Final = "plugin"
_OWN_TAINTS: Final = "node.kubernetes.io/"


class DevicePlugins:
    """The DaemonSets of device plugins, and the nodes that they serve."""

    def __init__(self, objects: Iterable[SourceObject]) -> None:
        """Read the plugins of a cluster, its nodes and the pods of plugins.

        Args:
            objects: The cluster's objects.
        """
        self._plugins: list[SourceObject] = []
        self._others: list[SourceObject] = []
        self._nodes: dict[str, Node] = {}
        self._lookalikes: list[SourceObject] = []
        objects = tuple(objects)
        evidence = PluginEvidence(objects)
        hosts: dict[tuple[str, str], set[str]] = {}
        for source in objects:
            if source.kind == DAEMON_SET and is_plugin(source):
                is_one = evidence.supports(source)
                (self._plugins if is_one else self._lookalikes).append(source)
            elif source.kind == DAEMON_SET and _may_be_plugin(source):
                self._others.append(source)
            elif (source.api_version, source.kind) == ("v1", "Node"):
                node = node_for_daemon_sets(source.document)
                if node is not None:
                    self._nodes[source.name] = node
            elif source.kind == "Pod" and (owner := daemon_set_of(source.document)):
                host = mapping_at(source.document, "spec").get("nodeName")
                hosts.setdefault((_place(source), owner), set()).add(str(host))
        self._hosts: Mapping[tuple[str, str], Collection[str]] = hosts
        self._templates = {
            (_place(source), source.name): pod_template(source)
            for source in (*self._plugins, *self._lookalikes, *self._others)
        }

    def of_node(self, name: str) -> list[SourceObject]:
        """Return the known plugins with a pod on a node, and those with a template that the node takes."""
        return [source for source in self._plugins if self._comes_to(source, name)]

    def offering(self, node: PlannedNode) -> list[SourceObject]:
        """Return the known plugins of a node that offer its planned resources; NVIDIA's on nodes of HAMi and Koordinator.

        A plugin that comes only with the labels of the switch counts, too: one that leaves HAMi's nodes alone by
        `gpu NotIn [on]` would start when the node gets `gpu=off`.

        Args:
            node: The node with the labels that it gets.
        """
        drivers = _vendor_drivers(node) - {""}
        return [
            source
            for source in self._plugins
            if _driver_of(source) in drivers
            and (self._comes_to(source, node.name) or self.comes_after(source, node))
        ]

    def misgiving(self, node: PlannedNode, plugin_label: str) -> str:
        """Explain that a node's device plugin would stay at its switch; empty if it leaves.

        Args:
            node: The node with the labels that it gets.
            plugin_label: The confirmed labels that keep plugins away, as in the plan.
        """
        if node.source != Source.DEVICE_PLUGIN:
            is_confirmed = bool(confirmed_labels(node, plugin_label))
            reasons = [] if is_confirmed else [_of_cloud(source) for source in self.offering(node)]
        else:
            reasons = [
                self._misgiving(node, key)
                for key in sorted(node.resources)
                if not _labels_against(resource_driver(key), plugin_label)
            ]
        return next(filter(None, reasons), "")

    def _misgiving(self, node: PlannedNode, resource: str) -> str:
        """Explain that the plugin that offers a resource name would stay; empty if it leaves."""
        vendor = resource_vendor(resource)
        if vendor is None:
            return self._unknown(node, resource)
        plugins = [
            source for source in self.of_node(node.name) if _driver_of(source) == vendor.driver
        ]
        has_operator = any(label.startswith(OPERATOR_PREFIX) for label in node.labels)
        if vendor.driver == NVIDIA and has_operator:
            # The Operator's own leaves by its label; one of another chart stays.
            plugins = [source for source in plugins if self.comes_after(source, node)]
            if not plugins:
                return ""
        if not plugins:
            return f"{self._absence(vendor, resource, node)}, so the plugin may be part of the node's image or managed by the cloud, and would stay beside the DRA driver: {_FIX}"
        for source in plugins:
            if managed := _of_cloud(source):
                return managed
            if is_owned_plugin(source):
                return (
                    f"{_describe(source)} is of a {controller_kind(source.document)}, whose operator takes a patch back: let that leave out "
                    "the nodes with a label of yours, and name the label with plan --plugin-label KEY=VALUE"
                )
        return ""

    def _comes_to(self, source: SourceObject, name: str) -> bool:
        """Return True if a DaemonSet has a pod on a node, or its template fits there."""
        key = (_place(source), source.name)
        node, template = self._nodes.get(name), self._templates.get(key)
        return name in self._hosts.get(key, ()) or (
            node is not None and template is not None and is_eligible(template, node)
        )

    def comes_after(self, source: SourceObject, planned: PlannedNode) -> bool:
        """Return True if a DaemonSet's template fits a node with the labels that it gets."""
        node = self._nodes.get(planned.name)
        template = self._templates.get((_place(source), source.name))
        if node is None or template is None:
            return False
        return is_eligible(template, with_labels(node, planned.labels))

    def _absence(self, vendor: PluginVendor, resource: str, node: PlannedNode) -> str:
        of_vendor = "" if vendor.driver == NVIDIA else f" for {resource}"
        lookalikes = [source for source in self._lookalikes if _driver_of(source) == vendor.driver]
        if names := [_name(source) for source in lookalikes if self._comes_to(source, node.name)]:
            return f"no DaemonSet of a device plugin{of_vendor} is known to come to this node ({_not_taken(names)})"
        plugins = [source for source in self._plugins if _driver_of(source) == vendor.driver]
        if not plugins and not lookalikes:
            return f"no DaemonSet of a device plugin{of_vendor} is in the cluster"
        names = sorted(map(_name, (*plugins, *lookalikes)))
        return (
            f"no DaemonSet of a device plugin{of_vendor} comes to this node ({join_names(names)} runs elsewhere, by its selector, "
            "affinity and tolerations)"
        )

    def lookalike_notes(self, nodes: Iterable[PlannedNode]) -> Iterator[str]:
        """Yield a note on the DaemonSets that only look like device plugins of some nodes.

        Args:
            nodes: The nodes of a plan.
        """
        drivers = {driver for node in nodes for driver in _vendor_drivers(node)} - {""}
        names = [_name(source) for source in self._lookalikes if _driver_of(source) in drivers]
        if names:
            yield f"DaemonSet {_not_taken(names)}, as far as is seen, so no script changes it: {EVIDENCE_FIX}"

    def _unknown(self, node: PlannedNode, resource: str) -> str:
        """Explain that nobody knows the DaemonSet that offers a resource name."""
        names = [_name(source) for source in self._others if self._comes_to(source, node.name)]
        candidates = f" ({join_names(sorted(names))} may be it)" if names else ""
        return (
            f"the device plugin that offers {resource} is not known{candidates}, so nothing keeps it away, and it would stay "
            f"beside the DRA driver: {_AFFINITY_FIX}"
        )


def confirmed_labels(node: PlannedNode, plugin_label: str) -> dict[str, str]:
    """Return the confirmed labels that keep device plugins from a node.

    Args:
        node: The node.
        plugin_label: The confirmed labels of all nodes, as `key=value`, with commas between them.
    """
    labels: dict[str, str] = {}
    for driver in sorted(_vendor_drivers(node)):
        labels |= _labels_against(driver, plugin_label)
    return labels


def with_plugin_label(
    node: PlannedNode, own: Mapping[str, str], plugin_label: str, plugins: DevicePlugins
) -> PlannedNode:
    """Return a node with the confirmed labels, if a device plugin serves it or would stay there.

    Args:
        node: The node.
        own: The labels that it has today.
        plugin_label: The confirmed labels, as in the plan.
        plugins: The cluster's device plugins.
    """
    confirmed = confirmed_labels(node, plugin_label)
    if not confirmed or (node.source != Source.DEVICE_PLUGIN and not plugins.misgiving(node, "")):
        return node
    return msgspec.structs.replace(
        node,
        labels={**node.labels, **confirmed},
        former_labels={**node.former_labels, **{key: own.get(key) for key in confirmed}},
    )


def _labels_against(driver: str, plugin_label: str) -> dict[str, str]:
    """Return the confirmed labels for the plugins of a driver's vendor: that of a cloud for another vendor is none."""
    return dict(
        label.split("=", 1)
        for label in plugin_label.split(",")
        if label and cloud_driver(label) in {"", driver}
    )


def _vendor_drivers(node: PlannedNode) -> set[str]:
    """Return the DRA drivers of the vendors of a node's device plugins; an empty one for unknown vendors."""
    if node.source != Source.DEVICE_PLUGIN:
        return {NVIDIA}
    return {resource_driver(key) for key in node.resources}


def is_owned_plugin(source: SourceObject) -> bool:
    """Return True if an operator puts a plugin's DaemonSet back as it was; NVIDIA's operator follows labels of nodes."""
    return _driver_of(source) != NVIDIA and bool(controller_kind(source.document))


def _of_cloud(source: SourceObject) -> str:
    """Explain that a cloud puts a plugin back as it was; empty if none does."""
    vendor = plugin_vendor(source)
    if vendor is None or not is_managed(source):
        return ""
    on_gke = f", on GKE {vendor.cloud_label}" if vendor.cloud_label else ""
    return f"{_describe(source)} is managed by the cloud, which takes a patch back: {_FIX}{on_gke}"


def _describe(source: SourceObject) -> str:
    return f"DaemonSet {_name(source)}"


def _name(source: SourceObject) -> str:
    return f"{_place(source)}/{source.name}"


def _not_taken(names: Collection[str]) -> str:
    """Explain that DaemonSets, given as `namespace/name`, only look like device plugins."""
    return f"{join_names(sorted(names))} is not taken for a device plugin, because {NO_EVIDENCE}"


def _driver_of(source: SourceObject) -> str:
    """Return the DRA driver of the vendor of a known plugin."""
    vendor = plugin_vendor(source)
    return vendor.driver if vendor is not None else ""


def _may_be_plugin(source: SourceObject) -> bool:
    """Return True if a DaemonSet has the name or the image of a plugin, and is no DRA driver."""
    containers = list_at(source.document, "spec", "template", "spec", "containers")
    images = [str(mapping_at(container).get("image")) for container in containers]
    return any(_PLUGIN in text for text in (source.name, *images)) and not registers_driver(
        source.document
    )


def _place(source: SourceObject) -> str:
    return source.namespace or "default"


def pod_template(source: SourceObject) -> Pod | None:
    """Return a pod as a DaemonSet creates it; None if it cannot be read."""
    pod = decode_view(mapping_at(source.document, "spec", "template"), Pod)
    return pod if isinstance(pod, Pod) else None


def node_for_daemon_sets(document: Mapping[str, Any]) -> Node | None:
    """Return a node as the pods of DaemonSets see it, neither cordoned nor with taints of Kubernetes itself.

    None if it cannot be read.
    """
    node = decode_view(document, Node)
    if not isinstance(node, Node):
        return None
    taints = tuple(
        taint for taint in node.spec.taints or () if not taint.key.startswith(_OWN_TAINTS)
    )
    spec = msgspec.structs.replace(node.spec, taints=taints, unschedulable=False)
    return msgspec.structs.replace(node, spec=spec)


def held_unknown_devices(keys_of: Mapping[str, Sequence[str]]) -> Iterator[Held]:
    """Yield the nodes with device plugins that offer devices that no plan knows.

    Args:
        keys_of: Node to what its device plugins offer.
    """
    for name, keys in keys_of.items():
        if not is_name(name):
            continue
        reason = f"its device plugin offers {', '.join(keys)}, and {_NOT_KNOWN}"
        setting = _setting_for(keys)
        if all(map(is_replica_name, keys)):
            reason = f"{reason}: {_OF_PARTS}"
            fix = f"{STOP_SHARING}; or leave these nodes as they are ({setting})"
        else:
            fix = f"{_BY_HAND}; or leave it as it is ({setting})" if setting else _BY_HAND
        yield Held(object=f"Node//{name}", reason=reason, fix=fix)


def held_offering_none(nodes: Iterable[str]) -> Iterator[Held]:
    """Yield the nodes with devices that their device plugin offers none of."""
    for name in filter(is_name, nodes):
        yield Held(object=f"Node//{name}", reason=_OFFERS_NONE, fix=_SEE_PLUGIN)


def _setting_for(keys: Sequence[str]) -> str:
    """Return the setting for a node of some names to stay with its device plugin; empty without such a setting."""
    # One plugin offers replicas and what else there is of a node, so it stays for them with all.
    if replicas := list(filter(is_replica_name, keys)):
        return f"{keep_setting(*replicas)} of the settings"
    kept_names: dict[str, None] = {}
    for key in keys:
        owners = [name for name, entry in VOCABULARIES.items() if entry.handles(key)]
        if len(owners) > 1 or not _OF_WHOLE_CLUSTERS.isdisjoint(owners):
            return ""
        kept_names |= dict.fromkeys(owners or [key])
    return f"{keep_setting(*kept_names)} of the settings"


def held_kept_names(
    nodes: Iterable[PlannedNode], names_in_use: Mapping[str, NamesInUse]
) -> Iterator[Held]:
    """Yield the nodes with pods of a kept name of devices that their switch takes away, or that such pods may get later.

    Args:
        nodes: The nodes that could be switched.
        names_in_use: Node to the names, as of `find_names_in_use`.
    """
    for node in nodes:
        if entry := names_in_use.get(node.name):
            yield Held(object=f"Node//{node.name}", reason=entry.reason, fix=entry.fix)
