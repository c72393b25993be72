"""The full reasons that pods wait, as one event for each.

The condition of a pod has words without numbers, since each change of it is a write. An explanation
takes as long as many decisions, so it is made of a view of its own, on a thread of its own, and for a
share of a core. `clusterstate.event_history` decides when, and `allocator.simulation.pending_pod` what
it says.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from allocator.pods.claims import Name
from allocator.simulation.pending_cause import cause_of_code
from allocator.simulation.pending_pod import (
    Explanation,
    PodProjection,
    explain_pending_pod,
    project_pod,
)
from clusterstate.cluster_cache import ClusterCache
from clusterstate.event_history import EventHistory, HistorySettings
from clusterstate.fits_in_keys import KeySources, rewording
from clusterstate.kinds import Changes
from kube.api.core import Pod
from kube.api.ownership import OwnedDriver
from kube.cel.scope import AnswerInterrupted, Meter, evaluating
from kube.collections.interleaving import interleave
from kube.logs import get_logger
from kube.runtime.events import EventRecorder, EventResult
from process.selectors.engine import BlockingEngine, WorkerEngine
from sidecar.model.protocol import Verdict
from sidecar.model.rejections import Code, Rejection
from sidecar.state.change_feed import ChangeFeed
from sidecar.state.state import ClusterState
from translation.profiles.profile import Profile

ACTION: Final = "Scheduling"
PERIOD_S: Final = 1.0
"""The time between two looks at due explanations."""
CPU_FRACTION: Final = 0.1
"""The fraction of one core; decisions wait for it where cores are short."""
MAX_STEPS: Final = 300_000
"""Steps of one explanation, evaluations of selectors included: a second or two. A pod whose explanation takes
more gets the words of its condition."""
MAX_PAUSE_S: Final = 60.0
MAX_ROUND_S: Final = 10.0
"""The time after which a round ends, once it has explained as many pods of each namespace: those that came meanwhile
are in the next one."""
RETRY_S: Final = 30.0
"""The delay after a bug."""
MAX_PODS: Final = 16_384
"""Pods that are remembered: the end of a pod without claims is not seen."""
MAX_IDLE_CHANGES: Final = 10_000
"""Changes that are kept for the view while no pod is due; then it is made anew for the next one."""
HISTORY: Final = HistorySettings(action=ACTION)
EXPLAINED: Final = frozenset({Code.NO_DEVICES, Code.NO_ELIGIBLE_NODE})
"""Rejections of which there is more to say; the words of others are all."""

log = get_logger()


class _View(NamedTuple):
    cache: ClusterCache
    feed: ChangeFeed
    settings: tuple[OwnedDriver, ...]


class Explainer:
    """Explains the pods that PreFilter turned away.

    Attributes:
        history: These pods and their events.
    """

    def __init__(
        self,
        state: ClusterState,
        recorder: EventRecorder,
        *,
        profiles: Mapping[str, Profile] = {},
        engine: WorkerEngine | None = None,
        settings: HistorySettings = HISTORY,
        period_s: float = PERIOD_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without pods.

        Args:
            profiles: Driver name to the profile that translates keys to claims of its devices.
            engine: Evaluates selectors; None evaluates them on the thread.
            clock: Monotonic seconds.
        """
        self.history: Final = EventHistory(settings)
        self._state = state
        self._recorder = recorder
        self._profiles = profiles
        self._engine = engine
        self._blocking_engine: BlockingEngine | None = None
        self._period_s = period_s
        self._clock = clock
        self._names: dict[str, Name] = {}
        self._rejections: dict[Name, Rejection] = {}
        self._view: _View | None = None

    def take_answer(self, pod: Pod, rejection: Rejection | None) -> None:
        """Take the answer about a pod; None if it waits for something other than devices."""
        if rejection is None:
            self.forget(pod.metadata.uid)
            return
        if rejection.verdict is Verdict.ERROR:
            return  # It is tried again at once.
        name = (pod.metadata.namespace, pod.metadata.name)
        self._names.pop(pod.metadata.uid, None)
        self._names[pod.metadata.uid] = name
        if len(self._names) > MAX_PODS:
            self.forget(next(iter(self._names)))
        self._rejections[name] = rejection
        self.history.replace(name, pod, self._clock())

    def forget(self, uid: str) -> None:
        """Forget a pod that waits for devices no more."""
        name = self._names.pop(uid, None)
        if name is not None and self.history.is_waiting(name, uid):
            self.history.replace(name, None, self._clock())
            self._rejections.pop(name, None)

    async def run(self) -> None:
        """Explain pods until cancelled."""
        if self._engine is not None:
            self._blocking_engine = self._engine.blocking()
        while True:
            await asyncio.sleep(self._period_s)
            try:
                await self.explain_due_pods()
            except Exception:
                log.exception("explanations.failed")
                self.end_view()
                await asyncio.sleep(RETRY_S)

    async def explain_due_pods(self) -> None:
        """Explain the pods that are due, those that are equal together."""
        due = self.history.due(self._state.version, self._clock())
        pods = {name: pod for name in due if (pod := self.history.pod(name)) is not None}
        for name in [name for name in pods if self._rejections[name].code not in EXPLAINED]:
            del pods[name]
            self._record([name], None)
        if not pods:
            if self._view is not None and len(self._view.feed) > MAX_IDLE_CHANGES:
                self.end_view()
            return
        view = self._current_view()
        changes = view.feed.take()
        began = self._clock()
        await asyncio.to_thread(view.cache.apply, changes)
        groups = await asyncio.to_thread(_group, pods, view.cache)
        await self._pause(began)
        ends_s = self._clock() + MAX_ROUND_S
        for names, projection in interleave(
            groups, lambda group: group[0][0][0], is_over=lambda: self._clock() > ends_s
        ):
            changes = view.feed.take()
            began = self._clock()
            pod = pods[names[0]]
            explanation = await asyncio.to_thread(
                self._explain, view.cache, changes, pod, projection
            )
            self._record(names, explanation)
            await self._pause(began)

    def _explain(
        self, cache: ClusterCache, changes: Changes, pod: Pod, projection: PodProjection | None
    ) -> Explanation | None:
        """Return the explanation of equal pods; None if nodes have devices for them by now, or it takes too much."""
        cache.apply(changes)
        if projection is None:
            return None
        resources = cache.extended_resources
        sources = KeySources(
            profiles=self._profiles, slices=cache.slices, extended_resources=resources
        )
        with evaluating(
            engine=self._blocking_engine,
            tenant=projection.pod.metadata.namespace,
            meter=Meter(MAX_STEPS),
        ):
            try:
                return explain_pending_pod(
                    cache.cluster,
                    projection,
                    cache.classes,
                    resources,
                    reword=rewording(pod, projection.entries, sources),
                )
            except AnswerInterrupted:
                return None

    async def _pause(self, began: float) -> None:
        """Leave the rest of the core to others."""
        spent_s = self._clock() - began
        await asyncio.sleep(min(spent_s * (1 - CPU_FRACTION) / CPU_FRACTION, MAX_PAUSE_S))

    def _current_view(self) -> _View:
        """Return the view with the present options, made for the first waiting pod."""
        settings = self._state.applied_settings
        if self._view is not None and self._view.settings != settings:
            self.end_view()
        if self._view is None:
            cache, feed = self._state.second_view()
            self._view = _View(cache, feed, settings)
        return self._view

    def end_view(self) -> None:
        """Keep nothing of the devices; the next pod that waits is explained on a view of its own."""
        if self._view is not None:
            self._state.end_view(self._view.feed)
            self._view = None

    def _record(self, names: Iterable[Name], explanation: Explanation | None) -> None:
        """Record the event that an explanation of some pods calls for, if any."""
        for name in names:
            rejection = self._rejections.get(name)
            if rejection is None:
                continue  # It has devices by now.
            event = self.history.record_evaluation(
                name, explanation or _in_short(rejection), self._state.version, self._clock()
            )
            if event is not None:
                self._recorder.record(
                    event,
                    is_current=partial(self.history.is_waiting, name, event.regarding.uid),
                    on_result=partial(self._event_finished, name),
                )

    def _event_finished(self, name: Name, result: EventResult) -> None:
        if result in {EventResult.DROPPED, EventResult.FAILED}:
            self.history.forget_events(name)


def _in_short(rejection: Rejection) -> Explanation:
    """Return the words of a pod's condition as an explanation."""
    return Explanation(
        note=rejection.message,
        reasons=(rejection.code,),
        kind=rejection.code,
        cause=cause_of_code(rejection.code),
    )


def _group(
    pods: Mapping[Name, Pod], cache: ClusterCache
) -> list[tuple[list[Name], PodProjection | None]]:
    """Return the pods grouped by the inputs of their explanation."""
    groups: dict[bytes, tuple[list[Name], PodProjection | None]] = {}
    for name, pod in pods.items():
        projection = project_pod(pod, cache.claims, {}, cache.extended_resources)
        key = projection.key if projection is not None else b""
        groups.setdefault(key, ([], projection))[0].append(name)
    return list(groups.values())
