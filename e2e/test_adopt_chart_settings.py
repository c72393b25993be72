"""The settings in the values of the Helm chart: in the files that processes read, and in their pods."""

import json
from pathlib import Path
from typing import Final

import pytest
import yaml

from driver.model.settings import VARIABLES as DRIVER_VARIABLES
from driver.model.settings import Settings as DriverSettings
from e2e.access import Object
from e2e.chart import key_of, template
from kube.names import NAMESPACE
from process.model.durations import PositiveDuration
from process.model.settings import parse_settings
from process.running.command import DEFAULT_CONFIG
from sidecar.model.settings import VARIABLES, Settings

_SETTINGS: Final = ("ConfigMap", NAMESPACE, "drawbridge-settings")
_BRIDGE_SETTINGS: Final = ("ConfigMap", NAMESPACE, "drawbridge-bridge")
_COMPONENTS: Final = {
    "webhook": "webhook",
    "controllers": "controller",
    "certificateController": "certificates",
    "observer": "observer",
    "sidecar": "bridge",
    "driver": "driver",
}
"""Section of the settings to the component whose pods read it."""


def test_settings_are_merged_with_the_mode() -> None:
    flags = ("--set", "settings.translation.quota=warn", "--set", "settings.webhook.port=10250")
    (settings,) = (document for document in template(*flags) if key_of(document) == _SETTINGS)

    assert yaml.load(settings["data"]["settings.yaml"], Loader=yaml.CSafeLoader) == {
        "translation": {"mode": "OptIn", "quota": "warn"},
        "webhook": {"port": 10250},
    }


def test_settings_of_the_sidecar_are_in_the_file_that_it_reads() -> None:
    gates = {"DRADeviceCompatibilityGroups": True}
    values = json.dumps({"sidecar": {"featureGates": gates, "writeTimeout": "7s"}})
    flags = ("--set", "bridge.enabled=true", "--set-json", f"settings={values}")
    (stored,) = (document for document in template(*flags) if key_of(document) == _BRIDGE_SETTINGS)

    settings = parse_settings(
        stored["data"]["settings.yaml"], "settings.yaml", {}, kind=Settings, variables=VARIABLES
    )
    assert settings.sidecar.feature_gates == gates
    assert settings.sidecar.write_timeout == PositiveDuration(7)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, []),
        ({"bridge": {"featureGates": None}}, []),
        (
            {
                "bridge": {
                    "featureGates": {"SchedulerPopFromBackoffQ": False, "GenericWorkload": True}
                }
            },
            ["--feature-gates=GenericWorkload=true,SchedulerPopFromBackoffQ=false"],
        ),
        (
            {"settings": {"sidecar": {"featureGates": {"DRAExtendedResource": False}}}},
            ["--feature-gates=DRAExtendedResource=false"],
        ),
        (
            {
                "bridge": {"featureGates": {"GenericWorkload": True}},
                "settings": {"sidecar": {"featureGates": {"DRADeviceCompatibilityGroups": True}}},
            },
            ["--feature-gates=DRADeviceCompatibilityGroups=true,GenericWorkload=true"],
        ),
    ],
)
def test_the_scheduler_of_the_bridge_has_the_gates_of_the_values(
    values: Object, expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / "values.json").write_text(json.dumps(values))
    flags = ("--set", "bridge.enabled=true", "--values", str(tmp_path / "values.json"))
    (scheduler,) = (
        container
        for document in template(*flags)
        if document["kind"] == "Deployment" and document["metadata"]["name"] == "drawbridge-bridge"
        for container in document["spec"]["template"]["spec"]["containers"]
        if container["name"] == "scheduler"
    )

    assert scheduler["args"][3:] == expected


