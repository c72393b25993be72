"""Objects with text that is no Unicode; the API server stores and returns it as it was written.

Opaque parameters are such a field, and so are managedFields. One claim with half a character would make each list
of claims unreadable, and with it every process that starts.
"""

import http.client
import json
from collections.abc import Iterator
from typing import Final

import pytest

from e2e.access import Access, Object, stream
from e2e.drawbridge import CONTROLLER, WEBHOOK, Drawbridge
from e2e.inventory import HAMI
from e2e.objects import pod
from e2e.users import EDITOR, PODS_ONLY, add_user

pytestmark = pytest.mark.usefixtures("fleet")

HONEST: Final = pod("honest", limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000})
MARK: Final = '"TEXT"'
TEXTS: Final = {
    "first-half": rb'"\ud800"',
    "second-half": rb'"\udc00"',
    "no-utf-8": b'"\xff"',
    "half-in-utf-8": b'"\xed\xa0\x80"',
}
"""Name to a JSON string."""


@pytest.fixture
def stored_texts(cluster: Access, drawbridge: Drawbridge, namespace: str) -> Iterator[None]:
    """Such texts in claims and templates of an editor, and in pods of a user with no other rights."""
    users = {name: f"system:serviceaccount:{namespace}:{name}" for name in (EDITOR, PODS_ONLY)}
    for name in users:
        add_user(cluster, namespace, name)
    for name, text in TEXTS.items():
        for document in claim_and_template(name):
            create(cluster, namespace, document, text, users[EDITOR])
        create(cluster, namespace, pod_with_managed_fields(name), text, users[PODS_ONLY])
    yield
    drawbridge.wait_ready()


def claim_and_template(name: str) -> Iterator[Object]:
    opaque = {"driver": HAMI, "parameters": {"a": "TEXT"}}
    request = {"name": "gpu", "exactly": {"deviceClassName": HAMI}}
    spec = {"devices": {"requests": [request], "config": [{"opaque": opaque}]}}
    head = {"apiVersion": "resource.k8s.io/v1", "metadata": {"name": name}}
    yield {**head, "kind": "ResourceClaim", "spec": spec}
    yield {**head, "kind": "ResourceClaimTemplate", "spec": {"spec": spec}}


def pod_with_managed_fields(name: str) -> Object:
    document = pod(name)
    document["metadata"]["managedFields"] = [
        {
            "manager": "m",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:annotations": {"TEXT": {}}}},
        }
    ]
    return document


def create(cluster: Access, namespace: str, document: Object, text: bytes, user: str) -> None:
    path = cluster.kind(document["kind"]).path(namespace)
    # Keys of managedFields begin with the sort of what they name.
    key = b'"f:' + text[1:] if document["kind"] == "Pod" else text
    body = json.dumps(document).encode().replace(MARK.encode(), key)
    status, answer = cluster.request("POST", path, body, user=user)
    assert status == http.client.CREATED, answer


@pytest.mark.usefixtures("stored_texts")
def test_processes_that_start_beside_such_objects_serve_honest_pods(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    logs = {name: len(drawbridge.log(name)) for name in (WEBHOOK, CONTROLLER)}

    with drawbridge.configured({}):  # They are started anew, and list everything.
        cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(HONEST))
        cluster.wait_running("honest", namespace, timeout_s=120)

    for name, length in logs.items():
        log = drawbridge.log(name)[length:]
        assert "unexpected response" not in log
        assert "object.decode_failed" not in log


@pytest.mark.usefixtures("stored_texts")
def test_commands_read_such_objects(cluster: Access) -> None:
    for command in ("check", "assess", "inventory"):
        completed = cluster.kubectl("drawbridge", command, "--live", check=False)

        assert "Traceback" not in completed.stderr
        assert "unexpected response" not in completed.stdout + completed.stderr
