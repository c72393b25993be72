"""A claim that a crash leaves behind, allocated for a pod that was never bound."""

import json
from typing import Final

import pytest

from e2e.access import Access, Object, stream
from e2e.bridge import bridged, doubly_held
from e2e.inventory import EXAMPLE
from e2e.objects import named_claim, pod

TIMEOUT_S: Final = 120.0
FINALIZER: Final = "resource.kubernetes.io/delete-protection"


@pytest.mark.usefixtures("bridge")
def test_a_pod_goes_elsewhere_if_its_node_is_too_small_by_now(
    cluster: Access, namespace: str, nodes: list[str]
) -> None:
    """The scheduler died between the status of the claim and the Binding of the pod."""
    small, other = nodes
    cpus = int(cluster.get("nodes", small)["status"]["allocatable"]["cpu"])
    claim = named_claim("left", EXAMPLE)
    leftover = bridged(pod("left", requests={"cpu": 2}), nodes)
    leftover["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "left"}]
    leftover["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    leftover["spec"]["schedulingGates"] = [{"name": "drawbridge.test/later"}]
    filler = pod("filler", requests={"cpu": cpus - 1}, nodeName=small)
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream([claim, leftover, filler]))
    cluster.wait_running("filler", namespace, timeout_s=TIMEOUT_S)
    _allocate(cluster, namespace, small)

    _patch(cluster, "pod", namespace, {"spec": {"schedulingGates": None}})

    running = cluster.wait_running("left", namespace, timeout_s=TIMEOUT_S)
    assert running["spec"]["nodeName"] == other
    allocation = cluster.get("resourceclaims", "left", namespace)["status"]["allocation"]
    (result,) = allocation["devices"]["results"]
    assert result["pool"] == other
    assert [] == doubly_held(cluster)


def _allocate(cluster: Access, namespace: str, node: str) -> None:
    """Allocate the claim as a scheduler does that dies before it binds the pod."""
    uid = cluster.get("pods", "left", namespace)["metadata"]["uid"]
    result = {"request": "gpu", "driver": EXAMPLE, "pool": node, "device": "gpu-0"}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }
    consumer = {"resource": "pods", "name": "left", "uid": uid}
    _patch(cluster, "resourceclaim", namespace, {"metadata": {"finalizers": [FINALIZER]}})
    status = {"status": {"allocation": allocation, "reservedFor": [consumer]}}
    _patch(cluster, "resourceclaim", namespace, status, "--subresource=status")


def _patch(cluster: Access, kind: str, namespace: str, patch: Object, *flags: str) -> None:
    words = ("patch", kind, "left", "-n", namespace, "--type=merge", "-p", json.dumps(patch))
    cluster.kubectl(*words, *flags)
