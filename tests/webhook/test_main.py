"""Both commands: wired together against an API server, and what they say about bad settings."""

import asyncio
import base64
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from aiohttp import ClientError, ClientSession

from certs.authority import Authority
from certs.serving import client_context, issue_leaf
from kube.files import read_objects
from tests.builders import Document, gpus, pod, profiles
from tests.fake_api_server import FakeApiServer, running, until
from webhook.__main__ import LibraryLines, Setup, control, main, observe, serve
from webhook.resources import (
    EVENTS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    SECRETS,
)
from webhook.settings import Settings, overridden, parse_settings
from webhook.world import Options

ROOT: Final = Path(__file__).parent.parent.parent
CONFIGURATION: Final = ROOT / "manifests" / "base" / "mutatingwebhookconfiguration.yaml"


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as made:
        yield made


@pytest.fixture
def setup(server: FakeApiServer, tmp_path: Path, unused_tcp_port_factory: Any) -> Setup:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server.url}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    settings = overridden(
        Settings(extra_names=("127.0.0.1",)),
        {
            "serve.bindAddress": "127.0.0.1",
            "serve.port": unused_tcp_port_factory(),
            "serve.probePort": unused_tcp_port_factory(),
            "serve.drainSeconds": 0,
            "control.bindAddress": "127.0.0.1",
            "control.probePort": unused_tcp_port_factory(),
            "observe.bindAddress": "127.0.0.1",
            "observe.probePort": unused_tcp_port_factory(),
            "observe.settleSeconds": 0.01,
        },
    )
    return Setup(
        settings=settings,
        options=Options(),
        profiles=profiles(),
        kubeconfig=str(kubeconfig),
        identity="test",
    )


async def status(url: str) -> tuple[int, str]:
    try:
        async with ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()
    except ClientError:
        return 0, ""


async def ready(port: int) -> None:
    async with asyncio.timeout(10):
        while (await status(f"http://127.0.0.1:{port}/readyz"))[0] != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def review(document: Document) -> Document:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "default",
            "operation": "CREATE",
            "object": document,
        },
    }


async def test_from_nothing_to_a_template(server: FakeApiServer, setup: Setup) -> None:
    """The controller makes the trust, the webhook answers by it, the controller the template."""
    (manifest,) = read_objects(CONFIGURATION.read_bytes(), CONFIGURATION.name)
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, manifest.document)
    settings = setup.settings

    def bundle() -> str:
        found: Any = server.objects(MUTATING_WEBHOOK_CONFIGURATIONS)[0]
        return str(found["webhooks"][0]["clientConfig"].get("caBundle", ""))

    async with running(lambda: control(setup), lambda: serve(setup)):
        await ready(settings.serve.probe_port)
        await ready(settings.control.probe_port)
        await until(lambda: bundle() != "")
        trusted = client_context(base64.b64decode(bundle()))
        legacy = pod(gpus(1))
        async with (
            ClientSession() as session,
            session.post(
                f"https://127.0.0.1:{settings.serve.port}/mutate", json=review(legacy), ssl=trusted
            ) as answer,
        ):
            response = (await answer.json())["response"]
        patch = msgspec.json.decode(base64.b64decode(response["patch"]))
        made = {step["path"].rpartition("/")[2]: step.get("value") for step in patch}
        persisted = pod(gpus(), annotations={"drawbridge.internal/request": _annotation(patch)})
        persisted["metadata"] |= {"namespace": "default", "uid": "p"}
        persisted["spec"]["resourceClaims"] = made["resourceClaims"]
        server.put(PODS, persisted)

        await until(lambda: bool(server.objects(RESOURCE_CLAIM_TEMPLATES)))
        _, metrics = await status(f"http://127.0.0.1:{settings.serve.probe_port}/metrics")
        _, verbose = await status(f"http://127.0.0.1:{settings.serve.probe_port}/readyz?verbose")
        _, leading = await status(f"http://127.0.0.1:{settings.control.probe_port}/metrics")

    assert 'drawbridge_decisions_total{decision="translated",operation="CREATE"} 1.0' in metrics
    assert 'drawbridge_certificate_not_after_timestamp_seconds{kind="leaf"}' in metrics
    assert 'drawbridge_cache_synced{resource="resourceslices"} 1.0' in metrics
    assert "[+]caches ok\n[+]leaf ok\n[+]caBundle ok\n[+]endpoint ok\n[+]drain ok" in verbose
    assert 'drawbridge_certificate_not_after_timestamp_seconds{kind="ca"}' in leading
    assert 'leader_election_master_status{name="drawbridge-controller"} 1.0' in leading
    for resource in ("pods", "resourceclaimtemplates", "mutatingwebhookconfigurations"):
        assert f'drawbridge_cache_synced{{resource="{resource}"}} 1.0' in leading
    assert 'workqueue_depth{name="pods"} 0.0' in leading
    assert 'workqueue_adds_total{name="pods"}' in leading


