"""`POST /validate/objects`: the findings of rules, with and without an inventory."""

from typing import Any, Final

import msgspec
import pytest

from admission.review import UnreadableObjectError
from admission.webhook_configuration import (
    VALIDATE_OBJECTS_PATH,
)
from allocator.model.feature_gates import Features
from allocator.search.attempt import AllocatorOptions
from kube.api.core import Node
from kube.api.device_quota import DeviceQuota
from kube.api.meta import convert
from kube.api.resource import DeviceClass, ResourceClaimTemplate, ResourceSlice
from kube.names import TRANSLATE_LABEL
from quotas.device_quotas.allocated_usage import AllocatedUsage, QuotaObjects
from quotas.device_quotas.book import QuotaBook
from rules.feasibility.idle_cluster import IdleCluster
from testing.builders import NAMESPACE, admit, container, gpus, pod, translation_snapshot, workload
from testing.documents import (
    EXAMPLE,
    Document,
    api_object,
    cel,
    claim,
    device,
    device_quota,
    exactly,
    limit,
    resource_slice,
    template,
)
from testing.hami_cluster import HAMI, SNAPSHOT, context_fields
from testing.rule_cases import CLASSES, CONFIGS, OWNERSHIPS, Case
from testing.webhook_endpoint import (
    JSON,
    Call,
    FixedEvaluator,
    StartEndpoint,
    WebhookEndpoint,
    encode,
    review,
    validate_workload,
    with_request,
)
from webhook.validate import decode_object_review, decode_workload_review

# --- objects of DRA -------------------------------------------------------------------------------

_RESOURCES: Final = {
    "AllocatorOwnership": "allocatorownerships",
    "DeviceClass": "deviceclasses",
    "DeviceQuota": "devicequotas",
    "DeviceTranslationProfile": "devicetranslationprofiles",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
}


def object_review(document: Document, old: object = None, **request: Any) -> Document:
    """Return an AdmissionReview of an object of DRA as the API server sends it."""
    kind = document["kind"]
    is_ours = kind in {"AllocatorOwnership", "DeviceQuota", "DeviceTranslationProfile"}
    group, version = ("drawbridge.internal", "v1alpha1") if is_ours else ("resource.k8s.io", "v1")
    named = {"group": group, "version": version}
    about = {"kind": {**named, "kind": kind}, "resource": {**named, "resource": _RESOURCES[kind]}}
    return review(document, old, **about, name="validated", **request)


PROFILE: Final = api_object(
    "DeviceTranslationProfile",
    "npu.example.com",
    spec={
        "driver": "npu.example.com",
        "devices": {
            "device": {
                "class": "npu.example.com",
                "resources": {"example.com/npu": {}, "nvidia.com/gpu": {}},
            }
        },
    },
)


async def test_a_profile_is_answered_with_what_is_wrong_and_what_it_will_not_do(
    start: StartEndpoint,
) -> None:
    endpoint = await start()
    misnamed = {**PROFILE, "metadata": {"name": "other.example.com"}}

    accepted = await validate_object(endpoint, PROFILE)
    rejected = await validate_object(endpoint, misnamed)

    assert accepted["allowed"]
    assert any("nvidia.com/gpu is not served" in text for text in accepted["warnings"])
    assert not rejected["allowed"]
    assert "name the object after its driver" in rejected["status"]["message"]


