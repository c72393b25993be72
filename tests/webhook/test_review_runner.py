"""Reviews on threads and on the event loop, and the charges of users and namespaces."""

import asyncio
import itertools
import json
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from aiohttp import StreamReader, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry

from admission.pods import postponed
from admission.review import ReviewError
from admission.webhook_configuration import MUTATE_PATH, VALIDATE_WORKLOADS_PATH
from process.model.durations import PositiveDuration
from testing.builders import gpus, pod, workload
from testing.documents import Document
from testing.review_runner import UNLIMITED_S, review_runner
from testing.webhook_endpoint import (
    JSON,
    REVIEW,
    encode,
    endpoints,
    with_request,
    workload_review,
)
from webhook.endpoint import Handler
from webhook.metrics import WebhookMetrics
from webhook.mutate import PodReview, decode_pod_review
from webhook.reviews import BUSY, DEADLINE_S, LARGE_BODY, OVER_BUDGET, ReviewRunner, TooBusy

REVIEWS = "drawbridge_reviews_total"


def http_request(body: bytes) -> web.BaseRequest:
    """Return a request with a body that has arrived."""
    loop = asyncio.get_running_loop()
    payload = StreamReader(BaseProtocol(loop), limit=2**20, loop=loop)
    payload.feed_data(body)
    payload.feed_eof()
    headers = {"Content-Type": "application/json"}
    request = make_mocked_request("POST", "/mutate", headers=headers, payload=payload)
    request[DEADLINE_S] = loop.time() + 60.0
    return request


def body_of(size: int = 0, **request: Any) -> bytes:
    body = encode(with_request(REVIEW, **request))
    return body + b" " * max(size - len(body), 0)


def runner(
    *, burst_s: float = UNLIMITED_S, clock: Callable[[], float] = time.perf_counter
) -> ReviewRunner:
    return review_runner(WebhookMetrics(CollectorRegistry()), burst_s=burst_s, clock=clock)


@pytest.mark.parametrize(("size", "is_large"), [(LARGE_BODY, False), (LARGE_BODY + 1, True)])
async def test_a_large_review_leaves_the_event_loop(size: int, is_large: bool) -> None:
    request, here, reviews = http_request(body_of(size)), threading.get_ident(), runner()
    threads: list[int] = []

    def decode(body: bytes) -> PodReview:
        threads.append(threading.get_ident())
        return decode_pod_review(body)

    review = await reviews.decode(request, decode)
    threads.append(await reviews.compute(request, review, threading.get_ident))

    assert [thread != here for thread in threads] == [is_large, is_large]


class Tracked(PodReview, frozen=True, kw_only=True, weakref=True):
    """A review that tells a test when it is dropped."""


Finish = Callable[[ReviewRunner, web.BaseRequest, Tracked], Awaitable[object]]
"""The part of a handler after the review is decoded."""


async def answer(reviews: ReviewRunner, request: web.BaseRequest, review: Tracked) -> None:
    await reviews.compute(request, review, str, review)


async def refuse(reviews: ReviewRunner, request: web.BaseRequest, review: Tracked) -> None:
    def reject(review: Tracked) -> None:
        raise ReviewError(review.name)

    await reviews.compute(request, review, reject, review)


async def reject(_reviews: ReviewRunner, _request: web.BaseRequest, review: Tracked) -> None:
    raise web.HTTPServiceUnavailable(text=review.name)


async def fail(_reviews: ReviewRunner, _request: web.BaseRequest, review: Tracked) -> None:
    raise RuntimeError(review.name)


async def time_out(reviews: ReviewRunner, request: web.BaseRequest, review: Tracked) -> None:
    request[DEADLINE_S] = asyncio.get_running_loop().time()
    async with reviews.deadline(request, review):
        await asyncio.Event().wait()


async def time_out_on_thread(
    reviews: ReviewRunner, request: web.BaseRequest, review: Tracked
) -> None:
    request[DEADLINE_S] = asyncio.get_running_loop().time()
    await reviews.compute(request, review, str, review)


async def use_up(reviews: ReviewRunner, _request: web.BaseRequest, review: Tracked) -> None:
    reviews.charge(review.request, 1.0)


