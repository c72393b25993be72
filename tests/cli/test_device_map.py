"""Devices as signs."""

from typing import Any, NamedTuple

import click
import msgspec
import pytest

from allocator.model.devices import PoolState
from allocator.model.feature_gates import Features
from allocator.model.usage import Usage, gather_usage
from cli.output.device_map import device_map as coloured_map
from kube.api.resource import ResourceClaim
from testing.allocation.builders import (
    allocated_claim,
    device,
    devices,
    node_with,
    pool_of,
    result,
    taint,
)

HELD = allocated_claim(result("gpu-0"), name="held")
NEW = allocated_claim(result("gpu-1"), name="new")
SHARE = allocated_claim(result("gpu-0", share="a", consumed={"memory": "1Gi"}), name="share")
MORE = allocated_claim(result("gpu-0", share="b", consumed={"memory": "1Gi"}), name="more")


def usage(*claims: ResourceClaim) -> Usage:
    return gather_usage(claims, Features())


class Case(NamedTuple):
    name: str
    want: list[str]
    before: tuple[ResourceClaim, ...] = ()
    after: tuple[ResourceClaim, ...] = ()
    gpu: dict[str, Any] | None = None


CASES = (
    Case("nothing in use", ["...", "(. not in use)"]),
    Case("taken before", ["#..", "(# allocated, . not in use)"], (HELD,), (HELD,)),
    Case(
        "given now", ["#+.", "(+ allocated now, # allocated, . not in use)"], (HELD,), (HELD, NEW)
    ),
    Case("a share before", ["%..", "(% shares allocated, . not in use)"], (SHARE,), (SHARE,)),
    Case(
        "a further share now",
        ["&..", "(& a share allocated now, . not in use)"],
        (SHARE,),
        (SHARE, MORE),
    ),
    Case("tainted", ["x..", "(x tainted, . not in use)"], gpu={"taints": (taint(),)}),
    Case(
        "a taint that only says something",
        ["...", "(. not in use)"],
        gpu={"taints": (taint(effect="None"),)},
    ),
)


def device_map(*rows: Any) -> list[str]:
    return [click.unstyle(line) for line in coloured_map(*rows)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_device_map(case: Case) -> None:
    first = device("gpu-0", **(case.gpu or {}))
    node = node_with(pool_of(first, *devices("gpu-1", "gpu-2")))

    signs, legend = device_map([node], usage(*case.before), usage(*case.after))

    assert case.want == [signs.rpartition(" ")[2], legend]


def test_nodes_that_look_alike_stand_together() -> None:
    nodes = [
        node_with(pool_of(device(), pool=f"n{number}"), name=f"n{number}") for number in range(6)
    ]

    device_map_ = device_map(nodes, usage(), usage())

    assert device_map_ == ["n0, n1, n2 and 3 more  gpu.example.com  .", "(. not in use)"]


def test_a_pool_that_gives_nothing_says_why() -> None:
    pool = msgspec.structs.replace(pool_of(state=PoolState.INCOMPLETE), why="1 of 2 slices")
    node = node_with(pool)

    assert device_map([node], usage(), usage()) == [
        "node-1  gpu.example.com  incomplete: 1 of 2 slices"
    ]


def test_a_node_without_devices_says_so() -> None:
    assert device_map([node_with()], usage(), usage()) == ["node-1  no devices"]


def test_many_devices_take_several_lines() -> None:
    many = devices(*[f"gpu-{number}" for number in range(70)])

    first, second, _ = device_map(
        [node_with(pool_of(*many, pool="other", node="node-1"))], usage(), usage()
    )

    assert first == f"node-1  gpu.example.com, pool other  {'.' * 64}"
    assert second == " " * (len(first) - 64) + "." * 6


def test_symbols_have_colours_and_reasons_have_none() -> None:
    unusable = msgspec.structs.replace(pool_of(state=PoolState.INCOMPLETE), why="1 of 2 slices")

    free, legend = coloured_map([node_with(pool_of(device()))], usage(), usage())
    (reason,) = coloured_map([node_with(unusable)], usage(), usage())

    assert free.endswith(click.style(".", dim=True))
    assert click.style(".", dim=True) in legend
    assert reason == click.unstyle(reason)


def test_a_name_cannot_change_the_colours_of_a_terminal() -> None:
    node = node_with(pool_of(device(), pool="\x1b[2J"), name="n")

    line, _ = coloured_map([node], usage(), usage())

    assert "\x1b[2J" not in line
