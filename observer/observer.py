"""The observer: explains pending pods' lack of devices in events. It writes nothing else.

It follows what decides about devices, and the pods without a node. Changes are applied in batches,
between two evaluations. These run in a thread, so that probes are answered, and each is followed by a
pause. `clusterstate.event_history` decides which pods to evaluate and which events they get,
`allocator.simulation.pending_pod` what an event says.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from allocator.model.outcome import Reason
from allocator.nodes.idle_resources import IdleResources
from allocator.pods.claims import Name
from allocator.simulation import pending_pod
from allocator.simulation.pending_pod import Explanation, PodProjection
from clusterstate.event_history import EventHistory
from clusterstate.fits_in_keys import KeySources, rewording
from clusterstate.kinds import Changes, Kind
from clusterstate.projections import PROJECTIONS, RESOURCES
from clusterstate.scheduler_caches import SchedulerCaches
from kube.api.core import Pod, is_unschedulable
from kube.api.events import Event
from kube.api.urls import PODS
from kube.cel.scope import AnswerInterrupted, Meter, evaluating
from kube.collections.backoff import Backoff
from kube.collections.interleaving import interleave
from kube.logs import get_logger
from kube.runtime.controller import Controller
from kube.runtime.events import EventRecorder, EventResult
from kube.runtime.informers import InformerFactory, Subscription
from kube.runtime.stores import Handler
from observer.device_states import count_devices
from observer.duplicate_resources import duplicate_resource_events
from observer.metrics import ObserverMetrics
from observer.pods import WAITING_FIELDS, project_pod
from observer.settings import ObserverSettings
from observer.shared_devices import MAX_EVENTS, contradiction_events
from process.selectors.engine import BlockingEngine, WorkerEngine
from translation.profiles.profile import Profile

OPTIONAL: Final = frozenset({Kind.TAINT_RULE, Kind.POLICY, Kind.OWNERSHIP})
"""Kinds that a cluster may not serve. Their first lists come before any pod is due."""

WATCHED: Final = tuple(kind for kind in Kind if kind is not Kind.QUOTA)
"""Kinds that say why a pod waits; who waits for a quota is told by those who decide about it."""

INVENTORY: Final = (Kind.NODE, Kind.SLICE, Kind.CLASS)
"""Kinds that decide which devices nodes offer."""

MAX_PAUSE_S: Final = 30.0
BATCH_INTERVAL_S: Final = 0.1
"""The minimum time between two batches of changes."""
MAX_STEPS: Final = 300_000
"""Steps of one explanation, evaluations of selectors included: a second or two."""
NOT_EVALUATED: Final = Explanation(
    note="the selectors of its ResourceClaims take longer to evaluate than an explanation may",
    reasons=(Reason.BUDGET_EXHAUSTED,),
    kind=Reason.BUDGET_EXHAUSTED,
)
MAX_ROUND_S: Final = 5.0
"""The time after which a round ends, once it has evaluated as many pods of each namespace: those that came meanwhile
need not wait for all of a namespace with thousands."""
ALL_PODS: Final = "pods"
"""The one key of the queue: pods that are equal are evaluated together."""
RESET_BACKOFF: Final = Backoff(initial_s=1.0, max_s=60.0)
"""The pause after a bug, before everything is evaluated again."""

log = get_logger()


class _Evaluation(NamedTuple):
    """The explanation for pods that are equal in all that counts.

    Attributes:
        uids: The names of the pods to their UIDs; meanwhile a name may be that of another pod.
    """

    uids: Mapping[Name, str]
    explanation: Explanation | None
    version: int
    took_s: float


class Observer:
    """Follows pods and devices, and records events.

    A second observer would record the same events, under the same names.

    Attributes:
        history: Waiting pods and their events.
        controller: Its queue has one key, for all pods.
    """

    def __init__(
        self,
        informers: InformerFactory,
        recorder: EventRecorder,
        settings: ObserverSettings,
        metrics: ObserverMetrics,
        *,
        profiles: Mapping[str, Profile] = {},
        engine: WorkerEngine | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Subscribe to pending pods, and to the objects that decide about devices.

        Args:
            profiles: Driver name to the profile that translates keys to claims of its devices.
            engine: Evaluates the expressions of strangers; None evaluates them on a thread.
            clock: Monotonic seconds.
        """
        self._profiles = profiles
        self._engine = engine
        self._blocking_engine: BlockingEngine | None = None
        self._recorder = recorder
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self.history = EventHistory(settings.history())
        self._caches = SchedulerCaches(settings.features(), settings.scheduler_support())
        self._idle_resources = IdleResources()
        self._inspected_version = -1
        self._recorded_contradictions: frozenset[Event] = frozenset()
        self._has_new_inventory = True
        self._recorded_duplicates: frozenset[Event] = frozenset()
        self._changes: dict[Kind, dict[Name, Any]] = {}
        self._kinds: Final[Mapping[Kind, Subscription[Any]]] = {
            kind: informers.subscribe(
                RESOURCES[kind], PROJECTIONS[kind], handlers=[self._queue_changes(kind)]
            )
            for kind in WATCHED
        }
        self._pods = informers.subscribe(
            PODS, project_pod, field_selector=WAITING_FIELDS, handlers=[self._pod_changed]
        )
        required_kinds = (
            subscription for kind, subscription in self._kinds.items() if kind not in OPTIONAL
        )
        self.controller: Final = Controller(
            "observer",
            self._reconcile,
            subscriptions=(*required_kinds, self._pods),
            backoff=RESET_BACKOFF,
        )
        self._queue_pods()

    def check(self) -> str:
        """Return the resources with incomplete first lists."""
        return self.controller.check()

    async def run(self) -> None:
        """Evaluate pods until cancelled."""
        if self._engine is not None:
            self._blocking_engine = self._engine.blocking()
        await self.controller.run()

    async def _reconcile(self, _pods: str) -> float | None:
        """Evaluate the pods that are due; return the seconds until the next one is."""
        await asyncio.sleep(BATCH_INTERVAL_S)
        try:
            await self._evaluate_due_pods()
        except Exception:
            self._reset()
            raise
        left_s = self.history.next_due_s(self._caches.version) - self._clock()
        return left_s if left_s < math.inf else None

    def _reset(self) -> None:
        """Drop the caches, since they may be wrong after a bug, and apply everything again."""
        settings, version = self._settings, self._caches.version
        self._caches = SchedulerCaches(settings.features(), settings.scheduler_support())
        self._caches.version = version  # It only grows, so that pods are due again.
        self._changes = {
            kind: dict(subscription.store) for kind, subscription in self._kinds.items()
        }
        self._inspected_version = -1

    # --- changes ----------------------------------------------------------------------------------

    def _queue_changes(self, kind: Kind) -> Handler[Any]:
        def queue(key: Name, old: object, new: object) -> None:
            if old != new:  # Most changes are of fields that are not projected.
                self._changes.setdefault(kind, {})[key] = new
                self._queue_pods()

        return queue

    def _pod_changed(self, key: Name, _old: Pod | None, new: Pod | None) -> None:
        if new is not None and new.spec.scheduler_name in self._settings.silent_for_schedulers:
            new = None
        self.history.replace(key, new, self._clock())
        self._queue_pods()

    def _queue_pods(self) -> None:
        self.controller.queue.add(ALL_PODS)

    def _take_changes(self) -> Changes:
        changes, self._changes = self._changes, {}
        self._has_new_inventory |= any(changes.get(kind) for kind in INVENTORY)
        return changes

    # --- evaluation -------------------------------------------------------------------------------

    async def _evaluate_due_pods(self) -> None:
        """Evaluate all pods that are due, those that are equal together."""
        began = self._clock()
        await asyncio.to_thread(self._caches.apply, self._take_changes())
        await self._inspect_shared_devices()
        await self._inspect_inventory()
        due = self.history.due(self._caches.version, self._clock())
        pods = {name: pod for name in due if (pod := self.history.pod(name)) is not None}
        version = self._caches.version
        projections = await asyncio.to_thread(self._projections, pods)
        await self._pause(self._clock() - began, self._settings.cpu_fraction)
        names_by_key: dict[bytes, list[Name]] = {}
        for name, projection in projections.items():
            names_by_key.setdefault(projection.key, []).append(name)
        ends_s = self._clock() + MAX_ROUND_S  # What comes before may take as long, in each round.
        for key, names in interleave(
            names_by_key.items(),
            lambda group: group[1][0][0],
            is_over=lambda: self._clock() > ends_s,
        ):
            is_new = any(map(self.history.is_new, names))
            waiting = {name: pod for name in names if (pod := self.history.pod(name)) is not None}
            changes = self._take_changes()
            evaluation = await asyncio.to_thread(self._evaluate, key, waiting, changes)
            self._metrics.observe_explanation(evaluation.took_s)
            for name, uid in evaluation.uids.items():
                if self.history.is_waiting(name, uid):
                    self._record(name, evaluation)
            settings = self._settings
            fraction = settings.new_pod_cpu_fraction if is_new else settings.cpu_fraction
            await self._pause(evaluation.took_s, fraction)
        for name in pods.keys() - projections.keys():
            # Another state of the pod, such as Unschedulable, has not been looked at.
            if self.history.pod(name) is pods[name]:
                self.history.record_evaluation(name, None, version, self._clock())
        self._metrics.show(len(self.history), self.history.pods_by_reason())

    async def _inspect_shared_devices(self) -> None:
        """Count the devices, and record events about contradicting configurations of shared ones, once."""
        if self._inspected_version == self._caches.version:
            return
        self._inspected_version = self._caches.version
        cluster = self._caches.without_policies.cluster
        self._metrics.show_devices(await asyncio.to_thread(count_devices, cluster))
        events = await asyncio.to_thread(self._contradiction_events)
        for event in events - self._recorded_contradictions:
            self._recorder.record(event)
        self._recorded_contradictions = events

    async def _inspect_inventory(self) -> None:
        """Record events about resources that nodes offer twice, once."""
        if not self._has_new_inventory:
            return
        self._has_new_inventory = False
        events = await asyncio.to_thread(self._duplicate_events)
        for event in events - self._recorded_duplicates:
            self._recorder.record(event)
        self._recorded_duplicates = events

    def _duplicate_events(self) -> frozenset[Event]:
        cluster = self._caches.without_policies
        return duplicate_resource_events(cluster.cluster, cluster.classes)

    def _contradiction_events(self) -> frozenset[Event]:
        cluster, drivers = self._caches.without_policies, self._settings.uniform_config_drivers
        events = contradiction_events(cluster.cluster.usage, cluster.claims, drivers)
        return frozenset(islice(events, MAX_EVENTS))

    def _projections(self, pods: Mapping[Name, Pod]) -> dict[Name, PodProjection]:
        """Return the projections of the pods that may wait for devices."""
        cluster, projections = self._caches.without_policies, {}
        for name, pod in pods.items():
            projection = pending_pod.project_pod(
                pod, cluster.claims, cluster.templates, cluster.extended_resources
            )
            if projection is not None and (projection.missing or is_unschedulable(pod)):
                projections[name] = projection
        return projections

    def _evaluate(self, key: bytes, pods: Mapping[Name, Pod], changes: Changes) -> _Evaluation:
        """Return the explanation for those pods that are still equal after the changes.

        The others come with the next evaluation: a pod that got devices meanwhile would be told that
        they are in use.
        """
        began, explanation = self._clock(), None
        self._caches.apply(changes)
        projections = {
            name: projection
            for name, projection in self._projections(pods).items()
            if projection.key == key
        }
        if projections:
            name, projection = next(iter(projections.items()))
            cluster = self._caches.for_scheduler(projection.pod.spec.scheduler_name)
            resources = cluster.extended_resources
            sources = KeySources(
                profiles=self._profiles, slices=cluster.slices, extended_resources=resources
            )
            with evaluating(
                engine=self._blocking_engine,
                tenant=projection.pod.metadata.namespace,
                meter=Meter(MAX_STEPS),
            ):
                try:
                    explanation = pending_pod.explain_pending_pod(
                        cluster.cluster,
                        projection,
                        cluster.classes,
                        resources,
                        self._idle_resources.of(cluster.cluster.nodes),
                        reword=rewording(pods[name], projection.entries, sources),
                    )
                except AnswerInterrupted:
                    explanation = NOT_EVALUATED
        took_s = self._clock() - began
        uids = {name: pods[name].metadata.uid for name in projections}
        return _Evaluation(uids, explanation, self._caches.version, took_s)

    async def _pause(self, took_s: float, fraction: float) -> None:
        """Leave the rest of the core to others."""
        await asyncio.sleep(min(took_s * (1 - fraction) / fraction, MAX_PAUSE_S))

    # --- events -----------------------------------------------------------------------------------

    def _record(self, name: Name, evaluation: _Evaluation) -> None:
        """Record the event that an evaluation calls for, if any."""
        suppressed_count = self.history.suppressed
        event = self.history.record_evaluation(
            name, evaluation.explanation, evaluation.version, self._clock()
        )
        if event is not None:
            self._recorder.record(
                event,
                is_current=partial(self.history.is_waiting, name, event.regarding.uid),
                on_result=partial(self._event_finished, name),
            )
        elif self.history.suppressed != suppressed_count:
            self._recorder.count(EventResult.SUPPRESSED)

    def _event_finished(self, name: Name, result: EventResult) -> None:
        if result in {EventResult.DROPPED, EventResult.FAILED}:
            self.history.forget_events(name)
            self._queue_pods()
