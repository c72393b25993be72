"""The builders of inventories, without a cluster."""

from typing import Any

import pytest

from e2e import inventory


def devices(slices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [device for slice_ in slices for device in slice_["spec"]["devices"]]


def small_cluster() -> list[Any]:
    return [
        inventory.device_classes(),
        inventory.kwok_node("gpu-node"),
        inventory.nvidia_gpus("gpu-node", gpus=8, model=inventory.A100_80GB),
        inventory.nvidia_mig("mig-node", gpus=2, model=inventory.A100_40GB),
        inventory.hami_gpus("hami-node", gpus=4, model=inventory.A100_80GB),
    ]


def test_the_same_arguments_give_the_same_inventory() -> None:
    assert small_cluster() == small_cluster()


def test_identities_differ_between_nodes_and_devices() -> None:
    devices_by_node = [
        device["attributes"]["uuid"]["string"]
        for node in ("a", "b")
        for builder in (inventory.nvidia_gpus, inventory.nvidia_mig)
        for device in devices(builder(node, gpus=8))
    ]

    assert len(devices_by_node) == len(set(devices_by_node))


def test_a_pool_of_many_devices_says_how_many_slices_it_has() -> None:
    first, second = inventory.nvidia_gpus("node", gpus=130)

    assert (len(first["spec"]["devices"]), len(second["spec"]["devices"])) == (128, 2)
    assert first["spec"]["pool"] == second["spec"]["pool"]
    assert first["spec"]["pool"]["resourceSliceCount"] == 2


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        (inventory.A100_40GB, inventory.MIG_LAYOUT_40GB),
        (inventory.A100_80GB, inventory.MIG_LAYOUT_80GB),
        (inventory.A100_40GB, ("1g.5gb",) * 7),
        (inventory.A100_40GB, ("4g.20gb", "3g.20gb")),
    ],
    ids=lambda value: value.product_name if isinstance(value, inventory.Model) else str(value),
)
def test_mig_devices_of_one_gpu_share_no_memory_slice(
    model: inventory.Model, layout: tuple[str, ...]
) -> None:
    devices_ = devices(inventory.nvidia_mig("node", model=model, layout=layout))

    slice_names = [
        name for device in devices_ for name in device["capacity"] if "memorySlice" in name
    ]
    assert len(slice_names) == len(set(slice_names))
    assert layout == tuple(device["attributes"]["profile"]["string"] for device in devices_)
    assert {device["attributes"]["parentUUID"]["string"] for device in devices_} == {
        inventory.gpu_uuid("node", 0)
    }


@pytest.mark.parametrize("layout", [("7g.40gb", "1g.5gb"), ("1g.5gb",) * 8, ("4g.20gb",) * 2])
def test_a_layout_that_no_gpu_can_have_is_refused(layout: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="no place is left for"):
        inventory.nvidia_mig("node", layout=layout)
