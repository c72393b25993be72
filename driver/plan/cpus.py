"""CPUs and huge pages of a node as consumable capacity, one device per NUMA node.

CDI cannot set a cpuset. So what a claim gets is accounted and told by environment, not enforced.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from driver.model.inventory import Injection, NodeDevice, NodePool
from driver.model.pci import NUMA_NODE
from kube.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceAttribute,
    DeviceCapacity,
)
from kube.quantity import ZERO, Quantity

POOL: Final = "cpus"
_NAMES: Final = {2048: "hugepages2Mi", 1048576: "hugepages1Gi"}
"""Size of a page in KiB to the name of its capacity; other sizes are not published."""


class NumaNode(msgspec.Struct, frozen=True, kw_only=True):
    """A NUMA node.

    Attributes:
        number: The NUMA node's number.
        cpus: The CPUs that exist, as the kernel lists them: `0-15,32-47`.
        huge_pages: Size of a page in KiB to the number of pages.
    """

    number: int
    cpus: str
    huge_pages: Mapping[int, int] = {}


def cpu_pool(nodes: Iterable[NumaNode], reserved_cpus: int = 0) -> NodePool:
    """Return a device for each NUMA node with CPUs.

    Args:
        nodes: The NUMA nodes, in any order.
        reserved_cpus: CPUs of the first NUMA node that nobody gets, for the system.
    """
    devices: list[NodeDevice] = []
    for node in sorted(nodes, key=lambda node: node.number):
        count = count_cpus(node.cpus) - (0 if devices else reserved_cpus)
        if count > 0:
            devices.append(_device(node, count))
    return NodePool(name=POOL, devices=tuple(devices))


def _device(node: NumaNode, count: int) -> NodeDevice:
    name = f"cpu-numa-{node.number}"
    capacity = {"cpus": _capacity(Quantity(count), Quantity(1))}
    for size_kib, pages in sorted(node.huge_pages.items()):
        if pages and size_kib in _NAMES:
            page = Quantity(size_kib * 1024)
            capacity[_NAMES[size_kib]] = _capacity(page * pages, page)
    device = Device(
        name=name,
        attributes={
            "type": DeviceAttribute(string="cpu"),
            NUMA_NODE: DeviceAttribute(int_=node.number),
        },
        capacity=capacity,
        allow_multiple_allocations=True,
    )
    variable = f"DRAWBRIDGE_DEVICE_CPU_NUMA_{node.number}_CPU_LIST"
    return NodeDevice(device=device, injection=Injection(environment={variable: node.cpus}))


def _capacity(value: Quantity, step: Quantity) -> DeviceCapacity:
    """Return a capacity; a request takes a multiple of the step, and nothing by default."""
    policy = CapacityRequestPolicy(
        default=ZERO, valid_range=CapacityRequestPolicyRange(min=ZERO, step=step)
    )
    return DeviceCapacity(value=value, request_policy=policy)


def count_cpus(text: str) -> int:
    """Return the number of CPUs in a list of the kernel.

    >>> count_cpus("0-3,8,10-11"), count_cpus("")
    (7, 0)
    """
    total = 0
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            total += int(last or first) - int(first) + 1
    return total
