"""Workloads with a node selector or required node affinity for a label of nodes, and the waves that change it. Pure.

Those with devices that run are held by the search. Left are DaemonSets, whose pods leave their nodes, and others whose new
pods would find no node any more: without devices, or without a pod today.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from allocator.pods.node_eligibility import counted_rejection
from answers.model.views import decode_view
from kube.api.core import Node, Pod, PodSpec, Toleration
from kube.api.workloads import DAEMON_SET
from kube.manifests.source import SourceObject
from migration.cluster.node_devices import Source
from migration.legacy.node_selectors import selecting_spec
from migration.plan.facts.colocation import Colocation, offered_amounts, requested_amounts
from migration.plan.model.node_labels import with_labels
from migration.plan.model.plan import Plan, Wave, is_name
from translation.model.required_labels import required_labels

_ANY_TAINT: Final = (Toleration(operator="Exists"),)
_LEAVES: Final = (
    "{} selects nodes by {}, which their switch changes, so its pods leave them: if they are to stay, let it select "
    "another label first"
)
_LAST: Final = (
    "{} selects nodes by {}, which no node has after this wave, so pods of it that are created then wait for ever: let it "
    "select another label first"
)


def selecting_notes(
    plan: Plan, wave: Wave, objects: Iterable[SourceObject]
) -> Iterator[tuple[SourceObject, str]]:
    """Yield each workload without a node for its pods after a wave, or with pods that leave its nodes, with a note on it.

    Device plugins are to leave. Workloads that the plan holds have their reason there.

    Args:
        plan: The plan.
        wave: One of its waves.
        objects: The cluster's objects.
    """
    changed = {
        key
        for node in wave.nodes
        for key, former in node.former_labels.items()
        if former is not None and former != node.labels.get(key)
    }
    if not changed:
        return
    held_names = {entry.object for entry in plan.held}
    own = {node.name: node.labels for node in wave.nodes}
    earlier = _switched_labels(wave, plan.waves)
    objects = tuple(objects)
    nodes = tuple(_nodes(objects))
    for source in objects:
        reference = f"{source.kind}/{source.namespace or 'default'}/{source.name}"
        spec = selecting_spec(source)
        if spec is None or reference in held_names or not is_name(source.name):
            continue
        keys = changed.intersection(entry.key for entry in required_labels(spec))
        if not keys:
            continue
        before = _taking(spec, nodes, earlier)
        after = _taking(spec, nodes, {**earlier, **own})
        left = [name for name in before if name not in after and name in own]
        form = _LEAVES if source.kind == DAEMON_SET else _LAST if not after else ""
        if left and form:
            yield source, form.format(reference, ", ".join(_pairs(keys, left, nodes)))


class Stranded(NamedTuple):
    """The pods that no node takes once a wave is done, as `Pod/namespace/name`.

    Attributes:
        pods: All of them.
        uncolocated: Those of them that nodes take by their labels, and that request amounts of Koordinator's colocation
            that none of these offers any more.
    """

    pods: tuple[str, ...] = ()
    uncolocated: tuple[str, ...] = ()


def stranded_pods(
    wave: Wave, waves: Iterable[Wave], pods: Collection[str], objects: Iterable[SourceObject]
) -> Stranded:
    """Return the pods that no node takes once a wave is done, by their node selectors and affinities, or their amounts.

    Args:
        wave: The wave.
        waves: The waves of its plan.
        pods: Pods that leave its nodes, as `Pod/namespace/name`.
        objects: The cluster's objects.
    """
    if not pods:
        return Stranded()
    objects, waves = tuple(objects), tuple(waves)
    nodes = tuple(_nodes(objects))
    labels = {
        **_switched_labels(wave, waves),
        **{node.name: node.labels for node in wave.nodes},
    }
    koordinator = {
        node.name
        for entry in (*waves, wave)
        for node in entry.nodes
        if node.source == Source.KOORDINATOR
    }
    leaving = Colocation(objects, koordinator).leaving(labels)
    amounts = {
        node.metadata.name: offered_amounts(node)
        for node in nodes
        if node.metadata.name not in leaving
    }
    stranded, uncolocated = list[str](), list[str]()
    for source in objects:
        reference = f"Pod/{source.namespace or 'default'}/{source.name}"
        if (source.api_version, source.kind) != ("v1", "Pod") or reference not in pods:
            continue
        pod = decode_view(source.document, Pod)
        if not isinstance(pod, Pod):
            continue
        taking = _taking(pod.spec, nodes, labels)
        requested = requested_amounts(pod)
        if not any(_offers(amounts.get(name, {}), requested) for name in taking):
            stranded.append(reference)
            uncolocated += [reference] if taking else []
    return Stranded(tuple(sorted(stranded)), tuple(sorted(uncolocated)))


def _offers(offered: Mapping[str, int], requested: Mapping[str, int]) -> bool:
    return all(offered.get(name, 0) >= amount for name, amount in requested.items())


def _switched_labels(wave: Wave, waves: Iterable[Wave]) -> dict[str, Mapping[str, str]]:
    """Return the nodes of earlier waves to the labels of their switch."""
    return {
        node.name: node.labels for other in waves if other.wave < wave.wave for node in other.nodes
    }


def _nodes(objects: Iterable[SourceObject]) -> Iterator[Node]:
    for source in objects:
        if (source.api_version, source.kind) == ("v1", "Node"):
            node = decode_view(source.document, Node)
            if isinstance(node, Node):
                yield node


def _taking(
    spec: PodSpec, nodes: Iterable[Node], labels: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Return the nodes with labels for the pods of a workload, those of their switch included."""
    placing = PodSpec(
        node_selector=spec.node_selector, affinity=spec.affinity, tolerations=_ANY_TAINT
    )
    return [
        node.metadata.name
        for node in nodes
        if counted_rejection(
            Pod(spec=placing), with_labels(node, labels.get(node.metadata.name, {}))
        )
        is None
    ]


def _pairs(keys: Collection[str], names: Collection[str], nodes: Iterable[Node]) -> list[str]:
    """Return the labels that some nodes have today, as `key=value`."""
    return sorted(
        {
            f"{key}={node.labels[key]}"
            for node in nodes
            if node.metadata.name in names
            for key in keys & node.labels.keys()
        }
    )
