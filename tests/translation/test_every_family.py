"""A key of each known family has a row on the page, and the code says the same."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

import pytest

from kube.names import DEFAULT_SCHEDULER_NAME
from testing.builders import container, pod, pod_view, profiles, translation_outcome
from testing.command import ROOT
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions, vocabularies_in_force
from translation.pipeline.translate import Translated, Untouched
from translation.reading.arbiter import VOCABULARIES
from translation.reading.untranslated_keys import check_untranslated_keys

PAGE: Final = (ROOT / "docs" / "vocabularies.md").read_text(encoding="utf-8")
ROWS: Final = tuple(
    pattern
    for line in PAGE.splitlines()
    if line.startswith(("| `", "|  | `"))
    for pattern in re.findall(r"`([^`]+)`", " | ".join(line.split("|")[1:3]))
)
"""The names and patterns in the first two columns of the page's tables."""

LIMITS: Final[Mapping[str, tuple[str, ...]]] = {
    "AMD": ("amd.com/gpu", "amd.com/gpumem", "amd.com/cpx_nps4"),
    "Google": ("google.com/tpu",),
    "AWS": (
        *("aws.amazon.com/neuron", "aws.amazon.com/neurondevice", "aws.amazon.com/neuroncore"),
        "vpc.amazonaws.com/efa",
        "k8s.amazonaws.com/vgpu",
    ),
    "Intel": (
        *("gpu.intel.com/i915", "gpu.intel.com/xe", "gpu.intel.com/millicores", "intel.com/gpu"),
        *("habana.ai/gaudi", "intel.com/gaudi", "intel.com/qat", "qat.intel.com/generic"),
        *("dsa.intel.com/wq-user-shared", "intel.com/intel_sriov_netdevice"),
    ),
    "Huawei": (
        *("huawei.com/Ascend910", "huawei.com/Ascend310P", "huawei.com/Ascend910B3-memory"),
        *("huawei.com/npu-core", "huawei.com/npu-cpu", "huawei.com/npu-number"),
    ),
    "Volcano": ("volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/gpu-memory"),
    "Alibaba Cloud": ("aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage", "aliyun/erdma"),
    "NVIDIA": ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"),
    "Tencent": ("tencent.com/vcuda-core", "tke.cloud.tencent.com/qgpu-memory"),
    "Volcano Engine": ("vke.volcengine.com/mgpu-core",),
    "nos": ("nos.nebuly.com/gpu-10gb",),
    "Hygon": ("hygon.com/dcunum", "hygon.com/hcumem", "hygon.com/dcu", "dcu.com/gpu"),
    "Rebellions": ("rebellions.ai/npu", "rebellions.ai/ATOM"),
    "MetaX": ("metax-tech.com/gpu", "metax-tech.com/sgpu"),
    "Cambricon": ("cambricon.com/mlu", "cambricon.com/vmlu"),
    "Moore Threads": ("mthreads.com/vgpu", "mthreads.com/sgpu-core"),
    "Iluvatar": ("iluvatar.ai/gpu", "iluvatar.ai/BI-V150-vgpu"),
    "Biren": ("birentech.com/gpu",),
    "Kunlunxin": ("kunlunxin.com/xpu",),
    "Enflame": ("enflame.com/gcu",),
    "Vastai": ("vastaitech.com/va",),
    "FuriosaAI": ("furiosa.ai/rngd",),
    "Qualcomm": ("qualcomm.com/qaic",),
    "Tenstorrent": ("tenstorrent.com/n150",),
    "IBM": ("ibm.com/spyre_pf", "ibm.com/aiu_pf"),
    "earlier Koordinator": ("kubernetes.io/gpu-core", "kubernetes.io/gpu", "kubernetes.io/rdma"),
}
"""Vendor or system to resource names that its documentation or manifests of others have."""
ANNOTATED: Final[Mapping[str, Document]] = {
    "gpu-fraction": pod(
        container(), annotations={"gpu-fraction": "0.5"}, schedulerName="runai-scheduler"
    ),
    "gpu-memory": pod(
        container(), annotations={"gpu-memory": "2000"}, schedulerName="kai-scheduler"
    ),
    "tensor-fusion.ai/vram-request": pod(
        container(),
        annotations={"tensor-fusion.ai/vram-request": "10Gi"},
        labels={"tensor-fusion.ai/enabled": "true"},
    ),
    "tensor-fusion.ai/hourly-pricing": pod(
        container(), annotations={"tensor-fusion.ai/hourly-pricing": "1"}
    ),
    "nvidia.com/use-gpuindexes": pod(container(), annotations={"nvidia.com/use-gpuindexes": "1"}),
    "hami.io/use-xpu-uuid": pod(container(), annotations={"hami.io/use-xpu-uuid": "a"}),
}
"""Annotation that requests or steers devices alone to a pod with it."""
OPTIONS: Final = TranslationOptions(
    adopt_schedulers=dict.fromkeys(("kai-scheduler", "runai-scheduler"), DEFAULT_SCHEDULER_NAME)
)


def has_answer(document: Document) -> bool:
    """Return True if a pod is translated, or something is said about it."""
    outcome = translation_outcome(document, options=OPTIONS)
    vocabularies = vocabularies_in_force(OPTIONS, profiles())
    return bool(
        isinstance(outcome, Translated)
        or (not isinstance(outcome, Untouched) and outcome.findings)
        or list(check_untranslated_keys(pod_view(document), vocabularies, {}))
    )


def has_row(name: str) -> bool:
    """Return True if the page's tables have a name, or a pattern of it."""
    return any(fnmatchcase(name, row) for row in ROWS)


@pytest.mark.parametrize("family", LIMITS)
def test_a_resource_of_a_family_has_a_row_and_an_answer(family: str) -> None:
    for name in LIMITS[family]:
        assert has_row(name), name
        assert has_answer(pod(container("main", {name: 100}))), name


@pytest.mark.parametrize("name", ANNOTATED)
def test_an_annotation_of_a_family_has_a_row_and_an_answer(name: str) -> None:
    assert has_row(name), name
    assert has_answer(ANNOTATED[name]), name


def test_a_name_of_nobody_has_neither() -> None:
    name = "example.com/license"

    assert not has_row(name)
    assert not has_answer(pod(container("main", {name: 1})))


def test_every_vocabulary_has_a_chapter() -> None:
    chapters = set(re.findall(r"^## ([a-z]+):", PAGE, re.MULTILINE))

    assert set(VOCABULARIES) <= chapters
