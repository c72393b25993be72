"""The author of a workload hears at once of the rejections of its pods; no workload ever waits for us.

In kubectl's own words, since these are what users see.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from e2e.access import Access, Object, stream
from e2e.drawbridge import WEBHOOK, Drawbridge, command_line
from e2e.inventory import HAMI
from e2e.objects import cron_job, daemon_set, deployment, job, pod, replica_set, stateful_set
from e2e.translated import legacy_keys
from kube.names import REQUEST_ANNOTATION, TRANSLATE_LABEL
from testing.documents import api_object, resource_quota

pytestmark = pytest.mark.usefixtures("fleet", "drawbridge")

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
SHARE: Final = pod("pod", limits={GPU: 1, MEMORY: 3000})
BYTES: Final = pod("pod", limits={GPU: 1, MEMORY: "8Gi"})
BINPACK: Final = pod(
    "pod",
    limits={GPU: 1, MEMORY: 3000},
    annotations={"hami.io/gpu-scheduler-policy": "binpack"},
)
"""Good, wrong by itself, and good with a loss."""
LIMIT: Final = f"spec.containers[0].resources.limits[{MEMORY}]"
ADVICE: Final = "drawbridge[wrongUnit]: 8Gi is a number of bytes, and nvidia.com/gpumem counts MiB; write 8192 for 8Gi"
DRY: Final = "--dry-run=server"

Make = Callable[[str, Object], Object]
KINDS: Final[dict[str, Make]] = {
    "CronJob": cron_job,
    "DaemonSet": daemon_set,
    "Deployment": deployment,
    "Job": job,
    "ReplicaSet": replica_set,
    "StatefulSet": stateful_set,
}


def create(cluster: Access, namespace: str, document: Object, *flags: str) -> tuple[int, str]:
    """Exit status and words of `kubectl create`."""
    command = ("create", "-n", namespace, "-f", "-", *flags)
    output = cluster.kubectl(*command, input=stream(document), check=False)
    return output.returncode, output.stderr


# --- each kind ------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [(DRY,), ()], ids=["in a dry run", "for real"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_mistake_is_denied_with_its_place_and_its_cure(
    cluster: Access, namespace: str, kind: str, flags: tuple[str, ...]
) -> None:
    status, words = create(cluster, namespace, KINDS[kind]("wrong", BYTES), *flags)

    above = "spec.jobTemplate.spec.template" if kind == "CronJob" else "spec.template"
    assert status == 1
    assert words == f'The {kind} "wrong" is invalid: {above}.{LIMIT}: {ADVICE}\n'
    assert cluster.find(f"{kind.lower()}s", "wrong", namespace) is None


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_lost_is_reported_once(cluster: Access, workshop: str, kind: str) -> None:
    status, words = create(cluster, workshop, KINDS[kind]("lossy", BINPACK), DRY)

    (line,) = words.splitlines()
    assert status == 0
    assert line.startswith(
        "Warning: drawbridge[policyDropped]: metadata.annotations[hami.io/gpu-scheduler-policy]: "
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_right_is_silent_and_stays_as_it_is(
    cluster: Access, workshop: str, kind: str
) -> None:
    document = KINDS[kind]("right", SHARE)
    command = ("create", "-n", workshop, "-f", "-", DRY, "-o", "json")

    output = cluster.kubectl(*command, input=stream(document))

    spec = json.loads(output.stdout)["spec"]
    template = spec.get("jobTemplate", {}).get("spec", spec)["template"]
    assert output.stderr == ""
    assert legacy_keys(template) == {GPU, MEMORY}
    assert "resourceClaims" not in template["spec"]


# --- what is so now, and may not be when the pods come ---------------------------------------------


def test_a_quota_only_warns_at_the_workload(cluster: Access, namespace: str) -> None:
    cluster.apply(resource_quota({f"requests.{GPU}": "4"}, namespace=namespace))
    share = deployment("share", SHARE)
    cluster.wait_until(
        lambda: create(cluster, namespace, share, DRY)[1], "the webhook knows of the quota"
    )

    status, words = create(cluster, namespace, share, DRY)

    assert status == 0
    assert "pods would be rejected now: ResourceQuota gpus counts requests.nvidia.com/gpu" in words


# --- updates --------------------------------------------------------------------------------------


@pytest.fixture
def wrong(cluster: Access, namespace: str) -> Object:
    """A Deployment with a mistake, from before anybody looked."""
    cluster.kubectl("label", "namespace", namespace, f"{TRANSLATE_LABEL}=false")
    cluster.wait_until(
        lambda: create(cluster, namespace, deployment("wrong", BYTES), DRY)[0] == 0,
        "nobody looks at the namespace",
    )
    deployment_ = deployment("wrong", BYTES, replicas=0)
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(deployment_))
    cluster.wait_until(
        lambda: cluster.objects("replicasets", namespace), "the Deployment has a ReplicaSet"
    )
    cluster.kubectl("label", "namespace", namespace, f"{TRANSLATE_LABEL}-")
    cluster.wait_until(
        lambda: create(cluster, namespace, deployment("other", BYTES), DRY)[0] == 1,
        "somebody looks at the namespace",
    )
    return cluster.get("deployments", "wrong", namespace)


def test_an_update_that_leaves_the_template_alone_is_never_denied(
    cluster: Access, namespace: str, wrong: Object
) -> None:
    target = ("-n", namespace, "deployment", "wrong")

    cluster.kubectl("annotate", *target, "team=blue")
    cluster.kubectl("label", *target, "team=blue")
    cluster.kubectl("patch", *target, "--type=merge", "-p", '{"spec":{"minReadySeconds":1}}')
    cluster.kubectl("scale", *target, "--replicas=1")
    cluster.kubectl("delete", *target)


def test_an_update_of_the_template_is_validated(
    cluster: Access, namespace: str, wrong: Object
) -> None:
    patch = ("patch", "-n", namespace, "deployment", "wrong", "--type=json", "-p")
    limit = "/spec/template/spec/containers/0/resources"
    amounts: dict[str, Any] = {GPU: 1, MEMORY: "8192"}
    mend = [{"op": "replace", "path": limit, "value": {"limits": amounts}}]
    other = [{"op": "add", "path": "/spec/template/metadata/labels/a", "value": "b"}]

    output = cluster.kubectl(*patch, json.dumps(other), check=False)
    mended = cluster.kubectl(*patch, json.dumps(mend))

    assert output.returncode == 1
    assert ADVICE in output.stderr
    assert mended.stderr == ""


def test_a_replica_set_of_a_deployment_is_never_starved(
    cluster: Access, namespace: str, wrong: Object
) -> None:
    (first,) = cluster.objects("replicasets", namespace)

    cluster.kubectl("delete", "-n", namespace, "replicaset", first["metadata"]["name"])

    def is_replaced() -> bool:
        objects = cluster.objects("replicasets", namespace)
        return bool(objects) and objects[0]["metadata"]["uid"] != first["metadata"]["uid"]

    cluster.wait_until(is_replaced, "the Deployment has a ReplicaSet again")


# --- pod templates that were translated before ----------------------------------------------------


def printed(cluster: Access, namespace: str) -> Object:
    """A translated Deployment, as `drawbridge translate` prints it."""
    command_line_ = command_line(
        cluster, "translate", "-f", "-", "-o", "json", input=stream(deployment("share", SHARE))
    )
    (_, translated) = json.loads(command_line_.stdout)["objects"]
    document: Object = translated
    return document


def test_what_was_printed_passes_and_a_forgery_does_not(cluster: Access, workshop: str) -> None:
    document = printed(cluster, workshop)

    assert create(cluster, workshop, document, DRY) == (0, "")

    metadata = document["spec"]["template"]["metadata"]
    request = json.loads(metadata["annotations"][REQUEST_ANNOTATION])
    request["containers"][0]["limits"][MEMORY] = "80000"
    metadata["annotations"][REQUEST_ANNOTATION] = json.dumps(request)
    status, words = create(cluster, workshop, document, DRY)

    assert status == 1
    assert f"spec.template.metadata.annotations[{REQUEST_ANNOTATION}]: drawbridge[" in words
    assert "but the pod does not use it so" in words


# --- onlookers ------------------------------------------------------------------------------------


def definition(group: str, kind: str) -> Object:
    """A CustomResourceDefinition of the simplest kind."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # The API server keeps groups of kubernetes.io and k8s.io to those that say this.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a story"},
        },
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def config_map(namespace: str, name: str, **data: str) -> Object:
    return api_object("ConfigMap", name, namespace, data=data)


