"""`python -m controllers`: the controllers, with a service account of their own; one replica leads."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from clusterstate.autoscalers import ObjectName
from clusterstate.evaluator import RuleEvaluator
from clusterstate.snapshot_cache import SnapshotCache
from controllers.audit.controller import AuditController
from controllers.audit.metrics import AuditMetrics
from controllers.audit.untranslated import UntranslatedPods
from controllers.policies.controller import PolicyController
from controllers.settings import VARIABLES, Settings
from controllers.shadow.controller import ShadowController
from controllers.templates.controller import TemplateController
from controllers.templates.metrics import TemplateMetrics
from kube.api.urls import CONFIG_MAPS
from kube.names import CONTROLLER_REPORTER
from kube.runtime.controller import Controller
from kube.runtime.events import EventRecorder
from kube.runtime.informers import InformerFactory
from process.command import Command, Process, run_command
from process.leader_election import Work, run_while_leading
from process.metrics import (
    CacheCollector,
    QueueCollector,
    event_counter,
    process_registry,
    stopped_counter,
)
from process.profile_files import load_profiles
from process.selectors.engine import WorkerEngine
from process.signing import SigningKeyCache
from translation.serving_drivers import serving_drivers
from translation.snapshot import ClaimUnawareComponent, Mode, vocabularies_in_force


async def control(process: Process[Settings]) -> None:
    """Stand for leader, and run the controllers while leading, until a signal comes."""
    settings, registry = process.settings, process_registry()
    directory = settings.translation.profiles_directory
    profiles = load_profiles(Path(directory) if directory else None)
    options = settings.translation.checked_options(profiles)
    vocabularies = vocabularies_in_force(options, profiles)
    drivers_of = partial(serving_drivers, options=options, profiles=profiles)
    audit_metrics, count_event = AuditMetrics(registry), event_counter(registry)
    template_metrics = TemplateMetrics(registry)
    engine = WorkerEngine(count_stopped=stopped_counter(registry))
    async with await process.client() as client:

        def begin() -> Work:
            informers = InformerFactory(client)
            recorder = EventRecorder(
                client,
                controller=CONTROLLER_REPORTER,
                instance=process.identity,
                now=process.now,
                count=count_event,
            )
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
            shadows: Sequence[Controller[Any]] = ()
            if options.mode is Mode.SHADOW:
                # What ignores claims is not looked for: nothing of it concerns an event.
                snapshots = SnapshotCache(
                    informers,
                    profiles,
                    claim_aware=frozenset(ClaimUnawareComponent),
                    inventory=ObjectName(
                        CONFIG_MAPS, settings.namespace, settings.validation.inventory_config_map
                    ),
                )
                shadows = ShadowController(
                    client,
                    recorder,
                    snapshots,
                    settings.controllers,
                    options=options,
                    vocabularies=vocabularies,
                ).controllers
            controllers: tuple[Controller[Any], ...] = (
                *templates.controllers,
                *policies.controllers,
                *audit.controllers,
                *shadows,
            )
            return Work(
                controllers=controllers,
                loops=(informers.run, recorder.run, evaluator.run),
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
