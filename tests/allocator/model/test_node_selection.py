"""The conditions on a node for a slice to be relevant. Expected: anchors, or `any` for none needed."""

from typing import Final

import pytest

from allocator.model.node_selection import index_keys
from kube.api.node_selector import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kube.api.resource import ResourceSlice
from testing.allocation.builders import device, requirement, slice_of


def term(*labels: NodeSelectorRequirement, name: str = "") -> NodeSelectorTerm:
    fields = (requirement("metadata.name", name),) if name else None
    return NodeSelectorTerm(match_expressions=labels or None, match_fields=fields)


def at(*terms: NodeSelectorTerm) -> ResourceSlice:
    return slice_of(selector=NodeSelector(node_selector_terms=terms))


IN: Final = requirement("zone", "a", "b")
EXISTS: Final = requirement("rack", operator="Exists")
BROKEN: Final = requirement("zone", operator="is")
PICKY: Final = NodeSelector(node_selector_terms=(term(IN),))


@pytest.mark.parametrize(
    ("want", "listed_slice"),
    [
        pytest.param("=node-1", slice_of(), id="a node"),
        pytest.param("any", slice_of(all_nodes=True), id="all nodes"),
        pytest.param("", slice_of(all_nodes=False), id="nothing said"),
        pytest.param("zone=a zone=b", at(term(IN)), id="one of the values"),
        pytest.param("zone=a zone=b", at(term(EXISTS, IN)), id="the first that names values"),
        pytest.param("any", at(term(EXISTS)), id="no requirement names values"),
        pytest.param("=n", at(term(IN, name="n")), id="a name rather than labels"),
        pytest.param("=n zone=a zone=b", at(term(IN), term(name="n")), id="those of each term"),
        pytest.param("any", at(term(IN), term(EXISTS)), id="a term that names none"),
        pytest.param("zone=a zone=b", at(term(IN), term()), id="an empty term selects nothing"),
        pytest.param("", at(), id="no terms select nothing"),
        pytest.param("any", at(term(IN), term(BROKEN)), id="a broken selector fails every node"),
        pytest.param(
            "=n zone=a zone=b",
            slice_of(device("a", node="n"), device("b", selector=PICKY), per_device=True),
            id="those of each device",
        ),
        pytest.param(
            "any",
            slice_of(device("a", node="n"), device("b", all_nodes=True), per_device=True),
            id="a device for all nodes",
        ),
        pytest.param("", slice_of(device("a"), per_device=True), id="no device says anything"),
    ],
)
def test_index_keys(want: str, listed_slice: ResourceSlice) -> None:
    keys = index_keys(listed_slice)

    text = "any" if keys is None else " ".join(sorted(f"{key}={value}" for key, value in keys))
    assert want == text
