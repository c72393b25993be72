"""The DeviceClasses that a plan has map resource names. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from kube.manifests.source import SourceObject
from migration.assessment.evidence import mapping_at
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.plan.facts.vendors import CHART_MAPPINGS
from translation.profiles.profile import Profile


def planned_mappings(
    workloads: Iterable[AssessedWorkload],
    profiles: Mapping[str, Profile],
    *,
    mapped: Mapping[str, str],
    drivers: Collection[str],
    held: Collection[str],
    opted_in: Collection[str],
) -> dict[str, str]:
    """Return resource name to the DeviceClass that has to map it before the first wave, for native workloads.

    A class comes with its driver, so that of a driver that nothing installs may not be there. What is held keeps its
    device plugin, and needs no class, unless its namespace is opted in: without one its next pods would get claims.
    Of the names that a class maps already, only that of a driver's own chart is returned: else it would be taken back.

    Args:
        workloads: The cluster's workloads.
        profiles: Driver to profile.
        mapped: Resource name to the DeviceClass that maps it today.
        drivers: The drivers that are installed by then.
        held: The workloads that never move, as `Kind/namespace/name`.
        opted_in: The namespaces that are opted in as a whole by the end.
    """
    classes = frozenset[str]().union(
        *(profiles[driver].class_names() for driver in drivers if driver in profiles)
    )
    return dict(
        sorted(
            (key, name)
            for workload in workloads
            if workload.key.reference not in held or workload.key.namespace in opted_in
            for key, name in (*workload.unmapped.items(), *_mapped_by_charts(workload, mapped))
            if name in classes
        )
    )


def _mapped_by_charts(
    workload: AssessedWorkload, mapped: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the resource names of a native workload with the classes of charts that map them."""
    for key in workload.keys if workload.outcome is Outcome.NATIVE else ():
        name = mapped.get(key, "")
        if CHART_MAPPINGS.get(name) == key:
            yield key, name


def publishing_drivers(objects: Iterable[SourceObject]) -> frozenset[str]:
    """Return the drivers that publish devices today."""
    return frozenset(
        str(mapping_at(source.document, "spec").get("driver", ""))
        for source in objects
        if source.kind == "ResourceSlice"
    )
