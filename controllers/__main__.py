"""`python -m controllers`: the controllers, with a service account of their own; one replica leads."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry

from clusterstate.evaluator import RuleEvaluator
from controllers.audit import controller as audit
from controllers.audit.metrics import AuditMetrics
from controllers.gates import controller as gates
from controllers.groups import controller as groups
from controllers.migration import progress
from controllers.migration.metrics import MigrationMetrics
from controllers.model.evaluating_parts import EvaluatingParts
from controllers.model.settings import VARIABLES, Settings
from controllers.policies import controller as policies
from controllers.profiles import controller as profiles
from controllers.quotas import controller as quotas
from controllers.shadow import controller as shadow
from controllers.templates import controller as templates
from controllers.templates.metrics import TemplateMetrics
from controllers.workloads import controller as workloads
from kube.client.client import Client
from kube.names import CONTROLLER_REPORTER
from kube.runtime.events import EventRecorder, EventResult
from kube.runtime.informers import InformerFactory
from process.profiles.published_profiles import ProfileCache
from process.running.command import Command, Process, run_command
from process.running.leader_election import Term, Work, run_while_leading
from process.selectors.engine import WorkerEngine
from process.serving.metrics import (
    CacheCollector,
    QueueCollector,
    event_counter,
    process_registry,
    stopped_counter,
)
from translation.cluster.snapshot import TranslationOptions
from translation.profiles.profile import Profile

Build = Callable[[EvaluatingParts], Work]
"""Returns the work of one controller."""


def controllers(registry: CollectorRegistry, engine: WorkerEngine) -> Sequence[Build]:
    """Return all controllers; their metrics outlive a leadership."""
    return (
        partial(templates.controller, metrics=TemplateMetrics(registry)),
        profiles.controller,
        policies.controller,
        partial(quotas.controller, engine=engine),
        partial(audit.controller, metrics=AuditMetrics(registry)),
        gates.controller,
        groups.controller,
        partial(progress.controller, metrics=MigrationMetrics(registry)),
        shadow.controller,
        workloads.controller,
    )


class Lasting(NamedTuple):
    """The parts that outlive a leadership.

    Attributes:
        files: Driver to profile, of the package and of files.
        options: The options of the translation.
        engine: Evaluates selectors.
        count_event: Called with the result of each event.
        builds: The controllers.
    """

    process: Process[Settings]
    client: Client
    files: Mapping[str, Profile]
    options: TranslationOptions
    engine: WorkerEngine
    count_event: Callable[[EventResult], None]
    builds: Sequence[Build]


async def control(process: Process[Settings]) -> None:
    """Stand for leader, and run the controllers while leading, until a signal comes."""
    settings, registry = process.settings, process_registry()
    files = settings.translation.load_profiles()
    options = settings.translation.checked_options(
        files, namespace=settings.namespace, others_may_come=True
    )
    engine = WorkerEngine(count_stopped=stopped_counter(registry))
    async with await process.client() as client:
        lasting = Lasting(
            process,
            client,
            files,
            options,
            engine=engine,
            count_event=event_counter(registry),
            builds=controllers(registry, engine),
        )
        await run_while_leading(
            process,
            client,
            partial(begin, lasting),
            lease=settings.controllers.leader_election.resource_name,
            election=settings.controllers.leader_election,
            server=settings.controllers,
            registry=registry,
            loops=(lasting.engine.run,),
        )


def begin(lasting: Lasting, term: Term) -> Work:
    """Return the work of a leader: nothing that was known before counts."""
    parts = build_parts(lasting, term.identity)
    works = [build(parts) for build in lasting.builds]
    all_controllers = tuple(controller for work in works for controller in work.controllers)
    return Work(
        controllers=all_controllers,
        loops=(
            parts.informers.run,
            parts.recorder.run,
            parts.evaluator.run,
            partial(lasting.engine.run_retries, parts.evaluator.renew),
            *(loop for work in works for loop in work.loops),
        ),
        collectors=(
            CacheCollector(parts.informers),
            QueueCollector(all_controllers),
            *(collector for work in works for collector in work.collectors),
        ),
    )


def build_parts(lasting: Lasting, identity: str) -> EvaluatingParts:
    """Return the parts that the controllers share.

    Args:
        identity: The holder of the Lease.
    """
    process, client, files = lasting.process, lasting.client, lasting.files
    settings, informers = process.settings, InformerFactory(client)
    return EvaluatingParts(
        client=client,
        informers=informers,
        recorder=EventRecorder(
            client,
            controller=CONTROLLER_REPORTER,
            instance=process.identity,
            now=process.clock(client),
            count=lasting.count_event,
        ),
        settings=settings,
        files=files,
        options=lasting.options,
        profiles=ProfileCache(
            informers,
            files,
            namespace=settings.namespace,
            config_map=settings.translation.profiles_config_map,
        ),
        evaluator=RuleEvaluator(
            informers, settings.namespace, settings.validation, engine=lasting.engine
        ),
        now=process.clock(client),
        identity=identity,
    )


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
