"""CPUs and huge pages from sysfs.

Source: Linux, Documentation/ABI/stable/sysfs-devices-node.
"""

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from driver.model.inventory import Inventory
from driver.plan.cpus import NumaNode, cpu_pool

_NODE: Final = re.compile(r"node(\d+)")
_PAGES: Final = re.compile(r"hugepages-(\d+)kB")


class SysfsCpus:
    """The NUMA nodes of this node."""

    def __init__(self, sysfs: Path, *, reserved_cpus: int, period_s: float) -> None:
        """Initialize the source.

        Args:
            sysfs: /sys, or where that of the node is mounted.
            reserved_cpus: CPUs of the first NUMA node that nobody gets.
            period_s: Seconds between reads of the devices.
        """
        self._folder = sysfs / "devices" / "system" / "node"
        self._reserved_cpus = reserved_cpus
        self._period_s = period_s

    def discover(self) -> Inventory:
        """Return the devices that are there now."""
        return Inventory(pools=(cpu_pool(self._nodes(), self._reserved_cpus),))

    async def run(self, on_change: Callable[[Inventory], None]) -> None:
        """Look again and again; ends only by cancellation."""
        while True:
            await asyncio.sleep(self._period_s)
            on_change(await asyncio.to_thread(self.discover))

    def problem(self) -> str:
        """Return the reason nothing can be known of the CPUs; empty when it can."""
        return "" if self._folder.is_dir() else f"{self._folder} is not there"

    def _nodes(self) -> Iterator[NumaNode]:
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            number = _NODE.fullmatch(path.name)
            if number is not None:
                yield NumaNode(
                    number=int(number[1]),
                    cpus=_text(path / "cpulist"),
                    huge_pages=dict(_huge_pages(path / "hugepages")),
                )


def _huge_pages(folder: Path) -> Iterator[tuple[int, int]]:
    for path in folder.iterdir() if folder.is_dir() else ():
        size_kib = _PAGES.fullmatch(path.name)
        pages = _text(path / "nr_hugepages")
        if size_kib is not None and pages.isdecimal():
            yield int(size_kib[1]), int(pages)


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
