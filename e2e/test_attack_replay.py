"""A record and its signature, copied from a pod of the same namespace: a copy gets nothing after things changed."""

import json
from typing import Any, Final

import pytest

from e2e.access import Access, Object, stream
from e2e.objects import pod
from e2e.users import PODS_ONLY, add_user
from kube.names import REQUEST_ANNOTATION, SIGNATURE_ANNOTATION, TRANSLATE_LABEL
from testing.documents import api_object, resource_quota

pytestmark = pytest.mark.usefixtures("fleet", "drawbridge")

GPU: Final = "nvidia.com/gpu"
KEYS: Final = {GPU: 1, "nvidia.com/gpumem": 4000}
GATED: Final = [{"name": "story.internal/wait"}]
OWN_FIELDS: Final = ("serviceAccountName", "serviceAccount", "volumes", "tolerations", "nodeName")


@pytest.fixture
def signed(cluster: Access, namespace: str) -> Object:
    """A pod that the webhook signed; neither it nor its template is there any more."""
    document = pod("signed", limits=KEYS, schedulingGates=GATED)
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(document))
    signed_pod = cluster.get("pods", "signed", namespace)
    (claim,) = signed_pod["spec"]["resourceClaims"]
    template = claim["resourceClaimTemplateName"]
    cluster.wait_for("resourceclaimtemplates", template, namespace)
    cluster.kubectl("delete", "-n", namespace, "pod", "signed", "--force")
    cluster.wait_gone("resourceclaimtemplates", template, namespace)
    return signed_pod


def copy_of(signed_pod: Object, name: str, **members: Any) -> Object:
    """A pod as a user would write it after another one; `members` of its metadata and spec."""
    spec = {k: v for k, v in signed_pod["spec"].items() if k not in OWN_FIELDS}
    del spec["schedulingGates"]
    for container in spec["containers"]:
        container.pop("volumeMounts", None)
    annotations = {
        name: text
        for name, text in signed_pod["metadata"]["annotations"].items()
        if name in {REQUEST_ANNOTATION, SIGNATURE_ANNOTATION}
    }
    return api_object(
        "Pod",
        name,
        annotations=annotations,
        labels={"app": "copy", **members.get("labels", {})},
        spec={**spec, **members.get("spec", {})},
    )


@pytest.mark.parametrize(
    "members",
    [{"labels": {TRANSLATE_LABEL: "false"}}, {"spec": {"nodeName": "hami-0"}}],
    ids=["opted out", "on a node"],
)
def test_a_signature_cannot_be_brought_back_past_a_quota(
    cluster: Access, namespace: str, signed: Object, members: Object
) -> None:
    """A pod that is left alone loses the copied signature, and its user writes it once more."""
    user = add_user(cluster, namespace, PODS_ONLY)
    quota = resource_quota({f"requests.{GPU}": "0"}, namespace="")
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(quota))
    create = ("create", "-n", namespace, "-f", "-")
    honest_copy = stream(copy_of(signed, "honest"))

    def refusal() -> str:
        command = (*create, "--dry-run=server")
        return cluster.kubectl(*command, input=honest_copy, check=False, kubeconfig=user).stderr

    cluster.wait_until(lambda: "quotaNotCounted" in refusal(), "the webhook knows of the quota")
    cluster.kubectl(*create, input=stream(copy_of(signed, "copy", **members)), kubeconfig=user)
    assert SIGNATURE_ANNOTATION not in annotations_of(cluster, namespace)

    signature = signed["metadata"]["annotations"][SIGNATURE_ANNOTATION]
    patch = json.dumps({"metadata": {"annotations": {SIGNATURE_ANNOTATION: signature}}})
    for subresource in ("", "status"):
        command = ("patch", "-n", namespace, "pod", "copy", "--type=merge", "-p", patch)
        cluster.kubectl(*command, f"--subresource={subresource}", kubeconfig=user)
        assert SIGNATURE_ANNOTATION not in annotations_of(cluster, namespace)

    cluster.wait_until(
        lambda: any(
            event["reason"] == "TranslationNotSigned" and event["regarding"]["name"] == "copy"
            for event in cluster.objects("events.events.k8s.io", namespace)
        ),
        "the pod is told that nobody creates its template",
    )
    assert cluster.objects("resourceclaimtemplates", namespace) == []
    assert cluster.objects("resourceclaims", namespace) == []


def annotations_of(cluster: Access, namespace: str) -> Object:
    annotations: Object = cluster.get("pods", "copy", namespace)["metadata"]["annotations"]
    return annotations


@pytest.mark.parametrize(
    ("api_version", "kind", "path"),
    [
        ("apps/v1", "Deployment", ("template",)),
        ("apps/v1", "DaemonSet", ("template",)),
        ("apps/v1", "ReplicaSet", ("template",)),
        ("apps/v1", "StatefulSet", ("template",)),
        ("batch/v1", "Job", ("template",)),
        ("batch/v1", "CronJob", ("jobTemplate", "spec", "template")),
    ],
)
def test_a_template_with_a_copied_record_and_more_devices_is_refused(
    *, cluster: Access, namespace: str, signed: Object, api_version: str, kind: str, path: Object
) -> None:
    copy = copy_of(signed, "copy")
    inside = {"metadata": copy["metadata"] | {"name": ""}, "spec": copy["spec"]}
    (container,) = inside["spec"]["containers"]
    for field in ("limits", "requests"):
        container["resources"][field] = {**container["resources"].get(field, {}), GPU: "8"}
    spec: Object = {}
    if api_version == "apps/v1":
        spec["selector"] = {"matchLabels": {"app": "copy"}}
    else:
        inside["spec"]["restartPolicy"] = "Never"
    if kind == "StatefulSet":
        spec["serviceName"] = "copy"
    if kind == "CronJob":
        spec["schedule"] = "* * * * *"
    for name in reversed(path):
        inside = {name: inside}
    workload = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "copy"}}

    output = cluster.kubectl(
        *("create", "-n", namespace, "--dry-run=server", "-f", "-"),
        input=stream({**workload, "spec": {**spec, **inside}}),
        check=False,
    )

    assert output.returncode == 1
    assert "drawbridge[translationRecordChanged]" in output.stderr
    assert "recorded 1, found 8" in output.stderr
