"""Shares of other systems: units, defaults, and values that are no share."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from testing.builders import (
    HAMI,
    admit,
    container,
    devices_of,
    finding_codes,
    finding_texts,
    pod,
    translation_of,
    translation_outcome,
)
from testing.documents import Document
from translation.pipeline.translate import Refused, Untouched

LIMITS = "spec.containers[0].resources.limits"
VOLCANO = "volcano.sh/vgpu-"
VCUDA = "tencent.com/vcuda-"
QGPU = "tke.cloud.tencent.com/qgpu-"
MGPU = "vke.volcengine.com/mgpu-"
CARDS = "vke.volcengine.com/container-multiple-gpu"


def limited(amounts: Mapping[str, object], **annotations: str) -> Document:
    return pod(container("main", amounts), annotations=annotations)


class Case(NamedTuple):
    name: str
    limits: Mapping[str, object]
    devices: int
    capacity: Mapping[str, str]
    annotations: Mapping[str, str] = {}


def test_no_memory_by_percentage_is_all_of_it_with_a_warning() -> None:
    limits = {f"{VOLCANO}number": 1, f"{VOLCANO}memory-percentage": 0}

    findings = translation_outcome(limited(limits)).findings

    assert f"warning wholeDevice {LIMITS}[{VOLCANO}memory-percentage]" in finding_texts(findings)
    beside_amount = translation_outcome(limited(limits | {f"{VOLCANO}memory": 3000})).findings
    assert "warning wholeDevice" not in finding_codes(beside_amount)


CASES = (
    Case(
        "memory alone is of one GPU",
        {f"{VOLCANO}memory": 3000},
        1,
        {"memory": "3000Mi", "cores": "0"},
    ),
    Case(
        "a number alone takes all memory and no cores", {f"{VOLCANO}number": 2}, 2, {"cores": "0"}
    ),
    Case(
        "no memory is all of it", {f"{VOLCANO}number": 1, f"{VOLCANO}memory": 0}, 1, {"cores": "0"}
    ),
    Case(
        "all of a percentage is all memory",
        {f"{VOLCANO}number": 1, f"{VOLCANO}memory-percentage": 100},
        1,
        {"cores": "0"},
    ),
    Case("thousands", {f"{VOLCANO}memory": "5k"}, 1, {"memory": "5000Mi", "cores": "0"}),
    Case(
        "blocks of 256 MiB",
        {f"{VCUDA}core": 30, f"{VCUDA}memory": 20},
        1,
        {"memory": "5Gi", "cores": "30"},
    ),
    Case("whole cards of vcuda", {f"{VCUDA}core": 200}, 2, {"cores": "100"}),
    Case(
        "gibibytes",
        {f"{QGPU}core": 5, f"{QGPU}memory": 3},
        1,
        {"memory": "3Gi", "cores": "5"},
    ),
    Case("mebibytes without cores", {f"{MGPU}memory": 4096}, 1, {"memory": "4Gi", "cores": "0"}),
    Case(
        "amounts divided among two cards",
        {f"{MGPU}core": 60, f"{MGPU}memory": 8192},
        2,
        {"memory": "4Gi", "cores": "30"},
        {CARDS: "2"},
    ),
    Case("two whole cards", {f"{MGPU}core": 200}, 2, {"cores": "100"}, {CARDS: "2"}),
    Case(
        "a mebibyte of Alibaba's",
        {"aliyun.com/gpu-mem": 16276},
        1,
        {"memory": "16276Mi", "cores": "0"},
    ),
    Case("a gibibyte of Alibaba's", {"aliyun.com/gpu-mem": 3}, 1, {"memory": "3Gi", "cores": "0"}),
    Case(
        "a share of cores of ACS", {"alibabacloud.com/gpu-core.percentage": 30}, 1, {"cores": "30"}
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_a_share_becomes(case: Case) -> None:
    (claim,) = translation_of(limited(case.limits, **case.annotations)).claims

    (request,) = devices_of(claim)["requests"]
    exactly = request["exactly"]
    assert (HAMI, case.devices) == (exactly["deviceClassName"], exactly["count"])
    assert case.capacity == exactly["capacity"]["requests"]


class Rejected(NamedTuple):
    name: str
    limits: Mapping[str, object]
    want: tuple[str, ...]
    annotations: Mapping[str, str] = {}


REJECTED = (
    Rejected("bytes", {f"{VOLCANO}memory": "3Gi"}, (f"wrongUnit {LIMITS}[{VOLCANO}memory]",)),
    Rejected(
        "half a GPU, and more than all cores",
        {f"{VOLCANO}number": "500m", f"{VOLCANO}cores": 101},
        (f"notAnInteger {LIMITS}[{VOLCANO}number]", f"outOfRange {LIMITS}[{VOLCANO}cores]"),
    ),
    Rejected(
        "an amount beside a percentage",
        {f"{VOLCANO}number": 1, f"{VOLCANO}memory": 1, f"{VOLCANO}memory-percentage": 1},
        (f"invalidCombination {LIMITS}[{VOLCANO}memory-percentage]",),
    ),
    Rejected(
        "mode mig without memory, which is all of a GPU, where none is published",
        {f"{VOLCANO}number": 1},
        (f"memorySizesUnknown {LIMITS}[{VOLCANO}number]",),
        {f"{VOLCANO}mode": "mig"},
    ),
    Rejected(
        "one card and a half",
        {f"{VCUDA}core": 150},
        (f"outOfRange {LIMITS}[{VCUDA}core]",),
    ),
    Rejected(
        "a share without memory",
        {f"{VCUDA}core": 30},
        (f"memoryAmountRequired {LIMITS}[{VCUDA}core]",),
    ),
    Rejected(
        "memory without cores",
        {f"{VCUDA}memory": 30},
        (f"invalidCombination {LIMITS}[{VCUDA}memory]",),
    ),
    Rejected(
        "between two steps",
        {f"{QGPU}core": 7, f"{QGPU}memory": 1},
        (f"outOfRange {LIMITS}[{QGPU}core]",),
    ),
    Rejected(
        "a remainder",
        {f"{MGPU}core": 61, f"{MGPU}memory": 8192},
        (f"invalidCombination {LIMITS}[{MGPU}core]",),
        {CARDS: "2"},
    ),
    Rejected(
        "no list of numbers",
        {f"{MGPU}core": 60, f"{MGPU}memory": 8192},
        (f"malformedAnnotation metadata.annotations[{CARDS}]",),
        {CARDS: "2;1"},
    ),
    Rejected(
        "more cards than any node has",
        {f"{MGPU}core": 60, f"{MGPU}memory": 8192},
        (f"malformedAnnotation metadata.annotations[{CARDS}]",),
        {CARDS: "99"},
    ),
    Rejected(
        "cores of Alibaba's without memory",
        {"aliyun.com/gpu-core.percentage": 30},
        (f"invalidCombination {LIMITS}[aliyun.com/gpu-core.percentage]",),
    ),
    Rejected(
        "cores of Alibaba's beside memory in bytes",
        {"aliyun.com/gpu-mem": "8Gi", "aliyun.com/gpu-core.percentage": 30},
        (f"wrongUnit {LIMITS}[aliyun.com/gpu-mem]",),
    ),
    Rejected(
        "cores between two steps",
        {"aliyun.com/gpu-mem": 3, "aliyun.com/gpu-core.percentage": 7},
        (f"outOfRange {LIMITS}[aliyun.com/gpu-core.percentage]",),
    ),
    *(
        Rejected(
            f"whole GPUs beside {key} in one container",
            {"nvidia.com/gpu": 1, key: 20, **more},
            tuple(f"ambiguousOwner {LIMITS}[{name}]" for name in sorted({key, *more})),
        )
        for key, more in (
            (f"{VOLCANO}memory", {}),
            ("aliyun.com/gpu-mem", {}),
            (f"{VCUDA}core", {f"{VCUDA}memory": 20}),
            (f"{QGPU}core", {f"{QGPU}memory": 20}),
            (f"{MGPU}core", {f"{MGPU}memory": 20}),
        )
    ),
    *(
        Rejected(
            f"{other} beside {key} in one container",
            {other: 1, key: 20},
            (f"ambiguousOwner {LIMITS}[{key}]",),
        )
        for key in (f"{VOLCANO}memory", "aliyun.com/gpu-mem")
        for other in ("nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared", "k8s.amazonaws.com/vgpu")
    ),
    Rejected(
        "two systems of one vendor in one container",
        {f"{VCUDA}core": 20, f"{VCUDA}memory": 20, f"{QGPU}core": 20, f"{QGPU}memory": 20},
        (f"ambiguousOwner {LIMITS}[{QGPU}core]", f"ambiguousOwner {LIMITS}[{QGPU}memory]"),
    ),
    Rejected(
        "keys of two systems",
        {f"{VOLCANO}number": 1, "aliyun.com/gpu-mem": 3, "nvidia.com/gpumem": 3},
        (
            f"ambiguousOwner {LIMITS}[{VOLCANO}number]",
            f"ambiguousOwner {LIMITS}[aliyun.com/gpu-mem]",
        ),
    ),
)


@pytest.mark.parametrize("case", REJECTED, ids=lambda case: case.name)
def test_what_is_no_share_is_rejected_with_the_field(case: Rejected) -> None:
    outcome = translation_outcome(limited(case.limits, **case.annotations))

    assert isinstance(outcome, Refused)
    errors = [finding for finding in outcome.findings if finding.is_error]
    assert case.want == tuple(text.removeprefix("error ") for text in finding_texts(errors))


@pytest.mark.parametrize(
    "containers",
    [
        (container("a", {"nvidia.com/mig-1g.5gb": 1}), container("b", {"aliyun.com/gpu-mem": 3})),
        (container("a", {"nvidia.com/mig-1g.5gb": 0, "aliyun.com/gpu-mem": 3}),),
    ],
    ids=["in another container", "of amount 0"],
)
def test_a_mig_device_beside_a_share(containers: tuple[Document, ...]) -> None:
    outcome = translation_outcome(pod(*containers))

    assert not [finding for finding in outcome.findings if finding.is_error]


def test_containers_of_a_pod_share_one_gpu_of_alibabas() -> None:
    amounts = {"aliyun.com/gpu-mem": 2, "aliyun.com/gpu-core.percentage": 25}

    after, answer = admit(pod(container("a", amounts), container("b", amounts)))

    (claim,) = answer.claims
    (request,) = devices_of(claim)["requests"]
    assert {"memory": "4Gi", "cores": "50"} == request["exactly"]["capacity"]["requests"]
    assert ["a", "b"] == [use.container for use in claim.uses]
    environments = [entry["env"] for entry in after["spec"]["containers"]]
    assert [[{"name": "ALIYUN_COM_GPU_MEM_CONTAINER", "value": "2"}]] * 2 == environments
    assert after == admit(after)[0]


def test_more_than_all_cores_of_one_gpu_is_rejected() -> None:
    amounts = {"aliyun.com/gpu-mem": 2, "aliyun.com/gpu-core.percentage": 60}

    outcome = translation_outcome(pod(container("a", amounts), container("b", amounts)))

    assert isinstance(outcome, Refused)


def test_excluded_types_have_no_effect_beside_types_to_use() -> None:
    types = {"nvidia.com/use-gputype": "A100", "nvidia.com/nouse-gputype": "80GB"}

    (claim,) = translation_of(limited({f"{VOLCANO}number": 1}, **types)).claims

    (request,) = devices_of(claim)["requests"]
    (selector,) = request["exactly"]["selectors"]
    assert "80gb" not in selector["cel"]["expression"]


@pytest.mark.parametrize(
    "limits", [{f"{VOLCANO}cores": 10}, {f"{VOLCANO}number": 0}, {f"{VCUDA}core": 0}]
)
def test_a_pod_without_gpus_stays_as_it_is_or_loses_its_keys(limits: Mapping[str, object]) -> None:
    outcome = translation_outcome(limited(limits))

    assert not isinstance(outcome, Refused)
    assert isinstance(outcome, Untouched) or not outcome.claims


@pytest.mark.parametrize(
    "containers",
    [
        (container("a", {"nvidia.com/gpu": 1}), container("b", {f"{VOLCANO}memory": 3000})),
        (container("a", {"nvidia.com/gpu": 0, f"{VOLCANO}memory": 3000}),),
    ],
)
def test_a_whole_gpu_and_a_share_of_different_containers(containers: tuple[Document, ...]) -> None:
    assert not isinstance(translation_outcome(pod(*containers)), Refused)


@pytest.mark.parametrize(
    ("amounts", "told"),
    [
        ({f"{VCUDA}core": 30, f"{VCUDA}memory": 30}, True),
        ({f"{VCUDA}core": 100}, False),
        ({f"{QGPU}core": 30, f"{QGPU}memory": 10}, False),
    ],
)
def test_a_limit_above_the_reserved_cores_is_dropped_with_a_warning(
    amounts: dict[str, int], told: bool
) -> None:
    document = pod(container("main", amounts), annotations={"tencent.com/vcuda-core-limit": "50"})

    findings = translation_of(document).findings

    messages = [
        entry.message
        for entry in findings
        if str(entry.path) == "metadata.annotations[tencent.com/vcuda-core-limit]"
    ]
    assert told == bool(messages)
    assert all('the limit "50" is dropped' in message for message in messages)
