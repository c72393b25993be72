"""The news of the usual pods for the plugin, for the score of pods without claims."""

from pathlib import Path

import pytest

from sidecar.model.settings import SidecarSettings, UsualPod
from testing.allocation.builders import DRIVER
from testing.documents import Document
from testing.sidecar.scenes import Scene, changes, left, scene

USUAL = (UsualPod(device_class="gpu", cpu="8"), UsualPod(device_class="gpu", cpu="2", count=2))


def settings(strategy: str = "FragmentationAware") -> SidecarSettings:
    return SidecarSettings(drivers=(DRIVER,), usual_pods=USUAL, default_strategy=strategy)


async def told(cluster: Scene, known: int | None) -> Document | None:
    answer = await cluster.ask(usualPods=known)
    changed: Document | None = answer["usualPods"]
    return changed


async def test_each_node_has_the_slots_of_the_kinds(tmp_path: Path) -> None:
    async with scene(tmp_path, {"node-a": 3, "node-b": 3, "node-c": 1}, settings()) as cluster:
        await cluster.ask(headroom=changes(1, left("node-a", 64)))  # The kinds are known after it.

        whole = await told(cluster, 0)

        assert whole is not None
        assert whole["kinds"] == [[8000, 0], [2000, 0]]
        assert whole["nodes"] == {"node-a": 0, "node-b": 0, "node-c": 1}
        assert whole["classes"] == [
            [[0, 3, 500_000_000], [1, 1, 1_000_000_000]],
            [[0, 1, 500_000_000]],
        ]
        assert (whole["since"], whole["removed"], whole["more"]) == (0, [], False)


async def test_afterwards_only_what_changed_is_reported(tmp_path: Path) -> None:
    async with scene(tmp_path, {"node-a": 1, "node-b": 2}, settings()) as cluster:
        await cluster.ask(headroom=changes(1, left("node-a", 64)))
        whole = await told(cluster, 0)
        assert whole is not None
        unchanged = await told(cluster, whole["number"])
        assert unchanged is not None
        assert (unchanged["nodes"], unchanged["number"]) == ({}, whole["number"])

        cluster.scheduler.reserve(cluster.pod, "node-a")  # It takes the only device.
        changed = await told(cluster, whole["number"])

        assert changed is not None
        assert (changed["nodes"], changed["removed"]) == ({}, ["node-a"])
        assert changed["since"] == whole["number"] < changed["number"]
        # Repeated until the plugin has it.
        again = await told(cluster, whole["number"])
        assert again is not None
        assert again["removed"] == ["node-a"]
        after = await told(cluster, again["number"])
        assert after is not None
        assert after["removed"] == []


async def test_a_plugin_that_has_something_else_is_told_everything(tmp_path: Path) -> None:
    async with scene(tmp_path, {"node-a": 1}, settings()) as cluster:
        await cluster.ask(headroom=changes(1, left("node-a", 64)))
        await told(cluster, 0)
        whole = await told(cluster, 99)
        assert whole is not None
        assert (whole["since"], whole["nodes"]) == (0, {"node-a": 0})


@pytest.mark.parametrize("strategy", ["CompactFirst", "LowLoadFirst", "BestFit"])
async def test_all_strategies_that_choose_nodes_tell_them(strategy: str, tmp_path: Path) -> None:
    async with scene(tmp_path, {"node-a": 1}, settings(strategy)) as cluster:
        await cluster.ask(headroom=changes(1, left("node-a", 64)))
        whole = await told(cluster, 0)
        assert whole is not None
        assert whole["nodes"] == {"node-a": 0}


async def test_nothing_is_reported_with_first_fit_or_to_an_older_plugin(tmp_path: Path) -> None:
    async with scene(tmp_path, {"node-a": 1}, settings("FirstFit")) as cluster:
        await cluster.ask(headroom=changes(1, left("node-a", 64)))
        assert await told(cluster, 0) is None
    async with scene(tmp_path, {"node-a": 1}, settings()) as cluster:
        await cluster.ask()
        assert await told(cluster, None) is None


async def test_a_greeting_tells_what_became_free(tmp_path: Path) -> None:
    async with scene(tmp_path, {"node-a": 1}, settings()) as cluster:
        await cluster.ask(headroom=changes(1, left("node-a", 64)))
        cluster.scheduler.reserve(cluster.pod, "node-a")
        whole = await told(cluster, 0)
        assert whole is not None
        assert whole["nodes"] == {}
        await cluster.scheduler.unreserve(cluster.pod)

        _, answer = await cluster.scheduler.call("hello", usualPods=whole["number"])

        assert answer["usualPods"]["nodes"] == {"node-a": 0}


async def test_many_nodes_are_told_bit_by_bit(tmp_path: Path) -> None:
    nodes = {f"node-{number:03}": 1 for number in range(300)}
    async with scene(tmp_path, nodes, settings()) as cluster:
        first = await told(cluster, 0)
        assert first is not None
        second = await told(cluster, first["number"])
        assert second is not None
        known = first["nodes"].keys() | second["nodes"].keys()
        assert (first["more"], second["more"], known) == (True, False, nodes.keys())
