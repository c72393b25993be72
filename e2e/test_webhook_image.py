"""The image's environment runs every process with default settings until it is ready."""

import http.client
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.access import Object
from e2e.cluster import Cluster
from e2e.drawbridge import rendered
from e2e.processes import Child
from testing.image import build_environment
from testing.ports import free_ports

MANIFESTS: Final = (Path("manifests/base"), Path("manifests/observer"))

# Default settings include the namespace, so this story shares no cluster with an installation.
pytestmark = pytest.mark.parametrize("cluster", [{}], indirect=True)


def test_every_process_is_ready_with_default_settings(cluster: Cluster, tmp_path: Path) -> None:
    objects = [document for path in MANIFESTS for document in rendered(cluster, path)]
    deployments = [document for document in objects if document["kind"] == "Deployment"]
    cluster.apply([document for document in objects if document["kind"] != "Deployment"])
    python = build_environment(tmp_path) / "python"

    children = {
        port: start(cluster, python, deployment, port)
        for deployment, port in zip(deployments, free_ports(len(deployments)), strict=True)
    }

    for port, child in children.items():
        cluster.wait_until(partial(is_ready, port, child), f"{child.name} is ready")
    for child in children.values():
        child.stop(grace_s=0)  # The default drain takes longer than this story.


def start(cluster: Cluster, python: Path, deployment: Object, probe_port: int) -> Child:
    """Start the process of a Deployment with its service account; only addresses differ."""
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    words: list[str] = [*container.get("command", ()), *container.get("args", ())]
    arguments = words[1:]  # After `python`.
    account = spec["serviceAccountName"]
    flags: list[str | Path] = [
        "--kubeconfig",
        cluster.kubeconfig_for(deployment["metadata"]["namespace"], account),
    ]
    flags += ["--bind", "127.0.0.1", "--probe-port", str(probe_port)]
    flags += ["--metrics-port", "0"]
    if "webhook" in arguments:
        flags += ["--port", str(free_ports(1)[0])]
    return cluster.run(deployment["metadata"]["name"], [python, "-I", *arguments, *flags])


def is_ready(port: int, child: Child) -> bool:
    assert child.exit_status is None, f"{child.name} ended:\n{child.tail()}"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()
