"""Warnings about pods and workloads with more devices than a ResourceQuota has left."""

from typing import Any, Final

import msgspec
import pytest

from admission.webhook_configuration import VALIDATE_OBJECTS_PATH
from kube.api.core import ResourceQuota
from kube.api.meta import convert
from testing.builders import NAMESPACE, admit, container, gpus, pod, workload
from testing.documents import Document
from testing.hami_cluster import HAMI, SNAPSHOT, context_fields
from testing.webhook_endpoint import (
    JSON,
    FixedEvaluator,
    StartEndpoint,
    WebhookEndpoint,
    encode,
    review,
    validate_workload,
)

DEVICES: Final = f"{HAMI}.deviceclass.resource.k8s.io/devices"


def quota(hard: int, used: int, line: str = DEVICES, **spec: Any) -> ResourceQuota:
    return convert(
        {
            "metadata": {"name": "gpus", "namespace": NAMESPACE},
            "spec": {"hard": {line: str(hard)}, **spec},
            "status": {"hard": {line: str(hard)}, "used": {line: str(used)}},
        },
        ResourceQuota,
    )


async def endpoint_with(start: StartEndpoint, *quotas: ResourceQuota) -> WebhookEndpoint:
    usage = {NAMESPACE: {str(number): entry for number, entry in enumerate(quotas)}}
    snapshot = msgspec.structs.replace(SNAPSHOT, quota_usage=usage)
    return await start(lambda: snapshot, FixedEvaluator(lambda: snapshot, **context_fields()))


def deployment(replicas: int, gpu: int = 1) -> Document:
    document = workload(pod(gpus(gpu, mem=1000)))
    return {**document, "spec": {**document["spec"], "replicas": replicas}}


async def warnings_about(
    endpoint: WebhookEndpoint, document: Document, *old: Document
) -> list[str]:
    response = await validate_workload(endpoint, document, *old)
    assert response["allowed"]
    return [text for text in response.get("warnings", ()) if "[exceedsQuota]" in text]


@pytest.mark.parametrize(
    ("replicas", "gpu", "words"),
    [
        (1, 1, None),
        (2, 1, "requested 2 by 2 pods, used 3, hard 4; some pods wait for their claims"),
        (1, 2, "requested 2, used 3, hard 4; the pod waits for its claim"),
        (0, 2, None),
    ],
)
async def test_a_deployment_is_told_what_is_left(
    replicas: int, gpu: int, words: str | None, start: StartEndpoint
) -> None:
    endpoint = await endpoint_with(start, quota(4, 3))

    texts = await warnings_about(endpoint, deployment(replicas, gpu))

    assert bool(texts) == (words is not None)
    assert words is None or words in "".join(texts)


async def test_the_number_that_is_left_is_in_the_key_of_the_pod(start: StartEndpoint) -> None:
    endpoint = await endpoint_with(start, quota(4, 3))

    text = " ".join(await warnings_about(endpoint, deployment(1, gpu=2)))

    assert "containers[0].resources.limits[nvidia.com/gpu]" in text
    assert "write nvidia.com/gpu: 1 to fit what is left of ResourceQuota gpus" in text


async def test_the_pods_of_an_updated_workload_are_in_use_already(start: StartEndpoint) -> None:
    full = await endpoint_with(start, quota(4, 4))
    small = await endpoint_with(start, quota(1, 1))

    assert await warnings_about(full, deployment(4, gpu=2), deployment(4)) == []
    assert await warnings_about(small, deployment(1, gpu=2), deployment(1)) != []


async def test_the_key_of_a_device_plugin_counts(start: StartEndpoint) -> None:
    endpoint = await endpoint_with(start, quota(4, 2, "requests.example.com/npu"))
    document = workload(pod(container("main", {"example.com/npu": 3})))

    (text,) = await warnings_about(endpoint, document)

    assert "the pods would be rejected now: exceeds ResourceQuota gpus" in text


async def test_a_quota_of_other_pods_does_not_count(start: StartEndpoint) -> None:
    of_best_effort = quota(1, 1, "requests.example.com/npu", scopes=["BestEffort"])
    endpoint = await endpoint_with(start, of_best_effort)
    amounts = {"example.com/npu": 3, "cpu": 1}

    assert await warnings_about(endpoint, workload(pod(container("main", amounts)))) == []


async def test_a_translated_pod_is_told_beside_its_claims(start: StartEndpoint) -> None:
    endpoint = await endpoint_with(start, quota(4, 4))
    translated, _ = admit(pod(gpus(1, mem=1000)), SNAPSHOT)

    answer = await endpoint.client.post(
        VALIDATE_OBJECTS_PATH, data=encode(review(translated)), headers=JSON
    )

    response = (await answer.json())["response"]
    assert response["allowed"]
    assert any("requested 1, used 4, hard 4" in text for text in response["warnings"])
