"""Notes on Kueue beside a migration, as far as its release in the cluster is known. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from answers.manifests.pod_checks import QUEUE_NAME
from findings.text import join_names
from kube.manifests.source import SourceObject
from migration.cluster.evidence import KUEUE_IMAGE, deployed_release, mapping_at
from migration.plan.model.nodes_by_use import NodesByUse
from migration.plan.model.plan import Plan, Wave
from migration.plan.neighbours.statements import statement_note
from translation.cluster.component_statements import Component, Topic, statements_about

_TOPICS: Final = dict.fromkeys(
    ("Pod", "Deployment", "StatefulSet", "LeaderWorkerSet"),
    (
        *(Topic.COUNTS_POD, Topic.UNCOUNTED_CLAIMS, Topic.UNKNOWN_CLAIMS),
        *(Topic.UNMAPPED_CLASS, Topic.SHARES),
    ),
)
"""Kinds whose pods Kueue counts; of others, which are jobs, it counts the template."""


def queued_workloads(objects: Iterable[SourceObject]) -> dict[str, str]:
    """Return the objects that Kueue queues, as `Kind/namespace/name`, to their kinds."""
    return {
        f"{source.kind}/{source.namespace or 'default'}/{source.name}": source.kind
        for source in objects
        if QUEUE_NAME in mapping_at(source.document, "metadata", "labels")
    }


def queue_notes(
    wave: Wave, queued: Mapping[str, str], objects: Iterable[SourceObject]
) -> Iterator[str]:
    """Yield Kueue's treatment of the workloads of a wave that it queues, each statement once.

    Where no statement is about its release in the cluster, those about others are noted, and that they are.

    Args:
        wave: The wave with its workloads.
        queued: The objects that Kueue queues, as `queued_workloads` gives them.
        objects: The cluster's objects, without pods of controllers.
    """
    translated = {workload.object for workload in wave.workloads if workload.is_translated}
    topics = dict.fromkeys(
        topic
        for reference, kind in queued.items()
        if reference in translated
        for topic in _TOPICS.get(kind, (Topic.COUNTS_TEMPLATE,))
    )
    if not topics:
        return
    release = deployed_release(objects, KUEUE_IMAGE)
    statements = statements_about(Component.KUEUE, *topics)
    own = [entry for entry in statements if release is None or entry.holds_for(release)]
    unread = "" if own else f"; Kueue is 0.{release} here, for which that was not looked up"
    for statement in own or statements:
        yield f"{statement_note(statement)}{unread}"


def _classes_by_key(plan: Plan, objects: Iterable[SourceObject]) -> dict[str, str]:
    """Return device key to the DeviceClass that maps it during the migration, by the plan or today already.

    Of several classes the newest counts, and of equally new ones the first by name, as in Kubernetes.
    """
    unmapped = {entry.device_class for entry in plan.wide_mappings}
    own = [it for it in objects if it.kind == "DeviceClass" and it.name not in unmapped]
    own.sort(key=lambda source: source.name, reverse=True)
    own.sort(
        key=lambda it: str(mapping_at(it.document, "metadata").get("creationTimestamp") or "~")
    )
    names = {
        str(mapping_at(source.document, "spec").get("extendedResourceName") or ""): source.name
        for source in own
    }
    return names | dict(plan.mapped_classes)


def native_queue_notes(
    plan: Plan,
    queued: Iterable[str],
    objects: Sequence[SourceObject],
    nodes_by_use: NodesByUse,
) -> Iterator[str]:
    """Yield Kueue's treatment of the native workloads that it queues, by the class that their keys mean.

    A release that no statement is about counts them by their keys, as before.

    Args:
        plan: The plan.
        queued: The objects that Kueue queues, as `Kind/namespace/name`.
        objects: The cluster's objects, without pods of controllers.
        nodes_by_use: The nodes by the pods that run there.
    """
    natives = nodes_by_use.native_workloads
    keys_of = {reference: natives[reference] for reference in queued if reference in natives}
    names_of: dict[str, set[str]] = {}
    for key, class_name in sorted(_classes_by_key(plan, objects).items()):
        own = {reference for reference, keys in keys_of.items() if key in keys}
        names_of.setdefault(class_name, set()).update(own)
    release = deployed_release(objects, KUEUE_IMAGE)
    for class_name, names in names_of.items():
        for statement in statements_about(Component.KUEUE, Topic.EXTENDED_RESOURCES):
            if names and (release is None or statement.holds_for(release)):
                yield (
                    f"{statement.sentence} [{statement.source}]: it queues {join_names(sorted(names))}, so give {class_name} "
                    "no sources in its deviceClassMappings"
                )
