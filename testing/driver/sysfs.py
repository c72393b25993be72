"""Trees as sysfs has them, of machines that a test describes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

ETHERNET: Final = "0x020000"
GPU: Final = "0x030200"
UP: Final = "0x1003"


class SysfsTree:
    """A tree in a folder, and /dev beside it.

    Attributes:
        sysfs: Its root.
        dev: The folder /dev of the same machine.
    """

    def __init__(self, folder: Path) -> None:
        self.sysfs = folder / "sys"
        self.dev = folder / "dev"
        self._bus = self.sysfs / "bus" / "pci" / "devices"
        self._bus.mkdir(parents=True)
        self.dev.mkdir()

    def add(self, path: str, pci_class: str = ETHERNET, **files: str | int) -> Path:
        """Add a device by its path below /sys/devices; ports on the way come with it.

        Args:
            path: Such as `pci0000:16/0000:16:01.0/0000:17:00.0`.
            pci_class: The content of its file `class`.
            files: Further files: name to content.
        """
        folder = self.sysfs / "devices" / path
        folder.mkdir(parents=True)
        for name, content in {"class": pci_class, "numa_node": -1, **files}.items():
            (folder / name).write_text(f"{content}\n")
        link = self._bus / folder.name
        link.symlink_to(Path("../../..") / "devices" / path)
        return folder

    def add_nic(
        self,
        path: str,
        interface: str = "",
        *,
        rdma: str = "",
        state: str = "up",
        flags: str = UP,
        **files: str | int,
    ) -> Path:
        """Add a NIC.

        Args:
            interface: The network interface; empty for none.
            rdma: RDMA device such as `mlx5_0`; its verbs are `uverbs` and the number.
            state: `up` or `down`.
            flags: The flags of the interface, as the kernel prints them.
        """
        folder = self.add(path, ETHERNET, **files)
        if interface:
            values = {"address": "02:00:00:00:00:01", "operstate": state, "flags": flags}
            self._write(folder / "net" / interface, values)
        if rdma:
            verbs = f"uverbs{rdma.rpartition('_')[2]}"
            (folder / "infiniband_verbs" / verbs).mkdir(parents=True)
            values = {"state": "4: ACTIVE" if state == "up" else "1: DOWN"}
            self._write(folder / "infiniband" / rdma / "ports" / "1", values)
            (self.dev / "infiniband").mkdir(exist_ok=True)
            for name in (verbs, "rdma_cm"):
                (self.dev / "infiniband" / name).touch()
        return folder

    def add_virtual_function(self, parent: Path, address: str, interface: str = "") -> Path:
        """Add a virtual function of a device, beside it."""
        devices = self.sysfs / "devices"
        path = (parent.parent / address).relative_to(devices).as_posix()
        folder = self.add_nic(path, interface, numa_node=(parent / "numa_node").read_text().strip())
        (folder / "physfn").symlink_to(Path("..") / parent.name)
        count = parent / "sriov_numvfs"
        count.write_text(str(int(count.read_text() or 0) + 1 if count.exists() else 1))
        return folder

    @staticmethod
    def _write(folder: Path, files: Mapping[str, str]) -> None:
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_text(f"{content}\n")
