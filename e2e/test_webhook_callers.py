"""An API server that brings a certificate, and a webhook that answers nobody else.

The control plane is one of its own: only a flag of the API server makes it bring one. The webhook is that
of the overlay, whose ConfigMap is a file here.
"""

import copy
import http.client
import json
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from admission.webhook_configuration import MUTATE_PATH
from e2e.access import Object, stream
from e2e.cluster import Cluster
from e2e.conftest import IMPATIENT
from e2e.credentials import Authority, certificate_user, cluster_entry, kubeconfig, write_secret
from e2e.drawbridge import (
    CERTIFICATES,
    CONTROLLER,
    MANIFESTS,
    WEBHOOK,
    Drawbridge,
    merged,
    rendered,
)
from e2e.load import Load
from e2e.objects import pod
from e2e.translated import legacy_keys
from kube.names import TRANSLATE_LABEL

CALLER = "kube-apiserver"
CONFIGURATION = "apiserver.config.k8s.io/v1"


OVERLAY: Final = MANIFESTS.parent / "overlays" / "client-certificates"
VARIABLE: Final = "DRAWBRIDGE_CLIENT_CA"
HASTY: Final = {
    "certificates": {"resyncPeriod": "200ms"},
    "translation": {"mode": "OptIn"},
}


class Guarded(NamedTuple):
    """A cluster, a webhook, and the authority of those that may ask it."""

    cluster: Cluster
    drawbridge: Drawbridge
    callers: Authority
    directory: Path

    def trust(self, *authorities: Authority) -> None:
        """Replace the file with the authorities, as the kubelet does."""
        partial = self.directory / "ca.partial"
        partial.write_bytes(b"".join(authority.certificate for authority in authorities))
        partial.rename(self.directory / "ca.crt")


def for_processes(objects: list[Object], file: Path) -> list[Object]:
    """The overlay for a webhook that is a process, with the ConfigMap as a file."""
    changed: list[Object] = copy.deepcopy(objects)
    (variable,) = (
        variable
        for document in changed
        if (document["kind"], document["metadata"]["name"]) == ("Deployment", WEBHOOK)
        for variable in document["spec"]["template"]["spec"]["containers"][0]["env"]
        if variable["name"] == VARIABLE
    )
    variable["value"] = str(file)
    return changed


def write_credentials(directory: Path, callers: Authority) -> Path:
    """The kubeconfig with the API server's certificate for calls of webhooks."""
    user = certificate_user(callers.issue(CALLER))
    # The user's name says for which webhooks: a host and port, or all.
    text = kubeconfig(cluster_entry("https://unused", callers.certificate), user, name="*")
    write_secret(directory / "callers.kubeconfig", text)
    return directory / "callers.kubeconfig"


def admission_configuration(directory: Path, callers: Authority) -> Path:
    """A file that has the API server call webhooks with a certificate."""
    inside = {
        "apiVersion": CONFIGURATION,
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(write_credentials(directory, callers)),
    }
    plugins = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    document = {
        "apiVersion": CONFIGURATION,
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": name, "configuration": inside} for name in plugins],
    }
    file = directory / "admission.json"
    file.write_text(json.dumps(document))
    return file


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    if os.environ.get("DRAWBRIDGE_E2E_KUBECONFIG"):
        pytest.skip("needs a control plane of its own")
    directory = tmp_path_factory.mktemp("callers")
    callers = Authority("callers")
    flag = f"--admission-control-config-file={admission_configuration(directory, callers)}"
    with Cluster(directory / "cluster", api_server_flags=[flag]) as cluster:
        objects = for_processes(rendered(cluster, OVERLAY), directory / "ca.crt")
        drawbridge = Drawbridge(cluster, objects, merged(IMPATIENT, HASTY))
        cluster.apply(drawbridge.applied())
        cluster.kubectl("label", "namespace", "default", f"{TRANSLATE_LABEL}=true")
        guarded_ = Guarded(cluster, drawbridge, callers, directory)
        guarded_.trust(callers)
        for name in (CERTIFICATES, CONTROLLER, WEBHOOK):
            drawbridge.start(name)
        yield guarded_


