"""`drawbridge plan`, `verify` and `assess --residue` in a cluster that renamed HAMi's resources."""

import copy
import json
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import namespace
from testing.migration import GPU, hami_node, plugin_node, resource_slice, workload
from testing.plan import Objects, checks_before, planned, script

HAMI: Final = "hami-core-gpu.project-hami.io"
VGPU: Final = "hami.io/vgpu"
RENAMED: Final = {VGPU: GPU, "hami.io/vgpumem": "nvidia.com/gpumem"}
SHARE: Final = {VGPU: "1", "hami.io/vgpumem": "8000"}


def renamed_node(name: str, **amounts: str) -> dict[str, Any]:
    """Return a node of HAMi with its devices under the new name."""
    document = hami_node(name)
    del document["status"]["allocatable"][GPU]
    document["status"]["allocatable"] |= {VGPU: "20", **amounts}
    return document


def switched(document: dict[str, Any], **amounts: str) -> list[dict[str, Any]]:
    """Return a node after its switch: the devices of HAMi's driver, and the offers of a plugin."""
    document = copy.deepcopy(document)
    name = document["metadata"]["name"]
    document["status"]["allocatable"] |= amounts
    return [document, resource_slice(name, HAMI, [f"GPU-{name}-0", f"GPU-{name}-1"])]


def settings(tmp_path: Path) -> Path:
    file = tmp_path / "settings.yaml"
    file.write_text(dump_yaml([{"translation": {"renamedKeys": RENAMED}}]))
    return file


def cluster() -> Objects:
    share = workload("share", SHARE, ["hami-0"])
    web = workload("web", {GPU: "1"}, ["gpu-0"], namespace="other")
    nodes = [renamed_node("hami-0"), renamed_node("hami-1")]
    others = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    return [*nodes, *others, namespace("team"), namespace("other"), *share, *web]


def nodes_of(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for wave in plan["waves"] for node in wave["nodes"]}


def hami_of(plan: dict[str, Any]) -> tuple[int, str]:
    """Return the first wave with a node of HAMi, and the node."""
    return next(
        (wave["wave"], node["name"])
        for wave in plan["waves"]
        for node in wave["nodes"]
        if node["source"] == "hami"
    )


def checks_of(tmp_path: Path, objects: Objects, *options: object) -> dict[str, tuple[str, str]]:
    """Return object to the state and the message of its first check."""
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(objects))
    flags = ("--settings", settings(tmp_path), "-o", "json")
    result = drawbridge("verify", "--snapshot", file, *options, *flags)
    checks = json.loads(result.stdout)["checks"][::-1]
    return {check["object"]: (check["state"], check["message"]) for check in checks}


def test_a_plan_waits_for_the_renamed_name(tmp_path: Path) -> None:
    """It had no name of HAMi's nodes, and asked for one that they never offered: at once the plugin had left."""
    plan = planned(tmp_path, cluster(), "--settings", settings(tmp_path))

    resources = {name: node["resources"] for name, node in nodes_of(plan).items()}
    offers = {"hami": {VGPU: "20"}, "gpu": {GPU: "4"}}
    assert resources == {f"{kind}-{n}": offer for kind, offer in offers.items() for n in range(2)}
    for wave in plan["waves"]:
        texts = [script(tmp_path, phase, wave["wave"]) for phase in ("switch", "rollback")]
        for node in wave["nodes"]:
            (key,) = node["resources"]
            lines = [line for line in texts[0].splitlines() if f"--node={node['name']} --" in line]
            assert any(f"--resource={key} " in line for line in lines), lines
            assert f"wait_for_offer {node['name']} {key} " in texts[1]


def test_all_names_that_a_node_offers_have_to_leave(tmp_path: Path) -> None:
    """The name of an earlier plugin stays with an amount of zero, and a rollback would wait for it."""
    names = {GPU: "0", "hami.io/vgpumem": "80"}
    nodes = [renamed_node("hami-0", **names), renamed_node("hami-1", **{GPU: "4"})]
    objects = [*nodes, namespace("team"), *workload("share", SHARE, ["hami-0"])]

    plan = planned(tmp_path, objects, "--settings", settings(tmp_path))

    resources = {name: node["resources"] for name, node in nodes_of(plan).items()}
    assert {"hami-0": {VGPU: "20"}, "hami-1": {VGPU: "20", GPU: "4"}} == resources


def test_a_changed_offer_is_seen_before_a_wave(tmp_path: Path) -> None:
    """No resource of HAMi's nodes was compared."""
    objects = copy.deepcopy(list(cluster()))
    plan = planned(tmp_path, objects, "--settings", settings(tmp_path))
    number, name = hami_of(plan)
    (document,) = [entry for entry in objects if entry["metadata"]["name"] == name]
    document["status"]["allocatable"][VGPU] = "10"

    checks = checks_before(tmp_path, objects, number)
    messages = {check["object"]: check["message"] for check in checks}
    assert f"it offers {VGPU} 10 and not what was planned" in messages[f"Node//{name}"]


@pytest.mark.parametrize("key", [[], ["--resource", GPU], ["--resource", VGPU]])
@pytest.mark.parametrize(("amount", "state"), [("20", "waiting"), ("0", "ok")])
def test_a_node_is_not_switched_while_the_renamed_name_is_offered(
    tmp_path: Path, key: list[str], amount: str, state: str
) -> None:
    """It was right for both amounts: the node was uncordoned with both, and each card was given twice."""
    objects = switched(renamed_node("hami-0"), **{VGPU: amount})

    checks = checks_of(tmp_path, objects, "--node", "hami-0", *key)

    assert (state, amount == "20") == (checks["Node//hami-0"][0], VGPU in checks["Node//hami-0"][1])


def test_a_wave_is_not_done_while_the_renamed_name_is_offered(tmp_path: Path) -> None:
    plan = planned(tmp_path, cluster(), "--settings", settings(tmp_path))
    number, name = hami_of(plan)

    folder = tmp_path / "plan" / f"wave-{number}"
    checks = checks_of(tmp_path, switched(renamed_node(name)), "--wave", folder)

    assert ("waiting", f"its device plugin still offers {VGPU} 20") == checks[f"Node//{name}"]


@pytest.mark.parametrize("amount", ["20", "0"])
def test_the_residue_is_what_the_renamed_name_tells(tmp_path: Path, amount: str) -> None:
    """A node with devices of both was switched by the name that it never offered."""
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(switched(renamed_node("hami-0"), **{VGPU: amount})))
    flags = ("--settings", settings(tmp_path), "--residue", "-o", "json")

    answer = json.loads(drawbridge("assess", "--snapshot", file, *flags).stdout)

    left = [entry["objects"] for entry in answer["residue"] if entry["code"] == "devicePluginLeft"]
    assert ([["Node//hami-0"]] if amount == "20" else []) == left


@pytest.mark.parametrize("replicas", ["nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb.shared"])
def test_a_node_is_not_switched_while_replicas_are_offered(tmp_path: Path, replicas: str) -> None:
    """Replicas of GPUs were on no list of names."""
    objects = switched(renamed_node("hami-0", **{VGPU: "0"}), **{replicas: "8"})

    checks = checks_of(tmp_path, objects, "--node", "hami-0")

    assert ("waiting", f"its device plugin still offers {replicas} 8") == checks["Node//hami-0"]
