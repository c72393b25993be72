"""`drawbridge plan` and `assess` with pods of whole devices in namespaces that are opted out."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kube.manifests.dump import dump_yaml
from kube.names import TRANSLATE_LABEL
from testing.command import drawbridge
from testing.documents import namespace
from testing.migration import WHOLE, plugin_node, workload
from testing.plan import Objects, held_objects, planned, waves

SWITCHED: Final = "nvidia.com/dra-kubelet-plugin"
AWAY: Final = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": SWITCHED, "operator": "DoesNotExist"}]}
            ]
        }
    }
}
OPTIONS: Final = ("--wave-nodes", 1, "--keep-free", 0, "--spare-nodes", 0)


def cluster(**spec: Any) -> Objects:
    """Three nodes, one with a pod of a namespace that is opted out, and one with another pod."""
    out: Mapping[str, Any] = {
        **namespace("out"),
        "metadata": {"name": "out", "labels": {TRANSLATE_LABEL: "false"}},
    }
    return [
        *(plugin_node(f"gpu-{number}", 1) for number in range(3)),
        namespace("team"),
        out,
        *workload("web", WHOLE, ["gpu-0"]),
        *workload("score", WHOLE, ["gpu-1"], namespace="out", **spec),
    ]


def notes(plan: Mapping[str, Any]) -> list[str]:
    return [
        note
        for wave in plan["waves"]
        for note in wave["notes"]
        if "their namespace is opted out" in note
    ]


def test_a_note_names_evicted_pods_of_an_opted_out_namespace(tmp_path: Path) -> None:
    """No text of a plan said that they get devices of a DRA driver in spite of the label."""
    plan = planned(tmp_path, cluster(), *OPTIONS)

    (note,) = notes(plan)
    assert note.startswith("pods of Deployment/out/score are evicted, and may get devices of a DRA")
    assert f"a required node affinity with {SWITCHED} DoesNotExist, which leaves out" in note
    assert note in (tmp_path / "plan" / "README.md").read_text()


def test_those_that_keep_away_from_switched_nodes_keep_a_node(tmp_path: Path) -> None:
    """The advice was to select nodes that stay as they are, and no plan left these alone."""
    plan = planned(tmp_path, cluster(affinity=AWAY), *OPTIONS)

    assert [] == notes(plan)
    switched = {name for names, _ in waves(plan) for name in names}
    assert 2 == len(switched)
    (held,) = (name for name in held_objects(plan) if name.startswith("Node//"))
    assert held.removeprefix("Node//") not in switched


def test_assess_names_a_way_that_plan_goes(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(cluster()))

    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)

    (note,) = (entry for entry in answer["notes"] if entry["code"] == "optedOutNative")
    assert f"{SWITCHED} DoesNotExist" in note["fix"]
