"""Items of several tenants in turns, as many as there is time for."""

from collections.abc import Sequence

import pytest

from kube.collections.interleaving import interleave

ITEMS = ("a1", "a2", "a3", "b1", "b2", "c1")


@pytest.mark.parametrize(
    ("expected", "turns"),
    [
        (["a1", "b1", "c1"], 1),
        (["a1", "b1", "c1", "a2", "b2"], 2),
        (["a1", "b1", "c1", "a2", "b2", "a3"], 9),
    ],
)
def test_it_ends_when_each_tenant_has_had_as_many(expected: Sequence[str], turns: int) -> None:
    left = iter(range(turns - 1))

    yielded = list(
        interleave(ITEMS, lambda item: item[0], is_over=lambda: next(left, None) is None)
    )

    assert expected == yielded