async def test_a_denial_leads_to_its_code_on_the_published_site(
    start: StartEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.reviews.CODES", "https://docs.example.com/codes.html")
    misnamed = {**PROFILE, "metadata": {"name": "other.example.com"}}

    (cause,) = (await validate_object(await start(), misnamed))["status"]["details"]["causes"]

    code = cause["message"].partition("[")[2].partition("]")[0]
    assert cause["message"].endswith(f" (https://docs.example.com/codes.html#{code.lower()})")


async def validate_object(
    endpoint: WebhookEndpoint, document: Document, old: object = None, **request: Any
) -> Document:
    """Return the response to a review of an object of DRA."""
    body = object_review(document, old, **request)
    content = msgspec.json.encode(body)
    answer = await endpoint.client.post(VALIDATE_OBJECTS_PATH, data=content, headers=JSON)
    assert answer.status == 200, await answer.text()
    response: Document = (await answer.json())["response"]
    assert not {"patch", "patchType"} & response.keys()
    return response


@pytest.mark.parametrize("case", [*CONFIGS, *CLASSES, *OWNERSHIPS], ids=lambda case: case.name)
async def test_an_object_is_answered_as_the_rules_say(case: Case, start: StartEndpoint) -> None:
    response = await validate_object(await start(), case.document)

    errors = [line.split()[2] for line in case.expected_lines if line.startswith("error")]
    warnings = [line for line in case.expected_lines if line.startswith("warning")]
    summaries = [line for line in response.get("warnings", []) if "]: fix: " not in line]
    causes = response.get("status", {}).get("details", {}).get("causes", [])
    assert response["allowed"] is not bool(errors)
    assert errors == [cause["field"] for cause in causes]
    assert len(warnings) == len(summaries)


async def test_a_pod_that_never_fits_is_told_what_to_write_into_its_key(
    start: StartEndpoint,
) -> None:
    rules = FixedEvaluator(lambda: SNAPSHOT, **context_fields())
    endpoint = await start(lambda: SNAPSHOT, rules)
    translated, _ = admit(pod(gpus(1, mem=200000)), SNAPSHOT)

    content = encode(review(translated))
    answer = await endpoint.client.post(VALIDATE_OBJECTS_PATH, data=content, headers=JSON)
    response = (await answer.json())["response"]

    fix = "write nvidia.com/gpumem: 81920 to fit node node-1"
    assert f"; {fix} (1 node: " in response["status"]["message"]


@pytest.mark.parametrize(
    ("key", "right"),
    [("nvidia.com/gpumems", "nvidia.com/gpumem"), ("nvdia.com/gpu", "nvidia.com/gpu")],
)
async def test_a_pod_whose_only_key_is_misspelt_is_warned(
    key: str, right: str, start: StartEndpoint
) -> None:
    endpoint = await start()
    document = pod(container("main", {key: 1}))

    response = await validate_pod(endpoint, document)
    deployed = await validate_workload(endpoint, workload(document))
    opted_out = await validate_pod(
        endpoint, pod(container("main", {key: 1}), labels={TRANSLATE_LABEL: "false"})
    )
    beside_another = await validate_pod(
        endpoint, pod(container("main", {"nvidia.com/gpu": 1, key: 1}))
    )

    assert response["allowed"]
    for answer in (response, deployed):
        (text,) = answer["warnings"]
        assert text.startswith("drawbridge[untranslatedDeviceKey]: ")
        assert f"containers[0].resources.limits[{key}]: " in text
        assert text.endswith(f"did you mean {right}?")
    assert "warnings" not in opted_out
    # The webhook that translates pods tells of it.
    assert "warnings" not in beside_another


async def test_a_legacy_pod_above_a_quota_is_denied_in_its_keys(start: StartEndpoint) -> None:
    rules = FixedEvaluator(lambda: SNAPSHOT, **context_fields(), quota_book=quota_book("2Gi"))
    endpoint = await start(lambda: SNAPSHOT, rules)
    translated, _ = admit(pod(gpus(1, mem=3000)), SNAPSHOT)

    response = await validate_pod(endpoint, translated)
    deployed = await validate_workload(endpoint, workload(pod(gpus(1, mem=3000))))
    within = await validate_workload(endpoint, workload(pod(gpus(1, mem=2048))))

    limit = "spec.containers[0].resources.limits[nvidia.com/gpumem]: drawbridge[exceedsPerRequestQuota]: "
    assert not response["allowed"]
    assert f"Pod rejected: {limit}DeviceQuota validated" in response["status"]["message"]
    assert response["status"]["message"].endswith("; write nvidia.com/gpumem: 2048")
    assert not deployed["allowed"]
    assert f"spec.template.{limit}" in deployed["status"]["message"]
    assert within["allowed"]


async def test_a_denial_by_a_quota_names_the_key_that_a_pod_of_whole_gpus_lacks(
    start: StartEndpoint,
) -> None:
    rules = FixedEvaluator(lambda: SNAPSHOT, **context_fields(), quota_book=quota_book("2Gi"))
    endpoint = await start(lambda: SNAPSHOT, rules)
    translated, _ = admit(pod(gpus(1)), SNAPSHOT)

    for response in (
        await validate_pod(endpoint, translated),
        await validate_workload(endpoint, workload(pod(gpus(1)))),
    ):
        assert response["status"]["message"].endswith("; add nvidia.com/gpumem: 2048")


def quota_book(per_request: str) -> QuotaBook:
    """A quota of the memory of HAMi's devices, with a cap for one request."""
    usage = AllocatedUsage(Features())
    quota = device_quota(limit(driver=HAMI, perRequest=per_request))
    fields = context_fields()
    (slices,) = fields["inventory"].pools.values()
    usage.apply(
        QuotaObjects(
            classes={("", name): entry for name, entry in fields["classes"].items()},
            slices={("", slice_.metadata.name): slice_ for slice_ in slices},
            quotas={("", "validated"): convert(quota, DeviceQuota)},
        )
    )
    return usage.book({NAMESPACE: {}})


async def test_a_quota_is_validated(start: StartEndpoint) -> None:
    broken = device_quota(limit(selectors=[cel("device.nonsense")]))

    response = await validate_object(await start(), broken)

    assert not response["allowed"]
    assert "spec.limits[0].selectors[0].cel.expression" in response["status"]["message"]


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
async def test_a_claim_that_is_admitted_with_a_fault_has_to_be_deleted_before_the_next_try(
    kind: str, start: StartEndpoint
) -> None:
    endpoint = await start(
        rules=FixedEvaluator(translation_snapshot, **inventory(has_all_classes=True))
    )
    devices = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "misspelt"}}]}
    spec = {"devices": devices}
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "gpu", "namespace": "team"},
        "spec": spec if kind == "ResourceClaim" else {"spec": spec},
    }

    response = await validate_object(endpoint, document)

    assert response["allowed"]
    assert "delete the object before you apply it again" in "".join(response["warnings"])


