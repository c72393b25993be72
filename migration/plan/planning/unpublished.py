"""The namespaces with pods of whole GPUs that would get claims until their driver publishes devices. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from answers.model.views import decode_view
from findings.text import join_names
from kube.api.resource import ResourceSlice
from kube.manifests.source import SourceObject
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.assessment.unmoved import remove_label
from migration.plan.model.parts import AwaitedNodes
from migration.plan.model.plan import Held, PlannedNode
from migration.plan.planning.namespaces import not_whole, separate_workloads
from translation.model.intents import DeviceKind
from translation.profiles.device_counts import count_devices
from translation.profiles.profile import Profile
from translation.vocabularies.nvidia import GPU, MIG_PREFIX

_CLAIMS: Final = (
    "pods of {} keep {} of DeviceClass {}, and the next ones would get claims while its driver publishes no GPUs and "
    "another driver does"
)
_LATER: Final = (
    "the next pods of {} would get claims, and no wave switches a node with devices for these{}"
)
_OPTED_IN: Final = (
    'give the pod template of these the label drawbridge.internal/translate: "false" until the driver publishes GPUs; then '
    "plan again from a new snapshot"
)


class Unpublished(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of a namespace that would get claims, since the driver of their DeviceClass publishes no GPUs.

    Attributes:
        workloads: Their native workloads, as `Kind/namespace/name`.
        nodes: The nodes of legacy systems that get this driver once they are switched.
        rivals: The nodes that get another driver of GPUs.
        is_late: Another driver publishes GPUs today.
        starts_pods: One of the workloads has pods to come.
        removable_label: The namespace, if it is opted in already and no pod of it has claims; else empty.
    """

    device_class: str
    workloads: tuple[str, ...]
    nodes: frozenset[str]
    rivals: frozenset[str]
    is_late: bool
    starts_pods: bool = False
    removable_label: str = ""

    @property
    def reason(self) -> str:
        """Return the reason that the namespace is not to be opted in."""
        return _CLAIMS.format(join_names(self.workloads), GPU, self.device_class)

    @property
    def message(self) -> str:
        """Return the reason with the fix of a namespace that is opted in already."""
        return f"{self.reason}: {self.fix}"

    @property
    def fix(self) -> str:
        """Return the fix of a namespace that is opted in already."""
        return remove_label([self.removable_label]) if self.removable_label else _OPTED_IN

    def is_overtaken(self, order: Iterable[str]) -> bool:
        """Return True if another driver has GPUs before the first node of this one is drained.

        Args:
            order: The nodes in the order in which they are switched.
        """
        first = next((name for name in order if name in self.nodes | self.rivals), "")
        return self.is_late or first in self.rivals

    def drained_early(
        self, order: Sequence[str], nodes_of: Mapping[str, Collection[str]]
    ) -> tuple[str, ...]:
        """Return the workloads with pods on nodes to be drained before this driver has GPUs, and after another one has.

        The first node of this driver is among these: it is switched once it is drained.

        Args:
            order: The nodes in the order in which they are switched.
            nodes_of: Workload to the nodes of its pods.
        """
        if not self.is_overtaken(order):
            return ()
        own = (number for number, name in enumerate(order, start=1) if name in self.nodes)
        early = frozenset(order[: next(own, len(order))])
        return tuple(
            name for name in self.workloads if not early.isdisjoint(nodes_of.get(name, ()))
        )

    def is_held(self, order: Sequence[str], nodes_of: Mapping[str, Collection[str]]) -> bool:
        """Return True for a namespace that is opted in already, unless the first of some nodes cure that in time.

        Args:
            order: The nodes in the order in which they are switched.
            nodes_of: Workload to the nodes of its pods.
        """
        is_cured = not self.nodes.isdisjoint(order)
        # Pods that start later may do so before that.
        return self.is_overtaken(order) and (
            not is_cured or self.starts_pods or bool(self.drained_early(order, nodes_of))
        )


def find_unpublished(
    workloads: Iterable[AssessedWorkload],
    mapped: Mapping[str, str],
    nodes: Sequence[PlannedNode],
    *,
    publishing_drivers: Collection[str],
    profiles: Mapping[str, Profile],
    opted_out: Collection[str],
    starting: frozenset[str] = frozenset(),
    removable_labels: Collection[str] = (),
) -> dict[str, Unpublished]:
    """Return the namespaces with such pods; none if no other driver has GPUs, be it today or after a switch.

    The same rule as in `translation.cluster.routing.publishes_elsewhere`.

    Args:
        workloads: The cluster's workloads, without the mappings of charts.
        mapped: Resource name to the DeviceClass that maps it today.
        nodes: The nodes that may be switched.
        publishing_drivers: The drivers that publish GPUs today.
        profiles: Driver to profile.
        opted_out: Workloads with pods that the webhook leaves as they are.
        starting: Workloads with pods to come.
        removable_labels: The namespaces that are opted in, and whose pods have no claims.
    """
    pods: dict[str, dict[str, list[str]]] = {}
    for workload in workloads:
        name = workload.unmapped.get(GPU) or mapped.get(GPU, "")
        is_native = workload.outcome is Outcome.NATIVE and GPU in workload.keys
        if is_native and name and workload.key.reference not in opted_out:
            own = pods.setdefault(workload.key.namespace, {})
            own.setdefault(name, []).append(workload.key.reference)
    namespaces: dict[str, Unpublished] = {}
    for namespace, references in pods.items():
        for device_class, names in references.items():
            owners = {
                name for name, entry in profiles.items() if device_class in entry.class_names()
            }
            others = {
                name for name, entry in profiles.items() if DeviceKind.GPU in entry.devices
            } - owners
            entry = Unpublished(
                device_class=device_class,
                workloads=tuple(sorted(names)),
                nodes=_nodes_with(owners, filter(_has_gpus, nodes)),
                rivals=_nodes_with(others, nodes),
                is_late=not others.isdisjoint(publishing_drivers),
                starts_pods=not starting.isdisjoint(names),
                removable_label=namespace if namespace in removable_labels else "",
            )
            if owners and owners.isdisjoint(publishing_drivers) and (entry.is_late or entry.rivals):
                namespaces[namespace] = entry
    return namespaces


