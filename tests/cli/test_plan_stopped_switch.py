"""A plan that is made anew after a switch.sh that stopped between its nodes and its namespaces."""

from pathlib import Path
from typing import Any, Final

import pytest

from testing.builders import HAMI, hami_gpu
from testing.documents import namespace, node, resource_slice
from testing.migration import SHARE, daemon_set, hami_node, workload
from testing.plan import held_objects, planned, waves

SWITCHED: Final = (
    node("hami-0", {}, {"drawbridge.internal/dra-driver": HAMI, "gpu": "off"}, {}),
    resource_slice(hami_gpu("40Gi"), driver=HAMI, node="hami-0", name="slice-0"),
    daemon_set(
        "hami-dra",
        nodeSelector={"drawbridge.internal/dra-driver": HAMI},
        volumes=[{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}],
    ),
)


def stopped(*shares: dict[str, str]) -> list[dict[str, Any]]:
    """A cluster with one switched node, one of HAMi, and a workload there for each share."""
    teams = [f"team-{number}" for number in range(len(shares))]
    return [
        *(*SWITCHED, hami_node("hami-1")),
        *(namespace(team) for team in teams),
        *(
            entry
            for team, share in zip(teams, shares, strict=True)
            for entry in workload("web", share, ["hami-1"], namespace=team)
        ),
    ]


@pytest.mark.parametrize("options", [(), ("--keep-free", 0, "--spare-nodes", 0)])
def test_the_last_node_comes_after_its_namespace(
    tmp_path: Path, options: tuple[object, ...]
) -> None:
    """Its pods have no other node of HAMi for its drain, so nothing moved."""
    plan = planned(tmp_path, stopped(SHARE), *options)

    assert [([], ["team-0"]), (["hami-1"], [])] == waves(plan)
    assert {} == held_objects(plan)


def test_a_namespace_that_fits_alone_moves_before_one_that_does_not(tmp_path: Path) -> None:
    """Its pods get the only GPU of the switched node, and the other pod keeps its node."""
    larger = {**SHARE, "nvidia.com/gpumem": "39000"}
    plan = planned(tmp_path, stopped(larger, larger))

    assert [([], ["team-0"])] == waves(plan)
    assert "no devices" in held_objects(plan)["Node//hami-1"]
    assert "no devices" in held_objects(plan)["Namespace//team-1"]
