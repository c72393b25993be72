"""Pods on a real node, as stories use them: started, asked for their devices, ended."""

import json
from typing import Final

from e2e.access import Access, Object, stream
from e2e.node.driver import NodeDriver, environment_of

TIMEOUT_S: Final = 60.0
REFUSED: Final = "FailedPrepareDynamicResources"
"""Reason of the kubelet's event about a claim that a driver does not prepare."""


def apply(cluster: Access, namespace: str, *objects: Object) -> None:
    """Apply objects as a user would."""
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects))


def environment(
    cluster: Access, namespace: str, pod: str, container: str = "main"
) -> dict[str, str]:
    """Return our variables among those that the container printed."""
    cluster.wait_running(pod, namespace, timeout_s=TIMEOUT_S)
    text = cluster.kubectl("logs", "-n", namespace, pod, "-c", container).stdout
    return {
        name: value
        for name, value in environment_of(text).items()
        if name.startswith("DRAWBRIDGE_")
    }


def device_nodes(cluster: Access, namespace: str, pod: str, container: str = "main") -> set[str]:
    """Names below /dev in a container that are devices of ours."""
    words = ("exec", "-n", namespace, pod, "-c", container, "--", "/box", "list", "/dev")
    parts = cluster.kubectl(*words).stdout.split()
    return {name for name in parts if name.startswith(("gpu-", "eth"))}


def is_translated(cluster: Access, namespace: str, pod: Object) -> bool:
    """Return True if the webhook makes claims of a legacy pod; a dry run leaves nothing behind."""
    output = cluster.kubectl(
        "create", "--dry-run=server", "-n", namespace, "-f", "-", "-o", "json",
        input=json.dumps(pod), check=False,
    )  # fmt: skip
    return output.returncode == 0 and "resourceClaims" in output.stdout


def delete_pods(cluster: Access, namespace: str, driver: NodeDriver, *pods: str) -> None:
    """Delete pods and wait until nothing is left of them on the node."""
    cluster.kubectl("delete", "pod", "-n", namespace, *pods)
    cluster.wait_until(driver.is_clean, "nothing is prepared", timeout_s=TIMEOUT_S)


def held_pod(cluster: Access, namespace: str) -> Object:
    """The pod of a held deployment that waits, once its claim is there."""
    waiting: list[Object] = []

    def is_there() -> bool:
        waiting[:] = [
            pod
            for pod in cluster.objects("pods", namespace, selector="app=app")
            if "schedulingGates" in pod["spec"] and pod["status"].get("resourceClaimStatuses")
        ]
        return bool(waiting)

    cluster.wait_until(is_there, "a pod of the deployment waits with its claim")
    return waiting[0]


def let_go(cluster: Access, namespace: str, pod: str) -> None:
    """Have the scheduler look at a held pod."""
    change = json.dumps([{"op": "remove", "path": "/spec/schedulingGates"}])
    cluster.kubectl("patch", "pod", "-n", namespace, pod, "--type=json", "-p", change)


def results(cluster: Access, namespace: str, claim: str) -> list[Object]:
    """The allocated devices of a claim."""
    status = cluster.get("resourceclaims", claim, namespace)["status"]
    results_: list[Object] = status["allocation"]["devices"]["results"]
    return results_


def wait_refused(cluster: Access, namespace: str, pod: str, words: str) -> None:
    """Wait until an event of the pod says that its claim is not prepared, in these words."""

    def is_refused() -> bool:
        return any(
            event["involvedObject"]["name"] == pod
            and event["reason"] == REFUSED
            and words in event["message"]
            for event in cluster.objects("events", namespace)
        )

    cluster.wait_until(is_refused, f"{pod} is refused: {words}", timeout_s=TIMEOUT_S)


def sync(cluster: Access, namespace: str, pod: str) -> None:
    """Have the kubelet look at a pod now, not after its pause of ten seconds and more.

    Fine where it has looked already, and the pod is gone.
    """
    for change in ("e2e=synced", "e2e-"):
        words = ("annotate", "pod", "-n", namespace, pod, "--overwrite", change)
        cluster.kubectl(*words, check=False)


def containers(cluster: Access, namespace: str, pod: str) -> list[tuple[str, int]]:
    """Id and restarts of each container: the same as long as nobody disturbed it."""
    status = cluster.get("pods", pod, namespace)["status"]
    return [
        (container_status["containerID"], container_status["restartCount"])
        for container_status in status["containerStatuses"]
    ]
