"""Translations by vocabulary, driver and outcome, as the webhook counts them."""

import json
from typing import Final, NamedTuple

import msgspec
import pytest

from admission.webhook_configuration import VALIDATE_OBJECTS_PATH, VALIDATE_WORKLOADS_PATH
from kube.names import REQUEST_ANNOTATION
from testing.builders import HAMI, admit, container, gpus, limits, pod, profiles, workload
from testing.documents import Document, api_object
from testing.hami_cluster import SNAPSHOT, context_fields
from testing.webhook_endpoint import (
    FixedEvaluator,
    StartEndpoint,
    WebhookEndpoint,
    apply_patch,
    mutate_pod,
    review,
    validate_workload,
    with_request,
    workload_review,
)
from translation.cluster.snapshot import Mode, TranslationOptions
from translation.compiling.claims import TRANSLATION_VERSION
from translation.record.record import TranslationRecord, UsedProfile
from translation.record.recorded_translation import RecordedTranslation

NVIDIA: Final = "gpu.nvidia.com"
TOO_LARGE: Final = pod(gpus(1, mem=200000))
"""A pod with more memory than any device has."""
KEPT_NIC: Final = pod(
    container("main", {"nvidia.com/gpu": 1, "aliyun/erdma": 1}),
    annotations={"k8s.v1.cni.cncf.io/networks": "other"},
)
"""A pod that has a device key after its translation, too."""


def translations(endpoint: WebhookEndpoint) -> dict[tuple[str, str, str], float]:
    """Return vocabulary, driver and outcome to the number of translations."""
    return {
        (
            sample.labels["vocabulary"],
            sample.labels["driver"],
            sample.labels["outcome"],
        ): sample.value
        for metric in endpoint.registry.collect()
        for sample in metric.samples
        if sample.name == "drawbridge_translations_total"
    }


async def test_translated_pods_are_counted_once(start: StartEndpoint) -> None:
    endpoint = await start()

    for document in (pod(gpus(1)), KEPT_NIC, pod(gpus(1, mem=1000)), pod()):
        response = await mutate_pod(endpoint, document)
        await mutate_pod(endpoint, apply_patch(document, response))

    assert translations(endpoint) == {
        ("nvidia", NVIDIA, "translated"): 2,
        ("hami", HAMI, "translated"): 1,
    }
    assert endpoint.sample("drawbridge_translated_claims_total") == 3


def forged_pod() -> Document:
    """Return a pod with an invented vocabulary and driver in its record."""
    record = {
        "translationVersion": TRANSLATION_VERSION,
        "profiles": [{"vocabulary": "invented", "name": "invented.example", "hash": "0"}],
        "containers": [{"name": "main", "limits": {"nvidia.com/gpu": "1"}}],
    }
    return pod(gpus(), annotations={REQUEST_ANNOTATION: json.dumps(record)})


class RefusedPod(NamedTuple):
    name: str
    drivers: dict[str, str]
    pod: Document


REFUSED_PODS: Final = (
    RefusedPod("an amount that is not whole", {"nvidia": NVIDIA}, pod(gpus("500m"))),
    RefusedPod("memory that is not whole", {"hami": HAMI}, pod(gpus(1, mem="1500m"))),
    RefusedPod(
        "a device that its driver does not have",
        {"koordinator": HAMI},
        pod(container("main", {"koordinator.sh/fpga": 1})),
    ),
    RefusedPod(
        "keys of two vocabularies, one of them wrong",
        {"nvidia": NVIDIA, "rdma": "dra.net"},
        pod(container("main", {"nvidia.com/gpu": "500m", "rdma/hca": 1})),
    ),
    RefusedPod(
        "a request beside another limit: no driver was chosen",
        {"nvidia": ""},
        pod(container("main", resources={"limits": limits(1), "requests": limits(2)})),
    ),
    RefusedPod(
        "a request without a limit",
        {"nvidia": ""},
        pod(container("main", resources={"requests": limits(1)})),
    ),
    RefusedPod(
        "keys of two systems in one container",
        {"nvidia": "", "volcano": ""},
        pod(container("main", {"nvidia.com/gpu": 1, "volcano.sh/vgpu-number": 1})),
    ),
    RefusedPod("a forged record, whose texts are no labels", {}, forged_pod()),
)


