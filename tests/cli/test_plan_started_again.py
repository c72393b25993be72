"""`verify --before`: a workload of another project that was started once a wave had opted its namespace in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import api_object, namespace
from testing.migration import GPU, SHARE, hami_node, resource_slice, workload
from testing.plan import checks_before, planned

HAMI: Final = "hami-core-gpu.project-hami.io"
LABEL: Final = "drawbridge.internal/translate"
NODES: Final = tuple(f"hami-{number}" for number in range(3))
GROUPS: Final = {"Notebook": "kubeflow.org/v1", "RayCluster": "ray.io/v1"}
WEB: Final = workload("web", SHARE, ["hami-0", "hami-1"], namespace="other")


def later(kind: str, *nodes: str) -> list[dict[str, Any]]:
    """A workload of a kind; its pods have claims."""
    stateful_set, *pods = workload("later", SHARE, nodes, kind="StatefulSet")
    reference = {"apiVersion": GROUPS[kind], "kind": kind, "name": "later", "controller": True}
    is_direct = kind == "RayCluster"
    for pod in pods:
        pod["metadata"]["annotations"] = {"drawbridge.internal/request": "{}"}
        pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
        if is_direct:
            pod["metadata"]["ownerReferences"] = [reference]
    stateful_set["metadata"]["ownerReferences"] = [reference]
    head = {"template": stateful_set["spec"]["template"]}
    spec = {"suspend": not nodes, "headGroupSpec": head} if is_direct else {}
    owner = api_object(kind, "later", "team", api_version=GROUPS[kind], spec=spec)
    return [owner, *([] if is_direct else [stateful_set]), *pods]


def claim(node: str) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": HAMI}}
    result = {"request": "gpu", "driver": HAMI, "pool": node, "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    spec = {"devices": {"requests": [request]}}
    version = "resource.k8s.io/v1"
    return api_object("ResourceClaim", "c", "team", api_version=version, spec=spec, status=status)


def switched(wave: dict[str, Any], *objects: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """The cluster after the first wave."""
    nodes = {name: hami_node(name) for name in NODES}
    slices = []
    for planned_node in wave["nodes"]:
        name = planned_node["name"]
        nodes[name]["status"]["allocatable"] = {GPU: "0"}
        nodes[name]["metadata"]["labels"] |= planned_node["labels"]
        slices.append(resource_slice(name, HAMI, (f"GPU-{name}-0", f"GPU-{name}-1")))
    return [
        *(*nodes.values(), *slices, namespace("other"), namespace("team", {LABEL: "true"})),
        *(*WEB, *objects),
    ]


@pytest.mark.parametrize("kind", ["Notebook", "RayCluster"])
def test_a_workload_that_is_started_with_claims_stops_no_later_wave(
    tmp_path: Path, kind: str
) -> None:
    """Its users were to wait for the last wave."""
    before = [*map(hami_node, NODES), namespace("other"), namespace("team"), *WEB, *later(kind)]
    first, *_ = planned(tmp_path, before, "--wave-nodes", 1)["waves"]
    assert ["team"] == first["namespaces"]
    node = first["nodes"][0]["name"]

    checks = checks_before(tmp_path, switched(first, *later(kind, node), claim(node)), 2)

    assert [] == [check for check in checks if check["state"] == "failed"]
    assert "Wave//2" in {check["object"] for check in checks}
