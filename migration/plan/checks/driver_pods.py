"""The check that the pods of DRA drivers come to the nodes of a wave: their taints, node selectors and affinity. Pure."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from allocator.pods.node_eligibility import is_eligible, node_rejection
from findings.text import join_names
from kube.api.core import Node, Pod, Toleration
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from migration.cluster.evidence import list_at
from migration.legacy.plugin_vendors import NVIDIA
from migration.plan.checks.checks import Check, ClusterView, failed_check
from migration.plan.drivers.driver_daemon_sets import find_waiting
from migration.plan.drivers.driver_values import toleration_for, untolerated_taints
from migration.plan.drivers.vendors import GPU_PRESENT
from migration.plan.facts.device_plugins import node_for_daemon_sets, pod_template
from migration.plan.model.node_labels import with_labels
from migration.plan.model.plan import Plan, Wave

_ANY_TAINT: Final = (Toleration(operator="Exists"),)
_OWN_FIX: Final = "let its node selector and affinity take them"


def check_driver_pods(plan: Plan, wave: Wave, view: ClusterView) -> Iterator[Check]:
    """Yield a failed check for each DaemonSet of a driver without pods for a node of the wave.

    Of several DaemonSets that wait for a driver's label, one has to come to each node.
    """
    for driver in sorted({driver for node in wave.nodes for driver in node.devices}):
        release = plan.driver_release if driver == NVIDIA else None
        waiting = find_waiting(
            view.objects, plan.drivers.get(driver, ""), release.namespace if release else ""
        )
        names = waiting.drivers or waiting.named
        daemon_sets = [
            source
            for source in view.objects
            if source.kind == DAEMON_SET and _name(source) in names
        ]
        templates = [pod_template(source) for source in daemon_sets]
        if None in templates:
            continue
        left = [
            node
            for node in _switched_nodes(driver, wave, view)
            if not any(is_eligible(template, node) for template in templates if template)
        ]
        for source, template in zip(daemon_sets, templates, strict=True):
            if template is not None:
                yield from _taint_checks(source, left, view)
                yield from _choice_checks(source, template, left)


def _switched_nodes(driver: str, wave: Wave, view: ClusterView) -> Iterator[Node]:
    """Yield the nodes of a wave that a driver serves, with the labels of their switch, as DaemonSets see them."""
    for planned in wave.nodes:
        document = view.find("Node", planned.name) if driver in planned.devices else None
        node = node_for_daemon_sets(document) if document is not None else None
        if node is not None:
            yield with_labels(node, planned.labels)


def _name(source: SourceObject) -> str:
    return f"{source.namespace or 'default'}/{source.name}"


def _taint_checks(
    source: SourceObject, nodes: Sequence[Node], view: ClusterView
) -> Iterator[Check]:
    """Yield a failed check for the taints of nodes, unless a DaemonSet's pods tolerate them."""
    tolerations = list_at(source.document, "spec", "template", "spec", "tolerations")
    missing: dict[str, None] = {}
    tainted_nodes = []
    for node in nodes:
        document = view.find("Node", node.metadata.name)
        taints = untolerated_taints([document], tolerations) if document is not None else []
        if taints:
            tainted_nodes.append(node.metadata.name)
            missing |= {json.dumps(toleration_for(taint)): None for taint in taints}
    if missing:
        yield failed_check(
            f"{DAEMON_SET}/{_name(source)}",
            f"its pods do not tolerate the taints of {join_names(tainted_nodes)}, so the driver would not come there: "
            f"add {', '.join(missing)} to its tolerations",
        )


def _choice_checks(source: SourceObject, template: Pod, nodes: Sequence[Node]) -> Iterator[Check]:
    """Yield a failed check for each reason of a DaemonSet's pods to select other nodes."""
    tolerant = replace(template, spec=replace(template.spec, tolerations=_ANY_TAINT))
    nodes_of: dict[tuple[str, bool], list[str]] = {}
    for node in nodes:
        rejection = node_rejection(tolerant, node)
        if rejection is not None:
            is_cured = is_eligible(tolerant, with_labels(node, GPU_PRESENT))
            nodes_of.setdefault((rejection.detail, is_cured), []).append(node.metadata.name)
    for (reason, is_cured), names in nodes_of.items():
        (label,) = GPU_PRESENT.items()
        fix = (
            "set kubeletPlugin.affinity=null in the values of its chart, since the node selector alone chooses the driver's nodes, "
            f"or run kubectl label node {' '.join(names)} {'='.join(label)}, unless a device plugin waits for that label"
        )
        yield failed_check(
            f"{DAEMON_SET}/{_name(source)}",
            f"its pods do not select {join_names(names)}, so the driver would not come there ({reason}): "
            f"{fix if is_cured else _OWN_FIX}",
        )
