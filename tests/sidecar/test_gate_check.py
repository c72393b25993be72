"""The comparison of feature gates, and the state before and without it."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from allocator.model.feature_gates import Features
from kube.errors import Forbidden, KubeError, NotFound
from sidecar.reports.gate_check import DIFFERING_S, PERIOD_S, REFUSED_S, RETRY_S, GateCheck
from testing.fake_api_server import FakeApiServer
from testing.sidecar.scheduler import FakeScheduler, publish, sidecar_beside

OFF = 'kubernetes_feature_enabled{name="DRAConsumableCapacity",stage="BETA"} 0\n'


FORBIDDEN = Forbidden("no", status=403)


def answering(*answers: str | KubeError) -> Callable[[], Awaitable[str]]:
    rest = iter(answers)

    async def read() -> str:
        answer = next(rest)
        if isinstance(answer, KubeError):
            raise answer
        return answer

    return read


@pytest.mark.parametrize(
    ("answer", "look_again_s", "problem"),
    [
        (OFF, DIFFERING_S, "DRAConsumableCapacity is on here and off there"),
        ("", PERIOD_S, ""),
        (FORBIDDEN, REFUSED_S, "waiting for the feature gates"),
        (NotFound("nothing there", status=404), PERIOD_S, ""),
        (KubeError("no response"), RETRY_S, "waiting for the feature gates"),
    ],
    ids=["other gates", "equal gates", "refused once", "not served", "no answer"],
)
async def test_what_an_answer_means(
    answer: str | KubeError, look_again_s: float, problem: str
) -> None:
    check = GateCheck(Features(), answering(answer))
    assert "waiting" in check.problem()

    assert await check.compare() == look_again_s

    assert problem in check.problem()
    assert bool(problem) is bool(check.problem())


async def test_refusals_are_believed_once_there_are_some_in_a_row() -> None:
    """An API server that starts refuses until it knows the roles; the gates differed before."""
    away = KubeError("no response")
    check = GateCheck(Features(), answering(OFF, FORBIDDEN, FORBIDDEN, away, *[FORBIDDEN] * 3))
    for _ in range(6):
        await check.compare()
        assert "DRAConsumableCapacity" in check.problem()

    assert await check.compare() == PERIOD_S
    assert not check.problem()


async def test_a_scheduler_keeps_a_sidecar_whose_gates_differ(tmp_path: Path) -> None:
    """It goes on with pods without claims: it would end if it heard that the sidecar is not usable."""
    async with FakeApiServer() as server:
        publish(server, "node-1")
        async with sidecar_beside(server, tmp_path) as sidecar:
            sidecar.gates_problem = "feature gates differ"

            answer = await FakeScheduler(sidecar.socket).hello()

            assert (answer["ready"], answer["leads"]) == (True, True)
            assert answer["blocked"] == "feature gates differ"
