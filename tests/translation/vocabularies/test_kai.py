"""Shares that only annotations request: the schedulers of their pods, and their values."""

from collections.abc import Mapping

import pytest

from admission.pods import Decision
from testing.builders import (
    HAMI,
    NAMESPACE,
    admit,
    container,
    devices_of,
    driver_slice,
    finding_codes,
    finding_texts,
    hami_gpu,
    pod,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.pipeline.translate import Refused, Untouched

KAI = "kai-scheduler"
ADOPTING = TranslationOptions(adopt_schedulers={KAI: "default-scheduler"})


def requesting(scheduler: str = KAI, /, **annotations: str) -> Document:
    named = {name.replace("_", "-"): text for name, text in annotations.items()}
    containers = (container("main"), container("side"))
    return pod(*containers, init=(container("init"),), annotations=named, schedulerName=scheduler)


def test_the_first_app_container_gets_the_share() -> None:
    after, answer = admit(requesting(gpu_memory="2000"), options=ADOPTING)

    (claim,) = answer.claims
    (request,) = devices_of(claim)["requests"]
    assert {"memory": "2000Mi", "cores": "0"} == request["exactly"]["capacity"]["requests"]
    assert ["main"] == [use.container for use in claim.uses]
    assert after["spec"]["schedulerName"] == "default-scheduler"
    assert "2000" == after["metadata"]["annotations"]["gpu-memory"]


def test_an_init_container_may_be_named() -> None:
    document = requesting(gpu_memory="2000", gpu_fraction_container_name="init")

    (claim,) = translation_of(document, options=ADOPTING).claims

    assert ["init"] == [use.container for use in claim.uses]


def test_another_round_of_admission_changes_nothing() -> None:
    after, _ = admit(requesting(gpu_memory="2000", gpu_fraction_num_devices="2"), options=ADOPTING)

    again, answer = admit(after, options=ADOPTING)

    assert (after, Decision.ACCEPTED) == (again, answer.decision)


def test_a_pod_of_another_scheduler_means_something_else() -> None:
    outcome = translation_outcome(
        requesting("default-scheduler", gpu_memory="a lot"), options=ADOPTING
    )

    assert outcome == Untouched()


def test_a_pod_of_a_scheduler_that_is_not_adopted_is_left_to_it() -> None:
    outcome = translation_outcome(requesting(gpu_memory="2000"))

    assert isinstance(outcome, Untouched)
    assert ["warning foreignScheduler"] == finding_codes(outcome.findings)
    # Without the scheduler the annotation requests nothing, and the pod would run without a GPU.
    (finding,) = outcome.findings
    assert finding.fix == (
        "list the scheduler in adoptSchedulers, or label the namespace "
        "drawbridge.internal/translate=true"
    )


def test_a_pod_with_keys_may_also_drop_the_scheduler() -> None:
    document = requesting()
    document["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}

    outcome = translation_outcome(document)

    assert isinstance(outcome, Untouched)
    (finding,) = outcome.findings
    assert finding.fix is not None
    assert finding.fix.startswith(
        "set schedulerName to default-scheduler, list the scheduler in adoptSchedulers"
    )


def test_annotations_without_a_share_request_nothing() -> None:
    document = requesting(gpu_fraction_num_devices="2", mps="true")

    assert translation_outcome(document, options=ADOPTING) == Untouched()


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0.3333333333333333", 33),
        ("0.00033333333333333335", 1),
        ("0.30000000000000000000", 30),
        ("0." + "9" * 12, 99),
        ("0." + "9" * 20, 99),
        ("00." + "9" * 20, 99),
        ("999." + "9" * 20 + "e-3", 99),
        ("00000000000000000000099e-2", 99),
    ],
)
def test_a_fraction_of_many_digits_is_in_percents_rounded_down(text: str, want: int) -> None:
    snapshot = translation_snapshot(driver_slice(HAMI, hami_gpu("100Gi")))

    (claim,) = translation_of(requesting(gpu_fraction=text), snapshot, ADOPTING).claims

    (request,) = devices_of(claim)["requests"]
    (alternative,) = request["firstAvailable"]
    assert f"{want}Gi" == alternative["capacity"]["requests"]["memory"]


REJECTED: tuple[tuple[Mapping[str, str], str], ...] = (
    ({"gpu_fraction": "1"}, "outOfRange metadata.annotations[gpu-fraction]"),
    ({"gpu_fraction": "0"}, "outOfRange metadata.annotations[gpu-fraction]"),
    ({"gpu_fraction": "1e1"}, "outOfRange metadata.annotations[gpu-fraction]"),
    ({"gpu_fraction": "abc"}, "outOfRange metadata.annotations[gpu-fraction]"),
    ({"gpu_fraction": "0." + "3" * 21}, "outOfRange metadata.annotations[gpu-fraction]"),
    ({"gpu_fraction": "0." + "9" * 400}, "outOfRange metadata.annotations[gpu-fraction]"),
    ({"gpu_memory": "2Gi"}, "outOfRange metadata.annotations[gpu-memory]"),
    ({"gpu_memory": "-5"}, "outOfRange metadata.annotations[gpu-memory]"),
    ({"gpu_memory": "\u0665"}, "outOfRange metadata.annotations[gpu-memory]"),
    (
        {"gpu_memory": "5", "gpu_fraction": "0.5"},
        "invalidCombination metadata.annotations[gpu-memory]",
    ),
    (
        {"gpu_memory": "5", "gpu_fraction_num_devices": "0"},
        "outOfRange metadata.annotations[gpu-fraction-num-devices]",
    ),
    (
        {"gpu_memory": "5", "gpu_fraction_container_name": "other"},
        "malformedAnnotation metadata.annotations[gpu-fraction-container-name]",
    ),
)


