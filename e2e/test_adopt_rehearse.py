"""`drawbridge rehearse` tries the plan of the examples' fleet, and asks no other cluster."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from e2e.credentials import kubeconfig
from e2e.drawbridge import ROOT

FLEET: Final = ROOT / "examples" / "migration" / "fleet.yaml"
WHOLE: Final = ("serving", "batch")
"""Workloads of whole GPUs, which kube-scheduler would also give nodes of HAMi: these offer the same key."""
FLAGS: Final = ("--wave-nodes", "2", "--gpu-operator", "v26.7.0", "--driver-release", "none")


@pytest.fixture
def other_cluster(tmp_path: Path) -> Iterator[tuple[Path, list[object]]]:
    """A kubeconfig of somebody's cluster, and the connections to it."""
    connections: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def accept() -> None:
            while True:
                try:
                    connection, address = server.accept()
                except OSError:
                    return
                connections.append(address)
                connection.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        path = tmp_path / "caller" / ".kube" / "config"
        path.parent.mkdir(parents=True)
        path.write_text(kubeconfig({"server": f"http://127.0.0.1:{port}"}, {"token": "theirs"}))
        yield path, connections
        server.shutdown(socket.SHUT_RDWR)


def fleet(path: Path) -> Path:
    """Write the fleet of the examples, with whole GPUs kept from nodes of HAMi; return its file."""
    documents = list(yaml.safe_load_all(FLEET.read_text()))
    for document in documents:
        template = document.get("spec", {}).get("template", {})
        for spec in (template.get("spec"), document["spec"] if document["kind"] == "Pod" else None):
            name = document["metadata"]["name"]
            if spec is not None and name.startswith(WHOLE):
                spec["nodeSelector"] = {"nvidia.com/gpu.count": "8"}
    path.write_text(yaml.safe_dump_all(documents))
    return path


def test_a_plan_is_rehearsed_wave_by_wave_and_no_other_cluster_is_asked(
    other_cluster: tuple[Path, list[object]], tmp_path: Path
) -> None:
    theirs, connections = other_cluster
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    environment = {
        **os.environ,
        "KUBECONFIG": str(theirs),
        "HOME": str(theirs.parents[1]),
        "XDG_CACHE_HOME": cache,
    }
    keep, snapshot = tmp_path / "kept", fleet(tmp_path / "fleet.yaml")
    command = [sys.executable, "-m", "cli", "rehearse", "--snapshot", str(snapshot), *FLAGS]

    result = subprocess.run(
        [*command, "--keep", str(keep), "-o", "json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.stdout, result.stderr
    answer = json.loads(result.stdout)
    print(result.stdout)
    assert [] == answer["findings"]
    assert [] == [run for run in answer["scripts"] if run["status"]]
    assert (3, 3, 5) == (answer["waves"], answer["wavesDone"], answer["nodes"])
    assert any("helm upgrade" in text for text in answer["notRehearsed"])
    assert 0 == result.returncode
    assert [] == connections
    assert (keep / "history.jsonl").exists()
