"""`drawbridge plan` for workloads with affinity between pods that names none of these: it has no part in a plan."""

from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import namespace
from testing.migration import SHARE, hami_node, workload
from testing.plan import planned

PLACES: Final = (
    "migration.plan.search.usable_nodes.is_eligible",
    "migration.plan.stage.other_pods.counted_rejection",
    "allocator.simulation.node_filter.node_rejection",
)
"""The functions that compare a pod with a node, where their answers are kept."""


def affinity(key: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": key}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize("place", PLACES)
def test_workloads_that_differ_in_it_are_compared_with_each_node_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Each workload with an affinity was of its own kind: a plan for 800 nodes took three times as long."""
    calls: list[str] = []
    module, _, name = place.rpartition(".")
    compare: Any = getattr(__import__(module, fromlist=[name]), name)

    def counted(pod: Any, node: Any) -> Any:
        calls.append(affinity_of)
        return compare(pod, node)

    monkeypatch.setattr(place, counted)
    for affinity_of in ("shared", "own"):
        objects = [*(hami_node(f"hami-{number}") for number in range(3)), namespace("team")]
        for number in range(4):
            key = "shared" if affinity_of == "shared" else f"key-{number}"
            objects += workload(f"web-{number}", SHARE, ["hami-0"], affinity=affinity(key))
            objects += workload(f"other-{number}", {"cpu": "1"}, ["hami-1"], affinity=affinity(key))
        planned(tmp_path, objects, "--wave-nodes", 1)

    assert calls.count("shared")
    assert calls.count("own") == calls.count("shared")
