"""The endpoint over HTTP: each way to call it wrongly, and the answers that a pod gets."""

import asyncio
import gzip
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import jsonpatch
import msgspec
import pytest
from aiohttp import ClientResponse, ClientSession, TCPConnector
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from allocator.core.problem import Rules
from certs.authority import Authority
from certs.serving import Listener, client_context, issue_leaf
from kube.api.admission import AdmissionRequest
from kube.api.core import Node
from kube.api.meta import view
from kube.api.resource import DeviceClass, ResourceClaimTemplate, ResourceSlice
from tests.builders import (
    NAMESPACE,
    Document,
    admitted,
    gpus,
    limits,
    pod,
    profiles,
    seen,
    workload,
    world,
)
from tests.fake_api_server import running, until
from tests.webhook.rules.cases import (
    CLASSES,
    CONFIGS,
    EXAMPLE,
    Case,
    cel,
    claim,
    device,
    exactly,
    resource_slice,
    template,
)
from webhook.admission import Answer, Decision
from webhook.app import Endpoint
from webhook.configuration import OBJECTS_PATH, PATH, VALIDATE_PATH
from webhook.handlers import MAX_LOGGED, Judgement, Mutation, Question, Validation, answered
from webhook.metrics import WebhookMetrics
from webhook.rules.context import Context
from webhook.rules.emptied import Emptied
from webhook.settings import ServeSettings
from webhook.workloads import JUDGED
from webhook.world import Options, World

SETTINGS: Final = ServeSettings(
    bind_address="127.0.0.1",
    port=0,
    max_body_bytes=64 * 1024,
    read_timeout_seconds=0.2,
    max_in_flight=2,
    shutdown_seconds=0.1,
)
JSON: Final = {"Content-Type": "application/json"}

NOW: Final = datetime.now(UTC)  # noqa: TID251  TLS compares with the real clock.
LEAF: Final = issue_leaf(
    Authority.make("test", now=NOW, life=timedelta(hours=1)),
    ["127.0.0.1"],
    now=NOW,
    life=timedelta(hours=1),
)


class Stand(NamedTuple):
    """An endpoint, a client of it, and its metrics."""

    client: ClientSession
    registry: CollectorRegistry
    endpoint: Endpoint

    def sample(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


class Known:
    """Rules that know a context, and may be too busy to look at it."""

    def __init__(
        self, picture: Callable[[], World], *, is_late: bool = False, **knows: Any
    ) -> None:
        self._picture = picture
        self._is_late = is_late
        self._knows = knows

    async def answered(self, question: Callable[[Context], Answer]) -> Answer:
        if self._is_late:
            raise TimeoutError
        return question(Context(namespaces=self._picture().namespaces, **self._knows))

    def without_inventory(self) -> Context:
        return Context(namespaces=self._picture().namespaces)


@pytest.fixture
async def stand() -> AsyncIterator[Callable[..., Awaitable[Stand]]]:
    async with AsyncExitStack() as undo:

        async def make(
            picture: Callable[[], World] = world, rules: Known | None = None, **settings: Any
        ) -> Stand:
            registry = CollectorRegistry()
            rules = rules or Known(picture)
            metrics = WebhookMetrics(registry)
            served = msgspec.structs.replace(SETTINGS, **settings)
            timeout_s = served.read_timeout_seconds
            mutation = Mutation(picture, Options(), metrics, read_timeout_s=timeout_s)
            validation = Validation(picture, rules, Options(), metrics, read_timeout_s=timeout_s)
            judgement = Judgement(rules, profiles(), metrics, read_timeout_s=timeout_s)
            reviews = {
                PATH: mutation.mutate,
                VALIDATE_PATH: validation.validate,
                OBJECTS_PATH: judgement.judge,
            }
            endpoint = Endpoint(served, reviews, metrics, chance=lambda: 0.5)
            await endpoint.start(Listener(LEAF).context, {"always": str})
            await undo.enter_async_context(running(endpoint.run))
            undo.push_async_callback(endpoint.stop)
            client = ClientSession(
                f"https://127.0.0.1:{endpoint.port}",
                connector=TCPConnector(ssl=client_context(LEAF.authority)),
            )
            await undo.enter_async_context(client)
            return Stand(client, registry, endpoint)

        yield make


Make = Callable[..., Awaitable[Stand]]


def review(document: object, old: object = None, **request: Any) -> Document:
    """Return an AdmissionReview as the API server sends it."""
    asked = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": NAMESPACE,
        "operation": "UPDATE" if old else "CREATE",
        "userInfo": {"username": "jane"},
        "object": document,
        "oldObject": old,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": asked | request,
    }


