"""DeviceQuotas and the charges to them, as decisions see them.

Objects change on the event loop, and decisions may be made on a thread. So changes wait until the next
decision takes them. Without a DeviceQuota nothing is kept but the labels of namespaces.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from allocator.model.feature_gates import Features
from allocator.pods.claims import Name, allocation_of
from allocator.pods.extended_resource_claim import mapped_resources
from clusterstate.kinds import Changes, Kind
from clusterstate.projections import project_namespace_labels
from kube.api.core import Pod
from kube.api.device_quota import DeviceQuota
from kube.api.extended_resources import extended_resources
from kube.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from kube.api.urls import DEVICE_QUOTAS, NAMESPACES, PODS
from kube.names import SCHEDULER_NAME
from kube.runtime.informers import InformerFactory, Subscription
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.tenants import Labels
from quotas.gates.counted_objects import is_gated, legacy_pod
from quotas.gates.usage import LegacyKeysOfPod
from sidecar.plan.occupancy import counted_claim
from sidecar.state.projections import project_legacy_pod, project_quota

MAX_CHEAP: Final = 32
"""Changes of claims that are applied in a few milliseconds."""


class QuotaObjects(NamedTuple):
    """Objects that decide about quotas by name; None for deleted ones.

    Attributes:
        claims: The claims with the devices promised to them.
        pods: Those that have devices by keys, and not by claims.
    """

    quotas: dict[str, DeviceQuota | None]
    namespaces: dict[str, Labels | None]
    classes: dict[str, DeviceClass | None]
    slices: dict[str, ResourceSlice | None]
    claims: dict[Name, ResourceClaim | None]
    pods: dict[Name, Pod | None]


class QuotaChanges(NamedTuple):
    """The changes that wait for the next decision.

    Attributes:
        objects: The objects that changed.
        begins_anew: They are all objects that there are.
        is_needed: There are DeviceQuotas.
    """

    objects: QuotaObjects
    begins_anew: bool = False
    is_needed: bool = False

    @property
    def is_cheap(self) -> bool:
        """Return True if they are applied within a few milliseconds."""
        *others, claims, pods = self.objects
        return not self.begins_anew and not any(others) and len(claims) + len(pods) <= MAX_CHEAP


class StateChanges(NamedTuple):
    """The changes that wait for the next decision, of the devices and of quotas."""

    devices: Changes
    quotas: QuotaChanges


class QuotaView:
    """The quotas, and the changes that the book of charges lacks.

    Attributes:
        book: The book as of the latest decision; None without quotas.
    """

    def __init__(
        self,
        informers: InformerFactory,
        features: Features,
        *,
        everything: Callable[[], QuotaObjects],
        on_change: Callable[[], None],
    ) -> None:
        """Subscribe to quotas, namespaces, and pods with keys of devices.

        Args:
            everything: Returns all classes, slices and claims, without quotas and namespaces.
            on_change: Called when a quota or the labels of a namespace changed.
        """
        self.book: QuotaBook | None = None
        self._features = features
        self._everything = everything
        self._on_change = on_change
        self._waiting = nothing()
        self._begins_anew = True
        self._quotas: Subscription[DeviceQuota] = informers.subscribe(
            DEVICE_QUOTAS, project_quota, handlers=[self._quota_changed]
        )
        self._namespaces: Subscription[Mapping[str, str]] = informers.subscribe(
            NAMESPACES, project_namespace_labels, handlers=[self._namespace_changed]
        )
        # Pods that wait for others to release these devices by keys are pods of the same tenant.
        self._pods: Subscription[Pod] = informers.subscribe(
            PODS, project_legacy_pod, handlers=[self._pod_changed]
        )
        self._classes: dict[str, DeviceClass] = {}
        self._legacy_pods: dict[Name, Pod] = {}

    @property
    def subscriptions(self) -> tuple[Subscription[Any], ...]:
        """The lists to complete before a decision: namespaces in any case if there are quotas."""
        subscriptions = (self._quotas, self._namespaces)
        return tuple(
            subscription
            for subscription in subscriptions
            if subscription.is_available or (subscription is self._namespaces and self.count)
        )

    @property
    def count(self) -> int:
        """The number of DeviceQuotas."""
        return len(self._quotas.store)

    def put(self, kind: Kind, name: Name, new: Any) -> None:
        """Take a change; only those of classes, slices and claims make a difference."""
        if self._begins_anew:
            return
        if kind is Kind.CLASS:
            self._waiting.classes[name[1]] = new
        elif kind is Kind.SLICE:
            self._waiting.slices[name[1]] = new
        elif kind is Kind.CLAIM:
            self._waiting.claims[name] = new

    def rebuild(self) -> None:
        """Begin anew with the next decision."""
        self._waiting, self._begins_anew = nothing(), True

    def take_changes(self) -> QuotaChanges:
        """Return the changes since the last call; called while no decision is made."""
        if not self.count:
            self.rebuild()
            return QuotaChanges(nothing())
        if not self._begins_anew:
            changes, self._waiting = self._waiting, nothing()
            return QuotaChanges(changes, is_needed=True)
        self._begins_anew = False
        everything = self._everything()
        everything.quotas.update({name: quota for (_, name), quota in self._quotas.store.items()})
        everything.namespaces.update(
            {name: labels for (_, name), labels in self._namespaces.store.items()}
        )
        everything.pods.update(self._pods.store)
        return QuotaChanges(everything, begins_anew=True, is_needed=True)

    def apply(self, changes: QuotaChanges) -> None:
        """Apply changes to the book; may be called on another thread."""
        if not changes.is_needed:
            self.book = None
            return
        if changes.begins_anew or self.book is None:
            self.book = QuotaBook(self._features)
            self._classes, self._legacy_pods = {}, {}
        objects, book = changes.objects, self.book
        for name, device_class in objects.classes.items():
            book.replace_class(name, device_class)
        if objects.slices:
            book.replace_slices(objects.slices)
        for name, labels in objects.namespaces.items():
            book.replace_namespace(name, labels)
        for name, quota in objects.quotas.items():
            book.replace_quota(name, quota)
        self.charge(objects.claims)
        self._charge_pods(objects.classes, objects.pods)

    def charge(self, claims: Mapping[Name, ResourceClaim | None]) -> None:
        """Charge claims that have devices or are promised some, and release others."""
        if self.book is None:
            return
        for name, claim in claims.items():
            if claim is None or allocation_of(claim) is None:
                self.book.remove_claim(name)
            else:
                self.book.put_claim(name, counted_claim(claim))

    def _charge_pods(
        self, classes: Mapping[str, DeviceClass | None], pods: Mapping[Name, Pod | None]
    ) -> None:
        """Charge pods that have devices by keys; by their claims if a class maps the key now."""
        for name, pod in pods.items():
            self._legacy_pods.pop(name, None)
            if pod is not None:
                self._legacy_pods[name] = pod
        changed: Iterable[Name] = pods
        if classes:
            for name_, device_class in classes.items():
                self._classes.pop(name_, None)
                if device_class is not None:
                    self._classes[name_] = device_class
            changed = {*self._legacy_pods, *pods}
        resources = extended_resources(self._classes.values())
        for name in changed:
            key, pod = LegacyKeysOfPod("/".join(name)), self._legacy_pods.get(name)
            if self.book is None or pod is None:
                if self.book is not None:
                    self.book.remove_claim(key)
                continue
            is_let_through = not is_gated(pod) and pod.spec.scheduler_name != SCHEDULER_NAME
            mapped = mapped_resources(pod, resources)
            self.book.put_claim(key, legacy_pod(pod, mapped, is_let_through=is_let_through))

    def _pod_changed(self, key: Name, old: Pod | None, new: Pod | None) -> None:
        if old != new and self.count:
            if not self._begins_anew:
                self._waiting.pods[key] = new
            self._on_change()

    def _quota_changed(self, key: Name, old: DeviceQuota | None, new: DeviceQuota | None) -> None:
        if old != new:
            if not self._begins_anew:
                self._waiting.quotas[key[1]] = new
            self._on_change()

    def _namespace_changed(self, key: Name, old: Labels | None, new: Labels | None) -> None:
        if old != new:
            if not self._begins_anew:
                self._waiting.namespaces[key[1]] = new
            if self.count:
                self._on_change()


def nothing() -> QuotaObjects:
    """Return no objects."""
    return QuotaObjects({}, {}, {}, {}, {}, {})
