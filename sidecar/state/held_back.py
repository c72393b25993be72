"""The devices of pods that were deleted by force, from the end of the pod until they are free."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from allocator.pods.claims import Name, allocation_of
from kube.api.core import Node, Pod
from kube.api.meta import rfc3339
from kube.api.ownership import HeldBackClaim
from kube.api.resource import AllocationResult, ResourceClaim, ResourceSlice
from kube.logs import get_logger
from sidecar.ownership import held_back
from sidecar.ownership.held_back import DeviceName, HeldKey, held_key
from sidecar.state.held_parts import HeldParts, alike_key

HIDDEN_END_S: Final = 30.0
"""The time after which a kubelet has killed the containers of a pod that is gone, in seconds: the
default grace period."""
MAX_ALIKE: Final = 4
"""Pods that are gone and shared an allocation on a node, of which each is remembered: the devices are held
back until the latest end of all of them anyhow."""

log = get_logger()


class HeldBackLimits(NamedTuple):
    """The limits for held devices, by time and by number.

    Attributes:
        timeout_s: The maximum time that devices are held back, in seconds.
        most_per_namespace: Devices of a driver that a namespace may have held back and get further ones.
    """

    timeout_s: float
    most_per_namespace: int


class HeldBackDevices:
    """The devices that are held back, and the reports of their drivers.

    Attributes:
        parts: The devices of each claim that a pod may still use.
        claims: The same by their keys.
    """

    def __init__(
        self,
        pods: Mapping[str, Pod],
        *,
        now: Callable[[], datetime],
        limits: HeldBackLimits,
        on_change: Callable[[HeldBackClaim], None],
    ) -> None:
        """Begin with nothing held back.

        Args:
            pods: A live view of all pods, by UID.
            now: The wall clock.
            limits: The bounds of what is held back.
            on_change: Called with what is held back, or is not any more.
        """
        self.parts: Final = HeldParts()
        self.claims: Final[Mapping[HeldKey, HeldBackClaim]] = self.parts.by_key
        # Without those that an earlier leader held back.
        self._former_allocations: dict[HeldKey, AllocationResult] = {}
        self._now = now
        self._timeout_s = limits.timeout_s
        self._most_per_namespace = limits.most_per_namespace
        self._pods = pods
        self._device_counts: tuple[int, Mapping[str, int]] = (-1, {})
        self._on_change = on_change
        # Parts that stand for further pods, too, of which nothing else is remembered.
        self._joint: set[HeldKey] = set()
        # Held devices of which the driver said since that containers may use them.
        self._in_use: set[DeviceName] = set()

    def pod_gone(
        self,
        pod: Pod,
        claims: Iterable[ResourceClaim],
        slices: Iterable[ResourceSlice],
        *,
        is_hidden: bool = False,
    ) -> None:
        """Hold back the devices of a pod that is gone, unless its containers have ended.

        Args:
            pod: The pod as it was seen last.
            claims: The claims that were reserved for the pod.
            is_hidden: Its end was not seen. Most pods end in good order, so its devices are held back
                for no longer than a kubelet takes to kill its containers.
        """
        if not held_back.may_run_on(pod, self._now()):
            self.pod_ended(pod.metadata.uid)
            return
        self._prolong(pod.metadata.uid)
        for claim in claims:
            self.hold(pod, claim, slices)
        if is_hidden:
            self._shorten(pod.metadata.uid)
        for held_claim in self.parts.of_pod(pod.metadata.uid):
            self._join(held_claim)

    def _prolong(self, pod_uid: str) -> None:
        """Hold back the devices of a pod for the whole time from now on."""
        for held_claim in self.parts.of_pod(pod_uid):
            self._end_after(held_claim, self._timeout_s)

    def _shorten(self, pod_uid: str) -> None:
        """Hold back the devices of a pod for a short time only."""
        until = rfc3339(held_back.end_of(self._now(), HIDDEN_END_S))
        for held_claim in self._own_parts(pod_uid):
            if until < held_claim.until:
                self._end_after(held_claim, HIDDEN_END_S)

    def _own_parts(self, pod_uid: str) -> list[HeldBackClaim]:
        """Return the parts of a pod that stand for no other."""
        parts = self.parts.of_pod(pod_uid)
        return [held_claim for held_claim in parts if held_key(held_claim) not in self._joint]

    def _join(self, held_claim: HeldBackClaim) -> None:
        """Have few parts stand for all pods that are gone and held the same of a claim as this one.

        Whoever creates and deletes pods of one claim would otherwise have the sidecar remember each of them.
        Those with the latest ends stay.
        """
        gone = [
            part
            for part in self.parts.add_gone(held_claim)
            if part.pod_uid not in self._pods or part.pod_uid == held_claim.pod_uid
        ]
        if len(gone) > MAX_ALIKE:
            by_end = sorted(gone, key=lambda part: part.until)
            self._joint.add(held_key(by_end[-1]))
            for part in by_end[:-MAX_ALIKE]:
                self._remove(part)

    def _end_after(self, held_claim: HeldBackClaim, time_s: float) -> None:
        until = rfc3339(held_back.end_of(self._now(), time_s))
        self.parts.put(msgspec.structs.replace(held_claim, until=until))

    def of_claim(self, uid: str) -> tuple[HeldBackClaim, ...]:
        """Return the held parts of a claim, the earliest first."""
        return self.parts.of_claim(uid)

    def former_allocation(self, held_claim: HeldBackClaim) -> AllocationResult | None:
        """Return the allocation of held devices; None if an earlier leader held them back."""
        return self._former_allocations.get(held_key(held_claim))

    def exhausted_namespaces(
        self, slices: Mapping[Name, ResourceSlice], version: int, nodes: Mapping[str, Node]
    ) -> frozenset[str]:
        """Return the namespaces that have as much held back as one may; may be called on any thread.

        Args:
            version: The version of the slices, whose devices are counted once for each version.
        """
        if not self.claims:
            return frozenset()
        if self._device_counts[0] != version:
            # A copy in one step, since the event loop may change the original meanwhile.
            self._device_counts = version, held_back.count_devices(list(slices.values()))
        return held_back.exhausted_namespaces(
            list(self.parts.shares.items()), self._device_counts[1], nodes, self._most_per_namespace
        )

    def hold(self, pod: Pod, claim: ResourceClaim, slices: Iterable[ResourceSlice]) -> None:
        """Hold back the devices of a claim that a pod may still use."""
        until = held_back.end_of(self._now(), self._timeout_s)
        held_claim = held_back.hold_back(pod, claim, until)
        allocation = allocation_of(claim)
        if held_claim is not None and allocation is not None:
            former = self.claims.get(held_key(held_claim))
            if former is not None and alike_key(former) != alike_key(held_claim):
                self._remove(former)
            self._former_allocations[held_key(held_claim)] = allocation
            log.info(
                "devices.held_back",
                pod=f"{held_claim.namespace}/{held_claim.pod}",
                until=held_claim.until,
            )
            self._put(held_claim, slices)

    def pod_ended(self, uid: str) -> None:
        """Give the devices of a pod again, since its containers have ended."""
        for held_claim in self._own_parts(uid):
            self._end(held_claim, "the pod has ended")

    def restore(self, claims: Iterable[HeldBackClaim], slices: Iterable[ResourceSlice]) -> None:
        """Take over devices that an earlier leader held back, bounded by this process's clock."""
        latest = rfc3339(held_back.end_of(self._now(), self._timeout_s))
        for held_claim in claims:
            if held_key(held_claim) not in self.claims:
                until = min(held_claim.until, latest)
                self._put(msgspec.structs.replace(held_claim, until=until), slices)
        self.expire()

    def slice_changed(self, resource_slice: ResourceSlice) -> None:
        """Release held claims without devices in use according to their driver."""
        if not self.claims:
            return
        in_use = held_back.devices_in_use([resource_slice])
        slice_devices = {
            (resource_slice.spec.driver, resource_slice.spec.pool.name, device.name)
            for device in resource_slice.spec.devices or ()
        }
        freed = slice_devices & self._in_use - in_use
        self._in_use |= {device for device in in_use if self.parts.has_device(device)}
        self._in_use -= freed
        for held_claim in self.parts.first_of_devices(sorted(freed)):
            if self._in_use.isdisjoint(held_back.devices_of(held_claim)):
                self._end(held_claim, "the driver says that they are free")

    def expire(self) -> None:
        """Give devices again that have been held back long enough.

        Whoever may write a claim can remove its finalizer and delete it while its pod runs: then they are held
        back until that pod is gone. Their time begins anew when half of it is over, so that the next
        leader finds them in force.
        """
        now = self._now()
        half_over = held_back.end_of(now, self._timeout_s / 2)
        for held_claim in list(self.claims.values()):
            pod = self._pods.get(held_claim.pod_uid)
            if pod is not None and held_back.may_run(pod):
                if held_back.is_over(held_claim, half_over):
                    self._end_after(held_claim, self._timeout_s)
            elif held_back.is_over(held_claim, now):
                self._end(held_claim, "they were held back for as long as they may be")

    def _put(self, held_claim: HeldBackClaim, slices: Iterable[ResourceSlice]) -> None:
        # Of the others it is known whether they are in use.
        devices = {
            device
            for device in held_back.devices_of(held_claim)
            if not self.parts.has_device(device)
        }
        self.parts.put(held_claim)
        if devices:
            pools = {(driver, pool) for driver, pool, _ in devices}
            in_pools = (
                resource_slice
                for resource_slice in slices
                if (resource_slice.spec.driver, resource_slice.spec.pool.name) in pools
            )
            self._in_use |= devices & held_back.devices_in_use(in_pools)
        self._on_change(held_claim)

    def _end(self, held_claim: HeldBackClaim, why: str) -> None:
        log.info("devices.given_again", pod=f"{held_claim.namespace}/{held_claim.pod}", why=why)
        self._remove(held_claim)

    def _remove(self, held_claim: HeldBackClaim) -> None:
        self.parts.remove(held_claim)
        key = held_key(held_claim)
        self._former_allocations.pop(key, None)
        self._joint.discard(key)
        self._in_use -= {
            device
            for device in held_back.devices_of(held_claim)
            if not self.parts.has_device(device)
        }
        self._on_change(held_claim)