@pytest.mark.parametrize(
    ("finishes", "status"),
    [
        pytest.param((answer,), 200, id="it is answered"),
        pytest.param((refuse,), 400, id="its object is not what it should be"),
        pytest.param((reject,), 503, id="the handler answers with an HTTP status"),
        pytest.param((fail,), 500, id="the handler has a bug"),
        pytest.param((time_out,), 200, id="another part takes too long"),
        pytest.param((time_out_on_thread,), 200, id="there is no time for a thread"),
        pytest.param((use_up, answer), 200, id="the budget of its user is used up"),
    ],
)
async def test_a_large_review_is_dropped_on_a_thread_however_it_ends(
    finishes: Sequence[Finish], status: int
) -> None:
    reviews, loop = runner(burst_s=0.5), asyncio.get_running_loop()
    threads, statuses = asyncio.Queue[int](), list[int]()

    def tell() -> None:
        loop.call_soon_threadsafe(threads.put_nowait, threading.get_ident())

    def decode(body: bytes) -> Tracked:
        review = Tracked(request=decode_pod_review(body).request)
        weakref.finalize(review, tell)
        return review

    def handler(finish: Finish) -> Handler:
        async def handle(request: web.BaseRequest) -> web.Response:
            try:
                review = await reviews.decode(request, decode)
                await finish(reviews, request, review)
            except TooBusy as busy:
                return reviews.respond_busy(busy, postponed(busy.reason))
            return web.Response()

        return handle

    for finish in finishes:
        async with endpoints() as make:
            endpoint = await make(handlers={MUTATE_PATH: handler(finish)})
            body = body_of(LARGE_BODY + 1)
            response = await endpoint.client.post(MUTATE_PATH, data=body, headers=JSON)
            statuses.append(response.status)

            assert await threads.get() != threading.get_ident()
    assert statuses[-1] == status


def status_of(response: web.Response) -> Document:
    assert isinstance(response.body, bytes)
    status: Document = json.loads(response.body)["response"].get("status") or {}
    return status


async def test_a_user_whose_time_is_used_up_gets_no_answer() -> None:
    reviews = runner(burst_s=0.5)
    mallory: Document = {"userInfo": {"username": "mallory"}}

    async def review(request: Document) -> str:
        """Return the reason the review is not answered; empty if it is."""
        http = http_request(body_of(**request))
        try:
            pod_review = await reviews.decode(http, decode_pod_review)
        except TooBusy as busy:
            return busy.reason
        reviews.charge(pod_review.request, 1.0)
        return ""

    assert await review(mallory) == ""
    assert await review(mallory) == OVER_BUDGET
    assert await review({"userInfo": {"username": "alice"}, "namespace": "team-b"}) == ""


async def test_a_user_does_not_pay_for_a_pause_of_the_process() -> None:
    """The process was stopped for six seconds while it decoded the first review."""
    reviews = runner(burst_s=0.5, clock=itertools.chain([0.0], itertools.repeat(6.0)).__next__)

    for _ in range(2):
        await reviews.decode(http_request(body_of()), decode_pod_review)


@pytest.mark.parametrize("size", [0, LARGE_BODY + 1])
async def test_an_answer_comes_before_the_api_server_gives_up(size: int) -> None:
    reviews, request = runner(), http_request(body_of(size))
    review = await reviews.decode(request, decode_pod_review)
    request[DEADLINE_S] = asyncio.get_running_loop().time()
    with pytest.raises(TooBusy) as busy:
        async with reviews.deadline(request, review):
            await asyncio.Event().wait()

    status = status_of(reviews.respond_busy(busy.value, postponed(busy.value.reason)))
    assert (status["code"], status["details"]) == (429, {"retryAfterSeconds": 1})
    assert status["message"] == f"{BUSY}; try again"


async def test_large_reviews_of_namespaces_take_turns() -> None:
    """A thread decodes one at a time, and a namespace is known before that."""
    reviews, busy, order = runner(), threading.Event(), list[str]()

    async def review(namespace: str) -> None:
        def decode(body: bytes) -> PodReview:
            busy.wait(60)
            order.append(namespace)
            return decode_pod_review(body)

        await reviews.decode(http_request(body_of(LARGE_BODY + 1, namespace=namespace)), decode)

    async with asyncio.TaskGroup() as group:
        for namespace in ("loud", "loud", "loud", "quiet"):
            group.create_task(review(namespace))
            await asyncio.sleep(0.01)
        busy.set()

    assert order == ["loud", "quiet", "loud", "loud"]


async def decode_late(reviews: ReviewRunner, decode: Callable[[bytes], Tracked]) -> None:
    request = http_request(body_of(LARGE_BODY + 1, userInfo={"username": "mallory"}))
    request[DEADLINE_S] = asyncio.get_running_loop().time()
    with pytest.raises(web.HTTPServiceUnavailable):
        await reviews.decode(request, decode)


async def compute_late(reviews: ReviewRunner, decode: Callable[[bytes], Tracked]) -> None:
    request = http_request(body_of(LARGE_BODY + 1, namespace="team-b"))
    await reviews.decode(request, decode_pod_review)
    request[DEADLINE_S] = asyncio.get_running_loop().time()
    body = body_of(userInfo={"username": "mallory"})
    with pytest.raises(TooBusy):
        await reviews.compute(request, decode_pod_review(body), decode, body)


