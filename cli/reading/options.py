"""The flags of commands, with the objects, cluster states and profiles they name. Reads files."""

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final, TypeVar

import click
import msgspec

from allocator.model.feature_gates import Features
from answers.model.inputs import ClusterObjects, Inputs
from answers.model.objects import as_stored, merge_objects
from answers.model.profiles import profiles_in_force
from answers.model.translation_snapshot import apply_features, build_snapshot, evaluate_mappings
from answers.model.unread import unread_notes
from cli.flags.cluster_flags import (
    CLUSTER_FLAGS,
    MANIFESTS,
    NAMESPACE_FLAG,
    PROFILES_FLAG,
    RECURSIVE_FLAG,
    Flag,
    add_flags,
    files_flag,
)
from cli.flags.completion import FILE_NAME, complete_from, profile_choices
from cli.flags.plugin import has_kubeconfig, is_plugin
from cli.output.standard_error import print_notes
from cli.reading.cluster_state import (
    ClusterFlags,
    Scope,
    read_live_settings,
    read_state,
    settings_of_cluster,
)
from cli.reading.settings import CONFIG_MAP, SharedSettings, read_settings
from clusterstate.settings import ValidationSettings
from kube.manifests.reader import read_paths
from kube.manifests.repositories import Contents, read_repositories
from kube.manifests.source import MAX_BYTES
from process.profiles.profile_files import load_profiles, shipped_drivers
from translation.cluster.snapshot import (
    DEFAULT_PROFILES,
    Mode,
    TranslationOptions,
    TranslationSnapshot,
)
from translation.profiles.profile import Profile
from translation.reading.arbiter import VOCABULARIES

NO_CLUSTER: Final = "No cluster is given: use --snapshot FILE, or --live."
NO_KUBECONFIG: Final = "There is no kubeconfig: set KUBECONFIG, or use --kubeconfig or --snapshot."


class TranslationFlags(msgspec.Struct, frozen=True, kw_only=True):
    """The flags that choose drivers for legacy keys, as they were given."""

    profiles: tuple[str, ...]
    profile_directory: Path | None
    settings: str | None


_GATES: Final = "given_gates"
_NO_GATES: Final[Mapping[str, bool]] = MappingProxyType({})
_SCHEDULERS: Final = "schedulers"

_Command = Callable[..., Any]
F = TypeVar("F", bound=msgspec.Struct)


_TRANSLATION_FLAGS: Final[Sequence[Flag[Any]]] = (
    click.option(
        "--profile",
        "profiles",
        multiple=True,
        metavar="VOCABULARY=DRIVER",
        shell_complete=complete_from(profile_choices),
        help="DRA driver that serves a vocabulary's resource names, or one of them (such as "
        "nvidia.com/gpu=DRIVER), whatever exists. Repeatable. By default, for GPUs the first that has "
        "devices (docs/vocabularies.md), and without a cluster:\n\n"
        "\b\n" + "\n".join(f"{name}={driver}" for name, driver in DEFAULT_PROFILES.items()),
    ),
    PROFILES_FLAG,
    click.option(
        "--settings",
        type=FILE_NAME,
        metavar="FILE",
        help="Settings file of the cluster's processes, so that the answer is theirs: drivers, "
        f"adopted schedulers, quotas. --live reads ConfigMap {CONFIG_MAP} of the webhook's namespace.",
    ),
)


INPUT_FLAGS: Final[Sequence[Flag[Any]]] = (
    files_flag(is_required=True),
    RECURSIVE_FLAG,
    *CLUSTER_FLAGS,
    NAMESPACE_FLAG,
    *_TRANSLATION_FLAGS,
)


def with_inputs(command: _Command) -> _Command:
    """Give a command flags for manifests, a cluster and profiles; call it with `inputs`."""
    return _with_inputs(command, Scope.TRANSLATION)


def with_allocation_inputs(command: _Command) -> _Command:
    """As `with_inputs`, with all of the cluster that allocation depends on."""
    return _with_inputs(command, Scope.ALLOCATION)


