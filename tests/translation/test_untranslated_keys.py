"""Device keys that no vocabulary translates are reported, and translated ones are not."""

from typing import NamedTuple

import pytest

from findings.finding import Finding, Severity
from kube.names import REQUEST_ANNOTATION
from testing.builders import container, pod, pod_view
from testing.documents import Document
from translation.model.device_families import FAMILIES, DeviceFamily
from translation.model.intents import Vocabulary
from translation.model.keys import ANY, Place, names
from translation.reading.arbiter import VOCABULARIES, extended_vocabularies
from translation.reading.untranslated_keys import MAX_COMPARED, MAX_KEYS, check_untranslated_keys


class Case(NamedTuple):
    name: str
    want: tuple[str, ...]
    pod: Document


CASES = (
    Case("a pod without devices", (), pod(container("main", {"cpu": 1, "memory": "1Gi"}))),
    Case("a translated key", (), pod(container("main", {"nvidia.com/gpu": 1}))),
    Case("a resource of Kubernetes", (), pod(container("main", {"hugepages-2Mi": "1Gi"}))),
    Case("a key of no device", (), pod(container("main", {"example.com/license": 1}))),
    Case(
        "a key of a license server, and resources of Kubernetes with words of devices",
        (),
        pod(
            container(
                "main",
                {
                    "devices.kubevirt.io/kvm": 1,
                    "acme.example/process": 1,
                    "batch.kubernetes.io/card": 1,
                    "node.k8s.io/gpu": 1,
                },
            )
        ),
    ),
    *(
        Case(
            f"a device of an unknown domain: {key}",
            (f"spec.containers[0].resources.limits[{key}]",),
            pod(container("main", {key: 1})),
        )
        for key in (
            *("acme.example/gpu", "acme.example/vGPU2", "gpu.acme.example/shared", "acme/npu"),
            *("acme.example/sriov_net_a", "acme.example/pf0_vfs", "acme.example/hpc-nic2"),
            *("acme.example/card", "xilinx/aws-vu9p-f1", "iluvatar.com/gpu"),
            *("cloud-tpus.google.com/v2", "alibabacloud.com/ppu", "elasticgpu.io/gpu-core"),
        )
    ),
    *(
        Case(
            f"an annotation by which a runtime injects devices: {name}",
            (f"metadata.annotations[{name}]",),
            pod(container("main"), annotations={name: "- path: /dev/nvidia0"}),
        )
        for name in (
            *("devices.gke.io/container.main", "nvidia.cdi.k8s.io/container.main"),
            *("cdi.k8s.io/main", "devices.nri.io/pod", "devices.noderesource.dev/pod"),
        )
    ),
    Case(
        "a key of another vendor",
        ("spec.containers[0].resources.limits[mthreads.com/vgpu]",),
        pod(container("main", {"mthreads.com/vgpu": 1})),
    ),
    Case(
        "several keys of a vendor are one finding",
        ("spec.containers[0].resources.limits[cambricon.com/vmlu]",),
        pod(container("main", {"cambricon.com/vmlu": 1, "cambricon.com/vmlu.smlu": 5})),
    ),
    Case(
        "keys of two vendors are two findings",
        (
            "spec.containers[0].resources.limits[furiosa.ai/rngd]",
            "spec.containers[1].resources.limits[metax-tech.com/gpu]",
        ),
        pod(container("a", {"furiosa.ai/rngd": 4}), container("b", {"metax-tech.com/gpu": 1})),
    ),
    Case(
        "an annotation of a pod without device keys",
        ("metadata.annotations[tensor-fusion.ai/hourly-pricing]",),
        pod(container("main"), annotations={"tensor-fusion.ai/hourly-pricing": "1Gi"}),
    ),
    Case(
        "an annotation that a vocabulary reads",
        (),
        pod(container("main"), annotations={"nvidia.com/use-gputype": "A100"}),
    ),
    Case(
        "an annotation of a vendor that no vocabulary reads",
        ("metadata.annotations[nvidia.com/use-gpuindexes]",),
        pod(container("main"), annotations={"nvidia.com/use-gpuindexes": "1"}),
    ),
    Case(
        "records of HAMi's scheduler",
        (),
        pod(
            container("main", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 2000}),
            annotations=dict.fromkeys(
                (
                    *("hami.io/vgpu-node", "hami.io/vgpu-time", "hami.io/bind-phase"),
                    *("hami.io/bind-time", "hami.io/vgpu-devices-allocated"),
                    *("hami.io/vgpu-devices-to-allocate", "hami.io/vgpu-mig-allocations"),
                ),
                "GPU-0,NVIDIA,2000,0:;",
            ),
        ),
    ),
    Case(
        "records of HAMi's scheduler on devices of other vendors",
        (),
        pod(
            container("main"),
            annotations={
                "hami.io/Ascend910B3-devices-allocated": "a",
                "huawei.com/Ascend910B3": "[]",
                "iluvatar.ai/predicate-gpu-idx-0": "0",
                "enflame.com/gcu-assigned-index": "0",
            },
        ),
    ),
    Case(
        "records of the schedulers of tensor-fusion, Koordinator, Volcano and Alibaba Cloud",
        (),
        pod(
            container("main"),
            annotations={
                "tensor-fusion.ai/gpu-ids": "a",
                "tensor-fusion.ai/gang-required-members": "2",
                "scheduling.koordinator.sh/device-allocated": "{}",
                "volcano.sh/vgpu-ids-new": "a",
                "ALIYUN_COM_GPU_MEM_IDX": "0",
            },
        ),
    ),
    Case(
        "a request beside a record",
        ("metadata.annotations[hami.io/use-other-uuid]",),
        pod(
            container("main"), annotations={"hami.io/vgpu-node": "a", "hami.io/use-other-uuid": "b"}
        ),
    ),
    Case(
        "a key that Koordinator's vocabulary rejects",
        (),
        pod(container("main", {"koordinator.sh/gpu": 50, "amd.com/gpu": 1})),
    ),
)


