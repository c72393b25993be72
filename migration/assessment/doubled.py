"""The nodes with devices that a device plugin and a DRA driver both hand out. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from migration.assessment.blockers import Blocker
from migration.cluster.node_devices import NodeDevices, doubled_nodes

DOUBLED: Final = "a device plugin and a DRA driver both hand out the devices there, so two pods may get the same one"
DOUBLED_FIX: Final = (
    "cordon it now; set the label back that keeps one of both from it, such as nvidia.com/gpu.deploy.device-plugin=false "
    "(the GPU Operator may have set it to true: its issue 2288), or that of the driver; then take a new snapshot"
)


def check_doubled(devices: Iterable[NodeDevices]) -> Iterator[Blocker]:
    """Yield a blocker for nodes with devices of two systems."""
    if names := doubled_nodes(devices):
        yield Blocker(
            code="handedOutTwice",
            message=DOUBLED,
            fix=DOUBLED_FIX,
            objects=tuple(f"Node//{name}" for name in names),
        )
