"""The overlay with cert-manager: as kubectl renders it, and with the real controllers and cainjector.

The second half has a cluster of its own, since it installs Drawbridge another time.
"""

import base64
import copy
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from e2e.access import Access, Object, stream
from e2e.binaries import cert_manager, cert_manager_definitions
from e2e.cluster import Cluster
from e2e.conftest import IMPATIENT
from e2e.custom_kinds import wait_established
from e2e.drawbridge import (
    CERTIFICATES,
    CONTROLLER,
    MANIFESTS,
    WEBHOOK,
    Drawbridge,
    merged,
    rendered,
)
from e2e.fleet import examples_fleet
from e2e.load import Load
from e2e.objects import pod
from kube.names import SIGNING_SECRET, TRANSLATE_LABEL
from process.certificates.certificates import CertificateSettings
from tools.go import go_command

OVERLAY = MANIFESTS.parent / "overlays" / "cert-manager"
TIMEOUT_S: Final = 120.0
AUTHORITY: Final = "drawbridge-authority"
SECRET: Final = "drawbridge-webhook-certificate"
ATTEMPTS: Final = 5
"""Renewals of the serving certificate until the renewed authority has signed it."""
MOUNT_LAG_S: Final = 2.0
"""The delay of a mounted Secret; the kubelet takes a minute or so."""
HASTY: Final = {
    "translation": {"mode": "OptIn"},
    "certificates": {"resyncPeriod": "200ms"},
    "webhook": {"requestsPerConnection": 4},
}
LIMITS: Final = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}


@pytest.fixture(scope="module")
def objects(cluster: Access) -> list[Object]:
    return rendered(cluster, OVERLAY)


def named(objects: list[Object], kind: str) -> dict[str, Object]:
    return {
        document["metadata"]["name"]: document for document in objects if document["kind"] == kind
    }


def test_nobody_of_ours_can_reach_a_secret_but_those_of_signatures_and_paths(
    objects: list[Object],
) -> None:
    names = {
        (role["metadata"]["name"], *rule["resourceNames"])
        for role in objects
        if role["kind"] in {"Role", "ClusterRole"}
        for rule in role["rules"]
        if "secrets" in rule["resources"]
    }
    path = CertificateSettings().path_secret
    assert names == {
        (WEBHOOK, SIGNING_SECRET, path),
        (CONTROLLER, SIGNING_SECRET),
        (CERTIFICATES, SIGNING_SECRET),
        (CERTIFICATES, path),
    }


def test_processes_know_whose_the_certificates_are(objects: list[Object]) -> None:
    for name in (CERTIFICATES, WEBHOOK):
        deployment = named(objects, "Deployment")[name]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        variables = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert variables["DRAWBRIDGE_CERTIFICATES"] == "/certificate"


def test_what_is_served_is_what_is_issued_and_believed(objects: list[Object]) -> None:
    certificate = named(objects, "Certificate")["drawbridge-webhook"]
    spec = named(objects, "Deployment")[WEBHOOK]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (mount,) = (entry for entry in container["volumeMounts"] if entry["name"] == "certificate")
    (volume,) = (entry for entry in spec["volumes"] if entry["name"] == "certificate")
    service = f"{WEBHOOK}.{certificate['metadata']['namespace']}.svc"

    assert (mount["mountPath"], mount["name"]) == ("/certificate", volume["name"])
    assert volume["secret"]["secretName"] == certificate["spec"]["secretName"]
    assert service in certificate["spec"]["dnsNames"]
    for document in objects:
        if document["kind"].endswith("WebhookConfiguration"):
            (source,) = document["metadata"]["annotations"].values()
            assert source == f"{certificate['metadata']['namespace']}/drawbridge-webhook"


# --- with the real cert-manager -------------------------------------------------------------------


class Mount(threading.Thread):
    """A Secret as files, as the kubelet keeps them, some time behind."""

    def __init__(self, cluster: Access, namespace: str, folder: Path) -> None:
        super().__init__()
        self._cluster = cluster
        self._namespace = namespace
        self._folder = folder
        self._ended = threading.Event()

    def run(self) -> None:
        lag_s = 0.0
        while not self._ended.is_set():
            secret = self._cluster.find("secrets", SECRET, self._namespace)
            data = (secret or {}).get("data") or {}
            if data.get("tls.crt"):
                self._ended.wait(lag_s)
                for name, value in data.items():
                    partial = self._folder / f"{name}.partial"
                    partial.write_bytes(base64.b64decode(value))
                    partial.rename(self._folder / name)
                lag_s = MOUNT_LAG_S
            self._ended.wait(0.2)

    def end(self) -> None:
        self._ended.set()
        self.join()