def with_inputs_and_stdin(command: _Command) -> _Command:
    """As `with_allocation_inputs`; the command gets `stdin_text`, too: all of standard input, if -f names it."""

    @wraps(command)
    def run_command(**values: Any) -> None:
        cluster = pop_flags(ClusterFlags, values)
        # Read once, for the objects and for their text.
        stdin_text = sys.stdin.buffer.read(MAX_BYTES + 1) if "-" in cluster.files else b""
        inputs = read_inputs(
            cluster,
            pop_flags(TranslationFlags, values),
            Scope.ALLOCATION,
            BytesIO(stdin_text),
            values.pop(_GATES, _NO_GATES),
        )
        print_notes(inputs.notes)
        _give_validation(values, inputs.validation, inputs.features)
        command(inputs=inputs, stdin_text=stdin_text, **values)

    return add_flags(run_command, INPUT_FLAGS)


def with_cluster(command: _Command) -> _Command:
    """Give a command flags for a cluster and a namespace; call it with `cluster_objects`."""
    return _with_cluster(command, (*CLUSTER_FLAGS, NAMESPACE_FLAG))


def with_cluster_and_manifests(command: _Command) -> _Command:
    """As `with_cluster`; with manifests of `-f` the command gets `inputs`, too, else None.

    The command calls `read_translation` for the inputs of translations.
    """

    @wraps(command)
    def run_command(**values: Any) -> None:
        cluster = pop_flags(ClusterFlags, values)
        translation = pop_flags(TranslationFlags, values)
        gates = values.pop(_GATES, _NO_GATES)
        if not cluster.files:
            cluster_objects = read_cluster(cluster, with_creations=True)
            print_notes(cluster_objects.notes)
            flags = _with_default_cluster(cluster)[0]
            settings = settings_of_cluster(flags, translation.settings)
            features = _features(settings.validation, gates)
            _give_validation(values, settings.validation, features)
            cluster_objects = cluster_objects.under(features)
            read = partial(_read_translation, translation, settings, cluster_objects, features)
            command(cluster_objects=cluster_objects, inputs=None, read_translation=read, **values)
            return
        inputs = read_inputs(cluster, translation, Scope.ALLOCATION, given_gates=gates)
        print_notes(inputs.notes)
        _give_validation(values, inputs.validation, inputs.features)
        objects = merge_objects(inputs.state, inputs.manifests, inputs.namespace)
        cluster_objects = ClusterObjects(
            objects=tuple(objects),
            is_live=cluster.live,
            namespace=inputs.namespace,
            unread=inputs.unread,
        )
        command(
            cluster_objects=cluster_objects,
            inputs=inputs,
            read_translation=lambda: (inputs.snapshot, inputs.options),
            **values,
        )

    flags = (files_flag(is_required=False), RECURSIVE_FLAG, *CLUSTER_FLAGS)
    return add_flags(run_command, (*flags, NAMESPACE_FLAG, *_TRANSLATION_FLAGS))


def _read_translation(
    translation: TranslationFlags,
    settings: SharedSettings,
    objects: ClusterObjects,
    features: Features,
) -> tuple[TranslationSnapshot, TranslationOptions]:
    """Return the inputs of translations for a known state of a cluster.

    Raises:
        click.UsageError: The flags name no profile, or contradict each other.
        DrawbridgeError: A file cannot be read.
    """
    files = load_profiles(translation.profile_directory)
    profiles = profiles_in_force(files, objects.objects).profiles
    options = translation_options(translation.profiles, profiles, settings)
    snapshot, _ = build_snapshot(profiles, (), objects.objects, namespace=objects.namespace)
    return apply_features(snapshot, features), options


def with_whole_cluster(command: _Command) -> _Command:
    """As `with_cluster`, for commands about all namespaces."""
    return _with_cluster(command, CLUSTER_FLAGS)


