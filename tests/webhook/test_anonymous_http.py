"""The port of the webhook under malformed HTTP: nothing of it, or of us, is in an answer."""

import asyncio

import pytest
from structlog.testing import capture_logs

from admission.webhook_configuration import MUTATE_PATH
from certs.serving import client_tls_context
from process.model.durations import PositiveDuration
from process.serving import connections
from testing.malformed_http import MALFORMED, WORD, Malformed, revealing_lines
from testing.webhook_endpoint import LEAF, REVIEW, StartEndpoint, WebhookEndpoint

UNKNOWN_PATH = f"POST /{WORD} HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n"
MALFORMED_COUNT = "drawbridge_connections_closed_total"


async def every_byte(endpoint: WebhookEndpoint, request: bytes) -> bytes:
    """Return the whole answer, until the server closes."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", endpoint.endpoint.port, ssl=client_tls_context(LEAF.authority)
    )
    try:
        async with asyncio.timeout(30):
            writer.write(request)
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("malformed", MALFORMED, ids=lambda malformed: malformed.name)
async def test_an_answer_to_malformed_http_is_empty(
    malformed: Malformed, start: StartEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CHECK_INTERVAL_S", 0.05)
    endpoint = await start(request_header_timeout=PositiveDuration(1.0))
    with capture_logs() as log:
        answer = await every_byte(endpoint, malformed.request)

    assert revealing_lines(answer) == []
    assert WORD not in str(log)
    assert (await endpoint.client.post(MUTATE_PATH, json=REVIEW)).status == 200


async def test_a_stranger_is_not_invited_to_send_a_body(start: StartEndpoint) -> None:
    endpoint = await start()
    waiting = f"{UNKNOWN_PATH}Expect: 100-continue\r\n\r\n".encode()
    plain = f"{UNKNOWN_PATH}\r\n".encode()

    answers = [await every_byte(endpoint, request) for request in (waiting, plain)]

    assert [answer.split(b"\r\n")[0] for answer in answers] == [b"HTTP/1.1 404 Not Found"] * 2
    assert [revealing_lines(answer) for answer in answers] == [[], []]


async def test_who_knows_the_path_is_invited(start: StartEndpoint) -> None:
    endpoint = await start()
    answer = await endpoint.client.post(MUTATE_PATH, json=REVIEW, expect100=True)
    assert answer.status == 200


async def test_malformed_http_is_counted(start: StartEndpoint) -> None:
    endpoint = await start()
    await every_byte(endpoint, b"no HTTP\r\n\r\n")
    assert endpoint.sample(MALFORMED_COUNT, reason="malformed") == 1
