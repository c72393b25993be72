"""The controller of DeviceQuotas: keeps their status.

A status is written when it differs. One in which only amounts differ waits until the last write is old
enough, since amounts change with every claim. `status` and `conditions` decide its content.
"""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from controllers.model.evaluating_parts import EvaluatingParts
from controllers.model.settings import ControllerSettings
from controllers.quotas.conditions import Deciders
from controllers.quotas.driver_owners import DriverOwners
from controllers.quotas.feed import QuotaFeed
from controllers.quotas.gates import QuotaGateController
from controllers.quotas.metrics import QuotaCollector
from controllers.quotas.status import differs_in_more_than_amounts, quota_status
from kube.api.device_quota import DeviceQuota, DeviceQuotaStatus
from kube.api.meta import rfc3339, status_patch, version_number
from kube.api.urls import DEVICE_QUOTAS
from kube.client.client import Client, PatchType
from kube.errors import Conflict, NotFound
from kube.logs import get_logger
from kube.runtime.controller import Controller
from process.running.leader_election import Work
from process.selectors.engine import WorkerEngine

EVALUATION_S: Final = 1.0
"""The time that changed charges have to be evaluated before a status says that they are not."""
EVALUATION_RETRY_S: Final = 0.05

log = get_logger()


class _Written:
    """The status of a quota as we wrote it last.

    Attributes:
        status: The status, newer than the watch's until that has seen `version`.
        at_s: The time of the write, by the monotonic clock.
    """

    def __init__(self, status: DeviceQuotaStatus | None, version: int, at_s: float) -> None:
        self.status, self.version, self.at_s = status, version, at_s


class QuotaStatusController:
    """Keeps the status of DeviceQuotas; the leader runs it.

    Attributes:
        controllers: The controllers to run; their keys are names of quotas.
    """

    def __init__(
        self,
        client: Client,
        feed: QuotaFeed,
        settings: ControllerSettings,
        *,
        owners: DriverOwners,
        gate_fault: Callable[[], str],
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Listen to the usage, and to the owners of drivers.

        Args:
            gate_fault: Returns why pods of other schedulers are not held back; empty if they are.
            now: The wall clock, for conditions.
            clock: Monotonic seconds.
        """
        self._client = client
        self._feed = feed
        self._settings = settings
        self._gate_fault = gate_fault
        self._now = now
        self._clock = clock
        self._written: dict[str, _Written] = {}
        self._outstanding_since: float | None = None
        self._owners = owners
        owners.listeners.append(self.queue_all)
        feed.listeners.append(self.queue_all)
        self._controller: Controller[str] = Controller(
            "quotas",
            self._reconcile,
            subscriptions=(*feed.subscriptions, owners.subscription),
            backoff=settings.backoff(),
        )
        # Somebody else may have written it.
        feed.status_listeners.append(self._controller.queue.add)
        self.controllers: Final = (self._controller,)

    def queue_all(self) -> None:
        """Queue all quotas."""
        for name in self._feed.usage.book.tenants.quotas.keys() | self._written.keys():
            self._controller.queue.add(name)

    def _deciders(self) -> Deciders:
        """Return the deciders about pods of this cluster."""
        return Deciders(
            owned_drivers=self._owners.drivers,
            bridge_fault=self._owners.fault,
            gate_fault=self._gate_fault(),
        )

    async def _reconcile(self, name: str) -> float | None:
        """Bring a quota's status up to date; return when to come back for it."""
        quota = self._feed.quotas.store.get(("", name))
        if quota is None or name not in self._feed.usage.book.tenants.quotas:
            self._written.pop(name, None)
            return None
        if self._is_being_evaluated():
            return EVALUATION_RETRY_S
        status_before = quota.status
        last_write = self._written.get(name)
        if last_write and last_write.version > version_number(quota.metadata.resource_version):
            status_before = last_write.status
        status = quota_status(
            quota, self._feed.usage.book, self._deciders(), status_before, rfc3339(self._now())
        )
        if status == status_before:
            return None
        if last_write and not differs_in_more_than_amounts(status_before, status):
            left_s = last_write.at_s + self._settings.quota_status_period - self._clock()
            if left_s > 0:
                return left_s
        try:
            await self._write(quota, status)
        except (Conflict, NotFound):
            log.debug("quota.gone", quota=name)  # The watch brings what is there instead.
        return None

    def _is_being_evaluated(self) -> bool:
        """Return True if charges changed a moment ago, so that sums and alerts would go down and up again."""
        if self._feed.is_current:
            self._outstanding_since = None
            return False
        if self._outstanding_since is None:
            self._outstanding_since = self._clock()
        return self._clock() - self._outstanding_since < EVALUATION_S

    async def _write(self, quota: DeviceQuota, status: DeviceQuotaStatus) -> None:
        name = quota.metadata.name
        result = await self._client.patch(
            DEVICE_QUOTAS,
            name,
            status_patch(quota.metadata, status),
            PatchType.MERGE,
            DeviceQuota,
            subresource="status",
        )
        version = version_number(result.metadata.resource_version)
        self._written[name] = _Written(result.status, version, self._clock())
        conditions = {condition.type: condition.status for condition in status.conditions or ()}
        log.info("quota.updated", quota=name, summary=status.summary, conditions=conditions)


def controller(parts: EvaluatingParts, *, engine: WorkerEngine) -> Work:
    """Return the controllers of quotas.

    Args:
        engine: Evaluates the selectors of claims.
    """
    settings = parts.settings
    feed = QuotaFeed(
        parts.informers,
        settings.validation.features(),
        backoff=settings.controllers.backoff(),
        bridge_scheduler=settings.validation.bridge_scheduler,
        alone_s=settings.controllers.quota_gate_alone_timeout,
        engine=engine,
    )
    owners = DriverOwners(parts.informers)
    gates = QuotaGateController(
        parts.client,
        feed,
        parts.recorder,
        settings.controllers,
        namespace=settings.namespace,
        identity=parts.identity,
        owners=owners,
        now=parts.now,
    )
    status = QuotaStatusController(
        parts.client,
        feed,
        settings.controllers,
        owners=owners,
        gate_fault=lambda: gates.fault,
        now=parts.now,
    )
    gates.listeners.append(status.queue_all)
    return Work(
        controllers=(*feed.controllers, *status.controllers, *gates.controllers),
        collectors=(QuotaCollector(feed.usage),),
    )
