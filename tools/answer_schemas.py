"""JSON Schemas of the output of commands with `-o json`, made from the types of their answers.

Source: JSON Schema 2020-12. A schema allows further keys, since a later release may add some.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from inspect import getdoc
from typing import Any, Final, get_args, get_type_hints

import msgspec

from answers.model.kinds import API_VERSION
from cli.output.formats import Report, format_json
from kube.quantity import Quantity
from tools.public_names import DOCUMENTS, LINES

FOLDER: Final = "docs/reference/schemas"
_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
"""An attribute in a docstring without its indentation: its name, and its text over several lines."""
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]


def commands() -> Mapping[str, list[type]]:
    """Return each command with the types of its documents."""
    types: dict[str, list[type]] = {}
    for call, document in DOCUMENTS.items():
        types.setdefault(call.partition(" ")[0], []).append(document)
    return types


def files() -> list[tuple[str, Callable[[], str]]]:
    """Return the path of each schema, with the maker of its text."""
    return [
        (f"{FOLDER}/{command}.json", partial(_text, command, types))
        for command, types in sorted(commands().items())
    ] + [(f"{FOLDER}/recording.json", _recording_text)]


def schema(command: str) -> Schema:
    """Return the schema of a command's document."""
    return _schema(command, commands()[command])


def _text(command: str, types: list[type]) -> str:
    return format_json(_schema(command, types)) + "\n"


def _recording_text() -> str:
    """Return the schema of a line of the file of `drawbridge record`."""
    references, components = _components(LINES)
    title = "a line of the file of drawbridge record"
    schema = {"$schema": DIALECT, "title": title, "anyOf": references, "$defs": components}
    return format_json(schema) + "\n"


def _components(types: Sequence[type]) -> tuple[list[Schema], Schema]:
    """Return references to the schemas of types, and the schemas by name."""
    references, components = msgspec.json.schema_components(
        types, schema_hook=_describe, ref_template="#/$defs/{name}"
    )
    _require_printed_keys(components, types)
    _describe_keys(components, types)
    return list(references), components


def _schema(command: str, types: list[type]) -> Schema:
    references, components = _components(types)
    kinds = {report.value for report in Report} & {f"{command.title().replace('-', '')}Report"}
    kind: Schema = {"const": kinds.pop()} if kinds else {"type": "string"}
    return {
        "$schema": DIALECT,
        "title": f"drawbridge {command} -o json",
        "type": "object",
        "properties": {"apiVersion": {"const": API_VERSION}, "kind": kind},
        "required": ["apiVersion", "kind"],
        **(references[0] if len(types) == 1 else {"anyOf": references}),
        "$defs": components,
    }


def _require_printed_keys(components: Schema, types: Iterable[type]) -> None:
    """Require every key that is always printed; msgspec requires those without a default."""
    for kind in _structs(types):
        if not kind.__struct_config__.omit_defaults and kind.__name__ in components:
            component = components[kind.__name__]
            component["required"] = [
                field.encode_name
                for field in msgspec.structs.fields(kind)
                if field.default is not msgspec.UNSET
            ]


def _describe_keys(components: Schema, types: Iterable[type]) -> None:
    """Give each key the lines about it in its struct's docstring, and the struct the lines before these."""
    for kind in _structs(types):
        if kind.__name__ not in components:
            continue
        component = components[kind.__name__]
        summary, _, attributes = (getdoc(kind) or "").partition("\n\nAttributes:\n")
        component["description"] = summary
        described = {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(attributes)}
        for field in msgspec.structs.fields(kind):
            if field.name in described:
                key = component["properties"][field.encode_name]
                key["description"] = described[field.name]


def _structs(types: Iterable[Any]) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs that types are made of, each at least once."""
    for kind in types:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            yield kind
            yield from _structs(get_type_hints(kind).values())
        else:
            yield from _structs(get_args(kind))


def _describe(kind: type) -> Schema:
    """Return the schema of a type of ours that JSON has as text."""
    if kind is Quantity:
        return {"type": "string", "description": "An amount, such as 40Gi."}
    raise NotImplementedError(kind)
