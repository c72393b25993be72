"""The object of the high-water mark: what is written is read back, and what people write counts."""

import json

import pytest

from kube.quantity import Quantity
from webhook.high_water import (
    DECLARED,
    MAX_CLASSES,
    SEEN,
    Marked,
    marked,
    object_of,
    patch_of,
)
from webhook.rules.mark import Mark, Seen

MARK = Mark(
    classes={
        "gpu": {
            "gpu.example.com": Seen(
                nodes=2, devices=16, on_one_node=8, capacity={"memory": Quantity("80Gi")}
            )
        }
    }
)
LARGER = """
classes:
  gpu:
    gpu.example.com: {nodes: 1, onOneNode: 16, capacity: {memory: 192Gi}}
  npu:
    npu.example.com: {devices: 4}
"""


def stored(**data: str) -> bytes:
    return json.dumps({"metadata": {"name": "a"}, "data": data}).encode()


def test_what_is_written_is_read_back() -> None:
    made = object_of(MARK, namespace="n", name="a")

    assert Marked(seen=MARK) == marked(json.dumps(made).encode())
    assert made["metadata"]["name"] == "a"
    assert made["data"] == patch_of(MARK)["data"]


def test_what_people_declare_counts_beside_what_was_seen() -> None:
    found = marked(stored(**patch_of(MARK)["data"], **{DECLARED: LARGER}))

    gpu = found.mark.classes["gpu"]["gpu.example.com"]
    assert Seen(nodes=2, devices=16, on_one_node=16, capacity={"memory": Quantity("192Gi")}) == gpu
    assert found.mark.classes["npu"]["npu.example.com"].devices == 4
    assert (found.seen, found.problem) == (MARK, "")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({DECLARED: "classes: ["}, "while parsing a flow node"),
        ({DECLARED: "classes: many"}, "Expected `object`, got `str` - at `$.classes`"),
        ({DECLARED: "- gpu"}, "Expected `object`, got `array`"),
        ({DECLARED: "[" * 5000}, "maximum recursion depth"),
    ],
)
def test_a_declaration_that_says_nothing_is_told(data: dict[str, str], problem: str) -> None:
    found = marked(stored(**patch_of(MARK)["data"], **data))

    assert found.seen == MARK
    assert problem in found.problem


@pytest.mark.parametrize("data", [{}, {SEEN: ""}, {SEEN: "{"}, {SEEN: "[]"}, {DECLARED: ""}])
def test_a_mark_that_says_nothing_is_none(data: dict[str, str]) -> None:
    assert marked(stored(**data)) == Marked()


def test_the_object_stays_small() -> None:
    many = Mark(classes={f"class-{number}": {} for number in range(MAX_CLASSES + 1)})

    assert len(json.loads(patch_of(many)["data"][SEEN])["classes"]) == MAX_CLASSES
