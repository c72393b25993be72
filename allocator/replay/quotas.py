"""The contract of quotas in a replay, and a record of the pods that they hold back."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from allocator.model.slice_index import SliceChange
from allocator.pods.claims import Name, pod_place
from kube.api.core import Pod
from kube.api.resource import DeviceClass, ResourceClaim

DEVICE_QUOTA: Final = "deviceQuota"
"""The reason of a pod for which a DeviceQuota has too little left."""
RESOURCE_QUOTA: Final = "resourceQuota"
"""The reason of a pod for which a ResourceQuota has too little left."""

QUOTA_REASONS: Final = frozenset({DEVICE_QUOTA, RESOURCE_QUOTA})


class Obstacle(NamedTuple):
    """A quota that has too little left for a pod.

    Attributes:
        reason: `deviceQuota` or `resourceQuota`.
        quota: The quota and its limit in words, such as `DeviceQuota vision, limit memory`.
    """

    reason: str
    quota: str


class Quotas(Protocol):
    """Quotas and their use, changed by pods that come and go."""

    def obstacle(
        self, pod: Pod, claims: Sequence[ResourceClaim], shared: Sequence[ResourceClaim] = ()
    ) -> Obstacle | None:
        """Return the first quota that has too little left for a pod; None if all let it through.

        Args:
            claims: Its own claims.
            shared: Claims that other pods use, too; with those that were charged with one of them it takes nothing.
        """
        ...

    def charge(
        self, pod: Pod, claims: Sequence[ResourceClaim], shared: Sequence[ResourceClaim] = ()
    ) -> None:
        """Charge a pod, in place of any earlier charge; claims without an allocation with the most they may get.

        Arguments as of `obstacle`.
        """
        ...

    def release(self, pod: Pod) -> None:
        """Take back the charge of a pod that left, and of the shared claims that it was the last of."""
        ...

    def change(
        self, slices: Sequence[SliceChange], classes: Mapping[str, DeviceClass] | None
    ) -> None:
        """Take over slices before and after, and all classes; None if no class changed."""
        ...


class HeldPods:
    """The pods that quotas held back, with the first quota of each."""

    def __init__(self) -> None:
        self._quota_of: dict[Name, str] = {}
        self._waits: dict[Name, float] = {}

    def hold(self, pod: Pod, quota: str) -> None:
        """Note a pod that waits for a quota."""
        self._quota_of.setdefault(pod_place(pod), quota)

    def place(self, pod: Pod, waited_s: float) -> None:
        """Note the wait of a pod that was placed, if a quota held it back."""
        if pod_place(pod) in self._quota_of:
            self._waits[pod_place(pod)] = waited_s

    @property
    def waits(self) -> Mapping[tuple[str, str], Sequence[float | None]]:
        """Quota and namespace to the wait of each pod that it held back; None for one that was never placed."""
        waits: dict[tuple[str, str], list[float | None]] = {}
        for name, quota in self._quota_of.items():
            waits.setdefault((quota, name[0]), []).append(self._waits.get(name))
        return dict(sorted(waits.items()))
