"""The same on a real GPU, if there is one: `pytest -m gpu`.

With DRAWBRIDGE_RECORD=1, what the library answered is written to data/nvml.json beside this file, which
test_nvml_gpus.py replays from then on.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from driver.discovery.nvml_gpus import NvmlGpus
from driver.model.inventory import Inventory, NodeDevice
from driver.plan.cdi import cdi_spec
from driver.plan.checkpoint import Checkpoint
from driver.plan.prepare import NodeState, Preparation, prepare_claim
from testing.allocation.builders import result
from testing.driver.builders import BOOT, PUBLICATION, allocated_claim
from testing.driver.recorded_nvml import RecordingNvml

pytestmark = pytest.mark.gpu
RECORD = Path(__file__).parent / "data" / "nvml.json"


@pytest.fixture
def nvml() -> Iterator[RecordingNvml]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        pytest.skip(f"no GPU of NVIDIA on this machine: {error}")
    yield RecordingNvml(pynvml)
    pynvml.nvmlShutdown()


@pytest.fixture
def source(nvml: RecordingNvml) -> NvmlGpus:
    return NvmlGpus(
        nvml,
        sysfs=Path("/sys"),
        dev=Path("/dev"),
        proc=Path("/proc"),
        vendor_devices=frozenset,
        is_shared=False,
        period_s=60,
    )


def devices(inventory: Inventory) -> list[NodeDevice]:
    objects = list(inventory.devices())
    assert objects, "NVML answers, but there is no device"
    return objects


def test_the_gpus_of_this_machine(nvml: RecordingNvml, source: NvmlGpus) -> None:
    inventory = source.discover()

    assert "" == source.problem()
    for device in devices(inventory):
        assert device.name.startswith("gpu-")
        assert device.injection.device_nodes, f"{device.name} has no device node"
    assert {fault.kind for fault in source.read().values()} <= {"unmonitored"}
    if os.environ.get("DRAWBRIDGE_RECORD"):
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps(nvml.calls, indent=1) + "\n")


def test_one_of_them_is_prepared(source: NvmlGpus) -> None:
    inventory = source.discover()
    device = devices(inventory)[0]
    node = NodeState(publication=PUBLICATION, inventory=inventory)
    claim = allocated_claim(result(device.name))

    preparation = prepare_claim(claim, claim.metadata.uid, node, Checkpoint(boot_id=BOOT))

    assert isinstance(preparation, Preparation)
    (entry,) = cdi_spec(node.driver, preparation, BOOT)["devices"]
    assert any(
        variable.startswith("DRAWBRIDGE_DEVICE_GPU_") for variable in entry["containerEdits"]["env"]
    )


def test_their_health_can_be_read(source: NvmlGpus) -> None:
    source.discover()

    assert {fault.kind for fault in source.read().values()} <= {"unmonitored"}
