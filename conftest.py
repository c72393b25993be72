"""Hypothesis profiles and event loops of all tests.

The default profile is deterministic: a run must not depend on luck. HYPOTHESIS_PROFILE=oracle (`make
oracle`) searches longer with fresh seeds and prints how to reproduce a failure; what it finds becomes
a row or an `@example`.
"""

import asyncio
import gc
import os
import random
import re
import signal
from collections.abc import Callable, Mapping
from typing import Final

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling

pytest_plugins = ["testing.story_lines"]

settings.register_profile(
    "default",
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "oracle",
    parent=settings.get_profile("default"),
    max_examples=20_000,
    derandomize=False,
    print_blob=True,
)
PROFILE: Final = os.environ.get("HYPOTHESIS_PROFILE", "default")
settings.load_profile(PROFILE)
if PROFILE == "default":
    # Hypothesis also draws constants of all modules that a process happens to have imported: values that differ from
    # one process to another, and a third of the time that each of them needs to find its tests. No setting ends that.
    providers._get_local_constants = lambda: providers._local_constants  # noqa: SLF001


# A shell starts what it runs in the background with ^C ignored, and all that this starts inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Exempt the million objects that describe the tests from all later collections of garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _fixed_random_seed() -> None:
    """Seed the global random generator, so that a test draws the same values in every run."""
    random.seed(0)


QUARTERS: Final[Mapping[str, tuple[str, ...]]] = {
    "nodes": ("e2e/test_node_", "e2e/test_local", "e2e/test_validate_", "e2e/test_webhook_"),
    "bridge": ("e2e/test_bridge_", "e2e/test_fault_"),
    "adoption": ("e2e/test_adopt_", "e2e/test_attack_"),
}
"""Stories that take about as long together, by the beginning of their files; the fourth quarter are all others."""


TOGETHER: Final = frozenset(
    {
        "tests/bench/test_scale.py",
        "tests/cli/test_html_in_browser.py",
        "tests/oracle/test_allocator_oracle.py",
        "tests/oracle/test_group_oracle.py",
        "tests/test_citations.py",
        "tests/test_english.py",
        "tests/test_image.py",
        "tests/test_manifests.py",
        "tests/test_previous_version.py",
        "tests/tools/test_docs_site.py",
        "tests/tools/test_walk.py",
    }
)
"""Files whose tests share what takes long to make, and would make it again in each process."""


class StoriesApart(LoadScopeScheduling):  # type: ignore[misc]  # Has no types.
    """A distribution over processes: each quarter of the stories to one, other tests singly but for `TOGETHER`.

    Stories wait more than they compute, so there are more processes than cores. The stories of a quarter
    share a cluster, which each process starts for itself. They share the one that
    `DRAWBRIDGE_E2E_KUBECONFIG` names in one process.
    """

    def _split_scope(self, nodeid: str) -> str:
        """Return the scope that a test is distributed with."""
        if not nodeid.startswith("e2e/"):
            file = nodeid.partition("::")[0]
            return file if file in TOGETHER else nodeid
        if "DRAWBRIDGE_E2E_KUBECONFIG" not in os.environ:
            for scope, files in QUARTERS.items():
                if nodeid.startswith(files):
                    return f"e2e: {scope}"
        return "e2e"


ROUND: Final = re.compile(r"\[(?:cluster\d+-)?(\d+)(?:-cluster\d+)?\]$")
"""The number of a round in the name of a test."""
ROUNDS: Final = 25
"""The number of rounds of a story that follow each other in one process."""


class RoundsApart(LoadScopeScheduling):  # type: ignore[misc]  # Has no types.
    """A distribution of few stories over processes: each file to one, and many rounds to several."""

    def _split_scope(self, nodeid: str) -> str:
        """Return the scope that a test is distributed with."""
        number = ROUND.search(nodeid)
        part = int(number[1]) // ROUNDS if number else 0
        return f"{nodeid.partition('::')[0]} {part}"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Distribute the tests of `make test` and, with `--dist loadfile`, those of `make chaos`.

    The largest part, such as the stories, comes first.
    """
    by_file = config.getoption("dist") == "loadfile"
    return RoundsApart(config, log) if by_file else StoriesApart(config, log)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name sets alike in every process, so that the processes of `make test` know the same tests."""
    return str(sorted(val, key=str)) if isinstance(val, set | frozenset) else None


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests on asyncio's event loop; tests of sockets run on uvloop as well.

    They have `pytestmark = pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])`.
    """
    loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    marker = item.get_closest_marker("asyncio")
    has_both = marker is not None and "loop_factories" in marker.kwargs
    return loops if has_both else {"asyncio": loops["asyncio"]}