MAPPING: Final = f"{{name: {GPU}, deviceClassNames: [{HAMI}]}}"
ONLOOKERS: Final = (
    (
        definition("kueue.x-k8s.io", "ClusterQueue"),
        f"Kueue does not count these claims; add to its deviceClassMappings: {MAPPING}",
    ),
    (definition("karpenter.sh", "NodePool"), "Karpenter adds no node for claims"),
    (
        config_map("kube-system", "cluster-autoscaler-status", status="Running"),
        "the cluster autoscaler adds no node for claims, unless",
    ),
)


@pytest.fixture
def installed(request: pytest.FixtureRequest, cluster: Access, workshop: str) -> Iterator[str]:
    """A component that may not see claims; yields the words about it."""
    document, words = request.param
    cluster.apply(document)
    yield words
    cluster.kubectl("delete", "-f", "-", input=stream(document))
    cluster.wait_until(
        lambda: create(cluster, workshop, deployment("share", SHARE), DRY) == (0, ""),
        "the webhook knows that it is gone",
    )


@pytest.mark.parametrize("installed", ONLOOKERS, indirect=True, ids=["Kueue", "Karpenter", "CA"])
def test_what_may_not_see_claims_is_warned_about(
    cluster: Access, workshop: str, installed: str
) -> None:
    share = deployment("share", SHARE)
    cluster.wait_until(lambda: create(cluster, workshop, share, DRY)[1], "the webhook knows of it")

    status, words = create(cluster, workshop, share, DRY)

    line = words.splitlines()[0]
    assert status == 0
    assert f"Warning: drawbridge[claimUnawareComponent]: resourceClaims: {installed}" in line
    # Nothing is said of pods without devices, nor of those that their workload was told about.
    assert create(cluster, workshop, deployment("plain", pod("pod")), DRY) == (0, "")
    assert create(cluster, workshop, SHARE, DRY) == (0, "")


