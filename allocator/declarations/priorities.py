"""The priorities of pods and PodGroups by their PriorityClasses, as the API server writes them into new ones.

One that names a class which is not known keeps its priority unknown. So does one that names no class where no
PriorityClass is known at all, since the cluster may have a default one. The two system classes are in every cluster.

Source: k8s.io/kubernetes v1.37.1, plugin/pkg/admission/priority/admission.go, admitPod and getDefaultPriorityClass;
pkg/apis/scheduling/v1/helpers.go, systemPriorityClasses.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from allocator.declarations.pod_group import PodGroup
from kube.api.core import Pod
from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.urls import POD_GROUPS


class PriorityClass(ApiStruct, frozen=True, kw_only=True):
    """The parts of scheduling.k8s.io/v1 PriorityClass that we read."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


_PREEMPTS: Final = "PreemptLowerPriority"
_SYSTEM: Final = {
    name: PriorityClass(metadata=ObjectMeta(name=name), value=value)
    for name, value in (
        ("system-node-critical", 2_000_001_000),
        ("system-cluster-critical", 2_000_000_000),
    )
}
_NO_CLASS: Final = PriorityClass()
"""The priority of pods without a class where no class is the default."""


class Priorities(msgspec.Struct, frozen=True, kw_only=True):
    """The PriorityClasses of a cluster.

    Attributes:
        classes: Name to class.
        default: The class of those that name none; None where the classes are not known.
    """

    classes: Mapping[str, PriorityClass] = msgspec.field(default_factory=lambda: _SYSTEM)
    default: PriorityClass | None = None

    def of_pod(self, pod: Pod) -> Pod:
        """Return a pod with its priority and preemption policy, as far as they are known."""
        spec = pod.spec
        if spec.priority is not None:
            return pod
        priority_class = self._class(spec.priority_class_name)
        if priority_class is None:
            return pod
        policy = spec.preemption_policy or priority_class.preemption_policy or _PREEMPTS
        spec = msgspec.structs.replace(
            spec,
            priority_class_name=priority_class.metadata.name,
            priority=priority_class.value,
            preemption_policy=policy,
        )
        return msgspec.structs.replace(pod, spec=spec)

    def of_group(self, group: PodGroup) -> PodGroup:
        """Return a PodGroup with its priority, as far as it is known; those of other schedulers as they are."""
        spec = group.spec
        if group.group != POD_GROUPS.group or spec.priority is not None:
            return group
        priority_class = self._class(spec.priority_class_name)
        if priority_class is None:
            return group
        spec = msgspec.structs.replace(
            spec,
            priority_class_name=priority_class.metadata.name,
            priority=priority_class.value,
        )
        return msgspec.structs.replace(group, spec=spec)

    def _class(self, name: str) -> PriorityClass | None:
        return self.classes.get(name) if name else self.default


def read_priorities(classes: Iterable[PriorityClass]) -> Priorities:
    """Return the priorities of a cluster with these classes.

    >>> batch = PriorityClass(metadata=ObjectMeta(name="batch"), value=-5, global_default=True)
    >>> read_priorities([batch]).of_pod(Pod()).spec.priority
    -5
    >>> read_priorities([]).of_pod(Pod()).spec.priority
    """
    by_name = {entry.metadata.name: entry for entry in classes}
    if not by_name:
        return Priorities()
    defaults = [entry for entry in by_name.values() if entry.global_default]
    # Of several, which a race leaves behind, the lowest.
    default = min(defaults, key=lambda entry: (entry.value, entry.metadata.name), default=_NO_CLASS)
    return Priorities(classes={**_SYSTEM, **by_name}, default=default)
