"""Values of the node driver, so that a row stays on one line.

The driver is `gpu.example.com` on node `node-1`, whose only pool is called as the node.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from allocator.compatibility.compile import compile_policy
from driver.model.inventory import Injection, Inventory, NodeDevice, NodePool
from driver.model.record import Record, State
from driver.plan.checkpoint import Checkpoint
from driver.plan.prepare import NodeState
from driver.plan.slices import Publication
from kube.api.meta import ObjectMeta
from kube.api.node_selector import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import (
    AllocationResult,
    CounterSet,
    Device,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from testing.allocation.builders import DRIVER, NODE, amount, device, opaque, result

BOOT: Final = "boot-1"
PUBLICATION: Final = Publication(driver=DRIVER, node=NODE, node_uid="node-uid")
CONFIG: Final = {"apiVersion": "drawbridge.internal/v1alpha1", "kind": "DeviceConfig"}

_shares = itertools.count(1)


def shared_gpu(name: str = "gpu-0", **fields: Any) -> Device:
    """A device of 80Gi and 100 cores that several claims may share."""
    return device(
        name,
        attributes={"uuid": f"uuid-of-{name}", "type": "gpu"},
        capacity={
            "memory": amount("80Gi", "80Gi", min="1Gi", step="1Gi"),
            "cores": amount("100", "100", min="0", step="1"),
        },
        shared=True,
        **fields,
    )


def node_state(
    *devices: Device | NodeDevice,
    counters: Sequence[CounterSet] = (),
    policies: Sequence[DeviceCompatibilityPolicy] = (),
) -> NodeState:
    """A node with one pool."""
    pool = NodePool(
        devices=tuple(
            entry if isinstance(entry, NodeDevice) else NodeDevice(device=entry)
            for entry in devices
        ),
        counter_sets=tuple(counters),
    )
    return NodeState(
        publication=PUBLICATION,
        inventory=Inventory(pools=(pool,)),
        policies=tuple(compile_policy(policy) for policy in policies),
    )


def injected_device(device_: Device, **injection: Any) -> NodeDevice:
    """A device with the injection into its containers."""
    return NodeDevice(device=device_, injection=Injection(**injection))


def share(
    name: str = "gpu-0", memory: str = "10Gi", cores: int = 0, **fields: Any
) -> DeviceRequestAllocationResult:
    """A share of a device, with an id of its own."""
    counters: dict[str, str | int] = {"memory": memory, "cores": cores}
    share_id = f"00000000-0000-8000-8000-{next(_shares):012}"
    return result(name, share=share_id, consumed=counters, **fields)


def configured_configuration(
    *requests: str, driver: str = DRIVER, **config: Any
) -> DeviceAllocationConfiguration:
    """Parameters of the driver in an allocation: `configured("gpu", sharing={...})`."""
    return DeviceAllocationConfiguration(
        source="FromClaim",
        requests=requests or None,
        opaque=opaque(driver, **{**CONFIG, **config}),
    )


def allocated_claim(
    *results: DeviceRequestAllocationResult,
    name: str = "claim-0",
    namespace: str = "default",
    uid: str = "",
    node: str | None = NODE,
    config: Sequence[DeviceAllocationConfiguration] = (),
    pods: Sequence[str] = ("pod-0",),
) -> ResourceClaim:
    """A claim as the API server has it once it is allocated and reserved."""
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=uid or uid_of(namespace, name)),
        status=ResourceClaimStatus(
            allocation=AllocationResult(
                devices=DeviceAllocationResult(results=results, config=tuple(config) or None),
                node_selector=on_node(node) if node is not None else None,
            ),
            reserved_for=tuple(
                ResourceClaimConsumerReference(resource="pods", name=pod, uid=pod) for pod in pods
            ),
        ),
    )


def uid_of(namespace: str, name: str) -> str:
    """The uid of a claim, of its names."""
    return f"uid-of-{namespace}-{name}"


def on_node(name: str) -> NodeSelector:
    """The node selector of an allocation of devices of one node."""
    field = NodeSelectorRequirement(key="metadata.name", operator="In", values=(name,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(field,)),))


def prepared_checkpoint(
    *claims: ResourceClaim, devices: Sequence[Device] = (), state: State = State.COMPLETED
) -> Checkpoint:
    """A checkpoint with prepared claims."""
    records_by_device = {record_.name: record_ for record_ in devices}
    return Checkpoint(
        boot_id=BOOT,
        claims={claim.metadata.uid: record_of(claim, records_by_device, state) for claim in claims},
    )


def record_of(claim: ResourceClaim, devices: Mapping[str, Device], state: State) -> Record:
    """The record of a claim."""
    assert claim.status is not None
    assert claim.status.allocation is not None
    allocation = claim.status.allocation.devices
    results = tuple(allocation.results or ())
    return Record(
        uid=claim.metadata.uid,
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        state=state,
        results=results,
        config=allocation.config or (),
        devices={
            result_.device: devices[result_.device]
            for result_ in results
            if result_.device in devices
        },
        pods=tuple(consumer.name for consumer in claim.status.reserved_for or ()),
    )


def document_of(claim: ResourceClaim) -> dict[str, Any]:
    """A claim as JSON has it."""
    document: dict[str, Any] = msgspec.to_builtins(claim, enc_hook=str)
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **document}
