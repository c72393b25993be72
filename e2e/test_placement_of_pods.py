"""The real scheduler and `drawbridge simulate` decide alike: fits, counted reasons, and nodes but for ties.

`DRAWBRIDGE_E2E_PLACEMENT="200 2000"` does it with 200 nodes and 2,000 pods.
"""

import os
from typing import Final

import pytest

from e2e import inventory
from e2e.access import Access
from e2e.placed import compare, nodes, pods, runtime_class

NODES, PODS = map(int, os.environ.get("DRAWBRIDGE_E2E_PLACEMENT", "16 120").split())
SEED: Final = 20
ALL_NODES: Final = {"scheduler": {"percentageOfNodesToScore": 100}}
"""Else the best of a part of the nodes is taken, and which part nobody can tell."""


@pytest.mark.parametrize("cluster", [ALL_NODES], indirect=True)
def test_pods_of_all_kinds_go_where_the_simulation_says(cluster: Access, namespace: str) -> None:
    cluster.apply([inventory.example_class(), runtime_class()])
    names = cluster.add_nodes(
        nodes(NODES, "sized"), lambda node: inventory.example_gpus(node, gpus=4)
    )
    try:
        comparison = compare(cluster, namespace, list(pods(PODS, SEED)))
    finally:
        cluster.remove_nodes(names)

    assert comparison.differences == []
    assert comparison.placed + comparison.failed == PODS
    # The pods are such that every part of the model decides about some.
    assert min(comparison.placed - comparison.ties, comparison.failed) > PODS // 10
    print(
        f"{comparison.placed} placed, {comparison.ties} ties, {comparison.failed} failed: {comparison.reasons}"
    )