@pytest.mark.parametrize("depth", [150, 700, 980, 1020, 5000])
async def test_an_object_is_validated_however_deep_its_parameters_nest(
    depth: int, start: StartEndpoint
) -> None:
    """The API server takes parameters of any depth, and creates objects that get no answer."""
    parameters = {"a": msgspec.Raw(b"[" * depth + b"]" * depth)}
    config = {"opaque": {"driver": "gpu.example.com", "parameters": parameters}}
    document = claim(exactly(count=33))
    document["spec"]["devices"]["config"] = [config]

    response = await validate_object(await start(), document)

    assert response["status"]["details"]["causes"][0]["field"] == "spec.devices.requests"


@pytest.mark.parametrize("text", [rb'"\ud800"', b'"\xff"'], ids=["half a character", "no UTF-8"])
async def test_an_object_is_validated_whatever_its_text(text: bytes, start: StartEndpoint) -> None:
    config = {"opaque": {"driver": "gpu.example.com", "parameters": {"a": msgspec.Raw(text)}}}
    document = claim(exactly(count=33))
    document["spec"]["devices"]["config"] = [config]

    response = await validate_object(await start(), document)

    assert response["status"]["details"]["causes"][0]["field"] == "spec.devices.requests"


async def test_a_denial_of_an_object_reads_well(start: StartEndpoint) -> None:
    response = await validate_object(await start(), claim(exactly(count=33)))

    assert response["status"]["code"] == 422
    assert response["status"]["message"] == (
        "ResourceClaim rejected: spec.devices.requests: drawbridge[tooManyDevices]: 33 devices requested,"
        " but a claim has at most 32; split it into several claims"
    )


async def test_an_admitted_object_can_be_changed_outside_its_spec(
    start: StartEndpoint,
) -> None:
    endpoint, wrong = await start(), template(exactly(count=33))
    labelled = {**wrong, "metadata": {"name": "validated", "labels": {"a": "b"}}}

    assert (await validate_object(endpoint, labelled, wrong))["allowed"]
    assert not (await validate_object(endpoint, wrong, template(exactly())))["allowed"]
    assert (await validate_object(endpoint, template(exactly()), wrong))["allowed"]


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
async def test_other_operations_on_objects_are_allowed(
    operation: str, start: StartEndpoint
) -> None:
    response = await validate_object(
        await start(), claim(exactly(count=33)), operation=operation, object=None
    )

    assert response["allowed"]


