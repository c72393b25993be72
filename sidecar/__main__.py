"""`python -m sidecar`: decides on the devices that pods get, for the kube-scheduler beside it.

One of several replicas works: it holds the Lease, and the scheduler beside it works as well. The others
wait. Who loses the Lease ends, and is started again under another identity, so that no late write of it
passes for one of the leader. Who ends in good order says in the Lease when its last write has ended, and
so does one whose scheduler has fallen silent.
Everything that it knows comes from the API and, for what is not written yet, from the scheduler.
"""

import asyncio
import os
import sys
import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from allocator.model.selectors import clear_selector_caches
from kube.client.client import Client
from kube.logs import get_logger
from kube.names import SIDECAR_REPORTER
from kube.runtime.events import EventRecorder, EventRecorderSettings
from kube.runtime.informers import InformerFactory
from process.profiles.profile_files import load_profiles
from process.running.command import Command, Process, run_command
from process.running.garbage import exempt_caches
from process.running.leader_election import Term, Work, run_while_leading
from process.selectors.engine import WorkerEngine
from process.serving.metrics import CacheCollector, event_counter, process_registry, stopped_counter
from sidecar.answers.seen_claims import SeenClaims
from sidecar.answers.self_checks import (
    DecisionStuck,
    check_drift,
    measure_lag,
    watch_decisions,
    watch_scheduler,
)
from sidecar.answers.server import SchedulerServer
from sidecar.answers.service import Service
from sidecar.answers.view_updates import ViewUpdater
from sidecar.commit.ledger import Step
from sidecar.model.rejections import Code
from sidecar.model.settings import VARIABLES, Settings
from sidecar.plan.undecided import UNDECIDED, read_undecided, write_undecided
from sidecar.reports.explainer import Explainer
from sidecar.reports.gate_check import GateCheck
from sidecar.reports.metrics import SidecarMetrics
from sidecar.reports.ownership_reporter import OwnershipReporter
from sidecar.state.held_back import HeldBackLimits
from sidecar.state.state import ClusterState
from sidecar.writes.binder import Binder, BinderSettings
from sidecar.writes.incomplete_groups import take_back_incomplete
from sidecar.writes.writer import LeaderWriter

NOT_LEADING: Final = "this sidecar does not lead"
FENCE_LAG_S: Final = 1.0
"""The time within which the API server's policies learn of a new holder of the Lease."""
WAITING_FOR_WRITES: Final = "waiting until no write of the leader before can be under way"
TAKING_BACK: Final = (
    "taking back devices of groups that the leader before has not given to all of their pods"
)

log = get_logger()


class LeaderSession:
    """A process while it leads, or waits to lead."""

    def __init__(self) -> None:
        self._service: Service | None = None
        self._check: Callable[[], str] = lambda: NOT_LEADING

    @property
    def service(self) -> Service | None:
        """The service; None while this process does not lead."""
        return self._service

    def problem(self) -> str:
        """Return the reason no call can be answered; empty if it can."""
        return self._check()

    def check(self) -> str:
        """Return the reason this process is not ready; one that waits to lead is."""
        return "" if self._service is None else self._check()

    def begin(self, service: Service, check: Callable[[], str]) -> None:
        """Begin to lead."""
        self._service, self._check = service, check

    def end(self) -> None:
        """Lead no more."""
        self._service, self._check = None, lambda: NOT_LEADING


