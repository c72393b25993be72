"""The report of `drawbridge assess` agrees with the API server's behaviour afterwards."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.access import Access, Object, stream
from e2e.drawbridge import command_line
from e2e.objects import deployment, pod
from kube.names import REQUEST_ANNOTATION

pytestmark = pytest.mark.usefixtures("fleet", "drawbridge")

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
BINPACK: Final = {"hami.io/gpu-scheduler-policy": "binpack"}
WORKLOADS: Final = {
    "native": pod("pod", limits={GPU: 1}),
    "translated": pod("pod", limits={GPU: 1, MEMORY: 3000}),
    "lossy": pod("pod", limits={GPU: 1, MEMORY: 3000}, annotations=BINPACK),
    "refused": pod("pod", limits={GPU: 1, MEMORY: "8Gi"}),
    "unknown": pod("pod", limits={"cambricon.com/vmlu": 1}),
}
"""Name of a Deployment, which is the outcome that is expected, to its pods."""


def assessed(cluster: Access, *snapshots: Path) -> dict[str, Any]:
    """Return the answer of `drawbridge assess`."""
    flags = [flag for path in snapshots for flag in ("--snapshot", path)]
    result = command_line(cluster, "assess", *flags, "-o", "json")
    assert result.returncode in (0, 1), result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def is_translated(live_pod: Object) -> bool:
    return REQUEST_ANNOTATION in live_pod["metadata"].get("annotations", {})


@pytest.mark.long
def test_workloads_become_what_the_assessment_says(
    cluster: Access, namespace: str, tmp_path: Path
) -> None:
    snapshot = tmp_path / "cluster.json.gz"
    result = command_line(cluster, "snapshot", "-o", snapshot)
    assert result.returncode == 0, result.stderr
    planned = tmp_path / "planned.json"
    manifests = {name: deployment(name, template) for name, template in WORKLOADS.items()}
    for manifest in manifests.values():
        manifest["metadata"]["namespace"] = namespace
    items = list(manifests.values())
    planned.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    answer = assessed(cluster, snapshot, planned)

    outcomes = {
        row["object"]: row["outcome"]
        for row in answer["workloads"]
        if f"/{namespace}/" in row["object"]
    }
    assert outcomes == {f"Deployment/{namespace}/{name}": name for name in WORKLOADS}
    for name, manifest in manifests.items():
        create = ("create", "-n", namespace, "-f", "-")
        created = cluster.kubectl(*create, input=stream(manifest), check=False)
        assert (created.returncode == 0) == (name != "refused"), created.stderr
    # A pod of each Deployment that was not denied; kwok and the scheduler do the rest.
    cluster.wait_until(
        lambda: len(cluster.objects("pods", namespace)) == len(WORKLOADS) - 1,
        "every Deployment has its pod",
    )
    translated = {
        live_pod["metadata"]["name"].split("-")[0]: is_translated(live_pod)
        for live_pod in cluster.objects("pods", namespace)
    }
    assert translated == {"native": False, "translated": True, "lossy": True, "unknown": False}

    # The live cluster is told alike, with the pods counted with their owners.
    live = command_line(cluster, "assess", "--live", "-o", "json")
    rows = {
        row["object"]: (row["outcome"], row["pods"])
        for row in json.loads(live.stdout)["workloads"]
        if f"/{namespace}/" in row["object"]
    }
    assert rows == {
        f"Deployment/{namespace}/{name}": (name, 1) for name in WORKLOADS if name != "refused"
    }


def test_a_user_without_rights_gets_a_file_that_says_so(
    cluster: Access, namespace: str, tmp_path: Path
) -> None:
    snapshot = tmp_path / "cluster.json"
    kubeconfig = cluster.kubeconfig_for(namespace, "default")

    result = command_line(cluster, "snapshot", "-o", snapshot, "--kubeconfig", kubeconfig)

    assert result.returncode == 0, result.stderr
    origin, *objects = json.loads(snapshot.read_text())["items"]
    assert objects == []
    assert {"pods", "nodes", "resourceslices"} <= set(origin["unreadable"])
    (note,) = (line for line in result.stderr.splitlines() if line.startswith("note: "))
    assert "cannot be read" in note
    assert " pods, " in note
