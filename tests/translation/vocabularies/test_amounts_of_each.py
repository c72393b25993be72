"""Amounts of each device that were written as the sum of all, and the other way round."""

from typing import Any

import pytest

from findings.finding import Finding
from testing.builders import container, pod, translation_outcome
from translation.pipeline.translate import Refused, Translated

HYGON = "hygon.com/dcu"
VOLCANO = "volcano.sh/vgpu-"
MGPU = "vke.volcengine.com/mgpu-"
NPU = "huawei.com/Ascend910B"


def findings_of(limits: dict[str, Any], **annotations: str) -> tuple[Finding, ...]:
    document = pod(container("main", limits), annotations=annotations)
    outcome = translation_outcome(document)
    assert isinstance(outcome, Refused | Translated)
    return outcome.findings


@pytest.mark.parametrize(
    ("limits", "key", "fix"),
    [
        (
            {f"{VOLCANO}number": 2, f"{VOLCANO}memory": 16384, f"{VOLCANO}cores": 120},
            f"{VOLCANO}cores",
            "write 60 if 120 is the sum of all 2, or at most 100 for all of each",
        ),
        (
            {f"{VOLCANO}number": 4, f"{VOLCANO}memory-percentage": 150},
            f"{VOLCANO}memory-percentage",
            "write 38 if 150 is the sum of all 4, or at most 100 for all of each",
        ),
        (
            {f"{HYGON}num": 2, f"{HYGON}mem": 1000, f"{HYGON}cores": 180},
            f"{HYGON}cores",
            "write 90 if 180 is the sum of all 2 DCUs, or 100 for all of each",
        ),
        (
            {NPU: 2, f"{NPU}-core": 150},
            f"{NPU}-core",
            "write 75 if 150 is the sum of all 2 NPUs, or 100 for all of each",
        ),
        (
            {"nvidia.com/gpu": 3, "nvidia.com/gpumem-percentage": 120},
            "nvidia.com/gpumem-percentage",
            "write 40 if 120 is the sum of all 3, or at most 100 for all of each",
        ),
        (
            {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 1000, "nvidia.com/gpucores": 120},
            "nvidia.com/gpucores",
            "write 60 if 120 is the sum of all 2 GPUs, or 100 for all of each",
        ),
        (
            {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 16384},
            "nvidia.com/gpumem-percentage",
            "write nvidia.com/gpumem: 16384 in its place if MiB are meant, or at most 100 for all of it",
        ),
    ],
)
def test_two_readings_are_both_told_and_none_is_written(
    limits: dict[str, Any], key: str, fix: str
) -> None:
    findings = [entry for entry in findings_of(limits) if str(entry.path).endswith(f"[{key}]")]

    assert fix in [entry.fix for entry in findings]
    assert all(entry.corrections == () for entry in findings)


@pytest.mark.parametrize(
    "limits",
    [
        {f"{VOLCANO}number": 1, f"{VOLCANO}cores": 120},
        {f"{VOLCANO}number": 2, f"{VOLCANO}cores": 300},
        {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000, "nvidia.com/gpucores": 120},
    ],
)
def test_what_no_sum_explains_has_one_right_value(limits: dict[str, Any]) -> None:
    assert [100] == [
        int(correction.amount)
        for finding in findings_of(limits)
        for correction in finding.corrections
    ]


def test_totals_that_may_be_those_of_each_card() -> None:
    (finding,) = findings_of(
        {f"{MGPU}core": 75, f"{MGPU}memory": 8192},
        **{"vke.volcengine.com/container-multiple-gpu": "2"},
    )

    assert finding.detail == "75 cannot be divided among 2 cards: amounts are totals of all cards"
    assert finding.fix == (
        f"write {MGPU}core: 150 and {MGPU}memory: 16384 for 75 and 8192 of each card, or {MGPU}core: 76 for 38 of each"
    )
