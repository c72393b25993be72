"""`drawbridge assess` and `plan`: nodes that the Cluster Autoscaler takes for unready once their device plugin has left."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from findings.text import join_names
from kube.manifests.dump import dump_yaml
from migration.legacy.gpu_labels import is_halted, unready_label, unready_selector
from testing.command import drawbridge
from testing.documents import api_object, namespace, node
from testing.migration import (
    GPU,
    daemon_set,
    hami_node,
    plugin_node,
    resource_slice,
    workload,
)
from testing.plan import checks_before, planned
from translation.cluster.component_statements import Component, Topic, statements_about

KEY: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
PLUGIN: Final = daemon_set("nvidia-device-plugin")
AWS: Final = "k8s.amazonaws.com/accelerator"
GCE: Final = "cloud.google.com/gke-accelerator"
GCE_DRA: Final = {"cloud.google.com/gke-gpu-dra-driver": "true"}
PROVIDERS: Final = {
    "alicloud": "aliyun.accelerator/nvidia_name",
    "aws": AWS,
    "azure": "kubernetes.azure.com/accelerator",
    "baiducloud": "baidu/nvidia_name",
    "bizflycloud": "bke.bizflycloud.vn/gpu-node",
    "brightbox": "cloud.brightbox.com/gpu-node",
    "cherryservers": "cherryservers.com/gpu",
    "civo": "civo.com/gpu-node",
    "clusterapi": "cluster-api/accelerator",
    "digitalocean": "cloud.digitalocean.com/gpu-node",
    "equinixmetal": GCE,
    "gce": GCE,
    "hetzner": "hcloud/gpu-node",
    "huaweicloud": GCE,
    "magnum": "magnum.openstack.org/gpu",
    "ovhcloud": "node.kubernetes.ovhcloud.com/gpu",
    "scaleway": "k8s.scw.cloud/gpu",
    "tencentcloud": "cloud.tencent.com/tke-accelerator",
}
"""Folder of cloudprovider/ of cluster-autoscaler-1.36.1 to its GPULabel(), where it has a fixed one; that of
cloudstack is below."""


def labelled(
    labels: Mapping[str, str], offered: Mapping[str, str] | None = None, provider: str = ""
) -> dict[str, Any]:
    document = node("gpu-0", offered or {}, labels, {})
    return {**document, "spec": {"providerID": provider} if provider else {}}


# --- nodes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", PROVIDERS.values(), ids=PROVIDERS)
def test_a_node_with_the_label_of_its_provider_is_unready_without_gpus(label: str) -> None:
    document = labelled({label: "h100"}, {GPU: "4"})

    assert "" == unready_label(document)
    assert label == unready_label(document, [GPU])
    assert label == unready_label(labelled({label: ""}, {GPU: "0"}))


@pytest.mark.parametrize(
    "key",
    [
        "nvidia.com/gpu",
        "amd.com/gpu",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
        "microsoft.com/directx",
    ],
)
def test_gpus_of_another_device_plugin_keep_a_node_ready(key: str) -> None:
    assert "" == unready_label(labelled({AWS: "h100"}, {key: "1"}))
    assert AWS == unready_label(labelled({AWS: "h100"}, {key: "1"}), [key])


def test_other_resource_names_do_not_keep_a_node_ready() -> None:
    """kubernetes/autoscaler issue 8095."""
    assert AWS == unready_label(labelled({AWS: "h100"}, {"nvidia.com/mig-1g.10gb": "7"}))


@pytest.mark.parametrize(
    ("expected", "labels", "provider"),
    [
        ("", {"karpenter.sh/nodepool": "a", AWS: "h100"}, "aws:///a/i-0"),
        ("", {GCE: "h100", **GCE_DRA}, "gce://p/z/n"),
        ("", {GCE: "h100", **GCE_DRA}, ""),
        (GCE, {GCE: "h100", **GCE_DRA}, "equinixmetal://n"),
        (GCE, {GCE: "h100", "cloud.google.com/gke-gpu-dra-driver": "false"}, "gce://p/z/n"),
        (AWS, {AWS: "h100", **GCE_DRA}, "aws:///a/i-0"),
        ("accelerator", {"accelerator": "h100"}, "cloudstack:///n"),
        ("", {"accelerator": "h100"}, "azure:///n"),
        ("", {"accelerator": "h100"}, ""),
        ("", {"nvidia.com/gpu.present": "true"}, "aws:///a/i-0"),
    ],
    ids=[
        "a node of Karpenter",
        "GCE knows a DRA driver",
        "a node without a provider",
        "Equinix Metal knows no DRA driver",
        "GCE, without a DRA driver",
        "AWS knows no DRA driver",
        "CloudStack",
        "what AKS had formerly",
        "a label of people",
        "no such label",
    ],
)
def test_providers_differ(expected: str, labels: Mapping[str, str], provider: str) -> None:
    assert expected == unready_label(labelled(labels, provider=provider))


@pytest.mark.parametrize(
    ("expected", "unready", "nodes"),
    [(False, 3, 3), (True, 4, 8), (False, 9, 20), (True, 10, 20), (False, 0, 0)],
)
def test_an_autoscaler_halts_for_many_unready_nodes(
    unready: int, nodes: int, *, expected: bool
) -> None:
    assert expected is is_halted(unready, nodes)


def test_the_selector_of_gce_leaves_out_nodes_of_dra() -> None:
    assert f"{GCE},cloud.google.com/gke-gpu-dra-driver!=true" == unready_selector(GCE)
    assert AWS == unready_selector(AWS)


# --- the plan -------------------------------------------------------------------------------------


def labelled_nodes(number: int, label: str = AWS, **labels: str) -> list[dict[str, Any]]:
    return [plugin_node(f"gpu-{index}", 4, **{label: "h100", **labels}) for index in range(number)]


def wave_notes(plan: Mapping[str, Any]) -> list[str]:
    return ["\n".join(wave["notes"]) for wave in plan["waves"]]


def test_the_first_wave_names_the_label_and_the_facts(tmp_path: Path) -> None:
    plan = planned(tmp_path, [*labelled_nodes(2), PLUGIN], "--wave-nodes", 1)

    first, second = wave_notes(plan)
    assert f"{AWS} is the label by which Cluster Autoscaler knows nodes with GPUs" in first
    assert "(2 nodes of this plan: gpu-" in first
    assert (
        f"(kubectl label node NAME {AWS}-), and out of their node groups or pools; until" in first
    )
    assert f"until then leave {KEY} on them" in first
    statements = statements_about(Component.CLUSTER_AUTOSCALER, Topic.GPU_LABEL)
    assert statements
    assert all(statement.sentence in first for statement in statements)
    assert AWS not in second
    assert not any(statement.sentence in second for statement in statements)


def test_on_gce_a_second_label_is_set_and_the_first_one_stays(tmp_path: Path) -> None:
    plan = planned(tmp_path, [*labelled_nodes(1, GCE), PLUGIN])

    (text,) = wave_notes(plan)
    assert "set the label cloud.google.com/gke-gpu-dra-driver=true in their node pools" in text
    assert f"leave {GCE} as it is" in text
    assert f"{GCE}-)" not in text


def test_a_node_that_is_for_dra_already_has_no_note(tmp_path: Path) -> None:
    plan = planned(tmp_path, [*labelled_nodes(1, GCE, **GCE_DRA), PLUGIN])

    assert GCE not in "\n".join(wave_notes(plan))
    assert [""] == [entry["gpuLabel"] for wave in plan["waves"] for entry in wave["nodes"]]


def test_workloads_that_select_nodes_by_the_label_are_named(tmp_path: Path) -> None:
    web = workload("web", {GPU: "1"}, ["gpu-0"])
    web[0]["spec"]["template"]["spec"]["nodeSelector"] = {AWS: "h100"}

    plan = planned(tmp_path, [*labelled_nodes(3), PLUGIN, namespace("team"), *web])

    text = "\n".join(wave_notes(plan))
    assert "after Deployment/team/web, which select nodes by it, select another label" in text


@pytest.mark.parametrize("make", [plugin_node, hami_node])
def test_a_node_of_no_known_pool_has_the_annotation(tmp_path: Path, make: Any) -> None:
    """The Cluster API has no label for its groups, so nothing held its autoscaler off."""
    nodes = [make(f"gpu-{index}") for index in range(2)]
    for document in nodes:
        document["metadata"]["labels"]["cluster-api/accelerator"] = "h100"

    plan = planned(tmp_path, [*nodes, PLUGIN], "--wave-nodes", 2)

    (wave,) = plan["waves"]
    assert [[KEY], [KEY]] == [entry["annotations"] for entry in wave["nodes"]]
    assert {"cluster-api/accelerator"} == {entry["gpuLabel"] for entry in wave["nodes"]}


@pytest.mark.parametrize(
    ("others", "halting"), [(0, [2]), (4, [3]), (9, [])], ids=["half", "later", "never"]
)
def test_the_wave_after_which_the_autoscaler_halts_says_so(
    tmp_path: Path, others: int, halting: list[int]
) -> None:
    cpu = [node(f"cpu-{index}", {}, {}, {}) for index in range(others)]

    plan = planned(tmp_path, [*labelled_nodes(6), *cpu, PLUGIN], "--wave-nodes", 2)

    halts = [number for number, text in enumerate(wave_notes(plan), 1) if "after this wave" in text]
    assert halting == halts


def test_the_checks_before_a_wave_name_switched_nodes_and_a_halt(tmp_path: Path) -> None:
    nodes = labelled_nodes(6)
    planned(tmp_path, [*nodes, PLUGIN], "--wave-nodes", 2)
    switched = planned_names(tmp_path, nodes)
    now = [
        {**document, "status": {**document["status"], "allocatable": {GPU: "0"}}}
        if document["metadata"]["name"] in switched
        else document
        for document in nodes
    ]

    first = [check["message"] for check in checks_before(tmp_path, [*nodes, PLUGIN])]
    second = [
        (check["state"], check["message"])
        for check in checks_before(tmp_path, [*now, PLUGIN], wave=2)
        if check["object"] == "Cluster//"
    ]

    assert not any("Cluster Autoscaler" in message for message in first)
    names = ", ".join(switched)
    label, halt = second
    assert ("note", "note") == (label[0], halt[0])
    assert f"Cluster Autoscaler takes {names} for unready by the label {AWS}, see the" in label[1]
    assert f"leave {KEY} on them" in label[1]
    assert "after this wave 4 of 6 nodes are unready for Cluster Autoscaler" in halt[1]


@pytest.mark.parametrize(
    ("wave", "released", "halt"),
    [(1, (), ""), (2, (), "4 of 6 nodes"), (3, (), "6 of 6 nodes"), (3, range(6), "")],
    ids=["2 nodes", "4 nodes", "all nodes", "without the label"],
)
def test_the_checks_after_a_wave_name_switched_nodes_and_a_halt(
    tmp_path: Path, wave: int, released: Sequence[int], halt: str
) -> None:
    """Nothing named the nodes of the last wave."""
    nodes = labelled_nodes(6)
    plan = planned(tmp_path, [*nodes, PLUGIN], "--wave-nodes", 2)
    switched = [node["name"] for entry in plan["waves"][:wave] for node in entry["nodes"]]
    for document in nodes:
        if document["metadata"]["name"] in switched:
            document["status"]["allocatable"] = {GPU: "0"}
    for number in released:
        del nodes[number]["metadata"]["labels"][AWS]

    notes = cluster_notes(tmp_path, [*nodes, PLUGIN], wave)

    label = [text for text in notes if "see the notes of the plan on it" in text]
    halts = [text for text in notes if "removes no node of the cluster" in text]
    assert ([], []) == (label, halts) if released else 1 == len(label)
    for text in label:
        assert f"Cluster Autoscaler takes {join_names(switched)} for unready by the" in text
    assert bool(halt) is bool(halts)
    for text in halts:
        assert text.startswith(f"{halt} are unready for Cluster Autoscaler by their label")
        assert "before this wave" not in text


def cluster_notes(tmp_path: Path, objects: Sequence[Mapping[str, Any]], wave: int) -> list[str]:
    """Return the notes on the cluster of the checks after a wave."""
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(objects))
    folder = tmp_path / "plan" / f"wave-{wave}"
    result = drawbridge("verify", "--snapshot", file, "--wave", folder, "-o", "json")
    return [
        check["message"]
        for check in json.loads(result.stdout)["checks"]
        if (check["object"], check["state"]) == ("Cluster//", "note")
    ]


def planned_names(tmp_path: Path, nodes: list[dict[str, Any]]) -> list[str]:
    """Return the nodes of the first wave, in its order."""
    text = (tmp_path / "plan" / "wave-1" / "switch.sh").read_text()
    names = [document["metadata"]["name"] for document in nodes]
    return sorted(
        (name for name in names if f"uncordon {name}" in text),
        key=lambda name: text.index(f"uncordon {name}"),
    )


# --- the assessment -------------------------------------------------------------------------------


def label_notes(tmp_path: Path, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)
    return [note for note in answer["notes"] if note["code"] == "gpuLabel"]


@pytest.mark.parametrize("make", [plugin_node, hami_node])
def test_an_assessment_names_the_label_with_what_a_plan_says_to_do(
    tmp_path: Path, make: Any
) -> None:
    """A plan said it with its first wave, and the assessment weeks before had no word of it."""
    nodes = [make(f"gpu-{index}") for index in range(3)]
    for document in nodes[:2]:
        document["metadata"]["labels"][AWS] = "h100"
    web = workload("web", {GPU: "1"}, ["gpu-0"])
    web[0]["spec"]["template"]["spec"]["nodeSelector"] = {AWS: "h100"}
    objects = [*nodes, PLUGIN, namespace("team"), *web]

    (note,) = label_notes(tmp_path, objects)

    assert ["Node//gpu-0", "Node//gpu-1"] == note["objects"]
    assert note["message"].startswith(f"{AWS} is the label by which Cluster Autoscaler knows nodes")
    assert note["message"].endswith(", and a switched node has none")
    assert "after Deployment/team/web, which select nodes by it, " in note["fix"]
    assert note["fix"] in "\n".join(wave_notes(planned(tmp_path, objects)))


def test_an_assessment_has_a_note_for_each_label_and_none_without(tmp_path: Path) -> None:
    switched = node("done-0", {}, {AWS: "h100"}, {})
    objects = [
        *labelled_nodes(1, GCE),
        *(switched, resource_slice("done-0", "gpu.nvidia.com", ["a"])),
        node("cpu-0", {}, {AWS: "none"}, {}),
    ]

    notes = label_notes(tmp_path, objects)

    assert [["Node//gpu-0"], ["Node//done-0"]] == [note["objects"] for note in notes]
    assert "on GCE set the label cloud.google.com/gke-gpu-dra-driver=true" in notes[0]["fix"]
    assert [] == label_notes(tmp_path, labelled_nodes(2, GCE, **GCE_DRA))
    assert [] == label_notes(tmp_path, [plugin_node("gpu-0")])


@pytest.mark.parametrize(("number", "halts"), [(3, False), (6, True)])
def test_an_assessment_says_where_the_autoscaler_would_halt(
    tmp_path: Path, number: int, *, halts: bool
) -> None:
    (note,) = label_notes(tmp_path, labelled_nodes(number))

    assert halts is ("it adds and removes no node of the cluster" in note["message"])


# --- the end of the last wave -----------------------------------------------------------------------

KUBECTL: Final = """#!/bin/sh
echo "$@" >> @CALLS@
case "$1 $2 $3" in "get nodes --selector=@SELECTOR@") echo "@ANSWER@" ;; esac
"""


def end_step(tmp_path: Path, selector: str, answer: str) -> tuple[list[str], str]:
    """Return the commands of the last step of a wave that annotate nodes, and its output."""
    folder = tmp_path / "bin"
    folder.mkdir()
    calls = tmp_path / "calls"
    text = KUBECTL.replace("@CALLS@", str(calls)).replace("@SELECTOR@", selector)
    (folder / "kubectl").write_text(text.replace("@ANSWER@", answer))
    (folder / "kubectl").chmod(0o755)
    ran = subprocess.run(
        [tmp_path / "plan" / "wave-1" / "switch.sh", "--step", "end"],
        env={"PATH": f"{folder}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == ran.returncode, ran.stderr
    lines = calls.read_text().splitlines()
    return [line for line in lines if line.startswith("annotate")], ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("label", "answer", "released"),
    [
        (AWS, "gpu-0=true gpu-1=true ", []),
        (AWS, "gpu-1=true gpu-9=true ", ["gpu-0"]),
        (AWS, "gpu-0= gpu-1=true ", ["gpu-0"]),
        (AWS, "", ["gpu-0", "gpu-1"]),
        (GCE, "gpu-0=true ", ["gpu-1"]),
    ],
    ids=["both", "one", "one without the annotation", "none", "gce"],
)
def test_a_node_with_the_label_keeps_the_annotation(
    tmp_path: Path, label: str, answer: str, released: list[str]
) -> None:
    """The last wave gave nodes with serving pods to the Cluster Autoscaler as unused ones."""
    planned(tmp_path, [*labelled_nodes(2, label), PLUGIN], "--wave-nodes", 2)

    annotated, text = end_step(tmp_path, unready_selector(label), answer)

    assert [f"annotate node {name} {KEY}-" for name in released] == sorted(annotated)
    left = [name for name in ("gpu-0", "gpu-1") if name not in released]
    assert (
        f"take the annotation off: kubectl annotate nodes {' '.join(left)} {KEY}-" in text
    ) is bool(left)
    assert (f"they have the label {label} and no device plugin" in text) is bool(left)


def test_a_rollback_gives_a_node_with_the_label_back(tmp_path: Path) -> None:
    """Its device plugin is there again."""
    planned(tmp_path, [*labelled_nodes(1), PLUGIN])

    text = (tmp_path / "plan" / "wave-1" / "rollback.sh").read_text()
    assert f"kubectl annotate node gpu-0 {KEY}-" in text
    assert "give_to_autoscaler" not in text


@pytest.mark.parametrize(
    ("labels", "rest"),
    [
        ({AWS: "h100"}, ", but those that are unready by their label of GPUs, and names these."),
        ({"eks.amazonaws.com/nodegroup": "a"}, "."),
    ],
)
def test_the_page_says_how_a_migration_ends_early(
    tmp_path: Path, labels: dict[str, str], rest: str
) -> None:
    """Without the last wave all nodes had the annotation for good. Those with a label of GPUs keep it."""
    nodes = [plugin_node(f"gpu-{index}", 4, **labels) for index in range(2)]

    planned(tmp_path, [*nodes, PLUGIN], "--wave-nodes", 1)

    page = (tmp_path / "plan" / "README.md").read_text()
    end = "run `wave-2/switch.sh --step end`: it takes the annotation off the nodes of all waves"
    assert f"{end}{rest}\n" in page


def test_a_page_of_nodes_of_no_pool_says_nothing_of_it(tmp_path: Path) -> None:
    planned(tmp_path, [plugin_node("gpu-0"), PLUGIN])

    assert "--step end" not in (tmp_path / "plan" / "README.md").read_text()


def test_a_release_before_statements_hold_has_the_label_alone(tmp_path: Path) -> None:
    image = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.5"
    spec = {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}
    autoscaler = api_object("Deployment", "cluster-autoscaler", "kube-system", spec=spec)

    plan = planned(tmp_path, [*labelled_nodes(1), PLUGIN, autoscaler])

    (text,) = wave_notes(plan)
    assert "counts 0 as the utilisation" in text
    assert "issue 10301" not in text
