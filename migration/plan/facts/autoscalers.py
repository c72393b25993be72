"""Autoscalers and pools of nodes beside a migration: the annotations that hold them, and notes on them. Pure.

Sources: kubernetes/autoscaler cluster-autoscaler/FAQ.md (scale-down-disabled); karpenter.sh/docs/concepts/disruption;
the labels of node pools are their clouds'. What autoscalers do with claims is from
`translation.cluster.component_statements`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kube.manifests.source import SourceObject
from migration.cluster.evidence import list_at, mapping_at, text_map
from migration.plan.facts.neighbours import statement_note
from migration.plan.model.nodes_by_use import NodesByUse
from migration.plan.model.plan import Plan, Wave
from translation.cluster.component_statements import Component, Statement, Topic, statements_about

SCALE_DOWN_DISABLED: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
_KARPENTER: Final = "karpenter.sh/nodepool"
_POOLS: Final = (
    _KARPENTER,
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "kubernetes.azure.com/agentpool",
)
_UNLABELLED_PROVIDERS: Final = frozenset({"Cluster API", "externalgrpc"})
"""Providers of the Cluster Autoscaler whose node groups none of these labels names."""
_AUTOSCALER_IMAGE: Final = re.compile(r"cluster-autoscaler[^:]*:v?1\.(\d{1,3})(?!\d)")
_CLAIM_TOPICS: Final = (Topic.SEES_CLAIMS, Topic.SCALE_FROM_ZERO)
_NATIVE_TOPICS: Final = (Topic.EXTENDED_RESOURCES, Topic.NATIVE)
_EXPIRY_TOPICS: Final = (Topic.EXPIRY,)


def pool_of(labels: Mapping[str, str]) -> str:
    """Return the label of the pool that an autoscaler or a cloud grows, as `key=value`; empty without."""
    return next((f"{key}={labels[key]}" for key in _POOLS if key in labels), "")


def guard_annotations(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the annotations that keep an autoscaler from a drained node, and that it does not have yet."""
    pool = pool_of(text_map(node, "metadata", "labels"))
    if not pool:
        return ()
    key = DO_NOT_DISRUPT if pool.startswith(f"{_KARPENTER}=") else SCALE_DOWN_DISABLED
    return () if key in mapping_at(node, "metadata", "annotations") else (key,)


def _autoscaler_release(objects: Iterable[SourceObject]) -> int | None:
    """Return the minor release of the Cluster Autoscaler, by the image of its Deployment; None without one."""
    for source in objects:
        containers = list_at(source.document, "spec", "template", "spec", "containers")
        for container in containers if source.kind == "Deployment" else ():
            match = _AUTOSCALER_IMAGE.search(str(mapping_at(container).get("image")))
            if match is not None:
                return int(match[1])
    return None


def _is_of_release(statement: Statement, release: int | None) -> bool:
    """Return False for a statement on other releases of the Cluster Autoscaler."""
    if release is None or statement.component is not Component.CLUSTER_AUTOSCALER:
        return True
    return statement.holds_for(release)


def autoscaler_notes(
    plan: Plan, wave: Wave, objects: Sequence[SourceObject], nodes_by_use: NodesByUse
) -> Iterator[str]:
    """Yield notes on the autoscalers of a wave's nodes, and on the labels of their pools."""
    yield from _statement_notes(plan, wave, _autoscaler_release(objects), nodes_by_use)
    yield from _pool_notes(wave)


def _statement_notes(
    plan: Plan, wave: Wave, release: int | None, nodes_by_use: NodesByUse
) -> Iterator[str]:
    """Yield notes on the pools' autoscalers and their pods, except those of an earlier wave.

    Args:
        plan: The plan.
        wave: One of its waves.
        release: The minor release of the Cluster Autoscaler; None if it is not known.
        nodes_by_use: The nodes by the pods that run there.
    """
    nodes_of: dict[str, set[str]] = {}
    for entry in plan.waves:
        for node in entry.nodes:
            nodes_of.setdefault(node.pool, set()).add(node.name)
    topics_of = {
        pool: _NATIVE_TOPICS if nodes_by_use.has_native_only(names) else _CLAIM_TOPICS
        for pool, names in nodes_of.items()
    }
    earlier = {
        topic
        for entry in plan.waves
        if entry.wave < wave.wave
        for topic in _autoscaler_topics(entry, topics_of)
    }
    for component, topics in sorted(_autoscaler_topics(wave, topics_of) - earlier):
        for statement in statements_about(component, *topics):
            if statement.provider in _UNLABELLED_PROVIDERS or not _is_of_release(
                statement, release
            ):
                continue
            yield statement_note(statement)


def _autoscaler_topics(
    wave: Wave, topics_of: Mapping[str, tuple[Topic, ...]]
) -> set[tuple[Component, tuple[Topic, ...]]]:
    """Return the autoscalers of the pools of a wave's nodes, with the topics for their pods and for the nodes."""
    topics = set()
    for node in wave.nodes:
        if node.pool.startswith(f"{_KARPENTER}="):
            topics.add((Component.KARPENTER, topics_of[node.pool]))
            topics.add((Component.KARPENTER, _EXPIRY_TOPICS))
        elif node.pool:
            topics.add((Component.CLUSTER_AUTOSCALER, topics_of[node.pool]))
    return topics


def _pool_notes(wave: Wave) -> Iterator[str]:
    """Yield a note on each pool of a wave's nodes, and on the labels of its new nodes."""
    labels: dict[str, str] = {}
    for node in wave.nodes:
        if node.pool:
            labels[node.pool] = ", ".join(f"{key}={value}" for key, value in node.labels.items())
    for pool, texts in sorted(labels.items()):
        way = (
            f"make a NodePool with the labels {texts} for them: a change of the template of this one makes all its nodes "
            "drift, and Karpenter replaces them; where a new node stays uninitialized, delete its NodeClaim by hand once it is "
            "empty"
            if pool.startswith(f"{_KARPENTER}=")
            else f"set the labels {texts} in the pool once all its nodes are switched"
        )
        yield f"node pool {pool}: new nodes come with the device plugin; {way}"
