"""Devices of several sources as those of one node."""

from collections.abc import Callable

from driver.model.inventory import Inventory, NodeDevice, NodePool, merge_inventories
from driver.publish.combined_source import CombinedSource
from testing.allocation.builders import counter_set, device


def inventory(*names: str, pool: str = "", uuid: str = "") -> Inventory:
    attributes = {"uuid": uuid} if uuid else {}
    devices = [NodeDevice(device=device(name, attributes=attributes)) for name in names]
    return Inventory(pools=(NodePool(name=pool, devices=tuple(devices)),))


class ToldSource:
    """A source of devices that the test tells."""

    def __init__(self, inventory: Inventory, problem: str = "") -> None:
        self._inventory = inventory
        self._problem = problem
        self.tell: Callable[[Inventory], None] = lambda _: None

    def discover(self) -> Inventory:
        return self._inventory

    async def run(self, publish: Callable[[Inventory], None]) -> None:
        self.tell = publish

    def problem(self) -> str:
        return self._problem


def names(merged: Inventory) -> dict[str, list[str]]:
    return {pool.name: [device_.name for device_ in pool.devices] for pool in merged.pools}


def test_pools_of_one_name_are_one_pool() -> None:
    merged_inventory = merge_inventories(
        [inventory("gpu-0"), inventory("eth0", pool="nics"), inventory("eth1", pool="nics")]
    )

    assert {"": ["gpu-0"], "nics": ["eth0", "eth1"]} == names(merged_inventory)


def test_what_is_declared_hides_what_is_discovered() -> None:
    merged_inventory = merge_inventories(
        [inventory("eth0", uuid="declared"), inventory("eth0", "eth1", pool="nics")]
    )

    assert {"": ["eth0"], "nics": ["eth1"]} == names(merged_inventory)


def test_counters_of_one_pool_are_joined() -> None:
    pools = [
        Inventory(pools=(NodePool(counter_sets=(counter_set(name, memory="80Gi"),)),))
        for name in ("a", "b", "a")
    ]

    (pool,) = merge_inventories(pools).pools

    assert ["a", "b"] == [counter_set_.name for counter_set_ in pool.counter_sets]


async def test_a_change_of_one_source_leaves_the_devices_of_the_others() -> None:
    source_changes, nics = (
        ToldSource(inventory("gpu-0")),
        ToldSource(inventory("eth0", pool="nics")),
    )
    source = CombinedSource([source_changes, nics])
    inventories = [source.discover()]
    await source.run(inventories.append)

    nics.tell(inventory("eth0", pool="nics"))
    assert 1 == len(inventories), "nothing has changed"
    nics.tell(inventory("eth0", "eth1", pool="nics"))
    source_changes.tell(inventory())

    assert {"": ["gpu-0"], "nics": ["eth0", "eth1"]} == names(inventories[1])
    assert {"": [], "nics": ["eth0", "eth1"]} == names(inventories[2])


def test_problems_of_all_sources_are_reported() -> None:
    source = CombinedSource([ToldSource(inventory(), "a"), ToldSource(inventory(), "b")])

    assert "a; b" == source.problem()