def with_unread_state(command: _Command) -> _Command:
    """As `with_unread_cluster`, without objects that are added to the state."""

    @wraps(command)
    def run_command(**values: Any) -> None:
        values["files"] = ()
        command(cluster_flags=pop_flags(ClusterFlags, values), **values)

    return add_flags(run_command, CLUSTER_FLAGS)


def with_state_and_manifests(command: _Command) -> _Command:
    """As `with_whole_cluster`; with manifests of `-f` the command gets `inputs`, too, else None.

    The cluster's objects are then those of the flags alone, without the manifests.
    """

    @wraps(command)
    def run_command(**values: Any) -> None:
        cluster = pop_flags(ClusterFlags, values)
        translation = pop_flags(TranslationFlags, values)
        if not cluster.files:
            cluster_objects = read_cluster(cluster)
            print_notes(cluster_objects.notes)
            command(cluster_objects=cluster_objects, inputs=None, **values)
            return
        inputs = read_inputs(cluster, translation, Scope.ALLOCATION)
        if not inputs.knows_cluster:
            raise click.UsageError(NO_CLUSTER)
        print_notes(inputs.notes)
        cluster_objects = ClusterObjects(objects=inputs.state, namespace=inputs.namespace)
        command(cluster_objects=cluster_objects, inputs=inputs, **values)

    flags = (files_flag(is_required=False, help_text=MANIFESTS), RECURSIVE_FLAG, *CLUSTER_FLAGS)
    return add_flags(run_command, (*flags, NAMESPACE_FLAG, *_TRANSLATION_FLAGS))


def with_unread_cluster(command: _Command) -> _Command:
    """As `with_whole_cluster`, but call the command with `cluster_flags`, for `read_cluster`."""

    @wraps(command)
    def run_command(**values: Any) -> None:
        command(cluster_flags=pop_flags(ClusterFlags, values), **values)

    return add_flags(run_command, (files_flag(is_required=False), *CLUSTER_FLAGS))


def _with_cluster(command: _Command, flags: Sequence[Flag[Any]]) -> _Command:
    @wraps(command)
    def run_command(**values: Any) -> None:
        cluster_objects = read_cluster(
            pop_flags(ClusterFlags, values), with_creations=NAMESPACE_FLAG in flags
        )
        print_notes(cluster_objects.notes)
        command(cluster_objects=cluster_objects, **values)

    return add_flags(run_command, (files_flag(is_required=False), RECURSIVE_FLAG, *flags))


def _with_inputs(command: _Command, scope: Scope) -> _Command:
    @wraps(command)
    def run_command(**values: Any) -> None:
        cluster = pop_flags(ClusterFlags, values)
        translation, gates = pop_flags(TranslationFlags, values), values.pop(_GATES, _NO_GATES)
        inputs = read_inputs(cluster, translation, scope, given_gates=gates)
        print_notes(inputs.notes)
        _give_validation(values, inputs.validation, inputs.features)
        command(inputs=inputs, **values)

    return add_flags(run_command, INPUT_FLAGS)


def pop_flags(kind: type[F], values: dict[str, Any]) -> F:
    """Remove the flags of one kind from the values, and return them."""
    own = [name for name in kind.__struct_fields__ if name in values]
    return kind(**{name: values.pop(name) for name in own})


def _give_validation(
    values: dict[str, Any], validation: ValidationSettings, features: Features
) -> None:
    """Give a command with flags for them the feature gates and the policy-aware schedulers of the cluster."""
    if _SCHEDULERS in values:
        schedulers = (*validation.policy_aware_schedulers, *values[_SCHEDULERS])
        values |= {_SCHEDULERS: tuple(dict.fromkeys(schedulers)), "features": features}


def _features(validation: ValidationSettings, given_gates: Mapping[str, bool]) -> Features:
    """Return the feature gates of settings, overridden by those of a call."""
    return msgspec.structs.replace(validation.features(), **given_gates)


