"""Commands that change fields of objects, and stop if these are not as a plan expects. Pure.

A JSON Patch tests the values of the plan before it changes any of them, in one write. So what somebody
else has changed since then is never overwritten, and no change is half done.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cli.runbooks.shell import command, comment
from kube.names import TRANSLATE_LABEL

FieldPath = tuple[str, ...]


class FieldChange(msgspec.Struct, frozen=True, kw_only=True):
    """A field of an object that is changed, or that has to stay as it is.

    Attributes:
        path: The keys that lead to it.
        before: The value that the plan expects; None for a field that is missing.
        after: The value that it gets; None to remove it.
    """

    path: FieldPath
    before: Any
    after: Any


def change_command(target: str, namespace: str, fields: Iterable[FieldChange]) -> str:
    """Return the command that changes fields of an object together.

    Args:
        target: The object as `resource/name`.
        namespace: Its namespace; empty for one of the whole cluster.
        fields: The fields; those with equal values are only tested.
    """
    changes = tuple(fields)
    tests = [_operation("test", change.path, change.before) for change in changes]
    writes = [_write(change) for change in changes if change.before != change.after]
    finished = [_operation("test", change.path, change.after) for change in changes]
    expected = (
        text for change in changes for text in (json_path(change.path), _text(change.before))
    )
    return command(
        *("change_object", target, namespace),
        *(_json([*tests, *writes]), _json(finished)),
        *expected,
    )


def change_lines(target: str, namespace: str, fields: Iterable[FieldChange]) -> tuple[str, str]:
    """Return a comment on the fields that are changed, and the command that does so."""
    changes = tuple(fields)
    return change_comment(target, changes), change_command(target, namespace, changes)


def change_comment(target: str, fields: Iterable[FieldChange]) -> str:
    """Return a comment on the fields of an object that are changed, for a person."""
    texts = [
        f"{change.path[-1]}: {_text(change.before) or 'none'}, then {_text(change.after) or 'none'}"
        for change in fields
        if change.before != change.after
    ]
    return comment(f"{target}: {'; '.join(texts) or 'is only compared'}")


def label_change(before: str | None, after: str | None) -> FieldChange:
    """Return the change of the label that opts in a namespace."""
    return FieldChange(path=("metadata", "labels", TRANSLATE_LABEL), before=before, after=after)


def template_label_change(before: str | None, after: str | None) -> FieldChange:
    """Return the change of the label that opts in the pods of a workload."""
    path = ("spec", "template", "metadata", "labels", TRANSLATE_LABEL)
    return FieldChange(path=path, before=before, after=after)


def line_changes(
    before: Mapping[str, str | None], after: Mapping[str, str | None]
) -> tuple[FieldChange, ...]:
    """Return the changes of the lines of a ResourceQuota, with the lines that have to stay as they are.

    Args:
        before: Line to amount; None for a line that it lacks.
        after: The same lines with the amounts that they get; None for one that is removed.
    """
    return tuple(
        FieldChange(path=("spec", "hard", line), before=amount, after=after[line])
        for line, amount in before.items()
    )


def json_path(path: FieldPath) -> str:
    """Return a path as kubectl reads it."""
    return "".join("." + key.replace("\\", "\\\\").replace(".", r"\.") for key in path)


def _write(change: FieldChange) -> Mapping[str, Any]:
    if change.after is None:
        return {"op": "remove", "path": _pointer(change.path)}
    return _operation("add" if change.before is None else "replace", change.path, change.after)


def _operation(name: str, path: FieldPath, value: object) -> Mapping[str, Any]:
    """Return an operation of a JSON Patch; the API server takes the test of null for that of a missing field."""
    return {"op": name, "path": _pointer(path), "value": value}


def _pointer(path: FieldPath) -> str:
    return "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in path)


def _text(value: object) -> str:
    """Return a value as kubectl prints it; empty for a missing one."""
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
