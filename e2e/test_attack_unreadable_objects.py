"""Objects that an API server stores and Drawbridge cannot read as it should: nobody is left without words.

The webhook for workloads has failurePolicy Ignore, so whatever is no review admits them unvalidated.
"""

import http.client
import json
from typing import Final

import pytest

from e2e.access import Access, Object
from e2e.custom_kinds import served_kind
from e2e.drawbridge import WEBHOOK, Drawbridge
from e2e.inventory import HAMI
from e2e.objects import container, deployment, pod
from testing.documents import api_object

pytestmark = pytest.mark.usefixtures("fleet")

SHARE: Final[dict[str, str | int]] = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}
AMOUNTS: Final = ("1e400", "1" * 200, "1e4294967295", "1e129")
JOBS: Final = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"


def create(cluster: Access, path: str, document: Object) -> tuple[int, str]:
    """Create an object; return status and body."""
    status, body = cluster.request("POST", path, document)
    return status, body.decode(errors="replace")


def app(name: str, limits: dict[str, str | int], **metadata: object) -> Object:
    """A Deployment of a pod with limits."""
    document = deployment(name, pod("pod", limits=limits, labels={"app": "a"}))
    document["metadata"] |= metadata
    return document


def test_amounts_that_are_too_large_are_validated(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    log = len(drawbridge.log(WEBHOOK))
    path = cluster.kind("Deployment").path(namespace)
    for number, amount in enumerate(AMOUNTS):
        limits = {**SHARE, "nvidia.com/gpu": amount}
        status, body = create(cluster, path, app(f"many-{number}", limits))
        assert status == http.client.UNPROCESSABLE_ENTITY, body
        assert "containers[0].resources.limits[nvidia.com/gpu]" in body
    status, body = create(cluster, path, app("cpu", {**SHARE, "cpu": "1e400"}))
    assert status == http.client.CREATED, body

    request = {"deviceClassName": HAMI, "capacity": {"requests": {"memory": "1e400"}}}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    claim = {**head, "metadata": {"name": "large"}, "spec": spec}
    create(cluster, cluster.kind("ResourceClaim").path(namespace), claim)

    text = drawbridge.log(WEBHOOK)[log:]
    assert "review.rejected" not in text
    assert "object.decode_failed" not in text


def test_brackets_in_texts_keep_no_workload_from_its_pods(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    log = len(drawbridge.log(WEBHOOK))
    document = app("brackets", dict(SHARE), annotations={"a": "[" * 200_001})
    document["spec"]["template"]["spec"]["containers"][0]["command"] = ["{" * 200_001]

    status, body = create(cluster, cluster.kind("Deployment").path(namespace), document)

    assert status == http.client.CREATED, body
    cluster.wait_until(
        lambda: bool(json.loads(cluster.raw(f"/api/v1/namespaces/{namespace}/pods"))["items"]),
        "the Deployment has a pod",
    )
    assert "review.rejected" not in drawbridge.log(WEBHOOK)[log:]


def test_templates_with_wrong_types_are_reported(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    spec = {"containers": [container("pytorch", limits=SHARE)]}
    templates = (
        {"metadata": {"labels": {"a": 1}}, "spec": spec},
        {"metadata": {"annotations": {"a": None}}, "spec": spec},
        {"spec": {**spec, "priority": 1.5}},
        {"spec": {"containers": [{**spec["containers"][0], "env": "text"}]}},
    )
    path = JOBS.format(namespace)
    with served_kind(cluster, "PyTorchJob", "pytorchjobs", "kubeflow.org"):
        answers: list[tuple[int, str]] = []

        def is_denied() -> bool:
            limits = {**SHARE, "nvidia.com/gpu": "many"}
            answers.append(create(cluster, path, job(pod_of(limits))))
            if answers[-1][0] == http.client.CREATED:
                cluster.request("DELETE", f"{path}/train")
            return "invalidQuantity" in answers[-1][1]

        cluster.wait_until(is_denied, "the webhook reviews the kind")
        log = len(drawbridge.log(WEBHOOK))
        for template in templates:
            status, body = create(cluster, path, job(template))
            assert status == http.client.CREATED, body
            cluster.request("DELETE", f"{path}/train")

        text = drawbridge.log(WEBHOOK)[log:]
        assert "review.rejected" not in text
        assert text.count('"notEvaluated"') == len(templates)


def pod_of(limits: dict[str, str | int]) -> Object:
    """A pod template with limits."""
    return {"spec": {"containers": [container("pytorch", limits=limits)]}}


def job(template: Object) -> Object:
    """A job of one worker."""
    return api_object(
        "PyTorchJob", "train", spec={"pytorchReplicaSpecs": {"Worker": {"template": template}}}
    )
