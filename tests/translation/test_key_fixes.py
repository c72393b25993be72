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
SIZE_BY_NODE = translation_snapshot(
    driver_slice(HAMI, hami_gpu("80Gi"), hami_gpu("80Gi")),
    driver_slice(HAMI, hami_gpu("40Gi"), hami_gpu("40Gi"), pool="node-2"),
)
"""No node has devices of both sizes, so a request has one alternative for all of its devices."""
CLAIMS = FieldPath.of("spec", "resourceClaims")
UNITS = "request it (in the claim's units, not those of the pod's keys)"


def count() -> FieldPath:
    return FieldPath.of("requests", 0, "exactly", "count")


def capacity(name: str) -> FieldPath:
    exactly = FieldPath.of("requests", 0, "exactly", "capacity", "requests")
    return exactly.key(name)


def alternative(number: int, *below: str | Key) -> FieldPath:
    return FieldPath(("requests", 0, "firstAvailable", number, *below))


class Case(NamedTuple):
    name: str
    want: str
    pod: Document
    amounts: tuple[tuple[FieldPath, str], ...]
    claim: int = 0
    cluster: TranslationSnapshot = TWO_SIZES


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
        "a percentage of several sizes, whose other alternative becomes less, too",
        "write nvidia.com/gpumem-percentage: 2 to fit node n",
        pod(gpus(1, pct=50)),
        ((alternative(0, "capacity", "requests", Key("memory")), "1Gi"),),
    ),
    Case(
        "a number of GPUs in one of several alternatives",
        "write nvidia.com/gpu: 2 to fit node n",
        pod(gpus(3, pct=50)),
        ((alternative(1, "count"), "2"),),
        cluster=SIZE_BY_NODE,
    ),
    Case(
        "a number of GPUs beside keys that are the total of all of them",
        "write koordinator.sh/gpu.shared: 2, koordinator.sh/gpu-core: 100, "
        "koordinator.sh/gpu-memory-ratio: 100 to fit node n",
        pod(
            container(
                "main",
                {
                    "koordinator.sh/gpu.shared": 3,
                    "koordinator.sh/gpu-memory-ratio": 150,
                    "koordinator.sh/gpu-core": 150,
                },
            )
        ),
        ((alternative(0, "count"), "2"),),
        cluster=SIZE_BY_NODE,
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
        "an init container that uses the devices first and needs more than fits, too",
        "write nvidia.com/gpumem: 2000 in container main, nvidia.com/gpumem: 2000 in container init to fit node n",
        pod(gpus(1, mem=4000), init=[gpus(1, mem=3000, name="init")]),
        ((capacity("memory"), "2000Mi"),),
    ),
    Case(
        "an init container that raises the memory of the app container",
        "write nvidia.com/gpumem: 81920 in container init to fit node n",
        pod(gpus(1, mem=50000), init=[gpus(1, mem=90000, name="init")]),
        ((capacity("memory"), "80Gi"),),
    ),
    Case(
        "an init container that raises the cores of the app container",
        "write nvidia.com/gpucores: 40 in container init to fit node n",
        pod(gpus(1, mem=50, cores=10), init=[gpus(1, mem=50, cores=60, name="init")]),
        ((capacity("cores"), "40"),),
    ),
    Case(
        "an init container that uses the devices of the app container with the value",
        "write huawei.com/Ascend910B3: 1 in container first to fit node n",
        pod(
            container("main", {"huawei.com/Ascend910B3": 1}),
            init=[container("first", {"huawei.com/Ascend910B3": 4})],
        ),
        ((count(), "1"),),
    ),
    Case(
        "a number of devices of an init container and an app container",
        "write amd.com/gpu: 8 in container main, amd.com/gpu: 8 in container first to fit node n",
        pod(
            container("main", {"amd.com/gpu": 9}),
            init=[container("first", {"amd.com/gpu": 9})],
        ),
        ((count(), "8"),),
    ),
    Case(
        "two init containers and an app container, all of which need more than fits",
        "write nvidia.com/gpumem: 2000 in container b, nvidia.com/gpumem: 2000 in container main, "
        "nvidia.com/gpumem: 2000 in container a to fit node n",
        pod(
            gpus(1, mem=4000),
            init=[gpus(1, mem=3000, name="a"), gpus(1, mem=5000, name="b")],
        ),
        ((capacity("memory"), "2000Mi"),),
    ),
)