async def asked(stand: Stand, document: object, old: object = None, **request: Any) -> Document:
    """Return the response to a review."""
    answer = await stand.client.post(PATH, json=review(document, old, **request))
    assert answer.status == 200, await answer.text()
    assert answer.content_type == "application/json"
    body: Document = await answer.json()
    assert body["response"]["uid"] == "u-1"
    response: Document = body["response"]
    return response


def patched(document: Document, response: Document) -> Document:
    """Return what the API server makes of a pod."""
    if "patch" not in response:
        assert "patchType" not in response
        return document
    assert response["patchType"] == "JSONPatch"
    result: Document = jsonpatch.apply_patch(document, b64decode(response["patch"]))
    return result


# --- wrong calls ----------------------------------------------------------------------------------


class Call(NamedTuple):
    name: str
    body: bytes
    status: int
    headers: Document = JSON


def encoded(document: object) -> bytes:
    return msgspec.json.encode(document)


def _asking(body: Document, **request: Any) -> Document:
    """Return a review that asks something else."""
    return {**body, "request": {**body["request"], **request}}


REVIEW: Final = review(pod(gpus(1)))
CALLS: Final = (
    Call("no body", b"", 400),
    Call("one byte", b"{", 400),
    Call("no object", b"[]", 400),
    Call("no request", encoded({**REVIEW, "request": None}), 400),
    Call(
        "a review of another version",
        encoded({**REVIEW, "apiVersion": "admission.k8s.io/v1beta1"}),
        400,
    ),
    Call("another kind", encoded({**REVIEW, "kind": "Pod"}), 400),
    Call("a review of another resource", encoded(review({}, resource={"resource": "nodes"})), 400),
    Call("a pod that is text", encoded(review("pod")), 400),
    Call("a pod that is missing", encoded(review(None)), 400),
    Call("a pod whose containers are text", encoded(review({"spec": {"containers": "a"}})), 400),
    Call("an amount that is no quantity", encoded(review(pod(gpus("x")))), 400),
    Call("an update without what was before", encoded(review(pod(), operation="UPDATE")), 400),
    Call("nested too deeply", b"[" * 2000, 400),
    Call("invalid UTF-8", b'{"apiVersion": "\xff"}', 400),
    Call("invalid UTF-8 in the pod", encoded(REVIEW).replace(b"train", b"tra\xffn"), 400),
    Call("compressed", gzip.compress(encoded(REVIEW)), 400, {**JSON, "Content-Encoding": "gzip"}),
    Call("another type of content", encoded(REVIEW), 415, {"Content-Type": "text/plain"}),
    Call("too large", encoded(review(pod(name="x" * 70_000))), 413),
)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
async def test_a_wrong_call_is_the_callers_fault(call: Call, stand: Make) -> None:
    made = await stand()

    answer = await made.client.post(PATH, data=call.body, headers=call.headers)

    assert call.status == answer.status
    assert made.sample(
        "controller_runtime_webhook_requests_total", webhook=PATH, code=str(call.status)
    )
    assert not made.sample("controller_runtime_webhook_panics_total", webhook=PATH)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", PATH, 405), ("POST", "/", 404), ("POST", "/livez", 405), ("GET", "/readyz", 200)],
)
async def test_other_methods_and_paths(method: str, path: str, status: int, stand: Make) -> None:
    made = await stand()

    assert status == (await made.client.request(method, path)).status


async def test_a_body_that_does_not_come_is_not_waited_for(stand: Make) -> None:
    made = await stand()

    async def slow() -> Any:
        yield b"{"
        await asyncio.sleep(1.0)
        yield b"}"

    answer = await made.client.post(PATH, data=slow(), headers=JSON)

    assert answer.status == 408
    assert answer.headers["Connection"] == "close"


async def test_reviews_beyond_the_limit_are_asked_to_come_back(stand: Make) -> None:
    made = await stand(read_timeout_seconds=5.0, max_in_flight=1)
    held = asyncio.Event()

    async def slow() -> Any:
        yield encoded(REVIEW)[:10]
        await held.wait()
        yield encoded(REVIEW)[10:]

    async def first() -> ClientResponse:
        return await made.client.post(PATH, data=slow(), headers=JSON)

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(first())
        in_flight = "controller_runtime_webhook_requests_in_flight"
        await until(lambda: bool(made.sample(in_flight, webhook=PATH)))
        refused = await made.client.post(PATH, json=REVIEW)
        held.set()

    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert waiting.result().status == 200
    assert made.sample("drawbridge_requests_shed_total") == 1


