"""The processes: wired together against an API server, and their answers to bad settings."""

import asyncio
import base64
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import jsonpatch
import msgspec
import pytest
import yaml
from aiohttp import ClientError, ClientSession

from admission.quota_gates import gate_documents
from admission.webhook_configuration import PODS_WEBHOOK, webhook_rules
from certs.authority import Authority
from certs.serving import client_tls_context, issue_serving_certificate
from controllers.__main__ import control
from controllers.certificates.__main__ import keep_certificates
from controllers.certificates.settings import CertificateControllerSettings
from controllers.certificates.settings import Settings as CertificateProcessSettings
from controllers.model.settings import ControllerSettings
from controllers.model.settings import Settings as ControllersSettings
from controllers.quotas.gates import RESOURCES
from kube.api.meta import rfc3339
from kube.api.urls import (
    DEVICE_QUOTAS,
    EVENTS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    SECRETS,
)
from kube.manifests.reader import read_objects
from kube.names import NAMESPACE, SIGNING_SECRET
from observer.__main__ import observe
from observer.settings import ObserverSettings
from observer.settings import Settings as ObserverProcessSettings
from process.certificates.certificates import CertificateSettings
from process.model.durations import Duration, PositiveDuration
from process.model.settings import parse_settings
from process.running.command import Process
from process.running.logs import LibraryLines
from testing.builders import gpus, pod
from testing.device_quotas import device_limit, quota
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, running, until
from testing.ports import free_ports
from webhook.__main__ import main, serve
from webhook.settings import Settings, WebhookSettings

ROOT: Final = Path(__file__).parent.parent.parent
CONFIGURATION: Final = ROOT / "manifests" / "base" / "mutatingwebhookconfiguration.yaml"


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as fake_server:
        yield fake_server


class Setup(msgspec.Struct, frozen=True):
    """The settings of each process, with free ports, and the address of the API server."""

    webhook: Settings
    controllers: ControllersSettings
    certificates: CertificateProcessSettings
    observer: ObserverProcessSettings
    kubeconfig: str

    def process(self, settings: Any) -> Process[Any]:
        return Process(settings=settings, kubeconfig=self.kubeconfig, identity="test")

    async def serve(self) -> None:
        await serve(self.process(self.webhook))

    async def control(self) -> None:
        await control(self.process(self.controllers))

    async def keep_certificates(self) -> None:
        await keep_certificates(self.process(self.certificates))

    async def observe(self) -> None:
        await observe(self.process(self.observer))


@pytest.fixture
def setup(server: FakeApiServer, tmp_path: Path) -> Setup:
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
    ports = iter(free_ports(9))
    certificates = CertificateSettings(extra_names=("127.0.0.1",))
    local = "127.0.0.1"
    return Setup(
        webhook=Settings(
            certificates=certificates,
            webhook=WebhookSettings(
                bind_address=local,
                port=next(ports),
                probe_port=next(ports),
                metrics_port=next(ports),
                drain=Duration(0),
            ),
        ),
        controllers=ControllersSettings(
            controllers=ControllerSettings(
                bind_address=local,
                probe_port=next(ports),
                metrics_port=next(ports),
            ),
        ),
        certificates=CertificateProcessSettings(
            certificates=certificates,
            certificate_controller=CertificateControllerSettings(
                bind_address=local,
                probe_port=next(ports),
                metrics_port=next(ports),
            ),
        ),
        observer=ObserverProcessSettings(
            observer=ObserverSettings(
                bind_address=local,
                probe_port=next(ports),
                metrics_port=next(ports),
                initial_delay=PositiveDuration(0.01),
            )
        ),
        kubeconfig=str(kubeconfig),
    )


async def status(url: str) -> tuple[int, str]:
    try:
        async with ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()
    except ClientError:
        return 0, ""


