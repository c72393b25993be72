"""Every way to write a pod: none changes the record of its translation, and none skips the translation."""

import http.client
import json
from typing import Any, Final

import pytest

from e2e.access import Access, Object, stream
from e2e.objects import pod
from e2e.users import EDITOR, add_user
from kube.names import REQUEST_ANNOTATION, SIGNATURE_ANNOTATION
from testing.documents import api_object

pytestmark = pytest.mark.usefixtures("fleet", "drawbridge")

KEYS: Final = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
JSON_PATCH: Final = "application/json-patch+json"
OURS: Final = (REQUEST_ANNOTATION, SIGNATURE_ANNOTATION)
FORGED: Final = dict.fromkeys(OURS, "forged")
REMOVED: Final = dict.fromkeys(OURS)


def annotated(annotations: Object) -> Object:
    return {"metadata": {"annotations": annotations}}


def escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


WRITES: Final[dict[str, tuple[str, str, Any]]] = {
    "a merge": ("", MERGE, annotated(FORGED)),
    "a merge that removes": ("", MERGE, annotated(REMOVED)),
    "a strategic merge": ("", STRATEGIC, annotated(FORGED)),
    "a strategic merge that removes": ("", STRATEGIC, annotated(REMOVED)),
    "a replacement of all": ("", STRATEGIC, annotated({"$patch": "replace", "a": "b"})),
    "an apply": ("?fieldManager=m&force=true", APPLY, annotated(FORGED)),
    "operations": (
        "",
        JSON_PATCH,
        [{"op": "remove", "path": f"/metadata/annotations/{escaped(name)}"} for name in OURS],
    ),
    "the status": ("/status", MERGE, annotated(FORGED)),
    "the status that removes": ("/status", MERGE, annotated(REMOVED)),
    "an apply of the status": ("/status?fieldManager=m&force=true", APPLY, annotated(FORGED)),
    "ephemeral containers": ("/ephemeralcontainers", STRATEGIC, annotated(FORGED)),
    "ephemeral containers that remove": ("/ephemeralcontainers", STRATEGIC, annotated(REMOVED)),
    "a resize": ("/resize", STRATEGIC, annotated(FORGED)),
    "a resize that removes": ("/resize", STRATEGIC, annotated(REMOVED)),
}
"""The ways of writing it, to subresource, type and body of a PATCH."""


def test_no_write_changes_the_record(cluster: Access, namespace: str) -> None:
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(pod("share", limits=KEYS)))
    before = cluster.wait_running("share", namespace)["metadata"]
    path = f"{cluster.kind('Pod').path(namespace)}/share"
    changed = {}
    for name, (subresource, media_type, body) in WRITES.items():
        document = body
        if media_type == APPLY:
            document = {"apiVersion": "v1", "kind": "Pod", **body}
            document["metadata"] = {**body["metadata"], "name": "share"}
        status, answer = cluster.request(
            "PATCH", path + subresource, document, content_type=media_type
        )
        after = cluster.get("pods", "share", namespace)["metadata"]
        print(name, status, answer[:200] if status >= http.client.BAD_REQUEST else "")
        assert after["uid"] == before["uid"]
        if after["annotations"].get(REQUEST_ANNOTATION) != record_of(before):
            changed[name] = status

    assert changed == {}


def record_of(metadata: Object) -> str:
    return str(metadata["annotations"][REQUEST_ANNOTATION])


@pytest.mark.parametrize("resources", ["limits", "requests"])
def test_an_ephemeral_container_gets_no_devices(
    cluster: Access, namespace: str, resources: str
) -> None:
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(pod("plain")))
    cluster.wait_running("plain", namespace)
    path = f"{cluster.kind('Pod').path(namespace)}/plain/ephemeralcontainers"
    container = {"name": "e", "image": "registry.internal/app:1", "resources": {resources: KEYS}}

    status, answer = cluster.request(
        "PATCH", path, {"spec": {"ephemeralContainers": [container]}}, content_type=STRATEGIC
    )

    assert status == http.client.UNPROCESSABLE_ENTITY, answer


@pytest.mark.parametrize("way", ["apply", "generateName", "dry-run apply", "a Deployment"])
def test_no_way_to_create_a_pod_skips_the_translation(
    cluster: Access, namespace: str, way: str
) -> None:
    add_user(cluster, namespace, EDITOR)
    user = f"system:serviceaccount:{namespace}:{EDITOR}"
    document = pod("share", limits=KEYS)
    pods = cluster.kind("Pod").path(namespace)
    applied = f"{pods}/share?fieldManager=m"
    if way == "a Deployment":
        deployment = deployment_of(document)
        deployments = cluster.kind("Deployment").path(namespace)
        status, answer = cluster.request("POST", deployments, deployment, user=user)
    elif way == "generateName":
        document["metadata"] = {"generateName": "share-"}
        status, answer = cluster.request("POST", pods, document, user=user)
    else:
        applied += "&dryRun=All" if way.startswith("dry-run") else ""
        status, answer = cluster.request("PATCH", applied, document, content_type=APPLY, user=user)
    assert status == http.client.CREATED, answer

    if way.startswith("dry-run"):
        created = json.loads(answer)
        assert cluster.objects("pods", namespace) == []
        assert cluster.objects("resourceclaimtemplates", namespace) == []
    else:
        cluster.wait_until(lambda: cluster.objects("pods", namespace), "the pod is there")
        (created,) = cluster.objects("pods", namespace)
        cluster.wait_running(created["metadata"]["name"], namespace)

    assert set(OURS) <= created["metadata"]["annotations"].keys()
    assert created["spec"]["resourceClaims"]
    (container,) = created["spec"]["containers"]
    assert not KEYS.keys() & container["resources"].get("limits", {}).keys()


def deployment_of(document: Object) -> Object:
    labels = {"app": "share"}
    template = {"metadata": {"labels": labels}, "spec": document["spec"]}
    return api_object(
        "Deployment",
        "share",
        spec={"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    )