@pytest.mark.parametrize("section", _COMPONENTS)
def test_pods_have_the_ports_of_the_settings(section: str) -> None:
    def ports(*flags: str) -> dict[str, dict[str, int]]:
        """Return component to name and number of the ports of its first container."""
        return {
            document["metadata"]["name"].removeprefix("drawbridge-"): {
                port["name"]: port["containerPort"]
                for port in document["spec"]["template"]["spec"]["containers"][0]["ports"]
            }
            for document in template(*enabled, *flags)
            if document["kind"] in {"Deployment", "DaemonSet"}
        }

    enabled = [
        word
        for part in ("observer", "bridge", "driver")
        for word in ("--set", f"{part}.enabled=true")
    ]
    settings = {"probePort": 9000, "metricsPort": 9001}
    expected = {"probes": 9000, "metrics": 9001}
    if section == "webhook":
        settings["port"] = expected["https"] = 10250
    values = json.dumps({section: settings})

    assert ports("--set-json", f"settings={values}") == {
        **ports(),
        _COMPONENTS[section]: expected,
    }


def test_settings_of_the_driver_are_in_the_file_that_it_reads_and_in_its_mounts() -> None:
    settings = {
        "discover": ["nics"],
        "kubeletDirectory": "/var/lib/k0s/kubelet/",
        "stateDirectory": "/var/lib/drawbridge",
        "faultsDirectory": "/run/faults",
        "cdiDirectory": "/run/cdi",
        "sysfs": "/host/sys",
        "dev": "/host/dev",
        "proc": "/host/proc",
    }
    values = json.dumps({"driver": settings})
    objects = template("--set", "driver.enabled=true", "--set-json", f"settings={values}")
    by_key = {key_of(document): document for document in objects}
    pod = by_key["DaemonSet", "drawbridge-driver", "drawbridge-driver"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}

    source = mounts[str(DEFAULT_CONFIG.parent)]["configMap"]["name"]
    read = parse_settings(
        by_key["ConfigMap", "drawbridge-driver", source]["data"][DEFAULT_CONFIG.name],
        "settings.yaml",
        {},
        kind=DriverSettings,
        variables=DRIVER_VARIABLES,
    ).driver
    hosts = {
        path: volume["hostPath"]["path"] for path, volume in mounts.items() if "hostPath" in volume
    }
    assert read.discover == ("nics",)
    assert hosts == {
        **{str(path): str(path) for path in (read.plugins.parent, read.registry)},
        **{str(path): str(path) for path in (read.state, read.faults, read.cdi_directory)},
        read.sysfs: "/sys",
        read.dev: "/dev",
        read.proc: "/proc",
    }


def test_each_class_of_pods_that_gke_restricts_has_a_quota() -> None:
    def classes(*flags: str) -> dict[str, list[str]]:
        return {
            document["metadata"]["namespace"]: document["spec"]["scopeSelector"][
                "matchExpressions"
            ][0]["values"]
            for document in template(*(word for flag in flags for word in ("--set", flag)))
            if document["kind"] == "ResourceQuota"
        }

    others = ("webhook.enabled=false", "driver.enabled=true", "bridge.enabled=true")
    driver = {"drawbridge-driver": ["system-node-critical"]}
    bridge = {NAMESPACE: ["system-cluster-critical"]}
    assert classes(*others) == driver | bridge
    assert classes(*others, "priorityClass.name=") == driver
    assert classes(*others, "priorityClass.quota=false") == {}


def test_the_type_of_selinux_is_the_site_s_or_none() -> None:
    def security(*flags: str) -> Object:
        (daemon_set,) = (
            document
            for document in template("--set", "driver.enabled=true", *flags)
            if document["kind"] == "DaemonSet"
        )
        context: Object = daemon_set["spec"]["template"]["spec"]["securityContext"]
        return context

    own = security("--set", "driver.seLinuxOptions.type=container_device_plugin_t")
    assert own["seLinuxOptions"] == {"level": "s0", "type": "container_device_plugin_t"}
    assert "seLinuxOptions" not in security("--set", "driver.seLinuxOptions=null")
