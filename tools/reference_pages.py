"""Pages of reference: settings, metrics and kinds, from the code that reads, counts and serves them."""

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from process.model.settings import to_document
from sidecar.model.rejections import Code
from tools.command_line import plain_markdown
from tools.custom_resources import definitions
from tools.docstrings import member_rows, texts_below
from tools.public_names import PROCESSES, metric_families

SETTINGS_PAGE: Final = "docs/reference/settings.md"
METRICS_PAGE: Final = "docs/reference/metrics.md"
KINDS_PAGE: Final = "docs/reference/kinds.md"
REJECTIONS_PAGE: Final = "docs/reference/rejections.md"

_SETTINGS_HEADER: Final = """\
# Settings

Every setting with its default, generated from the types that read them.
All processes read one file, `/etc/drawbridge/settings.yaml` (ConfigMap `drawbridge-settings`), each its
own sections; with the Helm chart it comes from `settings`.
Durations are texts such as `10s`, and an unknown key is refused.
An environment variable wins over the file; several values are separated by commas.
`--print-settings` prints what is in force.
"""
_METRICS_HEADER: Final = """\
# Metrics

Every metric on `/metrics`, with its labels, generated from the code.
[Operations](../operations.md) says which to watch.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
"""
_KINDS_HEADER: Final = """\
# Kinds

The fields of Drawbridge's own kinds, generated from their definitions; `kubectl explain` prints the
same.
"""
_REJECTIONS_HEADER: Final = """\
# Rejections by the bridge

Every code with which the [bridge](../bridge.md) turns a pod away, generated from the code that does. The pod's condition
`PodScheduled` has a sentence instead; the codes are in the metric `drawbridge_sidecar_rejections_total`, which counts
those of PreFilter, in the sidecar's answers and in its log.

| code | meaning |
| --- | --- |
"""


def settings_page() -> str:
    """Return the page of all settings."""
    rows: dict[str, tuple[str, str]] = {}
    variables: dict[str, str] = {}
    for command in PROCESSES:
        rows |= dict(_settings(to_document(command.kind()), command.kind))
        variables |= {field: variable for variable, field in command.variables.items()}
    sections: dict[str, list[str]] = {}
    for name, (default, text) in sorted(rows.items()):
        section = name.partition(".")[0] if "." in name else ""
        also = f" `{variables[name]}` sets it too." if name in variables else ""
        sections.setdefault(section, []).append(f"- `{name}`: {text}{also} Default: `{default}`.\n")
    return _SETTINGS_HEADER + "".join(
        f"\n## {section or 'All processes'}\n\n{''.join(lines)}"
        for section, lines in sorted(sections.items())
    )


def _settings(
    document: Mapping[str, Any], kind: type, place: str = ""
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each setting with its default and its meaning."""
    texts = _field_texts(kind)
    for field in msgspec.structs.fields(kind):
        here = f"{place}.{field.encode_name}" if place else field.encode_name
        value = document[field.encode_name]
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from _settings(value, field.type, here)
        else:
            default = msgspec.json.encode(value).decode()
            yield here, (default, texts.get(field.name, ""))


@cache
def _field_texts(kind: type) -> dict[str, str]:
    """Return the text below each field of a class and of its bases."""
    texts: dict[str, str] = {}
    for base in reversed(inspect.getmro(kind)):
        if base is msgspec.Struct or not issubclass(base, msgspec.Struct):
            continue
        texts |= texts_below(base)
    return texts


def metrics_page() -> str:
    """Return the page of all metrics."""
    return _METRICS_HEADER + "".join(
        f"| `{family.name}` | {family.type} | {', '.join(family.labels) or '-'} "
        f"| {_cell(family.help)} |\n"
        for family in sorted(metric_families())
    )


def rejections_page() -> str:
    """Return the page of the bridge's rejections."""
    return _REJECTIONS_HEADER + member_rows(Code)


def kinds_page() -> str:
    """Return the page of our own kinds."""
    return _KINDS_HEADER + "".join(map(_kind, definitions()))


def _kind(definition: Mapping[str, Any]) -> str:
    spec = definition["spec"]
    parts = []
    for version in spec["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        parts.append(
            f"\n## {spec['names']['kind']}\n\n`{spec['group']}/{version['name']}`, "
            f"{spec['scope'].lower()}. {schema.get('description', '')}\n\n"
        )
        for part in ("spec", "status"):
            if part in schema["properties"]:
                parts += _fields(schema["properties"][part], part)
    return "".join(parts)


def _fields(schema: Mapping[str, Any], place: str) -> Iterator[str]:
    """Yield a line for a field and for each below it."""
    kind = schema.get("type", "any")
    default = f", default `{schema['default']}`" if "default" in schema else ""
    values = f", one of {', '.join(map(str, schema['enum']))}" if "enum" in schema else ""
    text = plain_markdown(" ".join(schema.get("description", "").split()))
    yield f"- `{place}` ({kind}{values}{default}){': ' if text else ''}{text}\n"
    for name, inner in schema.get("properties", {}).items():
        yield from _fields(inner, f"{place}.{name}")
    for key, suffix in (("items", "[]"), ("additionalProperties", ".<key>")):
        inner = schema.get(key)
        if isinstance(inner, Mapping) and inner.get("properties"):
            for name, below in inner["properties"].items():
                yield from _fields(below, f"{place}{suffix}.{name}")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
