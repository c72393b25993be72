"""Autoscalers and pools of nodes beside a migration: the annotations that hold them, and notes on them. Pure.

Sources: kubernetes/autoscaler cluster-autoscaler/FAQ.md (scale-down-disabled); karpenter.sh/docs/concepts/disruption;
the labels of node pools are their clouds'. What autoscalers do with claims and with labels of GPUs is from
`translation.cluster.component_statements`.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from findings.text import count_text, join_names
from kube.manifests.source import SourceObject
from migration.cluster.evidence import deployed_release, mapping_at, text_map
from migration.legacy.gpu_labels import (
    KARPENTER_POOL,
    is_halted,
    unready_label,
    unready_reason,
    unready_remedy,
)
from migration.plan.model.nodes_by_use import NodesByUse
from migration.plan.model.plan import Plan, Wave
from migration.plan.neighbours.statements import statement_note
from translation.cluster.component_statements import Component, Statement, Topic, statements_about

_NODE: Final = "Node//"
SCALE_DOWN_DISABLED: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
_POOLS: Final = (
    KARPENTER_POOL,
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "kubernetes.azure.com/agentpool",
)
_UNLABELLED_PROVIDERS: Final = frozenset({"Cluster API", "externalgrpc"})
"""Providers of the Cluster Autoscaler whose node groups none of these labels names."""
_RAISE: Final = "raise --max-total-unready-percentage (45) to 100"
_AUTOSCALER_IMAGE: Final = re.compile(r"cluster-autoscaler[^:]*:v?1\.(\d{1,3})(?!\d)")
_CLAIM_TOPICS: Final = (Topic.SEES_CLAIMS, Topic.SCALE_FROM_ZERO)
_NATIVE_TOPICS: Final = (Topic.EXTENDED_RESOURCES, Topic.NATIVE)
_EXPIRY_TOPICS: Final = (Topic.EXPIRY,)


def pool_of(labels: Mapping[str, str]) -> str:
    """Return the label of the pool that an autoscaler or a cloud grows, as `key=value`; empty without."""
    return next((f"{key}={labels[key]}" for key in _POOLS if key in labels), "")


def guard_annotations(node: Mapping[str, Any], leaving: Collection[str]) -> tuple[str, ...]:
    """Return the annotations that keep an autoscaler from a drained node, and that it does not have yet.

    Args:
        node: The node.
        leaving: Resource names that it does not offer any more once it is switched.
    """
    pool = pool_of(text_map(node, "metadata", "labels"))
    if not pool and not unready_label(node, leaving):
        return ()
    key = DO_NOT_DISRUPT if pool.startswith(f"{KARPENTER_POOL}=") else SCALE_DOWN_DISABLED
    return () if key in mapping_at(node, "metadata", "annotations") else (key,)


def _is_of_release(statement: Statement, release: int | None) -> bool:
    """Return False for a statement on other releases of the Cluster Autoscaler."""
    if release is None or statement.component is not Component.CLUSTER_AUTOSCALER:
        return True
    return statement.holds_for(release)


def autoscaler_notes(
    plan: Plan,
    wave: Wave,
    objects: Sequence[SourceObject],
    nodes_by_use: NodesByUse,
    halts: Mapping[int, str] = {},
    *,
    left_nodes: Mapping[str, Sequence[str]] = {},
) -> Iterator[str]:
    """Yield notes on the autoscalers of a wave's nodes, and on the labels of their pools.

    Most waves are like one before them, and need none of the objects, of which a large cluster has many.

    Args:
        plan: The plan.
        wave: One of its waves.
        objects: The cluster's objects.
        nodes_by_use: The nodes by the pods that run there.
        halts: The notes of `halt_notes`.
        left_nodes: The nodes of `nodes_left_in_pools`.
    """
    yield from _statement_notes(plan, wave, objects, nodes_by_use)
    yield from _unready_notes(plan, wave, objects)
    if wave.wave in halts:
        yield halts[wave.wave]
    yield from _pool_notes(wave, left_nodes)


def _unready_notes(plan: Plan, wave: Wave, objects: Sequence[SourceObject]) -> Iterator[str]:
    """Yield notes on nodes that the Cluster Autoscaler takes for unready by a label once they are switched."""
    earlier = [entry for entry in plan.waves if entry.wave < wave.wave]
    before = {node.gpu_label for entry in earlier for node in entry.nodes}
    labels = {node.gpu_label for node in wave.nodes} - before - {""}
    for label in sorted(labels):
        names = [
            node.name for entry in plan.waves for node in entry.nodes if node.gpu_label == label
        ]
        yield (
            f"{unready_reason(label)} ({count_text(len(names), 'node')} of this plan: {join_names(names)}): "
            f"{unready_remedy(label, objects)}; "
            f"until then leave {SCALE_DOWN_DISABLED} on them, as the scripts do, also after the last wave"
        )
    if labels and not before - {""}:
        release = deployed_release(objects, _AUTOSCALER_IMAGE)
        for statement in statements_about(Component.CLUSTER_AUTOSCALER, Topic.GPU_LABEL):
            if _is_of_release(statement, release):
                yield statement_note(statement)


def halt_notes(waves: Sequence[Wave], objects: Iterable[SourceObject]) -> dict[int, str]:
    """Return number of a wave to a note, for waves that leave too many nodes unready by their label of GPUs, and not before.

    Args:
        waves: The waves of a plan, in order.
        objects: The cluster's objects, which are read once for all waves.
    """
    if not any(node.gpu_label for wave in waves for node in wave.nodes):
        return {}
    nodes = [source for source in objects if (source.api_version, source.kind) == ("v1", "Node")]
    unready = {source.name for source in nodes if unready_label(source.document)}
    notes: dict[int, str] = {}
    for number, wave in enumerate(waves):
        before = len(unready)
        unready |= {node.name for node in wave.nodes if node.gpu_label}
        is_new = number == 0 or not is_halted(before, len(nodes))
        if is_new and len(unready) > before and is_halted(len(unready), len(nodes)):
            notes[wave.wave] = halt_text(len(unready), len(nodes))
    return notes


def halt_text(unready: int, nodes: int) -> str:
    """Return a sentence on the nodes that are unready after a wave."""
    return (
        f"after this wave {_unready_text(unready, nodes)}: before this wave see to the label of the nodes that are switched, or "
        f"{_RAISE}"
    )


def halted_text(unready: int, nodes: int) -> str:
    """Return a sentence on the nodes that are unready now."""
    return f"{_unready_text(unready, nodes)}: see to the label of the switched nodes, or {_RAISE}"


def _unready_text(unready: int, nodes: int) -> str:
    return (
        f"{unready} of {count_text(nodes, 'node')} are unready for Cluster Autoscaler by their label of GPUs, and it adds and "
        "removes no node of the cluster, those without GPUs included"
    )


def _statement_notes(
    plan: Plan, wave: Wave, objects: Iterable[SourceObject], nodes_by_use: NodesByUse
) -> Iterator[str]:
    """Yield notes on the pools' autoscalers and their pods, except those of an earlier wave.

    Args:
        plan: The plan.
        wave: One of its waves.
        objects: The cluster's objects.
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
    new_topics = sorted(_autoscaler_topics(wave, topics_of) - earlier)
    release = deployed_release(objects, _AUTOSCALER_IMAGE) if new_topics else None
    for component, topics in new_topics:
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
        if node.pool.startswith(f"{KARPENTER_POOL}="):
            topics.add((Component.KARPENTER, topics_of[node.pool]))
            topics.add((Component.KARPENTER, _EXPIRY_TOPICS))
        elif node.pool:
            topics.add((Component.CLUSTER_AUTOSCALER, topics_of[node.pool]))
    return topics


