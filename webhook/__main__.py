"""`python -m webhook`: the HTTPS server of admission, with a service account that only reads."""

import asyncio
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from admission.routing import Bridge
from admission.signing import Signing
from admission.webhook_configuration import (
    MUTATE_PATH,
    ROUTE_PATH,
    VALIDATE_OBJECTS_PATH,
    VALIDATE_WORKLOADS_PATH,
    configuration,
    validating_configuration,
)
from clusterstate.autoscalers import ObjectName
from clusterstate.evaluator import RuleEvaluator
from clusterstate.mapping_evaluator import MappingEvaluator
from clusterstate.pod_groups import PodGroupCache
from clusterstate.snapshot_cache import SnapshotCache
from kube.api.urls import CONFIG_MAPS
from kube.client.client import Client
from kube.manifests.dump import dump_yaml
from kube.runtime.informers import InformerFactory
from kube.runtime.new_claims import NewClaims
from process.certificates.certificate_metrics import CertificateCollector
from process.certificates.certificates import Clock
from process.certificates.signing import SigningKeyCache
from process.certificates.webhook_paths import PathKeyCache
from process.profiles.profile_files import shipped_drivers
from process.profiles.published_profiles import ProfileCache
from process.running.command import Command, Process, run_command
from process.running.garbage import exempt_caches
from process.running.open_files import check_open_file_limit
from process.running.signals import run_forever, run_until_signal
from process.selectors.engine import WorkerEngine
from process.serving.metrics import CacheCollector, process_registry, stopped_counter
from process.serving.probes import MAX_CONNECTIONS as MAX_PROBE_CONNECTIONS
from process.serving.probes import PORTS as PROBE_PORTS
from process.serving.probes import ProbeServer
from translation.cluster.snapshot import vocabularies_in_force
from webhook.budgets import ReviewBudgets
from webhook.ca_bundle_check import CaBundleCheck
from webhook.endpoint import Endpoint, Handler
from webhook.metrics import WebhookMetrics
from webhook.mutate import PodReviewHandler
from webhook.reviews import ReviewRunner
from webhook.route import RoutingReviewHandler
from webhook.self_check import SelfCheck
from webhook.serving_certificate import (
    CertificateSource,
    CertificateWatcher,
    MountedCertificates,
    SecretCertificates,
)
from webhook.settings import VARIABLES, Settings
from webhook.validate import ObjectReviewHandler, WorkloadReviewHandler


class Caches(NamedTuple):
    """The caches that reviews are answered from, and the worker that evaluates selectors for them."""

    snapshots: SnapshotCache
    profiles: ProfileCache
    engine: WorkerEngine
    evaluator: RuleEvaluator
    mappings: MappingEvaluator
    signing_keys: SigningKeyCache
    path_keys: PathKeyCache

    async def wait_first(self) -> None:
        """Wait until every cache is filled: an empty one would pass for an empty cluster."""
        await self.snapshots.wait_synced()
        await self.profiles.wait_first()
        await self.signing_keys.wait_first()
        await self.path_keys.wait_first()


async def serve(process: Process[Settings]) -> None:
    """Answer the API server until a signal comes."""
    settings, registry = process.settings, process_registry()
    check_open_file_limit(
        settings.webhook.max_connections + PROBE_PORTS * MAX_PROBE_CONNECTIONS,
        "webhook.maxConnections",
    )
    async with await process.client() as client:
        informers = InformerFactory(client)
        caches = build_caches(
            settings, informers, WorkerEngine(count_stopped=stopped_counter(registry))
        )
        certificates = build_certificates(client, process)
        metrics = WebhookMetrics(registry)
        registry.register(CacheCollector(informers))
        registry.register(CertificateCollector(certificates.not_after))
        endpoint = build_endpoint(
            settings,
            caches,
            certificates,
            metrics,
            pod_groups=PodGroupCache(informers, adopts=settings.validation.adopt_gangs),
            claims=NewClaims(client, process.clock(client)),
            now=process.clock(client),
        )
        self_check = SelfCheck(
            endpoint,
            certificates.certificate,
            host=settings.webhook.bind_address,
            name=settings.certificates.names(settings.namespace)[0],
        )
        ca_bundle_check = CaBundleCheck(
            informers, settings.certificates.webhook_configuration, certificates.certificate
        )
        checks = {
            "informers": caches.snapshots.check,
            "profiles": caches.profiles.check,
            "signingKeys": caches.signing_keys.check,
            "pathKeys": caches.path_keys.check,
            "certificate": certificates.check,
            "caBundle": ca_bundle_check.check,
            "endpoint": self_check.check,
            "drain": endpoint.check,
        }
        probes = ProbeServer(settings.webhook, checks, registry)
        engine, evaluator = caches.engine, caches.evaluator
        try:
            await run_until_signal(
                [
                    *(probes.run, informers.run, evaluator.run, caches.mappings.run),
                    partial(engine.run, evaluator.wait_ready),
                    partial(engine.run_retries, evaluator.renew),
                    partial(answer, caches, endpoint, certificates, self_check),
                ],
                before_end=endpoint.drain,
            )
        finally:
            await endpoint.stop()


async def answer(
    caches: Caches, endpoint: Endpoint, certificates: CertificateWatcher, self_check: SelfCheck
) -> None:
    """Answer reviews once there is something to answer them from."""
    await caches.wait_first()
    await endpoint.start((await certificates.wait_first()).context)
    exempt_caches()
    async with asyncio.TaskGroup() as group:
        group.create_task(run_forever(endpoint.run))
        group.create_task(run_forever(certificates.run))
        group.create_task(run_forever(self_check.run))
        await caches.evaluator.wait_ready()
        exempt_caches()


