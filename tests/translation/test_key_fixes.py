"""The closest fit of translated claims, as values of the keys that requested them."""

from typing import NamedTuple

import msgspec
import pytest

from findings.field_path import FieldPath, Key
from findings.finding import Code, Finding, error
from findings.fitting import FittingAmount, FittingAmounts
from kube.quantity import Quantity
from testing.builders import (
    container,
    device_at_root,
    driver_slice,
    gpus,
    hami_gpu,
    pod,
    pod_view,
    profiles,
    translation_of,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationSnapshot
from translation.reading.legacy_pod import container_paths
from translation.record.key_fixes import with_key_fixes
from translation.record.recorded_translation import RecordedTranslation

HAMI = "hami-core-gpu.project-hami.io"
TWO_SIZES = translation_snapshot(driver_slice(HAMI, hami_gpu("80Gi"), hami_gpu("40Gi")))
CLAIMS = FieldPath.of("spec", "resourceClaims")
UNITS = "request it (in the claim's units, not those of the pod's keys)"


def count() -> FieldPath:
    return FieldPath.of("requests", 0, "exactly", "count")


def capacity(name: str) -> FieldPath:
    exactly = FieldPath.of("requests", 0, "exactly", "capacity", "requests")
    return exactly.key(name)


class Case(NamedTuple):
    name: str
    want: str
    pod: Document
    amounts: tuple[tuple[FieldPath, str], ...]
    claim: int = 0


CASES = (
    Case(
        "memory in MiB",
        "write nvidia.com/gpumem: 81920 to fit node n",
        pod(gpus(1, mem=200000)),
        ((capacity("memory"), "80Gi"),),
    ),
    Case(
        "an amount between two values of the key is rounded down",
        "write nvidia.com/gpumem: 81919 to fit node n",
        pod(gpus(1, mem=200000)),
        ((capacity("memory"), "83886079Ki"),),
    ),
    Case(
        "a number of GPUs",
        "write nvidia.com/gpu: 2 to fit node n",
        pod(gpus(4)),
        ((count(), "2"),),
    ),
    Case(
        "a single GPU, which needs no constraint to others",
        "write nvidia.com/gpu: 1 to fit node n",
        pod(gpus(2, mem=1000)),
        ((count(), "1"),),
    ),
    Case(
        "two keys of one container",
        "write nvidia.com/gpu: 2, nvidia.com/gpumem: 1024 to fit node n",
        pod(gpus(4, mem=2048)),
        ((count(), "2"), (capacity("memory"), "1Gi")),
    ),
    Case(
        "the container is named where there are several",
        "write nvidia.com/gpumem: 1024 in container b to fit node n",
        pod(gpus(1, mem=512, name="a"), gpus(1, mem=2048, name="b")),
        ((capacity("memory"), "1Gi"),),
        1,
    ),
    Case(
        "cores in percent",
        "write nvidia.com/gpucores: 30 to fit node n",
        pod(gpus(1, mem=1000, cores=60)),
        ((capacity("cores"), "30"),),
    ),
    Case(
        "bytes keep their suffix",
        "write koordinator.sh/gpu-memory: 8Gi to fit node n",
        pod(
            container("main", {"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory": "16Gi"})
        ),
        ((capacity("memory"), "8Gi"),),
    ),
    Case(
        "a percentage of several sizes is one alternative each",
        UNITS,
        pod(gpus(1, pct=50)),
        (
            (
                FieldPath.of(
                    "requests", 0, "firstAvailable", 0, "capacity", "requests", Key("memory")
                ),
                "1Gi",
            ),
        ),
    ),
    Case(
        "an amount that no key requested",
        UNITS,
        pod(gpus(1)),
        ((capacity("memory"), "40Gi"),),
    ),
    Case(
        "less than the smallest value of the key",
        UNITS,
        pod(gpus(1, mem=2000)),
        ((capacity("memory"), "1Ki"),),
    ),
    Case(
        "an init container that reuses the devices needs more than is left",
        UNITS,
        pod(gpus(1, mem=4000), init=[gpus(1, mem=3000, name="init")]),
        ((capacity("memory"), "2000Mi"),),
    ),
)


def finding_of(
    amounts: tuple[tuple[FieldPath, str], ...], node: str = "n", claim: int = 0
) -> Finding:
    path = CLAIMS.child(claim, "resourceClaimTemplateName")
    fitting = FittingAmounts(
        amounts=tuple(
            FittingAmount(claim=path, field=field, amount=Quantity(amount))
            for field, amount in amounts
        ),
        node=node,
    )
    finding = error(Code.EXCEEDS_LARGEST_DEVICE, path, "too much", "request it")
    return msgspec.structs.replace(finding, fitting=fitting)


def fix_of(document: Document, finding: Finding, cluster: TranslationSnapshot = TWO_SIZES) -> str:
    outcome = translation_of(document, cluster)
    translation = RecordedTranslation(
        record=outcome.record,
        paths=container_paths(pod_view(document)),
        profiles=profiles(),
    )
    (fixed,) = with_key_fixes([finding], FieldPath(), outcome.claims, translation)
    return fixed.fix


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_fix(case: Case) -> None:
    assert case.want == fix_of(case.pod, finding_of(case.amounts, claim=case.claim))


def test_a_key_of_which_every_aligned_group_has_a_part() -> None:
    """Five NICs for four PCIe roots are two, one, one and one; the node has one below each."""
    roots = driver_slice(HAMI, *(device_at_root(f"pci0000:{n // 2}") for n in range(8)))
    document = pod(
        container("main", {"koordinator.sh/gpu": 800, "koordinator.sh/rdma": 500}),
        annotations={
            "scheduling.koordinator.sh/device-joint-allocate": '{"deviceTypes":["gpu","rdma"],'
            '"requiredScope":"SamePCIe"}'
        },
    )
    nics = FieldPath.of("requests", 1, "exactly", "count")

    fix = fix_of(document, finding_of(((nics, "1"),)), translation_snapshot(roots))

    assert fix == "write koordinator.sh/rdma: 400 to fit node n"


def test_a_finding_without_amounts_keeps_its_fix() -> None:
    finding = msgspec.structs.replace(finding_of(((count(), "1"),)), fitting=None)

    assert fix_of(pod(gpus(2)), finding) == "request it"


def test_a_finding_about_a_claim_of_the_manifest_keeps_its_fix() -> None:
    document = pod(gpus(2))
    outcome = translation_of(document, TWO_SIZES)
    translation = RecordedTranslation(
        record=outcome.record,
        paths=container_paths(pod_view(document)),
        profiles=profiles(),
    )

    findings = [finding_of(((count(), "1"),))]
    (fixed,) = with_key_fixes(findings, FieldPath(), [None], translation)

    assert fixed.fix == "request it"


def test_the_name_of_a_node_is_one_bounded_line() -> None:
    fix = fix_of(pod(gpus(2)), finding_of(((count(), "1"),), node="\x1b[2J\n" * 1000))

    assert fix.isprintable()
    assert len(fix) < 1500
