"""A strategy on one node: the devices that the real search allocates, and the score.

Nodes are written as lists of devices; what is held before, as results of allocated claims.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from allocator.model.devices import NodeDevices
from allocator.model.feature_gates import Features
from allocator.model.plan import Plan
from allocator.model.requests import resolve_requests
from allocator.model.usage import Usage, gather_usage
from allocator.search.attempt import AllocatorOptions
from allocator.search.search import allocate
from allocator.strategies.strategy import Strategy
from kube.api.resource import Device, DeviceClass, DeviceRequestAllocationResult, ResourceClaim
from testing.allocation.builders import (
    allocated_claim,
    amount,
    classes,
    consumes,
    counter_set,
    device,
    node_with,
    pool_of,
    result,
)

ROOT = "resource.kubernetes.io/pcieRoot"
NUMA = "resource.kubernetes.io/numaNode"


class Placed(NamedTuple):
    """Names of the devices that were taken, in order, and the score of the node."""

    devices: str
    score: int


def held_results(*names: str) -> tuple[DeviceRequestAllocationResult, ...]:
    """Whole devices that others hold."""
    return tuple(result(name) for name in names)


def share(name: str, **capacity: str | int) -> DeviceRequestAllocationResult:
    """A share of a device that somebody holds."""
    return result(name, share=f"share-of-{name}", consumed=capacity)


def usage(*results: DeviceRequestAllocationResult) -> Usage:
    """A usage with each result in a claim of its own."""
    claims = [
        allocated_claim(result_, name=f"other-{number}") for number, result_ in enumerate(results)
    ]
    return gather_usage(claims, Features())


def placed(
    strategy: Strategy,
    node: NodeDevices,
    claims: Sequence[ResourceClaim],
    before: Sequence[DeviceRequestAllocationResult] = (),
    known_device_classes: Mapping[str, DeviceClass] | None = None,
) -> Placed:
    """Let a strategy place claims; they must fit."""
    use, rules = usage(*before), AllocatorOptions()
    pending = resolve_requests(claims, known_device_classes or classes(), rules.features)
    order = strategy.order(node, use, pending)
    plan = allocate(node, pending, use, rules, order=order)
    assert isinstance(plan, Plan), plan
    names = [choice.device.id.device for claim in plan.choices for choice in claim]
    return Placed(" ".join(names), strategy.score(node, use, plan))


# --- nodes ----------------------------------------------------------------------------------------


def whole(count: int) -> NodeDevices:
    """GPUs that are given away whole."""
    return node_with(pool_of(*[device(f"gpu-{number}") for number in range(count)]))


def sharing(count: int, memory: str = "80Gi") -> NodeDevices:
    """GPUs that are shared by their memory; a silent request takes 1Gi."""
    capacity = {"memory": amount(memory, "1Gi", min="1Gi")}
    names = [f"gpu-{number}" for number in range(count)]
    return node_with(pool_of(*[device(name, shared=True, capacity=capacity) for name in names]))


def card(number: int) -> tuple[Device, ...]:
    """A card with seven slots: itself, seven partitions of one slot, two of three."""
    return tuple(
        device(
            f"card-{number}{name}",
            consumes(f"card-{number}", groups=None, **{f"slot-{slot}": 1 for slot in slots}),
            capacity={"memory": f"{5 * len(slots)}Gi"},
            attributes={"profile": f"{len(slots)}g"},
        )
        for name, slots in (
            ("", range(7)),
            *((f"-1g-{slot}", (slot,)) for slot in range(7)),
            ("-3g-0", (0, 1, 2)),
            ("-3g-4", (4, 5, 6)),
        )
    )


def cards(count: int) -> NodeDevices:
    """Cards that are cut into partitions."""
    numbers = range(count)
    return node_with(
        pool_of(
            *[device_ for number in numbers for device_ in card(number)],
            counters=[
                counter_set(f"card-{number}", **{f"slot-{slot}": 1 for slot in range(7)})
                for number in numbers
            ],
        )
    )


def rooted_node_devices(*roots: str, numa: Sequence[int] = ()) -> NodeDevices:
    """GPUs, each under the root at its place: `rooted("a", "a", "b")`; `?` is no root."""
    devices = []
    for number, root in enumerate(roots):
        attributes: dict[str, str | int] = {} if root == "?" else {ROOT: root}
        if numa:
            attributes[NUMA] = numa[number]
        devices.append(device(f"gpu-{number}", attributes=attributes))
    return node_with(pool_of(*devices))
