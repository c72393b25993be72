"""Settings: defaults, what wins over what, and what is refused."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import pytest

from kube.errors import ConfigError
from webhook.settings import (
    ENVIRONMENT,
    ControlSettings,
    ObserveSettings,
    ServeSettings,
    Settings,
    TranslationSettings,
    checked_options,
    overridden,
    parse_settings,
)
from webhook.shipped import load_profiles
from webhook.world import DEFAULT_PROFILES, Options


class Read(NamedTuple):
    name: str
    text: str
    environment: Mapping[str, str]
    want: Settings


READ = (
    Read("an empty file leaves every default", "", {}, Settings()),
    Read("JSON is YAML", '{"service": "w"}', {}, Settings(service="w")),
    Read("the file sets a field", "namespace: a", {}, Settings(namespace="a")),
    Read(
        "the environment wins over the file",
        "namespace: a",
        {"DRAWBRIDGE_NAMESPACE": "b"},
        Settings(namespace="b"),
    ),
    Read(
        "lists are separated by commas",
        "",
        {"DRAWBRIDGE_SERVING_NAMES": "a.example, 127.0.0.1"},
        Settings(extra_names=("a.example", "127.0.0.1")),
    ),
    Read(
        "one variable sets the probe port of all processes",
        "",
        {"DRAWBRIDGE_PROBE_PORT": "9"},
        Settings(
            serve=ServeSettings(probe_port=9),
            control=ControlSettings(probe_port=9),
            observe=ObserveSettings(probe_port=9),
        ),
    ),
    Read(
        "an empty variable sets nothing",
        "namespace: a",
        {"DRAWBRIDGE_NAMESPACE": ""},
        Settings(namespace="a"),
    ),
    Read(
        "a number with a fraction is a number",
        "",
        {"DRAWBRIDGE_DRAIN_SECONDS": "0.5"},
        Settings(serve=ServeSettings(drain_seconds=0.5)),
    ),
    Read(
        "a name of digits is a name",
        "",
        {"DRAWBRIDGE_NAMESPACE": "2026"},
        Settings(namespace="2026"),
    ),
    Read("other variables are not looked at", "", {"DRAWBRIDGE_SERVICE": "b"}, Settings()),
)


@pytest.mark.parametrize("row", READ, ids=lambda row: row.name)
def test_parse_settings(row: Read) -> None:
    assert row.want == parse_settings(row.text, "file", row.environment)


class Refused(NamedTuple):
    name: str
    text: str
    told: str


REFUSED = (
    Refused("no YAML", "a: [", "file: not YAML"),
    Refused("no object", "[]", "file: Expected `object`"),
    Refused("a misspelled field", "serve: {prot: 1}", "`prot` - at `\\$.serve`"),
    Refused("a text for a number", "serve: {port: http}", "\\$.serve.port"),
    Refused("a port that is none", "serve: {port: 70000}", "<= 65535"),
    Refused("a duration of nothing", "control: {retrySeconds: 0}", "\\$.control.retrySeconds"),
    Refused("an unknown level", "logLevel: loud", "logLevel"),
    Refused(
        "an authority that ends before its successor signs",
        "control: {authoritySeconds: 1000}",
        "authorityPublishedSeconds",
    ),
    Refused("a leader that outlives its lease", "control: {renewSeconds: 15}", "renewSeconds"),
    Refused("no room for one body", "serve: {maxBytesInFlight: 1}", "maxBodyBytes <= "),
)


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
def test_nonsense_is_a_configuration_error(row: Refused) -> None:
    with pytest.raises(ConfigError, match=row.told):
        parse_settings(row.text, "file", {})


def test_flags_win_over_the_file() -> None:
    found = overridden(Settings(), {"serve.port": 1, "serve.bindAddress": "::1"})

    assert (found.serve.port, found.serve.bind_address) == (1, "::1")


def test_what_is_printed_reads_back() -> None:
    assert parse_settings(msgspec.json.encode(Settings()), "file", {}) == Settings()


@pytest.mark.parametrize("path", sorted({path for paths in ENVIRONMENT.values() for path in paths}))
def test_every_variable_sets_a_field(path: str) -> None:
    place = msgspec.to_builtins(Settings())
    *parts, field = path.split(".")
    for part in parts:
        place = place[part]

    assert field in place


def test_names_of_the_certificate_begin_with_the_one_that_is_checked() -> None:
    settings = Settings(service="w", namespace="n", extra_names=("127.0.0.1", "w"))

    assert settings.names() == ("w.n.svc", "w", "w.n", "w.n.svc.cluster.local", "127.0.0.1")


def test_default_options_are_those_of_the_translation() -> None:
    assert checked_options(Settings(), load_profiles()) == Options()


def test_a_profile_that_is_not_named_keeps_its_default() -> None:
    settings = Settings(translation=TranslationSettings(profiles={"nvidia": "gpu.example.com"}))

    chosen = checked_options(settings, load_profiles()).profiles

    assert chosen == DEFAULT_PROFILES | {"nvidia": "gpu.example.com"}


@pytest.mark.parametrize(
    ("translation", "told"),
    [
        ({"profiles": {"cuda": "gpu.nvidia.com"}}, "no vocabulary cuda"),
        ({"profiles": {"nvidia": "gpu.none.example"}}, "no profile gpu.none.example"),
        (
            {"bareGpu": "rdma"},
            "bareGpu: rdma does not speak nvidia.com/gpu; hami, koordinator, nvidia do",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unknown_names_are_a_configuration_error(translation: Any, told: str) -> None:
    settings = Settings(translation=msgspec.convert(translation, TranslationSettings))

    with pytest.raises(ConfigError, match=told):
        checked_options(settings, load_profiles())