async def ready(port: int) -> None:
    async with asyncio.timeout(60):
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
    """The authority is created, the webhook answers with its certificate, the template is created."""
    (manifest,) = read_objects(CONFIGURATION.read_bytes(), CONFIGURATION.name)
    webhook, controllers = setup.webhook.webhook, setup.controllers.controllers
    certificates = setup.certificates.certificate_controller
    configuration: Any = manifest.document
    configuration["webhooks"][0]["clientConfig"] = {
        "url": f"https://127.0.0.1:{webhook.port}/mutate"
    }
    server.put(MUTATING_WEBHOOK_CONFIGURATIONS, configuration)

    def stored_bundle() -> str:
        stored: Any = server.objects(MUTATING_WEBHOOK_CONFIGURATIONS)[0]
        return str(stored["webhooks"][0]["clientConfig"].get("caBundle", ""))

    def url() -> str:
        stored: Any = server.objects(MUTATING_WEBHOOK_CONFIGURATIONS)[0]
        return str(stored["webhooks"][0]["clientConfig"]["url"])

    def rules() -> Any:
        stored: Any = server.objects(MUTATING_WEBHOOK_CONFIGURATIONS)[0]
        return stored["webhooks"][0].get("rules")

    async with running(setup.keep_certificates, setup.control, setup.serve):
        await ready(webhook.probe_port)
        await ready(controllers.probe_port)
        await ready(certificates.probe_port)
        await until(lambda: stored_bundle() != "")
        await until(lambda: not url().endswith("/mutate"))
        trusted = client_tls_context(base64.b64decode(stored_bundle()))
        legacy = pod(gpus(1))
        async with (
            ClientSession() as session,
            session.post(url(), json=review(legacy), ssl=trusted) as answer,
        ):
            response = (await answer.json())["response"]
        patch = msgspec.json.decode(base64.b64decode(response["patch"]))
        persisted = jsonpatch.apply_patch(legacy, patch)
        persisted["metadata"] |= {
            "namespace": "default",
            "uid": "p",
            "creationTimestamp": rfc3339(datetime.now(UTC)),  # noqa: TID251  As it was signed.
        }
        server.put(PODS, persisted)

        await until(lambda: bool(server.objects(RESOURCE_CLAIM_TEMPLATES)))
        _, metrics = await status(f"http://127.0.0.1:{webhook.metrics_port}/metrics")
        _, leading = await status(f"http://127.0.0.1:{controllers.metrics_port}/metrics")
        _, keeping = await status(f"http://127.0.0.1:{certificates.metrics_port}/metrics")
        await until(lambda: rules() == webhook_rules(routes=False)[PODS_WEBHOOK])

    assert (
        'drawbridge_reviews_total{decision="translated",kind="Pod",operation="CREATE"} 1.0'
        in metrics
    )
    assert 'drawbridge_certificate_expiration_timestamp_seconds{kind="serving"}' in metrics
    assert 'drawbridge_cache_synced{resource="resourceslices"} 1.0' in metrics
    for check in (
        "informers",
        "signingKeys",
        "pathKeys",
        "certificate",
        "caBundle",
        "endpoint",
        "drain",
    ):
        assert f'drawbridge_readiness_check{{check="{check}"}} 1.0' in metrics
    assert 'drawbridge_certificate_expiration_timestamp_seconds{kind="ca"}' in keeping
    assert 'leader_election_master_status{name="drawbridge-certificates"} 1.0' in keeping
    assert 'leader_election_master_status{name="drawbridge-controller"} 1.0' in leading
    assert 'drawbridge_cache_synced{resource="mutatingwebhookconfigurations"} 1.0' in keeping
    for resource in ("pods", "resourceclaimtemplates"):
        assert f'drawbridge_cache_synced{{resource="{resource}"}} 1.0' in leading
    assert 'workqueue_depth{name="templates"} 0.0' in leading
    assert 'workqueue_adds_total{name="templates"}' in leading


