"""The comparison of feature gates, and what is known before and without it."""

from collections.abc import Awaitable, Callable

import pytest

from allocator.model.feature_gates import Features
from kube.errors import Forbidden, KubeError
from sidecar.gate_check import GateCheck

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