async def test_large_bodies_that_come_slowly_leave_room_for_memory(stand: Make) -> None:
    made = await stand(read_timeout_seconds=5.0, max_in_flight=100, max_bytes_in_flight=80 * 1024)

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await until(lambda: made.sample("drawbridge_requests_shed_total") == 1)

    async with asyncio.TaskGroup() as group:
        large = group.create_task(made.client.post(PATH, data=slow(), headers=JSON))
        await until(
            lambda: made.sample("controller_runtime_webhook_requests_in_flight", webhook=PATH) == 1
        )
        small = await made.client.post(PATH, json=REVIEW)
        another = await made.client.post(PATH, data=b" " * 60 * 1024, headers=JSON)

    assert (200, 503) == (small.status, another.status)
    assert large.result().status == 400


async def test_a_bug_of_ours_is_a_server_error_and_no_denial(stand: Make) -> None:
    def broken() -> World:
        raise ZeroDivisionError

    made = await stand(broken)

    answer = await made.client.post(PATH, json=REVIEW)

    assert (answer.status, await answer.text()) == (500, "internal error")
    assert made.sample("controller_runtime_webhook_panics_total", webhook=PATH) == 1


def test_a_patch_that_does_not_apply_is_a_bug_and_is_not_sent() -> None:
    """The API server would fail the request for it, whatever the failurePolicy."""
    adopting = Options(adopt_schedulers={"volcano": "default-scheduler"})
    old, _ = admitted(pod(gpus(1), schedulerName="volcano"), options=adopting)
    again = pod(gpus(1), annotations=old["metadata"]["annotations"], schedulerName="volcano")
    found = Question(
        asked=AdmissionRequest(uid="u-1"), document={"no": "spec"}, pod=seen(again), old=seen(old)
    )

    with pytest.raises(jsonpatch.JsonPointerException):
        answered(found, world(), adopting)


async def test_while_draining_each_answer_closes_its_connection(stand: Make) -> None:
    made = await stand()
    before = await made.client.post(PATH, json=REVIEW)
    made.endpoint.draining = True
    after = await made.client.post(PATH, json=REVIEW)

    assert before.headers.get("Connection") != "close"
    assert (after.status, after.headers["Connection"]) == (200, "close")


async def test_a_connection_is_closed_now_and_then(stand: Make) -> None:
    made = await stand(requests_per_connection=1)

    assert (await made.client.post(PATH, json=REVIEW)).headers["Connection"] == "close"


# --- answers --------------------------------------------------------------------------------------


async def test_a_legacy_pod_becomes_a_pod_with_claims(stand: Make) -> None:
    made = await stand()
    legacy = pod(gpus(1, cpu=2))

    result = patched(legacy, await asked(made, legacy))

    (container,) = result["spec"]["containers"]
    (entry,) = result["spec"]["resourceClaims"]
    assert container["resources"]["limits"] == limits(cpu=2)
    assert container["resources"]["claims"] == [{"name": entry["name"], "request": "gpu"}]
    assert entry["resourceClaimTemplateName"].startswith("nvidia-gpu-1-")


async def test_asked_again_about_its_own_answer_it_changes_nothing(stand: Make) -> None:
    made = await stand()
    legacy = pod(gpus(2, name="a"), gpus(1, name="b"))
    once = patched(legacy, await asked(made, legacy))

    again = await asked(made, once)

    assert again["allowed"]
    assert patched(once, again) == once


async def test_the_legacy_manifest_applied_again_changes_nothing(stand: Make) -> None:
    made = await stand()
    legacy = pod(gpus(1, cpu=2))
    stored = patched(legacy, await asked(made, legacy))
    applied = msgspec.json.decode(msgspec.json.encode(stored))
    applied["spec"]["containers"][0]["resources"]["limits"] |= limits(1)

    assert patched(applied, await asked(made, applied, stored)) == stored


