"""`drawbridge quota convert`: lines for the claims of translated pods, beside the old ones."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge

SUFFIX = ".deviceclass.resource.k8s.io/devices"
HAMI = f"hami-core-gpu.project-hami.io{SUFFIX}"
NVIDIA = f"gpu.nvidia.com{SUFFIX}"
MIG = f"mig.nvidia.com{SUFFIX}"


def quota(hard: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": "team", "uid": "1", "resourceVersion": "7"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard},
    }


def convert(
    tmp_path: Path, *objects: Mapping[str, Any], output: str = "json", flags: Sequence[Any] = ()
) -> Result:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    return drawbridge("quota", "convert", "--snapshot", file, "-o", output, *flags)


@pytest.mark.parametrize(
    ("hard", "added"),
    [
        ({"requests.nvidia.com/gpu": "64"}, {NVIDIA: "64", HAMI: "64"}),
        ({"limits.nvidia.com/gpu": "64"}, {NVIDIA: "64", HAMI: "64"}),
        (
            {"requests.nvidia.com/mig-1g.5gb": "7", "requests.nvidia.com/mig-2g.10gb": "3"},
            {MIG: "10"},
        ),
        ({"requests.amd.com/gpu": "8"}, {f"gpu.amd.com{SUFFIX}": "8"}),
        ({"requests.nvidia.com/gpu": "64", NVIDIA: "5"}, {HAMI: "64"}),
    ],
)
def test_numbers_of_devices_become_devices_of_classes(
    hard: Mapping[str, str], added: Mapping[str, str], tmp_path: Path
) -> None:
    result = convert(tmp_path, quota({**hard, "pods": "10"}))

    (converted,) = json.loads(result.stdout)["quotas"]
    assert converted["object"] == "ResourceQuota/team/gpus"
    assert converted["added"] == added
    assert converted["notConvertible"] == {}
    assert converted["document"]["spec"]["hard"] == {**added, **hard, "pods": "10"}
    assert result.exit_code == 0


def test_quotas_are_converted_before_their_namespace_is_opted_in(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {mode: OptIn}\n")

    result = convert(
        tmp_path, quota({"requests.nvidia.com/gpu": "64"}), flags=("--settings", settings)
    )

    (converted,) = json.loads(result.stdout)["quotas"]
    assert converted["added"] == {NVIDIA: "64", HAMI: "64"}
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("subject", "line", "reason"),
    [
        (quota({"requests.nvidia.com/gpumem": "480000"}), "requests.nvidia.com/gpumem", "shares"),
        (
            quota({"requests.nvidia.com/gpu": "4"}, scopes=["NotTerminating"]),
            "requests.nvidia.com/gpu",
            "scopes counts no claims",
        ),
    ],
    ids=["share", "scope"],
)
def test_what_no_quota_can_express_is_named(
    subject: Mapping[str, Any], line: str, reason: str, tmp_path: Path
) -> None:
    result = convert(tmp_path, subject, output="yaml")

    assert (result.exit_code, result.stdout) == (1, "")
    assert f"ResourceQuota/team/gpus: {line} stays as it is" in result.stderr
    assert reason in result.stderr


def test_the_yaml_can_be_applied_again(tmp_path: Path) -> None:
    result = convert(tmp_path, quota({"requests.nvidia.com/gpu": "64"}), output="yaml")

    (document,) = yaml.safe_load_all(result.stdout)
    assert document["metadata"] == {"name": "gpus", "namespace": "team"}
    assert "status" not in document
    again = convert(tmp_path, document, output="yaml")
    assert again.stdout == ""
    assert "nothing to add" in again.stderr


@pytest.mark.parametrize(
    "document",
    [
        quota({"pods": "10"}),
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "a"}, "spec": 7},
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "a"}},
        quota({"requests.nvidia.com/gpu": "many", "requests.nvidia.com/gpumem": {"a": 1}}),
    ],
)
def test_other_quotas_are_passed_over(document: Mapping[str, Any], tmp_path: Path) -> None:
    result = convert(tmp_path, document, output="yaml")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "no ResourceQuota names a device key" in result.stderr


def test_quotas_that_a_snapshot_could_not_read_are_named(tmp_path: Path) -> None:
    snapshot = {
        "apiVersion": "cli.drawbridge.internal/v1",
        "kind": "Snapshot",
        "metadata": {"name": "cluster"},
        "unreadable": ["resourcequotas", "\x1b[31m"],
    }

    result = convert(tmp_path, snapshot)

    assert (
        "note: resourcequotas cannot be read, so the answer is as if there were none"
        in result.stderr
    )
    assert "\x1b" not in result.stderr
