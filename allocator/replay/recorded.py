"""The history of a recorded cluster: the pods that came and went, and their places."""

from collections.abc import Mapping, Sequence

import msgspec

from allocator.model.slice_index import SliceChange
from allocator.pods.claims import Name, claim_name
from allocator.replay.workload import ReplayPod
from kube.api.core import Node
from kube.api.resource import DeviceClass, ResourceClaim


class RecordedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of a recording.

    Attributes:
        replay: The pod as a replay lets it arrive, with claims of its own, and those that it shares under their names.
        scheduler: The `schedulerName`.
        node: The node on which it ran when the recording began; empty for a pod that came or waited.
        claims: The claims with which it ran there, allocated.
        unmodelled: The features of the pod that a replay does not model, such as `podAffinity`.
        is_fixed: No scheduler placed it.
        held_by_quotas_s: Seconds before its arrival in which the gate of DeviceQuotas alone held it back.
        claim_of: Name in `spec.resourceClaims` to the claim as it came, for a pod whose keys were translated.
    """

    replay: ReplayPod
    scheduler: str = ""
    node: str = ""
    claims: tuple[ResourceClaim, ...] = ()
    unmodelled: tuple[str, ...] = ()
    is_fixed: bool = False
    held_by_quotas_s: float = 0.0
    claim_of: Mapping[str, ResourceClaim] = {}

    @property
    def without_quotas(self) -> ReplayPod:
        """The pod as it would have arrived if no DeviceQuota had held it back."""
        earlier, replayed = self.held_by_quotas_s, self.replay
        if not earlier or replayed.arrival is None:
            return replayed
        departure = replayed.departure
        return msgspec.structs.replace(
            replayed,
            arrival=replayed.arrival - earlier,
            departure=None if departure is None else departure - earlier,
        )


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A pod was bound to a node.

    Attributes:
        second: The second.
        number: The pod's place in `Course.pods`.
        node: The node.
        claims: Its claims, as they were allocated.
        is_dated: The second is that of the binding, and not of the end of a gap.
    """

    second: float
    number: int
    node: str
    claims: tuple[ResourceClaim, ...] = ()
    is_dated: bool = True


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """A pod ended, or was deleted.

    Attributes:
        second: The second.
        number: The pod's place in `Course.pods`.
    """

    second: float
    number: int


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes, slices or classes changed.

    Attributes:
        second: The second.
        nodes: Name to node; None for one that is gone.
        slices: The slices before and after.
        classes: All DeviceClasses; None if none changed.
    """

    second: float
    nodes: Mapping[str, Node | None] = {}
    slices: Sequence[SliceChange] = ()
    classes: Mapping[str, DeviceClass] | None = None


Event = Bound | Left | Changed


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """A recording of a cluster behind its first state.

    Attributes:
        pods: All pods: first those that ran when it began, then the others in the order in which they came.
        events: The events in order.
        until: The second in which the recording ends.
        begin: The second of the first state; above 0 for a part of a recording.
    """

    pods: tuple[RecordedPod, ...]
    events: tuple[Event, ...] = ()
    until: float = 0.0
    begin: float = 0.0

    @property
    def arriving(self) -> tuple[ReplayPod, ...]:
        """The pods that came, or waited when the recording began."""
        return tuple(pod.replay for pod in self.pods if not pod.node)

    @property
    def arriving_without_quotas(self) -> tuple[ReplayPod, ...]:
        """The pods that came, as they would have if no DeviceQuota had held them back."""
        return tuple(pod.without_quotas for pod in self.pods if not pod.node)

    @property
    def running_claims(self) -> Mapping[Name, Sequence[ResourceClaim]]:
        """The allocated claims of each pod that ran when it began, by the pod's namespace and name."""
        return {
            (pod.replay.pod.metadata.namespace, pod.replay.pod.metadata.name): pod.claims
            for pod in self.pods
            if pod.node
        }

    @property
    def shared_claims(self) -> frozenset[Name]:
        """The claims that several pods use at one time."""
        return frozenset(claim_name(claim) for pod in self.pods for claim in pod.replay.shared)

    @property
    def changes(self) -> tuple[Changed, ...]:
        """The changes of nodes, slices and classes."""
        return tuple(event for event in self.events if isinstance(event, Changed))
