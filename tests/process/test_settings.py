"""Settings: defaults, precedence, and refusals."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import pytest

import controllers.certificates.settings
import controllers.model.settings
import driver.model.settings
import observer.settings
import sidecar.model.settings
import webhook.settings
from controllers.model.settings import Settings as ControllersSettings
from kube.errors import ConfigError
from kube.names import NAMESPACE
from observer.settings import Settings as ObserverProcessSettings
from process.certificates.certificates import CertificateSettings
from process.model.durations import Duration
from process.model.settings import (
    SECTIONS,
    ProcessSettings,
    override,
    parse_settings,
    to_document,
)
from process.profiles.profile_files import load_profiles
from process.profiles.translation import TranslationSettings
from sidecar.model.settings import MAX_SOCKET_PATH
from sidecar.model.settings import Settings as SidecarProcessSettings
from translation.cluster.snapshot import DEFAULT_PROFILES, TranslationOptions
from webhook.settings import VARIABLES, Settings, WebhookSettings


def parsed(
    text: str, environment: Mapping[str, str] = {}, kind: type[ProcessSettings] = Settings
) -> ProcessSettings:
    return parse_settings(text, "file", environment, kind=kind, variables=VARIABLES)


class Read(NamedTuple):
    name: str
    text: str
    environment: Mapping[str, str]
    want: Settings


READ = (
    Read("an empty file leaves every default", "", {}, Settings()),
    Read("JSON is YAML", '{"namespace": "n"}', {}, Settings(namespace="n")),
    Read("the file sets a field", "namespace: a", {}, Settings(namespace="a")),
    Read(
        "sections of other processes are theirs",
        "controllers: {probePort: 1}\nobserver: {anything: goes}",
        {},
        Settings(),
    ),
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
        Settings(certificates=CertificateSettings(extra_names=("a.example", "127.0.0.1"))),
    ),
    Read(
        "an empty variable sets nothing",
        "namespace: a",
        {"DRAWBRIDGE_NAMESPACE": ""},
        Settings(namespace="a"),
    ),
    Read(
        "a duration is a text with a unit",
        "",
        {"DRAWBRIDGE_DRAIN": "500ms"},
        Settings(webhook=WebhookSettings(drain=Duration(0.5))),
    ),
    Read(
        "a name of digits is a name",
        "",
        {"DRAWBRIDGE_NAMESPACE": "2026"},
        Settings(namespace="2026"),
    ),
    Read("other variables are ignored", "", {"DRAWBRIDGE_SERVICE": "b"}, Settings()),
)


@pytest.mark.parametrize("row", READ, ids=lambda row: row.name)
def test_parse_settings(row: Read) -> None:
    assert row.want == parsed(row.text, row.environment)


class Refused(NamedTuple):
    name: str
    text: str
    message: str
    kind: type[ProcessSettings] = Settings


REFUSED = (
    Refused("no YAML", "a: [", "file: not YAML"),
    Refused(
        "a date that does not exist", "webhook: 2001-99-99", "file: not YAML: ValueError: month"
    ),
    Refused("depth", "[" * 50_000, "file: not YAML: it nests too deeply"),
    Refused("no object", "[]", "file: Expected `object`"),
    Refused("a misspelt field", "webhook: {prot: 1}", "webhook.prot; did you mean port?"),
    Refused("a misspelt section", "webhok: {}", "unknown field webhok; did you mean webhook?"),
    Refused(
        "two misspelt fields",
        "loglevel: info\ntranslation: {defaultGPUOwner: hami}",
        r"loglevel; did you mean logLevel\?; .*translation.defaultGPUOwner; did you mean defaultGpuOwner\?",
    ),
    Refused("a text for a number", "webhook: {port: http}", "\\$.webhook.port"),
    Refused("a port that does not exist", "webhook: {port: 70000}", "<= 65535"),
    Refused("a number for a duration", "webhook: {drain: 90}", 'write "1m30s", not 90'),
    Refused("a text for a duration", "webhook: {drain: soon}", "not a duration: 'soon'"),
    Refused("a gate", "validation: {featureGates: {X: true}}", "unknown feature gate X"),
    Refused(
        "a duration of nothing",
        "controllers: {leaderElection: {retryPeriod: 0s}}",
        "above 0s - at `\\$.controllers.leaderElection.retryPeriod",
        ControllersSettings,
    ),
    Refused("an unknown level", "logLevel: loud", "logLevel"),
    Refused(
        "an authority that ends before its successor signs",
        "certificates: {authorityDuration: 1000s}",
        "authorityPublishPeriod",
    ),
    Refused(
        "a leader that outlives its lease",
        "controllers: {leaderElection: {renewDeadline: 15s}}",
        "renewDeadline",
        ControllersSettings,
    ),
    Refused("no room for one body", "webhook: {maxBytesInFlight: 1}", "at least maxBodyBytes"),
    Refused(
        "a gate of the observer",
        "observer: {featureGates: {X: true}}",
        "unknown feature gate",
        ObserverProcessSettings,
    ),
    Refused(
        "a gate of the sidecar",
        "sidecar: {featureGates: {X: true}}",
        "unknown feature gate X",
        SidecarProcessSettings,
    ),
    Refused(
        "a strategy that there is not",
        "sidecar: {defaultStrategy: Bestfit}",
        "defaultStrategy: .*BestFit",
        SidecarProcessSettings,
    ),
    Refused(
        "an amount of a usual pod that is none",
        "sidecar: {usualPods: [{deviceClass: gpu, cpu: many}]}",
        "cpu: .*many",
        SidecarProcessSettings,
    ),
    Refused(
        "a negative amount of a usual pod",
        "sidecar: {usualPods: [{deviceClass: gpu, capacity: {memory: -1Gi}}]}",
        "capacity.memory: -1Gi is below 0",
        SidecarProcessSettings,
    ),
    Refused(
        "an unknown field of a usual pod",
        "sidecar: {usualPods: [{deviceClass: gpu, gpus: 1}]}",
        "gpus",
        SidecarProcessSettings,
    ),
    Refused(
        "more usual pods than count",
        f"sidecar: {{usualPods: [{', '.join(['{deviceClass: gpu}'] * 65)}]}}",
        "usualPods: 65 kinds; at most 64 count",
        SidecarProcessSettings,
    ),
    Refused(
        "a socket whose path is too long for Linux",
        f"sidecar: {{socket: /{'s' * MAX_SOCKET_PATH}}}",
        f"socket: a path has at most {MAX_SOCKET_PATH} bytes",
        SidecarProcessSettings,
    ),
    Refused(
        "a deadline that no write can meet",
        "sidecar: {writeTimeout: 5s, writeDeadline: 4s}",
        "writeDeadline must not be below writeTimeout",
        SidecarProcessSettings,
    ),
    Refused(
        "a driver that is named twice",
        "sidecar: {drivers: [a.example.com, b.example.com, a.example.com]}",
        "drivers: a.example.com is there twice",
        SidecarProcessSettings,
    ),
    Refused(
        "a sidecar that outlives its Lease",
        "sidecar: {leaderElection: {renewDeadline: 15s}}",
        "renewDeadline",
        SidecarProcessSettings,
    ),
)


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
def test_nonsense_is_a_configuration_error(row: Refused) -> None:
    with pytest.raises(ConfigError, match=row.message):
        parsed(row.text, kind=row.kind)


def test_flags_win_over_the_file() -> None:
    overridden_settings = override(Settings(), {"webhook.port": 1, "webhook.bindAddress": "::1"})

    assert (overridden_settings.webhook.port, overridden_settings.webhook.bind_address) == (
        1,
        "::1",
    )


PROCESSES = (
    webhook.settings,
    controllers.model.settings,
    controllers.certificates.settings,
    observer.settings,
    sidecar.model.settings,
    driver.model.settings,
)


@pytest.mark.parametrize("module", PROCESSES, ids=lambda module: str(module.__name__))
def test_printed_settings_read_back(module: Any) -> None:
    printed = msgspec.json.encode(to_document(module.Settings()))

    assert parsed(printed.decode(), kind=module.Settings) == module.Settings()


@pytest.mark.parametrize("module", PROCESSES, ids=lambda module: str(module.__name__))
def test_every_variable_sets_a_field(module: Any) -> None:
    for path in module.VARIABLES.values():
        place: Any = to_document(module.Settings())
        *sections, field = path.split(".")
        for section in sections:
            place = place[section]

        assert field in place


def test_every_section_belongs_to_a_process() -> None:
    owned = {
        field.encode_name
        for module in PROCESSES
        for field in msgspec.structs.fields(module.Settings)
    } - {field.encode_name for field in msgspec.structs.fields(ProcessSettings)}

    assert owned == SECTIONS


def test_names_of_the_certificate_begin_with_the_one_that_is_checked() -> None:
    settings = CertificateSettings(service="w", extra_names=("127.0.0.1", "w"))

    names = settings.names("n")

    assert names == ("w.n.svc", "w", "w.n", "w.n.svc.cluster.local", "127.0.0.1")


def test_default_options_are_those_of_the_translation() -> None:
    assert TranslationSettings().checked_options(load_profiles()) == TranslationOptions()


def test_the_namespaces_that_no_api_server_sends_are_exempt() -> None:
    settings = TranslationSettings(exempt_namespaces=("team", "kube-system"))
    options = settings.checked_options(load_profiles(), namespace="gpus")

    assert ("kube-system", "gpus", "team") == options.exempt_namespaces
    assert ("kube-system", NAMESPACE) == TranslationSettings().options().exempt_namespaces


def test_a_profile_that_is_not_named_keeps_its_default() -> None:
    settings = TranslationSettings(profiles={"nvidia": "gpu.example.com"})

    profiles = settings.checked_options(load_profiles()).profiles

    assert profiles == DEFAULT_PROFILES | {"nvidia": "gpu.example.com"}


def test_a_profile_that_is_named_serves_whatever_exists() -> None:
    settings = TranslationSettings(
        profiles={"nvidia": "gpu.nvidia.com", "nvidia.com/gpu": "gpu.example.com"}
    )

    options = settings.checked_options(load_profiles())

    assert (frozenset({"nvidia"}), {"nvidia.com/gpu": "gpu.example.com"}) == (
        options.fixed,
        options.drivers,
    )


def test_the_default_owner_of_gpus_need_not_be_chosen_where_no_vocabulary_of_gpus_is() -> None:
    settings = TranslationSettings(vocabularies=("rdma",))

    assert settings.checked_options(load_profiles()).vocabularies == {"rdma"}


@pytest.mark.parametrize(
    ("translation", "message"),
    [
        ({"profiles": {"cuda": "gpu.nvidia.com"}}, "no vocabulary cuda"),
        ({"profiles": {"nvidia": "gpu.none.example"}}, "no profile gpu.none.example"),
        ({"profiles": {"nvidia.com/gpu": "gpu.none.example"}}, "no profile gpu.none.example"),
        (
            {"profiles": {"acme.example/gpu": "gpu.nvidia.com"}},
            "no vocabulary has acme.example/gpu; list it under resources",
        ),
        (
            {"defaultGpuOwner": "rdma"},
            "defaultGpuOwner: rdma cannot own nvidia.com/gpu; hami, koordinator, nvidia can",
        ),
        ({"vocabularies": ["cuda"]}, "translation.vocabularies: no vocabulary cuda"),
        (
            {"vocabularies": ["hami", "rdma"]},
            "defaultGpuOwner: nvidia cannot own nvidia.com/gpu; hami can",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unknown_names_are_a_configuration_error(translation: Any, message: str) -> None:
    settings = msgspec.convert(translation, TranslationSettings)

    with pytest.raises(ConfigError, match=message):
        settings.checked_options(load_profiles())