async def test_wrong_values_are_denied_with_their_causes(stand: Make) -> None:
    made = await stand()

    response = await asked(made, pod(gpus("1500m")))

    assert not response["allowed"]
    assert (response["status"]["code"], response["status"]["reason"]) == (422, "Invalid")
    assert response["status"]["details"]["causes"]
    assert "patch" not in response


async def test_the_log_does_not_grow_with_what_a_caller_writes(stand: Make) -> None:
    made = await stand()
    names = {"name": "n" * 9999, "uid": "u" * 9999, "userInfo": {"username": "s" * 9999}}
    with capture_logs() as lines:
        await made.client.post(PATH, json=review(pod(gpus(1)), **names))

    (line,) = (each for each in lines if each["event"] == "pod.reviewed")
    assert max(len(line[field]) for field in ("pod", "uid", "user")) == MAX_LOGGED


async def test_the_log_does_not_grow_with_what_is_wrong(stand: Make) -> None:
    made = await stand()
    wrong = [gpus("1500m", name=str(number)) for number in range(200)]
    with capture_logs() as lines:
        await made.client.post(PATH, json=review(pod(*wrong)))

    (line,) = (each for each in lines if each["event"] == "pod.reviewed")
    assert line["findings"] == ["notAnInteger"]


@pytest.mark.parametrize(
    ("operation", "subresource"),
    [("DELETE", ""), ("CONNECT", "exec"), ("CREATE", "binding"), ("UPDATE", "resize")],
)
async def test_other_operations_are_allowed_as_they_are(
    operation: str, subresource: str, stand: Make
) -> None:
    made = await stand()

    response = await asked(made, None, operation=operation, subResource=subresource)

    assert response["allowed"]
    assert "patch" not in response


async def test_a_status_update_cannot_bring_the_annotation(stand: Make) -> None:
    made = await stand()
    legacy = pod(gpus(1))
    forged = patched(legacy, await asked(made, legacy))

    response = await asked(made, forged, pod(), subResource="status")

    assert not response["allowed"]


async def test_decisions_and_findings_are_counted(stand: Make) -> None:
    made = await stand()

    await asked(made, pod(gpus(1)))
    await asked(made, pod())

    decisions = {
        decision: made.sample(
            "drawbridge_decisions_total", operation="CREATE", decision=decision.value
        )
        for decision in (Decision.TRANSLATED, Decision.UNTOUCHED, Decision.REFUSED)
    }
    assert decisions == {Decision.TRANSLATED: 1, Decision.UNTOUCHED: 1, Decision.REFUSED: 0}
    assert made.sample("drawbridge_patch_operations_total")


# --- workloads ------------------------------------------------------------------------------------

BYTES: Final = pod(gpus(1, mem="8Gi"))
"""A mistake that the API server lets pass."""
RESOURCES: Final = {kind: (version, resource) for (version, kind), resource in JUDGED.items()}


def workload_review(document: Document, old: object = None, **request: Any) -> Document:
    """Return an AdmissionReview of a workload as the API server sends it."""
    kind = document["kind"]
    api_version, resource = RESOURCES[kind]
    group, version = api_version.split("/")
    named = {"group": group, "version": version}
    about = {"kind": {**named, "kind": kind}, "resource": {**named, "resource": resource}}
    return review(document, old, **about, name="train", **request)


async def judged(stand: Stand, document: Document, old: object = None, **request: Any) -> Document:
    """Return the response to a review of a workload."""
    body = workload_review(document, old, **request)
    answer = await stand.client.post(VALIDATE_PATH, json=body)
    assert answer.status == 200, await answer.text()
    response: Document = (await answer.json())["response"]
    assert response["uid"] == "u-1"
    assert not {"patch", "patchType"} & response.keys()
    return response


