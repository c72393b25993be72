"""The command line of a process: settings from a file, the environment and flags; then a loop.

Every process takes `--config FILE` (or DRAWBRIDGE_CONFIG, or /etc/drawbridge/settings.yaml where it
is), `--kubeconfig FILE` (without: the service
account of the pod, else kubectl's files), `--bind ADDRESS`, `--probe-port PORT`, `--metrics-port PORT`
and `--print-settings`. Flags win over the environment, which wins over the file. SIGTERM drains; a
second one ends at once. Exit status: 0 after a signal, 1 when something broke, 2 when the settings make no
sense.
"""

import argparse
import asyncio
import faulthandler
import os
import socket
import sys
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from kube.client.client import Client
from kube.errors import ConfigError, DrawbridgeError
from kube.logs import get_logger
from kube.manifests.dump import dump_yaml
from kube.runtime.leader import LeaseLost
from process.model.settings import ProcessSettings, override, parse_settings, to_document
from process.running.logs import log_to
from process.running.open_files import raise_open_file_limit
from process.running.startup import start_collecting

DEFAULT_CONFIG: Final = Path("/etc/drawbridge/settings.yaml")
SWITCH_INTERVAL_S: Final = 0.001
"""The time that the event loop waits for the interpreter while a thread computes: an answer takes
it several times."""
"""Read where it exists and nothing names another file: manifests/base mounts ConfigMap
`drawbridge-settings` there, if there is one."""

S = TypeVar("S", bound=ProcessSettings)

log = get_logger()


class Process(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    """The settings, client and metrics that a process starts from.

    Attributes:
        kubeconfig: None for the pod's service account, else kubectl's files.
        identity: The identity of this process; no two share it.
    """

    settings: S
    kubeconfig: str | None
    identity: str

    async def client(self) -> Client:
        """Return a client of the API server.

        Raises:
            ConfigError: There is nothing to connect with.
        """
        timeout_s = self.settings.client_timeout
        if self.kubeconfig is None:
            return await Client.discover(timeout_s=timeout_s)
        return await Client.from_kubeconfig(self.kubeconfig, timeout_s=timeout_s)

    @staticmethod
    def now() -> datetime:
        """Return the wall clock, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - the one clock, passed on as an argument.

    def clock(self, client: Client) -> Callable[[], datetime]:
        """Return the clock for times that stand in objects: the wall clock, until it jumps."""
        return lambda: client.correct(self.now())


class Command(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    """A process as a command.

    Attributes:
        package: The package, as in `python -m <package>`.
        kind: Its settings.
        section: The settings section with its bindAddress, probePort and metricsPort.
        variables: Environment variable to the field that it sets.
        flags: Further flag to the field that it sets and its help, such as `--port`.
        start: Runs until a signal comes.
    """

    package: str
    description: str
    kind: type[S]
    section: str
    variables: Mapping[str, str]
    flags: Mapping[str, tuple[str, str]] = {}
    start: Callable[[Process[S]], Coroutine[Any, Any, None]]


def run_command(
    command: Command[S],
    arguments: Sequence[str] | None,
    *,
    print_instead: Mapping[str, tuple[str, Callable[[S], str]]] = {},
) -> int:
    """Run a process and return its exit status.

    Args:
        arguments: None for those of this process.
        print_instead: Flag to its help and to the text that is printed instead of starting.
    """
    import uvloop  # noqa: PLC0415 - the command line imports this module where there is no uvloop.

    start_collecting()
    parser = build_parser(command, {flag: text for flag, (text, _) in print_instead.items()})
    options = parser.parse_args(arguments)
    status = 0
    try:
        settings = _settings(command, options)
        if options.print_settings:
            sys.stdout.write(dump_yaml([to_document(settings)]))
            return status
        for flag, (_, text_of) in print_instead.items():
            if getattr(options, _name(flag)):
                sys.stdout.write(text_of(settings))
                return status
        log_to(sys.stderr, settings.log_level)
        # A crash in a library that is not Python's leaves nothing else.
        faulthandler.enable()
        raise_open_file_limit()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        process = Process(
            settings=settings,
            kubeconfig=options.kubeconfig,
            identity=f"{socket.gethostname()}_{uuid.uuid4()}",  # noqa: TID251
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(command.start(process))
        log.info("process.ended")
    except* ConfigError as group:
        for fault in _leaves(group):
            sys.stderr.write(f"drawbridge: {fault}\n")
        status = 2
    except* LeaseLost as error:
        for fault in _leaves(error):
            sys.stderr.write(f"drawbridge: {fault}\n")
        status = 1
    return status


def _settings(command: Command[S], options: argparse.Namespace) -> S:
    """Return the file's settings, overridden by the environment and the flags."""
    file = options.config or os.environ.get("DRAWBRIDGE_CONFIG")
    if not file and DEFAULT_CONFIG.exists():
        file = str(DEFAULT_CONFIG)
    try:
        text = Path(file).read_bytes() if file else b""
    except OSError as fault:
        raise ConfigError(f"{fault.filename}: {fault.strerror}") from fault
    settings = parse_settings(
        text, file or "defaults", os.environ, kind=command.kind, variables=command.variables
    )
    values = {
        f"{command.section}.bindAddress": options.bind,
        f"{command.section}.probePort": options.probe_port,
        f"{command.section}.metricsPort": options.metrics_port,
    }
    values |= {field: getattr(options, _name(flag)) for flag, (field, _) in command.flags.items()}
    return override(settings, {path: value for path, value in values.items() if value is not None})


def build_parser(
    command: Command[Any], print_flags: Mapping[str, str] = {}
) -> argparse.ArgumentParser:
    """Return the parser of a process's flags.

    Args:
        print_flags: Flag to its help, of those that print instead of starting.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {command.package}",
        description=command.description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help="settings, YAML or JSON")
    parser.add_argument("--kubeconfig", metavar="FILE", help="use it, not the service account")
    parser.add_argument("--bind", metavar="ADDRESS", help="listen on this address only")
    parser.add_argument("--probe-port", type=int, metavar="PORT", help="plain HTTP")
    parser.add_argument("--metrics-port", type=int, metavar="PORT", help="plain HTTP")
    parser.add_argument("--print-settings", action="store_true", help="print them and exit")
    for flag, (_, text) in command.flags.items():
        parser.add_argument(flag, type=int, metavar="PORT", help=text)
    for flag, text in print_flags.items():
        parser.add_argument(flag, action="store_true", help=text)
    return parser


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _leaves(group: BaseExceptionGroup[DrawbridgeError]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves
