"""The idle cluster follows its slices and nodes, and tells its worth as evidence."""

from typing import Any

import pytest

from allocator.model.devices import PoolId
from allocator.search.attempt import AllocatorOptions
from kube.api.core import Node
from kube.api.meta import ObjectMeta, convert
from kube.api.resource import ResourceClaim, ResourceSlice
from kube.quantity import Quantity
from rules.feasibility.bounded_search import Feasibility
from rules.feasibility.high_water_mark import DriverStock
from rules.feasibility.idle_cluster import MAX_SIZE, IdleCluster
from testing.documents import EXAMPLE, Document, claim, exactly, resource_slice
from testing.feasibility_cases import gpu
from testing.rule_contexts import CLASSES


def published_slice(*names: str, node: str = "node-a", **pool: Any) -> ResourceSlice:
    return convert(
        resource_slice(
            *[gpu(name) for name in names],
            name=f"{node}-{pool.pop('part', 0)}",
            nodeName=node,
            pool={"name": node, "generation": 1, "resourceSliceCount": 1} | pool,
        ),
        ResourceSlice,
    )


def emptied_idle_cluster(
    *slices: ResourceSlice, nodes: tuple[str, ...] = ("node-a", "node-b")
) -> IdleCluster:
    return IdleCluster(
        slices=slices,
        nodes=[Node(metadata=ObjectMeta(name=name)) for name in nodes],
        classes={class_.metadata.name: class_ for class_ in CLASSES},
        rules=AllocatorOptions(),
    )


def claims_of(count: int) -> tuple[ResourceClaim]:
    document: Document = claim(exactly(deviceClassName=EXAMPLE, count=count))
    return (convert(document, ResourceClaim),)


def most(there: IdleCluster) -> int:
    """Return the most devices that one node has."""
    return max(
        (
            count
            for count in range(1, 9)
            if there.feasibility(claims_of(count)) is Feasibility.FEASIBLE
        ),
        default=0,
    )


def test_a_slice_that_comes_and_goes_is_noticed() -> None:
    there = emptied_idle_cluster(published_slice("a"))
    more = published_slice("b", "c", "d", node="node-b")
    assert most(there) == 1

    there.replace_slice(None, more)
    assert most(there) == 3

    there.replace_slice(more, published_slice("b", "c", node="node-b"))
    assert most(there) == 2

    there.replace_slice(published_slice("b", "c", node="node-b"), None)
    assert most(there) == 1


def test_a_pool_is_incomplete_while_a_slice_is_missing() -> None:
    two: dict[str, Any] = {"resourceSliceCount": 2}
    first, second = published_slice("a", **two), published_slice("b", **two, part=1)
    newer = published_slice("a", generation=2)
    there = emptied_idle_cluster(first, published_slice("c", node="node-b"))
    incomplete = (PoolId(EXAMPLE, "node-a"), "node-a")

    def of_step(old: ResourceSlice | None, new: ResourceSlice | None) -> tuple[PoolId, str] | None:
        there.replace_slice(old, new)
        return there.incomplete_pool_for(claims_of(1))

    assert incomplete == there.incomplete_pool_for(claims_of(1))
    assert None is of_step(None, second)
    assert incomplete == of_step(second, None)
    assert None is of_step(first, newer)
    assert incomplete == of_step(newer, first)
    assert None is of_step(first, None)


def test_a_node_that_comes_and_goes_is_noticed() -> None:
    there = emptied_idle_cluster(published_slice("a"), nodes=())
    assert there.feasibility(claims_of(1)) is Feasibility.NOT_EVALUATED

    there.replace_node("node-a", Node(metadata=ObjectMeta(name="node-a")))
    assert most(there) == 1

    there.replace_node("node-a", None)
    assert there.feasibility(claims_of(1)) is Feasibility.NOT_EVALUATED


def test_what_is_there_of_a_pool_counts_and_is_no_proof() -> None:
    first = published_slice("a", "b", resourceSliceCount=2)
    there = emptied_idle_cluster(first)

    assert most(there) == 2
    assert (
        there.evidence_gap([EXAMPLE])
        == f"pool node-a is incomplete: 1 of 2 slices of generation 1, driver {EXAMPLE}"
    )

    there.replace_slice(None, published_slice("c", resourceSliceCount=2, part=1))
    assert most(there) == 3
    assert there.evidence_gap([EXAMPLE]) == ""


def test_a_new_generation_that_is_half_there_counts_as_far_as_it_is() -> None:
    there = emptied_idle_cluster(published_slice("a"))

    there.replace_slice(None, published_slice("b", "c", generation=2, resourceSliceCount=2, part=1))

    assert there.evidence_gap([EXAMPLE])
    assert most(there) == 2


def test_a_driver_without_slices_proves_nothing() -> None:
    assert emptied_idle_cluster().evidence_gap([EXAMPLE]) == f"driver {EXAMPLE} has no slices"


@pytest.mark.parametrize("order", [1, -1])
def test_the_stock_of_a_class_is_that_of_all_nodes(order: int) -> None:
    slices = [published_slice("a", "b"), published_slice("c", node="node-b")][::order]
    want = DriverStock(nodes=2, devices=3, on_one_node=2, capacity={"memory": Quantity("40Gi")})

    assert emptied_idle_cluster(*slices).class_stock(EXAMPLE) == {EXAMPLE: want}
    assert emptied_idle_cluster(*slices).class_stock("nobody.example.com") == {}
    assert emptied_idle_cluster(*slices).class_stock("missing.example.com") == {}


def test_answers_are_kept_until_something_changes() -> None:
    there = emptied_idle_cluster(published_slice("a"))
    numbers: list[int] = []

    def answer() -> int:
        numbers.append(1)
        return len(numbers)

    assert [there.memoize("key", answer), there.memoize("key", answer)] == [1, 1]
    there.replace_slice(None, published_slice("b", node="node-b"))
    assert there.memoize("key", answer) == 2


def test_answers_that_hold_on_to_much_are_not_all_kept() -> None:
    there = emptied_idle_cluster(published_slice("a"))

    there.memoize("first", lambda: 1, size=MAX_SIZE)
    assert there.memoize("first", lambda: 2) == 1
    there.memoize("second", lambda: 1, size=1)
    assert there.memoize("first", lambda: 2) == 2
