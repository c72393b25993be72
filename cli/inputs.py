"""What subcommands are called with: objects, the state of a cluster, profiles. Reads files."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from cli.objects import FoundObject, joined
from cli.reading import KINDS, STATE_KINDS, Kinds
from cli.report import DEFAULT_NAMESPACE, Reported, namespace_of
from cli.world import world_of
from kube.files import SourceObject, read_paths, read_views
from webhook.profile import Profile
from webhook.shipped import load_profiles
from webhook.vocabularies.arbiter import VOCABULARIES
from webhook.world import DEFAULT_PROFILES, Options, World


class Scope(Enum):
    """How much of a cluster's state counts."""

    TRANSLATION = auto()
    ALLOCATION = auto()

    @property
    def kinds(self) -> Kinds:
        """(apiVersion, kind) of what is read, to its view."""
        return KINDS if self is Scope.TRANSLATION else STATE_KINDS


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """All that a subcommand decides on.

    Attributes:
        given: The objects of `-f`, in order.
        snapshot: The state of the cluster; empty when nothing is known of it.
        namespace: Where objects go that do not say.
        faults: What is wrong with the state of the cluster.
        notes: What could not be found out, for standard error.
    """

    given: tuple[SourceObject, ...]
    snapshot: tuple[FoundObject, ...] = ()
    world: World
    options: Options
    namespace: str = DEFAULT_NAMESPACE
    faults: tuple[Reported, ...] = ()
    notes: tuple[str, ...] = ()


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster holds, for subcommands that are asked about nothing else.

    Attributes:
        objects: Of the cluster, those of `-f` in place of their namesakes.
        namespace: As of `Inputs`.
        notes: As of `Inputs`.
    """

    objects: tuple[FoundObject, ...]
    namespace: str = DEFAULT_NAMESPACE
    notes: tuple[str, ...] = ()


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """The flags that say which cluster is meant, as they were given."""

    files: tuple[str, ...]
    snapshots: tuple[str, ...]
    live: bool
    kubeconfig: str | None
    context: str | None
    namespace: str | None


class _Speech(msgspec.Struct, frozen=True, kw_only=True):
    """The flags that say how legacy keys are meant, as they were given."""

    profiles: tuple[str, ...]
    profile_directory: Path | None


_Command = Callable[..., Any]
_Flag = Callable[[_Command], _Command]
F = TypeVar("F", bound=msgspec.Struct)


def _files_flag(*, required: bool) -> _Flag:
    return click.option(
        "-f",
        "--filename",
        "files",
        multiple=True,
        required=required,
        metavar="PATH",
        help="Manifests: a file, a directory (its *.yaml, *.yml and *.json, not deeper), or - for "
        "standard input. Repeatable.",
    )


_PLACE_FLAGS: Final[Sequence[_Flag]] = (
    click.option(
        "--snapshot",
        "snapshots",
        multiple=True,
        metavar="PATH",
        help="The state of a cluster, such as `kubectl get deviceclasses,resourceslices,"
        "resourceclaims,nodes,pods -A -o yaml` prints. Repeatable.",
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
)
_SPEECH_FLAGS: Final[Sequence[_Flag]] = (
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


def with_inputs(command: _Command) -> _Command:
    """Give a command flags for objects, a cluster and profiles; call it with `inputs`."""
    return _with_inputs(command, Scope.TRANSLATION)


def with_allocation_inputs(command: _Command) -> _Command:
    """As `with_inputs`, with all of the cluster that allocation depends on."""
    return _with_inputs(command, Scope.ALLOCATION)


def with_cluster(command: _Command) -> _Command:
    """Give a command flags for a cluster; call it with what that holds as `found`."""

    @wraps(command)
    def called(**flags: Any) -> None:
        found = found_cluster(_taken(_Place, flags))
        _tell(found.notes)
        command(found=found, **flags)

    return _decorated(called, (_files_flag(required=False), *_PLACE_FLAGS))


def _with_inputs(command: _Command, scope: Scope) -> _Command:
    @wraps(command)
    def called(**flags: Any) -> None:
        inputs = gathered(_taken(_Place, flags), _taken(_Speech, flags), scope)
        _tell(inputs.notes)
        command(inputs=inputs, **flags)

    return _decorated(called, (_files_flag(required=True), *_PLACE_FLAGS, *_SPEECH_FLAGS))


def _decorated(command: _Command, flags: Sequence[_Flag]) -> _Command:
    for flag in reversed(flags):
        command = flag(command)
    return command


def _taken(kind: type[F], flags: dict[str, Any]) -> F:
    """Return those flags that are this kind's, which are no longer among the others."""
    return kind(**{name: flags.pop(name) for name in kind.__struct_fields__})


