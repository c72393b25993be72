"""What all tests share: how long properties look for a counterexample, and the event loops.

HYPOTHESIS_PROFILE=oracle looks longer (make oracle).
"""

import asyncio
import os
from collections.abc import Callable, Mapping

import pytest
import uvloop
from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("oracle", parent=settings.get_profile("default"), max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run a test on asyncio's own loop; one that is about sockets asks for production's as well.

    It does by `pytestmark = pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])`.
    """
    loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    marker = item.get_closest_marker("asyncio")
    asked = marker.kwargs.get("loop_factories") if marker is not None else None
    return loops if asked else {"asyncio": loops["asyncio"]}
