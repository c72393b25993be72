"""Notes on Kueue beside a migration, as far as its release in the cluster is known. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from answers.manifests.pod_checks import QUEUE_NAME
from findings.text import join_names
from kube.manifests.source import SourceObject
from migration.cluster.evidence import text_map
from migration.plan.facts.neighbours import deployed_release, statement_note
from migration.plan.model.nodes_by_use import NodesByUse
from migration.plan.model.plan import Plan, Wave
from translation.cluster.component_statements import Component, Topic, statements_about

_TOPICS: Final = dict.fromkeys(
    ("Pod", "Deployment", "StatefulSet", "LeaderWorkerSet"),
    (Topic.COUNTS_POD, Topic.UNCOUNTED_CLAIMS, Topic.UNMAPPED_CLASS, Topic.SHARES),
)
"""Kinds whose pods Kueue counts; of others, which are jobs, it counts the template."""
_IMAGE: Final = re.compile(r"(?:^|/)kueue:v?0\.(\d{1,3})(?!\d)")


def queue_notes(wave: Wave, objects: Sequence[SourceObject]) -> Iterator[str]:
    """Yield Kueue's treatment of the workloads of a wave that it queues, each statement once.

    Where no statement is about its release in the cluster, those about others are noted, and that they are.
    """
    translated = {workload.object for workload in wave.workloads if workload.is_translated}
    topics = dict.fromkeys(
        topic
        for source in objects
        if f"{source.kind}/{source.namespace or 'default'}/{source.name}" in translated
        and QUEUE_NAME in text_map(source.document, "metadata", "labels")
        for topic in _TOPICS.get(source.kind, (Topic.COUNTS_TEMPLATE,))
    )
    if not topics:
        return
    release = deployed_release(objects, _IMAGE)
    statements = statements_about(Component.KUEUE, *topics)
    own = [entry for entry in statements if release is None or entry.holds_for(release)]
    unread = "" if own else f"; Kueue is 0.{release} here, for which that was not looked up"
    for statement in own or statements:
        yield f"{statement_note(statement)}{unread}"


def native_queue_notes(
    plan: Plan, objects: Sequence[SourceObject], nodes_by_use: NodesByUse
) -> Iterator[str]:
    """Yield Kueue's treatment of the native workloads that it queues, by the class that their keys mean.

    A release that no statement is about counts them by their keys, as before.
    """
    queued = {
        reference: nodes_by_use.native_workloads[reference]
        for source in objects
        if QUEUE_NAME in text_map(source.document, "metadata", "labels")
        and (reference := f"{source.kind}/{source.namespace or 'default'}/{source.name}")
        in nodes_by_use.native_workloads
    }
    names_of: dict[str, set[str]] = {}
    for key, class_name in sorted(plan.mapped_classes.items()):
        own = {reference for reference, keys in queued.items() if key in keys}
        names_of.setdefault(class_name, set()).update(own)
    release = deployed_release(objects, _IMAGE)
    for class_name, names in names_of.items():
        for statement in statements_about(Component.KUEUE, Topic.EXTENDED_RESOURCES):
            if names and (release is None or statement.holds_for(release)):
                yield (
                    f"{statement.sentence} [{statement.source}]: it queues {join_names(sorted(names))}, so give {class_name} "
                    "no sources in its deviceClassMappings"
                )
