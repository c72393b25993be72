"""The amounts of Koordinator's colocation: they leave a node with koordlet. Pure.

Koordinator's manager takes them from the allocatable resources of a node whose metrics koordlet has not reported for a
time, a quarter of an hour by default (`degradeTimeMinutes`). koordlet leaves a node with the label of its DRA driver. One
that registers no devices may stay: it reports metrics, and writes no Device object.

Source: koordinator a7a1b76, pkg/slo-controller/noderesource/plugins/batchresource/plugin.go and midresource/plugin.go
(isDegradeNeeded, Reset); pkg/koordlet/statesinformer/impl/states_informer.go (Accelerators).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from allocator.nodes.pod_requests import pod_request
from allocator.pods.node_eligibility import is_eligible
from kube.api.core import Node, Pod
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from kube.quantity import ZERO
from migration.plan.drivers.vendors import DRIVER_KEYS, is_koordlet, registers_devices
from migration.plan.facts.device_plugins import node_for_daemon_sets, pod_template
from migration.plan.model.node_labels import with_labels

AMOUNTS: Final = (
    "kubernetes.io/batch-cpu",
    "kubernetes.io/batch-memory",
    "kubernetes.io/mid-cpu",
    "kubernetes.io/mid-memory",
)


class Colocation:
    """The nodes with amounts of Koordinator's colocation, and the DaemonSets of koordlet."""

    def __init__(self, objects: Iterable[SourceObject], koordinator: Collection[str]) -> None:
        """Read the nodes and the DaemonSets of a cluster.

        Args:
            objects: The cluster's objects.
            koordinator: The nodes whose devices Koordinator hands out today.
        """
        self._koordinator = koordinator
        self._nodes: dict[str, Node] = {}
        self._koordlets: list[tuple[Pod, bool]] = []
        self._last: tuple[Mapping[str, Mapping[str, str]], frozenset[str]] | None = None
        for source in objects:
            if (source.api_version, source.kind) == ("v1", "Node"):
                node = node_for_daemon_sets(source.document)
                if node is not None and offered_amounts(node):
                    self._nodes[source.name] = node
            elif source.kind == DAEMON_SET and is_koordlet(source):
                template = pod_template(source)
                if template is not None:
                    self._koordlets.append((template, registers_devices(source)))

    def leaving(self, labels: Mapping[str, Mapping[str, str]]) -> frozenset[str]:
        """Return the nodes that lose these amounts with their switch, or have been switched and lose them.

        Args:
            labels: Node to the labels that its switch gives it.
        """
        if self._last is None or self._last[0] is not labels:
            self._last = labels, self._leaving(labels)
        return self._last[1]

    def _leaving(self, labels: Mapping[str, Mapping[str, str]]) -> frozenset[str]:
        kept_away = {
            (key, value)
            for name in self._koordinator & labels.keys()
            for key, value in labels[name].items()
            if key in DRIVER_KEYS
        }
        return frozenset(
            name
            for name, node in self._nodes.items()
            if (self._koordlets or name in self._koordinator)
            and not any(
                is_eligible(template, with_labels(node, labels.get(name, {})))
                and not (registers and not kept_away.isdisjoint(labels.get(name, {}).items()))
                for template, registers in self._koordlets
            )
        )


def offered_amounts(node: Node) -> dict[str, int]:
    """Return the amounts of colocation that a node offers."""
    allocatable = node.status.allocatable or {}
    return {
        name: amount.round_up()
        for name in AMOUNTS
        if (amount := allocatable.get(name, ZERO)) > ZERO
    }


def requested_amounts(pod: Pod) -> dict[str, int]:
    """Return the amounts of colocation that a pod requests."""
    scalars = pod_request(pod).amounts.scalars
    return {name: amount for name in AMOUNTS if (amount := scalars.get(name, 0)) > 0}
