"""`python -m webhook serve`, `control` and `observe`: the only place that knows everything.

`serve` is the webhook, a Deployment that only reads; `control` is the controllers, a Deployment
with an account of its own, of whose replicas one works; `observe` tells waiting pods what is missing,
and needs none of the two.

All take `--config FILE` (or DRAWBRIDGE_CONFIG), `--kubeconfig FILE` (without: the service account
of the pod, else kubectl's files), `--bind ADDRESS`, `--probe-port PORT`, `--print-settings` and
`--print-configuration`; `serve` takes `--port PORT` as well. Flags win over the environment, which wins over the file;
webhook/settings.py says what there is to set, and names the variables.

Logs are JSON lines on standard error, unless that is a terminal. SIGTERM drains; a second one ends
at once. Exit status: 0 after a signal, 1 when something broke, 2 when the settings make no sense.
"""

import argparse
import asyncio
import gc
import logging
import os
import random
import signal
import socket
import sys
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec
import structlog
import uvloop
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.registry import Collector

from kube.client import Client
from kube.errors import ConfigError
from kube.files import dump_yaml
from kube.leader import Leader, LeaderSettings
from webhook.app import Endpoint, SelfCheck
from webhook.audit import Audit
from webhook.caches import Caches
from webhook.configuration import (
    OBJECTS_PATH,
    PATH,
    VALIDATE_PATH,
    configuration,
    validating_configuration,
)
from webhook.handlers import Judgement, Mutation, Validation
from webhook.judging import Judging
from webhook.leaves import LeafKeeper, LeafSource, MountedLeaves, SignedLeaves
from webhook.metrics import (
    AuditMetrics,
    CacheCollector,
    CertificateCollector,
    ObserverMetrics,
    QueueCollector,
    TrustCollector,
    WebhookMetrics,
    process_registry,
)
from webhook.observer import Observer
from webhook.policies import PolicyController
from webhook.probes import ProbeServer
from webhook.profile import Profile
from webhook.settings import LogLevel, Settings, checked_options, overridden, parse_settings
from webhook.shipped import load_profiles
from webhook.templates import TemplateController
from webhook.trust import TrustKeeper
from webhook.vouching import Vouching
from webhook.world import Options, vocabularies

