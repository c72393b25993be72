"""NVIDIA's device plugins, node by node, and those that stay at the switch of their node. Pure.

A DaemonSet elsewhere in the cluster says nothing of a node: a pool may have the plugin of its cloud, another
one that of a team, and a third one a plugin in its image.

Source: kubernetes/kubernetes pkg/controller/daemon (nodeShouldRunDaemonPod: node selector, required affinity
and taints; a cordon and the taints of Kubernetes itself do not count).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from allocator.pods.node_eligibility import is_eligible
from answers.model.views import decode_view
from findings.text import join_names
from kube.api.core import Node, Pod
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from migration.assessment.evidence import list_at, mapping_at
from migration.assessment.node_devices import Source
from migration.plan.facts.vendors import NVIDIA, OPERATOR_PREFIX, is_managed, is_plugin
from migration.plan.model.plan import PlannedNode

GKE_PLUGIN_LABEL: Final = "gke-no-default-nvidia-gpu-device-plugin=true"
_FIX: Final = "name a label that keeps it away with plan --plugin-label KEY=VALUE"
_OWN_TAINTS: Final = "node.kubernetes.io/"


class DevicePlugins:
    """The DaemonSets of NVIDIA's device plugin, and the nodes that they serve."""

    def __init__(self, objects: Iterable[SourceObject]) -> None:
        """Read the plugins of a cluster, its nodes and the pods of plugins.

        Args:
            objects: The cluster's objects.
        """
        self._plugins: list[SourceObject] = []
        self._nodes: dict[str, Node] = {}
        hosts: dict[tuple[str, str], set[str]] = {}
        for source in objects:
            if source.kind == DAEMON_SET and is_plugin(source):
                self._plugins.append(source)
            elif (source.api_version, source.kind) == ("v1", "Node"):
                node = decode_view(source.document, Node)
                if isinstance(node, Node):
                    self._nodes[source.name] = _without_own_taints(node)
            elif source.kind == "Pod" and (owner := _daemon_set_of(source.document)):
                host = mapping_at(source.document, "spec").get("nodeName")
                hosts.setdefault((_place(source), owner), set()).add(str(host))
        self._hosts: Mapping[tuple[str, str], Collection[str]] = hosts
        self._templates = [_template(source) for source in self._plugins]

    def of_node(self, name: str) -> list[SourceObject]:
        """Return the DaemonSets with a pod on a node, and those with a template that the node takes."""
        node = self._nodes.get(name)
        return [
            source
            for source, template in zip(self._plugins, self._templates, strict=True)
            if name in self._hosts.get((_place(source), source.name), ())
            or (node is not None and template is not None and is_eligible(template, node))
        ]

    def misgiving(self, node: PlannedNode, plugin_label: str) -> str:
        """Explain that a node's device plugin would stay at its switch; empty if it leaves.

        Args:
            node: The node with the labels that it gets.
            plugin_label: The confirmed label that keeps the plugin away; empty without one.
        """
        has_operator = any(label.startswith(OPERATOR_PREFIX) for label in node.labels)
        if node.source != Source.DEVICE_PLUGIN or NVIDIA not in node.devices:
            return ""
        if has_operator or plugin_label:
            return ""
        plugins = self.of_node(node.name)
        if not plugins:
            return f"{self._absence()}, so the plugin may be part of the node's image or managed by the cloud, and would stay beside the DRA driver: {_FIX}"
        managed = [source for source in plugins if is_managed(source)]
        if managed:
            return (
                f"DaemonSet {_place(managed[0])}/{managed[0].name} is managed by the cloud, which takes a "
                f"patch back: {_FIX}, on GKE {GKE_PLUGIN_LABEL}"
            )
        return ""

    def _absence(self) -> str:
        if not self._plugins:
            return "no DaemonSet of a device plugin is in the cluster"
        names = join_names(sorted(f"{_place(source)}/{source.name}" for source in self._plugins))
        return f"no DaemonSet of a device plugin comes to this node ({names} runs elsewhere, by its selector, affinity and tolerations)"


def _place(source: SourceObject) -> str:
    return source.namespace or "default"


def _daemon_set_of(pod: Mapping[str, Any]) -> str:
    """Return the name of the DaemonSet that has created a pod; empty for other pods."""
    owners = map(mapping_at, list_at(pod, "metadata", "ownerReferences"))
    return next((str(owner.get("name")) for owner in owners if owner.get("kind") == DAEMON_SET), "")


def _template(source: SourceObject) -> Pod | None:
    """Return a pod as a DaemonSet creates it; None if it cannot be read."""
    pod = decode_view(mapping_at(source.document, "spec", "template"), Pod)
    return pod if isinstance(pod, Pod) else None


def _without_own_taints(node: Node) -> Node:
    """Return a node as the pods of DaemonSets see it: neither cordoned nor with taints of Kubernetes itself."""
    taints = tuple(
        taint for taint in node.spec.taints or () if not taint.key.startswith(_OWN_TAINTS)
    )
    spec = msgspec.structs.replace(node.spec, taints=taints, unschedulable=False)
    return msgspec.structs.replace(node, spec=spec)
