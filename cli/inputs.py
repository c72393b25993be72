"""What subcommands are called with: objects, the state of a cluster, profiles. Reads files."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from cli.report import DEFAULT_NAMESPACE, Reported, namespace_of
from cli.world import world_of
from kube.files import SourceObject, read_paths
from webhook.profile import Profile
from webhook.shipped import load_profiles
from webhook.vocabularies.arbiter import VOCABULARIES
from webhook.world import DEFAULT_PROFILES, Options, World


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """All that a subcommand decides on.

    Attributes:
        given: The objects of `-f`, in order.
        namespace: Where objects go that do not say.
        faults: What is wrong with the state of the cluster.
        notes: What could not be found out, for standard error.
    """

    given: tuple[SourceObject, ...]
    world: World
    options: Options
    namespace: str = DEFAULT_NAMESPACE
    faults: tuple[Reported, ...] = ()
    notes: tuple[str, ...] = ()


class _Flags(msgspec.Struct, frozen=True, kw_only=True):
    """The flags as they were given."""

    files: tuple[str, ...]
    snapshots: tuple[str, ...]
    live: bool
    kubeconfig: str | None
    context: str | None
    namespace: str | None
    profiles: tuple[str, ...]
    profile_directory: Path | None


_FLAGS: Final[Sequence[Callable[[Callable[..., Any]], Callable[..., Any]]]] = (
    click.option(
        "-f",
        "--filename",
        "files",
        multiple=True,
        required=True,
        metavar="PATH",
        help="Manifests: a file, a directory (its *.yaml, *.yml and *.json, not deeper), or - for "
        "standard input. Repeatable.",
    ),
    click.option(
        "--snapshot",
        "snapshots",
        multiple=True,
        metavar="PATH",
        help="The state of a cluster, such as `kubectl get deviceclasses,resourceslices,"
        "resourcequotas,namespaces -A -o yaml` prints. Repeatable.",
    ),
    click.option("--live", is_flag=True, help="Take the state from the cluster of the kubeconfig."),
    click.option("--kubeconfig", metavar="FILE", help="With --live: not kubectl's own."),
    click.option("--context", metavar="NAME", help="With --live: not the current one."),
    click.option(
        "-n",
        "--namespace",
        metavar="NAME",
        help="Where objects go that do not say; `default`, or with --live what the context says.",
    ),
    click.option(
        "--profile",
        "profiles",
        multiple=True,
        metavar="VOCABULARY=DRIVER",
        help="Whose devices a vocabulary's keys get; by default "
        + " and ".join(f"{name}={driver}" for name, driver in DEFAULT_PROFILES.items())
        + ". Repeatable.",
    ),
    click.option(
        "--profiles",
        "profile_directory",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Driver profiles of your own, one YAML file each, over the shipped ones.",
    ),
)


def with_inputs(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags above, and call it with what they name as `inputs`."""

    @wraps(command)
    def called(**flags: Any) -> None:
        own = {name: flags.pop(name) for name in _Flags.__struct_fields__}
        inputs = gathered(_Flags(**own))
        for note in inputs.notes:
            click.echo(f"note: {note}", err=True)
        command(inputs=inputs, **flags)

    decorated: Callable[..., None] = called
    for flag in reversed(_FLAGS):
        decorated = flag(decorated)
    return decorated


def gathered(flags: _Flags) -> Inputs:
    """Return what the flags name.

    Raises:
        click.UsageError: The flags contradict each other or name what does not exist.
        DrawbridgeError: A file or the cluster cannot be read.
    """
    _judge(flags)
    profiles = load_profiles(flags.profile_directory)
    options = _options(flags.profiles, profiles)
    given = read_paths(flags.files)
    namespace = flags.namespace or DEFAULT_NAMESPACE
    snapshot: list[SourceObject] | None = None
    notes: list[str] = []
    if flags.live:
        namespace, snapshot, notes = asyncio.run(_live(flags, given))
    elif flags.snapshots:
        snapshot = read_paths(flags.snapshots)
    world, faults = world_of(profiles, given, snapshot, namespace=namespace)
    return Inputs(
        given=tuple(given),
        world=world,
        options=options,
        namespace=namespace,
        faults=tuple(faults),
        notes=tuple(notes),
    )


def _judge(flags: _Flags) -> None:
    if flags.live and flags.snapshots:
        raise click.UsageError("--live and --snapshot are two ways to say the same: use one.")
    if not flags.live and (flags.kubeconfig or flags.context):
        raise click.UsageError("--kubeconfig and --context mean nothing without --live.")
    if [*flags.files, *flags.snapshots].count("-") > 1:
        raise click.UsageError("- is standard input, which can be read once.")


async def _live(
    flags: _Flags, given: Iterable[SourceObject]
) -> tuple[str, list[SourceObject], list[str]]:
    """Return where objects go that do not say, the state of the cluster, and notes."""
    # The client takes twice as long to import as all the rest, and files are the usual case.
    from cli.live import cluster_state  # noqa: PLC0415
    from kube.client import Client  # noqa: PLC0415

    async with await Client.from_kubeconfig(flags.kubeconfig, flags.context) as client:
        namespace = flags.namespace or client.namespace or DEFAULT_NAMESPACE
        places = {namespace_of(found, namespace) for found in given} - {""}
        return namespace, *await cluster_state(client, places)


def _options(chosen: Iterable[str], profiles: Mapping[str, Profile]) -> Options:
    speakers = dict(DEFAULT_PROFILES)
    for text in chosen:
        vocabulary, _, driver = text.partition("=")
        _known("vocabulary", vocabulary, VOCABULARIES)
        _known("driver", driver, profiles)
        speakers[vocabulary] = driver
    return Options(profiles=speakers)


def _known(what: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        names = ", ".join(sorted(known))
        raise click.BadParameter(
            f"no {what} is called {name!r}; known are: {names}", param_hint="'--profile'"
        )
