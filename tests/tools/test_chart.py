"""The chart's templates and schema as files; e2e/test_adopt_chart.py has them rendered by Helm."""

import base64
import json
import re
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import yaml

from answers.model.kubernetes_version import OLDEST_KUBERNETES
from controllers.model.settings import Settings as ControllerSettings
from driver.model.settings import Settings as DriverSettings
from migration.upgrade.kubernetes import BRIDGE_VERSION, DRIVER_SINCE
from process.model.settings import to_document
from sidecar.model.settings import Settings as SidecarSettings
from tools import chart
from tools.public_names import PROCESSES
from webhook.settings import Settings as WebhookSettings

CHART: Final = Path(__file__).parents[2] / chart.CHART
SCHEMA: Final = json.loads(chart.schema())
VALUES: Final[dict[str, Any]] = yaml.load(
    (CHART / "values.yaml").read_text(), Loader=yaml.CSafeLoader
)


def test_the_icon_is_an_image_that_is_fetched_from_nowhere() -> None:
    metadata = yaml.load((CHART / "Chart.yaml").read_text(), Loader=yaml.CSafeLoader)
    head, _, data = metadata["icon"].partition(",")
    image = ET.fromstring(base64.b64decode(data, validate=True))

    assert head == "data:image/svg+xml;base64"
    assert image.tag == "{http://www.w3.org/2000/svg}svg"
    assert [entry.attrib for entry in image.iter() if "href" in str(entry.attrib)] == []


@pytest.mark.parametrize("path", sorted(CHART.glob("templates/*")), ids=lambda path: path.name)
def test_no_placeholder_is_left(path: Path) -> None:
    assert not re.search(r"\bPH_", path.read_text())


@pytest.mark.parametrize("name", chart.templates())
def test_a_text_of_the_values_is_quoted(name: str) -> None:
    """A line break in one would begin a field of its own."""
    actions = re.findall(r"\{\{-? (.*?) ?\}\}", chart.templates()[name]())
    written = [
        action
        for action in actions
        if action == "." or re.match(r"(\.Values|(printf|dig) .*\.Values)", action)
    ]

    texts = [action for action in written if not action.endswith((".replicas", "| int"))]
    assert [action for action in texts if not action.endswith("| quote")] == []


@pytest.mark.parametrize("name", chart.templates())
def test_a_generated_template_opens_and_closes_its_condition(name: str) -> None:
    text = chart.templates()[name]()

    opened = len(re.findall(r"\{\{- (?:if|with|range) ", text))
    assert opened == len(re.findall(r"\{\{- end \}\}", text))


def test_the_default_values_are_valid() -> None:
    jsonschema.validate(VALUES, SCHEMA)


@pytest.mark.parametrize("component", ["webhook", "controller", "certificates", "observer"])
@pytest.mark.parametrize(
    "values",
    [
        {"affinity": {"nodeAffinity": {}}},
        {"topologySpreadConstraints": [{"maxSkew": 1}]},
        {"podLabels": {"team": "infra"}, "podAnnotations": {"example.com/a": "b"}},
        {"podSecurityContext": {"fsGroup": 1}, "securityContext": {"privileged": False}},
        {"extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]},
    ],
)
def test_a_site_decides_about_pods(component: str, values: dict[str, Any]) -> None:
    jsonschema.validate({**VALUES, component: {**VALUES[component], **values}}, SCHEMA)


def test_a_pod_has_the_ports_that_its_process_listens_on() -> None:
    texts = "".join(text() for text in chart.templates().values())
    sections = {command.section: command.kind for command in PROCESSES}
    numbers = [
        f'{{{{ dig "{section}" "{name}" {number} .Values.settings | int }}}}'
        for section, kind in sections.items()
        for name, number in to_document(kind())[section].items()
        if name in {"port", "probePort", "metricsPort"}
    ]

    # kube-scheduler's has no setting.
    assert sorted([*numbers, "10259"]) == sorted(re.findall(r"containerPort: (.*)", texts))


FIXED: Final = {
    "driver": ("name", "nodeName", "podUid"),
    "sidecar": ("socket",),
    "translation": ("mode",),
}
"""Section to settings that are a value of their own, that a variable sets, or that other objects repeat."""


@pytest.mark.parametrize(
    "kind", [WebhookSettings, ControllerSettings, DriverSettings, SidecarSettings]
)
def test_all_settings_of_a_process_are_valid(kind: Any) -> None:
    settings: Any = json.loads(json.dumps(to_document(kind())))
    del settings["namespace"]  # That of the release.
    for section, names in FIXED.items():
        for name in names if section in settings else ():
            del settings[section][name]

    jsonschema.validate({**VALUES, "settings": settings}, SCHEMA)


@pytest.mark.parametrize(
    "settings",
    [
        {"translation": {"mode": "OptIn"}},
        {"translation": {"quota": "sometimes"}},
        {"webhook": {"port": 70_000}},
        {"webhook": {"port": 0}},
        {"driver": {"metricsPort": 0}},
        {"driver": {"name": "gpu.example.com"}},
        {"driver": {"nodeName": "node-a"}},
        {"driver": {"podUid": "0"}},
        {"sidecar": {"socket": "/run/other.sock"}},
        {"webhook": {"drain": "ten"}},
        {"webhook": {"userCpuFraction": 1}},
        {"webhok": {}},
    ],
)
def test_a_wrong_setting_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**VALUES, "settings": settings}, SCHEMA)


@pytest.mark.parametrize(
    ("gates", "is_valid"),
    [
        ({}, True),
        ({"GenericWorkload": True, "SchedulerPopFromBackoffQ": False}, True),
        ({"GenericWorkload": "true"}, False),
        # The sidecar would allocate by another value; settings.sidecar.featureGates is for both.
        ({"DRADeviceCompatibilityGroups": True}, False),
        ({"DRAWorkloadResourceClaims": True}, True),
        ({"AllAlpha": True}, False),
        ({"AllBeta": True}, False),
        ({"A=true,DRADeviceCompatibilityGroups": True}, False),
    ],
)
def test_gates_of_the_scheduler_are_not_those_that_the_sidecar_allocates_by(
    gates: dict[str, Any], is_valid: bool
) -> None:
    bridge = {**VALUES["bridge"], "featureGates": gates}
    validator = jsonschema.Draft202012Validator(SCHEMA)

    assert validator.is_valid({**VALUES, "bridge": bridge}) is is_valid


def test_the_versions_of_kubernetes_are_those_of_the_commands() -> None:
    declared = yaml.load((CHART / "Chart.yaml").read_text(), Loader=yaml.CSafeLoader)
    conditions = (CHART / "templates" / "validate.yaml").read_text()

    needed = dict(re.findall(r'\.Values\.(\w+)\.enabled \(semverCompare "<([\d.]+)-0"', conditions))

    assert declared["kubeVersion"] == f">={_text(OLDEST_KUBERNETES)}-0"
    assert needed == {"bridge": _text(BRIDGE_VERSION), "driver": _text(DRIVER_SINCE)}


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}.0"


def test_the_versions_are_those_of_the_distribution() -> None:
    project = (CHART.parents[1] / "pyproject.toml").read_text()
    declared = yaml.load((CHART / "Chart.yaml").read_text(), Loader=yaml.CSafeLoader)

    (version,) = re.findall(r'^version = "(.*)"$', project, re.MULTILINE)
    assert (declared["version"], declared["appVersion"]) == (version, version)
