"""Fixes of `check` for amounts that are too large in a wrong unit."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import EXAMPLES, drawbridge

CLUSTERS = {
    "hami": EXAMPLES / "gpu-shared" / "cluster.yaml",
    "ascend": EXAMPLES / "accelerators" / "cluster.yaml",
}


def pod(**limits: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "box", "resources": {"limits": limits}}
    metadata = {"name": "pod", "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container]},
    }


def fixes(tmp_path: Path, cluster: str, *documents: dict[str, Any]) -> dict[str, str]:
    """Code to fix of the errors that `check` prints, of one code the first."""
    file = tmp_path / "pods.yaml"
    file.write_text(dump_yaml(documents))
    result = drawbridge("check", "-f", file, "--snapshot", CLUSTERS[cluster], "-o", "json")
    findings = json.loads(result.stdout)["findings"]
    errors = [entry for entry in findings if entry["severity"] == "error"]
    return {entry["code"]: entry["fix"] for entry in reversed(errors)}


class TooLarge(NamedTuple):
    """An amount in the wrong unit, the same one in the right unit, and the amount that fits."""

    cluster: str
    count_key: str
    key: str
    written: str
    same: int
    right: int


@pytest.mark.parametrize(
    "case",
    [
        TooLarge("hami", "nvidia.com/gpu", "nvidia.com/gpumem", "200Gi", 204800, 81920),
        TooLarge(
            "ascend",
            "huawei.com/Ascend910B",
            "huawei.com/Ascend910B-memory",
            "40Gi",
            40960,
            21527,
        ),
    ],
    ids=lambda case: case.cluster,
)
def test_a_wrong_unit_of_too_large_an_amount(tmp_path: Path, case: TooLarge) -> None:
    (fix,) = fixes(
        tmp_path, case.cluster, pod(**{case.count_key: 1, case.key: case.written})
    ).values()
    assert fix.startswith(f"write {case.right}: {case.same} would be the same amount")
    assert "exceedsLargestDevice" in fix

    assert fixes(tmp_path, case.cluster, pod(**{case.count_key: 1, case.key: case.right})) == {}


def test_a_wrong_unit_of_an_amount_that_fits(tmp_path: Path) -> None:
    document = pod(**{"nvidia.com/gpu": 1, "nvidia.com/gpumem": "8Gi"})

    assert fixes(tmp_path, "hami", document) == {"wrongUnit": "write 8192 for 8Gi"}


def test_a_count_above_that_of_a_claim_is_not_called_the_same_amount(tmp_path: Path) -> None:
    document = pod(**{"nvidia.com/gpu": 40, "nvidia.com/gpumem": 100})

    fix = fixes(tmp_path, "hami", document)["tooManyDevices"]

    assert "write 2: 32 would be rejected as exceedsLargestNode" in fix


def test_a_fix_that_cannot_be_proved_stays(tmp_path: Path) -> None:
    """No number of cards is enough for the other error."""
    document = pod(
        **{"nvidia.com/gpu": 1000, "nvidia.com/gpumem": "200Gi", "nvidia.com/gpucores": 101}
    )

    answers = fixes(tmp_path, "hami", document)

    assert answers["wrongUnit"].startswith("write ")
