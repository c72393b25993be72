"""Valid declared inventories, and the errors of invalid ones."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from driver.model import limits
from driver.model.inventory import DeviceNode, Inventory, Mount
from driver.plan.declared import read_inventory
from kube.api.resource import CapacityRequestPolicy, DeviceAttribute
from kube.errors import FieldError
from kube.quantity import Quantity
from testing.documents import Document

SHARED: Document = {
    "name": "gpu-0-shared",
    "shared": True,
    "consumers": 4,
    "attributes": {
        "uuid": "GPU-1",
        "index": 0,
        "healthy": True,
        "driverVersion": {"version": "580.1.0"},
    },
    "capacity": {
        "memory": {"value": "80Gi", "default": "1Gi", "min": "1Gi", "step": "1Gi"},
        "cores": {"value": 100, "default": 0, "validValues": [0, 25, 50, 100]},
        "tflops": 989.5,
    },
    "consumes": [
        {"counterSet": "gpu-0", "counters": {"memory": "80Gi"}, "compatibilityGroups": ["shared"]}
    ],
    "taints": [{"key": "example.com/maintenance", "effect": "NoExecute"}],
    "deviceNodes": ["/dev/nvidia0", {"path": "/dev/x", "hostPath": "/dev/y", "permissions": "rwm"}],
    "mounts": [{"hostPath": "/usr/lib/libcuda.so"}],
    "environment": {"VENDOR_VISIBLE": "0"},
    "cdiDevices": ["nvidia.com/gpu=0"],
    "network": {"interfaceName": "eth1", "ips": ["192.0.2.5/24"]},
}
WHOLE: Document = {"name": "gpu-1", "capacity": {"memory": "80Gi"}}


def inventory(*devices: Document, **pool: Any) -> Document:
    sets = [{"name": "gpu-0", "counters": {"memory": "80Gi"}}]
    return {
        "apiVersion": "drawbridge.internal/v1alpha1",
        "kind": "DeviceInventory",
        "pools": [{"counterSets": sets, "devices": list(devices), **pool}],
    }


def read(document: object) -> Inventory:
    inventory_ = read_inventory(document)
    assert isinstance(inventory_, Inventory), inventory_
    return inventory_


def faults(document: object) -> tuple[FieldError, ...]:
    inventory_ = read_inventory(document)
    assert isinstance(inventory_, tuple), "nothing is wrong with it"
    return inventory_


def test_every_field_of_a_device() -> None:
    (pool,) = read(inventory(SHARED, WHOLE)).pools
    shared, whole = pool.devices

    assert DeviceAttribute(string="GPU-1") == (shared.device.attributes or {})["uuid"]
    assert DeviceAttribute(int_=0) == (shared.device.attributes or {})["index"]
    assert DeviceAttribute(bool_=True) == (shared.device.attributes or {})["healthy"]
    assert DeviceAttribute(version="580.1.0") == (shared.device.attributes or {})["driverVersion"]
    capacity = shared.device.capacity or {}
    assert ["memory", "cores", "tflops", "consumers"] == list(capacity)
    assert Quantity("989.5") == capacity["tflops"].value
    assert Quantity(4) == capacity["consumers"].value
    quantity = Quantity(1)
    assert (
        CapacityRequestPolicy(default=quantity, valid_values=(quantity,))
        == capacity["consumers"].request_policy
    )
    assert shared.device.allow_multiple_allocations is True
    assert whole.device.allow_multiple_allocations is None
    (consumption,) = shared.device.consumes_counters or ()
    assert ("shared",) == consumption.compatibility_groups
    assert DeviceNode(path="/dev/nvidia0") == shared.injection.device_nodes[0]
    assert (
        DeviceNode(path="/dev/x", host_path="/dev/y", permissions="rwm")
        == shared.injection.device_nodes[1]
    )
    library = "/usr/lib/libcuda.so"
    assert (Mount(host_path=library, container_path=library),) == shared.injection.mounts
    assert ("nvidia.com/gpu=0",) == shared.injection.cdi_devices
    assert shared.network is not None
    assert shared.network.interface_name == "eth1"


def test_a_node_may_have_no_devices() -> None:
    assert Inventory() == read({**inventory(), "pools": []})


class Fault(NamedTuple):
    name: str
    change: Callable[[Document, Document], object]
    """Given the document and its first device."""
    path: str
    words: str


D = "pools[0].devices[0]"
FAULTS = (
    Fault("another kind", lambda doc, _: doc.update(kind="Inventory"), "", "kind: DeviceInventory"),
    Fault("another version", lambda doc, _: doc.update(apiVersion="v9"), "", "v1alpha1"),
    Fault("an unknown field", lambda doc, _: doc.update(pool=[]), "pool", "did you mean pools?"),
    Fault("an unknown field of a device", lambda _, d: d.update(share=True), f"{D}.share", "did you mean shared?"),
    Fault("an unknown field of a capacity", lambda _, d: d["capacity"]["memory"].update(stepp=1), f"{D}.capacity[memory].stepp", "did you mean step?"),
    Fault("a text for a list", lambda _, d: d.update(taints="none"), f"{D}.taints", "Expected `array`, got `str`"),
    Fault("a device without a name", lambda _, d: d.pop("name"), D, "missing required field `name`"),
    Fault("a name that leaves its folder", lambda _, d: d.update(name="../gpu"), f"{D}.name", "no DNS label"),
    Fault("a name in upper case", lambda _, d: d.update(name="GPU-0"), f"{D}.name", "lower-case"),
    Fault("a name that is too long", lambda _, d: d.update(name="g" * 64), f"{D}.name", "no DNS label"),
    Fault("a size of another unit", lambda _, d: d["capacity"].update(memory="80GB"), f"{D}.capacity[memory]", "write 80G"),
    Fault("a size with a space", lambda _, d: d["capacity"].update(memory="80 GiB"), f"{D}.capacity[memory]", "write 80Gi"),
    Fault("a size in words", lambda _, d: d["capacity"].update(memory="much"), f"{D}.capacity[memory]", "write an amount as 80Gi"),
    Fault("a negative size", lambda _, d: d["capacity"].update(memory=-1), f"{D}.capacity[memory]", "negative"),
    Fault("a list for a size", lambda _, d: d["capacity"].update(memory=[1]), f"{D}.capacity[...]", "Expected"),
    Fault("a name of a capacity with a dash", lambda _, d: d["capacity"].update({"gpu-memory": 1}), f"{D}.capacity[gpu-memory]", "names no attribute"),
    Fault("a policy for a device that is not shared", lambda _, d: d.update(shared=False), f"{D}.capacity[memory]", "for devices that are shared"),
    Fault("consumers of a device that is not shared", lambda _, d: d.update(shared=False), f"{D}.consumers", "not shared"),
    Fault("consumers twice", lambda _, d: d["capacity"].update(consumers=2), f"{D}.capacity[consumers]", "write one"),
    Fault("no consumer at all", lambda _, d: d.update(consumers=0), f"{D}.consumers", ">= 1"),
    Fault("a minimum without a default", lambda _, d: d["capacity"]["memory"].pop("default"), f"{D}.capacity[memory].default", "is missing"),
    Fault("a step without a minimum", lambda _, d: d["capacity"]["memory"].pop("min"), f"{D}.capacity[memory].min", "write min: 0"),
    Fault("a default off the steps", lambda _, d: d["capacity"]["memory"].update(default="1536Mi"), f"{D}.capacity[memory].default", "is not 1Gi plus steps of 1Gi"),
    Fault("a default above all", lambda _, d: d["capacity"]["memory"].update(default="90Gi"), f"{D}.capacity[memory].default", "between"),
    Fault("a maximum above all", lambda _, d: d["capacity"]["memory"].update(max="90Gi"), f"{D}.capacity[memory].max", "above all of it"),
    Fault("a step of nothing", lambda _, d: d["capacity"]["memory"].update(step=0), f"{D}.capacity[memory].step", "is 0"),
    Fault("a range and values", lambda _, d: d["capacity"]["memory"].update(validValues=["1Gi"]), f"{D}.capacity[memory].validValues", "excludes"),
    Fault("values that do not ascend", lambda _, d: d["capacity"]["cores"].update(validValues=[0, 50, 25]), f"{D}.capacity[cores].validValues[2]", "sort them"),
    Fault("a default that is no valid value", lambda _, d: d["capacity"]["cores"].update(default=1), f"{D}.capacity[cores].default", "none of validValues"),
    Fault("a valid value above all", lambda _, d: d["capacity"]["cores"].update(validValues=[0, 101]), f"{D}.capacity[cores].validValues", "above all of it"),
    Fault("too many valid values", lambda _, d: d["capacity"]["cores"].update(validValues=list(range(11))), f"{D}.capacity[cores].validValues", "above 10"),
    Fault("an attribute with two slashes", lambda _, d: d["attributes"].update({"a/b/c": 1}), f"{D}.attributes[a/b/c]", "names no attribute"),
    Fault("a text that is too long", lambda _, d: d["attributes"].update(uuid="x" * 65), f"{D}.attributes[uuid]", "65 bytes, above 64"),
    Fault("a version with a v", lambda _, d: d["attributes"].update(driverVersion={"version": "v1.2.3"}), f"{D}.attributes[driverVersion]", "semantic version"),
    Fault("a number beyond 64 bits", lambda _, d: d["attributes"].update(index=2**63), f"{D}.attributes[index]", "64 bits"),
    Fault("a list as an attribute", lambda _, d: d["attributes"].update(uuid=["a"]), f"{D}.attributes[...]", "Expected"),
    Fault("an unknown NUMA node", lambda _, d: d["attributes"].update({"resource.kubernetes.io/numaNode": -1}), f"{D}.attributes[resource.kubernetes.io/numaNode]", "leave it out"),
    Fault("an unknown PCIe root", lambda _, d: d["attributes"].update({"resource.kubernetes.io/pcieRoot": ""}), f"{D}.attributes[resource.kubernetes.io/pcieRoot]", "leave it out"),
    Fault("too many attributes", lambda _, d: d["attributes"].update({f"a{n}": n for n in range(30)}), D, "attributes and capacities, above 32"),
    Fault("a counter set that is not there", lambda _, d: d["consumes"][0].update(counterSet="gpu-9"), f"{D}.consumes[0].counterSet", "its counter sets: gpu-0"),
    Fault("a counter that is not there", lambda _, d: d["consumes"][0].update(counters={"slices": 1}), f"{D}.consumes[0].counters[slices]", "no such counter"),
    Fault("more than a counter has", lambda _, d: d["consumes"][0].update(counters={"memory": "81Gi"}), f"{D}.consumes[0].counters[memory]", "no claim could ever get"),
    Fault("a counter set twice", lambda _, d: d.update(consumes=d["consumes"] * 2), f"{D}.consumes[1].counterSet", "there already"),
    Fault("too many counter sets", lambda _, d: d.update(consumes=d["consumes"] * 3), f"{D}.consumes", "3 counter sets, above 2"),
    Fault("too many groups", lambda _, d: d["consumes"][0].update(compatibilityGroups=["a", "b", "c"]), f"{D}.consumes[0].compatibilityGroups", "above 2"),
    Fault("no counter", lambda _, d: d["consumes"][0].update(counters={}), f"{D}.consumes[0].counters", "is empty"),
    Fault("a taint with an unknown effect", lambda _, d: d["taints"][0].update(effect="Never"), f"{D}.taints[0].effect", "Invalid enum value"),
    Fault("a taint of our domain", lambda _, d: d["taints"][0].update(key="drawbridge.internal/x"), f"{D}.taints[0].key", "the driver's own"),
    Fault("a taint without a key", lambda _, d: d["taints"][0].update(key=""), f"{D}.taints[0].key", "no key of a taint"),
    Fault("too many taints", lambda _, d: d.update(taints=d["taints"] * 16), f"{D}.taints", "16 taints, above 14"),
    Fault("a device node that leaves /dev", lambda _, d: d.update(deviceNodes=["/dev/../etc/shadow"]), f"{D}.deviceNodes[0]", "no absolute path"),
    Fault("a device node by a relative path", lambda _, d: d.update(deviceNodes=["dev/null"]), f"{D}.deviceNodes[0]", "from / on"),
    Fault("unknown permissions", lambda _, d: d["deviceNodes"][1].update(permissions="rx"), f"{D}.deviceNodes[1].permissions", "r, w and m"),
    Fault("a mount by a relative path", lambda _, d: d.update(mounts=[{"hostPath": "lib"}]), f"{D}.mounts[0].hostPath", "no absolute path"),
    Fault("a variable with a dash", lambda _, d: d.update(environment={"A-B": "1"}), f"{D}.environment[A-B]", "no name of a variable"),
    Fault("a variable of ours", lambda _, d: d.update(environment={"DRAWBRIDGE_DEVICE": "1"}), f"{D}.environment[DRAWBRIDGE_DEVICE]", "own variables"),
    Fault("a CDI device without a name", lambda _, d: d.update(cdiDevices=["nvidia.com/gpu"]), f"{D}.cdiDevices[0]", "vendor/class=name"),
)  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_names_the_field_and_the_cure(fault: Fault) -> None:
    document = copy.deepcopy(inventory(SHARED))
    fault.change(document, document["pools"][0]["devices"][0])

    messages = {fault.path: f"{fault.message}; {fault.fix}" for fault in faults(document)}

    assert fault.path in messages
    assert fault.words in messages[fault.path]


@pytest.mark.parametrize("document", [None, [], "gpu-0", {"kind": "DeviceInventory"}], ids=repr)
def test_something_else_is_no_inventory(document: object) -> None:
    (fault,) = faults(document)

    assert "kind: DeviceInventory" in fault.fix


def test_all_faults_are_found_at_once() -> None:
    document = inventory({"name": "A"}, {"name": "b", "capacity": {"memory": "1GB"}})

    assert [f"{D}.name", "pools[0].devices[1].capacity[memory]"] == [
        fault.path for fault in faults(document)
    ]


def test_names_are_unique_in_all_pools_of_a_node() -> None:
    document = inventory(WHOLE)
    document["pools"].append({"name": "more", "devices": [WHOLE]})

    (fault,) = faults(document)

    assert fault.path == "pools[1].devices[0].name"
    assert "pools[0].devices[0]" in fault.message


def test_two_pools_do_not_have_one_name() -> None:
    document = inventory(WHOLE)
    document["pools"].append({"devices": []})

    (fault,) = faults(document)

    assert fault.path == "pools[1].name"


def test_more_devices_than_a_node_has() -> None:
    document = inventory(*({"name": f"gpu-{number}"} for number in range(10_000)))

    (fault,) = faults(document)

    assert fault.path == "pools"
    assert f"10000 devices in all, above {limits.DEVICES}" in fault.message
