"""The usage of DeviceQuotas, fed by informers, with the selectors of claims evaluated in turns.

Expressions of users are evaluated by the worker process of the selectors, and everything else takes turns
with the other tasks of the event loop. Listeners hear that the usage has changed once it has been evaluated
as far as it can be.
"""

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Final

from allocator.declarations.collect import POD_GROUP_RESOURCES
from allocator.declarations.model import GroupName, GroupSystem
from allocator.model.feature_gates import Features
from clusterstate.projections import project_class, project_namespace_labels, project_slice
from controllers.quotas.projections import (
    project_pod_group,
    project_quota_claim,
    project_quota_pod,
)
from kube.api.device_quota import DeviceQuota
from kube.api.meta import decode
from kube.api.resource import ResourceSlice
from kube.api.urls import (
    DEVICE_CLASSES,
    DEVICE_QUOTAS,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from kube.cel.scope import AnswerInterrupted, AnswersPending, Meter, evaluating
from kube.collections.backoff import Backoff
from kube.logs import get_logger
from kube.names import SCHEDULER_NAME
from kube.runtime.controller import Controller
from kube.runtime.informers import InformerFactory, Subscription, unsynced_resources
from process.selectors.deferring import Demand
from process.selectors.engine import WorkerEngine
from quotas.gates.groups import KnownPodGroup
from quotas.gates.usage import ALONE_S, QuotaUsage

STEPS: Final = 3000
"""Steps of one attempt at a claim: about 10 ms."""
MAX_ATTEMPTS: Final = 100
"""Attempts at a claim in one turn; the next turn goes on where the last ended."""
MAX_TURN_S: Final = 0.01
"""The time after which other tasks of the event loop get their turn."""
PAUSE_S: Final = 0.02
"""Changes that come in quick succession are taken together."""
SLICES_PAUSE_S: Final = 1.0
"""The same of slices, after whose change every claim is evaluated again."""
IDLE_FACTOR: Final = 9.0
"""Work on slices is followed by a pause of so many times what it took."""
EVALUATIONS: Final = 4
"""Namespaces whose selectors are evaluated at a time."""
RETRY_S: Final = 5.0
"""The time until charges are tried again that could not be evaluated."""
SYNC_PERIOD_S: Final = 0.05
"""The time between looks at PodGroups that are not listed yet, or that the API server may not have."""
LIVE_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"

log = get_logger()


class QuotaFeed:
    """Keeps a `QuotaUsage` up to date.

    Attributes:
        usage: The usage.
        listeners: Called when the usage has changed, and has been evaluated.
        status_listeners: Called with the name of a quota of which the status has changed only.
        controllers: The controllers to run; nothing is evaluated before all lists are complete.
    """

    def __init__(
        self,
        informers: InformerFactory,
        features: Features,
        *,
        backoff: Backoff,
        bridge_scheduler: str = SCHEDULER_NAME,
        alone_s: float = ALONE_S,
        engine: WorkerEngine | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Subscribe to all that the usage follows from.

        Args:
            bridge_scheduler: schedulerName of the bridge.
            alone_s: The time for which a pod with one other gate is left to that gate's remover.
            engine: Evaluates expressions of users; None evaluates them in place.
            clock: Monotonic seconds.
        """
        self.usage: Final = QuotaUsage(features, clock, alone_s=alone_s)
        self.listeners: Final[list[Callable[[], None]]] = []
        self.status_listeners: Final[list[Callable[[str], None]]] = []
        self._engine = engine
        self._clock = clock
        self._left_to_turns: set[str] = set()
        self._slices: dict[str, ResourceSlice | None] = {}
        self._slices_from_s = float("-inf")
        self.quotas: Final = informers.subscribe(
            DEVICE_QUOTAS, project_quota, handlers=[self._quota_changed]
        )
        self.namespaces: Final = informers.subscribe(
            NAMESPACES, project_namespace_labels, handlers=[self._namespace_changed]
        )
        self.classes: Final = informers.subscribe(
            DEVICE_CLASSES, project_class, handlers=[self._class_changed]
        )
        self.slices: Final = informers.subscribe(
            RESOURCE_SLICES, project_slice, handlers=[self._slice_changed]
        )
        self.claims: Final = informers.subscribe(
            RESOURCE_CLAIMS, project_quota_claim, handlers=[self._claim_changed]
        )
        self.pods: Final = informers.subscribe(
            PODS,
            partial(project_quota_pod, bridge_scheduler=bridge_scheduler),
            field_selector=LIVE_PODS,
            handlers=[self._pod_changed],
        )
        self._pod_groups: Final[Mapping[GroupSystem, Subscription[KnownPodGroup]]] = {
            system: informers.subscribe(
                resource,
                project_pod_group(system),
                handlers=[self._pod_group_changed(system)],
            )
            for system, resource in POD_GROUP_RESOURCES.items()
        }
        self.subscriptions: Final = (
            self.quotas,
            self.namespaces,
            self.classes,
            self.slices,
            self.claims,
            self.pods,
        )
        self._controller: Controller[str] = Controller(
            "quota-usage", self._reconcile, subscriptions=self.subscriptions, backoff=backoff
        )
        self._selectors: Controller[str] = Controller(
            "quota-selectors", self._evaluate, backoff=backoff, workers=EVALUATIONS
        )
        self.controllers: Final[Sequence[Controller[str]]] = (self._controller, self._selectors)

    @property
    def is_current(self) -> bool:
        """Return True if every change that is known is charged."""
        return not self._slices and not self.usage.book.outstanding

    async def wait_pod_groups(self) -> None:
        """Return once all PodGroups are known, or the API server said that it has none."""
        while self._has_unknown_pod_groups:  # noqa: ASYNC110 (an answer 404 is no event)
            await asyncio.sleep(SYNC_PERIOD_S)
        self._note_served()
        unserved = sorted(
            resource.group
            for system, resource in POD_GROUP_RESOURCES.items()
            if system not in self.usage.groups.served
        )
        if unserved:
            log.info("quota.pod_groups_not_served", groups=unserved)

    @property
    def _has_unknown_pod_groups(self) -> bool:
        served = [groups for groups in self._pod_groups.values() if groups.is_available]
        return bool(unsynced_resources(served))

    def _note_served(self) -> None:
        """Note the PodGroups that the API server has; a later definition may change that."""
        self.usage.groups.served = frozenset(
            system for system, groups in self._pod_groups.items() if groups.is_available
        )

    # --- changes ----------------------------------------------------------------------------------

    def _quota_changed(
        self, key: tuple[str, str], old: DeviceQuota | None, new: DeviceQuota | None
    ) -> None:
        if old is not None and new is not None and old.spec == new.spec:
            # What was written in the status changes no charge, so nothing is decided anew.
            for listener in self.status_listeners:
                listener(key[1])
            return
        self.usage.replace_quota(key[1], new)
        self._queue()

    def _namespace_changed(self, key: tuple[str, str], old: object, new: object) -> None:
        if old != new:
            self.usage.replace_namespace(key[1], self.namespaces.store.get(key))
            self._queue()

    def _class_changed(self, key: tuple[str, str], old: object, new: object) -> None:
        if old != new:
            self.usage.replace_class(key[1], self.classes.store.get(key))
            self._queue()

    def _slice_changed(
        self, key: tuple[str, str], old: ResourceSlice | None, new: ResourceSlice | None
    ) -> None:
        if old != new:
            self._slices[key[1]] = new
            self.usage.expect_slices()
            self._queue()

    def _claim_changed(self, key: tuple[str, str], old: object, new: object) -> None:
        if old != new:
            self.usage.replace_claim(key, self.claims.store.get(key))
            self._queue()

    def _pod_changed(self, key: tuple[str, str], _old: object, _new: object) -> None:
        self.usage.replace_pod(key, self.pods.store.get(key))
        self._queue()

    def _pod_group_changed(
        self, system: GroupSystem
    ) -> Callable[[tuple[str, str], KnownPodGroup | None, KnownPodGroup | None], None]:
        """Return the handler of changes to the PodGroups of a system."""

        def changed(
            key: tuple[str, str], old: KnownPodGroup | None, new: KnownPodGroup | None
        ) -> None:
            if old != new:
                self.usage.groups.replace_pod_group(GroupName(system, *key), new)
                self._queue()

        return changed

    def _queue(self) -> None:
        self._controller.queue.add_after("", PAUSE_S)

    # --- evaluation -------------------------------------------------------------------------------

    async def _reconcile(self, _: str) -> float | None:
        """Evaluate the changes, then tell the listeners; return the delay until the next run."""
        if self._slices and self._clock() >= self._slices_from_s:
            slices, self._slices = self._slices, {}
            began_s = self._clock()
            self.usage.replace_slices(slices)
            await self._charge()
            pause_s = max(SLICES_PAUSE_S, IDLE_FACTOR * (self._clock() - began_s))
            self._slices_from_s = self._clock() + pause_s
        else:
            await self._charge()
        self._note_served()
        again_s = self.usage.release_abandoned()
        for listener in self.listeners:
            listener()
        if self._slices:
            slices_s = max(PAUSE_S, self._slices_from_s - self._clock())
            return slices_s if again_s is None else min(slices_s, again_s)
        return again_s

    async def _charge(self) -> None:
        """Charge the outstanding claims; once one takes long, those of its namespace are left to its turn.

        Else a namespace with many of them would have those of all others wait for an attempt at each.
        """
        turn_s = self._clock()
        for key in tuple(self.usage.book.outstanding):
            claim = self.usage.book.claim(key)
            if (
                claim is not None
                and not (claim.is_estimated and claim.namespace in self._left_to_turns)
                and key in self.usage.book.outstanding
                and not self._attempt(key)[0]
            ):
                self._left_to_turns.add(claim.namespace)
                self._selectors.queue.add(claim.namespace)
            if self._clock() - turn_s > MAX_TURN_S:
                await asyncio.sleep(0)
                turn_s = self._clock()

    async def _evaluate(self, namespace: str) -> float | None:
        """Charge the claims of a namespace, however long that takes; return when to come back."""
        book, is_unanswered = self.usage.book, False
        keys = [
            key
            for key in book.outstanding
            if (claim := book.claim(key)) is not None and claim.namespace == namespace
        ]
        for key in keys:
            for _ in range(MAX_ATTEMPTS):
                if book.claim(key) is None or key not in book.outstanding:
                    break  # It has gone, or was charged, while others were.
                is_charged, demand = self._attempt(key)
                if is_charged:
                    break
                if demand is None or self._engine is None:
                    await asyncio.sleep(0)
                elif not (await self._engine.answer(demand, tenant=namespace)).is_complete:
                    is_unanswered = True
                    break
        if not is_unanswered:
            # Claims that came meanwhile are charged with those of all namespaces; else they come with the next turn.
            self._left_to_turns.discard(namespace)
        self._queue()
        if any(key in book.outstanding for key in keys):
            log.warning("quota.not_evaluated", namespace=namespace)
            return RETRY_S
        return RETRY_S if is_unanswered else None

    def _attempt(self, key: Hashable) -> tuple[bool, Demand | None]:
        """Charge a claim; return True if that worked, and the questions for the worker to answer first."""
        engine = self._engine.deferring(charges_demand=True) if self._engine else None
        try:
            with evaluating(engine=engine, meter=Meter(STEPS)):
                self.usage.book.charge(key)
        except AnswersPending:
            return False, engine.demand if engine is not None else None
        except AnswerInterrupted:
            return False, None
        return True, None


def project_quota(raw: bytes) -> DeviceQuota:
    """Project a DeviceQuota to all of it."""
    return decode(raw, DeviceQuota)
