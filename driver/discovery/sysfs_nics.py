"""Network devices from sysfs: every network controller on the PCI bus, with its RDMA device.

Source: Linux, Documentation/ABI/testing: sysfs-bus-pci, sysfs-class-net, sysfs-class-infiniband.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from driver.model.health import Fault
from driver.model.inventory import Inventory
from driver.model.pci import is_pci_address, locate
from driver.plan.nics import Nic, nic_faults, nic_pool
from kube.logs import get_logger

_NETWORK: Final = "0x02"
"""Beginning of the class of network controllers: Ethernet, InfiniBand and others."""
_UP: Final = 1
"""IFF_UP: the interface is administratively enabled."""
_CONNECTION_MANAGER: Final = "infiniband/rdma_cm"

log = get_logger()


class SysfsNics:
    """The network devices of this node, and their faults."""

    def __init__(self, sysfs: Path, dev: Path, *, period_s: float) -> None:
        """Initialize the source.

        Args:
            sysfs: /sys, or where that of the node is mounted.
            dev: /dev likewise; only what exists there is given to containers.
            period_s: Seconds between reads of the devices.
        """
        self._sysfs = sysfs
        self._dev = dev
        self._period_s = period_s
        self._nics: tuple[Nic, ...] = ()

    def discover(self) -> Inventory:
        """Return the devices that are there now."""
        self._nics = tuple(self._read_all())
        return Inventory(pools=(nic_pool(self._nics),))

    async def run(self, on_change: Callable[[Inventory], None]) -> None:
        """Look again and again; ends only by cancellation."""
        while True:
            await asyncio.sleep(self._period_s)
            on_change(await asyncio.to_thread(self.discover))

    def problem(self) -> str:
        """Return the problem of the source: a node without PCI has no such devices."""
        return ""

    def read(self) -> Mapping[str, Fault]:
        """Return the faults of the devices that are there now."""
        return nic_faults(self._read_all())

    def _read_all(self) -> Iterator[Nic]:
        folder = self._sysfs / "bus" / "pci" / "devices"
        if not folder.is_dir():
            return
        for path in sorted(folder.iterdir()):
            if is_pci_address(path.name) and _text(path / "class").startswith(_NETWORK):
                try:
                    yield self._nic(path)
                except OSError as error:  # It is just being taken out.
                    log.info("nic.not_read", address=path.name, error=str(error))

    def _nic(self, path: Path) -> Nic:
        devices = (self._sysfs / "devices").resolve()
        real = path.resolve()
        below = real.relative_to(devices) if real.is_relative_to(devices) else Path()
        interface = _first(path / "net")
        rdma = _first(path / "infiniband")
        function = path / "physfn"
        return Nic(
            location=locate(path.name, below.as_posix(), _text(path / "numa_node")),
            vendor=_text(path / "vendor"),
            model=_text(path / "device"),
            interface=interface,
            hardware_address=_text(path / "net" / interface / "address") if interface else "",
            rdma_device=rdma,
            device_nodes=tuple(self._device_nodes(path)) if rdma else (),
            physical_function=function.resolve().name if function.exists() else "",
            virtual_functions=_number(path / "sriov_numvfs"),
            is_down=_is_down(path, interface, rdma),
        )

    def _device_nodes(self, path: Path) -> Iterator[str]:
        verbs = _first(path / "infiniband_verbs")
        for name in (f"infiniband/{verbs}" if verbs else "", _CONNECTION_MANAGER):
            if name and (self._dev / name).exists():
                yield f"/dev/{name}"


def _is_down(path: Path, interface: str, rdma: str) -> bool:
    """Return True if an administratively enabled port has no link."""
    if interface and int(_text(path / "net" / interface / "flags") or "0", 16) & _UP:
        return _text(path / "net" / interface / "operstate") == "down"
    if rdma and not interface:
        ports = path / "infiniband" / rdma / "ports"
        states = [_text(port / "state") for port in ports.iterdir()] if ports.is_dir() else []
        return bool(states) and all(state.endswith("DOWN") for state in states)
    return False


def _first(folder: Path) -> str:
    """Return the first name in a folder; empty if there is none."""
    return min((path.name for path in folder.iterdir()), default="") if folder.is_dir() else ""


def _number(file: Path) -> int:
    text = _text(file)
    return int(text) if text.isdecimal() else 0


def _text(file: Path) -> str:
    """Return the text of a file without its line break; empty if it has none."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:  # Drivers refuse to answer while a device is down.
        return ""
