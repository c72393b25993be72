"""A note on pods with devices of different priorities, since kube-scheduler evicts none for devices of a DRA driver. Pure.

Source: kubernetes-1.37.1, pkg/scheduler/framework/plugins/dynamicresources: a node without devices for a claim, or for a resource
name that a DeviceClass maps, is UnschedulableAndUnresolvable (dynamicresources.go, statusUnschedulable), so DefaultPreemption
skips it; and PreFilterExtensions is nil, so no dry run sees what an eviction would free.
"""

from collections.abc import Collection, Iterable
from typing import Final

from answers.model.views import decode_view
from findings.text import join_names
from kube.api.core import FINISHED_PHASES, Pod
from kube.manifests.source import SourceObject
from migration.cluster.evidence import mapping_at
from migration.plan.model.plan import Plan, is_name

_NAMES: Final = 3
_NEVER: Final = "Never"
_NOTE: Final = (
    "pods with devices have different priorities (from {} of {} to {} of {}): kube-scheduler evicts a pod for one of higher "
    "priority where a device plugin has its devices, and for none where a DRA driver has them, by claims or by a mapped resource "
    "name (1.37); from the first switch on such pods wait there until devices are free: keep as many free as pods of high "
    "priority may need at once, and scale pods down whose only purpose is to be evicted, or let pods use Drawbridge's scheduler "
    "bridge, which evicts for devices (docs/bridge.md)"
)


def priority_note(plan: Plan, objects: Iterable[SourceObject], pods: Iterable[SourceObject]) -> str:
    """Return the note on pods that request devices of the plan's nodes, if some may evict others today; empty without such pods.

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
    pods_of: dict[int, list[str]] = {}
    evicting: set[int] = set()
    for source in pods:
        if mapping_at(source.document, "status").get("phase") in FINISHED_PHASES:
            continue
        pod = decode_view(source.document, Pod)
        if not isinstance(pod, Pod) or not is_name(source.name) or not _requests(pod, keys):
            continue
        own = classes.get(pod.spec.priority_class_name or default, {})
        value = own.get("value", 0) if pod.spec.priority is None else pod.spec.priority
        if not isinstance(value, int):
            continue
        pods_of.setdefault(value, []).append(f"Pod/{source.namespace or 'default'}/{source.name}")
        spec = mapping_at(source.document, "spec")
        if spec.get("preemptionPolicy", own.get("preemptionPolicy")) != _NEVER:
            evicting.add(value)
    least = min(pods_of, default=0)
    most = max(evicting, default=least)
    if most <= least:
        return ""
    names = [join_names(sorted(pods_of[value]), _NAMES) for value in (least, most)]
    return _NOTE.format(least, names[0], most, names[1])


def _requests(pod: Pod, keys: Collection[str]) -> bool:
    """Return True if a container of a pod requests one of some resource names."""
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    return any(
        key in keys
        for container in containers
        for key in (*(container.limits or ()), *container.requests)
    )
