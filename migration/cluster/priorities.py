"""Pods with devices of different priorities, since kube-scheduler evicts none for devices of a DRA driver. Pure.

Source: kubernetes-1.37.1, pkg/scheduler/framework/plugins/dynamicresources: a node without devices for a claim, or for a resource
name that a DeviceClass maps, is UnschedulableAndUnresolvable (dynamicresources.go, statusUnschedulable), so DefaultPreemption
skips it; and PreFilterExtensions is nil, so no dry run sees what an eviction would free.
"""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from answers.model.views import decode_view
from findings.text import join_names
from kube.api.core import FINISHED_PHASES, Pod
from kube.manifests.source import SourceObject
from migration.cluster.evidence import mapping_at

_NAMES: Final = 3
_NEVER: Final = "Never"
_STATEMENT: Final = (
    "pods with {} have different priorities (from {} to {}): kube-scheduler evicts a pod for one of higher "
    "priority where a device plugin has its devices, and for none where a DRA driver has them, by claims or by a mapped resource "
    "name (1.37); from the first switch on such pods wait there until devices are free"
)
KEEP_FREE: Final = "keep as many free as pods of high priority may need at once, and scale pods down whose only purpose is to be evicted"


class Rivals(NamedTuple):
    """The pods that request one resource name.

    Attributes:
        key: The resource name.
        pods: Priority to the pods that have it, as `Pod/namespace/name`.
        evicting: The priorities of those that may evict others.
    """

    key: str
    pods: dict[int, list[str]]
    evicting: set[int]

    @property
    def distance(self) -> int:
        """Return the difference between the least priority and that of the first pod to evict others; 0 if none does."""
        least = min(self.pods)
        return max(self.evicting, default=least) - least

    @property
    def ends(self) -> tuple[int, int]:
        """Return the least priority, and the highest of a pod that may evict others; there has to be one."""
        return min(self.pods), max(self.evicting)

    @property
    def statement(self) -> str:
        """Return the sentence on these pods, if some may evict others today."""
        values = self.ends
        texts = (f"{value} of {join_names(sorted(self.pods[value]), _NAMES)}" for value in values)
        return _STATEMENT.format(self.key, *texts)


def find_rivals(
    keys: Collection[str], objects: Iterable[SourceObject], pods: Iterable[SourceObject]
) -> Rivals | None:
    """Return the pods of the resource name with the widest range of priorities; None if no pod may evict another.

    Pods of one resource name compete.

    Args:
        keys: The resource names.
        objects: The cluster's objects, which may lack pods.
        pods: All pods.
    """
    if not keys:
        return None
    classes = {source.name: source.document for source in objects if source.kind == "PriorityClass"}
    default = next((name for name, own in classes.items() if own.get("globalDefault") is True), "")
    rivals: dict[str, Rivals] = {}
    for source in pods:
        if mapping_at(source.document, "status").get("phase") in FINISHED_PHASES:
            continue
        pod = decode_view(source.document, Pod)
        if not isinstance(pod, Pod):
            continue
        own = classes.get(pod.spec.priority_class_name or default, {})
        value = own.get("value", 0) if pod.spec.priority is None else pod.spec.priority
        if not isinstance(value, int):
            continue
        spec = mapping_at(source.document, "spec")
        evicts = spec.get("preemptionPolicy", own.get("preemptionPolicy")) != _NEVER
        for key in _requested(pod).intersection(keys):
            of_key = rivals.setdefault(key, Rivals(key, {}, set()))
            of_key.pods.setdefault(value, []).append(
                f"Pod/{source.namespace or 'default'}/{source.name}"
            )
            of_key.evicting.update({value} if evicts else ())
    widest = max(
        (rivals[key] for key in sorted(rivals)), key=lambda own: own.distance, default=None
    )
    return widest if widest is not None and widest.distance > 0 else None


def _requested(pod: Pod) -> frozenset[str]:
    """Return the resource names that the containers of a pod request."""
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    return frozenset(
        key for container in containers for key in (*(container.limits or ()), *container.requests)
    )
