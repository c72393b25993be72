"""The record of a claim that is being prepared, or is prepared."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.resource import (
    AllocationResult,
    Device,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)

MAX_PODS: Final = 8
"""Pods of a claim that a record names; they are shown to people, and a claim may have 256."""


class State(StrEnum):
    """The state of a claim on this node.

    STARTED: something may have been done for it on the node. COMPLETED: all of it, and the kubelet may
    have been told.
    """

    STARTED = "Started"
    COMPLETED = "Completed"


class Record(ApiStruct, frozen=True, kw_only=True):
    """A claim that is prepared on this node, or is about to be.

    Attributes:
        uid: The claim's UID.
        results: The results of the claim's allocation that belong to the driver.
        config: The configuration of the claim's allocation that belongs to the driver.
        devices: Name to device as it was when it was prepared, for when it is not there any more.
        pods: Names of the first pods that may use it, as far as they were known then.
        more_pods: The number of further ones.
    """

    uid: str
    namespace: str
    name: str
    state: State = State.STARTED
    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()
    devices: Mapping[str, Device] = {}
    pods: tuple[str, ...] = ()
    more_pods: int = 0

    def pods_text(self) -> str:
        """Return its pods for people; empty if none is known.

        >>> Record(uid="1", namespace="a", name="b", pods=("x", "y"), more_pods=3).pods_text()
        'x,y,...3 more'
        """
        more = (f"...{self.more_pods} more",) if self.more_pods else ()
        return ",".join((*self.pods, *more))

    def device_names(self) -> tuple[str, ...]:
        """Return the names of its devices, in the order of the allocation."""
        return tuple(dict.fromkeys(result.device for result in self.results))

    def as_claim(self) -> ResourceClaim:
        """Return the claim as far as it concerns this node."""
        return ResourceClaim(
            metadata=ObjectMeta(name=self.name, namespace=self.namespace, uid=self.uid),
            status=ResourceClaimStatus(
                allocation=AllocationResult(
                    devices=DeviceAllocationResult(results=self.results, config=self.config or None)
                )
            ),
        )

    def as_completed(self) -> "Record":
        """Return the record of the claim once everything is done."""
        return msgspec.structs.replace(self, state=State.COMPLETED)
