"""Reviews on threads and on the event loop, and the charges of users and namespaces."""

import asyncio
import threading
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

from admission.review import ReviewError
from admission.webhook_configuration import MUTATE_PATH
from process.durations import PositiveDuration
from testing.builders import Document
from testing.review_runner import review_runner
from testing.webhook_endpoint import JSON, REVIEW, encode, endpoints, with_request
from webhook.metrics import WebhookMetrics
from webhook.mutate import PodReview, decode_pod_review
from webhook.reviews import LARGE_BODY, ReviewRunner


def http_request(body: bytes) -> web.BaseRequest:
    """Return a request whose body has arrived."""
    loop = asyncio.get_running_loop()
    payload = StreamReader(BaseProtocol(loop), limit=2**20, loop=loop)
    payload.feed_data(body)
    payload.feed_eof()
    headers = {"Content-Type": "application/json"}
    return make_mocked_request("POST", "/mutate", headers=headers, payload=payload)


def body_of(size: int = 0, **request: Any) -> bytes:
    body = encode(with_request(REVIEW, **request))
    return body + b" " * max(size - len(body), 0)


def runner(**options: float) -> ReviewRunner:
    return review_runner(WebhookMetrics(CollectorRegistry()), **options)


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

    await reviews.run(request, decode, respond_to)

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
        await reviews.run(request, decode, partial(respond_to, request))
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


async def test_a_user_whose_time_is_used_up_is_asked_to_come_back() -> None:
    reviews = runner(burst_s=0.5)
    mallory: Document = {"userInfo": {"username": "mallory"}}
    users: list[str] = []

    async def use_up(review: PodReview) -> web.Response:
        users.append(review.request.user_info.username)
        reviews.charge(review.request, 1.0)
        return web.Response()

    await reviews.run(http_request(body_of(**mallory)), decode_pod_review, use_up)

    with pytest.raises(web.HTTPServiceUnavailable) as refusal:
        await reviews.run(http_request(body_of(**mallory)), decode_pod_review, use_up)
    assert refusal.value.headers["Retry-After"] == "1"
    alice: Document = {"userInfo": {"username": "alice"}, "namespace": "team-b"}
    await reviews.run(http_request(body_of(**alice)), decode_pod_review, use_up)
    assert users == ["mallory", "alice"]


async def test_the_endpoint_says_when_to_come_back() -> None:
    async with endpoints() as make:
        endpoint = await make(user_cpu_fraction=1e-9, user_cpu_burst=PositiveDuration(1e-9))
        answers = [
            await endpoint.client.post(MUTATE_PATH, data=body_of(), headers=JSON) for _ in range(2)
        ]

    assert [answer.status for answer in answers] == [200, 503]
    assert answers[1].headers["Retry-After"] == "1"