def _nodes_with(drivers: Collection[str], nodes: Iterable[PlannedNode]) -> frozenset[str]:
    """Return the nodes that get one of these drivers."""
    return frozenset(node.name for node in nodes if not node.devices.keys().isdisjoint(drivers))


def _has_gpus(node: PlannedNode) -> bool:
    """Return True unless a node has MIG devices alone."""
    return not all(key.startswith(MIG_PREFIX) for key in node.resources)


def gpu_nodes(
    objects: Iterable[SourceObject], profiles: Mapping[str, Profile]
) -> dict[str, frozenset[str]]:
    """Return the drivers that publish GPUs today, each with the nodes of these; a pool without a node has none."""
    views = (
        decode_view(source.document, ResourceSlice)
        for source in objects
        if source.kind == "ResourceSlice"
    )
    slices: dict[tuple[str, str], list[ResourceSlice]] = {}
    for view in views:
        if isinstance(view, ResourceSlice) and view.spec.driver in profiles:
            slices.setdefault((view.spec.driver, view.spec.node_name or ""), []).append(view)
    nodes: dict[str, set[str]] = {}
    for (driver, name), own in slices.items():
        if count_devices(own, profiles[driver]).get(DeviceKind.GPU):
            nodes.setdefault(driver, set()).update(filter(None, [name]))
    return {driver: frozenset(names) for driver, names in nodes.items()}


def never_whole(
    unpublished: Mapping[str, Unpublished], namespaces: Iterable[str], switched: Collection[str]
) -> dict[str, Unpublished]:
    """Return the namespaces without a node of the driver in any wave, so that they are never opted in as a whole.

    Args:
        unpublished: The namespaces with such pods.
        namespaces: The namespaces to be opted in.
        switched: The nodes of all waves.
    """
    return {
        name: unpublished[name]
        for name in namespaces
        if name in unpublished and unpublished[name].nodes.isdisjoint(switched)
    }


def held_unpublished(
    never: Mapping[str, Unpublished],
    opted_in: Mapping[str, Unpublished],
    order: Sequence[str],
    nodes_of: Mapping[str, Collection[str]],
) -> Iterator[Held]:
    """Yield the namespaces that are never opted in as a whole, and those that are opted in too early.

    Args:
        never: The namespaces that are never opted in as a whole.
        opted_in: The namespaces that are opted in today.
        order: The nodes of all waves in the order in which they are switched.
        nodes_of: Workload to the nodes of its pods.
    """
    for name, entry in sorted(never.items()):
        fix = separate_workloads("a node of this driver")
        yield Held(object=f"Namespace//{name}", reason=not_whole(entry.reason), fix=fix)
    for name, entry in sorted(opted_in.items()):
        if entry.is_held(order, nodes_of):
            reason = f"it is opted in already: {entry.reason}"
            yield Held(object=f"Namespace//{name}", reason=reason, fix=entry.fix)


def unserved_later(
    early: Mapping[str, Sequence[AwaitedNodes]],
) -> dict[str, Sequence[AwaitedNodes]]:
    """Return the namespaces without devices, in any wave, for the next pods of some workloads.

    Args:
        early: The namespaces that are not opted in, with the nodes that they wait for in vain.
    """
    later = {
        name: [entry for entry in entries if entry.workload] for name, entries in early.items()
    }
    return {name: entries for name, entries in later.items() if entries}


def held_unserved_later(namespaces: Mapping[str, Sequence[AwaitedNodes]]) -> Iterator[Held]:
    """Yield the namespaces that are never opted in as a whole, for the next pods of their workloads."""
    for name, entries in namespaces.items():
        waiting: dict[frozenset[str], list[str]] = {}
        for entry in entries:
            waiting.setdefault(entry.nodes, []).append(entry.workload)
        texts = [
            _LATER.format(join_names(own), f": {join_names(sorted(nodes))}" if nodes else "")
            for nodes, own in waiting.items()
        ]
        fix = separate_workloads("one of these nodes" if any(waiting) else "")
        yield Held(object=f"Namespace//{name}", reason=not_whole("; ".join(texts)), fix=fix)
