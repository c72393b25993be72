"""A note on pods with devices of different priorities, since kube-scheduler evicts none for devices of a DRA driver. Pure.

Source: kubernetes-1.37.1, pkg/scheduler/framework/plugins/dynamicresources: a node without devices for a claim, or for a resource
name that a DeviceClass maps, is UnschedulableAndUnresolvable (dynamicresources.go, statusUnschedulable), so DefaultPreemption
skips it; and PreFilterExtensions is nil, so no dry run sees what an eviction would free.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from answers.model.kubernetes_version import parse_version
from answers.model.views import decode_view
from findings.text import join_names
from kube.api.core import FINISHED_PHASES, Pod
from kube.manifests.source import SourceObject
from migration.cluster.evidence import mapping_at
from migration.plan.model.plan import Plan, is_name
from migration.upgrade.kubernetes import BRIDGE_VERSION

_NAMES: Final = 3
_NEVER: Final = "Never"
_NOTE: Final = (
    "pods with {} have different priorities (from {} to {}): kube-scheduler evicts a pod for one of higher "
    "priority where a device plugin has its devices, and for none where a DRA driver has them, by claims or by a mapped resource "
    "name (1.37); from the first switch on such pods wait there until devices are free: keep as many free as pods of high "
    "priority may need at once, and scale pods down whose only purpose is to be evicted"
)
_BRIDGE: Final = (
    ", or let pods use Drawbridge's scheduler bridge, which evicts for devices (docs/bridge.md)"
)
_MAPPED: Final = "; it refuses pods that keep a name that a DeviceClass maps: with translation.native: translate they get claims"


def priority_note(plan: Plan, objects: Iterable[SourceObject], pods: Iterable[SourceObject]) -> str:
    """Return the note on pods that request devices of the plan's nodes, if some may evict others today; empty without such pods.

    Pods of one resource name compete; that with the widest range of priorities is named.

    Args:
        plan: The plan.
        objects: The cluster's objects, which may lack pods.
        pods: All pods.
    """
    keys = {key for wave in plan.waves for node in wave.nodes for key in node.resources}
    if not keys:
        return ""
    classes = {source.name: source.document for source in objects if source.kind == "PriorityClass"}
    default = next((name for name, own in classes.items() if own.get("globalDefault") is True), "")
    rivals: dict[str, _Rivals] = {}
    for source in pods:
        if mapping_at(source.document, "status").get("phase") in FINISHED_PHASES:
            continue
        pod = decode_view(source.document, Pod)
        if not isinstance(pod, Pod) or not is_name(source.name):
            continue
        own = classes.get(pod.spec.priority_class_name or default, {})
        value = own.get("value", 0) if pod.spec.priority is None else pod.spec.priority
        if not isinstance(value, int):
            continue
        spec = mapping_at(source.document, "spec")
        evicts = spec.get("preemptionPolicy", own.get("preemptionPolicy")) != _NEVER
        for key in _requested(pod).intersection(keys):
            of_key = rivals.setdefault(key, _Rivals({}, set()))
            of_key.pods.setdefault(value, []).append(
                f"Pod/{source.namespace or 'default'}/{source.name}"
            )
            of_key.evicting.update({value} if evicts else ())
    key = max(sorted(rivals), key=lambda name: rivals[name].distance, default="")
    if not key or rivals[key].distance <= 0:
        return ""
    pods_of, evicting = rivals[key]
    values = min(pods_of), max(evicting)
    least, most = (f"{value} of {join_names(sorted(pods_of[value]), _NAMES)}" for value in values)
    return f"{_NOTE.format(key, least, most)}{_bridge(key, plan, objects)}"


class _Rivals(NamedTuple):
    """The pods that request one resource name.

    Attributes:
        pods: Priority to the pods that have it.
        evicting: The priorities of those that may evict others.
    """

    pods: dict[int, list[str]]
    evicting: set[int]

    @property
    def distance(self) -> int:
        """Return the difference between the least priority and that of the first pod to evict others; 0 if none does."""
        least = min(self.pods)
        return max(self.evicting, default=least) - least


def _bridge(key: str, plan: Plan, objects: Iterable[SourceObject]) -> str:
    """Return the words on the bridge; it has one version of Kubernetes, and takes no pods with mapped names."""
    if parse_version(plan.kubernetes_version) != BRIDGE_VERSION:
        return ""
    is_mapped = key in plan.mapped_classes or any(
        mapping_at(source.document, "spec").get("extendedResourceName") == key
        for source in objects
        if source.kind == "DeviceClass"
    )
    return f"{_BRIDGE}{_MAPPED if is_mapped else ''}"


def _requested(pod: Pod) -> frozenset[str]:
    """Return the resource names that the containers of a pod request."""
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    return frozenset(
        key for container in containers for key in (*(container.limits or ()), *container.requests)
    )