QGPU = "tke.cloud.tencent.com/qgpu"
VCUDA = "tencent.com/vcuda"
READINGS = (
    Case(
        "MiB where blocks are counted",
        f"{VCUDA}-memory counts blocks of 256 MiB, so 12288 is 3072Gi: write {VCUDA}-memory: 48 (12Gi) if it was "
        f"meant in MiB, or at most {VCUDA}-memory: 160 (40Gi) to fit node n",
        pod(container("main", {f"{VCUDA}-core": 50, f"{VCUDA}-memory": 12288})),
        ((capacity("memory"), "40Gi"),),
    ),
    Case(
        "MiB where GiB are counted, rounded up",
        f"{QGPU}-memory counts GiB, so 10000 is 10000Gi: write {QGPU}-memory: 10 (10000Mi) if it was meant in MiB, "
        f"or at most {QGPU}-memory: 40 (40Gi) to fit node n",
        pod(container("main", {f"{QGPU}-core": 50, f"{QGPU}-memory": 10000})),
        ((capacity("memory"), "40Gi"),),
    ),
    Case(
        "blocks that no other unit explains",
        f"write {VCUDA}-memory: 160 (blocks of 256 MiB: 40Gi) to fit node n",
        pod(container("main", {f"{VCUDA}-core": 50, f"{VCUDA}-memory": 200})),
        ((capacity("memory"), "40Gi"),),
    ),
)


@pytest.mark.parametrize("case", READINGS, ids=lambda case: case.name)
def test_an_amount_that_fits_in_another_unit_is_a_choice(case: Case) -> None:
    fixed = fixed_finding(case.pod, finding_of(case.amounts))

    assert fixed.fix == case.want
    assert bool(fixed.corrections) == ("was meant" not in case.want)


def test_an_amount_that_waits_for_devices_is_in_its_unit() -> None:
    """In blocks it fits a node, so nothing says that another unit was meant."""
    document = pod(container("main", {f"{VCUDA}-core": 50, f"{VCUDA}-memory": 300}))
    finding = msgspec.structs.replace(
        finding_of(((capacity("memory"), "40Gi"),)), code=Code.DOES_NOT_FIT_NOW
    )

    assert fixed_finding(document, finding).fix.startswith(f"write {VCUDA}-memory: 160 (blocks")


def aliyun(name: str, memory: int) -> Document:
    return container(name, {"aliyun.com/gpu-mem": memory})


def koordinator(name: str, memory: str) -> Document:
    return container(name, {"koordinator.sh/gpu-core": 40, "koordinator.sh/gpu-memory": memory})


SUMS = (
    (
        "a key in GiB",
        pod(aliyun("a", 40), aliyun("b", 48)),
        "80Gi",
        "aliyun.com/gpu-mem adds up to 88 (40 in container a + 48 in container b): too much",
        "write at most aliyun.com/gpu-mem: 80 in containers a and b together to fit node n",
    ),
    (
        "a key in bytes, of which each of the two GPUs has a half",
        pod(koordinator("a", "40Gi"), koordinator("b", "60Gi")),
        "40Gi",
        "koordinator.sh/gpu-memory adds up to 100Gi (40Gi in container a + 60Gi in container b): too much",
        "write at most koordinator.sh/gpu-memory: 80Gi in containers a and b together to fit node n",
    ),
)


@pytest.mark.parametrize(
    ("document", "amount", "detail", "fix"),
    [row[1:] for row in SUMS],
    ids=[row[0] for row in SUMS],
)
def test_a_sum_of_containers_is_told_with_its_parts(
    document: Document, amount: str, detail: str, fix: str
) -> None:
    fixed = fixed_finding(document, finding_of(((capacity("memory"), amount),)))

    assert (fixed.detail, fixed.fix, fixed.corrections) == (detail, fix, ())


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
    return fixed_finding(document, finding, cluster).fix


def fixed_finding(
    document: Document, finding: Finding, cluster: TranslationSnapshot = TWO_SIZES
) -> Finding:
    outcome = translation_of(document, cluster)
    translation = RecordedTranslation(
        record=outcome.record,
        paths=container_paths(pod_view(document)),
        profiles=profiles(),
    )
    (fixed,) = with_key_fixes([finding], FieldPath(), outcome.claims, translation)
    return fixed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_fix(case: Case) -> None:
    assert case.want == fix_of(case.pod, finding_of(case.amounts, claim=case.claim), case.cluster)


@pytest.mark.parametrize(
    ("other", "fix", "is_written"),
    [
        ("2", "write nvidia.com/gpu: 2 to fit node n", True),
        (
            "1",
            "write nvidia.com/gpu: 2 to fit node n, or write nvidia.com/gpu: 1 to fit node m",
            False,
        ),
    ],
    ids=["the same value fits another node", "another value fits another node"],
)
def test_alternatives_of_one_key_are_told_by_its_values(
    other: str, fix: str, is_written: bool
) -> None:
    finding = msgspec.structs.replace(
        finding_of(((alternative(0, "count"), "2"),)),
        other_fitting=finding_of(((alternative(1, "count"), other),), node="m").fitting,
    )

    fixed = fixed_finding(pod(gpus(3, pct=50)), finding, SIZE_BY_NODE)

    assert (fixed.fix, bool(fixed.corrections)) == (fix, is_written)


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
