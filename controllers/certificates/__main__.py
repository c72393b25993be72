"""`python -m controllers.certificates`: certificates, and drift of the webhook configurations.

It has an account of its own, reads no pods and evaluates nothing that others wrote, since who takes
it over can pass for the webhook. Of the profiles of the cluster it reads what the controllers publish.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from prometheus_client.registry import Collector

from controllers.certificates.controller import CertificateController
from controllers.certificates.drift_watch import ConfigurationWatch
from controllers.certificates.metrics import (
    CertificateAuthorityCollector,
    ConfigurationCollector,
    PathKeyCollector,
)
from controllers.certificates.settings import VARIABLES, Settings
from controllers.certificates.signing_keys import SigningKeyController
from kube.client.client import Client
from kube.names import CERTIFICATES_REPORTER
from kube.runtime.controller import Controller
from kube.runtime.events import EventRecorder, EventResult
from kube.runtime.informers import InformerFactory
from process.certificates.certificate_metrics import CertificateCollector
from process.profiles.published_profiles import ProfileCache
from process.running.command import Command, Process, run_command
from process.running.leader_election import Term, Work, run_while_leading
from process.serving.metrics import CacheCollector, QueueCollector, event_counter, process_registry
from translation.cluster.snapshot import TranslationOptions, vocabularies_in_force
from translation.profiles.profile import Profile


class Lasting(NamedTuple):
    """The parts that outlive a leadership.

    Attributes:
        files: Driver to profile, of the package and of files.
        options: The options of the translation.
        count_event: Called with the result of each event.
    """

    process: Process[Settings]
    client: Client
    files: Mapping[str, Profile]
    options: TranslationOptions
    count_event: Callable[[EventResult], None]


async def keep_certificates(process: Process[Settings]) -> None:
    """Stand for leader, and keep certificates while leading, until a signal comes."""
    settings, registry = process.settings, process_registry()
    files = settings.translation.load_profiles()
    options = settings.translation.checked_options(
        files, namespace=settings.namespace, others_may_come=True
    )
    count_event = event_counter(registry)
    async with await process.client() as client:
        await run_while_leading(
            process,
            client,
            partial(begin, Lasting(process, client, files, options, count_event)),
            lease=settings.certificate_controller.leader_election.resource_name,
            election=settings.certificate_controller.leader_election,
            server=settings.certificate_controller,
            registry=registry,
        )


def begin(lasting: Lasting, _: Term) -> Work:
    """Return the work of a leader: nothing that was known before counts."""
    process, client = lasting.process, lasting.client
    settings, informers = process.settings, InformerFactory(client)
    recorder = EventRecorder(
        client,
        controller=CERTIFICATES_REPORTER,
        instance=process.identity,
        now=process.clock(client),
        count=lasting.count_event,
    )
    profiles = ProfileCache(
        informers,
        lasting.files,
        namespace=settings.namespace,
        config_map=settings.translation.profiles_config_map,
    )
    watch = build_configuration_watch(lasting, informers, recorder, profiles)
    certificates = build_certificate_controller(lasting, informers, profiles, watch)
    signing_keys = SigningKeyController(client, informers, settings, process.clock(client))
    controllers: list[Controller[Any]] = [
        *certificates.controllers,
        *signing_keys.controllers,
        *watch.controllers,
    ]
    return Work(
        controllers=controllers,
        loops=(informers.run, recorder.run),
        collectors=(
            CacheCollector(informers),
            QueueCollector(controllers),
            *build_collectors(certificates, watch),
        ),
    )


def build_configuration_watch(
    lasting: Lasting,
    informers: InformerFactory,
    recorder: EventRecorder,
    profiles: ProfileCache,
) -> ConfigurationWatch:
    """Return the comparison of the webhook configurations with the needs of the profiles."""
    settings, options = lasting.process.settings, lasting.options
    watch = ConfigurationWatch(
        informers,
        recorder,
        settings.certificates.webhook_configuration,
        lambda: vocabularies_in_force(options, profiles.profiles).values(),
        settings.certificate_controller.backoff(),
        mode=options.mode,
        exempt=options.exempt_namespaces,
        namespace=settings.namespace,
        grace_s=settings.certificate_controller.configuration_grace_period,
    )
    profiles.on_change(watch.profiles_changed)
    return watch


def build_certificate_controller(
    lasting: Lasting,
    informers: InformerFactory,
    profiles: ProfileCache,
    watch: ConfigurationWatch,
) -> CertificateController:
    """Return the controller of certificates, caBundles and paths."""
    certificates = CertificateController(
        lasting.client,
        informers,
        lasting.process.settings,
        lasting.process.now,
        # Before the first list, the keys of the cluster's profiles would be removed.
        conditions=lambda: watch.match_conditions() if not profiles.check() else {},
    )
    profiles.on_change(certificates.profiles_changed)
    return certificates


def build_collectors(
    certificates: CertificateController, watch: ConfigurationWatch
) -> Sequence[Collector]:
    """Return the metrics of certificates and webhook configurations.

    Where others issue certificates, such as cert-manager, nothing is known of authorities and caBundles.
    """
    authorities = CertificateAuthorityCollector(
        certificates.trusted_count, certificates.is_published
    )
    return (
        CertificateCollector(certificates.not_after),
        ConfigurationCollector(certificates.clock_skew, watch.is_current),
        PathKeyCollector(certificates.path_keys),
        *([authorities] if certificates.keeps_authorities else []),
    )


COMMAND: Final = Command(
    package="controllers.certificates",
    description=__doc__,
    kind=Settings,
    section="certificateController",
    variables=VARIABLES,
    start=keep_certificates,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_command(COMMAND, arguments)


if __name__ == "__main__":
    sys.exit(main())