@pytest.mark.parametrize("case", REFUSED_PODS, ids=lambda case: case.name)
async def test_a_refused_pod_is_counted_by_the_vocabularies_of_its_keys(
    case: RefusedPod, start: StartEndpoint
) -> None:
    endpoint = await start()

    response = await mutate_pod(endpoint, case.pod)

    assert not response["allowed"]
    assert translations(endpoint) == {
        (vocabulary, driver, "refused"): 1 for vocabulary, driver in case.drivers.items()
    }


async def test_workloads_are_counted_apart_from_their_pods(start: StartEndpoint) -> None:
    endpoint = await start()

    await validate_workload(endpoint, workload(pod(gpus(1))))
    await validate_workload(endpoint, workload(pod(gpus("500m"))))

    assert translations(endpoint) == {
        ("nvidia", NVIDIA, "validated"): 1,
        ("nvidia", NVIDIA, "refused"): 1,
    }
    # A workload itself gets none.
    assert not endpoint.sample("drawbridge_translated_claims_total")


async def test_a_workload_counts_for_the_vocabularies_of_all_its_pods(start: StartEndpoint) -> None:
    endpoint = await start()
    roles = {"Master": gpus(1), "Worker": gpus(1, mem=1000)}
    specs = {role: {"replicas": 1, "template": pod(main)} for role, main in roles.items()}
    job = api_object("PyTorchJob", "train", spec={"pytorchReplicaSpecs": specs})
    version = {"group": "kubeflow.org", "version": "v1"}

    body = with_request(
        workload_review(workload(pod())),
        kind={**version, "kind": "PyTorchJob"},
        resource={**version, "resource": "pytorchjobs"},
        object=job,
    )
    answer = await endpoint.client.post(VALIDATE_WORKLOADS_PATH, json=body)

    assert (await answer.json())["response"]["allowed"]

    assert translations(endpoint) == {
        ("nvidia", NVIDIA, "validated"): 1,
        ("hami", HAMI, "validated"): 1,
    }


async def validate_pod(endpoint: WebhookEndpoint, document: Document) -> Document:
    """Return the response to a review of a pod by the rules."""
    answer = await endpoint.client.post(VALIDATE_OBJECTS_PATH, json=review(document))
    response: Document = (await answer.json())["response"]
    return response


async def test_what_no_device_serves_is_refused_by_the_rules(start: StartEndpoint) -> None:
    rules = FixedEvaluator(lambda: SNAPSHOT, **context_fields())
    endpoint = await start(lambda: SNAPSHOT, rules)
    document, _ = admit(TOO_LARGE, SNAPSHOT)

    responses = [
        await validate_pod(endpoint, document),
        await validate_workload(endpoint, workload(TOO_LARGE)),
    ]

    assert [response["allowed"] for response in responses] == [False, False]
    assert translations(endpoint) == {("hami", HAMI, "refused"): 2}


def test_texts_of_a_record_are_no_labels() -> None:
    """Anybody may write a record, and the rules see that of a pod that is not translated, too."""
    hami = UsedProfile(vocabulary="hami", name=HAMI, hash="0")
    forged = (
        UsedProfile(vocabulary="invented", name=HAMI, hash="0"),
        UsedProfile(vocabulary="hami", name="invented.example", hash="0"),
    )
    record = TranslationRecord(
        translation_version=TRANSLATION_VERSION, profiles=(*forged, hami, hami), containers=()
    )

    translation = RecordedTranslation(record=record, paths={}, profiles=profiles())

    assert translation.drivers == (("hami", HAMI),)


async def test_a_pod_without_a_driver_counts_with_an_empty_one(start: StartEndpoint) -> None:
    snapshot = msgspec.structs.replace(SNAPSHOT, profiles={})
    endpoint = await start(lambda: snapshot)

    response = await mutate_pod(endpoint, pod(gpus(1)))

    assert not response["allowed"]
    assert translations(endpoint) == {("nvidia", "", "refused"): 1}


async def test_nothing_is_counted_in_mode_shadow(start: StartEndpoint) -> None:
    endpoint = await start(options=TranslationOptions(mode=Mode.SHADOW))

    await mutate_pod(endpoint, pod(gpus(1)))
    await mutate_pod(endpoint, pod(gpus("500m")))

    assert translations(endpoint) == {}
