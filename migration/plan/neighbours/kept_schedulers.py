"""Notes on the schedulers of others that keep pods with claims, as the settings say. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from findings.text import join_names, quote_text, reference_text
from kube.manifests.source import SourceObject
from migration.cluster.evidence import KAI_IMAGE, VOLCANO_IMAGE, deployed_release
from migration.plan.model.plan import Plan, Wave
from migration.plan.neighbours.statements import statement_note
from translation.cluster.component_statements import Component, Topic, statements_about
from translation.vocabularies.kai import SCHEDULERS as KAI_SCHEDULERS

_TOPICS: Final = (Topic.SEES_CLAIMS, Topic.FEATURES, Topic.EXTENDED_RESOURCES)
_NAMES: Final = 5
"""Workloads that a note names."""


class _Scheduler(NamedTuple):
    """A scheduler of others with facts about claims.

    Attributes:
        names: The values of `schedulerName` that it has by default.
        image: The images of its process, with the minor release as the first group.
    """

    component: Component
    names: Collection[str]
    image: re.Pattern[str]


_SCHEDULERS: Final = (
    _Scheduler(component=Component.KAI, names=KAI_SCHEDULERS, image=KAI_IMAGE),
    _Scheduler(component=Component.VOLCANO, names=("volcano",), image=VOLCANO_IMAGE),
)


def kept_scheduler_notes(
    plan: Plan, wave: Wave, schedulers: Mapping[str, str], objects: Sequence[SourceObject]
) -> Iterator[str]:
    """Yield a note on each scheduler of others with claims of a wave to allocate, with the facts about it.

    Args:
        plan: The plan with its stopped workloads, whose next pods get claims from the opt-in of their namespaces on.
        wave: The wave with its workloads.
        schedulers: Workload, as `Kind/namespace/name`, to the scheduler that keeps it, where it gets claims.
        objects: The cluster's objects, without pods of controllers.
    """
    staying: dict[str, list[str]] = {}
    stopped = (
        workload.object
        for workload in plan.stopped_workloads
        if workload.object.split("/")[1] in wave.namespaces
    )
    translated = (workload.object for workload in wave.workloads if workload.is_translated)
    for name in (*translated, *stopped):
        if name in schedulers:
            staying.setdefault(schedulers[name], []).append(reference_text(name))
    for scheduler, references in sorted(staying.items()):
        verb = "stays" if len(references) == 1 else "stay"
        yield (
            f"{join_names(references, _NAMES)} {verb} with scheduler {quote_text(scheduler)} by translation.adoptSchedulers: it has "
            "to allocate the claims itself, so see before this wave that it does"
        )
    for own in _SCHEDULERS:
        if not staying.keys().isdisjoint(own.names):
            release = deployed_release(objects, own.image)
            for statement in statements_about(own.component, *_TOPICS):
                if release is None or statement.holds_for(release):
                    yield statement_note(statement)