@pytest.mark.parametrize(("annotations", "want"), REJECTED, ids=lambda value: str(value)[:60])
def test_what_is_no_share_is_rejected_with_the_field(
    annotations: Mapping[str, str], want: str
) -> None:
    outcome = translation_outcome(requesting(**annotations), options=ADOPTING)

    assert isinstance(outcome, Refused)
    errors = [finding for finding in outcome.findings if finding.is_error]
    assert [f"error {want}"] == finding_texts(errors)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("8Gi", "write 8192, a number of MiB"),
        ("1GB", "write 954, a number of MiB"),
        ("-5", "write a whole number of MiB"),
    ],
)
def test_a_memory_in_bytes_is_reported_in_mebibytes(text: str, fix: str) -> None:
    outcome = translation_outcome(requesting(gpu_memory=text), options=ADOPTING)

    assert isinstance(outcome, Refused)
    assert [finding.fix for finding in outcome.findings if finding.is_error] == [fix]


def test_a_gpu_beside_a_share_is_rejected() -> None:
    document = pod(
        container("main", {"nvidia.com/gpu": 1}),
        annotations={"gpu-memory": "5"},
        schedulerName=KAI,
    )

    outcome = translation_outcome(document, options=ADOPTING)

    assert isinstance(outcome, Refused)
    path = "spec.containers[0].resources.limits[nvidia.com/gpu]"
    assert [f"error ambiguousOwner {path}"] == finding_texts(outcome.findings)


def test_other_devices_of_the_pod_are_translated_beside_a_share() -> None:
    document = pod(
        container("main", {"rdma/hca": 1}), annotations={"gpu-memory": "5"}, schedulerName=KAI
    )

    outcome = translation_of(document, options=ADOPTING)

    assert ["kai", "rdma"] == [used.vocabulary for used in outcome.record.profiles]


PREFIX = "train-abc1234-shared-gpu"


def with_references(document: Document) -> Document:
    """Return a pod as KAI's webhook leaves it."""
    document["metadata"].setdefault("annotations", {})["runai/shared-gpu-configmap"] = PREFIX
    name = f"{PREFIX}-0"
    first = document["spec"]["containers"][0]
    first["env"] = [
        {"name": key, "valueFrom": {"configMapKeyRef": {"name": name, "key": key}}}
        for key in ("NVIDIA_VISIBLE_DEVICES", "RUNAI_NUM_OF_GPUS", "GPU_PORTION")
    ]
    first["envFrom"] = [{"configMapRef": {"name": f"{name}-evar", "optional": False}}]
    document["spec"]["volumes"] = [{"name": f"{name}-vol", "configMap": {"name": name}}]
    return document


OPTED_IN = translation_snapshot(namespaces={NAMESPACE: {"drawbridge.internal/translate": "true"}})


@pytest.mark.parametrize(
    ("snapshot", "options"),
    [(translation_snapshot(), ADOPTING), (OPTED_IN, TranslationOptions())],
    ids=["adopted", "opted in"],
)
def test_config_maps_of_kais_binder_are_denied_with_the_way_out_of_its_webhook(
    snapshot: TranslationSnapshot, options: TranslationOptions
) -> None:
    document = with_references(requesting(gpu_memory="4000"))

    outcome = translation_outcome(document, snapshot, options)

    assert isinstance(outcome, Refused)
    (denial,) = [finding for finding in outcome.findings if finding.is_error]
    assert ["error cannotExpress metadata.annotations[runai/shared-gpu-configmap]"] == (
        finding_texts([denial])
    )
    assert f"{PREFIX}-..." in denial.message
    assert "spec.global.namespaceLabelSelector of KAI's Config" in (denial.fix or "")


def test_the_annotation_without_references_is_no_obstacle() -> None:
    document = requesting(gpu_memory="4000")
    document["metadata"]["annotations"]["runai/shared-gpu-configmap"] = PREFIX

    assert translation_of(document, options=ADOPTING).claims


def test_whole_gpus_with_a_stale_annotation_are_translated() -> None:
    document = with_references(requesting())
    document["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}

    assert translation_of(document, options=ADOPTING).claims


def test_a_share_that_stays_with_kai_is_not_allocated_twice() -> None:
    keeping = TranslationOptions(adopt_schedulers={KAI: KAI})

    outcome = translation_outcome(with_references(requesting(gpu_memory="4000")), options=keeping)

    assert isinstance(outcome, Untouched)
    (finding,) = outcome.findings
    assert ["warning foreignScheduler spec.schedulerName"] == finding_texts(outcome.findings)
    assert "with a claim it would have both" in finding.message


def test_whole_gpus_may_stay_with_kai() -> None:
    document = requesting()
    document["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}

    assert translation_of(document, options=TranslationOptions(adopt_schedulers={KAI: KAI})).claims
