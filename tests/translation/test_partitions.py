"""GPUs that are one partition of those that NVIDIA's driver publishes."""

from typing import Any, NamedTuple

import pytest

from testing.builders import (
    HAMI,
    NVIDIA,
    derived_claims,
    devices_of,
    driver_slice,
    finding_codes,
    gpus,
    hami_gpu,
    in_partitions,
    koordinator_annotations,
    koordinator_container,
    nvidia_gpu,
    pod,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationSnapshot
from translation.pipeline.translate import Refused

SIZES = (1, 2, 4, 8)
PUBLISHED = translation_snapshot(driver_slice(NVIDIA, in_partitions(nvidia_gpu(), *SIZES)))
WITHOUT = translation_snapshot(driver_slice(NVIDIA, nvidia_gpu()))
HAMI_ONLY = translation_snapshot(driver_slice(HAMI, hami_gpu()))
UNKNOWN = translation_snapshot()


def required(count: int) -> Document:
    return pod(
        koordinator_container(nvidia=count), annotations=koordinator_annotations(partition={})
    )


def constraints(document: Document, snapshot: TranslationSnapshot) -> list[dict[str, Any]]:
    (claim,) = translation_of(document, snapshot).claims
    constraints_: list[dict[str, Any]] = devices_of(claim).get("constraints", [])
    return constraints_


def one_partition(size: int, request: str = "gpu") -> list[dict[str, Any]]:
    return [{"requests": [request], "matchAttribute": f"{NVIDIA}/partition{size}"}]


@pytest.mark.parametrize("count", SIZES)
def test_a_required_partition_is_one_of_the_number_of_gpus(count: int) -> None:
    assert one_partition(count) == constraints(required(count), PUBLISHED)


def test_without_an_inventory_the_partition_is_required_with_a_warning() -> None:
    got = translation_of(required(2), UNKNOWN)

    assert ["warning notPublishedByDriver"] == finding_codes(got.findings)
    assert one_partition(2) == constraints(required(2), UNKNOWN)


class Refusal(NamedTuple):
    name: str
    gpus: int
    snapshot: TranslationSnapshot
    want: str


REFUSALS = (
    Refusal("no partition of three GPUs", 3, PUBLISHED, "error noPartitionOfSize"),
    Refusal("no partitions", 2, WITHOUT, "error unsupportedAsPublished"),
    Refusal("a driver that has none", 2, HAMI_ONLY, "error cannotExpress"),
)


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_a_partition_that_nobody_has_is_rejected(case: Refusal) -> None:
    got = translation_outcome(required(case.gpus), case.snapshot)

    assert isinstance(got, Refused)
    assert case.want in finding_codes(got.findings)


def test_plain_gpus_are_one_partition_or_in_none_where_some_are_published() -> None:
    (claim,) = translation_of(pod(gpus(2)), PUBLISHED).claims
    (request,) = devices_of(claim)["requests"]

    present = f'"partition2" in device.attributes["{NVIDIA}"]'
    assert [("partition", present), ("unpartitioned", f"!({present})")] == [
        (way["name"], way["selectors"][0]["cel"]["expression"]) for way in request["firstAvailable"]
    ]
    assert one_partition(2, "gpu/partition") == devices_of(claim)["constraints"]


def test_plain_gpus_of_no_partition_size_are_reported() -> None:
    got = translation_of(pod(gpus(3)), PUBLISHED)

    assert ["warning noPartitionOfSize"] == finding_codes(got.findings)


def test_plain_gpus_are_plain_where_no_partition_is_published() -> None:
    assert constraints(pod(gpus(2)), WITHOUT) == []


@pytest.mark.parametrize("document", [required(2), pod(gpus(2))])
def test_the_claim_derives_from_the_record(document: Document) -> None:
    got = translation_of(document, PUBLISHED)

    assert got.claims == derived_claims(document, got.annotation, PUBLISHED)
