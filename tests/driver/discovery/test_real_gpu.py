"""The same on a real GPU, where there is one: `pytest -m gpu`.

With DRAWBRIDGE_RECORD=1, what the library said is written to data/nvml.json beside this file.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from driver.discovery.nvml_gpus import NvmlGpus
from driver.plan.cdi import cdi_spec
from driver.plan.checkpoint import Checkpoint
from driver.plan.gpus import VENDOR_KIND
from driver.plan.inventory import Inventory, NodeDevice
from driver.plan.prepare import NodeState, Preparation, prepare_claim
from driver.plan.slices import plan_pools, plan_writes, slice_document
from testing.allocation.builders import result
from testing.driver.builders import BOOT, PUBLICATION, allocated_claim

pytestmark = pytest.mark.gpu
RECORD = Path(__file__).parent / "data" / "nvml.json"


@pytest.fixture
def source() -> Iterator[NvmlGpus]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        pytest.skip(f"no GPU of NVIDIA on this machine: {error}")
    yield NvmlGpus(
        pynvml,
        sysfs=Path("/sys"),
        dev=Path("/dev"),
        proc=Path("/proc"),
        vendor_devices=frozenset,
        is_shared=False,
        period_s=60,
    )
    pynvml.nvmlShutdown()


def devices(inventory: Inventory) -> list[NodeDevice]:
    objects = list(inventory.devices())
    assert objects, "NVML answers, but there is no device"
    return objects


def test_the_gpus_of_this_machine(source: NvmlGpus) -> None:
    inventory = source.discover()

    assert "" == source.problem()
    for device in devices(inventory):
        assert device.name.startswith("gpu-")
        assert device.injection.device_nodes, f"{device.name} has no device node"
    slices = plan_writes(plan_pools(PUBLICATION, inventory), ()).to_apply
    if os.environ.get("DRAWBRIDGE_RECORD"):
        RECORD.parent.mkdir(exist_ok=True)
        document = [slice_document(slice_)["spec"] for slice_ in slices]
        RECORD.write_text(json.dumps({"vendor": VENDOR_KIND, "slices": document}, indent=1) + "\n")


def test_one_of_them_is_prepared(source: NvmlGpus) -> None:
    inventory = source.discover()
    device = devices(inventory)[0]
    node = NodeState(publication=PUBLICATION, inventory=inventory)
    claim = allocated_claim(result(device.name))

    preparation = prepare_claim(claim, claim.metadata.uid, node, Checkpoint(boot_id=BOOT))

    assert isinstance(preparation, Preparation)
    (entry,) = cdi_spec(node.driver, preparation, BOOT)["devices"]
    assert any(each.startswith("DRAWBRIDGE_DEVICE_GPU_") for each in entry["containerEdits"]["env"])


def test_their_health_can_be_asked(source: NvmlGpus) -> None:
    source.discover()

    assert {fault.kind for fault in source.read().values()} <= {"unmonitored"}