async def test_a_mounted_certificate_is_served_and_the_authority_left_to_others(
    server: FakeApiServer, setup: Setup, tmp_path: Path
) -> None:
    now, life = datetime.now(UTC), timedelta(hours=1)  # noqa: TID251  TLS compares with the clock.
    authority = Authority.make("test", now=now, life=life)
    leaf = issue_leaf(authority, setup.settings.names(), now=now, life=life)
    texts = {"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": leaf.authority}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
    settings = overridden(setup.settings, {"serve.certificateDirectory": str(tmp_path)})
    mounted = msgspec.structs.replace(setup, settings=settings)

    async with running(lambda: control(mounted), lambda: serve(mounted)):
        await ready(settings.serve.probe_port)
        await until(lambda: any("/leases/" in call.path for call in server.calls))
        url = f"https://127.0.0.1:{settings.serve.port}/livez"
        async with (
            ClientSession() as session,
            session.get(url, ssl=client_context(authority.certificate_pem)) as answer,
        ):
            assert answer.status == 200

    assert server.objects(SECRETS) == []


def _annotation(patch: list[Document]) -> str:
    (value,) = (step["value"] for step in patch if step["path"] == "/metadata/annotations")
    return str(value["drawbridge.internal/request"])


# --- flags ----------------------------------------------------------------------------------------


def test_printed_settings_are_those_in_force(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("namespace: a\nserve: {port: 1, probePort: 2}\n")
    monkeypatch.setenv("DRAWBRIDGE_CONFIG", str(file))
    monkeypatch.setenv("DRAWBRIDGE_PORT", "3")

    assert main(["serve", "--print-settings", "--probe-port", "4"]) == 0

    found = parse_settings(capsys.readouterr().out, "printed", {})
    assert (found.namespace, found.serve.port, found.serve.probe_port) == ("a", 3, 4)


def test_the_printed_configuration_knows_the_names_that_profiles_give(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sriov.yaml").write_text(
        "driver: sriovnetwork.k8snetworkplumbingwg.io\n"
        "devices: {nic: {class: vf, resources: {acme.example/*: {}, intel.com/x700_pppoe: {}}}}\n"
    )
    monkeypatch.setenv("DRAWBRIDGE_PROFILES", str(tmp_path))

    assert main(["serve", "--print-configuration"]) == 0

    printed = capsys.readouterr().out
    assert 'key.startsWith("acme.example/")' in printed
    assert '"intel.com/x700_pppoe"' in printed


async def test_the_observer_needs_nothing_else_of_ours(server: FakeApiServer, setup: Setup) -> None:
    """Nor is it asked for anything but its probes."""
    waiting: Document = {
        "metadata": {"namespace": "default", "name": "waiting", "uid": "u"},
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "forgotten"}]},
        "status": {"phase": "Pending"},
    }
    server.put(PODS, waiting)
    port = setup.settings.observe.probe_port
    async with running(lambda: observe(setup)):
        await ready(port)
        await until(lambda: bool(server.objects(EVENTS)))
        _, metrics = await status(f"http://127.0.0.1:{port}/metrics")

    (event,) = server.objects(EVENTS)
    assert event["note"] == "there is no claim default/forgotten"
    assert 'drawbridge_cache_synced{resource="resourceslices"} 1.0' in metrics
    assert server.counts["POST"] == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["serve", "--port", "70000"], "serve.port"),
        (["serve", "--config", "/none/settings.yaml"], "No such file"),
        (["control", "--kubeconfig", "/none/kubeconfig"], "kubeconfig"),
        (["observe", "--probe-port", "x"], "invalid int value"),
    ],
    ids=["a port that is none", "a file that is not there", "no kubeconfig there", "no number"],
)
def test_bad_settings_end_in_a_word_and_status_2(arguments: list[str], told: str) -> None:
    command = [sys.executable, "-m", "webhook", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    assert ended.returncode == 2
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr


# --- the log --------------------------------------------------------------------------------------

LOGS: Final = """
import logging, sys
import structlog
from webhook.__main__ import log_to

log_to(sys.stdout, "info")
token = "".join(["s", "e", "c", "r", "e", "t"])
try:
    int("x")
except ValueError:
    structlog.get_logger().exception("review.failed")
    logging.getLogger("asyncio").exception("SSL handshake failed\\nprotocol: ...")
    logging.getLogger("aiohttp.server").error("x" * 9999, exc_info=ValueError("y" * 9999))
"""


def test_the_log_is_json_to_the_last_library_and_tells_no_values() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOGS], stdout=subprocess.PIPE, text=True, check=True
    )

    ours, theirs, long = (msgspec.json.decode(line) for line in done.stdout.splitlines())
    assert ours["exception"][0]["exc_type"] == "ValueError"
    assert (theirs["event"], theirs["said"]) == ("library.logged", "SSL handshake failed")
    assert "'secret'" not in done.stdout
    assert max(len(long["said"]), len(long["error"])) <= LibraryLines.most
