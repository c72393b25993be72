"""`POST /mutate`: wrong calls, limits, and the answers that a pod gets."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec
import pytest
from aiohttp import ClientResponse, ClientSession, HttpVersion10, TCPConnector
from structlog.testing import capture_logs

from admission.pods import Decision
from admission.review import UnreadableObjectError
from admission.webhook_configuration import (
    MUTATE_PATH,
)
from process.model.durations import PositiveDuration
from testing.builders import (
    gpus,
    limits,
    pod,
)
from testing.fake_api_server import until
from testing.webhook_endpoint import (
    JSON,
    REVIEW,
    Call,
    StartEndpoint,
    apply_patch,
    encode,
    mutate_pod,
    review,
)
from translation.cluster.snapshot import TranslationSnapshot
from webhook.body_reader import SMALL_BODY_BYTES
from webhook.mutate import decode_pod_review
from webhook.reviews import MAX_LOGGED

# --- wrong calls ----------------------------------------------------------------------------------


CALLS: Final = (
    Call("no body", b"", 400),
    Call("one byte", b"{", 400),
    Call("no object", b"[]", 400),
    Call("no request", encode({**REVIEW, "request": None}), 400),
    Call(
        "a review of another version",
        encode({**REVIEW, "apiVersion": "admission.k8s.io/v1beta1"}),
        400,
    ),
    Call("another kind", encode({**REVIEW, "kind": "Pod"}), 400),
    Call("a review of another resource", encode(review({}, resource={"resource": "nodes"})), 400),
    Call("nested too deeply", b"[" * 2000, 400),
    Call("invalid UTF-8", b'{"apiVersion": "\xff"}', 400),
    Call("compressed", gzip.compress(encode(REVIEW)), 400, {**JSON, "Content-Encoding": "gzip"}),
    Call("another type of content", encode(REVIEW), 415, {"Content-Type": "text/plain"}),
    Call("too large", encode(review(pod(name="x" * 70_000))), 413),
)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
async def test_a_malformed_call_is_a_client_error(call: Call, start: StartEndpoint) -> None:
    endpoint = await start()

    answer = await endpoint.client.post(MUTATE_PATH, data=call.body, headers=call.headers)

    assert call.status == answer.status
    assert endpoint.sample(
        "controller_runtime_webhook_requests_total", webhook=MUTATE_PATH, code=str(call.status)
    )
    assert not endpoint.sample("controller_runtime_webhook_panics_total", webhook=MUTATE_PATH)


async def test_who_sends_too_much_reads_the_limit(start: StartEndpoint) -> None:
    """The API server quotes the message of a Status, and of a text with status 413 nothing."""
    endpoint = await start()

    answer = await endpoint.client.post(MUTATE_PATH, json=review(pod(name="x" * 70_000)))

    status = await answer.json()
    assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", 413)
    assert "65536 bytes" in status["message"]


async def test_a_body_that_arrives_slowly_is_given_up_before_the_caller_does(
    start: StartEndpoint,
) -> None:
    endpoint = await start(read_timeout=PositiveDuration(60))
    is_answered = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await is_answered.wait()

    async with asyncio.timeout(60):
        answer = await endpoint.client.post(f"{MUTATE_PATH}?timeout=1s", data=slow(), headers=JSON)
    is_answered.set()

    assert answer.status == 408


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", MUTATE_PATH),
        ("POST", "/"),
        ("POST", "/livez"),
        ("GET", "/readyz?verbose"),
        ("OPTIONS", "*"),
        ("TRACE", MUTATE_PATH),
    ],
)
async def test_other_methods_and_paths_get_one_answer(
    method: str, path: str, start: StartEndpoint
) -> None:
    endpoint = await start()
    url = f"https://127.0.0.1:{endpoint.endpoint.port}/{path.lstrip('/')}"

    answer = await endpoint.client.request(method, url, data=b"{}")

    names = {name for name in answer.headers if answer.headers[name]}
    assert (answer.status, await answer.read()) == (404, b"")
    assert names == {"Content-Length", "Date", "Connection"}
    assert endpoint.sample("drawbridge_requests_to_unknown_paths_total") == 1


async def test_a_body_that_does_not_arrive_times_out(start: StartEndpoint) -> None:
    endpoint = await start()

    async def slow() -> Any:
        yield b"{"
        await asyncio.sleep(1.0)
        yield b"}"

    answer = await endpoint.client.post(MUTATE_PATH, data=slow(), headers=JSON)

    assert answer.status == 408
    assert answer.headers["Connection"] == "close"


async def test_large_bodies_in_flight_are_bounded_and_small_ones_do_not_wait_for_them(
    start: StartEndpoint,
) -> None:
    """A body of unknown length counts as the largest, so there is no byte for another one."""
    endpoint = await start(
        read_timeout=PositiveDuration(60),
        max_in_flight=100,
        max_body_bytes=128 * 1024,
        max_bytes_in_flight=128 * 1024,
    )

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await until(lambda: endpoint.sample("drawbridge_requests_shed_total") == 1)

    async with asyncio.TaskGroup() as group:
        large = group.create_task(endpoint.client.post(MUTATE_PATH, data=slow(), headers=JSON))
        await until(lambda: endpoint.endpoint.reading == 1)
        small: ClientResponse = await endpoint.client.post(MUTATE_PATH, json=REVIEW)
        padded = msgspec.json.encode(REVIEW).ljust(SMALL_BODY_BYTES - 1)
        longer = await endpoint.client.post(MUTATE_PATH, data=padded, headers=JSON)
        another = await endpoint.client.post(MUTATE_PATH, data=padded + b" ", headers=JSON)

    assert (200, 200, 503) == (small.status, longer.status, another.status)
    assert large.result().status == 400


async def test_a_bug_is_a_server_error_and_no_denial(start: StartEndpoint) -> None:
    def broken() -> TranslationSnapshot:
        raise ZeroDivisionError

    endpoint = await start(broken)

    answer = await endpoint.client.post(MUTATE_PATH, json=REVIEW)

    assert (answer.status, await answer.text()) == (500, "internal error")
    assert endpoint.sample("controller_runtime_webhook_panics_total", webhook=MUTATE_PATH) == 1


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(encode(review("pod")), id="text"),
        pytest.param(encode(review(None)), id="missing"),
        pytest.param(encode(review({"spec": {"containers": "a"}})), id="containers that are text"),
        pytest.param(encode(review(pod(), operation="UPDATE")), id="update without what was"),
    ],
)
async def test_a_pod_that_cannot_be_read_is_denied_in_a_review(
    body: bytes, start: StartEndpoint
) -> None:
    endpoint = await start()

    answer = await endpoint.client.post(MUTATE_PATH, data=body, headers=JSON)

    response = (await answer.json())["response"]
    assert (response["uid"], response["allowed"]) == ("u-1", False)
    assert "drawbridge[invalidObject]" in response["status"]["message"]


def test_brackets_in_texts_are_no_parts() -> None:
    document = pod(gpus(1))
    document["spec"]["containers"][0]["command"] = ["{" * 100_001, '\\"[' * 50_001]

    decoded = decode_pod_review(encode(review(document))).document or {}

    assert decoded["spec"] == document["spec"]


def test_a_pod_of_too_many_parts_is_answered() -> None:
    with pytest.raises(UnreadableObjectError, match="more than 100000 objects and lists") as raised:
        decode_pod_review(encode(review({"spec": [[]] * 100_001})))

    assert raised.value.request.uid == "u-1"


@pytest.mark.parametrize("amount", ["1e999999", "1" * 200])
async def test_more_than_anything_has_is_denied_with_its_field(
    amount: str, start: StartEndpoint
) -> None:
    response = await mutate_pod(await start(), pod(gpus(amount)))

    (cause,) = response["status"]["details"]["causes"]
    assert cause["field"].endswith("resources.limits[nvidia.com/gpu]")
    assert "drawbridge[tooManyDevices]" in cause["message"]


@pytest.mark.parametrize("amount", ["x", "1e-999999", "\x1b[2J"])
async def test_an_amount_that_is_no_quantity_is_denied_with_its_field(
    amount: str, start: StartEndpoint
) -> None:
    response = await mutate_pod(await start(), pod(gpus(amount)))

    assert not response["allowed"]
    (limit, request) = response["status"]["details"]["causes"]
    assert limit["field"] == "spec.containers[0].resources.limits[nvidia.com/gpu]"
    assert request["field"] == "spec.containers[0].resources.requests[nvidia.com/gpu]"
    assert response["status"]["message"].replace("\n", "").isprintable()
    assert len(response["status"]["message"]) < 1000


async def test_an_answer_has_the_headers_that_it_needs(start: StartEndpoint) -> None:
    endpoint = await start()

    answer = await endpoint.client.post(MUTATE_PATH, json=REVIEW)

    body = await answer.read()
    assert {"Content-Type", "Content-Length", "Date"} == set(answer.headers)
    assert (answer.headers["Content-Length"], answer.reason) == (str(len(body)), "OK")
    assert parsedate_to_datetime(answer.headers["Date"]).tzinfo is not None


async def test_a_client_of_http_1_0_gets_its_answer_and_the_end_of_the_connection(
    start: StartEndpoint,
) -> None:
    endpoint = await start()
    url = f"https://127.0.0.1:{endpoint.endpoint.port}{MUTATE_PATH}"

    async with (
        ClientSession(version=HttpVersion10, connector=TCPConnector(ssl=False)) as client,
        client.post(url, json=REVIEW) as answer,
    ):
        response = await answer.json()

    assert (answer.version, answer.status) == (HttpVersion10, 200)
    assert response["response"]["allowed"] is True


async def test_while_draining_each_answer_closes_its_connection(start: StartEndpoint) -> None:
    endpoint = await start()
    before = await endpoint.client.post(MUTATE_PATH, json=REVIEW)
    endpoint.endpoint.draining = True
    after = await endpoint.client.post(MUTATE_PATH, json=REVIEW)

    assert before.headers.get("Connection") != "close"
    assert (after.status, after.headers["Connection"]) == (200, "close")


async def test_a_connection_is_closed_after_a_random_number_of_requests(
    start: StartEndpoint,
) -> None:
    endpoint = await start(requests_per_connection=1)

    assert (await endpoint.client.post(MUTATE_PATH, json=REVIEW)).headers["Connection"] == "close"


# --- answers --------------------------------------------------------------------------------------


async def test_a_legacy_pod_becomes_a_pod_with_claims(start: StartEndpoint) -> None:
    endpoint = await start()
    legacy = pod(gpus(1, cpu=2))

    result = apply_patch(legacy, await mutate_pod(endpoint, legacy))

    (container,) = result["spec"]["containers"]
    (entry,) = result["spec"]["resourceClaims"]
    assert container["resources"]["limits"] == limits(cpu=2)
    assert container["resources"]["claims"] == [{"name": entry["name"], "request": "gpu"}]
    assert entry["resourceClaimTemplateName"].startswith("nvidia-gpu-1-")


async def test_a_translated_pod_is_left_unchanged(start: StartEndpoint) -> None:
    endpoint = await start()
    legacy = pod(gpus(2, name="a"), gpus(1, name="b"))
    once = apply_patch(legacy, await mutate_pod(endpoint, legacy))

    again = await mutate_pod(endpoint, once)

    assert again["allowed"]
    assert apply_patch(once, again) == once


async def test_the_legacy_manifest_applied_again_changes_nothing(start: StartEndpoint) -> None:
    endpoint = await start()
    legacy = pod(gpus(1, cpu=2))
    stored = apply_patch(legacy, await mutate_pod(endpoint, legacy))
    applied = msgspec.json.decode(msgspec.json.encode(stored))
    applied["spec"]["containers"][0]["resources"]["limits"] |= limits(1)

    assert apply_patch(applied, await mutate_pod(endpoint, applied, stored)) == stored


async def test_wrong_values_are_denied_with_their_causes(start: StartEndpoint) -> None:
    endpoint = await start()

    response = await mutate_pod(endpoint, pod(gpus("1500m")))

    assert not response["allowed"]
    assert (response["status"]["code"], response["status"]["reason"]) == (422, "Invalid")
    assert response["status"]["details"]["causes"]
    assert "patch" not in response


@pytest.mark.parametrize(
    ("annotation", "meant"),
    [
        ("nvidia.com/use-gputypes", "nvidia.com/use-gputype"),
        ("tensor-fusion.ai/vram-limits", "tensor-fusion.ai/vram-limit"),
    ],
)
async def test_a_misspelt_annotation_of_a_pod_is_reported(
    annotation: str, meant: str, start: StartEndpoint
) -> None:
    endpoint = await start()

    response = await mutate_pod(endpoint, pod(gpus(1, mem=8000), annotations={annotation: "1"}))

    assert response["allowed"]
    assert any(f"did you mean {meant}?" in text for text in response["warnings"])


async def test_the_log_is_bounded_whatever_a_client_sends(start: StartEndpoint) -> None:
    endpoint = await start()
    names = {"name": "n" * 9999, "uid": "u" * 9999, "userInfo": {"username": "s" * 9999}}
    with capture_logs() as lines:
        await endpoint.client.post(MUTATE_PATH, json=review(pod(gpus(1)), **names))

    (line,) = (record for record in lines if record["event"] == "pod.reviewed")
    assert max(len(line[field]) for field in ("pod", "uid", "user")) == MAX_LOGGED


async def test_the_log_is_bounded_whatever_is_wrong(start: StartEndpoint) -> None:
    endpoint = await start()
    wrong = [gpus("1500m", name=str(number)) for number in range(200)]
    with capture_logs() as lines:
        await endpoint.client.post(MUTATE_PATH, json=review(pod(*wrong)))

    (line,) = (record for record in lines if record["event"] == "pod.reviewed")
    assert line["findings"] == ["notAnInteger"]


@pytest.mark.parametrize(
    ("operation", "subresource"),
    [("DELETE", ""), ("CONNECT", "exec"), ("CREATE", "binding"), ("UPDATE", "resize")],
)
async def test_other_operations_are_allowed_as_they_are(
    operation: str, subresource: str, start: StartEndpoint
) -> None:
    endpoint = await start()

    response = await mutate_pod(endpoint, None, operation=operation, subResource=subresource)

    assert response["allowed"]
    assert "patch" not in response


async def test_a_status_update_cannot_bring_the_annotation(start: StartEndpoint) -> None:
    endpoint = await start()
    legacy = pod(gpus(1))
    forged = apply_patch(legacy, await mutate_pod(endpoint, legacy))

    response = await mutate_pod(endpoint, forged, pod(), subResource="status")

    assert not response["allowed"]


async def test_decisions_and_findings_are_counted(start: StartEndpoint) -> None:
    endpoint = await start()

    await mutate_pod(endpoint, pod(gpus(1)))
    await mutate_pod(endpoint, pod())

    decisions = {
        decision: endpoint.sample(
            "drawbridge_reviews_total", kind="Pod", operation="CREATE", decision=decision.value
        )
        for decision in (Decision.TRANSLATED, Decision.UNTOUCHED, Decision.REFUSED)
    }
    assert decisions == {Decision.TRANSLATED: 1, Decision.UNTOUCHED: 1, Decision.REFUSED: 0}
    assert endpoint.sample("drawbridge_patch_operations_total")


async def test_claims_of_translations_are_counted(start: StartEndpoint) -> None:
    endpoint = await start()

    translated = await mutate_pod(endpoint, pod(gpus(1), gpus(1, mem=1000, name="sidecar")))
    await mutate_pod(endpoint, apply_patch(pod(gpus(1)), await mutate_pod(endpoint, pod(gpus(1)))))
    await mutate_pod(endpoint, pod(gpus("500m")))

    assert translated["allowed"]
    assert endpoint.sample("drawbridge_translated_claims_total") == 3


async def test_a_pod_with_text_that_is_no_unicode_is_read_as_the_api_server_reads_it(
    start: StartEndpoint,
) -> None:
    """The API server replaces it in most fields, but not in managedFields."""
    endpoint = await start()
    body = encode(REVIEW).replace(b'"train"', rb'"\ud800' + b'\xff"')

    answer = await endpoint.client.post(MUTATE_PATH, data=body, headers=JSON)

    assert answer.status == 200
    assert (await answer.json())["response"]["allowed"]