def _tell(notes: Iterable[str]) -> None:
    for note in notes:
        click.echo(f"note: {note}", err=True)


def gathered(place: _Place, speech: _Speech, scope: Scope) -> Inputs:
    """Return what the flags name.

    Raises:
        click.UsageError: The flags contradict each other or name what does not exist.
        DrawbridgeError: A file or the cluster cannot be read.
    """
    _judge(place)
    profiles = load_profiles(speech.profile_directory)
    options = _options(speech.profiles, profiles)
    given = read_paths(place.files)
    namespace, snapshot, notes = _snapshot(place, given, scope)
    world, faults = world_of(
        profiles, given, snapshot, namespace=namespace, is_whole=place.live and not notes
    )
    return Inputs(
        given=tuple(given),
        snapshot=tuple(snapshot or ()),
        world=world,
        options=options,
        namespace=namespace,
        faults=tuple(faults),
        notes=tuple(notes),
    )


def found_cluster(place: _Place) -> Found:
    """Return what the cluster holds that the flags name.

    Raises:
        click.UsageError: The flags name no cluster, or contradict each other.
        DrawbridgeError: A file or the cluster cannot be read.
    """
    _judge(place)
    if not (place.files or place.snapshots or place.live):
        raise click.UsageError("Which cluster? Use --snapshot FILE, or --live.")
    given = read_paths(place.files)
    namespace, snapshot, notes = _snapshot(place, given, Scope.ALLOCATION)
    objects = joined(snapshot or (), given, namespace)
    return Found(objects=tuple(objects), namespace=namespace, notes=tuple(notes))


def _judge(place: _Place) -> None:
    if place.live and place.snapshots:
        raise click.UsageError("--live and --snapshot are two ways to say the same: use one.")
    if not place.live and (place.kubeconfig or place.context):
        raise click.UsageError("--kubeconfig and --context mean nothing without --live.")
    if [*place.files, *place.snapshots].count("-") > 1:
        raise click.UsageError("- is standard input, which can be read once.")


def _snapshot(
    place: _Place, given: Iterable[SourceObject], scope: Scope
) -> tuple[str, list[FoundObject] | None, list[str]]:
    """Return where objects go that do not say, the state of the cluster, and notes."""
    namespace = place.namespace or DEFAULT_NAMESPACE
    if place.live:
        return asyncio.run(_live(place, given, scope))
    if place.snapshots:
        return namespace, read_views(place.snapshots, scope.kinds), []
    return namespace, None, []


async def _live(
    place: _Place, given: Iterable[SourceObject], scope: Scope
) -> tuple[str, list[FoundObject] | None, list[str]]:
    # The client takes twice as long to import as all the rest, and files are the usual case.
    from cli.live import allocation_state, cluster_state  # noqa: PLC0415
    from kube.client import Client  # noqa: PLC0415

    async with await Client.from_kubeconfig(place.kubeconfig, place.context) as client:
        namespace = place.namespace or client.namespace or DEFAULT_NAMESPACE
        places = {namespace_of(found, namespace) for found in given} - {""}
        found: list[FoundObject] = []
        objects, notes = await cluster_state(client, places)
        found += objects
        if scope is Scope.ALLOCATION:
            more, more_notes = await allocation_state(client)
            found += more
            notes += more_notes
        return namespace, found, notes


def _options(chosen: Iterable[str], profiles: Mapping[str, Profile]) -> Options:
    speakers = dict(DEFAULT_PROFILES)
    for text in chosen:
        vocabulary, separator, driver = text.partition("=")
        if not separator:
            raise click.BadParameter(
                f"write VOCABULARY=DRIVER, not {text!r}", param_hint="'--profile'"
            )
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
