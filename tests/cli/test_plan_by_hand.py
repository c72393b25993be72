"""`drawbridge plan`: pods that nothing creates again, and that a person deletes with a wave, are named with their losses."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import namespace
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.plan import planned, script

SERVER: Final = {"component": "singleuser-server"}
BEGAN: Final = "2026-11-28T09:00:00Z"
PLACES: Final = pytest.mark.parametrize(
    ("node", "number"), [("hami-1", 1), ("hami-2", 2)], ids=["of a later wave", "of no wave"]
)


def bare(node: str, limits: Mapping[str, str] = SHARE, **labels: str) -> dict[str, Any]:
    """A pod without a controller, with an emptyDir."""
    _, pod = workload("lab", limits, [node], volumes=[{"name": "work", "emptyDir": {}}])
    del pod["metadata"]["ownerReferences"]
    pod["metadata"]["labels"] = labels
    pod["status"] = {"phase": "Running", "startTime": BEGAN}
    return pod


def moved(tmp_path: Path, node: str, **labels: str) -> tuple[list[dict[str, Any]], str]:
    """Return the waves of three nodes of HAMi, the last one cordoned, with such a pod on one of them, and README.md."""
    last = hami_node("hami-2")
    last["spec"] = {"unschedulable": True}
    nodes = [hami_node("hami-0"), hami_node("hami-1"), last]
    plan = planned(
        tmp_path, [*nodes, namespace("team"), bare(node, SHARE, **labels)], "--wave-nodes", 1
    )
    return plan["waves"], (tmp_path / "plan" / "README.md").read_text()


@PLACES
def test_a_pod_on_a_node_outside_its_wave_is_named_with_its_losses(
    tmp_path: Path, node: str, number: int
) -> None:
    """Its deletion was a line at the end of switch.sh, and nobody had told its user before."""
    waves, readme = moved(tmp_path, node)

    wave = waves[number - 1]
    note = f"nothing creates team/lab-0 on {node} again: such pods keep their device keys until a person deletes them"
    assert ["team"] == wave["namespaces"]
    assert [number] == [
        entry["wave"]
        for entry in waves
        if ["Pod/team/lab-0"] == [work["pod"] for work in entry["deletedByHand"]]
    ]
    assert [note] == [text[: len(note)] for text in wave["notes"] if "nothing creates" in text]
    assert note in script(tmp_path, "preflight", number)
    assert (
        f"- wave {number}, deleted by hand: Pod/team/lab-0 of nothing that creates it again on {node}, since {BEGAN}: what is in its "
        "emptyDir work is lost; what it has in memory is lost\n"
    ) in readme
    # By a later wave it has claims, on a switched node.
    assert [] == [work["pod"] for entry in waves for work in entry["work"]]
    assert 1 == readme.count("Pod/team/lab-0")
    page = (tmp_path / "plan" / "plan.html").read_text()
    assert 1 == page.count("Deleted by a person, since nothing creates them again")


@PLACES
def test_a_server_of_a_hub_outside_its_wave_is_started_again_by_its_user(
    tmp_path: Path, node: str, number: int
) -> None:
    """On a node without a wave its manifest was to be applied again, and a hub has none."""
    waves, readme = moved(tmp_path, node, **SERVER)

    (note,) = [text for text in waves[number - 1]["notes"] if "JupyterHub" in text]
    assert note.startswith(
        f"1 server of users of JupyterHub gets claims when started again: team/lab-0 on {node}; "
    )
    assert f"- wave {number}, stopped by its user: Pod/team/lab-0 of nothing" in readme
    for name in ("switch", "rollback"):
        text = script(tmp_path, name, number)
        assert "by hand: have its user stop Pod/team/lab-0, and start it again in the hub" in text
        assert "apply its manifest again" not in text


def test_a_pod_on_a_node_of_its_wave_is_deleted_and_not_evicted(tmp_path: Path) -> None:
    """A drain stops at it, and README.md said that one evicts it."""
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1"), namespace("team")]

    plan = planned(tmp_path, [*nodes, bare("gpu-0", {GPU: "1"})])

    readme = (tmp_path / "plan" / "README.md").read_text()
    (wave,) = [entry for entry in plan["waves"] if entry["deletedByHand"]]
    assert ["gpu-0"] == [entry["node"] for entry in wave["deletedByHand"]]
    assert f"wave {wave['wave']}, deleted by hand: Pod/team/lab-0" in readme
    assert ", evicted: Pod/team/lab-0" not in readme
    assert not any("such pods keep their device keys" in note for note in wave["notes"])


def test_a_pod_that_stopped_an_earlier_drain_is_named_where_it_is_by_then(tmp_path: Path) -> None:
    """It is deleted twice: before the drain of its node, and once its namespace is opted in."""
    nodes = [hami_node(f"hami-{number}") for number in range(4)]
    small = workload("small", SHARE, ["hami-1"], namespace="small")
    web = workload("web", SHARE, ["hami-1", "hami-2", "hami-3", "hami-1"])
    spaces = [namespace("team"), namespace("small")]

    plan = planned(tmp_path, [*nodes, *spaces, bare("hami-0"), *small, *web], "--wave-nodes", 1)

    assert [(1, "hami-0", False, BEGAN), (3, "hami-1", True, "")] == [
        (wave["wave"], entry["node"], entry["moved"], entry["since"])
        for wave in plan["waves"]
        for entry in wave["deletedByHand"]
    ]
    assert ["hami-0"] == [node["name"] for node in plan["waves"][0]["nodes"]]
    assert ["team"] == plan["waves"][2]["namespaces"]
