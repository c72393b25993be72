"""tensor-fusion's shares: the schedulers of their pods, their amounts, and warnings."""

import pytest

from admission.pods import Decision
from kube.api.resource import ResourceSlice
from testing.builders import (
    HAMI,
    admit,
    container,
    device,
    devices_of,
    driver_slice,
    finding_codes,
    finding_texts,
    gpus,
    hami_gpu,
    pod,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions
from translation.pipeline.translate import Refused, Untouched

OURS = "gpu.drawbridge.internal"
WITH_TFLOPS = driver_slice(
    OURS,
    device(
        shared=True,
        attributes={"type": "gpu"},
        capacity={"memory": "80Gi", "cores": "100", "tflops": "312"},
    ),
)


def requesting(*containers: Document, enabled: str = "true", **annotations: str) -> Document:
    named = {
        f"tensor-fusion.ai/{name.replace('_', '-')}": text for name, text in annotations.items()
    }
    return pod(
        *(containers or (container("main"),)),
        annotations=named,
        labels={"tensor-fusion.ai/enabled": enabled},
    )


def request_of(document: Document, *slices: ResourceSlice) -> Document:
    (claim,) = translation_of(document, translation_snapshot(*slices)).claims
    (request,) = devices_of(claim)["requests"]
    exactly: Document = request["exactly"]
    return exactly


def test_tflops_go_where_a_driver_publishes_them() -> None:
    document = requesting(vram_request="8Gi", tflops_request="40.5")

    for slices in ((WITH_TFLOPS,), (driver_slice(HAMI, hami_gpu()), WITH_TFLOPS)):
        request = request_of(document, *slices)
        assert request["deviceClassName"] == OURS
        assert {"memory": "8Gi", "cores": "0", "tflops": "40500m"} == request["capacity"][
            "requests"
        ]


def test_tflops_are_reported_where_no_driver_publishes_them() -> None:
    document = requesting(vram_request="8Gi", tflops_request="40")

    translated = translation_of(document, translation_snapshot(driver_slice(HAMI, hami_gpu())))

    path = "metadata.annotations[tensor-fusion.ai/tflops-request]"
    assert f"warning notPublishedByDriver {path}" in finding_texts(translated.findings)


def test_a_percentage_is_of_the_cores() -> None:
    request = request_of(requesting(vram_limit="8Gi", compute_percent_limit="30.7"))

    assert {"memory": "8Gi", "cores": "30"} == request["capacity"]["requests"]


@pytest.mark.parametrize("annotation", ["compute_percent_request", "tflops_request"])
def test_compute_without_memory_takes_all_of_it_and_says_so(annotation: str) -> None:
    translated = translation_of(requesting(**{annotation: "30"}), translation_snapshot(WITH_TFLOPS))

    (claim,) = translated.claims
    (request,) = devices_of(claim)["requests"]
    assert "memory" not in request["exactly"]["capacity"]["requests"]
    assert "warning wholeDevice" in finding_codes(translated.findings)


def test_tflops_precede_a_percentage() -> None:
    request = request_of(requesting(tflops_limit="40", compute_percent_request="30"), WITH_TFLOPS)

    assert {"cores": "0", "tflops": "40"} == request["capacity"]["requests"]


def test_a_limit_above_the_request_is_reported() -> None:
    translated = translation_of(requesting(vram_request="8Gi", vram_limit="16Gi"))

    assert ["warning clamped"] == finding_codes(translated.findings)


def test_injected_containers_share_the_devices() -> None:
    document = requesting(
        *(container(name) for name in ("a", "b", "c")), vram_request="8Gi", inject_container="a, c"
    )

    (claim,) = translation_of(document).claims

    assert ["a", "c"] == [use.container for use in claim.uses]


def test_whole_gpus_by_number() -> None:
    request = request_of(requesting(gpu_count="2", isolation="shared"))

    assert (2, {"cores": "100"}) == (request["count"], request["capacity"]["requests"])


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        ({"vram_request": "8Gi", "gpu_count": "0"}, "outOfRange"),
        ({"vram_request": "8Gi", "gpu_count": "129"}, "outOfRange"),
        ({"vram_request": "8GB"}, "invalidQuantity"),
        ({"vram_request": "-1"}, "invalidQuantity"),
        ({"vram_request": "1500m"}, "invalidQuantity"),
        ({"tflops_request": "many"}, "invalidQuantity"),
        ({"compute_percent_request": "101"}, "outOfRange"),
        ({"gpu_count": "1"}, "memoryAmountRequired"),
        ({"vram_request": "8Gi", "dedicated_gpu": "true"}, "invalidCombination"),
        ({"vram_request": "8Gi", "inject_container": "other"}, "malformedAnnotation"),
        ({"vram_request": "8Gi", "gpu_model": " "}, "malformedAnnotation"),
        ({"isolation": "partitioned"}, "memoryAmountRequired"),
        ({"isolation": "partitioned", "partition_id": '"]'}, "malformedAnnotation"),
        ({"workload_profile": "small"}, "cannotExpress"),
    ],
)
def test_mistakes(annotations: dict[str, str], want: str) -> None:
    outcome = translation_outcome(requesting(**annotations))

    assert isinstance(outcome, Refused)
    assert f"error {want}" in finding_codes(outcome.findings)


