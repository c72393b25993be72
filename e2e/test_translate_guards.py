"""Pods that a translation would harm are refused with the replacement, or left alone with a warning.

And those that Kubernetes serves by itself are left to it.
"""

import json
from collections.abc import Iterator

import pytest

from e2e.access import Access, Object, stream
from e2e.inventory import HAMI, NVIDIA, NVIDIA_EXTENDED_RESOURCE
from e2e.objects import pod
from e2e.translated import devices, legacy_keys
from kube.product import REQUEST_ANNOTATION

pytestmark = pytest.mark.usefixtures("drawbridge", "fleet")

GPU = "nvidia.com/gpu"
LIMITS = {GPU: 1, "nvidia.com/gpumem": 1000}
COUNTED = f"{HAMI}.deviceclass.resource.k8s.io/devices"


def apply_quota(cluster: Access, namespace: str, **hard: str) -> None:
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpus", "namespace": namespace},
            "spec": {"hard": hard},
        }
    )


def test_a_quota_that_would_stop_counting_is_named_with_its_replacement(
    cluster: Access, namespace: str
) -> None:
    create = ("create", "-n", namespace, "--dry-run=server", "-f", "-")
    share = stream(pod("share", limits=LIMITS))
    apply_quota(cluster, namespace, **{f"requests.{GPU}": "4"})

    cluster.wait_until(
        lambda: cluster.kubectl(*create, input=share, check=False).returncode,
        "the webhook knows of the quota",
    )
    words = cluster.kubectl(*create, input=share, check=False).stderr

    assert f"ResourceQuota gpus counts requests.{GPU}, which a claim is not part of" in words
    assert f"count {COUNTED} in a ResourceQuota instead" in words

    # What it advises works, and counts.
    apply_quota(cluster, namespace, **{f"requests.{GPU}": "4", COUNTED: "1"})
    cluster.wait_until(
        lambda: cluster.kubectl(*create, input=share, check=False).returncode == 0,
        "the webhook knows of the replacement",
    )
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=share)
    cluster.wait_running("share", namespace)
    cluster.wait_for(
        "resourcequotas",
        "gpus",
        namespace,
        until=lambda found: found["status"]["used"].get(COUNTED) == "1",
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"schedulerName": "volcano"},
            'spec.schedulerName: "volcano" may not understand claims; not translated',
        ),
        (
            {"nodeName": "hami-0"},
            "spec.nodeName: the pod is bound to a node without a scheduler",
        ),
    ],
    ids=["a foreign scheduler", "a node without a scheduler"],
)
def test_a_pod_of_somebody_else_is_left_alone_with_a_warning(
    cluster: Access, workshop: str, spec: Object, words: str
) -> None:
    create = ("create", "-n", workshop, "--dry-run=server", "-o", "json", "-f", "-")

    done = cluster.kubectl(*create, input=stream(pod("alone", limits=LIMITS, **spec)))

    (warning,) = done.stderr.splitlines()
    assert f"Warning: drawbridge: {words}" in warning
    shown = json.loads(done.stdout)
    assert legacy_keys(shown) == set(LIMITS)
    assert "resourceClaims" not in shown["spec"]


def test_a_whole_gpu_is_left_to_kubernetes_where_a_class_maps_its_name(
    cluster: Access, namespace: str
) -> None:
    whole = pod("whole", limits={GPU: 1}, nodeSelector={"kubernetes.io/hostname": "nvidia-0"})

    done = cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(whole))
    running = cluster.wait_running("whole", namespace)

    assert done.stderr == ""
    assert legacy_keys(running) == {GPU}
    assert REQUEST_ANNOTATION not in running["metadata"].get("annotations", {})
    assert "resourceClaims" not in running["spec"]
    name = running["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    claim = cluster.get("resourceclaims", name, namespace)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"]) == (NVIDIA, "nvidia-0")


@pytest.fixture
def unmapped(cluster: Access, fleet: list[str]) -> Iterator[None]:
    """No class maps nvidia.com/gpu, as with a driver that was installed without it."""
    patch = ("patch", "deviceclass", NVIDIA, "--type=merge", "-p")
    without, again = (
        json.dumps({"spec": {"extendedResourceName": name}})
        for name in (None, NVIDIA_EXTENDED_RESOURCE)
    )
    cluster.kubectl(*patch, without)
    yield
    cluster.kubectl(*patch, again)


def test_a_whole_gpu_is_translated_where_no_class_maps_its_name(
    cluster: Access, namespace: str, unmapped: None
) -> None:
    whole = pod("whole", limits={GPU: 2})
    dry_run = ("create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", "-")

    def is_translated() -> bool:
        return "resourceClaims" in cluster.kubectl(*dry_run, input=stream(whole)).stdout

    cluster.wait_until(is_translated, "the webhook knows that nothing maps the name")
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(whole))
    running = cluster.wait_running("whole", namespace)

    assert legacy_keys(running) == set()
    got = devices(running, cluster.objects("resourceclaims", namespace))["main"]
    assert [each.driver for each in got] == [NVIDIA] * 2
    assert len({each.device for each in got}) == 2
