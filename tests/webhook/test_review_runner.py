"""Reviews on threads and on the event loop, and the charges of users and namespaces."""

import asyncio
import threading
from typing import Any

import pytest
from aiohttp import StreamReader, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry

from admission.webhook_configuration import MUTATE_PATH
from process.durations import PositiveDuration
from testing.builders import Document
from testing.review_runner import review_runner
from testing.webhook_endpoint import JSON, REVIEW, encode, endpoints, with_request
from webhook.metrics import WebhookMetrics
from webhook.mutate import PodReview, decode_pod_review
from webhook.reviews import LARGE_BODY, ReviewRunner


def http_request(body: bytes) -> web.Request:
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

    decoded = await reviews.read(request, decode)
    threads.append(await reviews.answer(request, decoded.request, threading.get_ident))

    assert [thread != here for thread in threads] == [is_large, is_large]


async def test_a_user_whose_time_is_used_up_is_asked_to_come_back() -> None:
    reviews = runner(burst_s=0.5)
    mallory: Document = {"userInfo": {"username": "mallory"}}
    decoded = await reviews.read(http_request(body_of(**mallory)), decode_pod_review)
    reviews.charge(decoded.request, 1.0)

    with pytest.raises(web.HTTPServiceUnavailable) as refusal:
        await reviews.read(http_request(body_of(**mallory)), decode_pod_review)
    assert refusal.value.headers["Retry-After"] == "1"
    alice: Document = {"userInfo": {"username": "alice"}, "namespace": "team-b"}
    other = await reviews.read(http_request(body_of(**alice)), decode_pod_review)
    assert other.request.user_info.username == "alice"


async def test_the_endpoint_says_when_to_come_back() -> None:
    async with endpoints() as make:
        endpoint = await make(user_cpu_fraction=1e-9, user_cpu_burst=PositiveDuration(1e-9))
        answers = [
            await endpoint.client.post(MUTATE_PATH, data=body_of(), headers=JSON) for _ in range(2)
        ]

    assert [answer.status for answer in answers] == [200, 503]
    assert answers[1].headers["Retry-After"] == "1"