@pytest.mark.parametrize(
    ("annotations", "fix"),
    [
        ({"vram_request": "100GB"}, "write 100G"),
        ({"vram_request": "8 GiB"}, "write 8Gi"),
        ({"vram_request": "much"}, "write a quantity such as 10Gi"),
        ({"vram_request": "8Gi", "tflops_request": "624 TFLOPS"}, "write 624"),
        ({"vram_request": "8Gi", "tflops_request": "many"}, "write a number"),
    ],
)
def test_a_text_that_is_no_amount_is_told_the_amount(annotations: dict[str, str], fix: str) -> None:
    outcome = translation_outcome(requesting(**annotations))

    assert isinstance(outcome, Refused)
    assert [finding.fix for finding in outcome.findings if finding.is_error] == [fix]


def test_a_name_that_no_container_has_is_corrected() -> None:
    outcome = translation_outcome(
        requesting(
            container("proxy"), container("pytorch"), vram_request="8Gi", inject_container="torch"
        )
    )

    assert isinstance(outcome, Refused)
    assert ['did you mean "pytorch"? The containers are "proxy", "pytorch"'] == [
        finding.fix for finding in outcome.findings
    ]


def test_several_containers_need_a_name() -> None:
    outcome = translation_outcome(requesting(container("a"), container("b"), vram_request="8Gi"))

    assert isinstance(outcome, Refused)


def test_without_the_label_the_annotations_mean_nothing() -> None:
    assert isinstance(
        translation_outcome(requesting(enabled="false", vram_request="8Gi")), Untouched
    )


def test_another_round_of_admission_changes_nothing() -> None:
    after, _ = admit(requesting(vram_request="8Gi", gpu_count="2"))

    again, answer = admit(after)

    assert (after, Decision.ACCEPTED) == (again, answer.decision)


def test_a_gpu_beside_the_annotations_is_refused() -> None:
    _, answer = admit(requesting(gpus(1), vram_request="8Gi"))

    assert not answer.allowed


def test_a_pod_of_its_scheduler_needs_adoption() -> None:
    document = requesting(vram_request="8Gi")
    document["spec"]["schedulerName"] = "tensor-fusion-scheduler"
    adopting = TranslationOptions(adopt_schedulers={"tensor-fusion-scheduler": "default-scheduler"})

    assert isinstance(translation_outcome(document), Untouched)
    assert "default-scheduler" == translation_of(document, options=adopting).scheduler_name


def test_a_share_that_stays_with_tensor_fusion_is_not_allocated_twice() -> None:
    document = requesting(vram_request="8Gi")
    document["spec"]["schedulerName"] = "tensor-fusion-scheduler"
    keeping = TranslationOptions(
        adopt_schedulers={"tensor-fusion-scheduler": "tensor-fusion-scheduler"}
    )

    outcome = translation_outcome(document, options=keeping)

    assert isinstance(outcome, Untouched)
    assert ["warning foreignScheduler spec.schedulerName"] == finding_texts(outcome.findings)


def test_whole_gpus_of_the_device_plugins_key_stand_beside_shared() -> None:
    document = requesting(gpus(2), isolation="shared")

    (claim,) = translation_of(document).claims

    assert devices_of(translation_of(pod(gpus(2))).claims[0]) == devices_of(claim)


def test_whole_gpus_beside_shared_are_translated_once() -> None:
    document = requesting(gpus(2), isolation="shared")

    translated, _ = admit(document)
    again, answer = admit(translated)

    assert answer.decision is Decision.ACCEPTED
    assert translated == again


@pytest.mark.parametrize(
    ("containers", "annotations"),
    [
        ((gpus(2),), {"isolation": "soft"}),
        ((gpus(2),), {"isolation": "shared", "gpu_count": "1"}),
        ((gpus(2),), {"isolation": "shared", "gpu_model": "A100"}),
        ((gpus(2), container("side")), {"isolation": "shared", "inject_container": "side"}),
        ((gpus(1), gpus(1, name="side")), {"isolation": "shared"}),
    ],
)
def test_other_annotations_beside_the_device_plugins_key_are_refused(
    containers: tuple[Document, ...], annotations: dict[str, str]
) -> None:
    outcome = translation_outcome(requesting(*containers, **annotations))

    assert isinstance(outcome, Refused)
    assert "error ambiguousOwner" in finding_codes(outcome.findings)


@pytest.mark.parametrize(
    ("model", "want"),
    [
        ("NVIDIA L4", '.productName == "NVIDIA L4"'),
        ("Tesla T4", '.productName == "Tesla T4"'),
        ("A100", '.productName.lowerAscii().contains("a100")'),
    ],
)
def test_a_whole_product_name_is_no_part_of_one(model: str, want: str) -> None:
    (claim,) = translation_of(requesting(vram_request="8Gi", gpu_model=model)).claims

    (request,) = devices_of(claim)["requests"]
    expressions = [entry["cel"]["expression"] for entry in request["exactly"]["selectors"]]
    assert any(want in expression for expression in expressions), expressions


@pytest.mark.parametrize(("published", "told"), [("NVIDIA L40S", True), ("NVIDIA L4", False)])
def test_a_product_name_of_no_device_is_reported(published: str, told: bool) -> None:
    snapshot = translation_snapshot(driver_slice(HAMI, hami_gpu("24Gi", published)))
    document = requesting(vram_request="8Gi", gpu_model="NVIDIA L4")

    findings = translation_of(document, snapshot).findings

    assert told == ("warning selectorMatchesNothing" in finding_codes(findings))
