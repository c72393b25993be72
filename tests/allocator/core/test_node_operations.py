from typing import NamedTuple

import pytest

from allocator.core import node_operations
from allocator.core.model import Features
from allocator.core.node_operations import DECLARED
from tests.allocator.builders import device, slice_of


class Case(NamedTuple):
    want: str | None
    name: str
    features: Features
    declared: frozenset[str] = frozenset()


ON = Features(optional_node_operations=True)
CASES = (
    Case(None, "the node declares that it can", ON, frozenset({DECLARED})),
    Case("the node does not declare", "the node does not", ON, frozenset({"Other"})),
    Case("the gate", "another gate brings the experimental allocator, which then refuses",
         Features(list_type_attributes=True), frozenset({DECLARED})),
    Case(None, "the default allocator does not look", Features()),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_refusal(case: Case) -> None:
    skips = slice_of(device(), skip_node_operations=("*",))

    found = node_operations.refusal(skips, case.declared, case.features)

    assert (case.want is None) == (found is None)
    assert found is None or (case.want or "") in found.detail


def test_slices_that_skip_nothing_are_fine_anywhere() -> None:
    assert node_operations.refusal(slice_of(device()), frozenset(), ON) is None
