"""DeviceQuotas and the charges to them, as decisions see them.

Objects change on the event loop, and decisions may be made on a thread. So changes wait until the next
decision takes them. Without a DeviceQuota nothing is kept but the labels of namespaces.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from allocator.model.feature_gates import Features
from allocator.pods.claims import Name
from clusterstate.kinds import Changes, Kind
from clusterstate.projections import project_namespace_labels
from kube.api.core import Pod
from kube.api.device_quota import DeviceQuota
from kube.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from kube.api.urls import DEVICE_QUOTAS, NAMESPACES, PODS
from kube.runtime.informers import InformerFactory, Subscription
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.tenants import Labels
from sidecar.state.effective_claims import EffectiveClaims
from sidecar.state.projections import project_quota, project_quota_pod
from sidecar.state.quota_charges import (
    QuotaChanges,
    QuotaCharges,
    QuotaObjects,
    nothing,
    promised_names,
)

T = TypeVar("T")


class StateChanges(NamedTuple):
    """The changes that wait for the next decision, of the devices and of quotas."""

    devices: Changes
    quotas: QuotaChanges


class QuotaView:
    """The quotas, and the changes that the book of charges lacks."""

    def __init__(
        self,
        informers: InformerFactory,
        features: Features,
        *,
        classes: Mapping[Name, DeviceClass],
        slices: Mapping[Name, ResourceSlice],
        claims: EffectiveClaims,
        bridge_scheduler: str,
        on_change: Callable[[], None],
    ) -> None:
        """Subscribe to quotas, namespaces, and pods with devices by keys or of other schedulers.

        Args:
            classes: A live view of all classes.
            slices: A live view of all slices.
            claims: All claims, with the devices that are promised to them.
            bridge_scheduler: schedulerName of the bridge.
            on_change: Called when a quota or the labels of a namespace changed.
        """
        self._charges = QuotaCharges(features)
        self._classes, self._slices, self._claims = classes, slices, claims
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
            PODS,
            partial(project_quota_pod, bridge_scheduler=bridge_scheduler),
            handlers=[self._pod_changed],
        )

    @property
    def subscriptions(self) -> tuple[Subscription[Any], ...]:
        """The lists to complete before a decision: namespaces and pods in any case if there are quotas."""
        others = (self._namespaces, self._pods) if self.count else ()
        optional = [
            subscription
            for subscription in (self._quotas, self._namespaces)
            if subscription.is_available
        ]
        return tuple(dict.fromkeys((*optional, *others)))

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
        objects = QuotaObjects(
            quotas=_by_name(self._quotas.store),
            namespaces=_by_name(self._namespaces.store),
            classes=_by_name(self._classes),
            slices=_by_name(self._slices),
            claims=self._claims.all_stored(),
            pods=dict(self._pods.store),
        )
        return QuotaChanges(objects, begins_anew=True, is_needed=True)

    @property
    def book(self) -> QuotaBook | None:
        """The book as of the latest decision; None without quotas."""
        return self._charges.book

    def apply(self, changes: QuotaChanges) -> None:
        """Apply changes to the book; may be called on another thread."""
        self._charges.apply(changes)

    def charge(self, claims: Mapping[Name, ResourceClaim | None]) -> None:
        """Charge claims before the next changes are applied."""
        self._charges.charge(claims)

    def _pod_changed(self, key: Name, old: Pod | None, new: Pod | None) -> None:
        if old != new and self.count:
            if not self._begins_anew:
                self._waiting.pods[key] = new
                for claim in promised_names(old) ^ promised_names(new):
                    self._waiting.claims[claim] = self._claims.find(claim)
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


def _by_name(store: Mapping[Name, T]) -> dict[str, T | None]:
    """Return objects without a namespace by name."""
    return {name: stored_object for (_, name), stored_object in store.items()}
