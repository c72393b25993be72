"""The settings of a live cluster, from the namespace of its webhook."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pytest
from click.testing import Result

from answers.model.snapshot_kinds import KINDS
from kube.api.urls import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from kube.manifests.dump import dump_yaml
from kube.names import CONFIGURATION, NAMESPACE, SERVICE, TRANSLATE_LABEL
from testing.builders import NVIDIA, gpus, pod
from testing.command import drawbridge
from testing.documents import api_object
from testing.fake_api_server import FakeApiServer
from testing.kubeconfig import kubeconfig_of
from translation.cluster.snapshot import Mode

OWN: Final = "gpu-system"
CHOICE: Final = "translation: {profiles: {nvidia: gpu.example.com}}"
ABSENT: Final = f"there is no ConfigMap drawbridge-settings in namespace {OWN}"
GUESSED: Final = (
    f"there is no ConfigMap drawbridge-settings in namespace {NAMESPACE} (that Drawbridge is "
    "installed there is a guess, since "
)
SERVED: Final = {"service": {"name": SERVICE, "namespace": OWN}}
LEFT_OUT: Final = {"key": TRANSLATE_LABEL, "operator": "NotIn", "values": ["false"]}
REQUIREMENTS: Final = {
    Mode.OPT_IN: {"key": TRANSLATE_LABEL, "operator": "In", "values": ["true", "selected"]},
    Mode.OPT_OUT: LEFT_OUT,
    Mode.SHADOW: LEFT_OUT,
}
"""Mode to a requirement on the labels of namespaces."""


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as fake_server:
        fake_server.put(NAMESPACES, {"metadata": {"name": "team"}})
        yield fake_server


def put_webhook(
    server: FakeApiServer,
    client_config: Any,
    mode: Mode = Mode.OPT_IN,
    metadata: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    webhook = {
        "name": "pods.drawbridge.internal",
        "clientConfig": client_config,
        "failurePolicy": "Ignore" if mode is Mode.SHADOW else "Fail",
        "namespaceSelector": {"matchExpressions": [REQUIREMENTS[mode]]},
    }
    document = {"metadata": {"name": CONFIGURATION, **metadata}, "webhooks": [webhook]}
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, document)


def put_settings(server: FakeApiServer, text: str, namespace: str = OWN) -> None:
    metadata = {"name": "drawbridge-settings", "namespace": namespace}
    server.put(CONFIG_MAPS, {"metadata": metadata, "data": {"settings.yaml": text}})


async def run(server: FakeApiServer, folder: Path, *call: str) -> Result:
    cluster = ("--live", "--kubeconfig", kubeconfig_of(server, folder), "--context", "here")
    text = dump_yaml([pod(gpus(1))])
    return await asyncio.to_thread(drawbridge, *call, *cluster, "-o", "json", stdin=text)


@pytest.mark.parametrize("namespace", [OWN, NAMESPACE])
async def test_the_settings_are_those_of_the_namespace_of_the_webhook(
    server: FakeApiServer, tmp_path: Path, namespace: str
) -> None:
    put_webhook(server, {"service": {"name": SERVICE, "namespace": namespace}})
    put_settings(server, CHOICE, namespace)
    other = NAMESPACE if namespace == OWN else OWN
    put_settings(server, "translation: {profiles: {nvidia: other.example.com}}", other)

    result = await run(server, tmp_path, "translate", "-f", "-")

    assert "gpu.example.com" in json.dumps(json.loads(result.stdout)["objects"])
    assert "ConfigMap" not in result.stderr


async def test_pods_of_the_namespace_of_the_webhook_are_left_as_they_are(
    server: FakeApiServer, tmp_path: Path
) -> None:
    put_webhook(server, {"service": {"name": SERVICE, "namespace": OWN}})
    put_settings(server, CHOICE)

    codes = {
        namespace: [
            finding["code"]
            for finding in json.loads(
                (await run(server, tmp_path, "translate", "-f", "-", "-n", namespace)).stdout
            )["findings"]
        ]
        for namespace in (OWN, NAMESPACE)
    }

    assert "optedOut" in codes[OWN]
    assert "optedOut" not in codes[NAMESPACE]


@pytest.mark.parametrize(
    ("client_config", "mode", "may_read", "expected"),
    [
        (SERVED, Mode.OPT_IN, True, ABSENT),
        (SERVED, Mode.SHADOW, True, ABSENT),
        (SERVED, Mode.OPT_OUT, True, ""),
        (SERVED, Mode.OPT_OUT, False, GUESSED),
        ({"url": "https://192.0.2.1/mutate"}, Mode.OPT_IN, True, GUESSED),
        ({"url": "https://192.0.2.1/mutate"}, Mode.OPT_OUT, True, ""),
        (None, Mode.OPT_OUT, True, ""),
    ],
    ids=[
        "OptIn",
        "Shadow",
        "the base has none",
        "forbidden",
        "url",
        "url, and the base has none",
        "not installed",
    ],
)
@pytest.mark.parametrize("call", [("translate", "-f", "-"), ("check-upgrade",)], ids=" ".join)
async def test_default_settings_for_lack_of_a_config_map_are_noted(
    server: FakeApiServer,
    tmp_path: Path,
    client_config: Any,
    mode: Mode,
    call: tuple[str, ...],
    *,
    expected: str,
    may_read: bool,
) -> None:
    if client_config is not None:
        put_webhook(server, client_config, mode)
    if not may_read:
        path = "/mutatingwebhookconfigurations/"
        server.fail(403, matches=lambda request: path in request.path)

    result = await run(server, tmp_path, *call)

    assert expected in result.stderr
    assert ("ConfigMap" in result.stderr) == bool(expected)
    assert result.exit_code == 0


async def test_an_upgrade_is_checked_with_the_settings_of_the_namespace_of_the_webhook(
    server: FakeApiServer, tmp_path: Path
) -> None:
    put_webhook(server, {"service": {"name": SERVICE, "namespace": OWN}})
    put_settings(server, "webhok: {port: 1}")

    result = await run(server, tmp_path, "check-upgrade")

    codes = [finding["code"] for finding in json.loads(result.stdout)["findings"]]
    assert "settingsInvalid" in codes


INJECTED: Final = {
    "annotations": {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/drawbridge-webhook"}
}
BY_KUSTOMIZE: Final = {"labels": {"app.kubernetes.io/managed-by": "kustomize"}}
BY_HELM: Final = {"labels": {"app.kubernetes.io/managed-by": "Helm"}}
IN_DEFAULT: Final = {"service": {"name": SERVICE, "namespace": NAMESPACE}}
BY_URL: Final = {"url": "https://192.0.2.1/mutate"}
NAMED: Final = "translation: {mode: OptOut}"


def put_deployment(server: FakeApiServer, namespace: str, *variables: str) -> None:
    env = [{"name": name, "value": "x"} for name in ("DRAWBRIDGE_POD_NAME", *variables)]
    containers = [{"name": "webhook", "env": env}]
    spec = {"template": {"spec": {"containers": containers}}}
    metadata = {"name": SERVICE, "namespace": namespace}
    server.put(KINDS["Deployment"], {"metadata": metadata, "spec": spec})


async def overlays_reported(server: FakeApiServer, folder: Path, *call: str) -> list[str]:
    """Return the overlays of the warning about the mode."""
    result = await run(server, folder, "check-upgrade", *call)
    assert result.exit_code == 0
    return [
        name
        for finding in json.loads(result.stdout)["findings"]
        if (finding["code"], finding["severity"]) == ("overlayModeDiffers", "warning")
        for name in ("cert-manager", "client-certificates", "own-namespace")
        if f"manifests/overlays/{name}" in finding["message"]
    ]


@pytest.mark.parametrize("text", [None, "", CHOICE, NAMED])
@pytest.mark.parametrize(
    ("mode", "client_config", "metadata", "variables", "expected"),
    [
        (Mode.OPT_OUT, IN_DEFAULT, INJECTED, [], ["cert-manager"]),
        (Mode.OPT_OUT, BY_URL, BY_KUSTOMIZE | INJECTED, [], ["cert-manager"]),
        (Mode.OPT_OUT, IN_DEFAULT, {}, ["DRAWBRIDGE_CLIENT_CA"], ["client-certificates"]),
        (Mode.OPT_OUT, SERVED, BY_KUSTOMIZE, [], ["own-namespace"]),
        (Mode.OPT_OUT, SERVED, INJECTED, [], ["cert-manager", "own-namespace"]),
        (Mode.OPT_OUT, IN_DEFAULT, BY_KUSTOMIZE, [], []),
        (Mode.OPT_OUT, BY_URL, {}, [], []),
        (Mode.OPT_OUT, SERVED, BY_HELM | INJECTED, ["DRAWBRIDGE_CLIENT_CA"], []),
        (Mode.OPT_IN, SERVED, INJECTED, ["DRAWBRIDGE_CLIENT_CA"], []),
        (Mode.SHADOW, SERVED, INJECTED, ["DRAWBRIDGE_CLIENT_CA"], []),
    ],
    ids=[
        "cert-manager",
        "cert-manager, a url",
        "client-certificates",
        "own-namespace",
        "two",
        "base",
        "base, a url",
        "Helm",
        "OptIn",
        "Shadow",
    ],
)
async def test_an_opt_out_installation_from_an_overlay_that_is_opt_in_now_is_reported(
    server: FakeApiServer,
    tmp_path: Path,
    mode: Mode,
    client_config: Any,
    metadata: dict[str, Any],
    *,
    variables: list[str],
    text: str | None,
    expected: list[str],
) -> None:
    """The overlay replaces the ConfigMap, so the mode in it protects nobody."""
    put_webhook(server, client_config, mode, metadata)
    namespace = client_config.get("service", {}).get("namespace", NAMESPACE)
    put_deployment(server, namespace, *variables)
    if text is not None:
        put_settings(server, text, namespace)

    assert await overlays_reported(server, tmp_path) == expected


async def test_an_overlay_of_an_upgrade_is_reported_where_the_mode_is_in_a_file(
    server: FakeApiServer, tmp_path: Path
) -> None:
    put_webhook(server, SERVED, Mode.OPT_OUT)
    file = tmp_path / "settings.yaml"
    file.write_text(NAMED)

    expected = ["own-namespace"]
    assert await overlays_reported(server, tmp_path, "--settings", str(file)) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/configmaps/", ["cert-manager", "client-certificates"]),
        ("/deployments/", ["cert-manager"]),
        ("/mutatingwebhookconfigurations/", []),
    ],
)
async def test_marks_of_an_overlay_that_may_not_be_read_are_left_out(
    server: FakeApiServer, tmp_path: Path, path: str, expected: list[str]
) -> None:
    put_webhook(server, IN_DEFAULT, Mode.OPT_OUT, INJECTED)
    put_deployment(server, NAMESPACE, "DRAWBRIDGE_CLIENT_CA")
    server.fail(403, times=5, matches=lambda request: path in request.path)

    assert await overlays_reported(server, tmp_path) == expected


@pytest.mark.parametrize(
    ("overlay", "file", "mark"),
    [
        ("cert-manager", "kustomization.yaml", "cert-manager.io/inject-ca-from:"),
        ("client-certificates", "mounted.yaml", "name: DRAWBRIDGE_CLIENT_CA,"),
        ("own-namespace", "kustomization.yaml", f"namespace: {OWN}"),
    ],
)
def test_an_overlay_makes_the_mark_by_which_it_is_reported(
    overlay: str, file: str, mark: str
) -> None:
    folder = Path(__file__).parents[2] / "manifests" / "overlays" / overlay

    assert mark in (folder / file).read_text()


async def test_a_pod_is_explained_where_the_settings_make_no_sense(
    server: FakeApiServer, tmp_path: Path
) -> None:
    """They may be those of another version, and most pods need none of them."""
    put_webhook(server, SERVED)
    put_settings(server, "validation: {newerSetting: true}")
    server.put(PODS, api_object("Pod", "waits", "team", spec={"containers": [gpus(1)]}))

    result = await run(server, tmp_path, "why", "pod", "waits", "-n", "team")

    assert "newerSetting" in result.stderr
    assert "defaults are used" in result.stderr
    assert json.loads(result.stdout)["name"] == "waits"


async def test_a_file_of_settings_that_makes_no_sense_is_an_error(
    server: FakeApiServer, tmp_path: Path
) -> None:
    server.put(PODS, api_object("Pod", "waits", "team", spec={"containers": [gpus(1)]}))
    file = tmp_path / "settings.yaml"
    file.write_text("validation: {newerSetting: true}")

    result = await run(
        server, tmp_path, "why", "pod", "waits", "-n", "team", "--settings", str(file)
    )

    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize("is_on", [True, False], ids=["on", "off"])
async def test_a_pending_claim_is_explained_with_the_gates_of_the_settings(
    server: FakeApiServer, tmp_path: Path, *, is_on: bool
) -> None:
    """Without manifests they were defaults."""
    put_webhook(server, {"service": {"name": SERVICE, "namespace": OWN}})
    gates = f"validation: {{featureGates: {{DRAConsumableCapacity: {json.dumps(is_on)}}}}}"
    put_settings(server, gates)
    server.put(DEVICE_CLASSES, {"metadata": {"name": NVIDIA}, "spec": {}})
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    device = {
        "name": "gpu-0",
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "80Gi"}},
    }
    spec = {"driver": NVIDIA, "nodeName": "a", "pool": pool, "devices": [device]}
    server.put(RESOURCE_SLICES, {"metadata": {"name": "s"}, "spec": spec})
    exactly = {"deviceClassName": NVIDIA, "capacity": {"requests": {"memory": "1Gi"}}}
    requests = [{"name": "gpu", "exactly": exactly}]
    waits = {"metadata": {"name": "waits", "namespace": "team"}}
    server.put(RESOURCE_CLAIMS, waits | {"spec": {"devices": {"requests": requests}}})

    result = await run(server, tmp_path, "why", "claim", "waits")

    (claim,) = json.loads(result.stdout)["simulation"]["claims"]
    assert (claim["allocation"] is not None) == is_on
