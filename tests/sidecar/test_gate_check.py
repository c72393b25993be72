"""The comparison of feature gates, and what is known before and without it."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from allocator.model.feature_gates import Features
from kube.errors import Forbidden, KubeError
from sidecar.gate_check import GateCheck
from testing.fake_api_server import FakeApiServer
from testing.sidecar.scheduler import FakeScheduler, publish, sidecar_beside

DIFFERENT = (
    "feature gates differ from the API server's: DRAConsumableCapacity is on here and off there"
)
OFF = 'kubernetes_feature_enabled{name="DRAConsumableCapacity",stage="BETA"} 0\n'


def answering(answer: str | KubeError) -> Callable[[], Awaitable[str]]:
    async def read() -> str:
        if isinstance(answer, KubeError):
            raise answer
        return answer

    return read


@pytest.mark.parametrize(
    ("answer", "is_answered", "problem"),
    [
        (OFF, True, "DRAConsumableCapacity is on here and off there"),
        ("", True, ""),
        (Forbidden("no", status=403), True, ""),
        (KubeError("no response"), False, "waiting for the feature gates"),
    ],
    ids=["other gates", "equal gates", "not ours to read", "no answer"],
)
async def test_what_an_answer_means(
    answer: str | KubeError, is_answered: bool, problem: str
) -> None:
    check = GateCheck(Features(), answering(answer))
    assert "waiting" in check.problem()

    assert await check.compare() is is_answered

    assert problem in check.problem()
    assert bool(problem) is bool(check.problem())


async def test_hello_names_the_gate_that_differs_and_is_not_ready(tmp_path: Path) -> None:
    """As /readyz, which no call of the scheduler passes by: all others are answered with 503 then."""
    async with FakeApiServer() as server:
        publish(server, "node-1")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            assert (await scheduler.hello())["ready"]

            sidecar.gates_problem = DIFFERENT
            differing = await scheduler.hello()
            sidecar.gates_problem = ""

            assert not differing["ready"]
            assert (differing["leads"], differing["message"]) == (True, DIFFERENT)
            assert (await scheduler.hello())["ready"]
