"""Denials of an amount in a wrong unit that is too large besides: the fix is right at the first try."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from testing.builders import NAMESPACE, gpus, pod, workload
from testing.documents import Document
from testing.hami_cluster import SNAPSHOT, context_fields
from testing.webhook_endpoint import (
    FixedEvaluator,
    StartEndpoint,
    WebhookEndpoint,
    mutate_pod,
    validate_workload,
)
from translation.cluster.snapshot import TranslationSnapshot

KEY: Final = "nvidia.com/gpumem"
PLAIN: Final = "write 204800 for 200Gi"
SETTLED: Final = (
    "write 81920: 204800 would be the same amount, and be rejected as exceedsLargestDevice"
)


def snapshot() -> TranslationSnapshot:
    return SNAPSHOT


def evaluator(**fields: Any) -> FixedEvaluator:
    return FixedEvaluator(snapshot, **{**context_fields(), **fields})


async def denial_of_pod(endpoint: WebhookEndpoint, amount: object) -> str:
    return denial(await mutate_pod(endpoint, pod(gpus(1, mem=amount))))


async def denial_of_deployment(endpoint: WebhookEndpoint, amount: object) -> str:
    return denial(await validate_workload(endpoint, workload(pod(gpus(1, mem=amount)))))


def denial(response: Document) -> str:
    return "" if response["allowed"] else str(response["status"]["message"])


@pytest.mark.parametrize("deny", [denial_of_pod, denial_of_deployment])
async def test_a_denial_names_the_amount_that_fits(
    deny: Callable[..., Any], start: StartEndpoint
) -> None:
    endpoint = await start(snapshot, evaluator())

    assert SETTLED in await deny(endpoint, "200Gi")
    assert await deny(endpoint, 81920) == ""
    assert "write 8192 for 8Gi" in await deny(endpoint, "8Gi")


async def test_only_denials_with_such_an_amount_are_evaluated(start: StartEndpoint) -> None:
    rules = evaluator()
    endpoint = await start(snapshot, rules)

    await denial_of_pod(endpoint, 8192)
    await denial_of_pod(endpoint, 0.5)
    assert rules.tenants == []

    await denial_of_pod(endpoint, "8Gi")
    assert rules.tenants == [NAMESPACE]


async def test_no_time_for_it_leaves_the_plain_fix(start: StartEndpoint) -> None:
    endpoint = await start(snapshot, evaluator(times_out=True))

    assert PLAIN in await denial_of_pod(endpoint, "200Gi")


async def test_a_large_review_is_not_reviewed_again(start: StartEndpoint) -> None:
    rules = evaluator()
    endpoint = await start(snapshot, rules)
    large = pod(gpus(1, mem="200Gi"), annotations={"note": "x" * 9000})

    assert PLAIN in denial(await mutate_pod(endpoint, large))
    assert rules.tenants == []


async def test_a_spent_budget_leaves_the_plain_fix(start: StartEndpoint) -> None:
    rules = evaluator()
    endpoint = await start(snapshot, rules, user_cpu_burst=1e-9, user_cpu_fraction=1e-9)

    assert PLAIN in await denial_of_pod(endpoint, "200Gi")
    assert rules.tenants == []


async def test_the_evaluation_is_charged(start: StartEndpoint) -> None:
    endpoint = await start(
        snapshot, evaluator(took_s=100.0), user_cpu_burst=1.0, user_cpu_fraction=0.001
    )

    assert SETTLED in await denial_of_pod(endpoint, "200Gi")
    assert "too much time" in await denial_of_pod(endpoint, 8192)


async def test_a_denial_names_what_the_api_server_would_reject_next(start: StartEndpoint) -> None:
    """Of a key that stays, and of a pod that is admitted, the API server tells itself."""
    endpoint = await start(snapshot, evaluator())
    kept = {"requests": {"example.com/card": 1}, "limits": {"example.com/card": 2}}
    beside = {"name": "beside", "resources": kept}

    denied = denial(await mutate_pod(endpoint, pod(gpus(1, mem="8Gi"), beside)))
    admitted = await mutate_pod(endpoint, pod(gpus(1, mem=8192), beside))

    assert "write 8192 for 8Gi" in denied
    assert "must be equal to example.com/card limit of 2; write 2 in both" in denied
    assert admitted["allowed"]