@pytest.mark.parametrize("time_out", [decode_late, compute_late])
async def test_a_review_that_runs_out_of_time_keeps_its_thread_and_pays_for_it(
    time_out: Callable[[ReviewRunner, Callable[[bytes], Tracked]], Awaitable[None]],
) -> None:
    """Its thread goes on: neither beside that of another review, nor for free."""
    metrics, loop = WebhookMetrics(CollectorRegistry()), asyncio.get_running_loop()
    reviews = review_runner(metrics, fraction=0.0, burst_s=1e-9)
    goes_on, has_ended, threads = threading.Event(), threading.Event(), asyncio.Queue[int]()

    def decode(body: bytes) -> Tracked:
        goes_on.wait(60)
        review = Tracked(request=decode_pod_review(body).request)
        weakref.finalize(
            review,
            lambda: loop.call_soon_threadsafe(threads.put_nowait, threading.get_ident()),
        )
        has_ended.set()
        return review

    def decode_next(body: bytes) -> PodReview:
        assert has_ended.is_set(), "two reviews are decoded at a time"
        return decode_pod_review(body)

    await time_out(reviews, decode)
    request = decode_pod_review(body_of(userInfo={"username": "mallory"})).request
    assert reviews.has_budget(request)
    body = body_of(LARGE_BODY + 1, namespace="team-c", userInfo={"username": "alice"})
    following = asyncio.ensure_future(reviews.decode(http_request(body), decode_next))
    await asyncio.sleep(0.01)
    goes_on.set()

    await following
    assert not reviews.has_budget(request)
    assert await threads.get() != threading.get_ident()


async def test_the_endpoint_says_when_to_come_back() -> None:
    async with endpoints() as make:
        endpoint = await make(user_cpu_fraction=1e-9, user_cpu_burst=PositiveDuration(1e-9))
        answers = [
            await endpoint.client.post(MUTATE_PATH, data=body_of(), headers=JSON) for _ in range(2)
        ]

        statuses = [(await answer.json())["response"].get("status", {}) for answer in answers]

    assert [answer.status for answer in answers] == [200, 200]
    assert [status.get("code") for status in statuses] == [None, 429]
    assert not any("Retry-After" in answer.headers for answer in answers)


def count_reviews(registry: CollectorRegistry) -> float:
    """Return the number of counted reviews, with any labels."""
    samples = (sample for metric in registry.collect() for sample in metric.samples)
    return sum(sample.value for sample in samples if sample.name == REVIEWS)


@pytest.mark.parametrize(
    ("path", "body", "labels"),
    [
        pytest.param(
            MUTATE_PATH,
            with_request(REVIEW),
            {"kind": "Pod", "operation": "CREATE", "decision": "postponed"},
            id="a pod is postponed",
        ),
        pytest.param(
            VALIDATE_WORKLOADS_PATH,
            workload_review(workload(pod(gpus(1)))),
            {"kind": "Deployment", "operation": "CREATE", "decision": "validated"},
            id="a workload is admitted with a warning",
        ),
        pytest.param(
            VALIDATE_WORKLOADS_PATH,
            workload_review(workload(pod(gpus(1))), operation="DELETE"),
            None,
            id="what needs no answer is not counted: its kind was not checked",
        ),
    ],
)
async def test_reviews_over_budget_are_counted_under_their_decision(
    path: str, body: Document, labels: dict[str, str] | None
) -> None:
    async with endpoints() as make:
        endpoint = await make(user_cpu_fraction=1e-9, user_cpu_burst=PositiveDuration(1e-9))
        await endpoint.client.post(MUTATE_PATH, data=body_of(), headers=JSON)  # Uses up the budget.
        counted = count_reviews(endpoint.registry)
        answer = await endpoint.client.post(path, data=encode(body), headers=JSON)

        assert answer.status == 200, await answer.text()
        assert endpoint.sample("drawbridge_requests_over_budget_total") == 1
        assert count_reviews(endpoint.registry) == counted + (labels is not None)
        assert labels is None or endpoint.sample(REVIEWS, **labels) == 1


async def test_a_review_that_takes_too_long_is_counted() -> None:
    registry = CollectorRegistry()
    reviews, request = review_runner(WebhookMetrics(registry)), http_request(body_of())
    review = await reviews.decode(request, decode_pod_review)
    request[DEADLINE_S] = asyncio.get_running_loop().time()
    with pytest.raises(TooBusy) as busy:
        async with reviews.deadline(request, review):
            await asyncio.Event().wait()
    reviews.respond_busy(busy.value, postponed(busy.value.reason))

    labels = {"kind": "Pod", "operation": "CREATE", "decision": "postponed"}
    assert registry.get_sample_value(REVIEWS, labels) == 1
    assert registry.get_sample_value("drawbridge_validation_timeouts_total") == 1
