"""`drawbridge plan`: workloads that a drain leaves without any pod are named before."""

from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import namespace
from testing.migration import GPU, budget, plugin_node, workload
from testing.plan import planned, script

ALL: Final = "its drains evict all pods of a workload at once, 3 of Deployment/team/web, and no PodDisruptionBudget selects them: "
ONLY: Final = (
    "its drains evict the only pod of Deployment/team/web: none runs until a new one is ready"
)


@pytest.mark.parametrize(
    ("pods", "others", "expected"),
    [
        (["gpu-0"] * 3, [], ALL),
        (["gpu-0"], [], ONLY),
        (["gpu-0", "gpu-0", "gpu-2"], [], ""),
        (["gpu-0"] * 3, [budget(app="web", maxUnavailable=1)], ""),
        (["gpu-0"] * 3, [budget(app="other", maxUnavailable=1)], ALL),
    ],
    ids=["all on one node", "one pod", "one elsewhere", "a budget", "another budget"],
)
def test_a_workload_whose_pods_all_leave_at_once_is_named(
    tmp_path: Path, pods: list[str], others: list[dict[str, Any]], expected: str
) -> None:
    """A reader found six pods of six on one node of a wave, and nothing that said so."""
    objects = [
        *(plugin_node(f"gpu-{number}") for number in range(3)),
        namespace("team"),
        *workload("web", {GPU: "1"}, pods),
        *others,
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    (wave,) = [
        wave for wave in plan["waves"] if ["gpu-0"] == [node["name"] for node in wave["nodes"]]
    ]
    notes = [note for note in wave["notes"] if note.startswith("its drains evict")]
    assert bool(expected) is bool(notes)
    assert all(note.startswith(expected) for note in notes)
    assert (["Deployment/team/web"] if expected else []) == wave["emptiedWorkloads"]
    assert bool(expected) is ("its drains evict" in script(tmp_path, "preflight", wave["wave"]))
