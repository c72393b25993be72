"""The objects of a recording as views. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from answers.model.kinds import STATE_KINDS, Kinds
from answers.model.snapshot_origin import SNAPSHOT, SnapshotOrigin
from answers.recording.delta import ObjectKey, fold_into
from answers.recording.lines import Change, Entry, Header
from kube.api.meta import ApiStruct, ObjectMeta, decode_pruned
from kube.errors import ObjectFileError
from kube.manifests.source import ViewedObject

Fields = Mapping[str, Any]


def read_view(key: ObjectKey, fields: Fields, kind: type[ApiStruct]) -> ApiStruct:
    """Return an object as a view, under its recorded name.

    Args:
        key: The object.
        fields: Its fields; values may be `msgspec.Raw`.
        kind: The view.

    Raises:
        msgspec.DecodeError: A field has the wrong type; the message names its path.
    """
    view: Any = decode_pruned(msgspec.json.encode(fields), kind)
    metadata: ObjectMeta = view.metadata
    if (metadata.namespace, metadata.name) == (key.namespace, key.name):
        return view  # type: ignore[no-any-return]  # See above.
    metadata = msgspec.structs.replace(metadata, namespace=key.namespace, name=key.name)
    return msgspec.structs.replace(view, metadata=metadata)  # type: ignore[no-any-return]


def read_change(
    state: dict[ObjectKey, Fields], change: Change, source: str, kinds: Kinds = STATE_KINDS
) -> ApiStruct | None:
    """Change a state, and return the changed object; None if it is gone, or of no kind that is read.

    Args:
        state: Object to its fields.
        change: The change.
        source: The name of the file, for messages.
        kinds: The kinds that are read.

    Raises:
        ObjectFileError: The object has a field of the wrong type.
    """
    key = change.delta.object
    kind = kinds.get((key.api_version, key.kind))
    if kind is None:
        return None
    fold_into(state, change.delta)
    if change.delta.deleted:
        return None
    try:
        return read_view(key, state[key], kind)
    except msgspec.DecodeError as error:
        name = f"{key.kind}/{key.namespace}/{key.name}"
        raise ObjectFileError(f"{source}:{change.line}: {name}: {error}") from None


def last_state(
    header: Header, entries: Iterable[Entry], source: str, kinds: Kinds
) -> Iterator[ViewedObject]:
    """Yield the objects at the end of a recording, after one that names their source.

    Args:
        header: The first line.
        entries: The entries.
        source: The name of the file.
        kinds: The kinds that are read.

    Raises:
        ObjectFileError: A line is not what a recorder writes.
    """
    yield ViewedObject(
        api_version=header.api_version,
        kind=SNAPSHOT,
        value=SnapshotOrigin(
            kubernetes_version=header.kubernetes_version,
            unreadable=header.unreadable,
            server=header.server,
            taken_at=header.started_at,
            context=header.context,
        ),
        source=source,
    )
    state: dict[ObjectKey, Fields] = {}
    line_of: dict[ObjectKey, int] = {}
    for entry in entries:
        if isinstance(entry, Change) and _key(entry) in kinds:
            fold_into(state, entry.delta)
            line_of[entry.delta.object] = entry.line
    for key, fields in state.items():
        kind = kinds[key.api_version, key.kind]
        try:
            view = read_view(key, fields, kind)
        except msgspec.DecodeError as error:
            name = f"{key.kind}/{key.namespace}/{key.name}"
            raise ObjectFileError(f"{source}:{line_of[key]}: {name}: {error}") from None
        yield ViewedObject(api_version=key.api_version, kind=key.kind, value=view, source=source)


def _key(change: Change) -> tuple[str, str]:
    return change.delta.object.api_version, change.delta.object.kind
