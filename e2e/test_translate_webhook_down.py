"""Objects that depend on the webhook, by the API server's own matchConditions, with the webhook gone.

While nobody answers, a request that would be sent to us fails, and one that succeeds was not sent:
no table of expressions says that as clearly.
"""

import http.client
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from e2e.access import Access, Object, stream
from e2e.drawbridge import WEBHOOK, Drawbridge
from e2e.objects import pod
from e2e.translated import legacy_keys
from kube.names import REQUEST_ANNOTATION, TRANSLATE_LABEL
from testing.documents import api_object

pytestmark = pytest.mark.usefixtures("fleet")

GPU = "nvidia.com/gpu"
LIMITS = {GPU: 1, "nvidia.com/gpumem": 1000}
NAME = "pods.drawbridge.internal"
UPDATES = "updates.drawbridge.internal"
FAILED = f'failed calling webhook "{NAME}"'


class Running(NamedTuple):
    """A translated pod from better days."""

    namespace: str
    name: str


@pytest.fixture(scope="module")
def translated(cluster: Access, drawbridge: Drawbridge, stage: str) -> Running:
    cluster.kubectl("apply", "-n", stage, "-f", "-", input=stream(pod("share", limits=LIMITS)))
    cluster.wait_running("share", stage)
    return Running(stage, "share")


@pytest.fixture(scope="module")
def down(cluster: Access, drawbridge: Drawbridge, translated: Running) -> Iterator[None]:
    """The webhook's process does not run."""
    drawbridge.stop(WEBHOOK)
    yield
    if WEBHOOK not in cluster.children:
        drawbridge.start(WEBHOOK)
        drawbridge.wait_ready()


def calls(cluster: Access) -> float:
    """Return the number of calls of the API server, in vain or not."""
    names = f"({re.escape(NAME)}|{re.escape(UPDATES)})"
    line = rf'^apiserver_admission_webhook_request_total{{.*name="{names}".*}} (\S+)$'
    return sum(float(count) for _, count in re.findall(line, cluster.api_metrics(), re.MULTILINE))


class Case(NamedTuple):
    """Attributes: spec: Of the pod, as JSON that no client has tidied."""

    name: str
    spec: Object
    metadata: Mapping[str, Any] = {}


def container_with(**fields: Any) -> Object:
    return {"name": "main", "image": "registry.internal/app:1", **fields}


def pod_spec_with(**resources: Any) -> Object:
    return {"containers": [container_with(resources=resources)]}


NOT_CALLED = (
    Case("no resources", {"containers": [container_with()]}),
    Case("resources that are null", {"containers": [container_with(resources=None)]}),
    Case("limits and requests that are null", pod_spec_with(limits=None, requests=None)),
    Case("limits that are empty", pod_spec_with(limits={})),
    Case("other resources only", pod_spec_with(limits={"cpu": "1", "memory": "1Gi"})),
    Case("another vendor's devices", pod_spec_with(limits={"mthreads.com/vgpu": 1})),
    Case(
        "a key that only begins like one of ours", pod_spec_with(limits={"nvidia.com/gpumemory": 1})
    ),
    Case(
        "init containers that are null", {"initContainers": None, "containers": [container_with()]}
    ),
    Case(
        "labels and annotations that are null",
        {"containers": [container_with()]},
        {"labels": None, "annotations": None},
    ),
    Case("annotations of others", {"containers": [container_with()]}, {"annotations": {"a": "b"}}),
    Case(
        "HAMi's annotations without keys",
        {"containers": [container_with()]},
        {"annotations": {"nvidia.com/use-gputype": "A100"}},
    ),
    Case(
        "a pod that opted out",
        pod_spec_with(limits={GPU: 1}),
        {"labels": {TRANSLATE_LABEL: "false"}},
    ),
)

CALLED = (
    Case("a limit", pod_spec_with(limits={GPU: 1})),
    Case("a request without a limit", pod_spec_with(requests={GPU: 1})),
    Case("a request beside limits that are null", pod_spec_with(limits=None, requests={GPU: 1})),
    Case("a key of HAMi's", pod_spec_with(limits={"nvidia.com/gpumem": 100})),
    Case("a key with a prefix", pod_spec_with(limits={"nvidia.com/mig-1g.5gb": 1})),
    Case("a MIG profile that does not exist", pod_spec_with(limits={"nvidia.com/mig-": 1})),
    Case(
        "an init container only",
        {
            "initContainers": [container_with(name="setup", resources={"limits": {GPU: 1}})],
            "containers": [container_with()],
        },
    ),
    Case(
        "the second container",
        {
            "containers": [
                container_with(),
                container_with(name="second", resources={"limits": {GPU: 1}}),
            ]
        },
    ),
    Case("amounts of zero", pod_spec_with(limits={GPU: 0})),
    Case(
        "a label that is not false",
        pod_spec_with(limits={GPU: 1}),
        {"labels": {TRANSLATE_LABEL: "no"}},
    ),
    Case(
        "our annotation without keys",
        {"containers": [container_with()]},
        {"annotations": {REQUEST_ANNOTATION: "{}"}},
    ),
    Case(
        "our annotation on a pod that opted out",
        {"containers": [container_with()]},
        {"annotations": {REQUEST_ANNOTATION: "{}"}, "labels": {TRANSLATE_LABEL: "false"}},
    ),
)


