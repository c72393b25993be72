"""`verify --before` names the namespaces that are opted in before their wave."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from kube.names import TRANSLATE_LABEL
from testing.documents import namespace
from testing.migration import GPU, SHARE, daemon_set, hami_node, resource_slice, workload
from testing.plan import Objects, failed_before, planned

HAMI: Final = "hami-core-gpu.project-hami.io"
POOLS: Final = ("ml", "team")
DRIVER: Final = daemon_set(
    "driver",
    nodeSelector={"drawbridge.internal/dra-driver": HAMI},
    volumes=[{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}],
)


def estate(
    labels: Mapping[str, str] = {}, switched: int = 0, labelled: str = ""
) -> list[dict[str, Any]]:
    """Two namespaces, each with pods on two nodes of its own.

    Args:
        labels: Namespace to the value of its label.
        switched: The number of nodes that are switched already.
        labelled: The namespace whose pod template has the label.
    """
    objects: list[dict[str, Any]] = [DRIVER]
    for number in range(4):
        node = hami_node(f"hami-{number}", 1)
        node["metadata"]["labels"] = {"gpu": "on", "pool": POOLS[number // 2]}
        if number < switched:
            node["status"]["allocatable"] = {"nvidia.com/gpu": "0"}
            objects.append(resource_slice(f"hami-{number}", HAMI, (f"GPU-hami-{number}-0",)))
        objects.append(node)
    for number, name in enumerate(POOLS):
        objects.append(namespace(name, {TRANSLATE_LABEL: labels[name]} if name in labels else {}))
        owner, pod = workload(
            *("web", SHARE, [f"hami-{2 * number + 1}"]), namespace=name, nodeSelector={"pool": name}
        )
        objects += [with_label(owner) if name == labelled else owner, pod]
    return objects


def with_label(owner: dict[str, Any]) -> dict[str, Any]:
    """Return a workload with the label on its pod template, as the patches of a wave give it."""
    template = owner["spec"]["template"]
    labels = {**template["metadata"]["labels"], TRANSLATE_LABEL: "true"}
    template = {**template, "metadata": {**template["metadata"], "labels": labels}}
    return {**owner, "spec": {**owner["spec"], "template": template}}


def early_namespaces(tmp_path: Path, objects: Objects, wave: int) -> dict[str, str]:
    """Return the namespaces that fail before a wave."""
    failed = failed_before(tmp_path, objects, wave)
    return {name: text for name, text in failed.items() if name.startswith("Namespace//")}


@pytest.mark.parametrize(
    ("wave", "labels", "early"),
    [
        (1, {}, {}),
        (1, {"ml": "true"}, {"ml": ("true", 1)}),
        (1, {"team": "selected"}, {}),
        (1, {"ml": "true", "team": "true"}, {"ml": ("true", 1), "team": ("true", 3)}),
        (1, {"team": "false"}, {}),
        (3, {"ml": "true"}, {}),
        (3, {"ml": "true", "team": "true"}, {"team": ("true", 3)}),
        (4, {"ml": "true", "team": "true"}, {}),
    ],
)
def test_a_label_before_its_wave_is_named(
    tmp_path: Path, wave: int, labels: Mapping[str, str], early: Mapping[str, tuple[str, int]]
) -> None:
    """Their new pods got claims, and no check said so."""
    plan = planned(tmp_path, estate(), "--wave-nodes", 1)
    assert [["ml"], [], ["team"], []] == [entry["namespaces"] for entry in plan["waves"]]

    named = early_namespaces(tmp_path, estate(labels, wave - 1), wave)

    expected = {
        f"Namespace//{name}": (
            f"label {TRANSLATE_LABEL} is {value} already, before wave {number} opts it in: new pods get claims before the nodes "
            f"for these are switched; set it back (kubectl label namespace {name} {TRANSLATE_LABEL}-; in your repository if it "
            "is there), or plan again from a new snapshot"
        )
        for name, (value, number) in early.items()
    }
    assert expected == named


def test_a_label_that_selects_pods_is_early_for_those_with_theirs(tmp_path: Path) -> None:
    """New pods were said to get claims, and none of them had the label."""
    planned(tmp_path, estate(), "--wave-nodes", 1)

    other = early_namespaces(tmp_path, estate({"team": "selected"}, 0, "ml"), 1)
    own = early_namespaces(tmp_path, estate({"team": "selected"}, 0, "team"), 1)

    assert {} == other
    assert ["Namespace//team"] == list(own)
    assert own["Namespace//team"].startswith(
        f"label {TRANSLATE_LABEL} is selected already, before wave 3 opts it in: new pods of Deployment/team/web, which have "
        "this label with true, get claims before the nodes for these are switched; set it back"
    )


def test_a_wave_without_nodes_may_have_its_labels(tmp_path: Path) -> None:
    """All nodes for them are switched by then, and a second run finds its own labels."""
    late = workload("late", SHARE, ["hami-2"], namespace="ml", nodeSelector={"pool": "team"})
    plan = planned(tmp_path, [*estate(), *late], "--wave-nodes", 1)
    assert ([], ["ml"]) == (plan["waves"][2]["nodes"], plan["waves"][2]["namespaces"])

    objects = [*estate({"ml": "true", "team": "true"}, 3), *late]

    assert "before wave 3 opts it in" in early_namespaces(tmp_path, objects, 2)["Namespace//ml"]
    assert {} == early_namespaces(tmp_path, objects, 3)


@pytest.mark.parametrize(
    ("wave", "value", "command"),
    [
        (1, "selected", f"{TRANSLATE_LABEL}-;"),
        (2, "selected", ""),
        (2, "true", "put that back"),
        (3, "selected", ""),
        (3, "true", f"{TRANSLATE_LABEL}=selected --overwrite;"),
        (4, "true", ""),
    ],
)
def test_a_namespace_in_parts_has_the_label_of_its_last_wave(
    tmp_path: Path, wave: int, value: str, command: str
) -> None:
    nodes = [hami_node(f"hami-{number}") for number in range(4)]
    share = {GPU: "1", "nvidia.com/gpumem": "40960"}
    work = [
        entry
        for number in range(5)
        for entry in workload(f"web-{number}", share, [f"hami-{number // 2}"], namespace="ml")
    ]
    plan = planned(tmp_path, [*nodes, *work, namespace("ml")], "--wave-nodes", 1)
    assert [[], [], ["ml"], []] == [entry["namespaces"] for entry in plan["waves"]]

    work = [with_label(entry) if entry["kind"] == "Deployment" else entry for entry in work]
    now = [*nodes, *work, namespace("ml", {TRANSLATE_LABEL: value})]
    early = early_namespaces(tmp_path, now, wave)

    assert bool(command) is bool(early)
    assert command in early.get("Namespace//ml", "")


@pytest.mark.parametrize(("value", "is_named"), [("selected", False), ("true", True)])
def test_a_namespace_that_no_wave_opts_in_as_a_whole_has_the_label_of_its_parts(
    tmp_path: Path, value: str, *, is_named: bool
) -> None:
    """The wave of its part was over, so nothing looked at its label any more."""
    late = workload("late", SHARE, [], namespace="ml", nodeSelector={"pool": "late"})
    cordoned = {**hami_node("hami-4", 1), "spec": {"unschedulable": True}}
    cordoned["metadata"]["labels"]["pool"] = "late"
    plan = planned(tmp_path, [*estate(), *late, cordoned], "--wave-nodes", 1)
    assert [["ml"], [], [], []] == [
        [part["namespace"] for part in wave["partialNamespaces"]] for wave in plan["waves"]
    ]
    assert "ml" not in str([wave["namespaces"] for wave in plan["waves"]])

    named = early_namespaces(tmp_path, [*estate({"ml": value}, 1), *late, cordoned], 2)

    text = (
        f"label {TRANSLATE_LABEL} is true, and no wave opts in more than the workloads of wave 1: new pods of the others get "
        f"claims that no node may serve; set it back (kubectl label namespace ml {TRANSLATE_LABEL}=selected --overwrite; in your "
        "repository if it is there), or plan again from a new snapshot"
    )
    assert named == ({"Namespace//ml": text} if is_named else {})