async def test_a_mounted_certificate_is_served_and_the_authority_left_to_others(
    server: FakeApiServer, setup: Setup, tmp_path: Path
) -> None:
    now, life = datetime.now(UTC), timedelta(days=1)  # noqa: TID251  TLS compares with the clock.
    authority = Authority.create("test", now=now, life=life)
    serving_certificate = issue_serving_certificate(
        authority, setup.webhook.certificates.names(setup.webhook.namespace), now=now, life=life
    )
    texts = {
        "tls.crt": serving_certificate.certificate,
        "tls.key": serving_certificate.key,
        "ca.crt": serving_certificate.authority,
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
    certificates = CertificateSettings(directory=str(tmp_path))
    mounted = msgspec.structs.replace(
        setup,
        webhook=msgspec.structs.replace(setup.webhook, certificates=certificates),
        certificates=msgspec.structs.replace(setup.certificates, certificates=certificates),
    )
    webhook = mounted.webhook.webhook

    async with running(mounted.keep_certificates, mounted.serve):
        await ready(webhook.probe_port)
        await until(lambda: any("/leases/" in call.path for call in server.calls))
        url = f"https://127.0.0.1:{webhook.port}/livez"
        async with (
            ClientSession() as session,
            session.get(url, ssl=client_tls_context(authority.certificate_pem)) as answer,
        ):
            assert answer.status == 404  # As for every path without key.

    assert {secret["metadata"]["name"] for secret in server.objects(SECRETS)} == {
        SIGNING_SECRET,
        certificates.path_secret,
    }


# --- flags ----------------------------------------------------------------------------------------


def test_printed_settings_are_those_in_force(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("namespace: a\nwebhook: {port: 1, probePort: 2}\n")
    monkeypatch.setenv("DRAWBRIDGE_CONFIG", str(file))
    monkeypatch.setenv("DRAWBRIDGE_PORT", "3")

    assert main(["--print-settings", "--probe-port", "4"]) == 0

    stored = parse_settings(capsys.readouterr().out, "printed", {}, kind=Settings, variables={})
    assert (stored.namespace, stored.webhook.port, stored.webhook.probe_port) == ("a", 3, 4)


def test_the_printed_configuration_knows_the_names_that_profiles_give(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sriov.yaml").write_text(
        "driver: sriovnetwork.k8snetworkplumbingwg.io\n"
        "devices: {nic: {class: vf, resources: {acme.example/*: {}, intel.com/x700_pppoe: {}}}}\n"
    )
    monkeypatch.setenv("DRAWBRIDGE_PROFILES", str(tmp_path))

    assert main(["--print-configuration"]) == 0

    printed = capsys.readouterr().out
    assert 'key.startsWith("acme.example/")' in printed
    assert '"intel.com/x700_pppoe"' in printed


def test_the_printed_configuration_exempts_namespaces(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {exemptNamespaces: [team-a]}\n")

    assert main(["--config", str(settings), "--print-configuration"]) == 0

    webhooks = [
        webhook
        for document in yaml.load_all(capsys.readouterr().out, Loader=yaml.CSafeLoader)
        for webhook in document["webhooks"]
    ]
    for webhook in webhooks:
        assert "team-a" in webhook["namespaceSelector"]["matchExpressions"][0]["values"]
    assert len(webhooks) == 5


@pytest.mark.parametrize("source", ["file", "environment"])
def test_the_printed_configuration_is_for_the_namespace_of_the_settings(
    source: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("namespace: gpu-system\n" if source == "file" else "")
    if source == "environment":
        monkeypatch.setenv("DRAWBRIDGE_NAMESPACE", "gpu-system")

    assert main(["--config", str(settings), "--print-configuration"]) == 0

    printed = capsys.readouterr().out
    assert NAMESPACE not in printed
    for document in yaml.load_all(printed, Loader=yaml.CSafeLoader):
        for webhook in document["webhooks"]:
            assert webhook["clientConfig"]["service"]["namespace"] == "gpu-system"
            (names, *_) = webhook["namespaceSelector"]["matchExpressions"]
            assert names["values"] == ["kube-system", "gpu-system"]


async def test_quotas_are_enforced_in_a_namespace_of_another_name(
    server: FakeApiServer, setup: Setup
) -> None:
    settings = msgspec.structs.replace(setup.controllers, namespace="gpu-system")
    for policy in gate_documents("gpu-system"):
        server.put(RESOURCES[policy["kind"]], policy)
    server.put(DEVICE_QUOTAS, msgspec.to_builtins(quota(device_limit(8)), enc_hook=str))

    def conditions() -> dict[str, str]:
        status: Any = server.objects(DEVICE_QUOTAS)[0].get("status", {})
        return {entry["type"]: entry["status"] for entry in status.get("conditions", ())}

    async with running(lambda: control(setup.process(settings))):
        await until(lambda: conditions().get("Enforced") == "True")


async def test_the_observer_needs_nothing_else_of_ours(server: FakeApiServer, setup: Setup) -> None:
    """Nor is it asked for anything but its probes."""
    waiting: Document = {
        "metadata": {"namespace": "default", "name": "waiting", "uid": "u"},
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "forgotten"}]},
        "status": {"phase": "Pending"},
    }
    server.put(PODS, waiting)
    served = setup.observer.observer
    async with running(setup.observe):
        await ready(served.probe_port)
        await until(lambda: bool(server.objects(EVENTS)))
        _, metrics = await status(f"http://127.0.0.1:{served.metrics_port}/metrics")

    (event,) = server.objects(EVENTS)
    assert event["note"] == "ResourceClaim default/forgotten not found."
    assert 'drawbridge_cache_synced{resource="resourceslices"} 1.0' in metrics
    assert server.counts["POST"] == 1


WATCHES: Final = {"serve": 27, "control": 24, "observe": 9, "keep_certificates": 6}
"""Process to the informers that it has; a lower number than there are would prove less."""


@pytest.mark.parametrize("process", WATCHES)
async def test_a_process_watches_each_resource_and_selector_once(
    process: str, server: FakeApiServer, setup: Setup
) -> None:
    async with running(getattr(setup, process)):
        await until(lambda: server.watching >= WATCHES[process])

    watched = Counter(
        (call.path, call.query.get("labelSelector"), call.query.get("fieldSelector"))
        for call in server.calls
        if call.is_watch
    )
    assert set(watched.values()) == {1}
    assert len(watched) == WATCHES[process]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["webhook", "--port", "70000"], "webhook.port"),
        (["webhook", "--config", "/none/settings.yaml"], "No such file"),
        (["controllers", "--kubeconfig", "/none/kubeconfig"], "kubeconfig"),
        (["observer", "--probe-port", "x"], "invalid int value"),
        (["sidecar", "--metrics-port", "70000"], "sidecar.metricsPort"),
        (["sidecar", "--kubeconfig", "/none/kubeconfig"], "kubeconfig"),
    ],
    ids=[
        "a port that is none",
        "a file that is not there",
        "no kubeconfig there",
        "no number",
        "a port of the sidecar that is none",
        "no kubeconfig of the sidecar there",
    ],
)
def test_bad_settings_end_in_a_word_and_status_2(arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    assert ended.returncode == 2
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


# --- the log --------------------------------------------------------------------------------------

LOGS: Final = """
import logging, sys
import structlog
from process.running.logs import log_to

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
    completed = subprocess.run(
        [sys.executable, "-c", LOGS], stdout=subprocess.PIPE, text=True, check=True
    )

    ours, theirs, long = (msgspec.json.decode(line) for line in completed.stdout.splitlines())
    assert ours["exception"][0]["exc_type"] == "ValueError"
    assert (theirs["event"], theirs["message"]) == ("library.logged", "SSL handshake failed")
    assert "'secret'" not in completed.stdout
    assert max(len(long["message"]), len(long["error"])) <= LibraryLines.max_length
