"""The declared inventory on the disk, and the effect of a broken one."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from driver.discovery.declared_file import DeclaredFile
from driver.model.inventory import Inventory
from kube.errors import ConfigError
from testing.fake_api_server import running, until


def write(path: Path, *names: str, **fields: Any) -> None:
    document = {
        "apiVersion": "drawbridge.internal/v1alpha1",
        "kind": "DeviceInventory",
        "pools": [{"devices": [{"name": name} for name in names]}],
        **fields,
    }
    path.write_text(yaml.safe_dump(document))


def source(path: Path) -> DeclaredFile:
    return DeclaredFile(path, "node-1", period_s=0.005)


def names(inventory: Inventory) -> list[str]:
    return [device.name for device in inventory.devices()]


def test_a_file_is_for_every_node(tmp_path: Path) -> None:
    write(tmp_path / "any.json", "gpu-0")

    assert ["gpu-0"] == names(source(tmp_path / "any.json").discover())


def test_a_folder_has_a_file_per_node_and_one_for_the_others(tmp_path: Path) -> None:
    write(tmp_path / "default.yaml", "gpu-0")
    assert ["gpu-0"] == names(source(tmp_path).discover())

    write(tmp_path / "node-1.yaml", "gpu-1")
    assert ["gpu-1"] == names(source(tmp_path).discover())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "holds 0 documents"),
        ("a: [", "inventory.yaml:"),
        ("- 1", "inventory.yaml:1"),
        ("apiVersion: v1\nkind: ConfigMap\n", "is no inventory"),
        (
            "apiVersion: drawbridge.internal/v1alpha1\nkind: DeviceInventory\npols: []\n",
            "pols: is an unknown field; did you mean pools?",
        ),
        ("x: " + "y" * (5 * 2**20), "larger than 4 MiB"),
    ],
    ids=["empty", "no YAML", "a list", "another kind", "an unknown field", "too large"],
)
def test_the_first_file_must_be_good(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(content)

    with pytest.raises(ConfigError) as caught:
        source(file).discover()

    assert words in str(caught.value)


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"default\.yaml: No such file"):
        source(tmp_path).discover()


def test_of_many_faults_some_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    write(file, *(f"GPU-{number}" for number in range(30)))

    with pytest.raises(ConfigError) as caught:
        source(file).discover()

    lines = str(caught.value).splitlines()
    assert 21 == len(lines)
    assert lines[-1].endswith("and 10 more")


async def test_a_broken_file_keeps_the_last_good_one_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    write(file, "gpu-0")
    source_ = source(file)
    assert ["gpu-0"] == names(source_.discover())
    inventories: list[list[str]] = []

    async def run() -> None:
        await source_.run(lambda inventory: inventories.append(names(inventory)))

    async with running(run):
        write(file, "gpu-0", "gpu-1")
        await until(lambda: inventories == [["gpu-0", "gpu-1"]])

        file.write_text("broken: [")
        await until(lambda: "inventory.yaml" in source_.problem())
        file.unlink()
        await until(lambda: "No such file" in source_.problem())
        assert [["gpu-0", "gpu-1"]] == inventories

        write(file, "gpu-2")
        await until(lambda: inventories[-1] == ["gpu-2"])
        assert source_.problem() == ""
