from typing import NamedTuple

import pytest

from allocator.features import node_operations
from allocator.features.node_operations import DECLARED
from allocator.model.feature_gates import Features
from testing.allocation.builders import device, slice_of


class Case(NamedTuple):
    want: str | None
    name: str
    features: Features
    declared: frozenset[str] = frozenset()


ON = Features(optional_node_operations=True)
CASES = (
    Case(None, "the node declares that it can", ON, frozenset({DECLARED})),
    Case("the node does not declare", "the node does not", ON, frozenset({"Other"})),
    Case("feature gate", "another gate brings the experimental allocator, which then refuses",
         Features(list_type_attributes=True), frozenset({DECLARED})),
    Case(None, "the default allocator does not look", Features()),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rejection(case: Case) -> None:
    skips = slice_of(device(), skip_node_operations=("*",))

    rejection = node_operations.rejection(skips, case.declared, case.features)

    assert (case.want is None) == (rejection is None)
    assert rejection is None or (case.want or "") in rejection.detail


def test_slices_that_skip_nothing_need_no_feature() -> None:
    assert node_operations.rejection(slice_of(device()), frozenset(), ON) is None
