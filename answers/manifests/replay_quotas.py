"""DeviceQuotas and ResourceQuotas in a replay: the pods that wait for them. Pure.

A pod is let through if the most that it may get fits what is left, as the controllers remove scheduling gates, and is
charged with what it got then, until it leaves. A pod that is let through and fits no node holds nothing.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence

import msgspec

from allocator.model.feature_gates import Features
from allocator.model.slice_index import SliceChange
from allocator.pods.claims import Name, allocation_of, claim_name, pod_claims, pod_place
from allocator.pods.extended_resource_claim import mapped_resources
from allocator.replay.quotas import DEVICE_QUOTA, RESOURCE_QUOTA, Obstacle
from answers.model.cluster_state import ClusterState, is_running
from findings.text import printable
from kube.api.core import NAMESPACE_NAME, Pod, ResourceQuota
from kube.api.device_quota import DeviceQuota
from kube.api.extended_resources import extended_resources
from kube.api.resource import DeviceClaim, DeviceClass, ResourceClaim
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.caps import CapBreach
from quotas.device_quotas.counted_claims import CountedClaim, LegacyPod
from quotas.device_quotas.ledger import Excess
from quotas.resource_quotas.running_usage import RunningUsage, uncounted_resources


class GivenQuotas(msgspec.Struct, frozen=True, kw_only=True):
    """The quotas of a replay.

    Attributes:
        device_quotas: DeviceQuotas.
        resource_quotas: ResourceQuotas, with their namespace.
        namespaces: Namespace to its labels.
    """

    device_quotas: tuple[DeviceQuota, ...] = ()
    resource_quotas: tuple[ResourceQuota, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}

    def notes(self, state: ClusterState) -> Iterator[str]:
        """Yield the limits of quotas that count nothing on a cluster, and the resources that are not counted."""
        drivers = {slice_.spec.driver for slice_ in state.slices}
        for device_quota in self.device_quotas:
            for limit in device_quota.spec.limits:
                if limit.driver not in drivers:
                    name = f"DeviceQuota {device_quota.metadata.name}, limit {limit.name}"
                    yield printable(f"{name}: no device here is of driver {limit.driver}")
        for quota in self.resource_quotas:
            names = ", ".join(uncounted_resources(quota))
            if names:
                metadata = quota.metadata
                place = printable(f"{metadata.namespace}/{metadata.name}")
                yield f"ResourceQuota {place}: not counted in a replay: {printable(names)}"


class ReplayQuotas:
    """Quotas, charged with the pods of a cluster, and then with those that come and go."""

    def __init__(
        self,
        quotas: GivenQuotas,
        state: ClusterState,
        claims_of: Mapping[Name, Sequence[ResourceClaim]] | None = None,
        shared: Collection[Name] = (),
    ) -> None:
        """Charge the pods that run, and the claims that are allocated.

        Args:
            quotas: The quotas.
            state: The cluster before the first pod.
            claims_of: The allocated claims of the pods that run, by namespace and name; None where the pods say.
            shared: Claims that pods use which come later, too.
        """
        self._book = QuotaBook(Features())
        self._classes = dict(state.classes)
        self._resource_usage = RunningUsage(quotas.resource_quotas, state.classes)
        self._keys_of: dict[Name, tuple[Hashable, ...]] = {}
        self._users: Counter[Hashable] = Counter()
        for name, device_class in state.classes.items():
            self._book.replace_class(name, device_class)
        self._book.replace_slices(
            {slice_.metadata.name or str(n): slice_ for n, slice_ in enumerate(state.slices)}
        )
        for name, labels in {**state.namespaces, **quotas.namespaces}.items():
            self._book.replace_namespace(name, {NAMESPACE_NAME: name, **labels})
        for quota in quotas.device_quotas:
            self._book.replace_quota(quota.metadata.name, quota)
        for key, claim in state.claims.items():
            if allocation_of(claim) is not None:
                self._meet(claim.metadata.namespace)
                self._book.put_claim(key, _counted(claim))
        pods = tuple(filter(is_running, state.pods.values()))
        if claims_of is None:
            claims_of = {
                pod_place(pod): pod_claims(pod, state.claims, state.templates).held for pod in pods
            }
        self._charge_running({pod_place(pod): pod for pod in pods}, claims_of, shared)

    def obstacle(
        self, pod: Pod, claims: Sequence[ResourceClaim], shared: Sequence[ResourceClaim] = ()
    ) -> Obstacle | None:
        """Return the first quota that has too little left for a pod; None if all let it through.

        Arguments as of `allocator.replay.quotas.Quotas`.
        """
        has_claims = bool(claims or shared)
        claims = (*claims, *(claim for claim in shared if not self._users[claim_name(claim)]))
        excess = self._resource_usage.excess(pod, claims)
        if excess:
            return Obstacle(RESOURCE_QUOTA, printable(f"ResourceQuota {excess}"))
        namespace = pod.metadata.namespace
        self._meet(namespace)
        excesses: Sequence[Excess | CapBreach] = self._book.excesses_of_claims(
            namespace, [claim.spec.devices for claim in claims]
        )
        if not excesses and not has_claims:
            charges = self._book.legacy_charges(namespace, pod.spec, self._mapped(pod))
            excesses = self._book.ledger.excesses(charges)
        if not excesses:
            return None
        first = excesses[0]
        limit = first.limit if isinstance(first, CapBreach) else first.account.limit
        return Obstacle(DEVICE_QUOTA, printable(f"DeviceQuota {limit.quota}, limit {limit.name}"))

    def charge(
        self, pod: Pod, claims: Sequence[ResourceClaim], shared: Sequence[ResourceClaim] = ()
    ) -> None:
        """Charge a pod, in place of any earlier charge; claims without an allocation with the most they may get.

        Arguments as of `allocator.replay.quotas.Quotas`.
        """
        self.release(pod)
        namespace, name = pod.metadata.namespace, pod.metadata.name
        charged: dict[Hashable, ResourceClaim] = {
            (namespace, name, number): claim for number, claim in enumerate(claims)
        }
        shared_by_name: dict[Hashable, ResourceClaim] = {
            claim_name(claim): claim for claim in shared
        }
        charged |= shared_by_name
        self._meet(namespace)
        self._take(pod, tuple(charged))
        for key, claim in charged.items():
            self._book.put_claim(key, _counted(claim))
        self._charge_keys(pod, tuple(charged.values()))
        self._resource_usage.charge(pod, claims)
        for key, claim in shared_by_name.items():
            self._resource_usage.charge_claim(_shared_key(key), claim)

    def release(self, pod: Pod) -> None:
        """Take back the charge of a pod that left; of a claim that several use, with the last of them."""
        for key in self._keys_of.pop(pod_place(pod), ()):
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
                self._book.remove_claim(key)
                self._resource_usage.release_claim(_shared_key(key))
        self._book.remove_claim(_keys(pod))
        self._resource_usage.release(pod)

    def change(
        self, slices: Sequence[SliceChange], classes: Mapping[str, DeviceClass] | None
    ) -> None:
        """Take over slices before and after, and all classes; None if no class changed."""
        changed = {}
        for before, after in slices:
            present = after or before
            if present is not None:
                changed[present.metadata.name] = after
        if changed:
            self._book.replace_slices(changed)
        if classes is not None:
            for name in {*self._classes, *classes}:
                self._book.replace_class(name, classes.get(name))
            self._classes = dict(classes)
            self._resource_usage.replace_classes(classes)

    def _charge_running(
        self,
        pods: Mapping[Name, Pod],
        claims_of: Mapping[Name, Sequence[ResourceClaim]],
        shared: Collection[Name],
    ) -> None:
        """Charge pods that run, and each claim of several pods once; arguments as of the constructor."""
        for place, pod in pods.items():
            self._take(pod, tuple(map(claim_name, claims_of.get(place, ()))))
        for place, pod in pods.items():
            claims = claims_of.get(place, ())
            own = []
            for claim in claims:
                name = claim_name(claim)
                if name in shared or self._users[name] > 1:
                    self._resource_usage.charge_claim(_shared_key(name), claim)
                else:
                    own.append(claim)
            self._charge_keys(pod, claims)
            self._resource_usage.charge(pod, own)

    def _take(self, pod: Pod, keys: tuple[Hashable, ...]) -> None:
        self._keys_of[pod_place(pod)] = keys
        self._users.update(keys)

    def _charge_keys(self, pod: Pod, claims: Sequence[ResourceClaim]) -> None:
        """Charge a pod without claims for its device keys."""
        if not claims:
            devices = LegacyPod(pod.spec, is_running=True, mapped=self._mapped(pod))
            counted = CountedClaim(pod.metadata.namespace, DeviceClaim(), legacy_pod=devices)
            self._book.put_claim(_keys(pod), counted)

    def _mapped(self, pod: Pod) -> frozenset[str]:
        return frozenset(mapped_resources(pod, extended_resources(self._classes.values())))

    def _meet(self, namespace: str) -> None:
        """Know a namespace at least by the label that every namespace gets."""
        if namespace not in self._book.tenants.namespaces:
            self._book.replace_namespace(namespace, {NAMESPACE_NAME: namespace})


def _counted(claim: ResourceClaim) -> CountedClaim:
    return CountedClaim(claim.metadata.namespace, claim.spec.devices, allocation_of(claim))


def _shared_key(claim: Hashable) -> Hashable:
    """Return the key of the charge to ResourceQuotas for a claim that several pods use: that of no pod."""
    return ("shared", claim)


def _keys(pod: Pod) -> Hashable:
    """Return the key of a pod's charge for device keys."""
    return ("keys", *pod_place(pod))
