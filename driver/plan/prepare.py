"""The decision to prepare a claim on this node or not, and the content of its containers.

The allocation is compared with the claims prepared on the node, by the allocator's own constraints:
the scheduler may have been wrong, or another client may have written the allocation. Of two claims
that exclude each other the second is refused; the first is never touched.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Final

import msgspec

from allocator.compatibility.compile import CompiledPolicy
from allocator.model.devices import NodeDevices
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason, RejectionReason
from allocator.model.pools import node_devices
from allocator.model.slice_index import build_index
from allocator.model.usage import gather_usage, with_claim
from allocator.search.attempt import AllocatorOptions
from allocator.search.recheck import AllocationConflict, are_compatible, find_conflict
from driver.model.inventory import Inventory, NodeDevice, NodePool
from driver.model.record import MAX_PODS, Record
from driver.plan.checkpoint import Checkpoint
from driver.plan.config import Settings, settings_for
from driver.plan.namespace_share import find_excess
from driver.plan.recorded import recorded_config, recorded_results
from driver.plan.slices import Publication, plan_pools, plan_writes
from findings.text import count_text
from kube.api.core import Node
from kube.api.meta import ObjectMeta, decode_pruned
from kube.api.node_selector import NodeSelector
from kube.api.resource import (
    Device,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from kube.errors import FieldError

FEATURES: Final = Features(compatibility_groups=True)
"""The driver enforces every constraint it published, even those whose feature gate is off."""

PODS: Final = "pods"


class RefusalReason(StrEnum):
    """The reason a claim is not prepared, for metrics; conflicts have the allocator's."""

    CLAIM_GONE = "claimGone"
    NOT_ALLOCATED = "notAllocated"
    OTHER_NODE = "otherNode"
    UNKNOWN_DEVICE = "unknownDevice"
    CONFIGURATION = "configuration"
    STILL_PREPARED = "stillPrepared"
    CLAIM_UNREADABLE = "claimUnreadable"
    LARGE_CLAIMS = "largeClaims"
    STATE_UNKNOWN = "stateUnknown"
    API_SERVER = "apiServer"
    NODE = "node"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that is not prepared; the kubelet reports the reason in an event, and retries.

    Attributes:
        message: Names no object of another namespace.
        contested: Devices that another claim has, and that cannot be shared with it.
        failing: Devices that cannot be prepared although nobody else has them as a whole.
    """

    reason: RefusalReason | Reason
    message: str
    contested: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device of a claim, with the settings and devices that apply to it.

    Attributes:
        settings: The settings in the claim's configuration.
    """

    result: DeviceRequestAllocationResult
    device: NodeDevice
    settings: Settings = Settings()


