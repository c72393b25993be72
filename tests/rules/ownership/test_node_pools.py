"""Pools of nodes beside the nodes that there are."""

import pytest

from allocator.cluster.cluster import Cluster
from allocator.search.attempt import AllocatorOptions
from kube.api.core import Node
from rules.context.context import Context
from testing.allocation.builders import node
from testing.documents import nodes_of, owned, ownership
from testing.rule_cases import finding_lines


def among(*nodes: Node) -> Context:
    """A cluster with these nodes."""
    options = AllocatorOptions()
    return Context(
        current_cluster=Cluster(slices=(), nodes=nodes, claims=(), classes={}, options=options)
    )


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        pytest.param(among(node("n", pool="a")), (), id="a node is selected"),
        pytest.param(
            among(node("n", pool="b"), node("m")),
            ("warning selectsNoNode spec.drivers[0].pools[0].nodeSelector",),
            id="no node is selected",
        ),
        pytest.param(among(node("n")), (), id="labels are not known"),
        pytest.param(among(), (), id="no nodes are known"),
        pytest.param(Context(), (), id="nothing is known"),
    ],
)
def test_a_pool_that_selects_no_node_is_reported(
    context: Context, expected: tuple[str, ...]
) -> None:
    assert expected == finding_lines(ownership(owned(nodes_of("a"), nodes_of(None))), context)
