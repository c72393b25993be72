"""Denials with the amounts that will be admitted, within the budget of the review."""

from collections.abc import Callable
from functools import partial

from aiohttp import web

from admission.pods import Answer, Decision
from findings.settled_fixes import has_unsettled_fix
from rules.context.context import Context
from webhook.evaluator import Evaluator
from webhook.reviews import Review, ReviewRunner, TooBusy


async def settle_denial(
    http_request: web.BaseRequest,
    review: Review,
    answer: Answer,
    settle: Callable[[Context], Answer],
    *,
    runner: ReviewRunner,
    evaluator: Evaluator,
) -> Answer:
    """Return a denial with settled amounts; as it is without such amounts, or without time.

    Args:
        settle: Settles the answer, with the cluster as rules read it.
    """
    if answer.decision is not Decision.REFUSED or not has_unsettled_fix(answer.findings):
        return answer
    request = review.request
    # A large review is costly to review again.
    if runner.is_large(http_request) or not runner.has_budget(request):
        return answer
    try:
        async with runner.deadline(http_request, review):
            return await evaluator.evaluate(
                settle, tenant=request.namespace, charge=partial(runner.charge, request)
            )
    except (TimeoutError, TooBusy):
        return answer
