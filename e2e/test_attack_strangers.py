"""Clients that reach the webhook and may not read webhook configurations: they learn nothing."""

import http.client
import json
import re
from typing import Any, Final

import pytest

from admission.webhook_configuration import WEBHOOK_PATHS, configuration
from e2e.access import Access
from e2e.attacks import raw_answer
from e2e.drawbridge import WEBHOOK, Drawbridge
from e2e.objects import pod

LIMITS: Final = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}

pytestmark = pytest.mark.usefixtures("fleet")


def unread(drawbridge: Drawbridge) -> float:
    """Return the number of requests that were answered without being read."""
    name = "drawbridge_requests_to_unknown_paths_total"
    match = re.search(rf"^{name} (\S+)$", drawbridge.metrics(WEBHOOK), re.MULTILINE)
    return float(match[1]) if match else 0.0


def test_a_stranger_gets_one_answer_whatever_is_asked(drawbridge: Drawbridge) -> None:
    keys = {drawbridge.path(name).rpartition("/") for name in WEBHOOK_PATHS}
    key = drawbridge.path().rpartition("/")[2]
    paths = [
        *WEBHOOK_PATHS.values(),
        *(f"{path}/{'0' * 32}" for path in WEBHOOK_PATHS.values()),
        # A key opens no path but its own.
        *(
            f"{path}/{other}"
            for path in WEBHOOK_PATHS.values()
            for own, _, other in keys
            if own != path
        ),
        f"/mutate/{key[:-1]}",
        f"/mutate/{key.upper()}",
        f"/{key}",
        f"/metrics/{key}",
        "/livez",
        "/readyz?verbose",
        "/metrics",
        "/healthz",
    ]
    before = unread(drawbridge)

    plain = "HTTP/1.1\r\nHost: a\r\n\r\n"
    # A body that says it is long and never comes: nobody waits for it.
    endless = "HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{"
    requests = [
        *(f"{method} {path} {plain}" for path in paths for method in ("POST", "GET")),
        *(f"POST {path} {endless}" for path in paths[:4]),
    ]
    answers = {raw_answer(drawbridge, request.encode()) for request in requests}

    (answer,) = answers
    head, _, body = answer.partition(b"\r\n\r\n")
    assert (head.split()[1], body) == (b"404", b"")
    keys_ = [other.encode() for _, _, other in keys]
    assert len(set(keys_)) == len(set(WEBHOOK_PATHS.values()))
    for secret in (b"aiohttp", b"Python", b"drawbridge", *keys_):
        assert secret.lower() not in answer.lower()
    assert unread(drawbridge) >= before + len(requests)
    assert key not in drawbridge.log(WEBHOOK)


def test_a_review_at_the_fixed_path_is_not_parsed(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    review: dict[str, Any] = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": namespace,
            "operation": "CREATE",
            "object": pod("stranger", limits=LIMITS),
        },
    }
    before = drawbridge.decisions("translated")

    for path in (*WEBHOOK_PATHS.values(), f"/mutate/{'0' * 32}"):
        body = json.dumps(review).encode()
        assert drawbridge.post(body, path=path) == (http.client.NOT_FOUND, b"")
    assert drawbridge.decisions("translated") == before

    assert drawbridge.post(json.dumps(review).encode())[0] == http.client.OK
    assert drawbridge.decisions("translated") == before + 1


def test_an_apply_of_the_manifests_keeps_the_path(cluster: Access) -> None:
    # A copy of our configuration as the manifests have it; without rules it is never called.
    copied = {**configuration([]), "metadata": {"name": "copied"}}
    own_path = f"/mutate/{'a' * 32}"
    cluster.apply(copied)
    try:
        step = {"op": "add", "path": "/webhooks/0/clientConfig/service/path", "value": own_path}
        target = ("mutatingwebhookconfiguration", "copied", "--type=json")
        cluster.kubectl("patch", *target, "-p", json.dumps([step]))
        changed = {**copied, "metadata": {"name": "copied", "labels": {"changed": "yes"}}}
        cluster.apply(changed)

        stored = cluster.get("mutatingwebhookconfiguration", "copied")
        assert stored["metadata"]["labels"] == {"changed": "yes"}
        assert stored["webhooks"][0]["clientConfig"]["service"]["path"] == own_path
    finally:
        cluster.kubectl("delete", "mutatingwebhookconfiguration", "copied")