def paths(findings: tuple[Finding, ...]) -> tuple[str, ...]:
    return tuple(str(finding.path) for finding in findings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_untranslated_keys(case: Case) -> None:
    findings = check_untranslated_keys(pod_view(case.pod))

    assert case.want == paths(findings)
    assert all(finding.severity is Severity.INFO and finding.fix for finding in findings)


def test_a_key_that_a_class_maps_is_allocated_by_kubernetes() -> None:
    asking = pod_view(pod(container("main", {"furiosa.ai/rngd": 1})))

    assert () == check_untranslated_keys(asking, extended_resources=("furiosa.ai/rngd",))


def test_a_key_that_a_profile_lists_is_translated() -> None:
    vocabularies = extended_vocabularies([("sriov", ["intel.com/x700_pppoe"])])
    asking = pod_view(pod(container("main", {"intel.com/x700_pppoe": 1})))

    assert () == check_untranslated_keys(asking, vocabularies)
    assert check_untranslated_keys(asking)


def test_a_finding_names_a_few_keys_and_counts_the_others() -> None:
    keys = {f"huawei.com/{'x' * 300}{number}": 1 for number in range(500)}

    (finding,) = check_untranslated_keys(pod_view(pod(container("main", keys))))

    assert f"and {500 - MAX_KEYS} more are keys of Huawei's" in finding.message
    assert len(finding.message) < 400 * MAX_KEYS


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.owner)
def test_every_pattern_finds_its_family(family: DeviceFamily) -> None:
    resources = {name.replace(ANY, "other"): 1 for name in family.resources}
    annotations = {name.replace(ANY, "other"): "1" for name in family.annotations}
    asking = pod_view(pod(container("main", resources), annotations=annotations))

    findings = check_untranslated_keys(asking)

    assert {family.advice} == {finding.fix for finding in findings}


@pytest.mark.parametrize(
    "vocabulary", VOCABULARIES.values(), ids=lambda vocabulary: vocabulary.name
)
def test_no_key_of_a_vocabulary_is_reported(vocabulary: Vocabulary) -> None:
    keys = dict.fromkeys((*vocabulary.keys, *(f"{p}x" for p in vocabulary.key_prefixes)), 1)
    annotations = dict.fromkeys(names(vocabulary.table, Place.ANNOTATION), "x")
    scheduler = next(iter(vocabulary.schedulers), "")
    labels = dict([vocabulary.requesting_label] if vocabulary.requesting_label else ())

    asking = pod_view(
        pod(
            container("main", keys),
            annotations=annotations,
            labels=labels,
            schedulerName=scheduler,
        )
    )

    assert () == check_untranslated_keys(asking)


def test_no_key_is_advised_that_the_pod_has_already() -> None:
    named, alone = (
        check_untranslated_keys(
            pod_view(
                pod(
                    container(),
                    annotations=annotations,
                    labels={"tensor-fusion.ai/enabled": "true"},
                )
            )
        )
        for annotations in (
            {"tensor-fusion.ai/unknown": "a", "tensor-fusion.ai/vram-request": "8Gi"},
            {"tensor-fusion.ai/unknown": "a"},
        )
    )

    assert [finding.fix for finding in named] == [
        "remove it once nothing else reads it: the pod has keys that are translated"
    ]
    assert "write a translated key" in alone[0].fix


