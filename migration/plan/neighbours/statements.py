"""Notes on autoscalers, queues and exporters beside a migration, with an action for each statement. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from kube.names import EXPORTER_CLAIMS
from migration.cluster.evidence import controller_kind, list_at, mapping_at
from migration.legacy.plugin_vendors import NVIDIA
from migration.plan.drivers.vendors import HAMI_DRIVER
from migration.plan.model.plan import Wave
from translation.cluster.component_statements import Component, Statement, Topic

_KEEP_NODES: Final = "count on no new node of its pools for these pods: keep as many as they need, or add nodes by hand"
_ACTIONS: Final[Mapping[tuple[Component, Topic], str]] = {
    (Component.CLUSTER_AUTOSCALER, Topic.SEES_CLAIMS): (
        "before this wave see that --enable-dynamic-resource-allocation is true, or, from 1.35 on, not set"
    ),
    (Component.CLUSTER_AUTOSCALER, Topic.SCALE_FROM_ZERO): (
        "keep a healthy node with the DRA driver, not one that is unready by its GPU label, in each of its groups, as their least "
        "size"
    ),
    (Component.CLUSTER_AUTOSCALER, Topic.EXTENDED_RESOURCES): (
        "keep a healthy node with the DRA driver, not one that is unready by its GPU label, in each of its groups, as their least "
        "size, since it brings none for such pods to a group without nodes"
    ),
    (Component.KARPENTER, Topic.SEES_CLAIMS): _KEEP_NODES,
    (Component.KARPENTER, Topic.SCALE_FROM_ZERO): _KEEP_NODES,
    (Component.KARPENTER, Topic.EXTENDED_RESOURCES): _KEEP_NODES,
    (Component.KARPENTER, Topic.NATIVE): (
        "delete the NodeClaim of such a node by hand once the node is empty"
    ),
    (Component.KARPENTER, Topic.EXPIRY): (
        "end all waves before the oldest of these nodes expires (kubectl get nodeclaims shows their age), or plan for nodes of "
        "a NodePool with expireAfter: Never; a change of expireAfter makes the nodes of its NodePool drift"
    ),
    (Component.KUEUE, Topic.COUNTS_TEMPLATE): (
        "leave the quota of the device keys in its ClusterQueue until the templates themselves have claims"
    ),
    (Component.KUEUE, Topic.COUNTS_POD): (
        "before this wave give its ClusterQueue a quota of the resource that deviceClassMappings names for their class"
    ),
    (Component.KUEUE, Topic.UNCOUNTED_CLAIMS): (
        "turn that on before this wave, and give deviceClassMappings the classes of these claims, or count on no limit of Kueue "
        "for their devices"
    ),
    (Component.KUEUE, Topic.UNKNOWN_CLAIMS): (
        "count on no limit of Kueue for their devices, or upgrade it first"
    ),
    (Component.KUEUE, Topic.UNMAPPED_CLASS): (
        "before this wave add the classes of their claims to deviceClassMappings"
    ),
    (Component.KUEUE, Topic.SHARES): (
        "set the quota in its ClusterQueue to the number of shares that may run, or use sources with capacity"
    ),
}


class _Exporter(NamedTuple):
    """An exporter of metrics by pod that has none of the devices of a DRA driver.

    Attributes:
        part: A part of the name of its DaemonSet, or of the name or an image of a container.
        driver: The DRA driver.
    """

    part: str
    driver: str
    note: str


_EXPORTERS: Final = (
    _Exporter(
        part="dcgm-exporter",
        driver=NVIDIA,
        note="{} gives metrics of a DRA driver's devices no pod and no namespace unless it has {}=true and may read "
        "ResourceSlices (dcgm-exporter pull request 501): until then autoscalers, dashboards and bills by pod see nothing of "
        "switched nodes; {}, and look at a pod's metrics after it",
    ),
    _Exporter(
        part="vgpu-monitor",
        driver=HAMI_DRIVER,
        note="{} has HAMi's monitor, which leaves switched nodes with the device plugin: autoscalers, dashboards and bills by pod "
        "see nothing of these nodes unless HAMi's DRA driver has a monitor of its own (k8s-dra-driver pull request 42); it has "
        "other names for some metrics and labels, so change their queries before this wave",
    ),
)
"""Sources: Project-HAMi/HAMi charts/hami, templates/device-plugin/daemonsetnvidia.yaml; Project-HAMi/k8s-dra-driver
cmd/hami-core-monitor/metrics.go of that pull request."""
_OF_OPERATOR: Final = (
    "set the variable in dcgmExporter.env of ClusterPolicy before this wave, not in the DaemonSet, which the GPU Operator sets "
    "back, give its ServiceAccount the right to get, list and watch ResourceSlices"
)
_OF_CHART: Final = "set it before this wave (in the exporter's chart kubernetesDRA.enabled=true)"


def statement_note(statement: Statement) -> str:
    """Return a note with a statement, its source, and the action.

    >>> from translation.cluster.component_statements import statements_about
    >>> (statement,) = statements_about(Component.KARPENTER, Topic.NATIVE)
    >>> statement_note(statement).rpartition(": ")[2]
    'delete the NodeClaim of such a node by hand once the node is empty'
    """
    action = _ACTIONS.get((statement.component, statement.topic), "")
    return f"{statement.sentence} [{statement.source}]{f': {action}' if action else ''}"


def exporter_notes(
    wave: Wave, earlier: Sequence[Wave], objects: Iterable[SourceObject]
) -> Iterator[str]:
    """Yield a note on each exporter of metrics by pod that knows no claims, for the first wave with nodes of its DRA driver."""
    first = _drivers([wave]) - _drivers(earlier)
    exporters = [entry for entry in _EXPORTERS if entry.driver in first]
    for source in objects if exporters else ():
        if source.kind != DAEMON_SET or _reads_claims(source):
            continue
        way = _OF_OPERATOR if controller_kind(source.document) == "ClusterPolicy" else _OF_CHART
        name, texts = f"{source.kind}/{source.namespace or 'default'}/{source.name}", _texts(source)
        for exporter in exporters:
            if any(exporter.part in text for text in texts):
                yield exporter.note.format(name, EXPORTER_CLAIMS, way)


def _drivers(waves: Iterable[Wave]) -> set[str]:
    """Return the DRA drivers of the nodes of waves."""
    return {driver for wave in waves for node in wave.nodes for driver in node.devices}


def _texts(source: SourceObject) -> list[str]:
    """Return the name of a DaemonSet, and the names and images of its containers."""
    containers = map(mapping_at, _containers(source))
    fields = (entry.get(field) for entry in containers for field in ("name", "image"))
    return [source.name, *map(str, fields)]


def _reads_claims(source: SourceObject) -> bool:
    variables = (
        mapping_at(variable)
        for container in _containers(source)
        for variable in list_at(container, "env")
    )
    return any(
        variable.get("name") == EXPORTER_CLAIMS and variable.get("value") == "true"
        for variable in variables
    )


def _containers(source: SourceObject) -> Sequence[object]:
    return list_at(source.document, "spec", "template", "spec", "containers")
