"""The object of the high-water mark: written values are read back, and people's values count."""

import json

import pytest

from clusterstate.high_water_config_map import (
    DECLARED,
    MAX_CLASSES,
    SEEN,
    HighWaterMarks,
    config_map_document,
    project_high_water_marks,
    seen_patch,
)
from kube.quantity import Quantity
from rules.feasibility.high_water_mark import DriverStock, HighWaterMark

MARK = HighWaterMark(
    classes={
        "gpu": {
            "gpu.example.com": DriverStock(
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


def test_a_written_mark_is_read_back() -> None:
    config_map_document_ = config_map_document(MARK, namespace="n", name="a")

    assert HighWaterMarks(seen=MARK) == project_high_water_marks(
        json.dumps(config_map_document_).encode()
    )
    assert config_map_document_["metadata"]["name"] == "a"
    assert config_map_document_["data"] == seen_patch(MARK)["data"]


def test_declared_and_seen_devices_both_count() -> None:
    projected_marks = project_high_water_marks(
        stored(**seen_patch(MARK)["data"], **{DECLARED: LARGER})
    )

    gpu = projected_marks.combined_mark.classes["gpu"]["gpu.example.com"]
    assert (
        DriverStock(nodes=2, devices=16, on_one_node=16, capacity={"memory": Quantity("192Gi")})
        == gpu
    )
    assert projected_marks.combined_mark.classes["npu"]["npu.example.com"].devices == 4
    assert (projected_marks.seen, projected_marks.problem) == (MARK, "")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({DECLARED: "classes: ["}, "line 1: expected the node content"),
        ({DECLARED: "classes: many"}, "Expected `object`, got `str` - at `$.classes`"),
        ({DECLARED: "2001-99-99"}, "month must be in 1..12"),
        ({DECLARED: "!!bool x"}, "KeyError"),
        ({DECLARED: "!!timestamp x"}, "AttributeError"),
        ({DECLARED: "9" * 5000}, "Exceeds the limit"),
        ({DECLARED: "- gpu"}, "Expected `object`, got `array`"),
        ({DECLARED: "[" * 5000}, "nests too deeply"),
        ({DECLARED: "#" * 70_000}, "larger than 64 KiB"),
        (
            {
                DECLARED: "a0: &a0 {k: 1}\n"
                + "".join(f"a{n}: &a{n} {{<<: [{f'*a{n - 1},' * 9}]}}\n" for n in range(1, 12))
            },
            "aliases expand to more than 100000 values",
        ),
    ],
)
def test_a_declaration_that_cannot_be_read_has_a_problem(
    data: dict[str, str], problem: str
) -> None:
    projected_marks = project_high_water_marks(stored(**seen_patch(MARK)["data"], **data))

    assert projected_marks.seen == MARK
    assert problem in projected_marks.problem


@pytest.mark.parametrize("data", [{}, {SEEN: ""}, {SEEN: "{"}, {SEEN: "[]"}, {DECLARED: ""}])
def test_a_mark_that_cannot_be_read_is_empty(data: dict[str, str]) -> None:
    assert project_high_water_marks(stored(**data)) == HighWaterMarks()


def test_the_object_stays_small() -> None:
    many = HighWaterMark(classes={f"class-{number}": {} for number in range(MAX_CLASSES + 1)})

    assert len(json.loads(seen_patch(many)["data"][SEEN])["classes"]) == MAX_CLASSES
