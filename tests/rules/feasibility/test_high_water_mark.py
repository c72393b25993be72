"""The largest inventory ever seen: raised, never lowered, and compared with the present one."""

from typing import NamedTuple

import pytest

from kube.quantity import Quantity
from rules.feasibility.high_water_mark import (
    ClassStock,
    DriverStock,
    HighWaterMark,
    raise_mark,
    shortfall,
)

CLASS = "gpu"
DRIVER = "gpu.example.com"


def class_stock(
    nodes: int = 1, devices: int = 8, on_one_node: int = 8, memory: str = "80Gi"
) -> ClassStock:
    return {
        DRIVER: DriverStock(
            nodes=nodes,
            devices=devices,
            on_one_node=on_one_node,
            capacity={"memory": Quantity(memory)},
        )
    }


MARK = HighWaterMark(classes={CLASS: class_stock()})


class Case(NamedTuple):
    name: str
    want: str
    stock: ClassStock


CASES = (
    Case("as much", "", class_stock()),
    Case("more", "", class_stock(nodes=2, devices=16, on_one_node=16, memory="96Gi")),
    Case("nothing", "class gpu had 1 nodes with devices of gpu.example.com and has 0 now", {}),
    Case(
        "fewer devices",
        "class gpu had 8 devices of gpu.example.com and has 7 now",
        class_stock(devices=7),
    ),
    Case(
        "smaller nodes",
        "class gpu had 8 devices of gpu.example.com on one node and has 4 now",
        class_stock(nodes=2, on_one_node=4),
    ),
    Case(
        "smaller devices",
        "class gpu had a device of gpu.example.com with memory 80Gi",
        class_stock(memory="40Gi"),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_shortfall(case: Case) -> None:
    assert case.want == shortfall(MARK, CLASS, case.stock)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_raised_mark_is_above_both(case: Case) -> None:
    higher = raise_mark(MARK, {CLASS: case.stock})

    assert shortfall(MARK, CLASS, higher.classes[CLASS]) == ""
    assert raise_mark(HighWaterMark(), {CLASS: case.stock}).classes[CLASS] == case.stock
    assert raise_mark(higher, {CLASS: case.stock}) is higher


def test_a_class_that_was_never_seen_has_no_shortfall() -> None:
    assert shortfall(HighWaterMark(), CLASS, {}) == ""


def test_classes_that_are_gone_keep_their_mark() -> None:
    assert raise_mark(MARK, {"other": class_stock()}).classes.keys() == {CLASS, "other"}
