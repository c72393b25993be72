"""Fixes of `check` for amounts that are too large in a wrong unit."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import EXAMPLES, drawbridge
from testing.documents import api_object

CLUSTERS = {
    "hami": EXAMPLES / "gpu-shared" / "cluster.yaml",
    "ascend": EXAMPLES / "accelerators" / "cluster.yaml",
}


def pod(**limits: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "box", "resources": {"limits": limits}}
    return api_object("Pod", "pod", "default", spec={"containers": [container]})


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


def test_an_amount_that_is_wrong_in_limits_and_requests_is_named_in_both(tmp_path: Path) -> None:
    same = "; write the same in requests"
    cases = {
        ("8Gi", "8Gi"): f"write 8192 for 8Gi{same}",
        ("200Gi", "200Gi"): "write 81920: 204800 would be the same amount, and be rejected as "
        f"exceedsLargestDevice{same}",
        (204800, 204800): f"write nvidia.com/gpumem: 81920 to fit node shared-0{same}",
        ("8Gi", None): "write 8192 in limits and requests: 8Gi would be rejected as wrongUnit",
        ("4Gi", "8Gi"): "write 8192 in limits and requests: 8Gi would be rejected as wrongUnit",
        ("1.5", "1.5"): f"write a whole number{same}",
        ("1.5", "2.5"): "write a whole number, 0 or more, in limits and requests",
        ("-1", None): "write a whole number, 0 or more, in limits and requests",
        ("8Gi", 8192): "write 8192 in both, or leave it out of requests",
    }

    answers = {}
    for request, limit in cases:
        document = pod(**{"nvidia.com/gpu": 1, "nvidia.com/gpumem": limit})
        resources = document["spec"]["containers"][0]["resources"]
        if limit is None:
            del resources["limits"]["nvidia.com/gpumem"]
        resources["requests"] = {"nvidia.com/gpumem": request}
        *_, answers[request, limit] = fixes(tmp_path, "hami", document).values()

    assert cases == answers


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


@pytest.mark.parametrize(
    ("written", "fix", "right"),
    [
        ("40GB", "write 40960", 40960),
        ("40gb", "write 40960", 40960),
        ("40 Gi", "write 40960", 40960),
        ("1e4Mi", "write 10000", 10000),
        ("8,000", "write 8000", 8000),
        ("100GB", "write 81920: 100Gi would be rejected as exceedsLargestDevice", 81920),
    ],
)
def test_what_is_no_quantity_has_its_amount_in_the_unit_of_the_key(
    tmp_path: Path, written: str, fix: str, right: int
) -> None:
    before, after = (
        pod(**{"nvidia.com/gpu": 1, "nvidia.com/gpumem": value}) for value in (written, right)
    )
    file = tmp_path / "pod.yaml"
    file.write_text(dump_yaml([before]))

    assert fixes(tmp_path, "hami", before) == {"invalidQuantity": fix}
    fixed = drawbridge("fix", "-f", file, "--snapshot", CLUSTERS["hami"], "-o", "json")

    assert json.loads(fixed.stdout)["objects"] == [after]
    assert fixes(tmp_path, "hami", after) == {}


def test_an_amount_of_a_key_that_nobody_knows_is_not_guessed(tmp_path: Path) -> None:
    document = pod(**{"example.com/memory": "8GB", "memory": "8GB", "nvidia.com/gpu": 1})
    file = tmp_path / "pod.yaml"
    file.write_text(dump_yaml([document]))

    result = drawbridge("fix", "-f", file, "--snapshot", CLUSTERS["hami"], "-o", "json")

    answer = json.loads(result.stdout)
    assert [(fix["before"], fix["after"]) for fix in answer["fixes"]] == [("8GB", "8Gi")]
    (left,) = answer["findings"]
    assert left["fix"] == "write a whole number without a unit: 8192 where the key counts MiB"


def test_an_amount_beside_one_that_is_no_number_keeps_the_unit_of_its_key(tmp_path: Path) -> None:
    """Nothing is translated while an amount is no number, so the unit of the key is not proved."""
    wrong = pod(**{"nvidia.com/gpu": "$GPUS", "nvidia.com/gpumem": "8GB"})
    file = tmp_path / "pods.yaml"
    file.write_text(dump_yaml([wrong]))

    result = drawbridge("check", "-f", file, "-o", "json")

    assert [entry["fix"] for entry in json.loads(result.stdout)["findings"]] == [
        "write a whole number",
        "write a whole number without a unit: 8192 where the key counts MiB",
    ]
