"""MIG devices by Volcano's keys: the sizes in their names are compared, as in Volcano's templates."""

from typing import Final, NamedTuple

import pytest

from testing.builders import (
    NVIDIA,
    container,
    derived_claims,
    devices_of,
    driver_slice,
    finding_codes,
    gpus,
    mig_device,
    nvidia_gpu,
    pod,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationSnapshot
from translation.pipeline.translate import Refused

KEYS: Final = "volcano.sh/vgpu-"
ONE: Final = mig_device("9728Mi", "1g.10gb")
TWO: Final = mig_device("19968Mi", "2g.20gb")
THREE: Final = mig_device("40192Mi", "3g.40gb")
SEVEN: Final = mig_device("80640Mi", "7g.80gb")
GPU: Final = nvidia_gpu("81559Mi")
ALL: Final = (ONE, TWO, THREE, SEVEN)


def asking(memory: int | None = None, percentage: int | None = None, count: int = 1) -> Document:
    amounts = {f"{KEYS}number": count}
    if memory is not None:
        amounts[f"{KEYS}memory"] = memory
    if percentage is not None:
        amounts[f"{KEYS}memory-percentage"] = percentage
    return pod(container("main", amounts), annotations={f"{KEYS}mode": "mig"})


def snapshot_of(*devices: Document) -> TranslationSnapshot:
    return translation_snapshot(driver_slice(NVIDIA, *devices))


def chosen_sizes(document: Document, snapshot: TranslationSnapshot) -> list[str]:
    """Return the memory of the MIG devices that the claim accepts, in the order of preference."""
    (claim,) = translation_of(document, snapshot).claims
    (request,) = devices_of(claim)["requests"]
    expressions = [
        way["selectors"][0]["cel"]["expression"]
        for way in request.get("firstAvailable") or [request["exactly"]]
    ]
    return [expression.split('quantity("')[-1].split('"')[0] for expression in expressions]


class Case(NamedTuple):
    name: str
    document: Document
    want: list[str]
    devices: tuple[Document, ...] = (GPU, *ALL)


CASES: Final = (
    Case("the amount of a template", asking(20480), ["19968Mi", "40192Mi", "80640Mi"]),
    Case("one more than a template has", asking(20481), ["40192Mi", "80640Mi"]),
    Case("less than is published", asking(9000), ["9728Mi", "19968Mi", "40192Mi", "80640Mi"]),
    Case("a quarter", asking(percentage=25), ["19968Mi", "40192Mi", "80640Mi"]),
    Case("half", asking(percentage=50), ["40192Mi", "80640Mi"]),
    Case("half, where nothing larger is published", asking(percentage=50), ["40192Mi"], (GPU, THREE)),
    Case("all of it", asking(percentage=100), ["80640Mi"]),
    Case("a number alone", asking(), ["80640Mi"]),
    Case("no memory is all of it", asking(memory=0), ["80640Mi"]),
    Case("media engines", asking(10240), ["9728Mi"], (mig_device("9728Mi", "1g.10gb+me"),)),
    Case("a part of a profile", asking(20480), ["19968Mi"], (mig_device("19968Mi", "1c.2g.20gb"),)),
    Case(
        "other names count with what they have",
        asking(8000),
        ["9728Mi"],
        (mig_device("7168Mi", "large"), ONE),
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_smallest_profile_by_its_name(case: Case) -> None:
    assert case.want == chosen_sizes(case.document, snapshot_of(*case.devices))


@pytest.mark.parametrize(
    ("document", "devices", "want"),
    [
        (asking(20480), ALL, "request 19968Mi, or more than 20Gi for a larger device"),
        (asking(20480), (TWO,), "request 19968Mi"),
        (asking(percentage=25), (GPU, *ALL), "request 19968Mi, or more than 20Gi for a larger device"),
        (asking(19968), ALL, None),
        (asking(percentage=100), (GPU, *ALL), None),
    ],
    ids=["an amount", "no larger one", "a percentage", "what it has", "all of a GPU"],
)  # fmt: skip
def test_less_memory_than_the_name_says_is_reported(
    document: Document, devices: tuple[Document, ...], want: str | None
) -> None:
    findings = translation_of(document, snapshot_of(*devices)).findings

    assert ([] if want is None else ["warning nominalMemory"]) == finding_codes(findings)
    assert [finding.fix for finding in findings] == ([] if want is None else [want])


def test_hami_compares_what_a_device_has() -> None:
    """HAMi v2.10 has the sizes of NVML, pkg/device/nvidia/device.go, selectMigCandidate."""
    mode = {"nvidia.com/vgpu-mode": "mig"}
    snapshot = snapshot_of(GPU, *ALL)

    by_amount = chosen_sizes(pod(gpus(1, mem=20480), annotations=mode), snapshot)
    by_percentage = chosen_sizes(pod(gpus(1, pct=25), annotations=mode), snapshot)

    assert by_amount == by_percentage == ["40192Mi", "80640Mi"]


@pytest.mark.parametrize(
    ("document", "devices", "want"),
    [
        (asking(percentage=0), (GPU, *ALL), "error memoryAmountRequired"),
        (asking(percentage=100), ALL, "error memorySizesUnknown"),
        (asking(), (), "error memorySizesUnknown"),
        (asking(), (GPU, THREE), "error memorySizesUnknown"),
    ],
    ids=["0 percent", "no whole GPU", "nothing", "no profile of a whole GPU"],
)
def test_an_amount_without_a_profile_is_rejected(
    document: Document, devices: tuple[Document, ...], want: str
) -> None:
    outcome = translation_outcome(document, snapshot_of(*devices))

    assert isinstance(outcome, Refused)
    assert [want] == finding_codes(outcome.findings)


def test_an_older_record_keeps_its_claim() -> None:
    """The claim of a record without names of sizes."""
    document, snapshot = asking(20480), snapshot_of(*ALL)
    newer = translation_of(document, snapshot)

    head, _, tail = newer.annotation.partition('"namedSizes":{')
    older = head + tail.partition("},")[2]

    (claim,) = derived_claims(document, older, snapshot)
    assert tail
    assert newer.claims == derived_claims(document, newer.annotation, snapshot)
    assert claim != newer.claims[0]
    assert "19968Mi" not in str(devices_of(claim))


def test_two_devices_of_two_profiles_are_counted_by_their_names() -> None:
    (claim,) = translation_of(asking(20480, count=2), snapshot_of(TWO, THREE)).claims

    assert ["mig-0", "mig-1"] == [entry["name"] for entry in devices_of(claim)["requests"]]


def test_the_record_of_hami_has_no_names_of_sizes() -> None:
    document = pod(gpus(1, mem=8000), annotations={"nvidia.com/vgpu-mode": "mig"})

    assert "namedSizes" not in translation_of(document, snapshot_of(*ALL)).annotation
