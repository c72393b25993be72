"""The evaluator of rules: a cache fed by watches, and the one thread that reads it.

A review makes no call: it waits for its turn on the thread, which first applies the changes so far. Tenants
take turns, and a turn waits for nothing: rules that need verdicts of the worker are evaluated again once it
has answered. What takes too long is answered without the inventory, and so is everything until the first
lists are complete; nothing waits for these, since pods are translated without them.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

from allocator.model.selectors import clear_selector_caches
from allocator.pods.claims import Name
from clusterstate.autoscalers import AUTOSCALERS, INSTALLED, ObjectName
from clusterstate.high_water_config_map import UNREADABLE, HighWaterMarks, project_high_water_marks
from clusterstate.kinds import Changes, Kind
from clusterstate.projections import (
    PROJECTIONS,
    RESOURCES,
    project_namespace_labels,
    project_presence,
)
from clusterstate.rule_cache import ClusterFacts, RuleCache
from clusterstate.settings import ValidationSettings
from kube.api.urls import CONFIG_MAPS, NAMESPACES
from kube.cel.engine import SelectorEngine
from kube.cel.scope import AnswersPending, BudgetSpent, Meter, evaluating, require_wanted
from kube.logs import get_logger
from kube.runtime.informers import InformerFactory, Subscription, unsynced_resources, wait_synced
from kube.runtime.stores import Handler
from process.fairness.turns import Turns
from process.selectors.engine import WorkerEngine
from rules.context.context import Context

T = TypeVar("T")

OPTIONAL: Final = frozenset({Kind.TAINT_RULE, Kind.POLICY, Kind.OWNERSHIP, Kind.QUOTA})
"""Kinds that a cluster may not serve."""
APPLY_INTERVAL_S: Final = 1.0
"""Changes that no review needs are applied no more often."""
IDLE_FACTOR: Final = 9.0
"""Applying them is followed by a pause of so many times what it took."""
MAX_CPU_S: Final = 0.5
"""CPU time of a review on the thread, each time that its rules are evaluated."""
RESET_PAUSE_S: Final = 30.0
"""The pause after a bug, before everything is applied again."""

log = get_logger()


class _Waiting:
    """A review that waits for rules.

    Attributes:
        is_over: Nobody waits any more, so the evaluation ends before the next device.
        charge: Called with the CPU seconds that it takes, of the thread, and of the worker, which may go on
            for a moment when nobody waits any more.
    """

    def __init__(
        self,
        tenant: str,
        cpu_clock: Callable[[], float],
        charge: Callable[[float], None] = lambda _cpu_s: None,
    ) -> None:
        self.tenant = tenant
        self.is_over = False
        self.charge = charge
        self._cpu_clock = cpu_clock
        self._loop = asyncio.get_running_loop()

    def call(
        self, rules: Callable[[Context], T], context: Context, engine: SelectorEngine | None
    ) -> T:
        """Evaluate rules while somebody waits for them, and there is time."""
        began_s = self._cpu_clock()
        meter = Meter(is_over=lambda: self._cpu_clock() - began_s > MAX_CPU_S)
        try:
            with evaluating(
                engine=engine,
                tenant=self.tenant,
                meter=meter,
                is_wanted=lambda: not self.is_over,
            ):
                require_wanted()
                return rules(context)
        finally:
            self._loop.call_soon_threadsafe(self.charge, self._cpu_clock() - began_s)


class _Renewal(NamedTuple):
    """In place of changes: all objects, for a cache that knows no verdict yet."""

    objects: Changes


def _empty_cache(settings: ValidationSettings) -> RuleCache:
    return RuleCache(
        settings.features(),
        settings.uniform_config_drivers,
        settings.scheduler_support(),
        bridge_scheduler=settings.bridge_scheduler,
        knows_allocated_requests=False,
    )


class RuleEvaluator:
    """The cluster as rules read it, and the thread that runs them.

    Attributes:
        changed: Set when an object that rules read has changed, and at first.
    """

    def __init__(
        self,
        informers: InformerFactory,
        namespace: str,
        settings: ValidationSettings,
        *,
        engine: WorkerEngine | None = None,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """Subscribe to the objects that rules read.

        Args:
            namespace: The namespace of the high-water mark.
            engine: Evaluates the expressions of strangers; None evaluates them on the thread.
            clock: Monotonic seconds.
            cpu_clock: CPU seconds of a thread.
        """
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._engine = engine
        self._settings = settings
        self._enforcement = settings.enforcement_settings()
        self._cache = _empty_cache(settings)
        self._changes: dict[Kind, dict[Name, Any]] = {}
        self._watches: list[tuple[frozenset[Kind], asyncio.Event]] = []
        self._batches: deque[Changes | _Renewal] = deque()
        self._facts: ClusterFacts | None = None
        # A second thread answers what the first, which has the cache, is too busy for.
        self._thread, self._spare_thread = (
            ThreadPoolExecutor(1, name) for name in ("rules", "spare-rules")
        )
        self._turns, self._spare_turns = Turns(clock=clock), Turns(clock=clock)
        self._ready = asyncio.Event()
        self._queued = self._spares = 0
        self.changed = asyncio.Event()
        self.changed.set()
        self._unapplied = asyncio.Event()
        self._kinds: Final[Mapping[Kind, Subscription[Any]]] = {
            kind: informers.subscribe(
                resource, PROJECTIONS[kind], handlers=[self._queue_changes(kind)]
            )
            for kind, resource in RESOURCES.items()
        }
        self._namespaces = informers.subscribe(
            NAMESPACES, project_namespace_labels, handlers=[self._facts_changed]
        )
        self._marks = informers.subscribe(
            CONFIG_MAPS,
            project_high_water_marks,
            namespace=namespace,
            field_selector=f"metadata.name={settings.inventory_config_map}",
            handlers=[self._marks_changed],
        )
        self._autoscalers = {
            name: self._subscribe_to_presence(informers, INSTALLED[component])
            for component, name in AUTOSCALERS.items()
        }

    def _subscribe_to_presence(
        self, informers: InformerFactory, name_of_object: ObjectName
    ) -> Subscription[bool]:
        return informers.subscribe(
            name_of_object.resource,
            project_presence,
            namespace=name_of_object.namespace,
            field_selector=f"metadata.name={name_of_object.name}",
            handlers=[self._facts_changed],
        )

    def watch(self, *kinds: Kind) -> asyncio.Event:
        """Return an event that is set when an object of some kinds has changed, and at first."""
        event = asyncio.Event()
        event.set()
        self._watches.append((frozenset(kinds), event))
        return event

    @property
    def high_water_marks(self) -> HighWaterMarks:
        """The marks in the ConfigMap; empty if there is none."""
        return next(iter(self._marks.store.values()), HighWaterMarks())

    def put_high_water_marks(self, raw: bytes) -> None:
        """Take the ConfigMap as a write returned it: its watch may lag behind."""
        self._marks.put(raw)

    @property
    def has_high_water_marks(self) -> bool:
        """Return True if there is a ConfigMap."""
        return bool(self._marks.store)

    @property
    def knows_ownership(self) -> bool:
        """Return True if the drivers that the bridge owns are known, and the cache is complete."""
        return self._ready.is_set() and not unsynced_resources([self._kinds[Kind.OWNERSHIP]])

    async def wait_ready(self) -> None:
        """Return once the cache is complete."""
        await self._ready.wait()

    async def run(self) -> None:
        """Apply changes until cancelled, so that no review has to wait for many of them."""
        required_kinds = [
            subscription for kind, subscription in self._kinds.items() if kind not in OPTIONAL
        ]
        try:
            await wait_synced([*required_kinds, self._marks, self._namespaces])
            while True:
                self._unapplied.clear()
                await self._apply_changes()
                await self._unapplied.wait()
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._spare_thread.shutdown(wait=False, cancel_futures=True)

    async def _apply_changes(self) -> None:
        """Apply changes, then pause."""
        began_s = self._clock()
        try:
            classes = await self.query(RuleCache.stocks)
        except Exception:  # A bug in the rules must not cost pods their translation.
            log.exception("rules.failed")
            await asyncio.sleep(RESET_PAUSE_S)
            return
        took_s = self._clock() - began_s
        if not self._ready.is_set():
            self._ready.set()
            log.info("rules.synced", classes=len(classes), took_s=round(took_s, 3))
        await asyncio.sleep(max(APPLY_INTERVAL_S, IDLE_FACTOR * took_s))

    def _reset(self) -> None:
        """Drop the cache, since it may be wrong after a bug, and apply everything again."""
        self._ready.clear()
        self._cache = _empty_cache(self._settings)
        self._batches.clear()
        self._changes = self._everything()
        self._unapplied.set()

    def renew(self) -> None:
        """Have the selectors of all verdicts asked again."""
        clear_selector_caches()
        self._batches.append(_Renewal(self._everything()))
        self._unapplied.set()

    def _everything(self) -> dict[Kind, dict[Name, Any]]:
        return {kind: dict(subscription.store) for kind, subscription in self._kinds.items()}

    # --- queries ----------------------------------------------------------------------------------

    async def evaluate(
        self,
        rules: Callable[[Context], T],
        *,
        tenant: str,
        charge: Callable[[float], None] = lambda _cpu_s: None,
        timeout_s: float | None = None,
    ) -> T:
        """Evaluate rules for a review.

        Args:
            tenant: The namespace of the review, which takes turns with others.
            charge: Called with the CPU seconds that it took, of the thread and of the worker.
            timeout_s: None for that of the settings.

        Raises:
            TimeoutError: It takes too long, or too many reviews wait. `evaluate_without_inventory` is
                the answer then. What selectors were evaluated is kept.
        """
        if not self._ready.is_set():
            return await self.evaluate_without_inventory(rules, tenant=tenant, charge=charge)
        if self._queued >= self._settings.max_queued:
            raise TimeoutError
        facts = self.facts()
        waiting = _Waiting(tenant, self._cpu_clock, charge)
        self._queued += 1
        try:
            async with asyncio.timeout(self._settings.timeout if timeout_s is None else timeout_s):
                return await self._evaluate(
                    waiting,
                    self._turns,
                    lambda engine: self._run(
                        lambda cache: waiting.call(rules, cache.context(facts), engine)
                    ),
                )
        finally:
            waiting.is_over = True
            self._queued -= 1

    async def evaluate_without_inventory(
        self,
        rules: Callable[[Context], T],
        *,
        tenant: str,
        charge: Callable[[float], None] = lambda _cpu_s: None,
    ) -> T:
        """Evaluate rules for a review without devices and claims, on another thread; see `evaluate`.

        Raises:
            TimeoutError: It takes too long, or too many reviews wait.
        """
        if self._spares >= self._settings.max_queued:
            raise TimeoutError
        context, waiting = self.without_inventory(), _Waiting(tenant, self._cpu_clock, charge)
        loop = asyncio.get_running_loop()
        self._spares += 1
        try:
            async with asyncio.timeout(self._settings.timeout):
                return await self._evaluate(
                    waiting,
                    self._spare_turns,
                    lambda engine: loop.run_in_executor(
                        self._spare_thread, waiting.call, rules, context, engine
                    ),
                )
        finally:
            waiting.is_over = True
            self._spares -= 1

    async def query(self, query: Callable[[RuleCache], T], *, tenant: str = "") -> T:
        """Query the cache on the thread, after all changes so far; it takes as long as it takes.

        Args:
            tenant: The namespace whose expressions the worker evaluates; empty for those of several.

        Raises:
            TimeoutError: There is no worker for what has to be evaluated.
        """
        waiting = _Waiting("", self._cpu_clock)

        def call(cache: RuleCache, engine: SelectorEngine | None) -> T:
            with evaluating(engine=engine):
                return query(cache)

        return await self._evaluate(
            waiting,
            self._turns,
            lambda engine: self._run(lambda cache: call(cache, engine)),
            charges_demand=True,
            asks_for=tenant,
        )

    async def _evaluate(
        self,
        waiting: _Waiting,
        turns: Turns,
        evaluate: Callable[[SelectorEngine | None], Awaitable[T]],
        *,
        charges_demand: bool = False,
        asks_for: str | None = None,
    ) -> T:
        """Evaluate something in turn, and again once the worker has answered its questions.

        Args:
            charges_demand: Passed to `WorkerEngine.deferring`.
            asks_for: The tenant whose questions the worker is asked; by default the one that waits.

        Raises:
            TimeoutError: It takes too much CPU time, or the worker has no answer.
        """
        while True:
            engine = (
                None
                if self._engine is None
                else self._engine.deferring(charges_demand=charges_demand)
            )
            try:
                async with turns.take(waiting.tenant):
                    return await evaluate(engine)
            except BudgetSpent as error:
                raise TimeoutError from error
            except AnswersPending as error:
                if engine is None or self._engine is None:
                    raise
                tenant = waiting.tenant if asks_for is None else asks_for
                answered = await self._engine.answer(
                    engine.demand, tenant=tenant, charge=waiting.charge
                )
                if not answered.is_complete:
                    raise TimeoutError from error

    async def _run(self, query: Callable[[RuleCache], T]) -> T:
        """Query the cache on the thread, after all changes so far."""
        # The thread sees whole batches only; a query that is given up still applies its batch.
        self._batches.append(self._changes)
        self._changes = {}

        loop = asyncio.get_running_loop()

        def apply_and_query() -> T:
            try:
                while self._batches:
                    batch = self._batches.popleft()
                    if isinstance(batch, _Renewal):
                        self._cache, batch = _empty_cache(self._settings), batch.objects
                    self._cache.apply(batch)
            except Exception:
                loop.call_soon_threadsafe(self._reset)
                raise
            return query(self._cache)

        return await loop.run_in_executor(self._thread, apply_and_query)

    def facts(self) -> ClusterFacts:
        """Return the facts that rules read besides devices and claims."""
        if self._facts is None:
            marks = self.high_water_marks
            autoscalers = {name for name, presence in self._autoscalers.items() if presence.store}
            self._facts = ClusterFacts(
                namespaces={name: labels for (_, name), labels in self._namespaces.store.items()},
                autoscalers=autoscalers | ({UNREADABLE} if marks.problem else set()),
                high_water_mark=marks.combined_mark,
                enforcement=self._enforcement,
                # What the API server rejects does not come here: it validates a slice before it asks.
                accepts_mixed_slices=True,
            )
        return self._facts

    def without_inventory(self) -> Context:
        """Return a context without devices and claims."""
        return Context(namespaces=self.facts().namespaces, enforcement=self._enforcement)

    # --- changes ----------------------------------------------------------------------------------

    def _queue_changes(self, kind: Kind) -> Handler[Any]:
        def queue(key: tuple[str, str], old: object, new: object) -> None:
            if old != new:  # Most changes are of fields that are not projected.
                self._changes.setdefault(kind, {})[key] = new
                self.changed.set()
                for kinds, event in self._watches:
                    if kind in kinds:
                        event.set()
                self._unapplied.set()

        return queue

    def _facts_changed(self, _key: Name, _old: object, _new: object) -> None:
        self._facts = None

    def _marks_changed(self, _key: Name, _old: object, new: HighWaterMarks | None) -> None:
        if new is not None and new.problem:
            log.warning("declaration.rejected", error=new.problem)
        self._facts = None
        self.changed.set()