class Preparation(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that can be prepared.

    Attributes:
        record: The record to keep of the claim; complete if it has been prepared before.
        devices: The prepared devices, in the order of the allocation.
    """

    record: Record
    devices: tuple[PreparedDevice, ...]


class NodeState(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The state of the node: everything beside claims that preparation depends on.

    Attributes:
        policies: The policies in force for the driver.
    """

    publication: Publication
    inventory: Inventory
    policies: tuple[CompiledPolicy, ...] = ()

    @property
    def driver(self) -> str:
        """The driver's name."""
        return self.publication.driver

    @cached_property
    def devices(self) -> Mapping[tuple[str, str], NodeDevice]:
        """Pool, as published, and name to device."""
        node = self.publication.node
        return {
            (pool.published_name(node), device.name): device
            for pool in self.inventory.pools
            for device in pool.devices
        }

    @cached_property
    def published_devices(self) -> NodeDevices:
        """The devices as the allocator sees them."""
        publication = msgspec.structs.replace(self.publication, groups=True)
        slices = plan_writes(plan_pools(publication, self.inventory), ()).to_apply
        return node_devices(
            build_index(slices, FEATURES), Node(metadata=ObjectMeta(name=publication.node))
        )

    def index_devices(self) -> None:
        """Build the device indexes ahead of the first comparison."""
        _ = self.published_devices, self.devices


def prepare_claims(
    claims: Mapping[str, ResourceClaim], node: NodeState, checkpoint: Checkpoint
) -> Mapping[str, Preparation | Refusal]:
    """Return by uid the preparations of claims, or their refusals; of two that conflict the first counts.

    Args:
        claims: The claims as the API server has them now, by the UID in the kubelet's call.
        node: Devices and policies.
        checkpoint: The prepared claims, perhaps including some of `claims`.
    """
    outcomes: dict[str, Preparation | Refusal] = {
        uid: _prepare_alone(claim, uid, node, checkpoint) for uid, claim in claims.items()
    }
    new_records = [
        outcome.record
        for uid, outcome in outcomes.items()
        if isinstance(outcome, Preparation) and uid not in checkpoint.claims
    ]
    if not new_records:
        return outcomes
    moved = _moved_refusals(new_records, checkpoint.claims.values())
    conflicts = {
        **_conflict_refusals(
            [record for record in new_records if record.uid not in moved],
            node,
            checkpoint.claims.values(),
        ),
        **moved,
    }
    excess = find_excess(
        (record for record in new_records if record.uid not in conflicts),
        checkpoint.claims.values(),
    )
    refusals = {
        uid: Refusal(reason=RefusalReason.LARGE_CLAIMS, message=message)
        for uid, message in excess.items()
    }
    return {**outcomes, **conflicts, **refusals}


def prepare_claim(
    claim: ResourceClaim, uid: str, node: NodeState, checkpoint: Checkpoint
) -> Preparation | Refusal:
    """Return the preparation of one claim, or its refusal."""
    return prepare_claims({uid: claim}, node, checkpoint)[uid]


def _prepare_alone(
    claim: ResourceClaim, uid: str, node: NodeState, checkpoint: Checkpoint
) -> Preparation | Refusal:
    """Return the preparation of a claim as if no other one was prepared, or its refusal."""
    if claim.metadata.uid != uid:
        message = "the claim was deleted, and another one has its name"
        return Refusal(reason=RefusalReason.CLAIM_GONE, message=message)
    record = _record(claim, node)
    if isinstance(record, Refusal):
        return record
    devices = _devices(record, node)
    if isinstance(devices, Refusal):
        return devices
    earlier = checkpoint.claims.get(uid)
    if earlier is None:
        return Preparation(record=record, devices=devices)
    # An older driver may have recorded more of the same allocation.
    earlier_results = recorded_results(earlier.results)
    earlier_config = recorded_config(earlier.config, earlier_results, node.driver)
    if (earlier_results, earlier_config) == (record.results, record.config):
        return Preparation(record=earlier, devices=devices)
    message = "it is still prepared here for an earlier allocation, whose containers may still run"
    return Refusal(
        reason=RefusalReason.STILL_PREPARED, message=message, contested=record.device_names()
    )


def pools_in_use(records: Iterable[Record]) -> Mapping[str, str]:
    """Return the devices in use by name, each with the pool of its claim; names are unique on a node."""
    return {
        result.device: result.pool
        for record in records
        for result in record.results
        if not result.admin_access
    }


def _moved_refusals(
    new_records: Iterable[Record], prepared_records: Iterable[Record]
) -> Mapping[str, Refusal]:
    """Return by uid the refusals of claims with a device that others use as one of another pool.

    To kube-scheduler a device that moves to another pool is a new one, which nobody uses.
    """
    pools = pools_in_use(prepared_records)
    refusals: dict[str, Refusal] = {}
    for record in new_records:
        moved_names = tuple(
            result.device
            for result in record.results
            if not result.admin_access and pools.get(result.device, result.pool) != result.pool
        )
        if moved_names:
            name = moved_names[0]
            message = f"{name}: in use since it was published in pool {pools[name]}"
            refusals[record.uid] = Refusal(
                reason=Reason.ALLOCATED, message=message, contested=moved_names
            )
    return refusals


def _conflict_refusals(
    new_records: Sequence[Record], node: NodeState, prepared_records: Collection[Record]
) -> Mapping[str, Refusal]:
    """Return by uid the refusals of claims that cannot be prepared beside others.

    Args:
        new_records: The records of claims whose devices are on the node, in the order in which they
            count.
        node: Devices and policies.
        prepared_records: The records of the other claims.
    """
    claims = [record.as_claim() for record in new_records]
    usage = gather_usage([record.as_claim() for record in prepared_records], FEATURES)
    published_devices = with_vanished(node, prepared_records).published_devices
    options = AllocatorOptions(
        features=FEATURES,
        policies=node.policies,
        uniform_config_drivers=frozenset({node.driver}),
    )
    # Nearly always there is none, and to learn that takes a fraction of the time for all at once.
    if len(claims) > 1 and are_compatible(claims, published_devices, usage, options):
        return {}
    refusals: dict[str, Refusal] = {}
    for record, claim in zip(new_records, claims, strict=True):
        conflict = find_conflict(claim, published_devices, usage, options)
        if conflict is None:
            usage = with_claim(usage, claim, FEATURES)
        else:
            refusals[record.uid] = _conflict_refusal(conflict, record, node)
    return refusals


def _conflict_refusal(conflict: AllocationConflict, record: Record, node: NodeState) -> Refusal:
    name = conflict.device.device
    node_device = node.devices.get((conflict.device.pool, name))
    is_shared = node_device is not None and node_device.device.allow_multiple_allocations
    return Refusal(
        reason=conflict.rejection.reason,
        message=_conflict_message(conflict, record.namespace),
        contested=() if is_shared else (name,),
        failing=(name,) if is_shared else (),
    )


def restore(record: Record, node: NodeState) -> Preparation | Refusal:
    """Return the preparation of a prepared claim, from the record alone."""
    devices = _devices(record, node)
    return devices if isinstance(devices, Refusal) else Preparation(record=record, devices=devices)


def read_claim(raw: bytes) -> ResourceClaim | Refusal:
    """Return a claim from its JSON.

    Parameters that are nested deeper than Python can go are cut off, and so refused later.
    """
    try:
        return decode_pruned(raw, ResourceClaim)
    except msgspec.DecodeError as error:
        message = f"the claim cannot be understood: {error}"
        return Refusal(reason=RefusalReason.CLAIM_UNREADABLE, message=message)


def allocated_names(claim: ResourceClaim, driver: str) -> tuple[str, ...]:
    """Return the names of a driver's devices in the allocation of a claim."""
    allocation = claim.status.allocation if claim.status is not None else None
    results = (allocation.devices.results or ()) if allocation is not None else ()
    return tuple(dict.fromkeys(result.device for result in results if result.driver == driver))


def _record(claim: ResourceClaim, node: NodeState) -> Record | Refusal:
    """Return the part of a claim that is to be prepared."""
    allocation = claim.status.allocation if claim.status is not None else None
    if claim.status is None or allocation is None:
        message = "the claim is not allocated (any more)"
        return Refusal(reason=RefusalReason.NOT_ALLOCATED, message=message)
    if not _is_for_node(allocation.node_selector, node.publication.node):
        message = f"the claim is allocated for another node than {node.publication.node}"
        return Refusal(reason=RefusalReason.OTHER_NODE, message=message)
    results = recorded_results(
        result for result in allocation.devices.results or () if result.driver == node.driver
    )
    if not results:
        message = f"the claim is allocated, but without a device of {node.driver}"
        return Refusal(reason=RefusalReason.NOT_ALLOCATED, message=message)
    devices = {
        result.device: device.device
        for result in results
        if (device := node.devices.get((result.pool, result.device))) is not None
    }
    pods = tuple(
        sorted(user.name for user in claim.status.reserved_for or () if user.resource == PODS)
    )
    return Record(
        uid=claim.metadata.uid,
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        results=results,
        config=recorded_config(allocation.devices.config or (), results, node.driver),
        devices=devices,
        pods=pods[:MAX_PODS],
        more_pods=len(pods[MAX_PODS:]),
    )


def _devices(record: Record, node: NodeState) -> tuple[PreparedDevice, ...] | Refusal:
    prepared_devices: list[PreparedDevice] = []
    for result in record.results:
        device = node.devices.get((result.pool, result.device))
        if device is None:
            message = f"{result.pool}/{result.device} is not on this node (any more)"
            return Refusal(reason=RefusalReason.UNKNOWN_DEVICE, message=message)
        settings = settings_for(result.request, node.driver, record.config)
        if isinstance(settings, FieldError):
            message = f"{settings.path} {settings.message}"
            message += f"; {settings.fix}" if settings.fix else ""
            return Refusal(reason=RefusalReason.CONFIGURATION, message=message)
        prepared_devices.append(PreparedDevice(result=result, device=device, settings=settings))
    return tuple(prepared_devices)


def _is_for_node(selector: NodeSelector | None, node: str) -> bool:
    """Return True if an allocation may be used on this node, by the node's name.

    Devices of a node are allocated for exactly that node; labels are for devices that several nodes
    reach.
    """
    if selector is None:
        return True
    return any(
        all(
            (node in (requirement.values or ())) == (requirement.operator == "In")
            for requirement in term.match_fields or ()
            if requirement.key == "metadata.name"
        )
        for term in selector.node_selector_terms
    )


# --- what is prepared, as the allocator sees it ---------------------------------------------------


def with_vanished(node: NodeState, records: Iterable[Record]) -> NodeState:
    """Return the node with devices that are in use although they are no longer part of it."""
    vanished_devices: dict[str, dict[str, NodeDevice]] = {}
    for record in records:
        for result in record.results:
            last = record.devices.get(result.device)
            if last is not None and (result.pool, result.device) not in node.devices:
                vanished_devices.setdefault(result.pool, {})[result.device] = NodeDevice(
                    device=last
                )
    if not vanished_devices:
        return node
    pools: list[NodePool] = []
    for pool in node.inventory.pools:
        pool_devices = vanished_devices.get(pool.published_name(node.publication.node), {})
        devices_kept = (_with_known_counters(device, pool) for device in pool_devices.values())
        pools.append(msgspec.structs.replace(pool, devices=(*pool.devices, *devices_kept)))
    return msgspec.structs.replace(node, inventory=Inventory(pools=tuple(pools)))


def _with_known_counters(node_device: NodeDevice, pool: NodePool) -> NodeDevice:
    """Return a device without its consumption of counters that no longer exist."""
    published_counters = {
        (counter_set.name, counter)
        for counter_set in pool.counter_sets
        for counter in counter_set.counters or ()
    }
    consumes = tuple(
        entry
        for entry in node_device.device.consumes_counters or ()
        if all(
            (entry.counter_set, counter) in published_counters for counter in entry.counters or ()
        )
    )
    device: Device = msgspec.structs.replace(node_device.device, consumes_counters=consumes or None)
    return msgspec.structs.replace(node_device, device=device)


def _conflict_message(conflict: AllocationConflict, namespace: str) -> str:
    """Return a refusal in words; a claim is named to its own namespace only."""
    own = sorted(
        {consumer.claim for consumer in conflict.consumers if consumer.namespace == namespace}
    )
    others = len({(consumer.namespace, consumer.claim) for consumer in conflict.consumers}) - len(
        own
    )
    users = [f"claim {name}" for name in own]
    if others:
        users.append(f"{count_text(others, 'claim')} of other namespaces")
    users_text = f" (used by {', '.join(users)})" if users else ""
    return f"{conflict.device.device}: {_reason(conflict.rejection)}{users_text}"


def _reason(rejection: RejectionReason) -> str:
    """Return the reason one device cannot be used."""
    return rejection.predicate_of_one
