"""The DeviceClasses that a plan has map resource names. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from findings.text import join_names
from kube.manifests.source import SourceObject
from migration.assessment.outcomes import AssessedWorkload
from migration.cluster.evidence import mapping_at
from migration.plan.facts.opted_in import is_left_to_plugin, unmapped_names
from migration.plan.model.plan import Held
from migration.plan.planning.namespaces import not_whole, separate_workloads
from translation.model.intents import Vocabulary
from translation.profiles.profile import Profile

_UNMAPPED: Final = (
    "pods of {} keep {}, which no DeviceClass maps in this plan, so the next ones would get claims"
)


def planned_mappings(
    workloads: Iterable[AssessedWorkload],
    profiles: Mapping[str, Profile],
    *,
    drivers: Collection[str],
    unmoved: Collection[str],
    opted_in: Collection[str],
) -> dict[str, str]:
    """Return resource name to the DeviceClass that has to map it before the first wave, for native workloads.

    A class comes with its driver, so that of a driver that nothing installs may not be there. What is held keeps its
    device plugin, and needs no class, unless its namespace is opted in: without one its next pods would get claims.

    Args:
        workloads: The cluster's workloads, without the mappings of charts.
        profiles: Driver to profile.
        drivers: The drivers that are installed by then.
        unmoved: The workloads whose pods never move, as `Kind/namespace/name`.
        opted_in: The namespaces that are opted in as a whole by the end.
    """
    classes = frozenset[str]().union(
        *(profiles[driver].class_names() for driver in drivers if driver in profiles)
    )
    return dict(
        sorted(
            (key, name)
            for workload in workloads
            if workload.key.reference not in unmoved or workload.key.namespace in opted_in
            for key, name in workload.unmapped.items()
            if name in classes
        )
    )


def unmapped_workloads(
    workloads: Iterable[AssessedWorkload],
    mapped: Collection[str],
    namespaces: Collection[str],
    classes: Collection[str],
    vocabularies: Mapping[str, Vocabulary],
) -> dict[str, list[AssessedWorkload]]:
    """Return namespace to its native workloads with next pods that get claims, since no class maps their names.

    Each has those names alone. Pods with devices of other vendors than NVIDIA, not with an amount of 0, are left to their
    device plugin while the class is not there.

    Args:
        workloads: The cluster's workloads.
        mapped: The resource names that classes map once the plan is prepared.
        namespaces: The namespaces that waves opt in as a whole.
        classes: The DeviceClasses of the cluster.
        vocabularies: The vocabularies in force, by name.
    """
    unmapped: dict[str, list[AssessedWorkload]] = {}
    for workload in workloads:
        names = unmapped_names(workload, mapped)
        is_asked = names and workload.key.namespace in namespaces
        if is_asked and not is_left_to_plugin(workload, names, classes, vocabularies):
            own = msgspec.structs.replace(workload, unmapped=names)
            unmapped.setdefault(workload.key.namespace, []).append(own)
    return unmapped


def held_in_parts(unmapped: Mapping[str, Iterable[AssessedWorkload]]) -> Iterator[Held]:
    """Yield the namespaces that are never opted in as a whole because of their native workloads."""
    for namespace, workloads in sorted(unmapped.items()):
        names = join_names(sorted(workload.key.reference for workload in workloads))
        keys = sorted({key for workload in workloads for key in workload.unmapped})
        yield Held(
            object=f"Namespace//{namespace}",
            reason=not_whole(_UNMAPPED.format(names, ", ".join(keys))),
            fix=separate_workloads("the nodes of these pods"),
        )


def publishing_drivers(objects: Iterable[SourceObject]) -> frozenset[str]:
    """Return the drivers that publish devices today."""
    return frozenset(
        str(mapping_at(source.document, "spec").get("driver", ""))
        for source in objects
        if source.kind == "ResourceSlice"
    )
