"""`python -m controllers`: the controllers, with a service account of their own; one replica leads."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from clusterstate.evaluator import RuleEvaluator
from controllers.audit.controller import AuditController
from controllers.audit.metrics import AuditMetrics
from controllers.audit.untranslated import UntranslatedPods
from controllers.certificates.controller import CertificateAuthorityController
from controllers.certificates.metrics import CertificateAuthorityCollector
from controllers.certificates.signing_keys import SigningKeyController
from controllers.policies.controller import PolicyController
from controllers.settings import VARIABLES, Settings
from controllers.templates.controller import TemplateController
from controllers.templates.metrics import TemplateMetrics
from kube.names import NAME
from kube.runtime.controller import Controller
from kube.runtime.events import EventRecorder
from kube.runtime.informers import InformerFactory
from kube.runtime.leader import Leader, LeaderSettings
from process.certificate_metrics import CertificateCollector
from process.command import Command, Process, run_command
from process.metrics import (
    CacheCollector,
    QueueCollector,
    event_counter,
    leader_gauge,
    process_registry,
    stopped_counter,
)
from process.probes import ProbeServer
from process.profile_files import load_profiles
from process.selectors.engine import WorkerEngine
from process.signals import run_forever, run_until_signal
from process.signing import SigningKeyCache
from translation.serving_drivers import serving_drivers
from translation.snapshot import vocabularies_in_force


async def control(process: Process[Settings]) -> None:
    """Stand for leader, and run the controllers while leading, until a signal comes."""
    settings, registry = process.settings, process_registry()
    directory = settings.translation.profiles_directory
    profiles = load_profiles(Path(directory) if directory else None)
    options = settings.translation.checked_options(profiles)
    vocabularies = vocabularies_in_force(options, profiles)
    drivers_of = partial(serving_drivers, options=options, profiles=profiles)
    async with await process.client() as client:
        leader = Leader(
            client,
            _leader_settings(settings, process.identity),
            wall_clock=lambda: process.now().timestamp(),
        )
        lease = settings.controllers.leader_election.resource_name
        leader_gauge(registry, lease, lambda: leader.leading)
        audit_metrics, count_event = AuditMetrics(registry), event_counter(registry)
        engine = WorkerEngine(count_stopped=stopped_counter(registry))
        template_metrics = TemplateMetrics(registry)
        running: list[Controller[Any]] = []
        probes = ProbeServer(
            settings.controllers.bind_address,
            settings.controllers.probe_port,
            {"controllers": lambda: _unsynced(running)},
            registry,
        )

        async def lead() -> None:
            informers = InformerFactory(client)
            recorder = EventRecorder(
                client,
                controller=f"{NAME}.controller",
                instance=process.identity,
                now=process.now,
                count=count_event,
            )
            signing_keys = SigningKeyController(client, informers, settings, process.now)
            templates = TemplateController(
                client,
                informers,
                recorder,
                settings.controllers,
                profiles,
                signing_keys=SigningKeyCache(informers, settings.namespace, settings.signing),
                count_unsigned=template_metrics.count_unsigned,
            )
            policies = PolicyController(
                client,
                informers,
                recorder,
                settings.controllers,
                now=process.now,
                validation=settings.validation,
            )
            evaluator = RuleEvaluator(
                informers, settings.namespace, settings.validation, engine=engine
            )
            pods = UntranslatedPods(informers, vocabularies)
            audit = AuditController(
                client,
                settings,
                evaluator,
                recorder,
                audit_metrics,
                pods=pods,
                drivers_of=drivers_of,
            )
            controllers: list[Controller[Any]] = [
                *signing_keys.controllers,
                *templates.controllers,
                *policies.controllers,
                *audit.controllers,
            ]
            collectors: list[Collector] = [CacheCollector(informers)]
            if settings.certificates.directory is None:
                authority = CertificateAuthorityController(client, informers, settings, process.now)
                controllers += authority.controllers
                collectors += (
                    CertificateCollector(authority.not_after),
                    CertificateAuthorityCollector(authority.trusted, authority.is_published),
                )
            collectors.append(QueueCollector(controllers))
            loops = [informers.run, recorder.run, evaluator.run]
            loops += [controller.run for controller in controllers]
            running[:] = controllers
            try:
                with _registered(registry, collectors):
                    async with asyncio.TaskGroup() as group:
                        for loop in loops:
                            group.create_task(run_forever(loop))
            finally:
                running.clear()

        await run_until_signal([probes.run, engine.run, lambda: leader.run(lead)])


def _leader_settings(settings: Settings, identity: str) -> LeaderSettings:
    election = settings.controllers.leader_election
    return LeaderSettings(
        namespace=settings.namespace,
        name=election.resource_name,
        identity=identity,
        lease_s=int(election.lease_duration),
        renew_deadline_s=election.renew_deadline,
        retry_s=election.retry_period,
    )


def _unsynced(controllers: Sequence[Controller[Any]]) -> str:
    """Return which running controllers are not synced; nothing runs in a process that does not lead."""
    problems = ((controller.name, controller.check()) for controller in controllers)
    return "; ".join(f"{name}: {problem}" for name, problem in problems if problem)


@contextmanager
def _registered(registry: CollectorRegistry, collectors: Sequence[Collector]) -> Iterator[None]:
    """Register collectors that only a leader has."""
    for collector in collectors:
        registry.register(collector)
    try:
        yield
    finally:
        for collector in collectors:
            registry.unregister(collector)


COMMAND: Final = Command(
    package="controllers",
    description=__doc__,
    kind=Settings,
    section="controllers",
    variables=VARIABLES,
    start=control,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_command(COMMAND, arguments)


if __name__ == "__main__":
    sys.exit(main())
