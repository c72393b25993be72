"""`POST /validate/workloads`: the reasons that their pods would be rejected."""

from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from admission.webhook_configuration import (
    VALIDATE_WORKLOADS_PATH,
)
from testing.builders import container, gpus, pod, workload
from testing.documents import Document, api_object
from testing.hami_cluster import SNAPSHOT, context_fields
from testing.webhook_endpoint import (
    JSON,
    RESOURCES,
    REVIEW,
    Call,
    FixedEvaluator,
    StartEndpoint,
    WebhookEndpoint,
    encode,
    validate_workload,
    with_request,
    workload_review,
)

BYTES: Final = pod(gpus(1, mem="8Gi"))
"""A mistake that the API server lets pass."""


@pytest.mark.parametrize("kind", RESOURCES)
async def test_a_workload_whose_pods_would_be_denied_is_denied(
    kind: str, start: StartEndpoint
) -> None:
    endpoint = await start()

    response = await validate_workload(endpoint, workload(BYTES, kind))

    assert not response["allowed"]
    status = response["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert (status["details"]["kind"], status["details"]["name"]) == (kind, "train")
    (cause,) = status["details"]["causes"]
    above = "spec.jobTemplate.spec" if kind == "CronJob" else "spec"
    limit = "containers[0].resources.limits[nvidia.com/gpumem]"
    assert cause["field"] == f"{above}.template.spec.{limit}"
    assert status["message"].startswith(f"{kind} rejected: {cause['field']}: ")


async def test_a_workload_that_never_fits_is_told_what_to_write_into_its_key(
    start: StartEndpoint,
) -> None:
    rules = FixedEvaluator(lambda: SNAPSHOT, **context_fields())
    endpoint = await start(lambda: SNAPSHOT, rules)

    denied = await validate_workload(endpoint, workload(pod(gpus(1, mem=200000))))
    admitted = await validate_workload(endpoint, workload(pod(gpus(1, mem=81920))))

    fix = "write nvidia.com/gpumem: 81920 to fit node node-1"
    assert f"; {fix} (1 node: " in denied["status"]["message"]
    assert admitted["allowed"]


async def test_a_workload_with_a_lossy_translation_is_warned(start: StartEndpoint) -> None:
    endpoint = await start()
    policy = pod(gpus(1, mem=1), annotations={"hami.io/gpu-scheduler-policy": "binpack"})

    response = await validate_workload(endpoint, workload(policy))

    assert response["allowed"]
    (warning,) = response["warnings"]
    assert warning.startswith("drawbridge[policyDropped]: metadata.annotations[hami.io/gpu-sch")
    assert response["auditAnnotations"] == {"decision": "validated"}


async def test_several_claims_with_equal_devices_are_no_duplicates(start: StartEndpoint) -> None:
    endpoint = await start()
    own_claims = [{"name": "gpu", "resourceClaimName": "mine"}]

    divided = await validate_workload(endpoint, workload(pod(gpus(64))))
    beside_own = await validate_workload(
        endpoint, workload(pod(gpus(64), resourceClaims=own_claims))
    )

    assert [True, True] == [response["allowed"] for response in (divided, beside_own)]
    assert [None, None] == [response.get("warnings") for response in (divided, beside_own)]


async def test_an_update_of_a_workload(start: StartEndpoint) -> None:
    endpoint = await start()
    old = workload(BYTES)

    same = await validate_workload(
        endpoint, {**old, "metadata": {"name": "train", "labels": {"a": "b"}}}, old
    )
    mended = await validate_workload(endpoint, workload(pod(gpus(1, mem=8192))), old)
    broken = await validate_workload(endpoint, old, workload(pod(gpus(1, mem=8192))))

    assert [True, True, False] == [entry["allowed"] for entry in (same, mended, broken)]


@pytest.mark.parametrize(
    ("operation", "subresource"), [("DELETE", ""), ("UPDATE", "scale"), ("UPDATE", "status")]
)
async def test_other_operations_on_workloads_are_allowed(
    operation: str, subresource: str, start: StartEndpoint
) -> None:
    endpoint = await start()

    response = await validate_workload(
        endpoint, workload(BYTES), operation=operation, object=None, subResource=subresource
    )

    assert response["allowed"]


DEPLOYMENT: Final = workload_review(workload(BYTES))
WORKLOAD_CALLS: Final = (
    Call("no body", b"", 400),
    Call("a review of pods", encode(REVIEW), 400),
    Call("another kind of object", encode(with_request(DEPLOYMENT, kind={"kind": "Pod"})), 400),
    Call("no kind", encode(with_request(DEPLOYMENT, kind={})), 400),
    Call("another type of content", encode(DEPLOYMENT), 415, {"Content-Type": "text/plain"}),
)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"object": None}, id="missing"),
        pytest.param({"object": "a"}, id="text"),
        pytest.param({"object": {"spec": {}}}, id="no pod template"),
        pytest.param({"object": {"spec": "a"}}, id="a spec that is text"),
        pytest.param({"object": {"spec": {"template": "a"}}}, id="a pod template that is text"),
        pytest.param({"object": {"metadata": "a"}}, id="metadata that is text"),
        pytest.param({"object": workload(pod(gpus("x")))}, id="an amount that is no quantity"),
        pytest.param({"operation": "UPDATE"}, id="an update without what was"),
    ],
)
async def test_a_workload_that_cannot_be_read_is_admitted_with_a_warning(
    fields: dict[str, Any], start: StartEndpoint
) -> None:
    endpoint = await start()

    body = encode(with_request(DEPLOYMENT, **fields))
    answer = await endpoint.client.post(VALIDATE_WORKLOADS_PATH, data=body, headers=JSON)

    response = (await answer.json())["response"]
    assert (response["uid"], response["allowed"]) == (DEPLOYMENT["request"]["uid"], True)
    (warning,) = response["warnings"]
    assert warning.startswith("drawbridge[notEvaluated]")


