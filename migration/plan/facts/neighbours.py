"""Notes on autoscalers, queues and exporters beside a migration, with an action for each statement. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from kube.names import EXPORTER_CLAIMS
from migration.cluster.evidence import controller_kind, list_at, mapping_at
from migration.plan.facts.vendors import NVIDIA
from migration.plan.model.plan import Wave
from translation.cluster.component_statements import Component, Statement, Topic

_KEEP_NODES: Final = "count on no new node of its pools for these pods: keep as many as they need, or add nodes by hand"
_ACTIONS: Final[Mapping[tuple[Component, Topic], str]] = {
    (Component.CLUSTER_AUTOSCALER, Topic.SEES_CLAIMS): (
        "before this wave see that --enable-dynamic-resource-allocation is true, or, from 1.35 on, not set"
    ),
    (Component.CLUSTER_AUTOSCALER, Topic.SCALE_FROM_ZERO): (
        "keep a healthy node with the DRA driver in each of its groups, as their least size"
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
    (Component.KUEUE, Topic.UNMAPPED_CLASS): (
        "before this wave add the classes of their claims to deviceClassMappings"
    ),
    (Component.KUEUE, Topic.SHARES): (
        "set the quota in its ClusterQueue to the number of shares that may run, or use sources with capacity"
    ),
}

_EXPORTER: Final = "dcgm-exporter"
_EXPORTER_NOTE: Final = (
    "{} gives metrics of a DRA driver's devices no pod and no namespace unless it has {}=true and may read ResourceSlices "
    "(dcgm-exporter pull request 501): until then autoscalers, dashboards and bills by pod see nothing of switched nodes; {}, and "
    "look at a pod's metrics after it"
)
_OF_OPERATOR: Final = (
    "set the variable in dcgmExporter.env of ClusterPolicy before this wave, give its ServiceAccount the right to get, list and "
    "watch ResourceSlices"
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
    wave: Wave, earlier: Iterable[Wave], objects: Iterable[SourceObject]
) -> Iterator[str]:
    """Yield a note on each DCGM exporter without claims, for the first wave with nodes of NVIDIA's DRA driver."""
    if not _has_nvidia(wave) or any(map(_has_nvidia, earlier)):
        return
    for source in objects:
        if source.kind == DAEMON_SET and _is_exporter(source) and not _reads_claims(source):
            way = _OF_OPERATOR if controller_kind(source.document) == "ClusterPolicy" else _OF_CHART
            name = f"{source.kind}/{source.namespace or 'default'}/{source.name}"
            yield _EXPORTER_NOTE.format(name, EXPORTER_CLAIMS, way)


def _has_nvidia(wave: Wave) -> bool:
    return any(NVIDIA in node.devices for node in wave.nodes)


def _is_exporter(source: SourceObject) -> bool:
    """Return True if a DaemonSet is a DCGM exporter, by its name or an image."""
    images = (str(mapping_at(container).get("image")) for container in _containers(source))
    return any(_EXPORTER in text for text in (source.name, *images))


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