LEVELS: Final[Mapping[LogLevel, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

log = structlog.get_logger()


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What both commands start from.

    Attributes:
        kubeconfig: None for the pod's service account, else kubectl's files.
        identity: Of this process; no two share it.
    """

    settings: Settings
    options: Options
    profiles: Mapping[str, Profile]
    kubeconfig: str | None
    identity: str

    async def client(self) -> Client:
        """Return a client of the API server.

        Raises:
            ConfigError: There is nothing to connect with.
        """
        timeout_s = self.settings.client_timeout_seconds
        if self.kubeconfig is None:
            return await Client.discover(timeout_s=timeout_s)
        return await Client.from_kubeconfig(self.kubeconfig, timeout_s=timeout_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    given = _parsed(arguments)
    status = 0
    try:
        settings = _settings(given)
        if given.print_settings:
            sys.stdout.write(dump_yaml([msgspec.to_builtins(settings)]))
            return status
        directory = settings.profiles_directory
        profiles = load_profiles(Path(directory) if directory else None)
        options = checked_options(settings, profiles)
        if given.print_configuration:
            speaking = vocabularies(options, profiles).values()
            both = [configuration(speaking), validating_configuration(speaking)]
            sys.stdout.write(dump_yaml(both))
            return status
        log_to(sys.stderr, settings.log_level)
        setup = Setup(
            settings=settings,
            options=options,
            profiles=profiles,
            kubeconfig=given.kubeconfig,
            identity=f"{socket.gethostname()}_{uuid.uuid4()}",
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(given.command(setup))
    except* ConfigError as group:
        for fault in _leaves(group):
            sys.stderr.write(f"drawbridge: {fault}\n")
        status = 2
    return status


# --- serve ----------------------------------------------------------------------------------------


async def serve(setup: Setup) -> None:
    """Answer the API server until a signal comes."""
    settings, registry = setup.settings, process_registry()
    async with await setup.client() as client:
        caches = Caches(client, setup.profiles, seeing=setup.options.claims_seen_by)
        leaves = LeafKeeper(
            _leaf_source(client, settings),
            _now,
            look_s=settings.look_seconds,
            callers=_callers(settings.serve.client_ca_file),
        )
        metrics = WebhookMetrics(registry)
        judging = Judging(client, settings)
        registry.register(CacheCollector({**caches.informers, **judging.informers}))
        registry.register(CertificateCollector(leaves.not_after))
        timeout_s = settings.serve.read_timeout_seconds
        mutation = Mutation(caches.world, setup.options, metrics, read_timeout_s=timeout_s)
        validation = Validation(
            caches.world, judging, setup.options, metrics, read_timeout_s=timeout_s
        )
        judgement = Judgement(judging, setup.profiles, metrics, read_timeout_s=timeout_s)
        reviews = {
            PATH: mutation.mutate,
            VALIDATE_PATH: validation.validate,
            OBJECTS_PATH: judgement.judge,
        }
        endpoint = Endpoint(settings.serve, reviews, metrics, chance=random.random)
        self_check = SelfCheck(
            endpoint,
            leaves.leaf,
            host=settings.serve.bind_address,
            name=settings.names()[0],
        )
        vouching = Vouching(
            client,
            settings.webhook_configuration,
            lambda: leaves.listener.leaf if leaves.listener is not None else None,
        )
        checks = {
            "caches": caches.check,
            "leaf": leaves.check,
            "caBundle": vouching.check,
            "endpoint": self_check.check,
            "drain": endpoint.check,
        }
        probes = ProbeServer(
            settings.serve.bind_address, settings.serve.probe_port, checks, registry
        )

        async def answer() -> None:
            # Without caches a review would be judged by an empty cluster: refused is better.
            await caches.wait_synced()
            await endpoint.start((await leaves.first()).context, checks)
            # What is here now stays; the collector need not look at it again.
            gc.collect()
            gc.freeze()
            async with asyncio.TaskGroup() as group:
                group.create_task(_endless(endpoint.run))
                group.create_task(_endless(leaves.run))
                group.create_task(_endless(self_check.run))

        try:
            loops = [probes.run, caches.run, judging.run, vouching.run, answer]
            await _run_until_signal(loops, before_end=endpoint.drain)
        finally:
            await endpoint.stop()


def _leaf_source(client: Client, settings: Settings) -> LeafSource:
    directory = settings.serve.certificate_directory
    return (
        SignedLeaves(client, settings, _now)
        if directory is None
        else MountedLeaves(Path(directory))
    )


def _callers(file: str | None) -> bytes | None:
    try:
        return None if file is None else Path(file).read_bytes()
    except OSError as fault:
        raise ConfigError(f"{fault.filename}: {fault.strerror}") from fault


# --- control --------------------------------------------------------------------------------------


async def control(setup: Setup) -> None:
    """Stand for leader and control while leading, until a signal comes."""
    settings, registry = setup.settings, process_registry()
    async with await setup.client() as client:
        leader = Leader(
            client,
            LeaderSettings(
                namespace=settings.namespace,
                name=settings.control.lease,
                identity=setup.identity,
                lease_s=settings.control.lease_seconds,
                renew_deadline_s=settings.control.renew_seconds,
                retry_s=settings.control.retry_seconds,
            ),
            wall_clock=lambda: _now().timestamp(),
        )
        status = Gauge(
            "leader_election_master_status", "Whether this one leads.", ("name",), registry=registry
        )
        status.labels(settings.control.lease).set_function(lambda: float(leader.leading))
        trust = None
        if settings.serve.certificate_directory is None:
            trust = TrustKeeper(client, settings, _now)
            registry.register(CertificateCollector(trust.not_after))
            registry.register(TrustCollector(trust.trusted, trust.is_told))
        audit_metrics = AuditMetrics(registry)
        probes = ProbeServer(
            settings.control.bind_address, settings.control.probe_port, {}, registry
        )

        async def lead() -> None:
            templates = TemplateController(
                client, settings.control, setup.profiles, identity=setup.identity, now=_now
            )
            policies = PolicyController(client, settings.control, identity=setup.identity, now=_now)
            judging = Judging(client, settings)
            audit = Audit(
                client, settings, judging, audit_metrics, identity=setup.identity, now=_now
            )
            followed = {**templates.informers, **policies.informers, **judging.informers}
            followed |= trust.informers if trust is not None else {}
            with _collected(registry, CacheCollector(followed), QueueCollector(templates.queues)):
                async with asyncio.TaskGroup() as group:
                    if trust is not None:
                        group.create_task(_endless(trust.run))
                    group.create_task(_endless(templates.run))
                    group.create_task(_endless(policies.run))
                    group.create_task(_endless(audit.run))

        await _run_until_signal([probes.run, lambda: leader.run(lead)])


@contextmanager
def _collected(registry: CollectorRegistry, *collectors: Collector) -> Iterator[None]:
    """Tell what only a leader knows."""
    for each in collectors:
        registry.register(each)
    try:
        yield
    finally:
        for each in collectors:
            registry.unregister(each)


# --- observe --------------------------------------------------------------------------------------


async def observe(setup: Setup) -> None:
    """Tell pods that wait for devices what is missing, until a signal comes."""
    settings, registry = setup.settings.observe, process_registry()
    async with await setup.client() as client:
        observer = Observer(
            client, settings, ObserverMetrics(registry), identity=setup.identity, now=_now
        )
        registry.register(CacheCollector(observer.informers))
        probes = ProbeServer(
            settings.bind_address, settings.probe_port, {"caches": observer.check}, registry
        )
        await _run_until_signal([probes.run, observer.run])


# --- process --------------------------------------------------------------------------------------


async def _nothing() -> None:
    """Do nothing before the end."""


async def _run_until_signal(
    loops: Sequence[Callable[[], Awaitable[None]]],
    *,
    before_end: Callable[[], Awaitable[None]] = _nothing,
) -> None:
    """Run loops until SIGTERM or SIGINT comes; the end of one of them is the end of all."""
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        log.info("process.signalled", signal=number.name)
        signalled.set()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)  # The next one ends the process at once.

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_endless(each)) for each in loops]
        await signalled.wait()
        await before_end()
        for task in tasks:
            task.cancel()


async def _endless(run: Callable[[], Awaitable[None]]) -> None:
    await run()
    raise RuntimeError(f"{run} ended, and should not")


def _now() -> datetime:
    return datetime.now(UTC)


class LibraryLines(logging.Handler):
    """Passes on what libraries log, each as a line of ours without a traceback.

    A TLS handshake that fails is one, and whoever reaches the port can make it fail.
    """

    most: Final = 256
    """Characters of a text that may quote the head of a request."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record."""
        fault = record.exc_info[1] if record.exc_info else None
        words = record.getMessage().partition("\n")[0][: self.most]
        error = f"{type(fault).__name__}: {fault}"[: self.most] if fault else None
        log.log(record.levelno, "library.logged", logger=record.name, said=words, error=error)


def log_to(stream: TextIO, level: LogLevel) -> None:
    """Write the log to a stream: JSON, or words where a person reads along.

    Tracebacks come without local variables: those hold tokens, keys, and other people's pods.
    """
    renderer: Any = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    steps: list[Any] = [structlog.processors.TimeStamper(fmt="iso", utc=True)]
    if not stream.isatty():
        without_locals = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        steps.append(structlog.processors.ExceptionRenderer(without_locals))
        renderer = structlog.processors.JSONRenderer(serializer=_json)
    structlog.configure(
        processors=[structlog.processors.add_log_level, *steps, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[LibraryLines()], level=max(LEVELS[level], logging.WARNING))


def _json(value: object, **_: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _leaves(group: BaseExceptionGroup[ConfigError]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


# --- flags ----------------------------------------------------------------------------------------


def _settings(given: argparse.Namespace) -> Settings:
    """Return the file's settings, the environment and the flags over them."""
    file = given.config or os.environ.get("DRAWBRIDGE_CONFIG")
    try:
        text = Path(file).read_bytes() if file else b""
    except OSError as fault:
        raise ConfigError(f"{fault.filename}: {fault.strerror}") from fault
    settings = parse_settings(text, file or "defaults", os.environ)
    part = given.part
    flags = {
        f"{part}.bindAddress": given.bind,
        f"{part}.probePort": given.probe_port,
        "serve.port": getattr(given, "port", None),
    }
    return overridden(settings, {path: value for path, value in flags.items() if value is not None})


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m webhook", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(required=True, metavar="serve | control | observe")
    parts: Mapping[str, Callable[[Setup], Coroutine[Any, Any, None]]] = {
        "serve": serve,
        "control": control,
        "observe": observe,
    }
    for name, command in parts.items():
        sub = commands.add_parser(name, help=(command.__doc__ or "").splitlines()[0])
        sub.set_defaults(command=command, part=name)
        sub.add_argument("--config", metavar="FILE", help="settings, YAML or JSON")
        sub.add_argument("--kubeconfig", metavar="FILE", help="instead of the service account")
        sub.add_argument("--bind", metavar="ADDRESS", help="listen there only")
        sub.add_argument("--probe-port", type=int, metavar="PORT", help="plain HTTP")
        sub.add_argument("--print-settings", action="store_true", help="print them and exit")
        sub.add_argument(
            "--print-configuration",
            action="store_true",
            help="print the webhook configurations that the profiles need, and exit",
        )
        if name == "serve":
            sub.add_argument("--port", type=int, metavar="PORT", help="HTTPS")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
