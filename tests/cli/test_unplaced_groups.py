"""Groups that wait for more than a place: gated members, composite groups, two policies, and stray declarations."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from kube.names import QUOTA_GATE
from testing.command import EXAMPLES, drawbridge
from testing.documents import Document, api_object

CLUSTER = EXAMPLES / "groups" / "cluster.yaml"
GANG: Final = {"schedulingPolicy": {"gang": {"minCount": 2}}}


def ring(*gates: str, group: Document = GANG) -> list[Document]:
    """Return a PodGroup and a pod for each gate; empty for none."""
    pods = []
    for number, gate in enumerate(gates):
        spec: Document = {
            "schedulingGroup": {"podGroupName": "ring"},
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}],
        }
        if gate:
            spec["schedulingGates"] = [{"name": gate}]
        pods.append(api_object("Pod", f"ring-{number}", "default", spec=spec))
    return [api_object("PodGroup", "ring", "default", spec=group), *pods]


def answer(verb: str, manifests: list[Document]) -> Any:
    call = (verb, "-f", "-", "--snapshot", CLUSTER, "-o", "json")
    return json.loads(drawbridge(*call, stdin=dump_yaml(manifests)).stdout)


def test_check_names_gated_members_without_which_a_group_is_too_small() -> None:
    (finding,) = answer("check", ring("example.com/wait", ""))["findings"]

    assert (finding["object"], finding["code"]) == ("PodGroup/default/ring", "groupTooSmall")
    assert finding["message"] == (
        "PodGroup default/ring needs 2 pods, and 1 of 2 has scheduling gates, so none is placed"
    )
    assert finding["fix"] == "remove the gates of ring-0"


@pytest.mark.parametrize("gates", [("example.com/wait", "", ""), (QUOTA_GATE, "")])
def test_other_gates_are_no_finding(gates: tuple[str, ...]) -> None:
    assert answer("check", ring(*gates))["findings"] == []


@pytest.mark.parametrize(
    ("code", "severity", "group"),
    [
        ("compositeGroup", "warning", {**GANG, "parentCompositePodGroupName": "rings"}),
        ("invalidGroup", "error", {"schedulingPolicy": {**GANG["schedulingPolicy"], "basic": {}}}),
    ],
)
def test_a_group_that_is_not_placed_has_a_reason(code: str, severity: str, group: Document) -> None:
    manifests = ring("", "", group=group)

    (placed,) = answer("simulate", manifests)["groups"]
    findings = answer("check", manifests)["findings"]

    assert (placed["code"], placed["placed"]) == (code, 0)
    assert {(entry["code"], entry["severity"]) for entry in findings} == {(code, severity)}


def test_the_words_of_the_own_scheduler_count_beside_a_stray_annotation(tmp_path: Path) -> None:
    """The annotation of Koordinator hid the PodGroup, and the pods were placed one by one."""
    manifests = ring("", "")
    manifests[0] = api_object("PodGroup", "ring", "default", spec={"minMember": 3})
    manifests[0]["apiVersion"] = "scheduling.volcano.sh/v1beta1"
    for pod in manifests[1:]:
        del pod["spec"]["schedulingGroup"]
        pod["spec"]["schedulerName"] = "volcano"
        pod["metadata"]["annotations"] = {
            "scheduling.k8s.io/group-name": "ring",
            "gang.scheduling.koordinator.sh/name": "other",
        }
    file = tmp_path / "pods.yaml"
    file.write_text(dump_yaml(manifests))

    (group,) = answer("simulate", manifests)["groups"]
    call = ("replay", "-f", file, "--snapshot", CLUSTER, "--strategy", "stock", "-o", "json")
    (result,) = json.loads(drawbridge(*call).stdout)["strategies"]

    assert (group["kind"], group["placed"]) == ("Volcano PodGroup", 0)
    assert result["failedBy"] == {"groupIncomplete": 2}