async def serve(process: Process[Settings]) -> None:
    """Answer the scheduler while leading, until a signal comes."""
    settings, registry = process.settings.sidecar, process_registry()
    metrics, session = SidecarMetrics(registry), LeaderSession()
    server = SchedulerServer(Path(settings.socket), session, metrics)
    engine = WorkerEngine(count_stopped=stopped_counter(registry))
    count_event = event_counter(registry)
    async with await process.client() as client:
        recorder = EventRecorder(
            client,
            controller=SIDECAR_REPORTER,
            instance=process.identity,
            now=process.clock(client),
            count=count_event,
            settings=EventRecorderSettings(per_second=settings.events_per_second),
        )
        try:
            await run_while_leading(
                process,
                client,
                partial(begin, Parts(process, client, session, metrics, recorder, engine)),
                lease=settings.leader_election.resource_name,
                election=settings.leader_election,
                server=settings,
                registry=registry,
                loops=[server.run, engine.run, recorder.run, partial(measure_lag, metrics)],
                checks={"scheduler": session.check},
                ends_with_lease=True,
            )
        except* DecisionStuck as stuck:
            log.critical("decision.stuck", error=str(stuck))
            # The interpreter would wait for the thread.
            os._exit(1)


class Parts(NamedTuple):
    """The parts that outlive a leadership."""

    process: Process[Settings]
    client: Client
    session: LeaderSession
    metrics: SidecarMetrics
    recorder: EventRecorder
    engine: WorkerEngine


