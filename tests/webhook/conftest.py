"""Endpoints of the webhook, started on demand."""

from collections.abc import AsyncIterator

import pytest

from testing.webhook_endpoint import StartEndpoint, endpoints


@pytest.fixture
async def start() -> AsyncIterator[StartEndpoint]:
    async with endpoints() as make:
        yield make
