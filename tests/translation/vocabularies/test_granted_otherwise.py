"""Keys with a grant by their legacy system that is easily read otherwise."""

from typing import Final

import pytest

from testing.builders import (
    HAMI,
    NVIDIA,
    container,
    devices_of,
    driver_slice,
    finding_codes,
    hami_gpu,
    mig_device,
    nvidia_gpu,
    pod,
    pod_view,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions
from translation.pipeline.translate import Refused
from translation.reading.untranslated_keys import check_untranslated_keys

TPU: Final = "google.com/tpu"
VOLCANO: Final = "volcano.sh/vgpu-"
MIG: Final = {f"{VOLCANO}mode": "mig"}
REPLACE: Final = "pod.koordinator.sh/replace-resources"
ADOPTING: Final = TranslationOptions(adopt_schedulers={"kai-scheduler": "default-scheduler"})


def tpus(name: str, count: int = 4) -> Document:
    return container(name, {TPU: count})


def test_tpus_of_a_node_are_not_divided_among_containers() -> None:
    outcome = translation_outcome(pod(tpus("a"), tpus("b")))

    assert isinstance(outcome, Refused)
    assert ["error cannotExpress"] == finding_codes(outcome.findings)


def test_an_init_container_runs_before_with_the_same_tpus() -> None:
    assert not isinstance(translation_outcome(pod(tpus("a"), init=[tpus("init")])), Refused)


def test_a_nic_of_volcano_engine_is_reported() -> None:
    asking = pod_view(pod(container("main", {"vke.volcengine.com/rdma": 8})))

    (finding,) = check_untranslated_keys(asking)

    assert "Volcano Engine" in finding.message


def test_a_share_of_volcano_without_cores_is_told_as_of_hami() -> None:
    snapshot = translation_snapshot(driver_slice(HAMI, hami_gpu()), publishes=frozenset({HAMI}))

    outcome = translation_of(pod(container("main", {f"{VOLCANO}memory": 3000})), snapshot)

    assert ["info uncappedCores"] == finding_codes(outcome.findings)


def test_a_percentage_chooses_a_mig_device_of_volcano() -> None:
    amounts = {f"{VOLCANO}number": 1, f"{VOLCANO}memory-percentage": 25}

    devices = (nvidia_gpu(), mig_device("19968Mi", "2g.20gb"), mig_device("40192Mi", "3g.40gb"))
    snapshot = translation_snapshot(driver_slice(NVIDIA, *devices))

    (claim,) = translation_of(pod(container("main", amounts), annotations=MIG), snapshot).claims

    (request,) = devices_of(claim)["requests"]
    ways = [way["name"] for way in request["firstAvailable"]]
    assert ["memory-19968mi", "memory-40192mi"] == ways


def test_a_percentage_of_volcano_needs_a_published_gpu() -> None:
    amounts = {f"{VOLCANO}number": 1, f"{VOLCANO}memory-percentage": 25}

    outcome = translation_outcome(pod(container("main", amounts), annotations=MIG))

    assert ["error memorySizesUnknown"] == finding_codes(outcome.findings)


def test_a_list_of_separators_is_no_constraint_of_volcano() -> None:
    asking = pod(
        container("main", {f"{VOLCANO}memory": 3000}),
        annotations={f"{VOLCANO}use-gpuuuid": " , "},
    )

    (claim,) = translation_of(asking).claims

    assert devices_of(claim) == devices_of(
        translation_of(pod(container("main", {f"{VOLCANO}memory": 3000}))).claims[0]
    )


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("5e-1", []),
        ("0.004", ["warning amountRoundedUp"]),
        ("+0.5", []),
        ("0.333", ["warning clamped"]),
        # As Python prints 1 / 3 and 1 / 3000.
        ("0.3333333333333333", ["warning clamped"]),
        ("0.0003333333333333333", ["warning amountRoundedUp"]),
    ],
)
def test_fractions_as_kai_parses_them(text: str, want: list[str]) -> None:
    asking = pod(
        container("main"), annotations={"gpu-fraction": text}, schedulerName="kai-scheduler"
    )
    snapshot = translation_snapshot(driver_slice(HAMI, hami_gpu()))

    codes = finding_codes(translation_of(asking, snapshot, ADOPTING).findings)

    assert want == [code for code in codes if code.endswith(("amountRoundedUp", "clamped"))]


def test_a_percentage_that_would_become_gpus_is_rejected_for_that_reason() -> None:
    asking = pod(
        container("main", {"koordinator.sh/gpu": 100}),
        annotations={REPLACE: "koordinator.sh/gpu:nvidia.com/gpu"},
    )

    outcome = translation_outcome(asking)

    assert isinstance(outcome, Refused)
    assert "error invalidCombination" in finding_codes(outcome.findings)


@pytest.mark.parametrize("cores", [0, None])
def test_no_limit_of_cores_of_a_dcu_is_reported_where_the_driver_gives_all(
    cores: int | None,
) -> None:
    amounts = {"hygon.com/dcunum": 1, "hygon.com/dcumem": 2000}
    if cores is not None:
        amounts["hygon.com/dcucores"] = cores

    outcome = translation_of(pod(container("main", amounts)))

    assert (["warning wholeDevice"] if cores == 0 else []) == finding_codes(outcome.findings)
