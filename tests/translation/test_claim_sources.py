"""Each field of a claim leads back to the legacy key that requested it."""

from typing import NamedTuple

import msgspec
import pytest

from findings.field_path import FieldPath, Key
from findings.finding import Code, error
from kube.api.core import PodResourceClaim
from testing.builders import (
    container,
    driver_slice,
    gpus,
    hami_gpu,
    pod,
    translation_of,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationSnapshot
from translation.record.claim_sources import locate_at_keys, match_claims, source_path

HAMI = "hami-core-gpu.project-hami.io"
MEMORY = FieldPath.of("requests", 0, "exactly", "capacity", "requests", Key("memory"))
CORES = FieldPath.of("requests", 0, "exactly", "capacity", "requests", Key("cores"))
TWO_SIZES = translation_snapshot(driver_slice(HAMI, hami_gpu("80Gi"), hami_gpu("40Gi")))
LIMITS = "spec.containers[0].resources.limits"


class Source(NamedTuple):
    name: str
    want: str
    pod: Document
    field: FieldPath
    snapshot: TranslationSnapshot = TWO_SIZES


ALIGNED = pod(
    container(
        "main",
        {
            "koordinator.sh/gpu-core": 100,
            "koordinator.sh/gpu-memory": "1Gi",
            "koordinator.sh/rdma": 100,
        },
    ),
    annotations={
        "scheduling.koordinator.sh/device-joint-allocate": '{"deviceTypes":["gpu","rdma"]}'
    },
)
SOURCES = (
    Source(
        "a count comes from the number of GPUs",
        f"{LIMITS}[nvidia.com/gpu]",
        pod(gpus(2, mem=1000)),
        FieldPath.of("requests", 0, "exactly", "count"),
    ),
    Source(
        "all selectors of a request come from the annotation that made them",
        "metadata.annotations[nvidia.com/use-gpuuuid]",
        pod(gpus(1, mem=1000), annotations={"nvidia.com/use-gpuuuid": "GPU-a"}),
        FieldPath.of("requests", 0, "exactly", "selectors"),
    ),
    Source(
        "an amount of memory comes from its key",
        f"{LIMITS}[nvidia.com/gpumem]",
        pod(gpus(1, mem=1000)),
        MEMORY,
    ),
    Source(
        "an amount of cores comes from its key",
        f"{LIMITS}[nvidia.com/gpucores]",
        pod(gpus(1, mem=1000, cores=30)),
        CORES,
    ),
    Source(
        "the cores of a whole GPU come from the number of GPUs",
        f"{LIMITS}[nvidia.com/gpu]",
        pod(gpus(1), annotations={"nvidia.com/use-gputype": "A100"}),
        CORES,
    ),
    Source(
        "the memory of each alternative comes from the percentage",
        f"{LIMITS}[nvidia.com/gpumem-percentage]",
        pod(gpus(1, pct=50)),
        FieldPath.of("requests", 0, "firstAvailable", 1, "capacity", "requests", Key("memory")),
    ),
    Source(
        "a selector comes from its annotation",
        "metadata.annotations[nvidia.com/use-gputype]",
        pod(gpus(1, mem=1000), annotations={"nvidia.com/use-gputype": "A100"}),
        FieldPath.of("requests", 0, "exactly", "selectors", 0, "cel", "expression"),
    ),
    Source(
        "a constraint comes from its annotation",
        "metadata.annotations[scheduling.koordinator.sh/device-joint-allocate]",
        ALIGNED,
        FieldPath.of("constraints", 0),
        translation_snapshot(),
    ),
    Source(
        "an aligned alternative keeps the sources of the request",
        f"{LIMITS}[koordinator.sh/gpu-core]",
        ALIGNED,
        FieldPath.of("requests", 0, "firstAvailable", 1, "capacity", "requests", Key("cores")),
        translation_snapshot(),
    ),
    Source(
        "a key that an annotation renames is named as the pod has it",
        f"{LIMITS}[nvidia.com/gpu]",
        pod(
            container("main", {"nvidia.com/gpu": 100}),
            annotations={
                "pod.koordinator.sh/replace-resources": "nvidia.com/gpu:koordinator.sh/gpu"
            },
        ),
        FieldPath.of("requests", 0),
    ),
)


@pytest.mark.parametrize("case", SOURCES, ids=lambda case: case.name)
def test_source(case: Source) -> None:
    (claim,) = translation_of(case.pod, case.snapshot).claims

    assert case.want == str(source_path([claim], case.field))


def test_a_claim_of_several_containers_is_located_at_all_of_them() -> None:
    document = pod(container("a", {"nvidia.com/gpu": 1}), container("b", {"nvidia.com/gpu": 1}))
    (claim,) = translation_of(document).claims

    assert str(source_path([claim])) == "spec.containers"
    assert str(source_path([claim], FieldPath.of("requests", 1))) == (
        "spec.containers[1].resources.limits[nvidia.com/gpu]"
    )


# --- findings -------------------------------------------------------------------------------------

SHARE = translation_of(pod(gpus(1, mem=1000))).claims[0]
OWN = PodResourceClaim(name="own", resource_claim_template_name="by-hand")
GENERATED = PodResourceClaim(name="gpu-main", resource_claim_template_name=SHARE.template)
CLAIMS = FieldPath.of("spec", "resourceClaims")


class Located(NamedTuple):
    name: str
    want: tuple[str, str]
    entries: tuple[PodResourceClaim, ...]
    path: FieldPath
    cause: FieldPath | None = MEMORY


LOCATED = (
    Located(
        "a finding about a translated claim is at the key",
        (f"{LIMITS}[nvidia.com/gpumem]", "too much"),
        (OWN, GENERATED),
        CLAIMS.child(1, "resourceClaimTemplateName"),
    ),
    Located(
        "a finding about a claim of the manifest stays",
        ("spec.resourceClaims[0].resourceClaimTemplateName", f"{MEMORY}: too much"),
        (OWN, GENERATED),
        CLAIMS.child(0, "resourceClaimTemplateName"),
    ),
    Located(
        "a finding about claims of both kinds stays",
        ("spec.resourceClaims", "too much"),
        (OWN, GENERATED),
        CLAIMS,
        None,
    ),
    Located(
        "a finding about all translated claims is at their key",
        (f"{LIMITS}[nvidia.com/gpu]", "too much"),
        (GENERATED,),
        CLAIMS,
        None,
    ),
    Located(
        "a finding about anything else stays",
        ("spec.containers[0]", "too much"),
        (GENERATED,),
        FieldPath.of("spec", "containers", 0),
        None,
    ),
)


@pytest.mark.parametrize("case", LOCATED, ids=lambda case: case.name)
@pytest.mark.parametrize("pod_path", [FieldPath(), FieldPath.of("spec", "template")], ids=str)
def test_located(case: Located, pod_path: FieldPath) -> None:
    finding = msgspec.structs.replace(
        error(Code.EXCEEDS_LARGEST_DEVICE, pod_path.join(case.path), "too much"), cause=case.cause
    )

    located = locate_at_keys(finding, pod_path, match_claims(case.entries, [SHARE]))

    path, words = case.want
    assert str(located.path) == (path if pod_path.is_root else f"{pod_path}.{path}")
    assert located.message == words