def post(cluster: Access, namespace: str, case: Case) -> tuple[int, str]:
    """Create a pod from JSON as it is, in a dry run."""
    document = api_object("Pod", "pod", **case.metadata, spec=case.spec)
    path = cluster.kind("pods").path(namespace)
    status, body = cluster.request("POST", f"{path}?dryRun=All", document)
    return status, json.loads(body).get("message", "")


@pytest.mark.usefixtures("down")
@pytest.mark.parametrize("case", NOT_CALLED, ids=lambda case: case.name)
def test_a_pod_that_does_not_depend_on_us(cluster: Access, workshop: str, case: Case) -> None:
    before = calls(cluster)

    assert post(cluster, workshop, case) == (http.client.CREATED, "")
    assert calls(cluster) == before


@pytest.mark.usefixtures("down")
@pytest.mark.parametrize("case", CALLED, ids=lambda case: case.name)
def test_a_pod_that_waits_for_us(cluster: Access, workshop: str, case: Case) -> None:
    before = calls(cluster)

    status, message = post(cluster, workshop, case)

    assert status == http.client.INTERNAL_SERVER_ERROR
    assert FAILED in message
    assert calls(cluster) == before + 1


@pytest.mark.usefixtures("down")
@pytest.mark.parametrize("namespace", ["kube-system", "drawbridge-system"])
def test_a_namespace_that_does_not_depend_on_us(cluster: Access, namespace: str) -> None:
    case = Case(
        "",
        {
            **pod_spec_with(limits={GPU: 1, "cpu": "1"}),
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        },
    )
    (only,) = case.spec["containers"]
    only["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

    assert post(cluster, namespace, case) == (http.client.CREATED, "")


@pytest.mark.usefixtures("down")
def test_plain_pods_start_live_and_end_without_us(cluster: Access, namespace: str) -> None:
    """Status, finalizers, labels and deletion: kwok and the scheduler write these as well."""
    before = calls(cluster)
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(pod("plain")))
    cluster.wait_running("plain", namespace)

    touch(cluster, namespace, "plain")

    cluster.kubectl("delete", "-n", namespace, "pod", "plain", "--wait=false")
    cluster.wait_gone("pods", "plain", namespace)
    assert calls(cluster) == before


@pytest.mark.usefixtures("down")
@pytest.mark.parametrize("through", ["", "status"])
def test_our_annotation_cannot_be_written_behind_our_back(
    cluster: Access, namespace: str, through: str
) -> None:
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(pod("plain")))
    patch = json.dumps({"metadata": {"annotations": {REQUEST_ANNOTATION: "{}"}}})
    command = ("patch", "-n", namespace, "pod", "plain", "--type=merge", "-p", patch)

    output = cluster.kubectl(*command, f"--subresource={through}", check=False)

    assert output.returncode == 1
    assert f'failed calling webhook "{UPDATES}"' in output.stderr


@pytest.mark.usefixtures("down")
def test_translated_pods_live_and_end_without_us(cluster: Access, translated: Running) -> None:
    before = calls(cluster)

    touch(cluster, *translated)

    target = ("-n", translated.namespace, "pod", translated.name)
    cluster.kubectl("delete", *target, "--wait=false")
    cluster.wait_gone("pods", translated.name, translated.namespace)
    assert calls(cluster) == before


def touch(cluster: Access, namespace: str, name: str) -> None:
    """Change fields of a pod that controllers change."""
    patch = ("patch", "-n", namespace, "pod", name, "--type=merge", "-p")
    cluster.kubectl(*patch, json.dumps({"metadata": {"finalizers": ["story.internal/held"]}}))
    cluster.kubectl(*patch, json.dumps({"metadata": {"finalizers": None}}))
    cluster.kubectl(*patch, json.dumps({"metadata": {"annotations": {"team": "blue"}}}))
    cluster.kubectl(*patch, json.dumps({"metadata": {"labels": {"team": "blue"}}}))
    cluster.kubectl(*patch, json.dumps({"status": {"message": "fine"}}), "--subresource=status")


@pytest.mark.usefixtures("down")
def test_words_that_kubectl_says_and_a_pod_that_comes_again(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    create = ("create", "-n", namespace, "-f", "-")
    share = stream(pod("share", limits=LIMITS))

    output = cluster.kubectl(*create, input=share, check=False)

    assert output.returncode == 1
    assert "Error from server (InternalError): error when creating" in output.stderr
    assert FAILED in output.stderr
    assert cluster.find("pods", "share", namespace) is None

    drawbridge.start(WEBHOOK)
    drawbridge.wait_ready()
    cluster.kubectl(*create, input=share)
    assert legacy_keys(cluster.wait_running("share", namespace)) == set()
