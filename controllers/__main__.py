"""`python -m controllers`: the controllers, with a service account of their own; one replica leads."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from clusterstate.autoscalers import ObjectName
from clusterstate.evaluator import RuleEvaluator
from clusterstate.mapping_evaluator import MappingEvaluator
from clusterstate.snapshot_cache import SnapshotCache
from controllers.audit.controller import AuditController
from controllers.audit.metrics import AuditMetrics
from controllers.audit.policy_report_writer import PolicyReportWriter
from controllers.audit.untranslated import UntranslatedPods
from controllers.gates.controller import FeatureGateController
from controllers.migration.metrics import MigrationMetrics
from controllers.migration.progress import follow_waves
from controllers.model.settings import VARIABLES, Settings
from controllers.policies.controller import PolicyController
from controllers.profiles.controller import ProfileController
from controllers.shadow.controller import ShadowController
from controllers.templates.controller import TemplateController
from controllers.templates.metrics import TemplateMetrics
from kube.api.urls import CONFIG_MAPS
from kube.names import CONTROLLER_REPORTER
from kube.runtime.controller import Controller
from kube.runtime.events import EventRecorder
from kube.runtime.informers import InformerFactory
from process.certificates.signing import SigningKeyCache
from process.profiles.profile_files import load_profiles
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
from translation.cluster.serving_drivers import serving_drivers
from translation.cluster.snapshot import ClaimUnawareComponent, Mode, vocabularies_in_force


async def control(process: Process[Settings]) -> None:
    """Stand for leader, and run the controllers while leading, until a signal comes."""
    settings, registry = process.settings, process_registry()
    files = settings.translation.load_profiles()
    options = settings.translation.checked_options(files, others_may_come=True)
    audit_metrics, count_event = AuditMetrics(registry), event_counter(registry)
    template_metrics, migration_metrics = TemplateMetrics(registry), MigrationMetrics(registry)
    engine = WorkerEngine(count_stopped=stopped_counter(registry))
    async with await process.client() as client:

        def begin(_: Term) -> Work:
            informers = InformerFactory(client)
            recorder = EventRecorder(
                client,
                controller=CONTROLLER_REPORTER,
                instance=process.identity,
                now=process.clock(client),
                count=count_event,
            )
            profiles = ProfileCache(
                informers,
                files,
                namespace=settings.namespace,
                config_map=settings.translation.profiles_config_map,
            )
            templates = TemplateController(
                client,
                informers,
                recorder,
                settings.controllers,
                files,
                further=(profiles.subscription,),
                signing_keys=SigningKeyCache(informers, settings.namespace, settings.signing),
                count_unsigned=template_metrics.count_unsigned,
            )
            profiles.on_change(templates.replace_profiles)
            publisher = ProfileController(
                client,
                informers,
                recorder,
                settings,
                files=files,
                shipped=load_profiles(),
                options=options,
                now=process.clock(client),
            )
            policies = PolicyController(
                client,
                informers,
                recorder,
                settings.controllers,
                now=process.clock(client),
                validation=settings.validation,
            )
            evaluator = RuleEvaluator(
                informers, settings.namespace, settings.validation, engine=engine
            )
            pods = UntranslatedPods(
                informers, lambda: vocabularies_in_force(options, profiles.profiles)
            )
            audit = AuditController(
                client,
                settings,
                evaluator,
                recorder,
                audit_metrics,
                pods=pods,
                reports=PolicyReportWriter(
                    client,
                    settings.controllers.audit_reports,
                    audit_metrics.show_reports,
                    now=process.clock(client),
                ),
                drivers_of=lambda resource: serving_drivers(resource, options, profiles.profiles),
                profiles=lambda: profiles.profiles,
                options=options,
            )
            gates = FeatureGateController(client, informers, settings)
            follow_waves(informers, settings.namespace, migration_metrics)
            shadows: Sequence[Controller[Any]] = ()
            keep_asking = partial(engine.run_retries, evaluator.renew)
            loops: list[Callable[[], Awaitable[None]]] = [
                informers.run,
                recorder.run,
                evaluator.run,
                keep_asking,
            ]
            if options.mode is Mode.SHADOW:
                # What ignores claims is not looked for: nothing of it concerns an event.
                snapshots = SnapshotCache(
                    informers,
                    files,
                    claim_aware=frozenset(ClaimUnawareComponent),
                    inventory=ObjectName(
                        CONFIG_MAPS, settings.namespace, settings.validation.inventory_config_map
                    ),
                    features=settings.validation.features(),
                    options=options,
                )
                mappings = MappingEvaluator(evaluator, snapshots, options)
                profiles.on_change(snapshots.replace_profiles)
                profiles.on_change(mappings.mark_changed)
                loops.append(mappings.run)
                shadow = ShadowController(
                    client,
                    recorder,
                    snapshots,
                    settings.controllers,
                    options=options,
                    vocabularies=lambda: vocabularies_in_force(options, profiles.profiles),
                )
                shadows = shadow.controllers
            controllers: tuple[Controller[Any], ...] = (
                *templates.controllers,
                *publisher.controllers,
                *policies.controllers,
                *audit.controllers,
                *gates.controllers,
                *shadows,
            )
            return Work(
                controllers=controllers,
                loops=tuple(loops),
                collectors=(CacheCollector(informers), QueueCollector(controllers)),
            )

        await run_while_leading(
            process,
            client,
            begin,
            lease=settings.controllers.leader_election.resource_name,
            election=settings.controllers.leader_election,
            server=settings.controllers,
            registry=registry,
            loops=(engine.run,),
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
