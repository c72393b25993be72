"""The comparison of feature gates, and what is known before and without it."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from allocator.model.feature_gates import Features
from kube.errors import Forbidden, KubeError
from sidecar.gate_check import GateCheck
from testing.fake_api_server import FakeApiServer
from testing.sidecar.scheduler import FakeScheduler, publish, sidecar_beside

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


async def test_a_scheduler_keeps_a_sidecar_whose_gates_differ(tmp_path: Path) -> None:
    """It goes on with pods without claims: it would end if it heard that the sidecar is not usable."""
    async with FakeApiServer() as server:
        publish(server, "node-1")
        async with sidecar_beside(server, tmp_path) as sidecar:
            sidecar.gates_problem = "feature gates differ"

            answer = await FakeScheduler(sidecar.socket).hello()

            assert (answer["ready"], answer["leads"]) == (True, True)
