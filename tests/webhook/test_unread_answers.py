"""A client that sends reviews and reads no answers: the unread ones are not kept without bound."""

import asyncio

import msgspec

from admission.webhook_configuration import MUTATE_PATH
from testing.fuzz.calls import post_call
from testing.fuzz.endpoint import Wire
from testing.webhook_endpoint import REVIEW, StartEndpoint

CALL = post_call(msgspec.json.encode(REVIEW), "a review").bytes
ANSWERED = {"kind": "Pod", "operation": "CREATE", "decision": "translated"}


async def settle() -> None:
    """Let everything happen that is due."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_reviews_wait_while_their_client_does_not_read(start: StartEndpoint) -> None:
    endpoint = await start()
    wire = Wire(endpoint.endpoint.protocols()())

    def answered() -> float:
        return endpoint.sample("drawbridge_reviews_total", **ANSWERED)

    wire.protocol.data_received(CALL)
    await settle()
    assert answered() == 1

    wire.protocol.pause_writing()  # As a transport does when its buffer is full.
    for _ in range(5):
        wire.protocol.data_received(CALL)
    await settle()
    assert answered() == 2  # Its answer is what the transport did not expect any more.

    wire.protocol.resume_writing()
    await settle()
    assert answered() == 6
    assert wire.sent.count(b"HTTP/1.1 200 OK") == 6
    assert MUTATE_PATH.encode() not in wire.sent
    wire.close()