def read_inputs(
    cluster: ClusterFlags,
    translation: TranslationFlags,
    scope: Scope,
    stdin: BinaryIO | None = None,
    given_gates: Mapping[str, bool] = _NO_GATES,
) -> Inputs:
    """Read the objects that the flags name.

    Args:
        stdin: Standard input for -f; None for that of the process.
        given_gates: Fields of Features that override those of the settings.

    Raises:
        click.UsageError: The flags contradict each other, or name what does not exist.
        DrawbridgeError: A file or the cluster cannot be read.
    """
    _check_flags(cluster)
    cluster, default_notes = _with_default_cluster(cluster)
    settings = None if translation.settings is None else read_settings(translation.settings)
    files = load_profiles(translation.profile_directory)
    # Wrong flags are told before anything else is read; only drivers may come with objects.
    translation_options(
        translation.profiles, files, settings or SharedSettings(), others_may_come=True
    )
    contents = _read_manifests(cluster, stdin)
    manifests = contents.objects
    if not manifests and not contents.unreadable:
        raise click.UsageError(f"no objects in {', '.join(map(_file_name, cluster.files))}")
    read = read_state(cluster, manifests, scope)
    namespace, state = read.namespace, read.objects
    notes = unread_notes(read.unread)
    is_whole = cluster.live and not any(kind.is_essential for kind in read.unread)
    if cluster.live and settings is None:
        live = asyncio.run(read_live_settings(cluster))
        settings, notes = live.settings, [*notes, *live.notes]
        is_whole = is_whole and live.is_readable
    notes = [*default_notes, *contents.notes, *notes]
    settings = settings or SharedSettings()
    if settings.translation.profiles_directory is not None and not translation.profile_directory:
        notes = [
            *notes,
            "the settings name a directory of profiles, which is read only with --profiles DIR",
        ]
    in_force = profiles_in_force(files, (*(state or ()), *manifests))
    notes = [*notes, *in_force.notes]
    profiles = in_force.profiles
    options = translation_options(translation.profiles, profiles, settings)
    features = _features(settings.validation, given_gates)
    manifests = as_stored(manifests, features)
    state = None if state is None else list(as_stored(state, features))
    snapshot, faults = build_snapshot(
        profiles, manifests, state, namespace=namespace, is_whole=is_whole
    )
    snapshot = apply_features(snapshot, features)
    everything = merge_objects(state or (), manifests, namespace)
    snapshot = evaluate_mappings(snapshot, options, everything, namespace)
    if options.mode is Mode.SHADOW:
        notes = [
            *notes,
            "in mode Shadow the cluster changes and rejects nothing; this is what another mode would do",
        ]
    return Inputs(
        manifests=manifests,
        unreadable=contents.unreadable,
        shipped_drivers=shipped_drivers(),
        state=tuple(state or ()),
        knows_cluster=state is not None,
        snapshot=snapshot,
        options=options,
        namespace=namespace,
        faults=tuple(faults),
        notes=tuple(notes),
        unread=frozenset(kind.resource for kind in read.unread),
        features=features,
        validation=settings.validation,
        kubernetes=read.kubernetes,
    )


def _read_manifests(flags: ClusterFlags, stdin: BinaryIO | None) -> Contents:
    if flags.exclude is not None and flags.recursive:
        return read_repositories(flags.files, flags.exclude, stdin=stdin)
    if flags.exclude:
        raise click.UsageError("--exclude requires -R.")
    objects = read_paths(flags.files, recursive=flags.recursive, stdin=stdin)
    return Contents(objects=tuple(objects))


