"""Reviews on threads and on the event loop, and the charges of users and namespaces."""

import asyncio
import itertools
import json
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
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
from testing.builders import Document, gpus, pod, workload
from testing.review_runner import UNLIMITED_S, review_runner
from testing.webhook_endpoint import (
    JSON,
    REVIEW,
    encode,
    endpoints,
    with_request,
    workload_review,
)
from webhook.metrics import WebhookMetrics
from webhook.mutate import PodReview, decode_pod_review
from webhook.reviews import BUSY, DEADLINE_S, LARGE_BODY, OVER_BUDGET, ReviewRunner

REVIEWS = "drawbridge_reviews_total"


def http_request(body: bytes) -> web.BaseRequest:
    """Return a request whose body has arrived."""
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

    async def respond_to(review: PodReview) -> web.Response:
        threads.append(await reviews.answer(request, review.request, threading.get_ident))
        return web.Response()

    await reviews.run(request, decode, respond_to, busy=postponed, waits=True)

    assert [thread != here for thread in threads] == [is_large, is_large]


class Tracked(PodReview, frozen=True, kw_only=True, weakref=True):
    """A review of which a test learns when it is dropped."""


async def drop_thread(
    reviews: ReviewRunner, respond_to: Callable[[web.BaseRequest, Tracked], Awaitable[web.Response]]
) -> int:
    """Return the thread that drops a large review."""
    request = http_request(body_of(LARGE_BODY + 1))
    loop = asyncio.get_running_loop()
    dropped: asyncio.Future[int] = loop.create_future()

    def tell() -> None:
        loop.call_soon_threadsafe(dropped.set_result, threading.get_ident())

    def decode(body: bytes) -> Tracked:
        review = Tracked(request=decode_pod_review(body).request)
        weakref.finalize(review, tell)
        return review

    with suppress(web.HTTPException):
        await reviews.run(request, decode, partial(respond_to, request), busy=postponed, waits=True)
    return await dropped


async def test_a_large_review_is_dropped_on_a_thread_however_it_ends() -> None:
    reviews = runner(burst_s=0.5)

    async def answer(request: web.BaseRequest, review: Tracked) -> web.Response:
        await reviews.answer(request, review.request, lambda: review)
        return web.Response()

    async def refuse(request: web.BaseRequest, review: Tracked) -> web.Response:
        def compute() -> None:
            raise ReviewError(review.name)

        await reviews.answer(request, review.request, compute)
        return web.Response()

    async def reject(_request: web.BaseRequest, review: Tracked) -> web.Response:
        raise web.HTTPServiceUnavailable(text=review.name)

    async def use_up(_request: web.BaseRequest, review: Tracked) -> web.Response:
        reviews.charge(review.request, 1.0)
        return web.Response()

    # After `use_up` the last review is not answered any more.
    threads = [
        await drop_thread(reviews, respond_to)
        for respond_to in (answer, refuse, reject, use_up, answer)
    ]

    assert threading.get_ident() not in threads


def status_of(response: web.Response) -> Document:
    assert isinstance(response.body, bytes)
    status: Document = json.loads(response.body)["response"].get("status") or {}
    return status


async def test_a_user_whose_time_is_used_up_is_asked_to_come_back() -> None:
    reviews = runner(burst_s=0.5)
    mallory: Document = {"userInfo": {"username": "mallory"}}
    users: list[str] = []

    async def use_up(review: PodReview) -> web.Response:
        users.append(review.request.user_info.username)
        reviews.charge(review.request, 1.0)
        return web.Response()

    async def run(request: Document) -> web.Response:
        return await reviews.run(
            http_request(body_of(**request)), decode_pod_review, use_up, busy=postponed, waits=False
        )

    await run(mallory)

    status = status_of(await run(mallory))
    assert (status["code"], status["details"]) == (429, {"retryAfterSeconds": 1})
    assert status["message"] == f"{OVER_BUDGET}; try again"
    await run({"userInfo": {"username": "alice"}, "namespace": "team-b"})
    assert users == ["mallory", "alice"]


async def test_a_user_does_not_pay_for_a_pause_of_the_process() -> None:
    """The process was stopped for six seconds while it decoded the first review."""
    reviews = runner(burst_s=0.5, clock=itertools.chain([0.0], itertools.repeat(6.0)).__next__)

    async def respond_to(_review: PodReview) -> web.Response:
        return web.Response(text="answered")

    answers = [
        await reviews.run(
            http_request(body_of()), decode_pod_review, respond_to, busy=postponed, waits=False
        )
        for _ in range(2)
    ]

    assert [answer.text for answer in answers] == ["answered", "answered"]


@pytest.mark.parametrize("size", [0, LARGE_BODY + 1])
async def test_an_answer_comes_before_the_api_server_gives_up(size: int) -> None:
    reviews, request = runner(), http_request(body_of(size))
    request[DEADLINE_S] = asyncio.get_running_loop().time() + 0.05

    async def wait(_review: PodReview) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    answer = await reviews.run(request, decode_pod_review, wait, busy=postponed, waits=True)

    assert status_of(answer)["message"] == f"{BUSY}; try again"


async def test_large_reviews_of_namespaces_take_turns() -> None:
    """A thread decodes one at a time, and a namespace is known before that."""
    reviews, busy, order = runner(), threading.Event(), list[str]()

    async def review(namespace: str) -> None:
        def decode(body: bytes) -> PodReview:
            busy.wait(5)
            order.append(namespace)
            return decode_pod_review(body)

        async def respond_to(_review: PodReview) -> web.Response:
            return web.Response()

        request = http_request(body_of(LARGE_BODY + 1, namespace=namespace))
        await reviews.run(request, decode, respond_to, busy=postponed, waits=False)

    async with asyncio.TaskGroup() as group:
        for namespace in ("loud", "loud", "loud", "quiet"):
            group.create_task(review(namespace))
            await asyncio.sleep(0.01)
        busy.set()

    assert order == ["loud", "quiet", "loud", "loud"]


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
    """Return the number of counted reviews, whatever their labels."""
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
    request[DEADLINE_S] = asyncio.get_running_loop().time() + 0.05

    async def wait(_review: PodReview) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    await reviews.run(request, decode_pod_review, wait, busy=postponed, waits=True)

    labels = {"kind": "Pod", "operation": "CREATE", "decision": "postponed"}
    assert registry.get_sample_value(REVIEWS, labels) == 1
