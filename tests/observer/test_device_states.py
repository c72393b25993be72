"""The devices of a cluster by driver and state: each counted once, for any number of viewers."""

from allocator.cluster.cluster import Cluster
from allocator.search.attempt import AllocatorOptions
from kube.api.resource import ResourceClaim, ResourceSlice
from observer.device_states import DeviceState, count_devices
from testing.allocation.builders import (
    DRIVER,
    NODE,
    allocated_claim,
    device,
    devices,
    node,
    result,
    slice_of,
    taint,
)

TWO_NODES = (node(NODE), node("another"))


def counts(*slices: ResourceSlice, claims: tuple[ResourceClaim, ...] = ()) -> dict[str, int]:
    cluster = Cluster(
        slices=slices, nodes=TWO_NODES, claims=claims, classes={}, options=AllocatorOptions()
    )
    by_state = count_devices(cluster)
    assert {driver for driver, _ in by_state} <= {DRIVER}
    assert not by_state or {state for _, state in by_state} == set(DeviceState)
    return {state.value: number for (_, state), number in by_state.items() if number}


def test_devices_in_use_free_and_tainted_are_told_apart() -> None:
    worn = device("gpu-2", taints=(taint(),))
    shared = result("gpu-3", share="a1b2c3d4-0000-0000-0000-000000000000")
    published = slice_of(*devices("gpu-0", "gpu-1"), worn, device("gpu-3", shared=True))
    claims = (allocated_claim(result("gpu-0")), allocated_claim(shared, name="share"))

    assert counts(published, claims=claims) == {
        "allocated": 1,
        "free": 1,
        "shared": 1,
        "tainted": 1,
    }


def test_a_pool_that_every_node_sees_counts_once() -> None:
    assert counts(slice_of(*devices("nic-0", "nic-1"), all_nodes=True)) == {"free": 2}


def test_without_slices_there_is_no_driver() -> None:
    assert counts() == {}
