"""Processes with one working replica: it leads, and the others wait for its Lease."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from kube.client.client import Client
from kube.collections.backoff import Backoff
from kube.runtime.controller import Controller
from kube.runtime.leader import Leader, LeaderSettings
from process.model.durations import PositiveDuration
from process.model.settings import Section, ServerSettings
from process.running.command import Process
from process.running.signals import run_forever, run_until_signal
from process.serving.metrics import leader_gauge
from process.serving.probes import Check, ProbeServer


class LeaderElectionSettings(Section, frozen=True, kw_only=True):
    """Settings of the leader election of a process; the process adds the name of its Lease.

    Source: k8s.io/component-base LeaderElectionConfiguration, names and defaults.
    """

    lease_duration: PositiveDuration = PositiveDuration(15)
    """A leader that was not heard of for so long is replaced. Whole seconds, as a Lease has them."""

    renew_deadline: PositiveDuration = PositiveDuration(10)
    """A leader that could not renew for so long stops. Below `leaseDuration`, so that it has stopped
    when the next one starts."""

    retry_period: PositiveDuration = PositiveDuration(2)
    """The time between attempts to renew the Lease or to become leader."""

    def __post_init__(self) -> None:
        """Refuse times that let two lead at once."""
        if not self.retry_period < self.renew_deadline < self.lease_duration:
            raise ValueError(
                "retryPeriod must be below renewDeadline, and that below leaseDuration"
            )
        if self.lease_duration % 1:
            raise ValueError("leaseDuration must be whole seconds")


class ReconcileSettings(ServerSettings, frozen=True, kw_only=True):
    """The addresses of a process, and the backoff of its leader after a failed write."""

    initial_backoff: PositiveDuration = PositiveDuration(0.2)
    """The time before the second attempt at a call that the API server refused; then twice as long
    each time, up to `maxBackoff`."""

    max_backoff: PositiveDuration = PositiveDuration(60)
    """The longest time between attempts, and so the delay until the end of a lasting fault is
    noticed."""

    def backoff(self) -> Backoff:
        """Return the pauses between attempts at something that the API server refused."""
        return Backoff(initial_s=self.initial_backoff, max_s=self.max_backoff)


async def _nothing_to_drain() -> bool:
    """Promise nothing about writes."""
    return False


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """A time of leadership of a process.

    Attributes:
        identity: The holder that the Lease names.
        is_successor: No write of the leader before can be under way, as that one said itself.
        notes: Annotations of the Lease, which the leader before left.
    """

    identity: str
    is_successor: bool
    notes: Mapping[str, str] = {}


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a leader.

    Attributes:
        controllers: The controllers to run, and to show by the readiness probe.
        loops: The loops to run beside them.
        collectors: Metrics that only a leader has.
        drain: The function that `Leader` calls when controllers and loops have ended.
        notes: The notes that `Leader` keeps.
    """

    controllers: Sequence[Controller[Any]] = ()
    loops: Sequence[Callable[[], Awaitable[None]]] = ()
    collectors: Sequence[Collector] = ()
    drain: Callable[[], Awaitable[bool]] = _nothing_to_drain
    notes: Callable[[], Mapping[str, str | None]] = dict


async def run_while_leading(
    process: Process[Any],
    client: Client,
    begin: Callable[[Term], Work],
    *,
    lease: str,
    election: LeaderElectionSettings,
    server: ServerSettings,
    registry: CollectorRegistry,
    loops: Sequence[Callable[[], Awaitable[None]]] = (),
    checks: Mapping[str, Check] = {},
    ends_with_lease: bool = False,
) -> None:
    """Stand for leader, and work while leading, until a signal comes.

    Args:
        begin: Returns new work, each time that this process becomes the leader.
        lease: Name of the Lease, in the namespace of the settings.
        server: The addresses of probes and metrics.
        loops: The loops to run all the time, leading or not.
        checks: Further checks of readiness.
        ends_with_lease: The same as in `LeaderSettings`.

    Raises:
        LeaseLost: It was, and `ends_with_lease`; perhaps in an ExceptionGroup.
    """
    works: list[Work] = []

    async def drain() -> bool:
        return await works[-1].drain() if works else False

    def notes() -> Mapping[str, str | None]:
        return works[-1].notes() if works else {}

    clock = process.clock(client)
    leader = Leader(
        client,
        LeaderSettings(
            namespace=process.settings.namespace,
            name=lease,
            identity=process.identity,
            lease_s=int(election.lease_duration),
            renew_deadline_s=election.renew_deadline,
            retry_s=election.retry_period,
            ends_with_lease=ends_with_lease,
        ),
        wall_clock=lambda: clock().timestamp(),
        drain=drain,
        notes=notes,
    )
    leader_gauge(registry, lease, lambda: leader.leading)
    running: list[Controller[Any]] = []
    probes = ProbeServer(
        server,
        {"controllers": lambda: _unsynced_informers(running), **checks},
        registry,
    )

    async def lead() -> None:
        work = begin(
            Term(
                identity=leader.identity,
                is_successor=leader.is_successor,
                notes=leader.found_notes,
            )
        )
        running[:] = work.controllers
        works[:] = [work]
        try:
            with _registered_collectors(registry, work.collectors):
                async with asyncio.TaskGroup() as group:
                    for loop in (*work.loops, *(controller.run for controller in work.controllers)):
                        group.create_task(run_forever(loop))
        finally:
            running.clear()

    await run_until_signal([probes.run, *loops, lambda: leader.run(lead)])


def _unsynced_informers(controllers: Sequence[Controller[Any]]) -> str:
    """Return the running controllers that are not synced; nothing runs in a process that does not lead."""
    problems = ((controller.name, controller.check()) for controller in controllers)
    return "; ".join(f"{name}: {problem}" for name, problem in problems if problem)


@contextmanager
def _registered_collectors(
    registry: CollectorRegistry, collectors: Sequence[Collector]
) -> Iterator[None]:
    """Register collectors that only a leader has."""
    for collector in collectors:
        registry.register(collector)
    try:
        yield
    finally:
        for collector in collectors:
            registry.unregister(collector)
