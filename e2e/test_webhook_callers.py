"""An API server that brings a certificate, and a webhook that answers nobody else.

The control plane is one of its own: only a flag of the API server makes it bring one.
"""

import http.client
import json
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from admission.webhook_configuration import MUTATE_PATH
from e2e.access import stream
from e2e.cluster import Cluster
from e2e.credentials import Authority, certificate_user, cluster_entry, kubeconfig, write_secret
from e2e.drawbridge import CERTIFICATES, CONTROLLER, WEBHOOK, Drawbridge, rendered
from e2e.objects import pod
from e2e.translated import legacy_keys

CALLER = "kube-apiserver"
CONFIGURATION = "apiserver.config.k8s.io/v1"


class Guarded(NamedTuple):
    """A cluster, a webhook, and the authority of those that may ask it."""

    cluster: Cluster
    drawbridge: Drawbridge
    callers: Authority
    directory: Path


def admission_configuration(directory: Path, callers: Authority) -> Path:
    """A file that has the API server call webhooks with a certificate."""
    user = certificate_user(callers.issue(CALLER))
    # The user's name says for which webhooks: a host and port, or all.
    text = kubeconfig(cluster_entry("https://unused", callers.certificate), user, name="*")
    write_secret(directory / "callers.kubeconfig", text)
    inside = {
        "apiVersion": CONFIGURATION,
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(directory / "callers.kubeconfig"),
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
    (directory / "callers.crt").write_bytes(callers.certificate)
    flag = f"--admission-control-config-file={admission_configuration(directory, callers)}"
    settings = {
        "webhook": {"clientCaFile": str(directory / "callers.crt"), "clientNames": [CALLER]}
    }
    with Cluster(directory / "cluster", api_server_flags=[flag]) as cluster:
        drawbridge = Drawbridge(cluster, rendered(cluster), settings)
        cluster.apply(drawbridge.applied())
        for name in (CERTIFICATES, CONTROLLER, WEBHOOK):
            drawbridge.start(name)
        yield Guarded(cluster, drawbridge, callers, directory)


def create(cluster: Cluster) -> tuple[int, str]:
    """Make a pod in a dry run; returns kubectl's status and its words."""
    share = stream(pod("whole", limits={"nvidia.com/gpu": 1}))
    command = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    output = cluster.kubectl(*command, input=share, check=False)
    return output.returncode, output.stdout or output.stderr


def status_for(
    guarded: Guarded, name: str | None, callers: Authority, path: str | None = None
) -> int:
    """The status that a caller of that name gets who knows the path."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if name is not None:
        context.load_cert_chain(*callers.issue(name).write(guarded.directory, "asked"))
    endpoints = guarded.drawbridge.endpoints
    connection = http.client.HTTPSConnection(
        endpoints.host, endpoints.webhook, timeout=10, context=context
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
    """Return whether the API server gets an answer; it does not call before the rules are there."""
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
        with pytest.raises((OSError, http.client.HTTPException)):
            status_for(guarded, name, authority)