async def test_an_object_of_a_controller_is_not_validated(start: StartEndpoint) -> None:
    owner = {"kind": "Pod", "name": "p", "controller": True}
    made_of_template = {
        **claim(exactly(count=33)),
        "metadata": {"name": "validated", "ownerReferences": [owner]},
    }

    response = await validate_object(await start(), made_of_template)

    assert response["allowed"]
    assert not response.get("warnings")


# --- what the inventory says ----------------------------------------------------------------------

NODE: Final = convert({"metadata": {"name": "node-a"}}, Node)
SMALL: Final = convert(
    resource_slice(device(capacity={"memory": {"value": "40Gi"}}), driver=EXAMPLE), ResourceSlice
)
CLASS: Final = convert(
    {"metadata": {"name": EXAMPLE}, "spec": {"selectors": [cel(f"device.driver == '{EXAMPLE}'")]}},
    DeviceClass,
)
TWO: Final = exactly(deviceClassName=EXAMPLE, count=2)


def inventory(**more: Any) -> Document:
    """The rules' cache of a cluster with one device."""
    emptied = IdleCluster(
        slices=[SMALL], nodes=[NODE], classes={EXAMPLE: CLASS}, rules=AllocatorOptions()
    )
    devices = convert(template(TWO), ResourceClaimTemplate).spec.spec.devices
    templates = {(NAMESPACE, "two"): devices}
    return {"classes": {EXAMPLE: CLASS}, "idle_cluster": emptied, "templates": templates, **more}


def naming(name: str) -> Document:
    return pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": name}])


async def validate_pod(
    endpoint: WebhookEndpoint, document: Document, old: Document | None = None, **request: Any
) -> Document:
    """Return the response to a review of a pod or a workload by the rules."""
    if document["kind"] == "Pod":
        body = review(document, old, **request)
    else:
        named = {"group": "apps", "version": "v1"}
        about = {"kind": {**named, "kind": "Deployment"}}
        about |= {"resource": {**named, "resource": "deployments"}}
        body = review(document, old, **about, **request)
    answer = await endpoint.client.post(VALIDATE_OBJECTS_PATH, json=body)
    assert answer.status == 200, await answer.text()
    response: Document = (await answer.json())["response"]
    return response


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (naming("two"), "spec.resourceClaims[0].resourceClaimTemplateName"),
        (workload(naming("two")), "spec.template.spec.resourceClaims[0].resourceClaimTemplateName"),
        (claim(TWO), "spec.devices.requests[0].exactly.count"),
    ],
    ids=["a pod", "a workload", "a claim"],
)
async def test_what_can_never_fit_is_denied(
    document: Document, path: str, start: StartEndpoint
) -> None:
    endpoint = await start(rules=FixedEvaluator(translation_snapshot, **inventory()))
    is_dra = document["kind"] == "ResourceClaim"
    ask = validate_object if is_dra else validate_pod

    response = await ask(endpoint, document)

    assert not response["allowed"]
    assert f"{document['kind']} rejected: {path}: " in response["status"]["message"]
    assert [path] == [cause["field"] for cause in response["status"]["details"]["causes"]]
    assert response["status"]["code"] == 422


async def test_a_pod_of_a_controller_is_not_validated(start: StartEndpoint) -> None:
    endpoint = await start(rules=FixedEvaluator(translation_snapshot, **inventory()))
    owned = naming("two")
    owner = {"kind": "Job", "name": "j", "uid": "u", "controller": True, "apiVersion": "batch/v1"}
    owned["metadata"]["ownerReferences"] = [owner]

    response = await validate_pod(endpoint, owned)

    assert response["allowed"]
    assert "warnings" not in response


async def test_a_workload_without_new_requests_can_be_changed(start: StartEndpoint) -> None:
    endpoint = await start(rules=FixedEvaluator(translation_snapshot, **inventory()))
    old = workload(naming("two"))
    mended = workload(naming("two"))
    mended["spec"]["template"]["spec"]["containers"] = [{"name": "main", "image": "fixed:2"}]

    response = await validate_pod(endpoint, mended, old=old)
    worse = await validate_pod(endpoint, old, old=workload(pod()))

    assert response["allowed"]
    assert not worse["allowed"]


