"""One node's view of the published slices. Expected: each pool in order, with its devices."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pytest

from allocator.model.devices import NodeDevices, PoolState
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed
from allocator.model.pools import node_devices, targets_node
from allocator.model.slice_index import SliceIndex, build_index
from kube.api.meta import convert
from kube.api.node_selector import NodeSelector, NodeSelectorTerm
from kube.api.resource import (
    DeviceCounterConsumption,
    ResourceSlice,
)
from testing.allocation.builders import (
    consumes,
    counter_set,
    device,
    devices,
    labelled_node_selector,
    node,
    requirement,
    slice_of,
)

DEFAULT: Final = Features()
NO_PARTITIONS: Final = Features(partitionable_devices=False)
GROUPS: Final = Features(compatibility_groups=True)
NODE: Final = node(zone="a")
BROKEN: Final = NodeSelector(
    node_selector_terms=(NodeSelectorTerm(match_expressions=(requirement("zone", operator="is"),)),)
)


class Case(NamedTuple):
    name: str
    want: str
    slices: Sequence[ResourceSlice]
    features: Features = DEFAULT


def pool_errors(seen_node_devices: NodeDevices) -> str:
    """Pools in order: `node-1: a b | net: incomplete`; devices elsewhere are in brackets."""
    return " | ".join(
        f"{pool.id.pool}: "
        + " ".join(
            [device_.id.device for device_ in pool.devices]
            + [f"[{first_device.id.device}]" for first_device in pool.elsewhere]
            + ([] if pool.state is PoolState.COMPLETE else [f"{pool.state}: {pool.why}"])
        )
        for pool in seen_node_devices.pools
    )


def shared(pool: str, *names: str, **fields: Any) -> ResourceSlice:
    """A slice that says itself if it is, by default everywhere."""
    return slice_of(*devices(*names), pool=pool, **({"all_nodes": True} | fields))


RELEVANCE: Final = (
    Case("a slice of the node", "node-1: a b", [slice_of(*devices("a", "b"))]),
    Case("not a slice of another node", "", [slice_of(device("a"), pool="node-2")]),
    Case("a slice for all nodes", "net: a", [shared("net", "a")]),
    Case(
        "a slice that selects the node",
        "net: a",
        [shared("net", "a", all_nodes=None, selector=labelled_node_selector(zone="a"))],
    ),
    Case(
        "not a slice that selects others",
        "",
        [shared("net", "a", all_nodes=None, selector=labelled_node_selector(zone="b"))],
    ),
    Case(
        "a selector without a value that a node must have",
        "net: a",
        [
            shared(
                "net",
                "a",
                all_nodes=None,
                selector=NodeSelector(
                    node_selector_terms=(
                        NodeSelectorTerm(
                            match_expressions=(requirement("rack", operator="DoesNotExist"),)
                        ),
                    )
                ),
            )
        ],
    ),
    Case(
        "a selector that names the node",
        "net: a",
        [
            shared(
                "net",
                "a",
                all_nodes=None,
                selector=NodeSelector(
                    node_selector_terms=(
                        NodeSelectorTerm(match_fields=(requirement("metadata.name", "node-1"),)),
                    )
                ),
            )
        ],
    ),
    Case("not a slice that says nothing of nodes", "", [shared("net", "a", all_nodes=False)]),
    Case(
        "all devices of a slice of which one is for the node",
        "net: a b",
        [
            slice_of(
                device("a", node="node-2"), device("b", node="node-1"), pool="net", per_device=True
            )
        ],
    ),
    Case(
        "not a slice of which no device is for the node",
        "",
        [slice_of(device("a", node="node-2"), device("b"), pool="net", per_device=True)],
    ),
    Case(
        "nothing that leaves nodes to devices while partitions are off",
        "",
        [slice_of(device("a", all_nodes=True), pool="net", per_device=True)],
        NO_PARTITIONS,
    ),
    Case(
        "a broken selector behind a device that matches is not looked at",
        "net: a b",
        [
            slice_of(
                device("a", all_nodes=True),
                device("b", selector=BROKEN),
                pool="net",
                per_device=True,
            )
        ],
    ),
)

GENERATIONS: Final = (
    Case(
        "the newest generation counts",
        "node-1: new",
        [slice_of(device("old"), name="a"), slice_of(device("new"), name="b", generation=2)],
    ),
    Case(
        "whatever the order",
        "node-1: new",
        [slice_of(device("new"), name="b", generation=2), slice_of(device("old"), name="a")],
    ),
    Case(
        "an old generation that is complete here lives on",
        "net: old",
        [
            shared("net", "old", all_nodes=None, node="node-1", name="a"),
            shared("net", "new", all_nodes=None, node="node-2", name="b", generation=2),
        ],
    ),
    Case(
        "an old generation that is not complete here is dropped without a word",
        "",
        [
            shared("net", "old", all_nodes=None, node="node-1", name="a", count=2),
            shared("net", "new", all_nodes=None, node="node-2", name="b", generation=2),
        ],
    ),
)

COMPLETENESS: Final = (
    Case(
        "a slice is missing",
        "node-1: incomplete: 1 of 2 slices of generation 1",
        [slice_of(device("a"), count=2)],
    ),
    Case(
        "the missing slice is on another node",
        "net: a [b]",
        [
            shared("net", "a", all_nodes=None, node="node-1", name="a", count=2),
            shared("net", "b", all_nodes=None, node="node-2", name="b", count=2),
        ],
    ),
    Case(
        "more slices than there should be",
        "net: incomplete: 2 of 1 slices of generation 1",
        [shared("net", "a", name="a"), shared("net", "b", name="b")],
    ),
    Case(
        "enough on this node, so others are not counted",
        "net: a",
        [
            shared("net", "a", all_nodes=None, node="node-1", name="a"),
            shared("net", "b", all_nodes=None, node="node-2", name="b"),
        ],
    ),
    Case(
        "the first slice says how many there should be",
        "net: incomplete: 2 of 3 slices of generation 1",
        [shared("net", "b", name="b", count=3), shared("net", "a", name="a", count=2)],
    ),
    Case(
        "the same name in two drivers is two pools",
        "net: a | net: b",
        [shared("net", "a"), shared("net", "b", driver="nic.example.com")],
    ),
    Case(
        "a slice with counters counts although partitions are off",
        "net: a",
        [shared("net", "a", name="a", count=2), shared("net", counters=[counter_set()], count=2)],
        NO_PARTITIONS,
    ),
    Case(
        "a slice with groups does not count while groups are off",
        "net: incomplete: 1 of 2 slices of generation 1: compatibilityGroups need feature gate "
        "DRADeviceCompatibilityGroups, which is off",
        [
            shared("net", "a", name="a", count=2),
            slice_of(device("b", consumes(groups=["x"])), pool="net", all_nodes=True, count=2),
        ],
    ),
    Case(
        "a slice with groups makes no pool while groups are off",
        "",
        [slice_of(device("b", consumes(groups=["x"])), pool="net", all_nodes=True, count=1)],
    ),
    Case(
        "with groups on it is like any other",
        "net: b",
        [
            slice_of(
                device("b", consumes(memory=1, groups=["x"])), pool="net", all_nodes=True, count=2
            ),
            shared("net", name="counters", counters=[counter_set(memory=1)], count=2),
        ],
        GROUPS,
    ),
)

COUNTERS: Final = shared("net", name="counters", counters=[counter_set(memory=8)], count=2)


def consuming(*listed: tuple[str, str], counters: str = "set-0") -> ResourceSlice:
    taken_consumptions = {
        name: convert(
            {"counterSet": counters, "counters": {counter: {"value": "1"}}},
            DeviceCounterConsumption,
        )
        for name, counter in listed
    }
    takers = (device(name, consumption) for name, consumption in taken_consumptions.items())
    return slice_of(*takers, pool="net", name="takers", all_nodes=True, count=2)


VALIDITY: Final = (
    Case(
        "a device name twice in one slice",
        "node-1: invalid: duplicate device name a",
        [slice_of(*devices("a", "a"))],
    ),
    Case(
        "a device name in two slices",
        "net: invalid: duplicate device name a",
        [shared("net", "a", name="x", count=2), shared("net", "a", name="y", count=2)],
    ),
    Case(
        "a device name again on another node is no fault",
        "net: a [a]",
        [
            shared("net", "a", all_nodes=None, node="node-1", name="a", count=2),
            shared("net", "a", all_nodes=None, node="node-2", name="b", count=2),
        ],
    ),
    Case("a counter that is there", "net: a", [consuming(("a", "memory")), COUNTERS]),
    Case(
        "a counter set that is not",
        "net: invalid: counter set other not found",
        [consuming(("a", "memory"), counters="other"), COUNTERS],
    ),
    Case(
        "a counter that is not",
        "net: invalid: counter cores not found in counter set set-0",
        [consuming(("a", "memory"), ("b", "cores")), COUNTERS],
    ),
    Case(
        "a counter that is not, of a device on another node",
        "net: invalid: counter cores not found in counter set set-0",
        [
            shared("net", "a", all_nodes=None, node="node-1", name="a", count=3),
            slice_of(device("b", consumes(cores=1)), pool="net", node="node-2", name="b", count=3),
            shared("net", counters=[counter_set(memory=8)], count=3),
        ],
    ),
    Case(
        "a counter set twice",
        "net: invalid: duplicate counter set name set-0",
        [
            shared("net", name="x", counters=[counter_set()], count=2),
            shared("net", name="y", counters=[counter_set()], count=2),
        ],
    ),
    Case(
        "counters of a slice that is for other nodes",
        "net: a",
        [
            consuming(("a", "memory")),
            shared("net", all_nodes=None, node="node-2", counters=[counter_set(memory=8)], count=2),
        ],
    ),
    Case(
        "counters are nobody's business while partitions are off",
        "net: a",
        [consuming(("a", "none")), COUNTERS],
        NO_PARTITIONS,
    ),
)

ORDER: Final = (
    Case(
        "pools by driver, then by name",
        "b: x | a: x",
        [shared("a", "x", driver="z.example.com"), shared("b", "x", driver="a.example.com")],
    ),
    Case(
        "shared pools in their place by name",
        "a: x | node-1: y",
        [slice_of(device("y")), shared("a", "x")],
    ),
    Case(
        "slices by name, devices as listed",
        "net: z a m",
        [shared("net", "m", name="2", count=2), shared("net", "z", "a", name="1", count=2)],
    ),
    Case(
        "pools with binding conditions last, then by name",
        "b: y | z: y | a: x",
        [
            slice_of(device("x", binding_conditions=("ready",)), pool="a", all_nodes=True),
            shared("z", "y"),
            shared("b", "y"),
        ],
    ),
    Case(
        "an empty list of binding conditions is one too",
        "b: y | a: x",
        [slice_of(device("x", binding_conditions=()), pool="a", all_nodes=True), shared("b", "y")],
    ),
    Case(
        "binding conditions of devices elsewhere do not matter",
        "a: x [y] | b: y",
        [
            shared("a", "x", all_nodes=None, node="node-1", name="1", count=2),
            slice_of(
                device("y", binding_conditions=("ready",)),
                pool="a",
                node="node-2",
                name="2",
                count=2,
            ),
            shared("b", "y"),
        ],
    ),
)

CASES: Final = RELEVANCE + GENERATIONS + COMPLETENESS + VALIDITY + ORDER


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_node_devices(case: Case) -> None:
    devices_ = node_devices(build_index(case.slices, case.features), NODE)

    assert case.want == pool_errors(devices_)
    assert devices_.positions == {device_.id: at for at, device_ in enumerate(devices_.devices)}
    assert [device_.id.pool for device_ in devices_.devices] == [
        devices_.pools[at].id.pool for at in devices_.pool_of
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_index_updated_slice_by_slice_is_equal(case: Case) -> None:
    index = build_index((), case.features)
    for first_slice in case.slices:
        index = index.replace(None, first_slice)
        node_devices(index, NODE)  # Builds pools that the next slice changes.

    assert case.want == pool_errors(node_devices(index, NODE))
    for first_slice in reversed(case.slices):
        index = index.replace(first_slice, first_slice)
    assert case.want == pool_errors(node_devices(index, NODE))
    for slice_ in case.slices:
        index = index.replace(slice_, None)
    assert (0, 0, 0) == (len(index.by_key), len(index.by_pool), len(index.unkeyed))


def test_replace_keeps_the_index_and_other_pools() -> None:
    slice_, other = slice_of(device("a")), shared("net", "b")
    before = build_index((slice_, other), DEFAULT)
    net = node_devices(before, node()).pools[0]

    after = before.replace(slice_, slice_of(device("c")))

    assert "net: b | node-1: a" == pool_errors(node_devices(before, node()))
    assert "net: b | node-1: c" == pool_errors(node_devices(after, node()))
    assert net is node_devices(after, node()).pools[0]


def test_a_pool_of_all_nodes_is_built_once() -> None:
    slices: SliceIndex = build_index((shared("net", "a"), slice_of(device("b"))), DEFAULT)

    first, second = (node_devices(slices, node(name)).pools[0] for name in ("node-1", "node-2"))

    assert first is second


@pytest.mark.parametrize(
    "broken_slice",
    [
        pytest.param(shared("net", all_nodes=None, selector=BROKEN), id="of a slice"),
        pytest.param(
            slice_of(device("a", selector=BROKEN), pool="net", per_device=True), id="of a device"
        ),
    ],
)
def test_an_invalid_node_selector_fails_every_node(broken_slice: ResourceSlice) -> None:
    slices = build_index((slice_of(device("a")), broken_slice), DEFAULT)

    with pytest.raises(AttemptFailed, match="failed to parse node selector"):
        node_devices(slices, node())


@pytest.mark.parametrize(
    ("want", "listed_slice"),
    [
        (True, slice_of(device("a", node="elsewhere"))),
        (True, slice_of(device("a", node="node-1"), device("b"), pool="net", per_device=True)),
        (True, slice_of(device("a", all_nodes=True), pool="net", per_device=True)),
        (
            True,
            slice_of(
                device("a", selector=labelled_node_selector(zone="a")), pool="net", per_device=True
            ),
        ),
        (
            False,
            slice_of(
                device("a", node="node-2"), device("b", node="node-1"), pool="net", per_device=True
            ),
        ),
        (False, slice_of(device("a"), device("b", node="node-1"), pool="net", per_device=True)),
    ],
)
def test_targets_node(want: bool, listed_slice: ResourceSlice) -> None:
    devices_ = node_devices(build_index((listed_slice,), DEFAULT), node(zone="a"))

    assert want == targets_node(devices_.devices[0], devices_)


def test_targets_node_fails_on_an_invalid_selector() -> None:
    first = device("a", all_nodes=True)
    slice_ = slice_of(first, device("b", selector=BROKEN), pool="net", per_device=True)
    devices_ = node_devices(build_index((slice_,), DEFAULT), node())

    with pytest.raises(AttemptFailed):
        targets_node(devices_.devices[1], devices_)