def build_caches(settings: Settings, informers: InformerFactory, engine: WorkerEngine) -> Caches:
    """Return the caches, each told of the profiles in force."""
    files = settings.translation.load_profiles()
    options = settings.translation.checked_options(
        files, namespace=settings.namespace, others_may_come=True
    )
    profiles = ProfileCache(
        informers,
        files,
        namespace=settings.namespace,
        config_map=settings.translation.profiles_config_map,
    )
    snapshots = SnapshotCache(
        informers,
        files,
        claim_aware=options.claim_aware_components,
        inventory=ObjectName(
            CONFIG_MAPS, settings.namespace, settings.validation.inventory_config_map
        ),
        features=settings.validation.features(),
        options=options,
    )
    profiles.on_change(snapshots.replace_profiles)
    evaluator = RuleEvaluator(informers, settings.namespace, settings.validation, engine=engine)
    mappings = MappingEvaluator(evaluator, snapshots, options)
    profiles.on_change(mappings.mark_changed)
    return Caches(
        snapshots,
        profiles,
        engine,
        evaluator,
        mappings,
        SigningKeyCache(informers, settings.namespace, settings.signing),
        PathKeyCache(informers, settings.namespace, settings.certificates),
    )


def build_certificates(client: Client, process: Process[Settings]) -> CertificateWatcher:
    """Return the serving certificate, mounted or from its Secret."""
    settings = process.settings
    client_ca_file = settings.webhook.client_ca_file
    return CertificateWatcher(
        _certificate_source(client, process),
        process.clock(client),
        resync_s=settings.certificates.resync_period,
        client_authority_file=None if client_ca_file is None else Path(client_ca_file),
    )


def build_endpoint(
    settings: Settings,
    caches: Caches,
    certificates: CertificateWatcher,
    metrics: WebhookMetrics,
    *,
    pod_groups: PodGroupCache,
    claims: NewClaims,
    now: Clock,
) -> Endpoint:
    """Return the HTTPS server with a handler for each path."""
    return Endpoint(
        settings.webhook,
        _handlers(settings, caches, metrics, pod_groups=pod_groups, claims=claims, now=now),
        metrics,
        find_path=caches.path_keys.find,
        chance=random.random,
        is_outdated=certificates.is_outdated,
    )


def _handlers(
    settings: Settings,
    caches: Caches,
    metrics: WebhookMetrics,
    *,
    pod_groups: PodGroupCache,
    claims: NewClaims,
    now: Clock,
) -> Mapping[str, Handler]:
    """Return path to handler."""
    snapshot, evaluator = caches.snapshots.snapshot, caches.evaluator
    options = settings.translation.checked_options(
        {}, namespace=settings.namespace, others_may_come=True
    )
    budgets = ReviewBudgets(settings.webhook.user_cpu_fraction, settings.webhook.user_cpu_burst)
    runner = ReviewRunner(budgets, metrics)
    propagation = settings.signing.timing().propagation

    def signing() -> Signing:
        return Signing(
            keys=caches.signing_keys.keys,
            now=now(),
            propagation=propagation,
            exempt_namespaces=options.exempt_namespaces,
        )

    pods = PodReviewHandler(
        snapshot, options, metrics, runner, signing=signing, evaluator=evaluator
    )
    workloads = WorkloadReviewHandler(snapshot, evaluator, options, metrics, runner)
    objects = ObjectReviewHandler(
        evaluator,
        snapshot,
        metrics,
        runner,
        options=options,
        shipped_drivers=shipped_drivers(),
    )
    routing = RoutingReviewHandler(
        evaluator,
        snapshot,
        metrics,
        runner,
        bridge=Bridge(settings.validation.bridge_scheduler, settings.validation.bridge_taint),
        groups=pod_groups,
        claims=claims,
    )
    return {
        MUTATE_PATH: pods.handle,
        ROUTE_PATH: routing.handle,
        VALIDATE_WORKLOADS_PATH: workloads.handle,
        VALIDATE_OBJECTS_PATH: objects.handle,
    }


def print_configuration(settings: Settings) -> str:
    """Return the webhook configurations that the profiles need, as YAML."""
    profiles = settings.translation.load_profiles()
    options = settings.translation.checked_options(
        profiles, namespace=settings.namespace, others_may_come=True
    )
    known_vocabularies = vocabularies_in_force(options, profiles).values()
    return dump_yaml(
        [
            generate(
                known_vocabularies,
                settings.namespace,
                mode=options.mode,
                exempt=options.exempt_namespaces,
            )
            for generate in (configuration, validating_configuration)
        ]
    )


def _certificate_source(client: Client, process: Process[Settings]) -> CertificateSource:
    settings, certificates = process.settings, process.settings.certificates
    if certificates.directory is None:
        return SecretCertificates(client, settings.namespace, certificates.serving_secret)
    return MountedCertificates(Path(certificates.directory))


COMMAND: Final = Command(
    package="webhook",
    description=__doc__,
    kind=Settings,
    section="webhook",
    variables=VARIABLES,
    flags={"--port": ("webhook.port", "HTTPS")},
    start=serve,
)


PRINT_INSTEAD: Final[Mapping[str, tuple[str, Callable[[Settings], str]]]] = {
    "--print-configuration": (
        "print the webhook configurations that the profiles need, and exit",
        print_configuration,
    )
}
"""Flag to its help, and to the text that is printed instead of starting."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_command(COMMAND, arguments, print_instead=PRINT_INSTEAD)


if __name__ == "__main__":
    sys.exit(main())
