"""gRPC servers on unix sockets, one for registration and one for the driver's services.

Handlers are made from the descriptors of the protos, so that a method's name stands in one place.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

GRACE_S: Final = 5.0
"""Seconds that calls in progress have to finish when a server stops."""
MAX_MESSAGE_BYTES: Final = 16 * 2**20
MAX_CALLS: Final = 512
"""Calls at a time, all connections together; the kubelet makes one for each pod that starts or ends."""
_IDENTITY: Final = 1
"""The set of the only way in which messages are compressed: not at all. The bound of a message counts what
arrives, so a compressed one could be of any size."""

Unary = Callable[[Any], Awaitable[Message]]
"""Answers one request."""
Stream = Callable[[Any], AsyncIterator[Message]]
"""Answers one request many times."""


def service(
    descriptor: ServiceDescriptor,
    *,
    unary: Mapping[str, Unary] = {},
    streams: Mapping[str, Stream] = {},
) -> grpc.GenericRpcHandler:
    """Return a service as gRPC takes it.

    Args:
        descriptor: The service's descriptor in the proto.
        unary: Method to what answers it.
        streams: Method to what answers it; every method of the descriptor is in one of both.
    """
    handlers = {}
    for method in descriptor.methods:
        request = GetMessageClass(method.input_type).FromString
        if method.server_streaming:
            handlers[method.name] = grpc.unary_stream_rpc_method_handler(
                _streaming(streams[method.name]),
                request_deserializer=request,
                response_serializer=_serialize,
            )
        else:
            handlers[method.name] = grpc.unary_unary_rpc_method_handler(
                _answering(unary[method.name]),
                request_deserializer=request,
                response_serializer=_serialize,
            )
    return grpc.method_handlers_generic_handler(descriptor.full_name, handlers)


def _answering(answer: Unary) -> Callable[[Any, object], Awaitable[Message]]:
    async def handle(request: Any, _context: object) -> Message:
        return await answer(request)

    return handle


def _streaming(answers: Stream) -> Callable[[Any, object], AsyncIterator[Message]]:
    async def handle(request: Any, _context: object) -> AsyncIterator[Message]:
        async for message in answers(request):
            yield message

    return handle


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


@asynccontextmanager
async def serving(path: Path, *services: grpc.GenericRpcHandler) -> AsyncIterator[None]:
    """Serve on a unix socket until the context exits; umask and folder decide about access.

    Raises:
        OSError: The socket cannot be made.
    """
    _unlink(path)  # Of a run of the same pod that was killed.
    options = [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.compression_enabled_algorithms_bitset", _IDENTITY),
    ]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MAX_CALLS)
    server.add_generic_rpc_handlers(services)
    server.add_insecure_port(f"unix://{path}")
    await server.start()
    try:
        yield
    finally:
        # Nobody new comes while calls that are under way end.
        _unlink(path)
        await server.stop(GRACE_S)


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)