@pytest.mark.parametrize("installed", ONLOOKERS[:1], indirect=True, ids=["Kueue"])
def test_kueue_with_the_mapping_is_not_warned_about(
    cluster: Access, workshop: str, installed: str
) -> None:
    share = deployment("share", SHARE)
    cluster.wait_until(lambda: create(cluster, workshop, share, DRY)[1], "the webhook knows of it")
    data = {"controller_manager_config.yaml": f"resources: {{deviceClassMappings: [{MAPPING}]}}"}
    namespace = api_object("Namespace", "kueue-system")

    cluster.apply([namespace, config_map("kueue-system", "kueue-manager-config", **data)])
    cluster.wait_until(
        lambda: create(cluster, workshop, share, DRY) == (0, ""),
        "the webhook knows of the mapping",
    )

    cluster.kubectl("delete", "namespace", "kueue-system", "--wait=false")


# --- without us -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def down(cluster: Access, drawbridge: Drawbridge) -> Iterator[None]:
    """The webhook's process does not run."""
    drawbridge.stop(WEBHOOK)
    yield
    drawbridge.start(WEBHOOK)
    drawbridge.wait_ready()


@pytest.mark.usefixtures("down")
@pytest.mark.parametrize("template", [SHARE, BYTES], ids=["right", "wrong"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_workload_waits_for_us(
    cluster: Access, workshop: str, kind: str, template: Object
) -> None:
    assert create(cluster, workshop, KINDS[kind]("share", template), DRY) == (0, "")


@pytest.mark.usefixtures("down")
def test_a_deployment_made_without_us_completes_once_we_are_back(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    assert create(cluster, namespace, deployment("share", SHARE)) == (0, "")
    cluster.wait_until(
        lambda: cluster.objects("replicasets", namespace), "the Deployment has a ReplicaSet"
    )
    assert cluster.objects("pods", namespace) == []

    drawbridge.start(WEBHOOK)
    drawbridge.wait_ready()
    try:
        cluster.wait_for(
            "deployments",
            "share",
            namespace,
            until=lambda stored: stored["status"].get("readyReplicas") == 1,
        )
    finally:
        drawbridge.stop(WEBHOOK)
