"""The endpoints in mode Shadow: no patch, no rejection, and metrics of another mode's answers."""

from typing import Final

import pytest
from structlog.testing import capture_logs

from process.model.durations import PositiveDuration
from testing.builders import admit, gpus, pod, with_changes, workload
from testing.documents import Document
from testing.webhook_endpoint import (
    StartEndpoint,
    apply_patch,
    mutate_pod,
    validate_workload,
)
from translation.cluster.snapshot import Mode, TranslationOptions

SHADOW: Final = TranslationOptions(mode=Mode.SHADOW)
SHADOWED: Final = "drawbridge_shadow_reviews_total"
REVIEWED: Final = "drawbridge_reviews_total"


@pytest.mark.parametrize(
    ("document", "decision"),
    [(pod(gpus(1, mem=1000)), "translated"), (pod(gpus("500m")), "refused")],
)
async def test_a_pod_is_admitted_as_it_is(
    document: Document, decision: str, start: StartEndpoint
) -> None:
    endpoint = await start(options=SHADOW)

    with capture_logs() as logs:
        response = await mutate_pod(endpoint, document)

    labels = {"kind": "Pod", "operation": "CREATE"}
    assert response["allowed"]
    assert apply_patch(document, response) == document
    assert not response.get("warnings")
    assert endpoint.sample(SHADOWED, decision=decision, **labels) == 1
    assert endpoint.sample(REVIEWED, decision="untouched", **labels) == 1
    (line,) = [line for line in logs if line["event"] == "pod.reviewed"]
    assert (line["decision"], line["shadow"]) == (decision, True)


async def test_a_user_whose_time_is_used_up_is_not_rejected(start: StartEndpoint) -> None:
    nothing = PositiveDuration(1e-9)
    endpoint = await start(options=SHADOW, user_cpu_fraction=1e-9, user_cpu_burst=nothing)

    responses = [await mutate_pod(endpoint, pod(gpus(1))) for _ in range(2)]

    assert [response["allowed"] for response in responses] == [True, True]
    assert endpoint.sample("drawbridge_requests_over_budget_total") == 1


async def test_a_dry_run_is_counted(start: StartEndpoint) -> None:
    endpoint = await start(options=SHADOW)

    response = await mutate_pod(endpoint, pod(gpus("500m")), dryRun=True)

    assert response["allowed"]
    assert "would be rejected" in response["warnings"][0]
    assert "drawbridge[notAnInteger]" in response["warnings"][1]


async def test_a_pod_that_was_translated_before_is_updated_as_ever(start: StartEndpoint) -> None:
    endpoint = await start(options=SHADOW)
    legacy = pod(gpus(1, mem=1000))
    live, _ = admit(legacy)
    applied = with_changes(live)
    applied["spec"]["containers"][0]["resources"]["limits"] = legacy["spec"]["containers"][0][
        "resources"
    ]["limits"]

    response = await mutate_pod(endpoint, applied, live)

    stripped = apply_patch(applied, response)["spec"]["containers"][0]["resources"]
    assert "nvidia.com/gpu" not in stripped.get("limits", {})


async def test_a_workload_is_never_rejected(start: StartEndpoint) -> None:
    endpoint = await start(options=SHADOW)
    document = workload(pod(gpus("500m")))

    refused = await validate_workload(await start(), document)
    response = await validate_workload(endpoint, document)
    dry = await validate_workload(endpoint, document, dryRun=True)

    assert not refused["allowed"]
    assert response["allowed"]
    assert not response.get("warnings")
    assert "would be rejected" in dry["warnings"][0]
    labels = {"kind": "Deployment", "operation": "CREATE", "decision": "refused"}
    assert endpoint.sample(SHADOWED, **labels) == 2


async def test_other_modes_count_no_shadow(start: StartEndpoint) -> None:
    endpoint = await start()

    await mutate_pod(endpoint, pod(gpus(1)))

    labels = {"kind": "Pod", "operation": "CREATE", "decision": "translated"}
    assert (endpoint.sample(REVIEWED, **labels), endpoint.sample(SHADOWED, **labels)) == (1, 0)