@pytest.mark.parametrize("kind", RESOURCES)
async def test_a_workload_whose_pods_would_be_denied_is_denied(kind: str, stand: Make) -> None:
    made = await stand()

    response = await judged(made, workload(BYTES, kind))

    assert not response["allowed"]
    status = response["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert (status["details"]["kind"], status["details"]["name"]) == (kind, "train")
    (cause,) = status["details"]["causes"]
    above = "spec.jobTemplate.spec" if kind == "CronJob" else "spec"
    limit = "containers[0].resources.limits[nvidia.com/gpumem]"
    assert cause["field"] == f"{above}.template.spec.{limit}"
    assert status["message"].startswith(f"{kind} cannot be translated: {cause['field']}: ")


async def test_a_workload_whose_pods_lose_something_is_told(stand: Make) -> None:
    made = await stand()
    policy = pod(gpus(1, mem=1), annotations={"hami.io/gpu-scheduler-policy": "binpack"})

    response = await judged(made, workload(policy))

    assert response["allowed"]
    (warning,) = response["warnings"]
    assert warning.startswith("drawbridge: spec.template.metadata.annotations[hami.io/gpu-sch")
    assert response["auditAnnotations"] == {"decision": "judged"}


async def test_an_update_of_a_workload(stand: Make) -> None:
    made = await stand()
    old = workload(BYTES)

    same = await judged(made, {**old, "metadata": {"name": "train", "labels": {"a": "b"}}}, old)
    mended = await judged(made, workload(pod(gpus(1, mem=8192))), old)
    broken = await judged(made, old, workload(pod(gpus(1, mem=8192))))

    assert [True, True, False] == [each["allowed"] for each in (same, mended, broken)]


@pytest.mark.parametrize(
    ("operation", "subresource"), [("DELETE", ""), ("UPDATE", "scale"), ("UPDATE", "status")]
)
async def test_other_operations_on_workloads_are_allowed(
    operation: str, subresource: str, stand: Make
) -> None:
    made = await stand()

    response = await judged(
        made, workload(BYTES), operation=operation, object=None, subResource=subresource
    )

    assert response["allowed"]


DEPLOYMENT: Final = workload_review(workload(BYTES))
WORKLOAD_CALLS: Final = (
    Call("no body", b"", 400),
    Call("a review of pods", encoded(REVIEW), 400),
    Call("another kind of object", encoded(_asking(DEPLOYMENT, kind={"kind": "Pod"})), 400),
    Call("no kind", encoded(_asking(DEPLOYMENT, kind={})), 400),
    Call("a workload that is missing", encoded(_asking(DEPLOYMENT, object=None)), 400),
    Call("a workload that is text", encoded(_asking(DEPLOYMENT, object="a")), 400),
    Call("no pod template", encoded(_asking(DEPLOYMENT, object={"spec": {}})), 400),
    Call("a spec that is text", encoded(_asking(DEPLOYMENT, object={"spec": "a"})), 400),
    Call(
        "a pod template that is text",
        encoded(_asking(DEPLOYMENT, object={"spec": {"template": "a"}})),
        400,
    ),
    Call("metadata that is text", encoded(_asking(DEPLOYMENT, object={"metadata": "a"})), 400),
    Call(
        "an amount that is no quantity",
        encoded(_asking(DEPLOYMENT, object=workload(pod(gpus("x"))))),
        400,
    ),
    Call("an update without what was", encoded(_asking(DEPLOYMENT, operation="UPDATE")), 400),
    Call("another type of content", encoded(DEPLOYMENT), 415, {"Content-Type": "text/plain"}),
)


@pytest.mark.parametrize("call", WORKLOAD_CALLS, ids=lambda call: call.name)
async def test_a_wrong_call_about_workloads_is_the_callers_fault(call: Call, stand: Make) -> None:
    made = await stand()

    answer = await made.client.post(VALIDATE_PATH, data=call.body, headers=call.headers)

    assert call.status == answer.status
    assert not made.sample("controller_runtime_webhook_panics_total", webhook=VALIDATE_PATH)


async def test_judgements_are_logged_and_counted_apart_from_pods(stand: Make) -> None:
    made = await stand()
    with capture_logs() as lines:
        await judged(made, workload(BYTES))

    (line,) = (each for each in lines if each["event"] == "workload.reviewed")
    assert (line["workload"], line["decision"]) == ("Deployment/team-a/train", "refused")
    assert made.sample(
        "drawbridge_judgements_total", kind="Deployment", operation="CREATE", decision="refused"
    )
    assert made.sample("drawbridge_findings_total", severity="error", code="wrongUnit")
    assert not made.sample("drawbridge_decisions_total", operation="CREATE", decision="refused")
    assert made.sample(
        "controller_runtime_webhook_requests_total", webhook=VALIDATE_PATH, code="200"
    )


# --- objects of DRA -------------------------------------------------------------------------------

_RESOURCES: Final = {
    "DeviceClass": "deviceclasses",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
}


def object_review(document: Document, old: object = None, **request: Any) -> Document:
    """Return an AdmissionReview of an object of DRA as the API server sends it."""
    named = {"group": "resource.k8s.io", "version": "v1"}
    kind = document["kind"]
    about = {"kind": {**named, "kind": kind}, "resource": {**named, "resource": _RESOURCES[kind]}}
    return review(document, old, **about, name="judged", **request)


async def judged_object(
    stand: Stand, document: Document, old: object = None, **request: Any
) -> Document:
    """Return the response to a review of an object of DRA."""
    body = object_review(document, old, **request)
    answer = await stand.client.post(OBJECTS_PATH, json=body)
    assert answer.status == 200, await answer.text()
    response: Document = (await answer.json())["response"]
    assert not {"patch", "patchType"} & response.keys()
    return response


@pytest.mark.parametrize("case", [*CONFIGS, *CLASSES], ids=lambda case: case.name)
async def test_an_object_is_answered_as_the_rules_say(case: Case, stand: Make) -> None:
    response = await judged_object(await stand(), case.document)

    errors = [each.split()[2] for each in case.told if each.startswith("error")]
    warnings = [each for each in case.told if each.startswith("warning")]
    causes = response.get("status", {}).get("details", {}).get("causes", [])
    assert response["allowed"] is not bool(errors)
    assert errors == [cause["field"] for cause in causes]
    assert len(warnings) == len(response.get("warnings", []))


async def test_a_denial_of_an_object_reads_well(stand: Make) -> None:
    response = await judged_object(await stand(), claim(exactly(count=33)))

    assert response["status"]["code"] == 422
    assert response["status"]["message"] == (
        "ResourceClaim is wrong: spec.devices.requests: 33 devices are asked for, and a claim holds"
        " at most 32; make several claims"
    )


async def test_what_was_admitted_before_can_be_changed_outside_its_spec(stand: Make) -> None:
    made, wrong = await stand(), template(exactly(count=33))
    labelled = {**wrong, "metadata": {"name": "judged", "labels": {"a": "b"}}}

    assert (await judged_object(made, labelled, wrong))["allowed"]
    assert not (await judged_object(made, wrong, template(exactly())))["allowed"]
    assert (await judged_object(made, template(exactly()), wrong))["allowed"]


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
async def test_other_operations_on_objects_are_allowed(operation: str, stand: Make) -> None:
    response = await judged_object(
        await stand(), claim(exactly(count=33)), operation=operation, object=None
    )

    assert response["allowed"]


async def test_what_a_controller_made_is_not_judged(stand: Make) -> None:
    owner = {"kind": "Pod", "name": "p", "controller": True}
    made_of_template = {
        **claim(exactly(count=33)),
        "metadata": {"name": "judged", "ownerReferences": [owner]},
    }

    response = await judged_object(await stand(), made_of_template)

    assert response["allowed"]
    assert not response.get("warnings")


# --- what the inventory says ----------------------------------------------------------------------

NODE: Final = view({"metadata": {"name": "node-a"}}, Node)
SMALL: Final = view(
    resource_slice(device(capacity={"memory": {"value": "40Gi"}}), driver=EXAMPLE), ResourceSlice
)
CLASS: Final = view(
    {"metadata": {"name": EXAMPLE}, "spec": {"selectors": [cel(f"device.driver == '{EXAMPLE}'")]}},
    DeviceClass,
)
TWO: Final = exactly(deviceClassName=EXAMPLE, count=2)


def inventory(**more: Any) -> Document:
    """What rules know of a cluster with one device."""
    emptied = Emptied(slices=[SMALL], nodes=[NODE], classes={EXAMPLE: CLASS}, rules=Rules())
    wanted = view(template(TWO), ResourceClaimTemplate).spec.spec.devices
    templates = {(NAMESPACE, "two"): wanted}
    return {"classes": {EXAMPLE: CLASS}, "emptied": emptied, "templates": templates, **more}


def naming(name: str) -> Document:
    return pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": name}])


async def judged_pod(
    stand: Stand, document: Document, old: Document | None = None, **request: Any
) -> Document:
    """Return the response to a review of a pod or a workload by the rules."""
    if document["kind"] == "Pod":
        body = review(document, old, **request)
    else:
        named = {"group": "apps", "version": "v1"}
        about = {"kind": {**named, "kind": "Deployment"}}
        about |= {"resource": {**named, "resource": "deployments"}}
        body = review(document, old, **about, **request)
    answer = await stand.client.post(OBJECTS_PATH, json=body)
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
async def test_what_can_never_fit_is_refused(document: Document, path: str, stand: Make) -> None:
    made = await stand(rules=Known(world, **inventory()))
    is_dra = document["kind"] == "ResourceClaim"
    ask = judged_object if is_dra else judged_pod

    response = await ask(made, document)

    assert not response["allowed"]
    assert f"{document['kind']} is wrong: {path}: " in response["status"]["message"]
    assert [path] == [cause["field"] for cause in response["status"]["details"]["causes"]]
    assert response["status"]["code"] == 422


async def test_a_pod_of_a_controller_is_not_judged(stand: Make) -> None:
    made = await stand(rules=Known(world, **inventory()))
    owned = naming("two")
    owner = {"kind": "Job", "name": "j", "uid": "u", "controller": True, "apiVersion": "batch/v1"}
    owned["metadata"]["ownerReferences"] = [owner]

    response = await judged_pod(made, owned)

    assert response["allowed"]
    assert "warnings" not in response


async def test_a_workload_that_asks_for_nothing_new_can_be_mended(stand: Make) -> None:
    made = await stand(rules=Known(world, **inventory()))
    old = workload(naming("two"))
    mended = workload(naming("two"))
    mended["spec"]["template"]["spec"]["containers"] = [{"name": "main", "image": "fixed:2"}]

    response = await judged_pod(made, mended, old=old)
    worse = await judged_pod(made, old, old=workload(pod()))

    assert response["allowed"]
    assert not worse["allowed"]


async def test_who_is_not_judged_in_time_passes_with_a_warning(stand: Make) -> None:
    made = await stand(rules=Known(world, is_late=True, **inventory()))

    response = await judged_object(made, claim(TWO))

    assert response["allowed"]
    (said,) = response["warnings"]
    assert "the webhook is busy" in said
    assert made.sample("drawbridge_findings_total", severity="warning", code="notJudged") == 1
    assert made.sample("drawbridge_judgements_late_total") == 1


async def test_what_is_wrong_by_itself_is_refused_however_busy_we_are(stand: Make) -> None:
    made = await stand(rules=Known(world, is_late=True))

    response = await judged_object(made, claim(exactly(count=33)))

    assert not response["allowed"]


async def test_translated_pods_are_judged_by_claims_that_are_not_made_yet(stand: Make) -> None:
    """Of a legacy pod the webhook knows what its templates will be."""
    made = await stand(rules=Known(world, **hami_inventory()))
    document, _ = admitted(pod(gpus(3)))

    alone = await judged_pod(made, document)
    deployed = await judged(made, workload(pod(gpus(3))))
    fitting = await judged(made, workload(pod(gpus(1))))

    assert not alone["allowed"]
    assert "more than the 1 selected" in alone["status"]["message"]
    assert not deployed["allowed"]
    assert (
        "Deployment is wrong: spec.template.spec.containers[0].resources: "
        in (deployed["status"]["message"])
    )
    assert fitting["allowed"]


def hami_inventory() -> Document:
    """One GPU of the driver that translated pods ask in these tests."""
    _, made = admitted(pod(gpus(1)))
    (name,) = {each for one in made.claims for each in one.class_names()}
    published = view(resource_slice(device(), driver="any.example.com"), ResourceSlice)
    every = view({"metadata": {"name": name}}, DeviceClass)
    emptied = Emptied(slices=[published], nodes=[NODE], classes={name: every}, rules=Rules())
    return {"classes": {name: every}, "emptied": emptied}


CLAIM: Final = object_review(claim(exactly()))
OBJECT_CALLS: Final = (
    Call("a review of nodes", encoded(_asking(CLAIM, resource={"resource": "nodes"})), 400),
    Call("no kind", encoded(_asking(CLAIM, kind={})), 400),
    Call("a claim that is missing", encoded(_asking(CLAIM, object=None)), 400),
    Call("a spec that is text", encoded(_asking(CLAIM, object={"spec": "a"})), 400),
    Call("an update without what was", encoded(_asking(CLAIM, operation="UPDATE")), 400),
)


@pytest.mark.parametrize("call", OBJECT_CALLS, ids=lambda call: call.name)
async def test_a_wrong_call_about_objects_is_the_callers_fault(call: Call, stand: Make) -> None:
    made = await stand()

    answer = await made.client.post(OBJECTS_PATH, data=call.body, headers=call.headers)

    assert call.status == answer.status
    assert not made.sample("controller_runtime_webhook_panics_total", webhook=OBJECTS_PATH)
