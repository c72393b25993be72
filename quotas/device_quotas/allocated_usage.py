"""The use of DeviceQuotas by allocated claims only, kept up to date change by change.

Claims that wait for their allocation are not charged: what they may get depends on selectors of users, which
only an answer to them evaluates, at their own cost.
"""

from collections.abc import Mapping
from typing import NamedTuple

from allocator.model.feature_gates import Features
from allocator.pods.claims import Name, allocation_of
from kube.api.device_quota import DeviceQuota
from kube.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.counted_claims import CountedClaim
from quotas.device_quotas.tenants import Labels


class QuotaObjects(NamedTuple):
    """Objects by namespace and name, or changes of them; None for a deleted one."""

    classes: Mapping[Name, DeviceClass | None] = {}
    slices: Mapping[Name, ResourceSlice | None] = {}
    quotas: Mapping[Name, DeviceQuota | None] = {}
    claims: Mapping[Name, ResourceClaim | None] = {}


class AllocatedUsage:
    """DeviceQuotas, and their use by allocated claims."""

    def __init__(self, features: Features) -> None:
        """Begin without quotas."""
        self._book = QuotaBook(features)
        self._namespaces: Mapping[str, Labels] = {}

    def apply(self, changes: QuotaObjects) -> None:
        """Apply a batch of changes."""
        # Devices before the claims that have them, so that these are charged once.
        for (_, name), device_class in changes.classes.items():
            self._book.replace_class(name, device_class)
        if changes.slices:
            slices = {name: slice_ for (_, name), slice_ in changes.slices.items()}
            self._book.replace_slices(slices)
        for (_, name), quota in changes.quotas.items():
            self._book.replace_quota(name, quota)
        for key, claim in changes.claims.items():
            allocation = None if claim is None else allocation_of(claim)
            if claim is None or allocation is None:
                self._book.remove_claim(key)
            else:
                counted_claim = CountedClaim(key[0], claim.spec.devices, allocation)
                self._book.put_claim(key, counted_claim)

    def book(self, namespaces: Mapping[str, Labels]) -> QuotaBook:
        """Return the quotas and their use.

        Args:
            namespaces: All namespaces as they are now.
        """
        if namespaces is not self._namespaces:
            for name in self._namespaces.keys() - namespaces.keys():
                self._book.replace_namespace(name, None)
            for name, labels in namespaces.items():
                if self._namespaces.get(name) != labels:
                    self._book.replace_namespace(name, labels)
            self._namespaces = namespaces
        return self._book
