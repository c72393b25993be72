"""The unit of memory of Volcano's keys: a factor of its device plugin."""

from typing import Any

import pytest

from admission.pods import Decision
from testing.builders import (
    NVIDIA,
    admit,
    container,
    devices_of,
    driver_slice,
    gpus,
    mig_device,
    pod,
    record_of,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from translation.cluster.snapshot import TranslationOptions
from translation.model.choices import Choices

MEMORY = "volcano.sh/vgpu-memory"
COUNT = "volcano.sh/vgpu-number"
OF_TEN = TranslationOptions(choices=Choices(volcano_memory_factor=10))


def share(**amounts: Any) -> dict[str, Any]:
    return pod(container("main", {f"volcano.sh/vgpu-{key}": text for key, text in amounts.items()}))


def test_the_memory_is_counted_in_the_factor() -> None:
    (claim,) = translation_of(share(number=1, memory=2400), options=OF_TEN).claims

    (request,) = devices_of(claim)["requests"]
    assert "24000Mi" == request["exactly"]["capacity"]["requests"]["memory"]


def test_the_record_has_the_factor_so_that_another_one_changes_no_pod() -> None:
    after, _ = admit(share(number=1, memory=2400), options=OF_TEN)

    again, answer = admit(after, options=OF_TEN)

    assert (after, Decision.ACCEPTED) == (again, answer.decision)
    assert {"volcanoMemoryFactor": 10} == record_of(after)["choices"]


def test_the_record_of_another_vocabulary_has_no_factor() -> None:
    after, _ = admit(pod(gpus(1, mem=3000)), options=OF_TEN)

    assert "choices" not in record_of(after)


@pytest.mark.parametrize(
    ("amount", "fix"), [("20Gi", "write 2048 for 20Gi"), ("500000000", "write at most 214748364")]
)
def test_an_amount_is_corrected_in_the_unit_of_the_key(amount: str, fix: str) -> None:
    outcome = translation_outcome(share(number=1, memory=amount), options=OF_TEN)

    assert [fix] == [finding.fix for finding in outcome.findings]


def test_a_percentage_that_is_probably_an_amount_is_not_taken_for_mebibytes() -> None:
    document = pod(container("main", {COUNT: 1, f"{MEMORY}-percentage": 4000}))

    (finding,) = translation_outcome(document, options=OF_TEN).findings

    assert "write at most 100" == finding.fix


def test_a_mig_device_is_chosen_by_the_product() -> None:
    snapshot = translation_snapshot(
        driver_slice(NVIDIA, mig_device("9728Mi", "1g.10gb"), mig_device("19968Mi", "2g.20gb"))
    )

    (in_tens,) = translation_of(share_of_mig(2000), snapshot, OF_TEN).claims
    (in_ones,) = translation_of(share_of_mig(20000), snapshot).claims

    assert devices_of(in_ones) == devices_of(in_tens)


def share_of_mig(memory: int) -> dict[str, Any]:
    document = share(number=1, memory=memory)
    document["metadata"]["annotations"] = {"volcano.sh/vgpu-mode": "mig"}
    return document
