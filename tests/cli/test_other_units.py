"""Amounts in another unit than that of their key, left to their author by `fix`."""

import json
from pathlib import Path
from typing import Any

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import EXAMPLES, drawbridge

CLUSTER = EXAMPLES / "gpu-shared" / "cluster.yaml"


def fixed_limits(tmp_path: Path, limits: dict[str, Any]) -> dict[str, Any]:
    file = tmp_path / "pod.yaml"
    container = {"name": "main", "image": "box", "resources": {"limits": limits}}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": "default"},
        "spec": {"containers": [container]},
    }
    file.write_text(dump_yaml([document]))
    result = drawbridge("fix", "-f", file, "--snapshot", CLUSTER, "-o", "json")
    (fixed,) = json.loads(result.stdout)["objects"]
    limits_after: dict[str, Any] = fixed["spec"]["containers"][0]["resources"]["limits"]
    return limits_after


@pytest.mark.parametrize(
    "limits",
    [
        {"tencent.com/vcuda-core": 50, "tencent.com/vcuda-memory": 12288},
        {"tke.cloud.tencent.com/qgpu-core": 50, "tke.cloud.tencent.com/qgpu-memory": 8192},
    ],
)
def test_another_unit_is_not_replaced_by_the_largest_amount(
    tmp_path: Path, limits: dict[str, Any]
) -> None:
    assert fixed_limits(tmp_path, limits) == limits
