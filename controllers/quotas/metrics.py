"""Metrics of DeviceQuotas: the usage of each limit."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from controllers.quotas.status import accounts_of
from controllers.quotas.usage import QuotaUsage
from quotas.device_quotas.ledger import Stage

_NANOS: Final = 10**9


class QuotaCollector(Collector):
    """Shows what is charged to the limits of all quotas; only the leader knows."""

    def __init__(self, usage: QuotaUsage) -> None:
        """Show a usage, as it is when metrics are scraped."""
        self._usage = usage

    def collect(self) -> Iterator[Metric]:
        """Yield the usage and the largest amount of each limit."""
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
        book = self._usage.book
        for quota, limits in sorted(book.tenants.limits.items()):
            for limit in limits:
                accounts = tuple(accounts_of(limit, book.tenants.selected(quota)))
                totals = [book.ledger.totals(account) for account in accounts]
                most.add_metric((quota, limit.name), limit.max.nanos * len(accounts) / _NANOS)
                for stage in Stage:
                    amount = sum(getattr(of_account, stage.value) for of_account in totals)
                    usage.add_metric((quota, limit.name, stage.value), amount / _NANOS)
        yield usage
        yield most
