"""The nodes and classes that are held because of a resource name in the chart of another driver. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from findings.text import join_names
from migration.assessment.chart_names import ChartName
from migration.plan.drivers.vendors import unmap_command
from migration.plan.model.plan import Held
from migration.plan.search.moments import Candidate
from translation.cluster.snapshot import WideMapping
from translation.profiles.profile import Profile

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


def left_names(names: Iterable[ChartName], taken_back: Iterable[WideMapping]) -> frozenset[str]:
    """Return the names that classes of charts keep, as they are today."""
    return frozenset(name.resource for name in names) - {entry.resource for entry in taken_back}
