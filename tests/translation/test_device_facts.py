"""Facts from published devices: sizes, sharing, and the slices that count."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from kube.api.resource import ResourceSlice
from kube.quantity import Quantity
from testing.builders import (
    EXAMPLE,
    HAMI,
    NVIDIA,
    amount,
    device,
    device_at_root,
    driver_slice,
    hami_gpu,
    mig_device,
    nvidia_gpu,
    profiles,
)
from translation.model.intents import DeviceKind
from translation.profiles.device_facts import (
    UNKNOWN,
    Facts,
    MemorySize,
    facts_by_driver,
    merge_facts,
    summary,
)


def facts(*slices: ResourceSlice) -> Mapping[str, Mapping[DeviceKind, Facts]]:
    summaries = [
        driver_facts
        for slice_ in slices
        if (driver_facts := summary(slice_, profiles())) is not None
    ]
    return facts_by_driver(summaries)


def size(text: str, least: str | None = None, step: str | None = None) -> MemorySize:
    return MemorySize(
        size=Quantity(text),
        min=None if least is None else Quantity(least),
        step=None if step is None else Quantity(step),
    )


class Case(NamedTuple):
    name: str
    driver: str
    slices: Sequence[ResourceSlice]
    want: Facts
    kind: DeviceKind = DeviceKind.GPU


WHOLE = Facts(sizes=(size("80Gi"),), shared=False, replicas=())
SHARE = Facts(sizes=(size("80Gi", "1Mi", "1Mi"),), shared=True, replicas=())

CASES = (
    Case("a GPU that nobody shares", NVIDIA, [driver_slice(NVIDIA, nvidia_gpu())], WHOLE),
    Case("a GPU that is shared by amounts", HAMI, [driver_slice(HAMI, hami_gpu())], SHARE),
    Case(
        "sizes come once, ascending",
        HAMI,
        [driver_slice(HAMI, hami_gpu("80Gi"), hami_gpu("9Gi"), hami_gpu("80Gi"))],
        Facts(
            sizes=(size("9Gi", "1Mi", "1Mi"), size("80Gi", "1Mi", "1Mi")),
            mixed=True,
            shared=True,
            replicas=(),
        ),
    ),
    Case(
        "silence takes a part",
        NVIDIA,
        [driver_slice(NVIDIA, nvidia_gpu(shared=True, default="0"))],
        Facts(sizes=(size("80Gi"),), shared=True, default_is_part=True, replicas=()),
    ),
    Case(
        "silence takes everything",
        NVIDIA,
        [driver_slice(NVIDIA, nvidia_gpu(shared=True, default="80Gi"))],
        Facts(sizes=(size("80Gi"),), shared=True, replicas=()),
    ),
    Case(
        "replicas",
        NVIDIA,
        [driver_slice(NVIDIA, nvidia_gpu(shared=True, default="0", replicas=True))],
        Facts(sizes=(size("80Gi"),), shared=True, default_is_part=True, replicas=(4,)),
    ),
    Case(
        "MIG devices of several sizes on a node, apart from those of GPUs",
        NVIDIA,
        [driver_slice(NVIDIA, mig_device("4864Mi", "1g.5gb"), mig_device("9728Mi", "2g.10gb"))],
        Facts(
            sizes=(size("4864Mi"), size("9728Mi")),
            mixed_profiles=True,
            shared=False,
            replicas=(),
            mig_profiles={"1g.5gb": 1, "2g.10gb": 1},
            named_sizes={"1g.5gb": (Quantity("4864Mi"),), "2g.10gb": (Quantity("9728Mi"),)},
        ),
        DeviceKind.MIG,
    ),
    Case(
        "MIG devices are told from GPUs by their type",
        NVIDIA,
        [driver_slice(NVIDIA, nvidia_gpu(), mig_device("4864Mi"))],
        Facts(
            sizes=(size("4864Mi"),),
            shared=False,
            replicas=(),
            mig_profiles={"1g.10gb": 1},
            named_sizes={"1g.10gb": (Quantity("4864Mi"),)},
        ),
        DeviceKind.MIG,
    ),
    Case(
        "the type may be spelled with its domain",
        NVIDIA,
        [
            driver_slice(
                NVIDIA, device(attributes={f"{NVIDIA}/type": "gpu"}, capacity={"memory": "80Gi"})
            )
        ],
        WHOLE,
    ),
    Case(
        "a device of another type is none of these",
        NVIDIA,
        [driver_slice(NVIDIA, device(attributes={"type": "vfio"}, capacity={"memory": "80Gi"}))],
        UNKNOWN,
    ),
    Case(
        "a device without memory is a device",
        EXAMPLE,
        [driver_slice(EXAMPLE, device())],
        Facts(sizes=(), shared=False, replicas=()),
    ),
    Case(
        "nodes add to each other",
        NVIDIA,
        [
            driver_slice(NVIDIA, nvidia_gpu(), pool="a"),
            driver_slice(NVIDIA, nvidia_gpu("40Gi", shared=True), pool="b"),
        ],
        Facts(sizes=(size("40Gi"), size("80Gi")), shared=True, replicas=()),
    ),
    Case(
        "of a pool only the newest generation counts",
        NVIDIA,
        [
            driver_slice(NVIDIA, nvidia_gpu("40Gi"), generation=1),
            driver_slice(NVIDIA, nvidia_gpu(), generation=2),
        ],
        WHOLE,
    ),
    Case(
        "memory that is no number of bytes is no memory",
        NVIDIA,
        [driver_slice(NVIDIA, nvidia_gpu("0"), nvidia_gpu("500m"), nvidia_gpu("-1Gi"))],
        Facts(sizes=(), shared=False, replicas=()),
    ),
    Case(
        "devices under one PCIe root",
        HAMI,
        [driver_slice(HAMI, *map(device_at_root, "aabb"))],
        replace(SHARE, per_root=(2,)),
    ),
    Case(
        "slices of a pool add up",
        HAMI,
        [driver_slice(HAMI, device_at_root("a")), driver_slice(HAMI, device_at_root("a"))],
        replace(SHARE, per_root=(2,)),
    ),
    Case(
        "the number that most roots and most nodes have comes first",
        HAMI,
        [
            driver_slice(HAMI, *map(device_at_root, "aabbc"), pool="1"),
            driver_slice(HAMI, *map(device_at_root, "abc"), pool="2"),
            driver_slice(HAMI, *map(device_at_root, "aa"), pool="3"),
        ],
        replace(SHARE, per_root=(2, 1)),
    ),
    Case(
        "a root without a name is none",
        HAMI,
        [driver_slice(HAMI, device_at_root(""), hami_gpu())],
        SHARE,
    ),
    Case("an empty slice tells nothing", NVIDIA, [driver_slice(NVIDIA)], UNKNOWN),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_facts(case: Case) -> None:
    for slices in permutations(case.slices):
        assert case.want == replace(facts(*slices)[case.driver][case.kind], models=())


def test_product_names_come_once_as_selectors_compare_them() -> None:
    other = nvidia_gpu()
    other["attributes"]["productName"] = {"string": "NVIDIA L40S É"}

    merged = facts(
        driver_slice(NVIDIA, nvidia_gpu(), other, device()), driver_slice(NVIDIA, other, pool="b")
    )

    models = merged[NVIDIA][DeviceKind.GPU].models
    assert len(models) == 2
    assert "nvidia l40s É" in models


def test_a_driver_without_a_profile_tells_nothing() -> None:
    assert summary(driver_slice("other.example.com", device()), profiles()) is None


@pytest.mark.parametrize("spellings", [*permutations(["80Gi", "85899345920", "81920Mi"])])
def test_equal_sizes_are_spelled_one_way_whichever_comes_first(spellings: Sequence[str]) -> None:
    known = facts(driver_slice(HAMI, *map(hami_gpu, spellings)))[HAMI][DeviceKind.GPU]

    assert [str(partition.size) for partition in known.sizes or ()] == ["80Gi"]


def test_one_size_with_two_grids_is_two_facts() -> None:
    coarse = device(
        attributes={"type": "hami-gpu"}, capacity={"memory": amount("80Gi", min="1Gi", step="1Gi")}
    )

    known = facts(driver_slice(HAMI, hami_gpu(), coarse))[HAMI][DeviceKind.GPU]

    assert (size("80Gi", "1Mi", "1Mi"), size("80Gi", "1Gi", "1Gi")) == known.sizes


def test_merging_nothing_is_knowing_nothing() -> None:
    assert merge_facts([UNKNOWN, UNKNOWN]) == UNKNOWN
