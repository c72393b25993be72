"""Resources that a device plugin and a driver offer on the same node."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import pytest

from allocator.model.devices import Pool
from allocator.pods.duplicate_resources import DuplicateResource, duplicate_resources
from kube.api.core import Node
from kube.api.meta import convert
from kube.api.resource import DeviceClass
from kube.quantity import Quantity
from testing.allocation.builders import (
    DRIVER,
    NODE,
    classes,
    device_class,
    devices,
    node_with,
    pool_of,
)

GPU = "nvidia.com/gpu"


def node(**status: Any) -> Node:
    return convert({"metadata": {"name": NODE}, "status": status}, Node)


def mapping(*selectors: str, resource: str = GPU) -> DeviceClass:
    bare = device_class("gpu", *selectors)
    return msgspec.structs.replace(
        bare, spec=msgspec.structs.replace(bare.spec, extended_resource_name=resource)
    )


def duplicate(devices: int, device_class: str = "") -> DuplicateResource:
    return DuplicateResource(
        node=NODE,
        resource=GPU,
        allocatable=Quantity(8),
        drivers=(DRIVER,),
        devices=devices,
        device_class=device_class,
    )


OFFERS = node(allocatable={"cpu": "8", GPU: 8})
TWO = pool_of(*devices("gpu-0", "gpu-1"))
HALF = pool_of(*devices("gpu-0", shared=True), *devices("gpu-1"))
UNMAPPED = device_class()


class Case(NamedTuple):
    name: str
    want: tuple[DuplicateResource, ...]
    node: Node
    pools: tuple[Pool, ...]
    device_class: DeviceClass
    served: Mapping[str, str]


CASES = (
    Case("a class maps the resource to devices of the node",
         (duplicate(2, "gpu"),), OFFERS, (TWO,), mapping(), {}),
    Case("a profile serves the resource", (duplicate(2),), OFFERS, (TWO,), UNMAPPED, {GPU: DRIVER}),
    Case("class and profile count a device once",
         (duplicate(2, "gpu"),), OFFERS, (TWO,), mapping(), {GPU: DRIVER}),
    Case("only devices that the class selects count",
         (duplicate(1, "gpu"),), OFFERS, (HALF,),
         mapping("device.allowMultipleAllocations"), {}),
    Case("nothing connects resource and devices", (), OFFERS, (TWO,), UNMAPPED, {}),
    Case("the plugin is gone, and its amount is 0",
         (), node(allocatable={GPU: 0}), (TWO,), mapping(), {}),
    Case("a node that does not tell what is allocatable", (), node(), (TWO,), mapping(), {}),
    Case("a node without devices", (), OFFERS, (), mapping(), {GPU: DRIVER}),
    Case("devices that are attached to a network belong to no node",
         (), OFFERS, (pool_of(*devices("gpu-0"), pool="fabric", all_nodes=True),), mapping(), {}),
    Case("selectors that fail on a device do not select it",
         (), OFFERS, (TWO,), mapping('device.attributes["a.b"].missing == "x"'), {}),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_duplicate_resources(case: Case) -> None:
    here = node_with(*case.pools)

    assert case.want == duplicate_resources(
        [case.node],
        lambda _: here,
        classes(case.device_class),
        lambda resource: {case.served.get(resource, "")},
    )
