"""HAMi's policy mutex and its opt-out label, with the devices of every vendor that HAMi schedules."""

from typing import Any, NamedTuple

import pytest

from testing.builders import (
    HAMI,
    admit,
    container,
    devices_of,
    driver_slice,
    finding_codes,
    gpus,
    hami_gpu,
    pod,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions
from translation.model.choices import Choices, Exclusivity
from translation.pipeline.translate import Untouched

NPU = {"huawei.com/Ascend310P": 1, "huawei.com/Ascend310P-memory": 4000}
DCU = {"hygon.com/dcunum": 1, "hygon.com/dcumem": 4000}
NEVER = TranslationOptions(choices=Choices(exclusivity=Exclusivity.NEVER))
POLICY = "hami.io/gpu-scheduler-policy"


def asking(limits: dict[str, Any], **policies: str) -> Document:
    names = {"policy": POLICY, "nodes": "hami.io/node-scheduler-policy"}
    annotations = {names[name]: text for name, text in policies.items()}
    return pod(container("main", limits), annotations=annotations)


def capacity_of(document: Document, options: TranslationOptions | None = None) -> Any:
    (claim,) = translation_of(document, options=options).claims
    (request,) = devices_of(claim)["requests"]
    return (request["exactly"].get("capacity") or {}).get("requests") or {}


class Case(NamedTuple):
    name: str
    limits: dict[str, Any]
    options: TranslationOptions
    is_share: bool
    code: str


CASES = (
    Case("an NPU by default", NPU, TranslationOptions(), False, "warning wholeDevice"),
    Case("an NPU never", NPU, NEVER, True, "warning notExclusive"),
    Case("a DCU by default", DCU, TranslationOptions(), False, "warning wholeDevice"),
    Case("a DCU never", DCU, NEVER, True, "warning notExclusive"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_mutex_is_a_whole_device_or_a_warning(case: Case) -> None:
    document = asking(case.limits, policy="mutex")

    assert case.is_share == ("memory" in capacity_of(document, case.options))
    assert case.code in finding_codes(translation_of(document, options=case.options).findings)


@pytest.mark.parametrize("limits", [NPU, DCU], ids=["NPU", "DCU"])
def test_a_mutex_survives_another_round_of_admission(limits: dict[str, Any]) -> None:
    after, _ = admit(asking(limits, policy="mutex"))

    assert after == admit(after)[0]


@pytest.mark.parametrize("key", ["huawei.com/Ascend310P", "hygon.com/dcunum"])
def test_a_whole_device_is_exclusive_anyway(key: str) -> None:
    findings = translation_of(asking({key: 1}, policy="mutex")).findings

    assert "warning wholeDevice" not in finding_codes(findings)


@pytest.mark.parametrize("limits", [NPU, DCU], ids=["NPU", "DCU"])
@pytest.mark.parametrize("policies", [{"policy": "binpack"}, {"nodes": "spread"}])
def test_a_preference_is_dropped_with_a_warning(
    limits: dict[str, Any], policies: dict[str, str]
) -> None:
    (path,) = asking(limits, **policies)["metadata"]["annotations"]
    findings = translation_of(asking(limits, **policies)).findings

    places = [str(entry.path) for entry in findings if entry.code == "policyDropped"]
    assert f"metadata.annotations[{path}]" in places


@pytest.mark.parametrize("mode", ["mig", "mps"])
def test_mutex_is_dropped_with_a_warning_where_a_gpu_is_divided(mode: str) -> None:
    annotations = {POLICY: "mutex", "nvidia.com/vgpu-mode": mode}
    snapshot = translation_snapshot(driver_slice(HAMI, hami_gpu("80Gi")))

    outcome = translation_outcome(pod(gpus(1, mem=4000), annotations=annotations), snapshot)

    (dropped,) = [entry for entry in outcome.findings if entry.code == "policyDropped"]
    assert f"a claim in vgpu-mode {mode} cannot" in dropped.message


@pytest.mark.parametrize("limits", [NPU, DCU], ids=["NPU", "DCU"])
def test_hamis_label_opts_its_other_devices_out(limits: dict[str, Any]) -> None:
    outcome = translation_outcome(
        pod(container("main", limits), labels={"hami.io/webhook": "ignore"})
    )

    assert isinstance(outcome, Untouched)
    assert ["info optedOut"] == finding_codes(outcome.findings)
