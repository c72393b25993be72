"""Profiles that come with the package, and a cluster's own files over them."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from kube.errors import ConfigError
from process.profiles.profile_files import load_profiles
from translation.model.intents import DeviceKind

GPUS = {
    "gpu.drawbridge.internal",
    "gpu.example.com",
    "gpu.nvidia.com",
    "hami-core-gpu.project-hami.io",
}
NICS = {"dra.net", "sriovnetwork.k8snetworkplumbingwg.io"}
OTHER_ACCELERATORS = {
    "ascend.project-hami.io",
    "dra.hygon.com",
    "gaudi.intel.com",
    "gpu.amd.com",
    "gpu.intel.com",
    "neuron.aws.com",
    "npu.rebellions.ai",
    "qat.intel.com",
    "tpu.google.com",
}
NETWORKS = {"cni.dra.networking.x-k8s.io"}
SHIPPED = GPUS | NICS | NETWORKS | OTHER_ACCELERATORS
OTHER = "driver: gpu.other.example\ndevices: {gpu: {class: other}}\n"
REPLACED = "driver: gpu.example.com\ndevices: {gpu: {class: ours}}\n"


def written(directory: Path, texts: Mapping[str, str]) -> Path:
    for name, text in texts.items():
        (directory / name).write_text(text)
    return directory


def test_shipped_profiles_are_there_without_a_directory() -> None:
    assert set(load_profiles()) == SHIPPED


def test_a_profile_stands_under_the_name_of_its_driver() -> None:
    assert all(name == profile.driver for name, profile in load_profiles().items())


def test_a_file_adds_a_driver(tmp_path: Path) -> None:
    profiles = load_profiles(written(tmp_path, {"other.yaml": OTHER, "README.md": "no profile"}))

    assert SHIPPED | {"gpu.other.example"} == set(profiles)


def test_a_file_replaces_the_shipped_profile_as_a_whole(tmp_path: Path) -> None:
    profiles = load_profiles(written(tmp_path, {"example.json": REPLACED}))

    assert set(profiles) == SHIPPED
    assert profiles["gpu.example.com"].devices[DeviceKind.GPU].class_name == "ours"
    assert profiles["gpu.example.com"].devices[DeviceKind.GPU].memory is None


def test_a_mounted_config_map_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "other.yaml").write_text(OTHER)
    (tmp_path / "other.yaml").symlink_to(Path("..data") / "other.yaml")

    assert "gpu.other.example" in load_profiles(tmp_path)


class Refused(NamedTuple):
    name: str
    texts: Mapping[str, str]
    message: str


REFUSED = (
    Refused("text that is no YAML", {"a.yaml": "a: [b"}, "a.yaml: not a driver profile"),
    Refused("YAML that is no profile", {"a.yaml": "driver: 3"}, "driver"),
    Refused("a misspelled field", {"a.yaml": OTHER + "deviecs: {}\n"}, "deviecs"),
    Refused("an empty file", {"a.yaml": ""}, "a.yaml: not a driver profile"),
    Refused("text that nests", {"a.yaml": "[" * 100_000}, "nests too deeply"),
    Refused(
        "aliases that double and double",
        {
            "a.yaml": "a0: &a0 {k: 1}\n"
            + "".join(f"a{n}: &a{n} {{<<: [{f'*a{n - 1},' * 9}]}}\n" for n in range(1, 12))
        },
        "aliases expand to more",
    ),
    Refused(
        "merge keys of a large mapping",
        {
            "a.yaml": f"a: &a {{{''.join(f'k{n}: 1, ' for n in range(100))}}}\n"
            f"b: {{<<: [{'*a,' * 150}]}}"
        },
        "merge keys copy more",
    ),
    Refused("two files about one driver", {"a.yml": OTHER, "b.yml": OTHER}, "a.yml already"),
    Refused("a file without end", {"a.yaml": OTHER + "#" * 2**20}, "larger than 1 MiB"),
)


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
def test_nonsense_is_a_configuration_error(row: Refused, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=row.message):
        load_profiles(written(tmp_path, row.texts))


def test_a_missing_directory_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_profiles(tmp_path / "none")
