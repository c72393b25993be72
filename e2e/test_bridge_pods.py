"""Pods that the bridge schedules: their claims are allocated, and their devices released again."""

import shlex
from collections.abc import Sequence
from typing import Final

import pytest

from e2e.access import Access, Object, stream
from e2e.bridge import ROOT, Bridge, bridged, doubly_held, is_waiting
from e2e.inventory import EXAMPLE
from e2e.objects import claim_template, named_claim, pod
from e2e.translated import devices

TIMEOUT_S: Final = 90.0
FINALIZER: Final = "resource.kubernetes.io/delete-protection"


def test_a_pod_gets_a_device_and_its_end_releases_it(
    cluster: Access, bridge: Bridge, namespace: str, nodes: list[str]
) -> None:
    claim = named_claim("kept", EXAMPLE)
    user = bridged(pod("user"), nodes)
    user["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "kept"}]
    user["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream([claim, user]))

    running = cluster.wait_running("user", namespace, timeout_s=TIMEOUT_S)

    stored = cluster.get("resourceclaims", "kept", namespace)
    (result,) = stored["status"]["allocation"]["devices"]["results"]
    assert running["spec"]["nodeName"] == result["pool"]
    assert result["pool"] in nodes
    assert [FINALIZER] == stored["metadata"]["finalizers"]
    (consumer,) = stored["status"]["reservedFor"]
    assert running["metadata"]["uid"] == consumer["uid"]

    cluster.kubectl("delete", "pod", "user", "-n", namespace, "--wait=false")
    released = cluster.wait_for(
        "resourceclaims",
        "kept",
        namespace,
        until=lambda claim: "allocation" not in claim.get("status", {}),
        timeout_s=TIMEOUT_S,
    )
    assert "reservedFor" not in released["status"]
    assert bridge.calls("prebind", "ok") > 0


def test_pods_that_fit_nowhere_wait_and_get_what_is_released(
    cluster: Access, bridge: Bridge, namespace: str, nodes: list[str]
) -> None:
    names = [f"pod-{number}" for number in range(10)]
    cluster.kubectl(
        "apply", "-n", namespace, "-f", "-", input=stream(_pods_with_a_device(names, nodes))
    )
    cluster.wait_until(
        lambda: len(_running(cluster, namespace)) == 8, "8 pods run", timeout_s=TIMEOUT_S
    )
    waiting = [name for name in names if name not in _running(cluster, namespace)]
    for name in waiting:
        waiting_pod = cluster.wait_for(
            "pods", name, namespace, until=is_waiting, timeout_s=TIMEOUT_S
        )
        (condition,) = waiting_pod["status"]["conditions"]
        assert "devices" in condition["message"]
    filtered = bridge.calls("filter")

    gone = _running(cluster, namespace)[:2]
    cluster.kubectl("delete", "pod", *gone, "-n", namespace, "--wait=false")

    for name in waiting:
        cluster.wait_running(name, namespace, timeout_s=TIMEOUT_S)
    assert doubly_held(cluster) == []
    assert filtered == bridge.calls("filter")
    pods = {pod_["metadata"]["name"]: pod_ for pod_ in cluster.objects("pods", namespace)}
    claims = cluster.objects("resourceclaims", namespace)
    for name in waiting:
        assert len(devices(pods[name], claims)["main"]) == 1


@pytest.mark.usefixtures("bridge")
def test_a_claim_of_a_template_is_written_once_until_its_pod_runs(
    cluster: Access, namespace: str, nodes: list[str]
) -> None:
    """A policy of the manifests gives it the finalizer when it is created."""
    with cluster.watching("resourceclaims") as (_, events):
        cluster.kubectl(
            "apply", "-n", namespace, "-f", "-", input=stream(_pods_with_a_device(["one"], nodes))
        )
        cluster.wait_running("one", namespace, timeout_s=TIMEOUT_S)
        seen = [
            (event["type"], "allocation" in event["object"].get("status", {}))
            for event in list(events)
            if event["object"]["metadata"]["namespace"] == namespace
            and event["object"]["metadata"].get("finalizers") == [FINALIZER]
        ]

    assert seen == [("ADDED", False), ("MODIFIED", True)]


@pytest.mark.usefixtures("bridge")
def test_the_claim_of_a_pod_that_never_ran_is_deleted_with_it(
    cluster: Access, namespace: str, nodes: list[str]
) -> None:
    (template, waiting) = _pods_with_a_device(["waiting"], nodes)
    waiting["spec"]["schedulingGates"] = [{"name": "drawbridge.test/never"}]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream([template, waiting]))
    cluster.wait_until(
        lambda: cluster.objects("resourceclaims", namespace),
        "the claim exists",
        timeout_s=TIMEOUT_S,
    )

    cluster.kubectl("delete", "pod", "waiting", "-n", namespace, "--wait=false")

    cluster.wait_until(
        lambda: not cluster.objects("resourceclaims", namespace),
        "the claim is gone",
        timeout_s=TIMEOUT_S,
    )


@pytest.mark.usefixtures("bridge")
def test_the_documented_watch_says_which_pod_was_bound_to_which_node(
    cluster: Access, namespace: str, nodes: list[str]
) -> None:
    """Pods of the bridge, with devices and without; not those of another scheduler."""
    page = (ROOT / "docs" / "bridge.md").read_text()
    (line,) = (line for line in page.splitlines() if line.startswith("kubectl get events"))
    program, *words = shlex.split(line)
    assert program == "kubectl"
    watch = cluster.run("events-watch", (cluster.kubectl_binary, *words), cluster.environment())
    other = pod("of-another-scheduler", nodeSelector={"kubernetes.io/hostname": nodes[0]})
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream([other]))
    _wait_event(cluster, namespace, "of-another-scheduler")
    bound = [*_pods_with_a_device(["with-a-device"], nodes), bridged(pod("without"), nodes)]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(bound))

    messages = [
        f"Successfully assigned {namespace}/{name} to "
        f"{cluster.wait_running(name, namespace, timeout_s=TIMEOUT_S)['spec']['nodeName']}"
        for name in ("with-a-device", "without")
    ]
    cluster.wait_until(
        lambda: all(message in watch.log.read_text() for message in messages),
        "the watch tells of both",
        timeout_s=TIMEOUT_S,
    )

    # A watch tells in the order in which events were stored.
    assert "of-another-scheduler" not in watch.log.read_text()
    watch.stop()
    del cluster.children[watch.name]


def _wait_event(cluster: Access, namespace: str, name: str) -> None:
    """Wait until a pod was told to be bound."""
    cluster.wait_until(
        lambda: any(
            event["reason"] == "Scheduled" and event["involvedObject"]["name"] == name
            for event in cluster.objects("events", namespace)
        ),
        f"an event about {name}",
        timeout_s=TIMEOUT_S,
    )


def _pods_with_a_device(names: Sequence[str], nodes: Sequence[str]) -> list[Object]:
    return [
        claim_template("one", EXAMPLE),
        *(bridged(pod(name, claims={"gpu": "one"}), nodes) for name in names),
    ]


def _running(cluster: Access, namespace: str) -> list[str]:
    return [
        pod_["metadata"]["name"]
        for pod_ in cluster.objects("pods", namespace)
        if pod_["status"].get("phase") == "Running"
    ]