def test_keys_of_parts_of_npus_are_those_of_koordinator() -> None:
    limits = {"huawei.com/npu-core": 10, "huawei.com/npu-cpu": 2, "huawei.com/npu-dvpp": 100}

    (finding,) = check_untranslated_keys(pod_view(pod(container("main", limits))))

    assert (
        "are keys of Koordinator, or MindX's virtual NPUs and are not translated" in finding.message
    )
    assert "no profile serves these keys" in finding.fix
    assert "huawei.com/CHIP-memory" in finding.fix


@pytest.mark.parametrize("key", ["huawei.com/npu-core", "huawei.com/npu-number"])
def test_no_chip_is_invented(key: str) -> None:
    (finding,) = check_untranslated_keys(pod_view(pod(container("main", {key: 1}))))

    assert "huawei.com/Ascend" not in finding.fix
    assert "where CHIP is the nodes' chip" in finding.fix


def test_a_resource_beside_translated_keys_is_not_to_be_removed() -> None:
    limits = {"nvidia.com/gpu": 1, "nvidia.com/sriov_rdma_vf": 1}

    (finding,) = check_untranslated_keys(pod_view(pod(container("main", limits))))

    assert finding.fix.startswith("keep it while a device plugin serves it")


MISSPELT = (
    ("nvidia.com/gpu-mem", "nvidia.com/gpumem"),
    ("nvidia.com/gpumemory", "nvidia.com/gpumem"),
    ("nvidia.com/gpu-cores", "nvidia.com/gpucores"),
    ("hygon.com/dcumems", "hygon.com/dcumem"),
    ("nvidia.com/gpus", "nvidia.com/gpu"),
    ("nvidia.com/GPU", "nvidia.com/gpu"),
    ("koordinator.sh/gpu-cores", "koordinator.sh/gpu-core"),
    ("volcano.sh/vgpu-mem", "volcano.sh/vgpu-memory"),
)
MISSPELT_ANNOTATIONS = (
    ("nvidia.com/use-gputypes", "nvidia.com/use-gputype"),
    ("nvidia.com/use-gpuuid", "nvidia.com/use-gpuuuid"),
    ("tensor-fusion.ai/tflops-requests", "tensor-fusion.ai/tflops-request"),
    (
        "scheduling.koordinator.sh/device-joint-allocation",
        "scheduling.koordinator.sh/device-joint-allocate",
    ),
)
OTHER_NAMES = (
    "acme.example/gpu",
    "iluvatar.com/gpu",
    "amd.com/gpus-unknown",
    "nvidia.com/pgpu",
    "volcano.sh/gpu-memory",
    "mthreads.com/vgpu",
)


@pytest.mark.parametrize(("key", "want"), MISSPELT)
def test_a_misspelt_key_is_a_warning_with_the_right_one(key: str, want: str) -> None:
    (finding,) = check_untranslated_keys(
        pod_view(pod(container("main", {"nvidia.com/gpu": 1, key: 1})))
    )

    assert (Severity.WARNING, f"did you mean {want}?") == (finding.severity, finding.fix)
    assert f"spec.containers[0].resources.limits[{key}]" == str(finding.path)


@pytest.mark.parametrize(
    ("key", "want"),
    [
        ("nvdia.com/gpu", "nvidia.com/gpu"),
        ("nvidia.con/gpumem", "nvidia.com/gpumem"),
        ("ndivia.com/gpucores", "nvidia.com/gpucores"),
        ("volcano.io/vgpu-number", "volcano.sh/vgpu-number"),
        ("example.com/gpu", None),
        ("nvdia.com/license", None),
        (f"nvdia.com{'m' * 60}/gpu", None),
        ("nvdia.com/", None),
        ("node.kubernetes.io/gpu", None),
    ],
)
def test_a_key_of_a_misspelt_domain_is_a_warning(key: str, want: str | None) -> None:
    view = pod_view(pod(container("main", {key: 1})))
    findings = check_untranslated_keys(view)

    expected_fixes = [] if want is None else [f"did you mean {want}?"]
    warnings = [finding for finding in findings if finding.severity is Severity.WARNING]
    assert expected_fixes == [finding.fix for finding in warnings]
    assert len(findings) <= 1
    assert check_untranslated_keys(view, extended_resources=(key,)) == ()


def test_a_key_in_several_containers_is_reported_at_the_first() -> None:
    limits = {"nvdia.com/gpu": 1}
    (finding,) = check_untranslated_keys(
        pod_view(pod(container("first", limits), container("second", limits)))
    )

    assert "spec.containers[0].resources.limits[nvdia.com/gpu]" == str(finding.path)