@pytest.mark.parametrize("amount", ["1e400", "1" * 200, "1e4294967396"])
async def test_a_workload_with_more_than_anything_has_is_denied_with_its_field(
    amount: str, start: StartEndpoint
) -> None:
    endpoint = await start()

    body = encode(with_request(DEPLOYMENT, object=workload(pod(gpus(amount)))))
    answer = await endpoint.client.post(VALIDATE_WORKLOADS_PATH, data=body, headers=JSON)

    response = (await answer.json())["response"]
    assert not response["allowed"]
    (cause,) = response["status"]["details"]["causes"]
    assert cause["field"].startswith("spec.template.spec.containers[0].resources.limits")


@pytest.mark.parametrize("call", WORKLOAD_CALLS, ids=lambda call: call.name)
async def test_a_malformed_call_is_a_client_error(call: Call, start: StartEndpoint) -> None:
    endpoint = await start()

    answer = await endpoint.client.post(
        VALIDATE_WORKLOADS_PATH, data=call.body, headers=call.headers
    )

    assert call.status == answer.status
    assert not endpoint.sample(
        "controller_runtime_webhook_panics_total", webhook=VALIDATE_WORKLOADS_PATH
    )


async def test_validations_are_logged_and_counted_by_kind(start: StartEndpoint) -> None:
    endpoint = await start()
    with capture_logs() as lines:
        await validate_workload(endpoint, workload(BYTES))

    (line,) = (entry for entry in lines if entry["event"] == "workload.reviewed")
    assert (line["workload"], line["decision"]) == ("Deployment/team-a/train", "refused")
    assert endpoint.sample(
        "drawbridge_reviews_total", kind="Deployment", operation="CREATE", decision="refused"
    )
    assert endpoint.sample("drawbridge_findings_total", severity="error", code="wrongUnit")
    assert not endpoint.sample(
        "drawbridge_reviews_total", kind="Pod", operation="CREATE", decision="refused"
    )
    assert endpoint.sample(
        "controller_runtime_webhook_requests_total", webhook=VALIDATE_WORKLOADS_PATH, code="200"
    )


def training_job(amounts: Document) -> Document:
    return api_object(
        "PyTorchJob",
        "train",
        spec={
            "pytorchReplicaSpecs": {
                "Worker": {"replicas": 2, "template": pod(container("main", amounts))}
            }
        },
    )


async def review_of_job(
    endpoint: WebhookEndpoint, job: Document, old: Document | None = None
) -> Document:
    version = {"group": "kubeflow.org", "version": "v1"}
    about = {
        "kind": {**version, "kind": "PyTorchJob"},
        "resource": {**version, "resource": "pytorchjobs"},
        "object": job,
        "operation": "CREATE" if old is None else "UPDATE",
        "oldObject": old,
    }
    body = with_request(DEPLOYMENT, **about)
    answer = await endpoint.client.post(VALIDATE_WORKLOADS_PATH, json=body)
    assert answer.status == 200, await answer.text()
    response: Document = (await answer.json())["response"]
    return response


@pytest.mark.parametrize(
    ("amount", "message"),
    [
        ("8GB", 'Invalid value: "8GB": not a quantity; write 8192'),
        ("$GPU_MEMORY", 'Invalid value: "$GPU_MEMORY": not a quantity; write a whole number'),
        (True, "Invalid value: true: not a quantity; write a whole number"),
        ([1], "Invalid value: a list: not a quantity; write a whole number"),
    ],
)
async def test_a_workload_of_another_project_with_no_amount_is_denied_at_the_field(
    amount: object, message: str, start: StartEndpoint
) -> None:
    """The API server knows the schema of the kind only, and that may allow any text."""
    endpoint = await start()

    response = await review_of_job(
        endpoint, training_job({"nvidia.com/gpu": 1, "nvidia.com/gpumem": amount})
    )

    assert not response["allowed"]
    status = response["status"]
    assert status["code"] == 422
    (cause,) = (entry for entry in status["details"]["causes"] if "limits" in entry["field"])
    assert cause["field"] == (
        "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].resources.limits[nvidia.com/gpumem]"
    )
    assert message in cause["message"]


async def test_updates_from_and_to_no_amount(start: StartEndpoint) -> None:
    endpoint = await start()
    wrong = training_job({"nvidia.com/gpu": "$GPUS"})
    right = training_job({"nvidia.com/gpu": 1})

    responses = [
        await review_of_job(endpoint, *pair)
        for pair in ((right, wrong), (wrong, right), (wrong, wrong))
    ]

    assert [True, False, True] == [response["allowed"] for response in responses]
