"""The proof, in a cluster's objects, that its API server adds tolerations of device keys."""

import json
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.builders import gpus, pod
from testing.command import answer, drawbridge
from testing.documents import Document, api_object, namespace
from testing.migration import GPU, plugin_node, workload

ADDED: Final = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
NODE: Final = api_object(
    "Node",
    "gpu-a",
    spec={"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
)


def replica_set(**spec: Any) -> Document:
    return api_object(
        "ReplicaSet",
        "web-1",
        "team",
        spec={"selector": {}, "template": {"spec": {"containers": [gpus(1)], **spec}}},
    )


def live_pod(owner: str = "web-1", **spec: Any) -> Document:
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": "u"}
    metadata = {
        "name": "web-1-a",
        "namespace": "team",
        "ownerReferences": [{**reference, "controller": True}],
    }
    return pod(gpus(1), **spec) | {"metadata": metadata}


@pytest.mark.parametrize(
    ("want", "objects"),
    [
        (True, (replica_set(), live_pod(tolerations=[ADDED]))),
        (False, (replica_set(tolerations=[ADDED]), live_pod(tolerations=[ADDED]))),
        (False, (replica_set(), live_pod())),
        (False, (replica_set(), live_pod("other", tolerations=[ADDED]))),
        (False, (live_pod(tolerations=[ADDED]),)),
        (False, (replica_set() | {"spec": {"template": 7}}, live_pod(tolerations=[ADDED]))),
        (False, (replica_set(), live_pod(tolerations=[7]))),
    ],
)
def test_tolerations_are_added_where_live_pods_show_the_plugin(
    want: bool, objects: tuple[Document, ...]
) -> None:
    answer_ = answer(pod(gpus(1)), snapshot=[NODE, *objects])

    (document,) = (entry for entry in answer_["objects"] if entry["kind"] == "Pod")
    assert ([ADDED] if want else None) == document["spec"].get("tolerations")
    codes = [
        finding["code"] for finding in answer_["findings"] if finding["code"] != "invalidObject"
    ]
    assert ([] if want else ["tolerationMissing"]) == codes


def test_a_check_warns_of_the_taint_and_a_setting_ends_it(tmp_path: Any) -> None:
    (tmp_path / "node.yaml").write_text(dump_yaml([NODE]))
    (tmp_path / "settings.yaml").write_text("translation: {tolerations: always}\n")
    call = ("check", "-f", "-", "-o", "json", "--snapshot", tmp_path / "node.yaml")

    before, after = (
        json.loads(drawbridge(*call, *options, stdin=dump_yaml([pod(gpus(1))])).stdout)["findings"]
        for options in ((), ("--settings", tmp_path / "settings.yaml"))
    )

    assert [("warning", "tolerationMissing")] == [(f["severity"], f["code"]) for f in before]
    assert [] == after


@pytest.mark.parametrize("policy", ["detected", "always", "never"])
@pytest.mark.parametrize("adds", [True, False])
def test_next_pods_that_keep_their_keys_tolerate_what_the_api_server_adds(
    tmp_path: Any, policy: str, *, adds: bool
) -> None:
    """The setting is about pods that lose their keys, and native ones were placed by it."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(2)]
    for document in nodes:
        document["spec"] = {"taints": NODE["spec"]["taints"]}
    owner, live = workload("web", {GPU: "1"}, ["gpu-0"])
    if adds:
        live["spec"]["tolerations"] = [ADDED]
    (tmp_path / "cluster.yaml").write_text(dump_yaml([*nodes, namespace("team"), owner, live]))
    (tmp_path / "settings.yaml").write_text(f"translation: {{tolerations: {policy}}}\n")
    options = ("--snapshot", tmp_path / "cluster.yaml", "--settings", tmp_path / "settings.yaml")

    answer_ = json.loads(drawbridge("assess", *options, "-o", "json").stdout)

    assert ["native"] == [entry["outcome"] for entry in answer_["workloads"]]
    codes = {blocker["code"] for blocker in answer_["blockers"]}
    assert codes == (set() if adds else {"notPlaced"})
