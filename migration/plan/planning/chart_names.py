"""The DeviceClass for each resource name in the chart of another driver. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from findings.text import join_names
from kube.api.extended_resources import extended_resources
from kube.api.resource import DeviceClass
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.plan.facts.vendors import CHART_MAPPINGS, unmap_command
from migration.plan.model.plan import Held
from migration.plan.search.moments import Candidate
from translation.cluster.snapshot import WideMapping
from translation.profiles.profile import Profile

_FOREIGN: Final = "the name means devices of another driver"
_IN_USE: Final = (
    "pods of {} run on switched nodes with {} of DeviceClass {}, and a name has one class: once this node is switched, no pod "
    "with the name could use it"
)
_FREE_NAME: Final = "let these pods request shares, or move them to nodes with a device plugin; then plan again from a new snapshot"
_OTHER_NAME: Final = "DeviceClass {} maps {}, and a class maps one name: once this node is switched, no pod with {} could use it"
_UNUSED: Final = (
    "pods of {} run on switched nodes with {} of this class, and a name has one class: no new pod with the name can use {}, "
    "though DeviceClass {} is for these"
)
_UNUSED_OTHER: Final = "it maps {}, and a class maps one name: no new pod with {} can use {}"
_FREE_UNUSED: Final = "let these pods request shares, or move them to nodes with a device plugin, and run {}; then plan again from a new snapshot"
_FREE_CLASS: Final = "have a DeviceClass of its own map {}, and take it from DeviceClass {}; then plan again from a new snapshot"


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


def read_chart_names(
    workloads: Iterable[AssessedWorkload],
    classes: Mapping[str, DeviceClass],
    live_nodes: Mapping[str, Iterable[str]],
    class_nodes: Mapping[str, Collection[str]],
) -> tuple[ChartName, ...]:
    """Return the names that classes of charts map today.

    Args:
        workloads: The cluster's workloads.
        classes: The DeviceClasses of the cluster, by name.
        live_nodes: Workload to the nodes of its pods.
        class_nodes: DeviceClass of a chart to the nodes that publish devices of its driver.
    """
    in_force = extended_resources(classes.values())
    native = [workload for workload in workloads if workload.outcome is Outcome.NATIVE]
    names = []
    for chart_class, resource in CHART_MAPPINGS.items():
        if in_force.get(resource) != chart_class:
            continue
        needed = {workload.classes.get(resource, chart_class) for workload in native}
        own_class = max(needed - {chart_class}, default=chart_class)
        own = classes.get(own_class)
        other_name = own.spec.extended_resource_name if own is not None else ""
        nodes = class_nodes.get(chart_class, ())
        users = {
            workload.key.reference
            for workload in native
            if resource in requested_keys(workload)
            and not set(nodes).isdisjoint(live_nodes.get(workload.key.reference, ()))
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


def held_by_names(
    names: Iterable[ChartName], candidates: Sequence[Candidate], held_nodes: Collection[str]
) -> list[Held]:
    """Return the nodes with a resource name that no class of theirs can map, so pods with it could not use them.

    Args:
        names: The names that classes of charts map today.
        candidates: The nodes of legacy systems.
        held_nodes: The nodes that are held already, as `Node//name`.
    """
    reasons = [(name, *_reason(name)) for name in names if name.users or not name.winner]
    return [
        Held(object=f"Node//{candidate.node.name}", reason=reason, fix=fix)
        for name, reason, fix in reasons
        for candidate in candidates
        if name.chart_class not in candidate.node.devices
        and name.resource in candidate.node.resources
        and f"Node//{candidate.node.name}" not in held_nodes
    ]


def held_unused(
    names: Iterable[ChartName],
    gpu_nodes: Mapping[str, Collection[str]],
    profiles: Mapping[str, Profile],
) -> Iterator[Held]:
    """Yield the classes with a name that pods cannot use on nodes switched already.

    Args:
        names: The names that classes of charts map today.
        gpu_nodes: Driver to the nodes that publish GPUs of it.
        profiles: Driver to profile.
    """
    for name in names:
        if name.winner == name.own_class:
            continue
        nodes = {
            node
            for driver, own in gpu_nodes.items()
            if name.own_class in profiles[driver].class_names()
            for node in own
        }
        if nodes and name.users:
            users, unused = join_names(name.users), join_names(sorted(nodes))
            yield Held(
                object=f"DeviceClass//{name.chart_class}",
                reason=_UNUSED.format(users, name.resource, unused, name.own_class),
                fix=_FREE_UNUSED.format(unmap_command(name.chart_class)),
            )
        elif nodes:
            yield Held(
                object=f"DeviceClass//{name.own_class}",
                reason=_UNUSED_OTHER.format(
                    name.other_name, name.resource, join_names(sorted(nodes))
                ),
                fix=_FREE_CLASS.format(name.other_name, name.own_class),
            )


def _reason(name: ChartName) -> tuple[str, str]:
    """Return the reason and the fix of nodes that wait for a name."""
    if name.users:
        users = join_names(name.users)
        return _IN_USE.format(users, name.resource, name.chart_class), _FREE_NAME
    reason = _OTHER_NAME.format(name.own_class, name.other_name, name.resource)
    return reason, _FREE_CLASS.format(name.other_name, name.own_class)


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


def left_names(names: Iterable[ChartName], taken_back: Iterable[WideMapping]) -> frozenset[str]:
    """Return the names that classes of charts keep, as they are today."""
    return frozenset(name.resource for name in names) - {entry.resource for entry in taken_back}


def requested_keys(workload: AssessedWorkload) -> frozenset[str]:
    """Return the resource names that the claims of a workload would be for: none with an amount of 0."""
    claims = workload.result.claims if workload.result is not None else ()
    return frozenset(key for claim in claims for key, _ in claim.classes_by_key())
