"""The answers to GET /v1/debug/decisions: the inputs of decisions beside the objects of the API, and their outcomes.

In the order in which it counted: an entry is about the state that all entries before it make.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from allocator.model.feature_gates import Features
from allocator.strategies.pod_kinds import PodKind
from kube.api.resource import DeviceRequestAllocationResult
from sidecar.model.protocol import (
    HeadroomChanges,
    Message,
    ResourceRequests,
    ScoredNode,
)

_DIGEST_BYTES: Final = 8


class ClaimDevices(Message, frozen=True, kw_only=True):
    """The devices of a claim: allocated, promised, or held back.

    Attributes:
        devices: The devices; empty for a claim that has none any more.
    """

    namespace: str
    name: str
    devices: tuple[DeviceRequestAllocationResult, ...] = ()


class Beginning(Message, frozen=True, kw_only=True, tag="beginning"):
    """The beginning of the log, or its beginning anew: nothing before it counts.

    Attributes:
        drivers: The drivers whose devices are given.
        default_strategy: The strategy where nothing names one.
        features: The feature gates.
        uniform_config_drivers: The drivers of `AllocatorOptions.uniform_config_drivers`.
        claims: The number of claims with devices; entries of claims follow with them.
    """

    drivers: tuple[str, ...]
    default_strategy: str
    features: Features
    uniform_config_drivers: tuple[str, ...] = ()
    claims: int = 0


class ClaimsChanged(Message, frozen=True, kw_only=True, tag="claims"):
    """Claims have other devices than before."""

    claims: tuple[ClaimDevices, ...]


class HeadroomChanged(Message, frozen=True, kw_only=True, tag="headroom"):
    """The resources left on nodes, as the scheduler said.

    Attributes:
        changes: The changes; with `since` 0 they replace all that there was.
    """

    changes: HeadroomChanges


class KindsChanged(Message, frozen=True, kw_only=True, tag="kinds"):
    """Other kinds of pods count as usual from now on.

    Attributes:
        digest: The hash of the kinds, as the sidecar's log has it.
    """

    kinds: tuple[PodKind, ...]
    digest: str = ""


class Placed(Message, frozen=True, kw_only=True, tag="placed"):
    """The choice of the devices of a reserved pod.

    Attributes:
        pod: The pod's UID.
        node: The node's name.
        code: The reason why it got none; empty if it did.
        claims: The claims that got devices.
        beside: The parts of the state that the log lacks, as in `Decided`.
    """

    pod: str
    node: str
    code: str = ""
    claims: tuple[ClaimDevices, ...] = ()
    beside: tuple[str, ...] = ()


class Decided(Message, frozen=True, kw_only=True, tag="decided"):
    """The answer to PreFilter.

    Attributes:
        pod: The pod's UID.
        every: All nodes were asked for.
        requests: The pod's CPU and memory; None if they are not compared with nodes.
        code: The reason that no node fits; empty if some do, or the pod needs no devices.
        nodes: The number of nodes in the answer.
        digest: A digest of their names and scores, in order.
        first: The first of them.
        complete: The answer says that no further node fits.
        settled: Nothing that was not known yet could have changed the answer.
        beside: The parts of the state that the log lacks and an answer depends on, sorted: `deviceQuotas`, `group`, `keptForGroups`, `nominatedPods`.
    """

    pod: str
    every: bool = False
    requests: ResourceRequests | None = None
    code: str = ""
    nodes: int = 0
    digest: str = ""
    first: str = ""
    complete: bool = True
    settled: bool = True
    beside: tuple[str, ...] = ()


Entry = Beginning | ClaimsChanged | HeadroomChanged | KindsChanged | Placed | Decided


class LoggedEntry(Message, frozen=True, kw_only=True):
    """An entry of the log.

    Attributes:
        number: Its number; it grows by one with each.
        age_s: Its age in seconds when it was read.
        entry: The entry.
    """

    number: int
    age_s: float
    entry: Entry


class DecisionsView(Message, frozen=True, kw_only=True):
    """GET /v1/debug/decisions: the entries after those that the caller has.

    Attributes:
        instance: The identity of this sidecar process while it leads; numbers are those of an instance.
        entries: The entries. They begin with a `Beginning` if those that the caller lacks are gone.
        more: There are further ones.
    """

    instance: str
    entries: tuple[LoggedEntry, ...] = ()
    more: bool = False


def digest_nodes(nodes: Sequence[ScoredNode]) -> str:
    """Return a digest of the nodes of an answer and their scores, in order.

    >>> digest_nodes([ScoredNode(name="node-a", score=100)])
    '799a57e357f778f5'
    """
    return blake2b(msgspec.json.encode(nodes), digest_size=_DIGEST_BYTES).hexdigest()
