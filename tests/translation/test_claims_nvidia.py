"""Claims on NVIDIA's driver, to the letter, for its own keys and for HAMi's."""

from typing import Any, NamedTuple

import pytest

from kube.api.resource import ResourceSlice
from testing.builders import (
    NVIDIA,
    alternative,
    devices_of,
    distinct,
    driver_slice,
    exactly,
    finding_codes,
    gpus,
    nvidia_gpu,
    pod,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions

MIG = "mig.nvidia.com"
FULL = f'"memory" in device.capacity["{NVIDIA}"] && device.capacity["{NVIDIA}"].memory.compareTo(quantity("80Gi")) == 0'


def profile_is(name: str) -> str:
    attributes = f'device.attributes["{NVIDIA}"]'
    return f'"profile" in {attributes} && {attributes}.profile == "{name}"'


class Case(NamedTuple):
    name: str
    pod: Document
    want: Document
    codes: tuple[str, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()


def asking(*amounts: Any, annotations: dict[str, str] | None = None, **named: Any) -> Document:
    return pod(gpus(*amounts, **named), annotations=annotations)


UNSHARED = driver_slice(NVIDIA, nvidia_gpu())
BY_MEMORY = driver_slice(NVIDIA, nvidia_gpu(shared=True, default="80Gi"))
UNLIMITED = driver_slice(NVIDIA, nvidia_gpu(shared=True, default="0"))
REPLICAS = driver_slice(NVIDIA, nvidia_gpu(shared=True, default="0", replicas=True))

DEVICE_PLUGIN = (
    Case("a whole GPU", asking(1), {"requests": [exactly(NVIDIA)]}),
    Case(
        "whole GPUs of devices that nobody shares",
        asking(4),
        {"requests": [exactly(NVIDIA, 4)]},
        (),
        (UNSHARED,),
    ),
    Case(
        "whole GPUs of devices that silence takes whole",
        asking(4),
        {"requests": [exactly(NVIDIA, 4)], "constraints": [distinct(NVIDIA)]},
        (),
        (BY_MEMORY,),
    ),
    Case(
        "a whole GPU where silence takes no memory",
        asking(1),
        {
            "requests": [
                {
                    "name": "gpu",
                    "firstAvailable": [alternative("memory-80gi", NVIDIA, 1, FULL, memory="80Gi")],
                }
            ]
        },
        ("warning notExclusive",),
        (UNLIMITED,),
    ),
    Case(
        "a whole GPU takes all its replicas",
        asking(1),
        {
            "requests": [
                {
                    "name": "gpu",
                    "firstAvailable": [
                        alternative("memory-80gi", NVIDIA, 1, FULL, memory="80Gi", shares="4")
                    ],
                }
            ]
        },
        (),
        (REPLICAS,),
    ),
    Case(
        "13.10: a MIG device",
        asking(mig_3g_20gb=1),
        {"requests": [exactly(MIG, 1, profile_is("3g.20gb"), name="mig")]},
    ),
    Case(
        "a MIG device with media extensions",
        asking(mig_1g_10gb_me=1),
        {"requests": [exactly(MIG, 1, profile_is("1g.10gb+me"), name="mig")]},
    ),
    Case(
        "MIG devices may be of one card",
        asking(mig_1g_5gb=2),
        {"requests": [exactly(MIG, 2, profile_is("1g.5gb"), name="mig")]},
    ),
    Case(
        "a GPU and MIG devices are requests of one claim",
        asking(1, mig_1g_5gb=2, mig_2g_10gb=1),
        {
            "requests": [
                exactly(NVIDIA),
                exactly(MIG, 2, profile_is("1g.5gb"), name="mig-0"),
                exactly(MIG, 1, profile_is("2g.10gb"), name="mig-1"),
            ]
        },
    ),
    Case(
        "13.43: a replica",
        asking(shared=1),
        {"requests": [exactly(NVIDIA, 1, shares="1")]},
        (),
        (REPLICAS,),
    ),
    Case(
        "a replica that no inventory shows",
        asking(shared=1),
        {"requests": [exactly(NVIDIA, 1, shares="1")]},
        ("warning notPublishedByDriver",),
    ),
)


@pytest.mark.parametrize("case", DEVICE_PLUGIN, ids=lambda case: case.name)
def test_device_plugin(case: Case) -> None:
    got = translation_of(case.pod, translation_snapshot(*case.slices))

    (claim,) = got.claims
    assert case.want == devices_of(claim)
    assert case.codes == tuple(finding_codes(got.findings))


ON_NVIDIA = TranslationOptions(profiles={"hami": NVIDIA, "nvidia": NVIDIA})

HAMI_KEYS = (
    Case(
        "a share of devices that nobody shares is a whole one with enough memory",
        asking(1, mem=3000),
        {"requests": [exactly(NVIDIA, 1, memory="3000Mi")]},
        ("warning wholeDevice",),
        (UNSHARED,),
    ),
    Case(
        "a share of memory",
        asking(1, mem=3000),
        {"requests": [exactly(NVIDIA, 1, memory="3000Mi")]},
        (),
        (BY_MEMORY,),
    ),
    Case(
        "all memory by gpumem 0, where silence takes none",
        asking(1, mem=0),
        {
            "requests": [
                {
                    "name": "gpu",
                    "firstAvailable": [alternative("memory-80gi", NVIDIA, 1, FULL, memory="80Gi")],
                }
            ]
        },
        (),
        (UNLIMITED,),
    ),
    Case(
        "NUMA alignment",
        asking(2, annotations={"nvidia.com/numa-bind": "true"}),
        {
            "requests": [exactly(NVIDIA, 2)],
            "constraints": [
                {"requests": ["gpu"], "matchAttribute": "resource.kubernetes.io/numaNode"}
            ],
        },
    ),
)


@pytest.mark.parametrize("case", HAMI_KEYS, ids=lambda case: case.name)
def test_hami_keys(case: Case) -> None:
    got = translation_of(case.pod, translation_snapshot(*case.slices), ON_NVIDIA)

    (claim,) = got.claims
    assert case.want == devices_of(claim)
    assert case.codes == tuple(finding_codes(got.findings))


class Refusal(NamedTuple):
    name: str
    pod: Document
    want: tuple[str, ...]
    slices: tuple[ResourceSlice, ...] = ()


REFUSALS = (
    Refusal(
        "replicas that the driver does not publish",
        asking(shared=1),
        ("error unsupportedAsPublished",),
        (UNSHARED,),
    ),
    Refusal(
        "MPS on devices that the driver shares itself",
        asking(1, mem=1000, annotations={"nvidia.com/vgpu-mode": "mps"}),
        ("error unsupportedAsPublished",),
        (BY_MEMORY,),
    ),
    Refusal(
        "a share of cores", asking(1, mem=1000, cores=30), ("error cannotExpress",), (BY_MEMORY,)
    ),
)


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refused(case: Refusal) -> None:
    got = translation_outcome(case.pod, translation_snapshot(*case.slices), ON_NVIDIA)

    assert case.want == tuple(finding_codes(got.findings))


def test_no_class_is_said_to_serve_replicas() -> None:
    """A DeviceClass that maps their name gives each pod a whole GPU."""
    got = translation_outcome(asking(shared=1), translation_snapshot(UNSHARED), ON_NVIDIA)

    (finding,) = got.findings
    assert "consumable shares, or request a whole GPU" in (finding.fix or "")
    assert "extendedResourceName" not in (finding.fix or "")