@pytest.mark.parametrize(("name", "want"), MISSPELT_ANNOTATIONS)
def test_a_misspelt_annotation_is_a_warning_with_the_right_one(name: str, want: str) -> None:
    document = pod(container("main", {"nvidia.com/gpu": 1}), annotations={name: "A100"})
    (finding,) = check_untranslated_keys(pod_view(document))

    assert (Severity.WARNING, f"did you mean {want}?") == (finding.severity, finding.fix)


@pytest.mark.parametrize("key", OTHER_NAMES)
def test_a_name_of_another_meaning_is_not_called_misspelt(key: str) -> None:
    findings = check_untranslated_keys(pod_view(pod(container("main", {key: 1}))))

    assert [Severity.INFO] == [finding.severity for finding in findings]


def test_misspellings_are_bounded() -> None:
    keys = {f"nvidia.com/gpumem{'y' * count}": 1 for count in range(1, 3)}
    document = pod(
        container("main", keys),
        annotations={"nvidia.com/" + "use-gputype" * 30: "A"},
    )
    findings = check_untranslated_keys(pod_view(document))

    assert ["warning", "warning", "info"] == [finding.severity.value for finding in findings]


@pytest.mark.parametrize("name", ["gpu-fraction", "gpu-memory"])
def test_annotations_that_need_a_scheduler_are_reported_without_it(name: str) -> None:
    document = pod(container("main"), annotations={name: "0.5"})

    (finding,) = check_untranslated_keys(pod_view(document))

    assert (Severity.WARNING, f"metadata.annotations[{name}]") == (
        finding.severity,
        str(finding.path),
    )
    assert "kai-scheduler" in finding.message


TENSOR_FUSION = {
    "tensor-fusion.ai/gpu-count": "1",
    "tensor-fusion.ai/vram-request": "10Gi",
    "tensor-fusion.ai/gang-timeout": "60s",
}


def test_annotations_that_need_a_label_are_reported_without_it() -> None:
    document = pod(container("main"), annotations=TENSOR_FUSION)

    (finding,) = check_untranslated_keys(pod_view(document))

    assert (Severity.WARNING, "metadata.annotations[tensor-fusion.ai/gpu-count]") == (
        finding.severity,
        str(finding.path),
    )
    assert 'the label tensor-fusion.ai/enabled: "true"' in finding.message


def test_annotations_without_their_label_are_not_taken_for_translated_ones() -> None:
    annotations = {**TENSOR_FUSION, "tensor-fusion.ai/other": "x"}

    *_, finding = check_untranslated_keys(pod_view(pod(container("main"), annotations=annotations)))

    assert "write a translated key" in finding.fix


@pytest.mark.parametrize(
    ("resource", "advice"),
    [
        ("amd.com/nic", "for NICs"),
        ("amd.com/vnic", "for NICs"),
        ("huawei.com/ub_rdma", "for NICs"),
        ("spidernet.io/gpu1rdma", "for NICs"),
        ("dlb.intel.com/pf", "device plugin"),
        ("iaa.intel.com/wq-user-dedicated", "device plugin"),
    ],
)
def test_a_device_that_is_no_gpu_is_not_told_to_become_one(resource: str, advice: str) -> None:
    (finding,) = check_untranslated_keys(pod_view(pod(container("main", {resource: 1}))))

    assert advice in finding.fix
    assert "write" not in finding.fix


@pytest.mark.parametrize(
    "document",
    [
        pod(
            container("main"),
            annotations=TENSOR_FUSION,
            labels={"tensor-fusion.ai/enabled": "true"},
        ),
        pod(container("main"), annotations={"gpu-fraction": "1"}, schedulerName="kai-scheduler"),
        pod(container("main", {"nvidia.com/gpu": 1}), annotations={"gpu-fraction": "1"}),
        pod(container("main"), annotations={"gpu-fraction": "1", REQUEST_ANNOTATION: "{}"}),
    ],
    ids=["its label", "its scheduler", "a device key", "translated before"],
)
def test_annotations_that_need_a_scheduler_are_not_told_otherwise(document: Document) -> None:
    assert () == check_untranslated_keys(pod_view(document))


def test_few_keys_are_compared() -> None:
    """A pod has room for thousands of keys, and each comparison costs."""
    others = {f"nvidia.com/a{'b' * count}": "x" for count in range(MAX_COMPARED)}
    document = pod(container("main"), annotations={**others, "nvidia.com/use-gputypes": "A100"})

    assert ["info"] == [
        finding.severity.value for finding in check_untranslated_keys(pod_view(document))
    ]
