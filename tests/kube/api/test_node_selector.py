"""Matching and validation of core/v1 node selectors."""

from typing import Final, NamedTuple

import pytest

from kube.api.node_selector import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    matches,
    validate,
)

LABELS: Final = {"zone": "a", "gpus": "8", "empty": "", "model": "a100"}


def want(key: str, operator: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=values or None)


def term(*expressions: NodeSelectorRequirement, fields: str = "") -> NodeSelectorTerm:
    named_requirements = (want("metadata.name", "In", fields),) if fields else None
    return NodeSelectorTerm(match_expressions=expressions or None, match_fields=named_requirements)


def selector(*terms: NodeSelectorTerm) -> NodeSelector:
    return NodeSelector(node_selector_terms=terms)


class Case(NamedTuple):
    name: str
    want: bool
    selector: NodeSelector


IN_A: Final = want("zone", "In", "a", "b")
IN_C: Final = want("zone", "In", "c")

CASES: Final = (
    Case("In wants one of its values", True, selector(term(IN_A))),
    Case("In is false of other values", False, selector(term(IN_C))),
    Case("In is false of a missing label", False, selector(term(want("rack", "In", "a")))),
    Case("an empty label is not a missing one", True, selector(term(want("empty", "In", "")))),
    Case("a missing label is not an empty one", False, selector(term(want("rack", "In", "")))),
    Case("NotIn is false of its values", False, selector(term(want("zone", "NotIn", "a")))),
    Case("NotIn is true of a missing label", True, selector(term(want("rack", "NotIn", "a")))),
    Case("Exists is true of an empty label", True, selector(term(want("empty", "Exists")))),
    Case("Exists is false of a missing label", False, selector(term(want("rack", "Exists")))),
    Case("DoesNotExist is the opposite", True, selector(term(want("rack", "DoesNotExist")))),
    Case("Gt compares integers, not texts", False, selector(term(want("gpus", "Gt", "10")))),
    Case("Gt is strict", False, selector(term(want("gpus", "Gt", "8")))),
    Case("Lt is strict", False, selector(term(want("gpus", "Lt", "8")))),
    Case("'Lt' takes what is smaller", True, selector(term(want("gpus", "Lt", "10")))),
    Case("Gt is false of what is no integer", False, selector(term(want("model", "Gt", "1")))),
    Case("Lt is false of a missing label", False, selector(term(want("rack", "Lt", "1")))),
    Case("requirements of a term are ANDed", False, selector(term(IN_A, IN_C))),
    Case("terms are ORed", True, selector(term(IN_C), term(IN_A))),
    Case("a term without requirements selects nothing", False, selector(term())),
    Case("a selector without terms selects nothing", False, selector()),
    Case("matchFields names the node", True, selector(term(fields="node-1"))),
    Case("matchFields of another name", False, selector(term(fields="node-2"))),
    Case("labels and fields of a term are ANDed", False, selector(term(IN_C, fields="node-1"))),
    Case(
        "NotIn works for fields",
        False,
        selector(NodeSelectorTerm(match_fields=(want("metadata.name", "NotIn", "node-1"),))),
    ),
    Case(
        "a field that nodes do not have is empty",
        True,
        selector(NodeSelectorTerm(match_fields=(want("spec.podCIDR", "In", ""),))),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_matches(case: Case) -> None:
    validate(case.selector)

    assert case.want == matches(case.selector, "node-1", LABELS)


@pytest.mark.parametrize(
    ("fault", "requirement"),
    [
        ("'in' is not an operator", want("zone", "in", "a")),
        ("'In' needs values", want("zone", "In")),
        ("'NotIn' needs values", want("zone", "NotIn")),
        ("'Exists' takes no values", want("zone", "Exists", "a")),
        ("'DoesNotExist' takes no values", want("zone", "DoesNotExist", "a")),
        ("'Gt' needs one integer", want("gpus", "Gt", "many")),
        ("'Gt' needs one integer", want("gpus", "Gt", "1", "2")),
        ("'Lt' needs one integer", want("gpus", "Lt", str(2**63))),
        ("'a b' is not a label value", want("zone", "In", "a b")),
        ("'-zone' is not a label key", want("-zone", "Exists")),
        ("'/zone' is not a label key", want("/zone", "Exists")),
        ("'A.b/zone' is not a label key", want("A.b/zone", "Exists")),
        ("'a/b/zone' is not a label key", want("a/b/zone", "Exists")),
    ],
)
def test_validate_rejects(fault: str, requirement: NodeSelectorRequirement) -> None:
    with pytest.raises(
        ValueError, match=r"nodeSelectorTerms\[1\].matchExpressions: \[1\]"
    ) as excinfo:
        validate(selector(term(IN_A), term(IN_A, requirement)))

    assert fault in str(excinfo.value)


@pytest.mark.parametrize(
    ("fault", "requirement"),
    [
        ("'Exists' is not an operator for fields", want("metadata.name", "Exists")),
        ("'In' needs one value", want("metadata.name", "In", "a", "b")),
        ("'NotIn' needs one value", want("metadata.name", "NotIn")),
    ],
)
def test_validate_rejects_fields(fault: str, requirement: NodeSelectorRequirement) -> None:
    with pytest.raises(ValueError, match=fault):
        validate(selector(NodeSelectorTerm(match_fields=(requirement,))))
