"""Drawbridge is taken away and comes back: running pods do not notice."""

import pytest

from e2e.access import Access, Object, stream
from e2e.drawbridge import Drawbridge
from e2e.objects import pod
from e2e.translated import legacy_keys

pytestmark = pytest.mark.usefixtures("fleet")

LIMITS = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}


def create(cluster: Access, namespace: str, name: str) -> None:
    document = stream(pod(name, limits=LIMITS))
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=document)


def claims(cluster: Access, namespace: str) -> list[Object]:
    return cluster.objects("resourceclaims", namespace)


def lasting(object_: Object) -> Object:
    """Return the fields that an uninstall must not touch; others may still write the rest of the status."""
    return {
        "uid": object_["metadata"]["uid"],
        "annotations": object_["metadata"].get("annotations"),
        "spec": object_["spec"],
        "phase": object_["status"]["phase"],
        "restarts": [
            container_status["restartCount"]
            for container_status in object_["status"]["containerStatuses"]
        ],
    }


def test_running_pods_outlive_an_uninstall(
    cluster: Access, drawbridge: Drawbridge, namespace: str
) -> None:
    create(cluster, namespace, "before")
    before = cluster.wait_running("before", namespace)
    claims_ = claims(cluster, namespace)

    drawbridge.uninstall()
    try:
        cluster.wait_gone("namespaces", drawbridge.namespace, timeout_s=60)

        assert lasting(cluster.get("pods", "before", namespace)) == lasting(before)
        assert claims(cluster, namespace) == claims_
        # Who comes now is left alone, and waits for a device plugin.
        create(cluster, namespace, "between")
        assert legacy_keys(cluster.get("pods", "between", namespace)) == set(LIMITS)
        # Ending needs nobody of ours either.
        cluster.kubectl("delete", "-n", namespace, "pod", "before", "--wait=false")
        cluster.wait_gone("pods", "before", namespace)
        cluster.wait_until(lambda: not claims(cluster, namespace), "the claim is gone as well")
    finally:
        cluster.wait_gone("namespaces", drawbridge.namespace, timeout_s=60)
        drawbridge.install()

    create(cluster, namespace, "after")
    assert legacy_keys(cluster.wait_running("after", namespace)) == set()
