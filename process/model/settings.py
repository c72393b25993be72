"""The settings of a process, from one file, a few environment variables and flags.

Each process has a `Settings` of its own; the sections of a file that belong to other processes are
left to them, so that one file can serve all. Fields are camelCase, durations are texts such as
`10s`, and an unknown field is refused with the nearest known one. `--print-settings` prints what is
in force.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

import msgspec

from kube.errors import ConfigError
from kube.manifests.plain_yaml import PlainYamlError, load_yaml
from kube.names import NAMESPACE
from process.model.durations import Duration, PositiveDuration, parse_duration

SECTIONS: Final = frozenset(
    {
        "certificateController",
        "certificates",
        "controllers",
        "driver",
        "observer",
        "sidecar",
        "signing",
        "translation",
        "validation",
        "webhook",
    }
)
"""Every section that a file may have; a process reads those that its settings name."""

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
"""0 takes any free port and logs which."""
Fraction = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Positive = Annotated[int, msgspec.Meta(gt=0)]
Rate = Annotated[float, msgspec.Meta(gt=0)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
LogLevel = Literal["debug", "info", "warning", "error"]


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of the file."""


class ProcessSettings(Section, frozen=True, kw_only=True):
    """Settings of every process."""

    namespace: Name = NAMESPACE
    """The namespace in which all of Drawbridge is installed."""

    client_timeout: PositiveDuration = PositiveDuration(15)
    """The timeout of each call to the API server except watches."""

    log_level: LogLevel = "info"
    """`debug` adds a line for each pod that is left alone."""


class ServerSettings(Section, frozen=True, kw_only=True):
    """The addresses that a process listens on."""

    bind_address: str = ""
    """An address to listen on; empty listens on all, IPv4 and IPv6, since a pod has one network."""

    probe_port: Port = 8080
    """Plain HTTP: /healthz, /livez, /readyz."""

    metrics_port: Port = 8081
    """Plain HTTP: /metrics."""


S = TypeVar("S", bound=ProcessSettings)


def parse_settings(
    text: bytes | str,
    source: str,
    environment: Mapping[str, str],
    *,
    kind: type[S],
    variables: Mapping[str, str],
) -> S:
    """Return the settings that a file holds, overridden by the environment.

    Args:
        text: YAML or JSON; empty leaves everything at its default.
        source: The name of the source in errors.
        environment: Variable to value; an empty value sets nothing.
        kind: The settings of the process.
        variables: Environment variable to the field that it sets, such as `webhook.port`. Lists are
            separated by commas.

    Raises:
        ConfigError: The file or a variable makes no sense; the message names the field.
    """
    try:
        document = load_yaml(text)
    except PlainYamlError as fault:
        raise ConfigError(f"{source}: not YAML: {fault}") from fault
    settings = _convert({} if document is None else document, source, kind)
    values = {
        path: _value_of(path, environment[name])
        for name, path in variables.items()
        if environment.get(name)
    }
    return override(settings, values)


def override(settings: S, values: Mapping[str, Any]) -> S:
    """Return the settings with other values.

    Args:
        values: Field to value, as in the file; `webhook.port` is a field of a section.

    Raises:
        ConfigError: A value makes no sense.
    """
    if not values:
        return settings
    document = to_document(settings)
    for path, value in values.items():
        *sections, field = path.split(".")
        place = document
        for section in sections:
            place = place[section]
        place[field] = value
    return _convert(document, "environment or flags", type(settings), strict=False)


def to_document(settings: Section) -> dict[str, Any]:
    """Return settings as they would be written to a file."""
    document: dict[str, Any] = msgspec.to_builtins(settings, enc_hook=str)
    return document


def _value_of(path: str, text: str) -> str | list[str]:
    return [part.strip() for part in text.split(",")] if path.endswith("Names") else text


def _convert(document: object, source: str, kind: type[S], *, strict: bool = True) -> S:
    if isinstance(document, dict):
        known_keys = {field.encode_name for field in msgspec.structs.fields(kind)}
        others = SECTIONS - known_keys
        document = {name: value for name, value in document.items() if name not in others}
        unknown = "; ".join(_unknown_fields(document, kind))
        if unknown:
            raise ConfigError(f"{source}: {unknown}")
    try:
        return msgspec.convert(document, kind, strict=strict, dec_hook=_decode)
    except msgspec.ValidationError as fault:
        raise ConfigError(f"{source}: {fault}") from fault


def _decode(kind: type, value: object) -> object:
    if issubclass(kind, Duration):
        duration = parse_duration(value)
        if kind is PositiveDuration and not duration:
            raise ValueError("must be above 0s")
        return kind(duration)
    raise NotImplementedError(kind)


def _unknown_fields(document: Mapping[Any, Any], kind: type, place: str = "") -> Iterator[str]:
    """Yield a message for each field that a struct does not have, at any depth."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    sections = fields | (dict.fromkeys(SECTIONS) if not place else {})
    for name, value in document.items():
        here = f"{place}.{name}" if place else str(name)
        if name not in fields:
            nearest = difflib.get_close_matches(str(name), sections, n=1, cutoff=0)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            yield f"unknown field {here}{hint}"
            continue
        for inner in (fields[name], *get_args(fields[name])):
            if isinstance(inner, type) and issubclass(inner, Section) and isinstance(value, dict):
                yield from _unknown_fields(value, inner, here)
