"""The namespaces with pods of whole GPUs that would get claims until their driver publishes devices. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from answers.model.views import decode_view
from findings.text import join_names
from kube.api.resource import ResourceSlice
from kube.manifests.source import SourceObject
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.plan.model.plan import Held, PlannedNode
from translation.model.intents import DeviceKind
from translation.profiles.device_counts import count_devices
from translation.profiles.profile import Profile
from translation.vocabularies.nvidia import GPU, MIG_PREFIX

_CLAIMS: Final = (
    "pods of {} keep {} of DeviceClass {}, and the next ones would get claims while its driver publishes no GPUs and "
    "another driver does"
)
_NOT_WHOLE: Final = (
    "it cannot move as a whole: {}; other Deployments and StatefulSets of it move by themselves"
)
_SWITCH: Final = (
    "have a node of this driver switched, too, or move these pods to a namespace of their own; then plan again from a new "
    "snapshot"
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
    """

    device_class: str
    workloads: tuple[str, ...]
    nodes: frozenset[str]
    rivals: frozenset[str]
    is_late: bool

    @property
    def reason(self) -> str:
        """Return the reason that the namespace is not to be opted in."""
        return _CLAIMS.format(join_names(self.workloads), GPU, self.device_class)

    def is_overtaken(self, order: Iterable[str]) -> bool:
        """Return True if another driver has GPUs before the first node of this one is drained.

        Args:
            order: The nodes in the order in which they are switched.
        """
        first = next((name for name in order if name in self.nodes | self.rivals), "")
        return self.is_late or first in self.rivals


def find_unpublished(
    workloads: Iterable[AssessedWorkload],
    mapped: Mapping[str, str],
    nodes: Sequence[PlannedNode],
    *,
    publishing_drivers: Collection[str],
    profiles: Mapping[str, Profile],
    opted_out: Collection[str],
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
) -> Iterator[Held]:
    """Yield the namespaces that are never opted in as a whole, and those that are opted in too early.

    Args:
        never: The namespaces that are never opted in as a whole.
        opted_in: The namespaces that are opted in today.
        order: The nodes of all waves in the order in which they are switched.
    """
    for name, entry in sorted(never.items()):
        reason = _NOT_WHOLE.format(entry.reason)
        yield Held(object=f"Namespace//{name}", reason=reason, fix=_SWITCH)
    for name, entry in sorted(opted_in.items()):
        if entry.is_overtaken(order):
            reason = f"it is opted in already: {entry.reason}"
            yield Held(object=f"Namespace//{name}", reason=reason, fix=_OPTED_IN)
