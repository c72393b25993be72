"""Pods that controllers make: one template for all replicas, and nothing of a pod that was refused."""

from collections.abc import Callable

import pytest

from e2e.access import Access, stream
from e2e.drawbridge import Drawbridge
from e2e.inventory import HAMI
from e2e.objects import deployment, job, pod, stateful_set
from e2e.translated import devices, legacy_keys
from kube.quantity import Quantity
from testing.documents import api_object

pytestmark = pytest.mark.usefixtures("fleet")

LIMITS = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000, "nvidia.com/gpucores": 1}
REPLICAS = 50


def test_fifty_replicas_have_one_template_and_a_claim_each(
    cluster: Access, namespace: str, drawbridge: Drawbridge
) -> None:
    serving = deployment("serving", pod("pod", limits=LIMITS), replicas=REPLICAS)
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(serving))

    cluster.wait_for(
        "deployments",
        "serving",
        namespace,
        until=lambda stored: stored["status"].get("readyReplicas") == REPLICAS,
        timeout_s=60,
    )

    (template,) = cluster.objects("resourceclaimtemplates", namespace)
    claims = cluster.objects("resourceclaims", namespace)
    pods = cluster.objects("pods", namespace)
    assert (len(claims), len(pods)) == (REPLICAS, REPLICAS)
    for pod_ in pods:
        (entry,) = pod_["spec"]["resourceClaims"]
        assert template["metadata"]["name"] == entry["resourceClaimTemplateName"]
        (main,) = devices(pod_, claims)["main"]
        assert main.driver == HAMI
        assert main.amounts == {"memory": Quantity("1000Mi"), "cores": Quantity(1)}


def test_a_job_and_a_stateful_set(cluster: Access, namespace: str, drawbridge: Drawbridge) -> None:
    objects = [
        job("batch", pod("pod", limits=LIMITS), completions=3),
        stateful_set("store", pod("pod", limits=LIMITS), replicas=2),
    ]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects))

    cluster.wait_for(
        "jobs", "batch", namespace, until=lambda stored: stored["status"].get("succeeded") == 3
    )
    for name in ("store-0", "store-1"):
        running = cluster.wait_running(name, namespace)
        (main,) = devices(running, cluster.objects("resourceclaims", namespace))["main"]
        assert main.driver == HAMI
    assert not any(map(legacy_keys, cluster.objects("pods", namespace)))


# --- pods that a later step of admission refuses --------------------------------------------------


def quota(cluster: Access, namespace: str) -> None:
    spec = {"hard": {"count/pods": "0"}}
    cluster.apply(api_object("ResourceQuota", "no-pods", namespace, spec=spec))
    cluster.wait_for(
        "resourcequotas", "no-pods", namespace, until=lambda stored: stored["status"].get("hard")
    )


def restricted(cluster: Access, namespace: str) -> None:
    cluster.kubectl(
        "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    words = ("create", "--dry-run=server", "-n", namespace, "-f", "-")
    document = stream(pod("early"))
    cluster.wait_until(
        lambda: "restricted" in cluster.kubectl(*words, input=document, check=False).stderr,
        "the API server knows the label",
    )


@pytest.mark.parametrize(
    ("forbid", "words"),
    [(quota, "exceeded quota: no-pods"), (restricted, 'violates PodSecurity "restricted:latest"')],
    ids=["an exhausted quota", "pod security"],
)
def test_a_pod_that_a_later_step_refuses_leaves_nothing(
    *,
    cluster: Access,
    namespace: str,
    stage: str,
    drawbridge: Drawbridge,
    forbid: Callable[[Access, str], None],
    words: str,
) -> None:
    forbid(cluster, namespace)
    decisions = drawbridge.decisions("translated")
    command = ("create", "-n", namespace, "-f", "-")

    output = cluster.kubectl(*command, input=stream(pod("late", limits=LIMITS)), check=False)

    assert output.returncode == 1
    assert words in output.stderr
    assert drawbridge.decisions("translated") == decisions + 1
    # By the time that a later pod's template is there, this one's would be.
    cluster.kubectl("create", "-n", stage, "-f", "-", input=stream(pod("next", limits=LIMITS)))
    cluster.wait_running("next", stage)
    cluster.kubectl("delete", "-n", stage, "pod", "next")
    for kind in ("pods", "resourceclaims", "resourceclaimtemplates"):
        assert cluster.objects(kind, namespace) == []