async def test_a_validation_that_times_out_is_a_warning(start: StartEndpoint) -> None:
    endpoint = await start(
        rules=FixedEvaluator(translation_snapshot, times_out=True, **inventory())
    )

    response = await validate_object(endpoint, claim(TWO))

    assert response["allowed"]
    (warning,) = response["warnings"]
    assert "the webhook is busy" in warning
    assert (
        endpoint.sample("drawbridge_findings_total", severity="warning", code="notEvaluated") == 1
    )
    assert endpoint.sample("drawbridge_validation_timeouts_total") == 1


async def test_a_malformed_object_is_denied_even_after_a_timeout(start: StartEndpoint) -> None:
    endpoint = await start(rules=FixedEvaluator(translation_snapshot, times_out=True))

    response = await validate_object(endpoint, claim(exactly(count=33)))

    assert not response["allowed"]


async def test_translated_pods_are_validated_by_their_future_claims(
    start: StartEndpoint,
) -> None:
    """The webhook knows the future templates of a legacy pod."""
    endpoint = await start(rules=FixedEvaluator(translation_snapshot, **hami_inventory()))
    document, _ = admit(pod(gpus(3)))

    alone = await validate_pod(endpoint, document)
    deployed = await validate_workload(endpoint, workload(pod(gpus(3))))
    fitting = await validate_workload(endpoint, workload(pod(gpus(1))))

    limit = "spec.containers[0].resources.limits[nvidia.com/gpu]: drawbridge[exceedsLargestNode]: "
    assert not alone["allowed"]
    assert f"Pod rejected: {limit}count 3 is more than the 1" in alone["status"]["message"]
    assert not deployed["allowed"]
    assert f"Deployment rejected: spec.template.{limit}" in deployed["status"]["message"]
    assert fitting["allowed"]


def hami_inventory() -> Document:
    """One GPU of the driver that translated pods ask in these tests."""
    _, answer = admit(pod(gpus(1)))
    (name,) = {class_name for claim_ in answer.claims for class_name in claim_.class_names()}
    published = convert(resource_slice(device(), driver="any.example.com"), ResourceSlice)
    every = convert({"metadata": {"name": name}}, DeviceClass)
    emptied = IdleCluster(
        slices=[published], nodes=[NODE], classes={name: every}, rules=AllocatorOptions()
    )
    return {"classes": {name: every}, "idle_cluster": emptied}


CLAIM: Final = object_review(claim(exactly()))
OBJECT_CALLS: Final = (
    Call("a review of nodes", encode(with_request(CLAIM, resource={"resource": "nodes"})), 400),
    Call("no kind", encode(with_request(CLAIM, kind={})), 400),
)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"object": None}, id="missing"),
        pytest.param({"object": {"spec": "a"}}, id="a spec that is text"),
        pytest.param({"operation": "UPDATE"}, id="an update without what was"),
    ],
)
async def test_an_object_that_cannot_be_read_is_admitted_with_a_warning(
    fields: dict[str, Any], start: StartEndpoint
) -> None:
    endpoint = await start()

    body = encode(with_request(CLAIM, **fields))
    answer = await endpoint.client.post(VALIDATE_OBJECTS_PATH, data=body, headers=JSON)

    response = (await answer.json())["response"]
    assert (response["uid"], response["allowed"]) == (CLAIM["request"]["uid"], True)
    (warning,) = response["warnings"]
    assert warning.startswith("drawbridge[notEvaluated]")


def test_objects_and_workloads_of_too_many_parts_are_answered() -> None:
    spec: Document = {"spec": [[]] * 100_001}
    workload = with_request(CLAIM, object=spec, resource={"resource": "deployments"})
    message = "more than 100000 objects and lists"
    with pytest.raises(UnreadableObjectError, match=message) as of_object:
        decode_object_review(encode(with_request(CLAIM, object=spec)))
    with pytest.raises(UnreadableObjectError, match=message) as of_workload:
        decode_workload_review(encode(workload))

    for raised in (of_object, of_workload):
        assert raised.value.request.uid == CLAIM["request"]["uid"]


@pytest.mark.parametrize("call", OBJECT_CALLS, ids=lambda call: call.name)
async def test_a_malformed_call_is_a_client_error(call: Call, start: StartEndpoint) -> None:
    endpoint = await start()

    answer = await endpoint.client.post(VALIDATE_OBJECTS_PATH, data=call.body, headers=call.headers)

    assert call.status == answer.status
    assert not endpoint.sample(
        "controller_runtime_webhook_panics_total", webhook=VALIDATE_OBJECTS_PATH
    )