class Installed:
    """Drawbridge with certificates of cert-manager."""

    def __init__(self, cluster: Cluster, drawbridge: Drawbridge) -> None:
        self.cluster = cluster
        self.drawbridge = drawbridge

    def secret(self, name: str) -> Object | None:
        return self.cluster.find("secrets", name, self.drawbridge.namespace)

    def certificate(self, secret: str, key: str = "tls.crt") -> bytes:
        """The certificate that cert-manager has issued, or with "ca.crt" that of its authority."""
        data = (self.secret(secret) or {}).get("data") or {}
        return base64.b64decode(data.get(key, "")).strip()

    def bundle(self) -> bytes:
        """The authorities that the API server trusts."""
        return base64.b64decode(self.drawbridge.client_config()["caBundle"]).strip()

    def settled(self, name: str) -> bool:
        """Return True if a Certificate is ready and is not being issued.

        Its Secret has a new certificate a moment before its condition `Issuing` is gone.
        """
        certificate = self.cluster.find("certificates", name, self.drawbridge.namespace) or {}
        conditions = (certificate.get("status") or {}).get("conditions") or ()
        true = {condition["type"] for condition in conditions if condition["status"] == "True"}
        return "Ready" in true and "Issuing" not in true

    def renew(self, name: str) -> None:
        """Have cert-manager renew a Certificate, as `cmctl renew` does."""
        target = ("-n", self.drawbridge.namespace, "certificate", name)
        condition = {
            "type": "Issuing",
            "status": "True",
            "reason": "ManuallyTriggered",
            "message": "a story renews it",
            "lastTransitionTime": "2020-01-01T00:00:00Z",
        }
        steps = [{"op": "add", "path": "/status/conditions/-", "value": condition}]
        command = ("patch", *target, "--subresource=status", "--type=json")
        self.cluster.kubectl(*command, "-p", json.dumps(steps))

    def renew_and_wait(self, name: str, secret: str) -> bytes:
        """Renew a Certificate, and return the new content of its Secret."""
        self.cluster.wait_until(
            lambda: self.settled(name), f"{name} is not being issued", timeout_s=TIMEOUT_S
        )
        before = self.certificate(secret)
        self.renew(name)
        self.cluster.wait_until(
            lambda: self.certificate(secret) not in {b"", before},
            f"{secret} is renewed",
            timeout_s=TIMEOUT_S,
        )
        return self.certificate(secret)


def for_processes(objects: list[Object], folder: Path, host: str) -> list[Object]:
    """The overlay for a webhook that is a process and reached by its address."""
    changed = copy.deepcopy(objects)
    named(changed, "Certificate")["drawbridge-webhook"]["spec"]["ipAddresses"] = [host]
    for deployment in named(changed, "Deployment").values():
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        for variable in container.get("env", ()):
            if variable["name"] == "DRAWBRIDGE_CERTIFICATES":
                variable["value"] = str(folder)
    return changed


@pytest.fixture(scope="module")
def installed(
    objects: list[Object], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    try:
        go_command()
    except subprocess.CalledProcessError:
        pytest.skip("needs Go: cert-manager is built from its Go modules")
    folder = tmp_path_factory.mktemp("certificate")
    program, definitions = cert_manager(), cert_manager_definitions()
    with ExitStack() as undo:
        cluster = undo.enter_context(Cluster(tmp_path_factory.mktemp("cert-manager")))
        cluster.kubectl("apply", "--server-side", "-f", definitions)
        for kind in ("certificates", "issuers"):
            wait_established(cluster, f"{kind}.cert-manager.io")
        cluster.run("cert-manager", (program, "--kubeconfig", cluster.kubeconfig))
        classes, nodes, slices = examples_fleet()
        cluster.apply(classes)
        cluster.add_nodes(nodes, lambda node: slices.get(node, ()))
        overlay = for_processes(objects, folder, "127.0.0.1")
        cluster.kubectl("label", "namespace", "default", f"{TRANSLATE_LABEL}=true")
        drawbridge = Drawbridge(cluster, overlay, merged(IMPATIENT, HASTY))
        mount = Mount(cluster, drawbridge.namespace, folder)
        undo.callback(mount.end)
        mount.start()
        try:
            drawbridge.install()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{cluster.log_tails()}") from error
        yield Installed(cluster, drawbridge)


def test_with_the_real_cert_manager_pods_are_translated_and_we_keep_no_certificate(
    installed: Installed,
) -> None:
    cluster = installed.cluster
    cluster.kubectl("create", "-f", "-", input=stream(pod("share", limits=LIMITS)))

    cluster.wait_running("share", timeout_s=TIMEOUT_S)

    for name in ("drawbridge-ca", "drawbridge-webhook-tls"):
        assert installed.secret(name) is None
    assert installed.bundle() == installed.certificate(AUTHORITY)


def test_no_pod_is_refused_while_cert_manager_renews_certificate_and_authority(
    installed: Installed,
) -> None:
    cluster, drawbridge = installed.cluster, installed.drawbridge
    replaced = drawbridge.log(WEBHOOK).count("certificate.replaced")
    with Load(cluster, "default", pod("load", limits=LIMITS), per_second=10) as load:
        renewed = installed.renew_and_wait("drawbridge-authority", AUTHORITY)
        # The issuer reads its authority from a cache, which may be a moment behind.
        for _ in range(ATTEMPTS):
            installed.renew_and_wait("drawbridge-webhook", SECRET)
            if installed.certificate(SECRET, "ca.crt") == renewed:
                break
        assert installed.certificate(SECRET, "ca.crt") == renewed
        cluster.wait_until(
            lambda: renewed in installed.bundle(),
            "cainjector adds the new authority",
            timeout_s=TIMEOUT_S,
        )
        cluster.wait_until(
            lambda: drawbridge.log(WEBHOOK).count("certificate.replaced") > replaced,
            "the webhook serves the new certificate",
            timeout_s=TIMEOUT_S,
        )
        before = len(load.created)
        cluster.wait_until(lambda: len(load.created) > before + 8, "pods are created")
    assert load.failures == []
