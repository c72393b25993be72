"""Amounts of memory that are too small to be meant in the unit of their key."""

import pytest

from testing.builders import (
    HAMI,
    container,
    driver_slice,
    hami_gpu,
    pod,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot

ADOPTING = TranslationOptions(adopt_schedulers={"kai-scheduler": "default-scheduler"})
CARDS = translation_snapshot(driver_slice(HAMI, hami_gpu(memory="80Gi")))


def unit_warnings(document: Document, snapshot: TranslationSnapshot = CARDS) -> list[str]:
    return [
        f"{finding.detail}; {finding.fix}"
        for finding in translation_outcome(document, snapshot, ADOPTING).findings
        if finding.code == "wrongUnit"
    ]


def hami(memory: int | str) -> Document:
    return pod(container("main", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory}))


def volcano(memory: int) -> Document:
    return pod(container("main", {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": memory}))


KAI = pod(
    container("main"),
    annotations={"gpu-memory": "16"},
    schedulerName="kai-scheduler",
)
TOO_SMALL = "which is less than a process needs to open a device"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (hami(16), f"16 is 16Mi, {TOO_SMALL}; write 16384 for 16Gi"),
        (hami(1), f"1 is 1Mi, {TOO_SMALL}; write 1024 for 1Gi"),
        (hami(200), f"200 is 200Mi, {TOO_SMALL}; write a larger amount"),
        (volcano(24), f"24 is 24Mi, {TOO_SMALL}; write 24576 for 24Gi"),
        (KAI, f"16 is 16Mi, {TOO_SMALL}; write 16384 for 16Gi"),
    ],
    ids=["HAMi", "the smallest", "no card has as many GiB", "Volcano", "an annotation of KAI"],
)
def test_a_number_of_mebibytes_that_opens_no_device_is_reported_with_that_of_gibibytes(
    document: Document, words: str
) -> None:
    assert unit_warnings(document) == [words]


@pytest.mark.parametrize("memory", [256, 300, 1000, 81920])
def test_a_number_that_may_be_meant_is_not_reported(memory: int) -> None:
    assert unit_warnings(hami(memory)) == []


def test_nothing_is_reported_where_nothing_is_published() -> None:
    assert unit_warnings(hami(16), translation_snapshot()) == []


def test_an_amount_of_bytes_is_reported_once() -> None:
    share = {"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory": 16}

    assert len(unit_warnings(pod(container("main", share)))) == 1
