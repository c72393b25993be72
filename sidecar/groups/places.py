"""The answer about a group that fits: the node and the devices of its pods."""

from collections.abc import Mapping

import msgspec

from allocator.model.plan import Choice
from allocator.pods.claims import Name
from kube.api.resource import ResourceClaim
from sidecar.model.rejections import Rejection
from sidecar.plan.decisions import NoDevicesNeeded


class PlannedClaim(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The devices that a claim gets.

    Attributes:
        claim: The claim with them as its allocation.
        choices: The choices of the search.
    """

    claim: ResourceClaim
    choices: tuple[Choice, ...]


class Places(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The places of enough pods of a group.

    Attributes:
        nodes: UID of a pod to its node.
        rejections: UID of each other pod to the reason why it has no place; the group gets by without it.
        claims: The devices of all claims that are not allocated yet.
    """

    nodes: Mapping[str, str] = {}
    rejections: Mapping[str, Rejection] = {}
    claims: Mapping[Name, PlannedClaim] = {}


GroupOutcome = Places | NoDevicesNeeded | Rejection
