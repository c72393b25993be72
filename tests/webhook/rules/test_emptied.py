"""The emptied cluster follows its slices and nodes, and tells what it is worth as proof."""

from typing import Any

import pytest

from allocator.core.problem import Rules
from kube.api.core import Node
from kube.api.meta import ObjectMeta, view
from kube.api.resource import ResourceClaim, ResourceSlice
from kube.quantity import Quantity
from tests.webhook.rules.cases import EXAMPLE, Document, claim, exactly, resource_slice
from tests.webhook.rules.contexts import CLASSES
from tests.webhook.rules.test_fits import gpu
from webhook.rules.emptied import MAX_SIZE, Emptied
from webhook.rules.mark import Seen
from webhook.rules.room import Fit


def published(*names: str, node: str = "node-a", **pool: Any) -> ResourceSlice:
    return view(
        resource_slice(
            *[gpu(name) for name in names],
            name=f"{node}-{pool.pop('part', 0)}",
            nodeName=node,
            pool={"name": node, "generation": 1, "resourceSliceCount": 1} | pool,
        ),
        ResourceSlice,
    )


def emptied(*slices: ResourceSlice, nodes: tuple[str, ...] = ("node-a", "node-b")) -> Emptied:
    return Emptied(
        slices=slices,
        nodes=[Node(metadata=ObjectMeta(name=name)) for name in nodes],
        classes={one.metadata.name: one for one in CLASSES},
        rules=Rules(),
    )


def wanted(count: int) -> tuple[ResourceClaim]:
    document: Document = claim(exactly(deviceClassName=EXAMPLE, count=count))
    return (view(document, ResourceClaim),)


def most(there: Emptied) -> int:
    """How many devices one node gives."""
    return max((count for count in range(1, 9) if there.fits(wanted(count)) is Fit.FITS), default=0)


def test_a_slice_that_comes_and_goes_is_noticed() -> None:
    there = emptied(published("a"))
    more = published("b", "c", "d", node="node-b")
    assert most(there) == 1

    there.replace_slice(None, more)
    assert most(there) == 3

    there.replace_slice(more, published("b", "c", node="node-b"))
    assert most(there) == 2

    there.replace_slice(published("b", "c", node="node-b"), None)
    assert most(there) == 1


def test_a_node_that_comes_and_goes_is_noticed() -> None:
    there = emptied(published("a"), nodes=())
    assert there.fits(wanted(1)) is Fit.UNJUDGED

    there.replace_node("node-a", Node(metadata=ObjectMeta(name="node-a")))
    assert most(there) == 1

    there.replace_node("node-a", None)
    assert there.fits(wanted(1)) is Fit.UNJUDGED


def test_what_is_there_of_a_pool_counts_and_is_no_proof() -> None:
    first = published("a", "b", resourceSliceCount=2)
    there = emptied(first)

    assert most(there) == 2
    assert there.doubt([EXAMPLE]) == f"pool node-a of driver {EXAMPLE} is incomplete"

    there.replace_slice(None, published("c", resourceSliceCount=2, part=1))
    assert most(there) == 3
    assert there.doubt([EXAMPLE]) == ""


def test_a_new_generation_that_is_half_there_counts_as_far_as_it_is() -> None:
    there = emptied(published("a"))

    there.replace_slice(None, published("b", "c", generation=2, resourceSliceCount=2, part=1))

    assert there.doubt([EXAMPLE])
    assert most(there) == 2


def test_a_driver_without_slices_proves_nothing() -> None:
    assert emptied().doubt([EXAMPLE]) == f"driver {EXAMPLE} has no slices"


@pytest.mark.parametrize("order", [1, -1])
def test_the_stock_of_a_class_is_that_of_all_nodes(order: int) -> None:
    slices = [published("a", "b"), published("c", node="node-b")][::order]
    want = Seen(nodes=2, devices=3, on_one_node=2, capacity={"memory": Quantity("40Gi")})

    assert emptied(*slices).stock(EXAMPLE) == {EXAMPLE: want}
    assert emptied(*slices).stock("nobody.example.com") == {}
    assert emptied(*slices).stock("missing.example.com") == {}


def test_answers_are_kept_until_something_changes() -> None:
    there = emptied(published("a"))
    asked: list[int] = []

    def answer() -> int:
        asked.append(1)
        return len(asked)

    assert [there.kept("key", answer), there.kept("key", answer)] == [1, 1]
    there.replace_slice(None, published("b", node="node-b"))
    assert there.kept("key", answer) == 2


def test_answers_that_hold_on_to_much_are_not_all_kept() -> None:
    there = emptied(published("a"))

    there.kept("first", lambda: 1, size=MAX_SIZE)
    assert there.kept("first", lambda: 2) == 1
    there.kept("second", lambda: 1, size=1)
    assert there.kept("first", lambda: 2) == 2
