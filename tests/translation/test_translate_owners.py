"""The profile that serves each vocabulary, and requests that the API server would refuse."""

from typing import Any, NamedTuple

import pytest

from testing.builders import (
    EXAMPLE,
    HAMI,
    NVIDIA,
    container,
    finding_texts,
    gpus,
    koordinator_container,
    limits,
    pod,
    profiles,
    translation_of,
    translation_outcome,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot

HAMI_ONLY = TranslationOptions(profiles={"hami": HAMI})
NVIDIA_ONLY = TranslationOptions(profiles={"nvidia": NVIDIA})


class TranslatorsCase(NamedTuple):
    name: str
    pod: Document
    want: list[tuple[str, str]]
    """Vocabulary and driver, as the request records them."""
    options: TranslationOptions = TranslationOptions()


MIG_MODE = {"nvidia.com/vgpu-mode": "mig"}

SPOKEN = (
    TranslatorsCase("the device plugin", pod(gpus(1)), [("nvidia", NVIDIA)]),
    TranslatorsCase("HAMi", pod(gpus(mem=1)), [("hami", HAMI)]),
    TranslatorsCase("both", pod(gpus(mem=1, mig_1g_5gb=1)), [("hami", HAMI), ("nvidia", NVIDIA)]),
    TranslatorsCase(
        "HAMi's MIG is lent by NVIDIA",
        pod(gpus(mem=1), annotations=MIG_MODE),
        [("hami", HAMI), ("nvidia", NVIDIA)],
    ),
    TranslatorsCase("Koordinator", pod(koordinator_container(gpu=100)), [("koordinator", HAMI)]),
    TranslatorsCase(
        "bare gpu is HAMi's if the operator says so",
        pod(gpus(1)),
        [("hami", HAMI)],
        TranslationOptions(default_gpu_owner="hami"),
    ),
    TranslatorsCase(
        "another driver speaks for HAMi",
        pod(gpus(mem=1)),
        [("hami", EXAMPLE)],
        TranslationOptions(profiles={"hami": EXAMPLE, "nvidia": NVIDIA}),
    ),
    TranslatorsCase(
        "a driver without MIG borrows it",
        pod(gpus(mig_1g_5gb=1)),
        [("nvidia", EXAMPLE), ("hami", NVIDIA)],
        TranslationOptions(profiles={"hami": NVIDIA, "nvidia": EXAMPLE}),
    ),
)


@pytest.mark.parametrize("case", SPOKEN, ids=lambda case: case.name)
def test_translators(case: TranslatorsCase) -> None:
    request = translation_of(case.pod, None, case.options).record

    assert case.want == [(used.vocabulary, used.name) for used in request.profiles]


class Refusal(NamedTuple):
    name: str
    pod: Document
    want: tuple[str, ...]
    options: TranslationOptions = TranslationOptions()


MAIN = "spec.containers[0].resources"


def unequal(requested: dict[str, Any], limited: dict[str, Any]) -> Document:
    return pod(container(resources={"requests": requested, "limits": limited}))


API_SERVER = (
    Refusal(
        "a request without a limit",
        unequal(limits(1), {}),
        (f"error limitRequired {MAIN}.limits[nvidia.com/gpu]",),
    ),
    Refusal(
        "a request below its limit",
        unequal(limits(1), limits(2)),
        (f"error limitDiffers {MAIN}.requests[nvidia.com/gpu]",),
    ),
    Refusal(
        "a request below its limit, and a mode that does not exist: one correction is enough",
        pod(
            container(resources={"requests": limits(1, mem=1), "limits": limits(1, mem=2)}),
            annotations={"nvidia.com/vgpu-mode": "hami"},
        ),
        (
            f"error limitDiffers {MAIN}.requests[nvidia.com/gpumem]",
            "error unknownMode metadata.annotations[nvidia.com/vgpu-mode]",
        ),
    ),
    Refusal(
        "companions are validated, too",
        unequal(limits(1, mem=1), limits(1)),
        (f"error limitRequired {MAIN}.limits[nvidia.com/gpumem]",),
    ),
    Refusal(
        "each container is validated",
        pod(*(container(n, resources={"requests": limits(1)}) for n in "ab")),
        tuple(
            f"error limitRequired spec.containers[{n}].resources.limits[nvidia.com/gpu]"
            for n in (0, 1)
        ),
    ),
)

UNSPOKEN = (
    Refusal(
        "nobody speaks for HAMi",
        pod(gpus(1, mem=1)),
        (f"error cannotExpress {MAIN}.limits[nvidia.com/gpu]",),
        TranslationOptions(profiles={"nvidia": EXAMPLE}),
    ),
    Refusal(
        "nobody speaks for HAMi, though somebody does for the device plugin",
        pod(gpus(1, cores=30, mig_1g_5gb=0)),
        (f"error cannotExpress {MAIN}.limits[nvidia.com/gpu]",),
        TranslationOptions(profiles={"nvidia": HAMI}),
    ),
    Refusal(
        "nobody has MIG devices",
        pod(gpus(mig_1g_5gb=1)),
        (f"error cannotExpress {MAIN}.limits[nvidia.com/mig-1g.5gb]",),
        HAMI_ONLY,
    ),
    Refusal(
        "nobody starts an MPS server",
        pod(gpus(mem=1), annotations={"nvidia.com/vgpu-mode": "mps"}),
        ("error cannotExpress metadata.annotations[nvidia.com/vgpu-mode]",),
        HAMI_ONLY,
    ),
    Refusal(
        "a driver that is not known",
        pod(gpus(1)),
        (f"error cannotExpress {MAIN}.limits[nvidia.com/gpu]",),
        TranslationOptions(profiles={"nvidia": "gpu.unknown.example"}),
    ),
)

TOO_MUCH = (
    Refusal(
        "an annotation that could not be read back",
        pod(gpus(mem=1), annotations={"hami.io/device-scoring-weights": "x" * 65_536}),
        (
            "error tooLong metadata.annotations",
            "warning policyDropped metadata.annotations[hami.io/device-scoring-weights]",
        ),
    ),
    Refusal(
        "more containers than are read back",
        pod(*(gpus(0, mem=1, name=f"c{n}") for n in range(257))),
        ("error tooLong metadata.annotations",),
    ),
)


@pytest.mark.parametrize("case", API_SERVER + UNSPOKEN + TOO_MUCH, ids=lambda case: case.name)
def test_refused(case: Refusal) -> None:
    got = finding_texts(translation_outcome(case.pod, None, case.options).findings)

    assert case.want == tuple(got[: len(case.want)])


def test_equal_amounts_may_be_spelled_differently() -> None:
    assert translation_of(unequal(limits("1k", mem=1), limits(1000, mem=1)) | pod_of(1)).claims


def pod_of(count: int) -> Document:
    return pod(container(resources={"requests": limits(count), "limits": limits(f"{count}.0")}))


def test_without_any_profile_nothing_is_translated() -> None:
    got = translation_outcome(pod(gpus(1)), TranslationSnapshot(profiles={}))

    assert [f"error cannotExpress {MAIN}.limits[nvidia.com/gpu]"] == finding_texts(got.findings)
    assert profiles()