def nodes_left_in_pools(plan: Plan, objects: Iterable[SourceObject]) -> dict[str, tuple[str, ...]]:
    """Return pool, as `key=value`, to its nodes that the plan holds, for the pools of its waves.

    Args:
        plan: The plan.
        objects: The cluster's objects, which are read once for all waves.
    """
    pools = {node.pool for wave in plan.waves for node in wave.nodes} - {""}
    names = {entry.object.removeprefix(_NODE) for entry in plan.held} if pools else set[str]()
    left_nodes: dict[str, list[str]] = {}
    for source in objects if names else ():
        if (source.api_version, source.kind) == ("v1", "Node") and source.name in names:
            pool = pool_of(text_map(source.document, "metadata", "labels"))
            if pool in pools:
                left_nodes.setdefault(pool, []).append(source.name)
    return {pool: tuple(sorted(own)) for pool, own in left_nodes.items()}


def _pool_notes(wave: Wave, left_nodes: Mapping[str, Sequence[str]]) -> Iterator[str]:
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
            if pool.startswith(f"{KARPENTER_POOL}=")
            else f"set the labels {texts} in the pool once all its nodes are switched{_later(left_nodes.get(pool, ()))}"
        )
        yield f"node pool {pool}: new nodes come with the device plugin; {way}"


def _later(names: Sequence[str]) -> str:
    """Return the words about the nodes of a pool that the plan holds; empty without any."""
    return (
        f", which this plan does not do, as it holds {join_names(names)}: until then no pod with claims may use a new node of it, "
        "and a new plan switches that"
        if names
        else ""
    )
