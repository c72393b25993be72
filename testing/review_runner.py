"""A runner of reviews for users with unlimited time, by default."""

import time
from collections.abc import Callable

from webhook.budgets import ReviewBudgets
from webhook.metrics import WebhookMetrics
from webhook.reviews import ReviewRunner

UNLIMITED_S = 1e9


def review_runner(
    metrics: WebhookMetrics,
    *,
    fraction: float = 0.25,
    burst_s: float = UNLIMITED_S,
    clock: Callable[[], float] = time.perf_counter,
) -> ReviewRunner:
    """Return a runner."""
    return ReviewRunner(ReviewBudgets(fraction, burst_s), metrics, clock=clock)