def read_cluster(flags: ClusterFlags, *, with_creations: bool = False) -> ClusterObjects:
    """Read the objects of the cluster that the flags name.

    Args:
        with_creations: Read what keeps pods of the namespace from being created, too.

    Raises:
        click.UsageError: The flags name no cluster, or contradict each other.
        DrawbridgeError: A file or the cluster cannot be read.
    """
    _check_flags(flags)
    flags, _ = _with_default_cluster(flags)
    if not (flags.files or flags.snapshots or flags.live):
        raise click.UsageError(NO_KUBECONFIG if _is_live_by_default(flags) else NO_CLUSTER)
    manifests = read_paths(flags.files, recursive=flags.recursive)
    read = read_state(flags, manifests, Scope.ALLOCATION, with_creations=with_creations)
    objects = merge_objects(read.objects or (), manifests, read.namespace)
    return ClusterObjects(
        objects=tuple(objects),
        is_live=flags.live,
        namespace=read.namespace,
        notes=tuple(unread_notes(read.unread)),
        unread=frozenset(kind.resource for kind in read.unread),
        failed_creations=tuple(read.failed_creations),
    )


def _check_flags(flags: ClusterFlags) -> None:
    if flags.live and flags.snapshots:
        raise click.UsageError("--live and --snapshot are mutually exclusive.")
    if flags.offline and (flags.live or flags.kubeconfig or flags.context):
        raise click.UsageError("--offline excludes --live, --kubeconfig and --context.")
    if not names_live_cluster(flags) and (flags.kubeconfig or flags.context):
        raise click.UsageError("--kubeconfig and --context require --live.")
    paths = (*flags.files, *flags.snapshots)
    if paths.count("-") > 1:
        raise click.UsageError("- is standard input, which can be read only once.")
    urls = [path for path in paths if path.startswith(("http://", "https://"))]
    if urls:
        raise click.UsageError(f"URLs are not supported: curl -L {urls[0]} | drawbridge ... -f -")


def names_live_cluster(flags: ClusterFlags) -> bool:
    """Return True if the flags name a running cluster, or none to a plugin of kubectl."""
    return flags.live or _is_live_by_default(flags)


def _is_live_by_default(flags: ClusterFlags) -> bool:
    """Return True if the cluster is the current context's, without a flag that says so."""
    return is_plugin() and not (flags.offline or flags.snapshots)


def _with_default_cluster(flags: ClusterFlags) -> tuple[ClusterFlags, list[str]]:
    """Return the flags with `live` if that is the default and there is a kubeconfig, and a note."""
    if flags.live or not _is_live_by_default(flags):
        return flags, []
    if flags.kubeconfig or flags.context or has_kubeconfig():
        return msgspec.structs.replace(flags, live=True), []
    return flags, ["there is no kubeconfig, so no cluster is read; --offline says that it is meant"]


def _file_name(path: str) -> str:
    return "standard input" if path == "-" else path


def translation_options(
    choices: Iterable[str],
    profiles: Mapping[str, Profile],
    settings: SharedSettings,
    *,
    others_may_come: bool = False,
) -> TranslationOptions:
    """Return the options of the settings, overridden by the drivers that flags choose.

    Args:
        others_may_come: Profiles of the cluster are not known yet, so a driver may have none.

    Raises:
        ConfigError: The settings name a vocabulary or a driver that is not known.
    """
    drivers: dict[str, str] = {}
    for text in choices:
        name, separator, driver = text.partition("=")
        if not separator:
            raise click.BadParameter(
                f"write VOCABULARY=DRIVER, not {text!r}", param_hint="'--profile'"
            )
        if "/" not in name:
            _check_known("vocabulary", name, VOCABULARIES)
        if not others_may_come:
            _check_known("driver", driver, profiles)
        drivers[name] = driver
    translation = msgspec.structs.replace(
        settings.translation, profiles={**settings.translation.profiles, **drivers}
    )
    options = translation.checked_options(
        profiles, namespace=settings.namespace, others_may_come=others_may_come
    )
    return msgspec.structs.replace(options, driver_option="--profile VOCABULARY=DRIVER")


def _check_known(what: str, name: str, known_names: Iterable[str]) -> None:
    if name not in known_names:
        names = ", ".join(sorted(known_names))
        raise click.BadParameter(
            f"unknown {what} {name!r}; known are: {names}", param_hint="'--profile'"
        )
