"""The CDI edits that containers get for their devices."""

from typing import Any

from driver.model.inventory import DeviceNode, Mount, NodeDevice
from driver.plan.cdi import cdi_names, cdi_spec, spec_file_name, uid_of_spec
from driver.plan.prepare import NodeState, Preparation, prepare_claim
from kube.api.resource import DeviceRequestAllocationResult
from testing.allocation.builders import DRIVER, device, result
from testing.driver.builders import (
    BOOT,
    allocated_claim,
    configured_configuration,
    injected_device,
    node_state,
    prepared_checkpoint,
    share,
    shared_gpu,
)

UID = "uid-of-default-claim-0"


def preparation(
    *results: DeviceRequestAllocationResult, node: NodeState, **fields: Any
) -> Preparation:
    claim = allocated_claim(*results, **fields)
    preparation = prepare_claim(claim, claim.metadata.uid, node, prepared_checkpoint())
    assert isinstance(preparation, Preparation), preparation
    return preparation


def edits(
    *results: DeviceRequestAllocationResult, device_: NodeDevice, **fields: Any
) -> dict[str, Any]:
    spec = cdi_spec(DRIVER, preparation(*results, node=node_state(device_), **fields), BOOT)
    container_edits: dict[str, Any] = spec["devices"][0]["containerEdits"]
    return container_edits


def test_a_spec_has_one_device_per_device_of_the_claim() -> None:
    node = node_state(device("gpu-0"), device("gpu-1"))
    preparation_ = preparation(result("gpu-0"), result("gpu-1", request="b"), node=node)

    spec = cdi_spec(DRIVER, preparation_, BOOT)

    assert "gpu.example.com/claim" == spec["kind"]
    assert [f"{UID}-0", f"{UID}-1"] == [device_["name"] for device_ in spec["devices"]]
    assert {
        "drawbridge.internal/claim": "default/claim-0",
        "drawbridge.internal/boot": BOOT,
    } == spec["annotations"]
    assert (f"gpu.example.com/claim={UID}-1",) == cdi_names(DRIVER, preparation_, 1)


def test_names_of_the_vendors_own_devices_come_after_ours() -> None:
    node = node_state(injected_device(device("gpu-0"), cdi_devices=("nvidia.com/gpu=0",)))

    names = cdi_names(DRIVER, preparation(result("gpu-0"), node=node), 0)

    assert (f"gpu.example.com/claim={UID}-0", "nvidia.com/gpu=0") == names


def test_a_share_gets_variables_with_what_it_may_use() -> None:
    share_ = share("gpu-0", "10Gi", 25)

    environment = edits(share_, device_=NodeDevice(device=shared_gpu()))["env"]

    assert [
        "DRAWBRIDGE_DEVICE_GPU_0=uuid-of-gpu-0",
        "DRAWBRIDGE_DEVICE_GPU_0_CORES=25",
        "DRAWBRIDGE_DEVICE_GPU_0_MEMORY=10737418240",
        f"DRAWBRIDGE_DEVICE_GPU_0_SHARE={share_.share_id}",
    ] == environment


def test_a_whole_device_gets_variables_with_all_of_it() -> None:
    capacity = {"memory": "80Gi", "example.com/tflops": "989500m"}

    environment = edits(
        result("gpu-0"), device_=NodeDevice(device=device("gpu-0", capacity=capacity))
    )["env"]

    assert [
        "DRAWBRIDGE_DEVICE_GPU_0=gpu-0",
        "DRAWBRIDGE_DEVICE_GPU_0_TFLOPS=989.5",
        "DRAWBRIDGE_DEVICE_GPU_0_MEMORY=85899345920",
    ] == environment


def test_configuration_and_admin_access_become_variables() -> None:
    environment = edits(
        result("gpu-0", admin_access=True),
        device_=NodeDevice(device=device("gpu-0")),
        config=[configured_configuration(sharing={"timeSlice": "Short"})],
    )["env"]

    assert "DRAWBRIDGE_DEVICE_GPU_0_TIME_SLICE=Short" in environment
    assert "DRAWBRIDGE_DEVICE_GPU_0_ADMIN=true" in environment


def test_what_was_declared_is_injected() -> None:
    with_devices = injected_device(
        device("gpu-0"),
        environment={"VENDOR": "1"},
        device_nodes=(DeviceNode(path="/dev/a"), DeviceNode(path="/dev/b", host_path="/dev/c")),
        mounts=(Mount(host_path="/lib/a", container_path="/lib/b"),),
    )

    edits_ = edits(result("gpu-0"), device_=with_devices)

    assert "VENDOR=1" in edits_["env"]
    assert [
        {"path": "/dev/a", "permissions": "rw"},
        {"path": "/dev/b", "hostPath": "/dev/c", "permissions": "rw"},
    ] == edits_["deviceNodes"]
    assert [
        {
            "hostPath": "/lib/a",
            "containerPath": "/lib/b",
            "options": ["ro", "nosuid", "nodev", "bind"],
        }
    ] == edits_["mounts"]


def test_specs_of_others_are_not_ours() -> None:
    assert "1-2" == uid_of_spec(DRIVER, spec_file_name(DRIVER, "1-2"))
    assert uid_of_spec(DRIVER, "nvidia.yaml") is None
    assert uid_of_spec(DRIVER, spec_file_name("other.example.com", "1-2")) is None
    assert uid_of_spec(DRIVER, f"{spec_file_name(DRIVER, '1-2')}.partial") is None
