"""A server for requests with bodies of bounded size, and no routes."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiohttp import web


def bounded_server(
    handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
    *,
    max_body_bytes: int,
    **options: Any,
) -> web.Server:
    """Return a server that has one handler for all paths.

    It is no web.Application, whose routing costs as much as a small call. Called on the event loop.

    Args:
        handle: Answers a request.
        max_body_bytes: Reading a larger body raises HTTPRequestEntityTooLarge.
        options: The options of `web.RequestHandler`.
    """
    bounded_request = partial(
        web.BaseRequest, loop=asyncio.get_running_loop(), client_max_size=max_body_bytes
    )
    return web.Server(handle, request_factory=bounded_request, **options)
