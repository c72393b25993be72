"""Quotas on keys that a cluster renamed, as `drawbridge quota convert` writes them."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import resource_quota

GPU: Final = "nvidia.com/gpu"
OWN_GPU: Final = "example.com/vgpu"
OWN_MEMORY: Final = "example.com/vmem"


def legacy_keys(folder: Path, line: str, **names: str) -> dict[str, Any]:
    """Return the entries of the limits that a line becomes, by driver.

    Args:
        names: The last part of a name of example.com to the key that it stands for.
    """
    meanings = {f"example.com/{name}": key for name, key in names.items()}
    settings, cluster = folder / "settings.yaml", folder / "cluster.yaml"
    settings.write_text(dump_yaml([{"translation": {"renamedKeys": meanings}}]))
    cluster.write_text(dump_yaml([resource_quota({f"requests.{line}": "8192"})]))
    flags = ("--snapshot", cluster, "--settings", settings, "-o", "json")
    result = drawbridge("quota", "convert", "--to", "device", *flags)
    ((document,),) = (entry["documents"] for entry in json.loads(result.stdout)["conversions"])
    return {
        limit["driver"]: entry
        for limit in document["spec"]["limits"]
        for entry in limit["legacyKeys"]
    }


@pytest.mark.parametrize("key", ["nvidia.com/gpumem", "nvidia.com/gpucores"])
def test_an_amount_is_multiplied_by_the_number_that_pods_have(tmp_path: Path, key: str) -> None:
    """A pod with eight devices was charged with one: the limit looked for a number that no pod has."""
    (entry,) = legacy_keys(tmp_path, key, vgpu=GPU).values()

    assert entry["multipliedBy"] == OWN_GPU


def test_a_line_on_a_renamed_amount_becomes_a_limit(tmp_path: Path) -> None:
    """It had no counterpart."""
    (entry,) = legacy_keys(tmp_path, OWN_MEMORY, vmem="nvidia.com/gpumem").values()

    assert entry == {"name": OWN_MEMORY, "perUnit": "1Mi", "multipliedBy": GPU}


def test_a_renamed_key_tells_whose_devices_a_number_means(tmp_path: Path) -> None:
    """A pod with it was charged to the limit of a driver without its devices."""
    entries = legacy_keys(tmp_path, GPU, vmem="nvidia.com/gpumem")

    assert OWN_MEMORY in entries["hami-core-gpu.project-hami.io"]["onlyWith"]
    assert OWN_MEMORY in entries["gpu.nvidia.com"]["without"]
