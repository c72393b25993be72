"""All sources of devices of a node combined into one: declared devices and discovered ones."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from driver.discovery.source import DeviceSource
from driver.model.inventory import Inventory, merge_inventories


class CombinedSource:
    """Several sources; a device of an earlier one hides those of its name in later ones."""

    def __init__(self, sources: Sequence[DeviceSource]) -> None:
        self._sources = tuple(sources)
        self._inventories = [Inventory() for _ in sources]

    def discover(self) -> Inventory:
        """Return the devices of all sources.

        Raises:
            ConfigError: Those of one cannot be known.
        """
        self._inventories = [source.discover() for source in self._sources]
        return merge_inventories(self._inventories)

    async def run(self, on_change: Callable[[Inventory], None]) -> None:
        """Call a function whenever the devices of a source are others."""
        async with asyncio.TaskGroup() as group:
            for index, source in enumerate(self._sources):
                group.create_task(source.run(partial(self._handle_change, index, on_change)))

    def problem(self) -> str:
        """Return the problems of all of them."""
        return "; ".join(filter(None, (source.problem() for source in self._sources)))

    def _handle_change(
        self, index: int, on_change: Callable[[Inventory], None], inventory: Inventory
    ) -> None:
        if inventory != self._inventories[index]:
            self._inventories[index] = inventory
            on_change(merge_inventories(self._inventories))
