"""The resource names that classes of charts map though they mean devices of another driver. Pure.

What a migration makes of such a name is decided here, once for plans, assessments, the conversion of quotas, and checks.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from answers.model.cluster_state import ClusterState
from kube.api.extended_resources import extended_resources
from kube.api.resource import DeviceClass
from kube.manifests.source import SourceObject
from migration.assessment.outcomes import AssessedWorkload, Outcome, mapped_classes
from migration.cluster.evidence import mapping_at
from translation.cluster.snapshot import WideMapping
from translation.profiles.profile import Profile

CHART_MAPPINGS: Final = {"hami-core-gpu.project-hami.io": "nvidia.com/gpu"}
"""DRA driver to the resource name that its chart has its DeviceClass map, though the name means devices of another
driver. Source: Project-HAMi/k8s-dra-driver chart/hami-dra-driver."""
_FOREIGN: Final = "the name means devices of another driver"


class ChartName(msgspec.Struct, frozen=True, kw_only=True):
    """A resource name that the class of a chart maps today, though it means devices of another driver.

    Attributes:
        resource: The name.
        chart_class: The class, named as its driver.
        own_class: The class of the devices that the name means for native workloads; that of the chart where it means
            no others.
        users: The native workloads with pods of that name on nodes that publish devices of the chart's driver, as
            `Kind/namespace/name`.
        other_name: The name that `own_class` maps today instead; empty without.
    """

    resource: str
    chart_class: str
    own_class: str
    users: tuple[str, ...] = ()
    other_name: str = ""

    @property
    def winner(self) -> str:
        """Return the class that may map the name once a wave needs it; empty for none.

        | users | own class        | it maps another name | winner       | nodes of the own class |
        | ----- | ---------------- | -------------------- | ------------ | ---------------------- |
        | some  | any              | any                  | chart's, now | held                   |
        | none  | that of a chart  | any                  | chart's      | none                   |
        | none  | of other devices | no                   | own          | may be switched        |
        | none  | of other devices | yes                  | none         | held                   |
        """
        if self.users or self.own_class == self.chart_class:
            return self.chart_class
        return "" if self.other_name else self.own_class


class NameChanges(NamedTuple):
    """The resource names that a preparation gives to classes, each with its DeviceClass, and the mappings to take back."""

    mappings: Mapping[str, str]
    taken_back: tuple[WideMapping, ...]


def read_chart_names(
    workloads: Iterable[AssessedWorkload],
    classes: Mapping[str, DeviceClass],
    state: ClusterState,
    profiles: Iterable[Profile],
) -> tuple[ChartName, ...]:
    """Return the names that classes of charts map today.

    Args:
        workloads: The cluster's workloads.
        classes: The DeviceClasses of the cluster, by name, with assumed ones.
        state: Its state, without assumed slices.
        profiles: The profiles of all drivers.
    """
    in_force = extended_resources(classes.values())
    native = [workload for workload in workloads if workload.outcome is Outcome.NATIVE]
    own_profiles = tuple(profiles)
    names = []
    for chart_class, resource in CHART_MAPPINGS.items():
        if in_force.get(resource) != chart_class:
            continue
        needed = {workload.classes.get(resource, chart_class) for workload in native}
        own_class = max(needed - {chart_class}, default=chart_class)
        own = classes.get(own_class)
        other_name = own.spec.extended_resource_name if own is not None else ""
        nodes = _publishing_nodes(chart_class, state, own_profiles)
        users = {
            workload.key.reference
            for workload in native
            if resource in requested_keys(workload)
            and not nodes.isdisjoint(nodes_of(workload, state))
        }
        names.append(
            ChartName(
                resource=resource,
                chart_class=chart_class,
                own_class=own_class,
                users=tuple(sorted(users)),
                other_name=(other_name or "") if other_name != resource else "",
            )
        )
    return tuple(names)


def find_name_changes(
    workloads: Sequence[AssessedWorkload],
    state: ClusterState,
    names: Sequence[ChartName],
    inventory: Iterable[SourceObject],
) -> NameChanges:
    """Return the change of resource names by a preparation of all nodes.

    A plan that leaves nodes as they are may change fewer.

    Args:
        workloads: The cluster's workloads.
        state: Its state, with assumed classes.
        names: The names that classes of charts map today.
        inventory: The assumed inventory of the nodes of legacy systems.
    """
    drivers = {
        str(mapping_at(source.document, "spec")["driver"])
        for source in inventory
        if source.kind == "ResourceSlice"
    }
    own = without_chart_mappings(workloads, names)
    mappings = with_chart_names(mapped_classes(own), names)
    staying_keys = {
        key for workload in own if any(nodes_of(workload, state)) for key in workload.unmapped
    }
    return NameChanges(mappings, chart_mappings(state.classes, mappings, drivers, staying_keys))


def _publishing_nodes(
    device_class: str, state: ClusterState, profiles: Iterable[Profile]
) -> frozenset[str]:
    """Return the nodes that publish devices of the driver of a class."""
    drivers = {profile.driver for profile in profiles if device_class in profile.class_names()}
    return frozenset(
        slice_.spec.node_name
        for slice_ in state.slices
        if slice_.spec.driver in drivers and slice_.spec.node_name
    )


def nodes_of(workload: AssessedWorkload, state: ClusterState) -> Iterator[str]:
    """Yield the nodes of the pods of a workload."""
    pods = (state.pods.get(name) for name in sorted(workload.members))
    yield from (pod.spec.node_name for pod in pods if pod is not None and pod.spec.node_name)


def foreign_mappings(objects: Iterable[SourceObject]) -> tuple[WideMapping, ...]:
    """Return the mappings of foreign names by classes of charts; some may not be taken back."""
    return tuple(
        WideMapping(resource=key, device_class=source.name, reason=_FOREIGN)
        for source in objects
        if source.kind == "DeviceClass" and (key := CHART_MAPPINGS.get(source.name)) is not None
        if mapping_at(source.document, "spec").get("extendedResourceName") == key
    )


def without_chart_mappings(
    workloads: Sequence[AssessedWorkload], names: Iterable[ChartName]
) -> tuple[AssessedWorkload, ...]:
    """Return workloads as if no class of a chart mapped a foreign name; each native one has the class that may map it."""
    classes = {name.resource: name.winner or name.own_class for name in names}
    return tuple(
        msgspec.structs.replace(
            workload,
            unmapped={
                **workload.unmapped,
                **{key: classes[key] for key in sorted(workload.keys & classes.keys())},
            },
        )
        if workload.outcome is Outcome.NATIVE
        else workload
        for workload in workloads
    )


def with_chart_names(mappings: Mapping[str, str], names: Iterable[ChartName]) -> dict[str, str]:
    """Return the planned mappings with the classes that running pods use, and without those that cannot be."""
    changed = dict(mappings)
    for name in names:
        if name.users:
            changed[name.resource] = name.chart_class
        elif not name.winner:
            changed.pop(name.resource, None)
    return dict(sorted(changed.items()))


def chart_mappings(
    classes: Mapping[str, DeviceClass],
    mappings: Mapping[str, str],
    drivers: Collection[str],
    staying_keys: Collection[str],
) -> tuple[WideMapping, ...]:
    """Return the mappings of charts that a plan takes back, for another class or for nobody.

    Args:
        classes: The DeviceClasses of the cluster, by name.
        mappings: Resource name to the DeviceClass that the plan has map it.
        drivers: The drivers that waves need.
        staying_keys: The resource names without a class of native workloads that run. Without a planned class, these
            are on nodes that keep their device plugin.
    """
    return tuple(
        WideMapping(resource=key, device_class=name, reason=_FOREIGN)
        for name, key in CHART_MAPPINGS.items()
        if name in classes
        and classes[name].spec.extended_resource_name == key
        and mappings.get(key) != name
        and (name in drivers or key in mappings or key in staying_keys)
    )


def requested_keys(workload: AssessedWorkload) -> frozenset[str]:
    """Return the resource names that the claims of a workload would be for: none with an amount of 0."""
    claims = workload.result.claims if workload.result is not None else ()
    return frozenset(key for claim in claims for key, _ in claim.classes_by_key())