def begin(
    parts: Parts, term: Term, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> Work:
    """Return the work of a leader: nothing that was known before counts.

    Args:
        sleep: Waits for so many seconds.
    """
    settings = parts.process.settings.sidecar
    leadership = Leadership(parts, term, sleep)
    service = leadership.service
    leadership.show_metrics()
    return Work(
        controllers=(),
        loops=(
            leadership.follow,
            leadership.binder.run,
            service.commits.run,
            leadership.gates.run,
            partial(watch_scheduler, lambda: service.greetings, settings.scheduler_timeout),
            partial(watch_decisions, service),
        ),
        collectors=(CacheCollector(leadership.informers),),
        drain=leadership.drain,
        notes=lambda: {UNDECIDED: write_undecided(service.undecided())},
    )


class Leadership:
    """The parts of one leadership, and its work while it lasts.

    Attributes:
        informers: The watches of the cluster.
        state: The cluster, with what is promised.
        gates: The check of the API server's feature gates.
        binder: The writes of what is promised.
        service: The answers to the scheduler.
    """

    def __init__(self, parts: Parts, term: Term, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Build the parts.

        Args:
            sleep: Waits for so many seconds.
        """
        process, client = parts.process, parts.client
        settings = process.settings.sidecar
        self._parts = parts
        self._is_successor = term.is_successor
        self._sleep = sleep
        self._has_waited = asyncio.Event()
        self.informers: Final = InformerFactory(client)
        self.gates: Final = GateCheck(settings.features(), client.metrics)
        self.state: Final = build_state(parts, self.informers)
        self._writer = LeaderWriter(
            client,
            identity=process.identity,
            timeout_s=settings.write_timeout,
            max_in_flight=settings.max_writes_in_flight,
            may_write=self.may_write,
            find_claim=self.state.claims.store.get,
        )
        self.binder: Final = build_binder(parts, self.state, self._writer)
        self._explainer = Explainer(
            self.state, parts.recorder, profiles=load_profiles(), engine=parts.engine
        )
        self.service: Final = build_service(parts, term, self.state, self.binder, self._explainer)
        self._reporter = OwnershipReporter(
            self.state,
            self._writer,
            holder=process.identity,
            scheduler_name=settings.bridge_scheduler,
            problem=self.problem,
            keeps=lambda: self.service.keeps,
            now=process.clock(client),
        )

    def may_write(self) -> bool:
        """Return True if this leadership lasts."""
        return self._parts.session.service is self.service

    def problem(self) -> str:
        """Return the reason that no call can be answered."""
        if not self._has_waited.is_set():
            return WAITING_FOR_WRITES
        return self.state.check() or self.gates.problem() or self.service.obstacle

    def show_metrics(self) -> None:
        """Show the state of this leadership from now on."""
        metrics, state = self._parts.metrics, self.state
        metrics.show_reservations(lambda: len(self.service.reservations.by_pod))
        metrics.show_held_back(lambda: len(state.held_back.claims))
        metrics.show_waiting_for_quota(
            lambda: self.service.count_waiting(Code.EXCEEDS_DEVICE_QUOTA)
        )
        metrics.show_unfenced(lambda: len(state.unfenced_drivers))
        metrics.show_keeps(lambda: len(self.service.keeps))
        for step in Step:
            metrics.show_holds(step, partial(_count_holds, state, step))

    async def follow(self) -> None:
        """Follow the cluster, once no write of the leader before can be under way."""
        settings, session = self._parts.process.settings.sidecar, self._parts.session
        state, service = self.state, self.service
        service.obstacle = TAKING_BACK
        session.begin(service, self.problem)
        try:
            if not self._is_successor:
                await self._sleep(settings.write_timeout + FENCE_LAG_S)
            self._has_waited.set()
            async with asyncio.TaskGroup() as group:
                group.create_task(self.informers.run())
                await state.wait_synced()
                group.create_task(self._reporter.run())
                await state.wait_complete()
                await take_back_incomplete(state, self.binder, self._sleep)
                service.obstacle = ""
                await service.prepare()
                exempt_caches()
                group.create_task(self._explainer.run())
                group.create_task(ViewUpdater(state, service).run())
                group.create_task(self._parts.engine.run_retries(self._forget_verdicts))
                group.create_task(check_drift(service, settings.drift_check_period))
        finally:
            session.end()

    async def drain(self) -> bool:
        """Return True if the next leader need not wait; writes of one before us may be under way, too."""
        return await self._writer.drain() and self._has_waited.is_set()

    def _forget_verdicts(self) -> None:
        """Have all selectors asked again."""
        clear_selector_caches()
        self.state.renew_view()
        self._explainer.end_view()


def build_state(parts: Parts, informers: InformerFactory) -> ClusterState:
    """Return the cluster as a new leader knows it: nothing yet."""
    settings = parts.process.settings.sidecar
    return ClusterState(
        informers,
        settings.features(),
        uniform_config_drivers=frozenset(settings.uniform_config_drivers),
        drivers=frozenset(settings.drivers),
        default_strategy=settings.default_strategy,
        now=parts.process.clock(parts.client),
        held_back_limits=HeldBackLimits(
            settings.held_back_timeout, settings.held_back_per_namespace
        ),
        binding_timeout_s=settings.binding_timeout,
        bridge_scheduler=settings.bridge_scheduler,
    )


def build_binder(parts: Parts, state: ClusterState, writer: LeaderWriter) -> Binder:
    """Return the binder; it brings promises into the API."""
    settings = parts.process.settings.sidecar
    return Binder(
        state,
        writer,
        BinderSettings(
            write_deadline_s=settings.write_deadline,
            max_claims=settings.max_writes_in_flight,
            binding_timeout_s=settings.binding_timeout,
        ),
        now=parts.process.clock(parts.client),
        count=parts.metrics.count_write,
    )


def build_service(
    parts: Parts, term: Term, state: ClusterState, binder: Binder, explainer: Explainer
) -> Service:
    """Return the answers to the scheduler."""
    settings = parts.process.settings.sidecar
    return Service(
        state,
        binder,
        SeenClaims(
            state.claims,
            parts.metrics,
            own_timeout_s=settings.own_claims_timeout,
            other_timeout_s=settings.other_claims_timeout,
        ),
        instance=str(uuid.uuid4()),
        metrics=parts.metrics,
        engine=parts.engine,
        undecided=read_undecided(term.notes.get(UNDECIDED, "")),
        usual_pods=settings.usual_pods,
        keep_for_group_after_s=settings.keep_for_group_after,
        on_answer=explainer.take_answer,
        on_end=explainer.forget,
    )


def _count_holds(state: ClusterState, step: Step) -> int:
    return len(state.holds_in(step))


COMMAND: Final = Command(
    package="sidecar",
    description=__doc__,
    kind=Settings,
    section="sidecar",
    variables=VARIABLES,
    start=serve,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_command(COMMAND, arguments)


if __name__ == "__main__":
    sys.exit(main())
