"""Metrics of DeviceQuotas: the usage of each limit, and promises that nobody takes up."""

import time
from collections.abc import Callable, Hashable, Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from quotas.device_quotas.ledger import Stage
from quotas.device_quotas.limit_sums import sums_of
from quotas.gates.usage import QuotaUsage

_NANOS: Final = 10**9


class QuotaCollector(Collector):
    """Shows the charges to the limits of all quotas; only the leader knows."""

    def __init__(self, usage: QuotaUsage, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Show a usage, as it is when metrics are scraped.

        Args:
            clock: Monotonic seconds.
        """
        self._usage = usage
        self._clock = clock
        self._promised_since: dict[Hashable, float] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield the usage, the largest amount, the alert and the oldest promise of each limit."""
        usage = GaugeMetricFamily(
            "drawbridge_device_quota_usage",
            "Amount that is charged to a limit of a DeviceQuota, by state: used, promised or waiting.",
            labels=("quota", "limit", "state"),
        )
        most = GaugeMetricFamily(
            "drawbridge_device_quota_max",
            "Amount of a limit of a DeviceQuota that may be in use at a time, of all its namespaces "
            "together.",
            labels=("quota", "limit"),
        )
        reached = GaugeMetricFamily(
            "drawbridge_device_quota_threshold_reached",
            "1 if more of a limit of a DeviceQuota is used or promised than its alertThresholdPercent, in some "
            "namespace where each has its own amount.",
            labels=("quota", "limit"),
        )
        book = self._usage.book
        for quota, limits in sorted(book.tenants.limits.items()):
            for limit in limits:
                selected = book.tenants.selected(quota)
                sums = sums_of(limit, selected, book.ledger)
                total = sums.total
                whole = limit.max.nanos * len(sums.by_account)
                most.add_metric((quota, limit.name), whole / _NANOS)
                is_above = any(True for _ in sums.above_threshold)
                reached.add_metric((quota, limit.name), float(is_above))
                for stage in Stage:
                    amount = getattr(total, stage.value)
                    usage.add_metric((quota, limit.name, stage.value), amount / _NANOS)
        yield usage
        yield most
        yield reached
        yield self._oldest_promises()

    def _oldest_promises(self) -> Metric:
        """Return the age of the oldest promise of each limit that has not been taken up."""
        now_s = self._clock()
        since = self._promised_since
        ages: dict[tuple[str, str], float] = {}
        promised = {
            key: entry
            for key, entry in self._usage.book.ledger.entries.items()
            if entry.stage is Stage.PROMISED
        }
        self._promised_since = {key: since.get(key, now_s) for key in promised}
        for key, entry in promised.items():
            for account in entry.charges:
                name = (account.limit.quota, account.limit.name)
                ages[name] = max(ages.get(name, 0.0), now_s - self._promised_since[key])
        family = GaugeMetricFamily(
            "drawbridge_device_quota_promised_seconds",
            "Seconds for which the longest promise of a limit of a DeviceQuota has not become an "
            "allocation, as far as this leader has seen.",
            labels=("quota", "limit"),
        )
        for name, age_s in sorted(ages.items()):
            family.add_metric(name, age_s)
        return family