def create(cluster: Cluster) -> tuple[int, str]:
    """Make a pod in a dry run; returns kubectl's status and its words."""
    share = stream(pod("whole", limits={"nvidia.com/gpu": 1}))
    command = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    output = cluster.kubectl(*command, input=share, check=False)
    return output.returncode, output.stdout or output.stderr


def status_for(
    guarded: Guarded, name: str | None, callers: Authority, path: str | None = None
) -> int:
    """The status for a caller of that name and with the path."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if name is not None:
        context.load_cert_chain(*callers.issue(name).write(guarded.directory, "asked"))
    endpoints = guarded.drawbridge.endpoints
    connection = http.client.HTTPSConnection(
        endpoints.host, endpoints.webhook, timeout=60, context=context
    )
    try:
        keyed = path or guarded.drawbridge.path()
        connection.request("POST", keyed, b"{}", {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_api_server_is_known_by_its_certificate(guarded: Guarded) -> None:
    cluster = guarded.cluster

    cluster.wait_until(lambda: is_translated(cluster), "the webhook answers the API server")


def is_translated(cluster: Cluster) -> bool:
    """Return True if the API server gets an answer; it does not call before the rules are there."""
    status, words = create(cluster)
    return status == 0 and legacy_keys(json.loads(words)) == set()


def test_nobody_else_is_answered(guarded: Guarded) -> None:
    others = Authority("others")
    guarded.cluster.wait_until(
        lambda: guarded.drawbridge.path() != MUTATE_PATH, "the API server knows the path"
    )

    for caller in (CALLER, "system:node:a"):
        assert status_for(guarded, caller, guarded.callers, MUTATE_PATH) == http.client.NOT_FOUND
    assert status_for(guarded, CALLER, guarded.callers) == http.client.BAD_REQUEST
    assert status_for(guarded, "system:node:a", guarded.callers) == http.client.FORBIDDEN
    for name, authority in ((None, others), (CALLER, others)):
        assert is_turned_away(guarded, name, authority)


def is_turned_away(guarded: Guarded, name: str | None, callers: Authority) -> bool:
    """Return True if a caller gets no answer at all."""
    try:
        status_for(guarded, name, callers)
    except (OSError, http.client.HTTPException):
        return True
    return False


def test_the_authority_is_replaced_without_a_restart_of_the_webhook(guarded: Guarded) -> None:
    cluster, successor = guarded.cluster, Authority("successor")
    cluster.wait_until(lambda: is_translated(cluster), "the webhook answers the API server")
    share = pod("whole", limits={"nvidia.com/gpu": 1})
    assert is_turned_away(guarded, CALLER, successor)

    with Load(cluster, "default", share) as load:
        guarded.trust(guarded.callers, successor)
        cluster.wait_until(
            lambda: not is_turned_away(guarded, CALLER, successor), "both are trusted"
        )
        assert status_for(guarded, CALLER, guarded.callers) == http.client.BAD_REQUEST
        before = len(load.created)
        cluster.wait_until(lambda: len(load.created) > before + 8, "pods are created")
    assert load.failures == []

    write_credentials(guarded.directory, successor)
    cluster.restart_api_server()
    cluster.wait_until(lambda: is_translated(cluster), "the API server brings the new certificate")

    with Load(cluster, "default", share) as load:
        guarded.trust(successor)
        cluster.wait_until(
            lambda: is_turned_away(guarded, CALLER, guarded.callers), "the old one is not trusted"
        )
        before = len(load.created)
        cluster.wait_until(lambda: len(load.created) > before + 8, "pods are created")
    assert load.failures == []
    assert guarded.drawbridge.log(WEBHOOK).count("endpoint.listening") == 1


def test_without_the_file_what_was_read_before_stays_trusted(guarded: Guarded) -> None:
    cluster = guarded.cluster
    cluster.wait_until(lambda: is_translated(cluster), "the webhook answers the API server")
    begin = len(guarded.drawbridge.log(WEBHOOK))
    (guarded.directory / "ca.crt").write_bytes(b"no certificate")

    cluster.wait_until(
        lambda: "ca.crt: not certificates" in guarded.drawbridge.log(WEBHOOK)[begin:],
        "the log says what is wrong",
    )

    assert is_translated(cluster)
    assert is_turned_away(guarded, None, guarded.callers)
