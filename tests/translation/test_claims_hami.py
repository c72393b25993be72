"""Claims on HAMi's driver, to the letter.

Numbers in row names are those of the catalogue of HAMi manifests from which the rows were taken.
"""

from typing import Any, NamedTuple

import pytest

from kube.api.resource import ResourceSlice
from testing.builders import (
    HAMI,
    NVIDIA,
    alternative,
    devices_of,
    distinct,
    driver_slice,
    exactly,
    finding_codes,
    gpus,
    hami_gpu,
    mig_device,
    nvidia_gpu,
    pod,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document

MODEL = f'device.attributes["{HAMI}"].productName'
HAS_MODEL = f'"productName" in device.attributes["{HAMI}"]'
UUID = f'device.attributes["{HAMI}"].uuid'
HAS_UUID = f'"uuid" in device.attributes["{HAMI}"]'


def memory_is(size: str, comparison: str = "== 0", driver: str = HAMI) -> str:
    capacity = f'device.capacity["{driver}"]'
    return f'"memory" in {capacity} && {capacity}.memory.compareTo(quantity("{size}")) {comparison}'


class Case(NamedTuple):
    name: str
    pod: Document
    want: Document
    slices: tuple[ResourceSlice, ...] = ()


def asking(*amounts: Any, annotations: dict[str, str] | None = None, **named: Any) -> Document:
    return pod(gpus(*amounts, **named), annotations=annotations)


A100_40 = driver_slice(HAMI, hami_gpu("40Gi"))
A100_80 = driver_slice(HAMI, hami_gpu("80Gi"), pool="node-2")

AMOUNTS = (
    Case(
        "1, with the output that was recorded: a share",
        asking(1, mem=3000, cores=30),
        {"requests": [exactly(HAMI, 1, cores="30", memory="3000Mi")]},
    ),
    Case(
        "uncapped cores are said, since silence takes them all",
        asking(1, mem=3000),
        {"requests": [exactly(HAMI, 1, cores="0", memory="3000Mi")]},
    ),
    Case(
        "all memory is left to silence",
        asking(1, cores=30),
        {"requests": [exactly(HAMI, 1, cores="30")]},
    ),
    Case(
        "4: half the memory of whichever card, on different cards",
        asking(2, pct=50, cores=30),
        {
            "requests": [
                {
                    "name": "gpu",
                    "firstAvailable": [
                        alternative(
                            "memory-40gi", HAMI, 2, memory_is("40Gi"), cores="30", memory="20Gi"
                        ),
                        alternative(
                            "memory-80gi", HAMI, 2, memory_is("80Gi"), cores="30", memory="40Gi"
                        ),
                    ],
                }
            ],
            "constraints": [distinct(HAMI)],
        },
        (A100_40, A100_80),
    ),
    Case(
        "where a node has cards of two sizes, each card has a request",
        asking(2, pct=50, cores=30),
        {
            "requests": [
                {
                    "name": name,
                    "firstAvailable": [
                        alternative(
                            f"memory-{size}gi",
                            HAMI,
                            1,
                            memory_is(f"{size}Gi"),
                            cores="30",
                            memory=f"{size // 2}Gi",
                        )
                        for size in (40, 80)
                    ],
                }
                for name in ("gpu-0", "gpu-1")
            ],
            "constraints": [distinct(HAMI, "gpu-0", "gpu-1")],
        },
        (driver_slice(HAMI, hami_gpu("40Gi"), hami_gpu("80Gi")),),
    ),
    Case(
        "a percentage of the only size needs one alternative, which tests for it",
        asking(1, pct=33),
        {
            "requests": [
                {
                    "name": "gpu",
                    "firstAvailable": [
                        alternative(
                            "memory-40gi", HAMI, 1, memory_is("40Gi"), cores="0", memory="13516Mi"
                        )
                    ],
                }
            ]
        },
        (A100_40,),
    ),
    Case(
        "several cards are different cards",
        asking(3, mem=10),
        {
            "requests": [exactly(HAMI, 3, cores="0", memory="10Mi")],
            "constraints": [distinct(HAMI)],
        },
    ),
)

FILTERS = (
    Case(
        "6: models, as substrings in any case",
        asking(2, annotations={"nvidia.com/use-gputype": "A100,V100"}),
        {
            "requests": [
                exactly(
                    HAMI,
                    2,
                    f'{HAS_MODEL} && ({MODEL}.lowerAscii().contains("a100") || '
                    f'{MODEL}.lowerAscii().contains("v100"))',
                    cores="100",
                )
            ],
            "constraints": [distinct(HAMI)],
        },
    ),
    Case(
        "8: UUIDs",
        asking(1, annotations={"nvidia.com/use-gpuuuid": "GPU-67d,GPU-67e"}),
        {
            "requests": [
                exactly(HAMI, 1, f'{HAS_UUID} && {UUID} in ["GPU-67d", "GPU-67e"]', cores="100")
            ]
        },
    ),
    Case(
        "models and UUIDs to avoid, which spare devices that publish none",
        asking(
            1,
            annotations={"nvidia.com/nouse-gputype": "T4", "nvidia.com/nouse-gpuuuid": "GPU-1"},
        ),
        {
            "requests": [
                exactly(
                    HAMI,
                    1,
                    f'!({HAS_MODEL} && {MODEL}.lowerAscii().contains("t4"))',
                    f'!({HAS_UUID} && {UUID} in ["GPU-1"])',
                    cores="100",
                )
            ]
        },
    ),
    Case(
        "quotes and backslashes stay inside their literal",
        asking(1, annotations={"nvidia.com/use-gpuuuid": 'x"] || true || "\\'}),
        {
            "requests": [
                exactly(
                    HAMI,
                    1,
                    f'{HAS_UUID} && {UUID} in ["x\\"] || true || \\"\\\\"]',
                    cores="100",
                )
            ]
        },
    ),
)

MIG_MODE = {"nvidia.com/vgpu-mode": "mig", "hami.io/gpu-scheduler-policy": "binpack"}

THREE_PROFILES = driver_slice(
    NVIDIA,
    mig_device("19968Mi", "3g.20gb"),
    mig_device("4864Mi", "1g.5gb"),
    mig_device("9728Mi", "2g.10gb"),
)


def mig_request(name: str, count: int, *sizes: str) -> Document:
    ways = [
        alternative(
            f"memory-{size.lower()}", "mig.nvidia.com", count, memory_is(size, driver=NVIDIA)
        )
        for size in sizes
    ]
    return {"name": name, "firstAvailable": ways}


BORROWED = (
    Case(
        "9: MIG devices, the smallest that is enough first, each of a size of its own",
        asking(2, mem=8000, annotations=MIG_MODE),
        {"requests": [mig_request(f"mig-{index}", 1, "9728Mi", "19968Mi") for index in range(2)]},
        (THREE_PROFILES,),
    ),
    Case(
        "a percentage of the largest GPU, for two MIG devices of two sizes",
        asking(2, pct=20, annotations=MIG_MODE),
        {"requests": [mig_request(f"mig-{index}", 1, "9728Mi", "19968Mi") for index in range(2)]},
        (THREE_PROFILES, driver_slice(NVIDIA, nvidia_gpu("40Gi"), pool="node-2")),
    ),
    Case(
        "MIG devices of several sizes that no node combines have one size",
        asking(2, mem=8000, annotations=MIG_MODE),
        {"requests": [mig_request("mig", 2, "9728Mi", "19968Mi")]},
        (
            driver_slice(NVIDIA, mig_device("9728Mi", "2g.10gb")),
            driver_slice(NVIDIA, mig_device("19968Mi", "3g.20gb"), pool="node-2"),
        ),
    ),
    Case(
        "too many combinations of MIG devices have one size",
        asking(4, mem=1000, annotations=MIG_MODE),
        {"requests": [mig_request("mig", 4, "4864Mi", "9728Mi", "19968Mi")]},
        (THREE_PROFILES,),
    ),
    Case(
        "MIG devices of one size need no alternatives",
        asking(1, mem=8000, annotations=MIG_MODE),
        {
            "requests": [
                exactly("mig.nvidia.com", 1, memory_is("9728Mi", driver=NVIDIA), name="mig")
            ]
        },
        (driver_slice(NVIDIA, mig_device("9728Mi")),),
    ),
    Case(
        "a percentage of the largest GPU, for MIG devices",
        asking(1, pct=20, annotations=MIG_MODE),
        {
            "requests": [
                exactly("mig.nvidia.com", 1, memory_is("19968Mi", driver=NVIDIA), name="mig")
            ]
        },
        (
            driver_slice(
                NVIDIA,
                nvidia_gpu("80Gi"),
                nvidia_gpu("40Gi"),
                mig_device("9728Mi", "1g.10gb"),
                mig_device("19968Mi", "2g.20gb"),
            ),
        ),
    ),
    Case(
        "MIG devices of unknown sizes: any that is enough",
        asking(1, mem=8000, annotations=MIG_MODE),
        {
            "requests": [
                exactly("mig.nvidia.com", 1, memory_is("8000Mi", ">= 0", NVIDIA), name="mig")
            ]
        },
    ),
    Case(
        "an MPS server with the share's limits",
        asking(1, mem=3000, cores=30, annotations={"nvidia.com/vgpu-mode": "mps"}),
        {
            "requests": [exactly(NVIDIA)],
            "config": [
                {
                    "requests": ["gpu"],
                    "opaque": {
                        "driver": NVIDIA,
                        "parameters": {
                            "apiVersion": "resource.nvidia.com/v1beta1",
                            "kind": "GpuConfig",
                            "sharing": {
                                "strategy": "MPS",
                                "mpsConfig": {
                                    "defaultActiveThreadPercentage": 30,
                                    "defaultPinnedDeviceMemoryLimit": "3000Mi",
                                },
                            },
                        },
                    },
                }
            ],
        },
    ),
)


@pytest.mark.parametrize("case", AMOUNTS + FILTERS + BORROWED, ids=lambda case: case.name)
def test_spec(case: Case) -> None:
    (claim,) = translation_of(case.pod, translation_snapshot(*case.slices)).claims

    assert case.want == devices_of(claim)


class Refusal(NamedTuple):
    name: str
    pod: Document
    want: tuple[str, ...]
    slices: tuple[ResourceSlice, ...] = ()


NINE_SIZES = driver_slice(HAMI, *(hami_gpu(f"{size}Gi") for size in range(10, 19)))

REFUSALS = (
    Refusal("a percentage of unknown sizes", asking(1, pct=50), ("error memorySizesUnknown",)),
    Refusal("33 cards", asking(33, mem=1), ("error tooManyDevices",)),
    Refusal("more cards than an int64 counts", asking("1e30", mem=1), ("error tooManyDevices",)),
    Refusal(
        "a list that no selector holds",
        asking(1, annotations={"nvidia.com/use-gputype": "a," * 200}),
        ("error tooLong",),
    ),
    Refusal(
        "a percentage of an unknown GPU in mode mig",
        asking(1, pct=50, annotations={"nvidia.com/vgpu-mode": "mig"}),
        ("error memorySizesUnknown",),
    ),
    Refusal(
        "a percentage for an MPS server",
        asking(1, pct=50, annotations={"nvidia.com/vgpu-mode": "mps"}),
        ("error memoryAmountRequired", "warning requiresFeatureGate"),
    ),
)


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refused(case: Refusal) -> None:
    assert case.want == tuple(
        finding_codes(translation_outcome(case.pod, translation_snapshot(*case.slices)).findings)
    )


@pytest.mark.parametrize(
    ("slices", "fix"),
    [
        ((), "write nvidia.com/gpumem, in MiB, in its place"),
        (
            (driver_slice(NVIDIA, nvidia_gpu(memory="80Gi"), nvidia_gpu(memory="40Gi")),),
            (
                "in its place write nvidia.com/gpumem: 20480 for 50 percent of 40Gi or nvidia.com/gpumem: 40960 "
                "for 50 percent of 80Gi"
            ),
        ),
    ],
    ids=["no size is known", "two sizes"],
)
def test_the_amount_for_a_percentage_of_an_mps_server(
    slices: tuple[ResourceSlice, ...], fix: str
) -> None:
    document = asking(1, pct=50, annotations={"nvidia.com/vgpu-mode": "mps"})

    (finding, _) = translation_outcome(document, translation_snapshot(*slices)).findings

    assert finding.fix == fix


WARNINGS = (
    Refusal(
        "9: policies and the missing sizes are told",
        asking(1, mem=1, annotations=MIG_MODE),
        ("warning policyDropped", "warning smallestDeviceNotPreferred"),
    ),
    Refusal(
        "two MIG devices of several sizes lose nothing",
        asking(2, mem=8000, annotations={"nvidia.com/vgpu-mode": "mig"}),
        (),
        (THREE_PROFILES,),
    ),
    Refusal(
        "four of three sizes must have the same",
        asking(4, mem=1000, annotations={"nvidia.com/vgpu-mode": "mig"}),
        ("warning equalMemorySizes",),
        (THREE_PROFILES,),
    ),
    Refusal(
        "GPUs of two memory sizes are told once for all MIG devices of a percentage",
        asking(2, pct=10, annotations={"nvidia.com/vgpu-mode": "mig"}),
        ("warning memorySizesMerged",),
        (
            THREE_PROFILES,
            driver_slice(NVIDIA, nvidia_gpu("40Gi"), nvidia_gpu("80Gi"), pool="node-2"),
        ),
    ),
    Refusal(
        "all cores of a part of the memory keep nobody away",
        asking(1, mem=1, cores=100),
        ("warning notExclusive",),
    ),
    Refusal(
        "a part of the memory of the devices that are there",
        asking(1, mem=40000, cores=100),
        ("warning notExclusive",),
        (A100_40,),
    ),
    Refusal(
        "all memory of some devices, and a part of that of others",
        asking(1, mem=40960, cores=100),
        ("warning notExclusive",),
        (A100_40, A100_80),
    ),
    Refusal(
        "more memory than any device has",
        asking(1, mem=50000, cores=100),
        ("warning notExclusive",),
        (A100_40,),
    ),
    Refusal(
        "all cores with all memory of each device that has as much leave nobody a rest",
        asking(1, mem=81920, cores=100),
        (),
        (A100_40, A100_80),
    ),
    Refusal(
        "no NUMA node is published",
        asking(2, mem=1, annotations={"nvidia.com/numa-bind": "true"}),
        ("warning notPublishedByDriver",),
    ),
    Refusal(
        "an MPS server serves its pod alone",
        asking(1, mem=1, annotations={"nvidia.com/vgpu-mode": "mps"}),
        ("warning sharedWithinPodOnly", "warning requiresFeatureGate"),
    ),
)


@pytest.mark.parametrize("case", WARNINGS, ids=lambda case: case.name)
def test_warned(case: Refusal) -> None:
    assert case.want == tuple(
        finding_codes(translation_of(case.pod, translation_snapshot(*case.slices)).findings)
    )


def test_the_nearest_of_more_sizes_than_alternatives_are_merged() -> None:
    outcome = translation_of(asking(1, pct=50), translation_snapshot(NINE_SIZES))

    (claim,) = outcome.claims
    ways = devices_of(claim)["requests"][0]["firstAvailable"]
    amounts = [way["capacity"]["requests"]["memory"] for way in ways]
    assert ["5Gi", "5632Mi", "6Gi", "6656Mi", "7Gi", "7680Mi", "8Gi", "8704Mi"] == amounts
    last = ways[-1]["selectors"][0]["cel"]["expression"]
    assert ("17Gi" in last, "18Gi" in last) == (True, True)
    assert ["warning memorySizesMerged"] == finding_codes(outcome.findings)
