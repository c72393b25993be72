"""Why claims do not fit, in words: one row per kind of shortage."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from allocator.cluster import Cluster
from allocator.core.compatibility import compiled
from allocator.core.model import Budget, Features, NodeDevices
from allocator.core.outcome import Reason, Refusal, Shortage
from allocator.core.pools import index, node_devices
from allocator.core.problem import Rules
from allocator.core.requests import asked
from allocator.core.usage import gathered
from allocator.explain import explained
from allocator.summary import MAX_SUMMARY, cluster_summary, summary
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import Device, DeviceClass, ResourceClaim
from tests.allocator.builders import (
    DRIVER,
    allocated,
    alternative,
    amount,
    applied,
    claim,
    classes,
    configured,
    consumes,
    counter_set,
    device,
    device_class,
    devices,
    distinct,
    first_of,
    labelled,
    match,
    node,
    node_with,
    policy,
    pool_of,
    request,
    result,
    rule,
    slice_of,
    taint,
)

ATTRIBUTES = f'device.attributes["{DRIVER}"]'
CAPACITY = f'device.capacity["{DRIVER}"]'
LARGE = f'{CAPACITY}.memory.compareTo(quantity("40Gi")) >= 0'
ROOT = f"{DRIVER}/root"


def gpus(*roots: str, memory: str = "40Gi") -> list[Device]:
    """Devices with an attribute `root` each."""
    return [
        device(f"gpu-{number}", attributes={"root": root}, capacity={"memory": memory})
        for number, root in enumerate(roots)
    ]


GPU = classes()


class Row(NamedTuple):
    """What claims are told on a node, and why.

    Attributes:
        held: Claims that hold devices already.
    """

    want: str
    name: str
    node: NodeDevices
    claims: Sequence[ResourceClaim]
    held: Sequence[ResourceClaim] = ()
    features: Features = Features()
    classes: Mapping[str, DeviceClass] = GPU
    policies: Sequence[DeviceCompatibilityPolicy] = ()


TWO = node_with(pool_of(*devices("gpu-0", "gpu-1")))
FOUR = node_with(pool_of(*gpus("a", "a", "b", "b")))
SHARED = node_with(
    pool_of(
        device(
            "gpu-0", capacity={"memory": amount("40Gi", "40Gi", min="1Gi", step="1Gi")}, shared=True
        )
    )
)
SLICES = consumes(memory="20Gi")
CARD = node_with(
    pool_of(
        device("half-0", SLICES),
        device("half-1", SLICES),
        device("half-2", SLICES),
        counters=[counter_set(memory="40Gi")],
    )
)
MANY = node_with(pool_of(*devices(*(f"gpu-{number}" for number in range(40)))))
UNFINISHED = node_devices(index([slice_of(device(), name="one", count=2)], Features()), node())
BROKEN = node_devices(index([slice_of(device(), device(), name="one")], Features()), node())
OTHERS = allocated(result("gpu-0"), name="secret", namespace="secret-team")
ROWS: tuple[Row, ...] = (
    Row(
        "1 of 1 device: taken",
        "every device is taken",
        node_with(pool_of(device())),
        [claim(request())],
        [OTHERS],
    ),
    Row(
        "1 of 2 devices: taken; 1 would do, 2 are needed",
        "some are taken, and the rest is not enough",
        TWO,
        [claim(request(count=2))],
        [OTHERS],
    ),
    Row(
        "2 would do, 3 are needed",
        "one more is wanted than there is",
        TWO,
        [claim(request(count=3))],
    ),
    Row(
        "2 of 2 devices: memory 16Gi below 40Gi",
        "too small for a selector",
        node_with(pool_of(*gpus("a", "a", memory="16Gi"))),
        [claim(request("r", LARGE))],
    ),
    Row(
        '3 of 6 devices: memory 16Gi below 40Gi; 2: taken; 1: model is "T4", not "A100"',
        "taken, too small and of another model at once",
        node_with(
            pool_of(
                *devices(
                    "gpu-0", "gpu-1", attributes={"model": "A100"}, capacity={"memory": "80Gi"}
                ),
                *devices(
                    "gpu-2",
                    "gpu-3",
                    "gpu-4",
                    attributes={"model": "A100"},
                    capacity={"memory": "16Gi"},
                ),
                device("gpu-5", attributes={"model": "T4"}, capacity={"memory": "80Gi"}),
            )
        ),
        [claim(request("r", f'{ATTRIBUTES}.model == "A100" && {LARGE}'))],
        [OTHERS, allocated(result("gpu-1"), name="mine")],
    ),
    Row(
        "2 of 2 devices: driver gpu.example.com is not nic.example.com",
        "a class that selects another driver",
        TWO,
        [claim(request())],
        classes=classes(device_class("gpu", 'device.driver == "nic.example.com"')),
    ),
    Row(
        "1 of 1 device: taint ill=hot:NoSchedule is not tolerated",
        "a tainted device",
        node_with(pool_of(device(taints=(taint("ill", "hot"),)))),
        [claim(request())],
    ),
    Row(
        "1 of 1 device: for other nodes",
        "a device for other nodes",
        node_with(pool_of(device(selector=labelled(zone="b")), per_device=True)),
        [claim(request())],
    ),
    Row(
        "1 of 1 device: it has binding conditions, and their feature gates are off",
        "binding conditions while their gate is off",
        node_with(pool_of(device(binding_conditions=("ready",)))),
        [claim(request())],
        features=Features(device_status=False),
    ),
    Row(
        "3 of 3 devices: it consumes counters, and DRAPartitionableDevices is off",
        "partitions while their gate is off",
        CARD,
        [claim(request())],
        features=Features(partitionable_devices=False),
    ),
    Row(
        "1 of 1 device: its slice skips node operations, and the node does not declare DRAOptionalNodeOperations",
        "a node that cannot skip node operations",
        node_with(pool_of(device(), skip_node_operations=("Prepare",))),
        [claim(request())],
        features=Features(optional_node_operations=True),
    ),
    Row(
        "1 of 1 device: memory 40Gi below 80Gi",
        "an amount above what a dedicated device has",
        node_with(pool_of(*gpus("a"))),
        [claim(request(capacity={"memory": "80Gi"}))],
    ),
    Row(
        "2 of 2 devices: it has no capacity cores",
        "an amount that devices do not know",
        TWO,
        [claim(request(capacity={"cores": 5}))],
    ),
    Row(
        "1 of 1 device: memory 9Gi above the maximum 8Gi",
        "an amount above the largest of a policy",
        node_with(
            pool_of(device(capacity={"memory": amount("40Gi", min="1Gi", max="8Gi")}, shared=True))
        ),
        [claim(request(capacity={"memory": "9Gi"}))],
    ),
    Row(
        "1 of 1 device: memory 9Gi is not a valid value, the largest is 8Gi",
        "an amount above every valid value",
        node_with(
            pool_of(device(capacity={"memory": amount("40Gi", values=("1Gi", "8Gi"))}, shared=True))
        ),
        [claim(request(capacity={"memory": "9Gi"}))],
    ),
    Row(
        "1 of 1 device: memory: 10Gi of 40Gi left, 20Gi needed",
        "what is left of a shared device",
        SHARED,
        [claim(request(capacity={"memory": "20Gi"}))],
        [allocated(result(share="s", consumed={"memory": "30Gi"}), namespace="secret-team")],
    ),
    Row(
        "1 of 1 device: memory: 10Gi of 40Gi left, 40Gi needed",
        "silence takes all of a shared device",
        SHARED,
        [claim(request())],
        [allocated(result(share="s", consumed={"memory": "30Gi"}), namespace="secret-team")],
    ),
    Row(
        "2 of 3 devices: taken; 1: counter memory on set set-0 exhausted: needs 20Gi, free 0",
        "counters that others exhaust",
        CARD,
        [claim(request())],
        [allocated(result("half-0"), result("half-1"), namespace="secret-team")],
    ),
    Row(
        "1 of 3 devices: counter memory on set set-0 exhausted: needs 20Gi, free 0; 2 of 3 that would do go together, 3 are needed",
        "counters that the request itself exhausts",
        CARD,
        [claim(request(count=3))],
    ),
    Row(
        "1 of 3 devices: counter memory on set set-0 exhausted: needs 20Gi, free 0; all 3 that match are wanted, and they do not go together",
        "all devices that do not go together",
        CARD,
        [claim(request(count=None))],
    ),
    Row(
        "1 of 2 devices: taken; all 2 that match are wanted",
        "all devices of which one is taken",
        TWO,
        [claim(request(count=None))],
        [OTHERS],
    ),
    Row(
        "2 of 2 devices: does not satisfy false; none matches",
        "all devices where none matches",
        TWO,
        [claim(request("r", "false", count=None))],
    ),
    Row(
        "1 of 2 devices: on counter set set-0: groups mig beside groups mps; 1: taken",
        "groups that exclude each other",
        node_with(
            pool_of(
                device("mig", consumes(memory="1Gi", groups=["mig"])),
                device("mps", consumes(memory="1Gi", groups=["mps"])),
                counters=[counter_set(memory="40Gi")],
            )
        ),
        [claim(request("r", f"{ATTRIBUTES}.?x.orValue(1) == 1", count=1))],
        [allocated(result("mps"), namespace="secret-team")],
        features=Features(compatibility_groups=True),
    ),
    Row(
        "1 of 2 devices: device mig accepts only devices matching its rule; mps does not match (held by a claim in another namespace); 1: taken",
        "a policy that excludes the modes of others",
        node_with(
            pool_of(
                device("mig", consumes(memory="1Gi"), attributes={"mode": "MIG"}),
                device("mps", consumes(memory="1Gi"), attributes={"mode": "MPS"}),
                counters=[counter_set(memory="40Gi")],
            )
        ),
        [claim(request())],
        [allocated(result("mps"), name="secret", namespace="secret-team")],
        policies=[
            policy(
                rule("mig", f'{ATTRIBUTES}.mode == "MIG"', only=f'{ATTRIBUTES}.mode == "MIG"'),
                rule("mps", f'{ATTRIBUTES}.mode == "MPS"', only=f'{ATTRIBUTES}.mode == "MPS"'),
            )
        ],
    ),
    Row(
        "1 of 1 device: its Config contradicts that of another tenant",
        "configurations that contradict",
        SHARED,
        [
            claim(
                request(capacity={"memory": "1Gi"}),
                config=[configured(apiVersion="x/v1", kind="Config", interval="Long")],
            )
        ],
        [
            allocated(
                result(share="s", consumed={"memory": "1Gi"}),
                namespace="secret-team",
                config=[applied(apiVersion="x/v1", kind="Config", interval="Short")],
            )
        ],
    ),
    Row(
        "2 of 4 devices: gpu.example.com/root is b, those chosen before have a; no value of gpu.example.com/root is common to 4 suitable devices, at most to 2",
        "no value in common",
        FOUR,
        [claim(request(count=4), constraints=[match(ROOT)])],
    ),
    Row(
        "2 of 4 devices: wanted for request a; 2: gpu.example.com/root is b, those chosen before have a; no value of gpu.example.com/root is common to 3 suitable devices, at most to 2",
        "no value in common of two requests",
        FOUR,
        [claim(request("a", count=2), request("b"), constraints=[match(ROOT)])],
    ),
    Row(
        "1 of 4 devices: gpu.example.com/root a is taken by another device; 1: gpu.example.com/root b is taken by another device; gpu.example.com/root has 2 different values among suitable devices, 3 are needed",
        "not enough different values",
        FOUR,
        [claim(request(count=3), constraints=[distinct(ROOT)])],
    ),
    Row(
        "2 of 2 devices: it has no attribute gpu.example.com/root",
        "an attribute that no device has",
        TWO,
        [claim(request(), constraints=[match(ROOT)])],
    ),
    Row(
        "2 of 4 devices: gpu.example.com/root is b, those chosen before have a; 1: gpu.example.com/root a is taken by another device; no suitable devices have the same gpu.example.com/root and different values of gpu.example.com/root: the most is 1, 2 are needed",
        "two constraints that exclude each other",
        FOUR,
        [claim(request(count=2), constraints=[match(ROOT), distinct(ROOT)])],
    ),
    Row(
        "2 of 2 devices: wanted for request a; requests a and b need 3 devices of the 2 that suit both",
        "two requests for the same devices",
        TWO,
        [claim(request("a", count=2), request("b"))],
    ),
    Row(
        '2 of 4 devices: root is "b", not "a"; 1: wanted for request a; requests a and b need 5 devices of the 4 that suit either',
        "two requests for the same devices, of which one takes others, too",
        FOUR,
        [claim(request("a", count=3), request("b", f'{ATTRIBUTES}.root == "a"', count=2))],
    ),
    Row(
        '1 of 3 devices: root is "b", not "a"; 1: root is "t4", not "a"; 1: wanted for request a; requests a and b need 2 devices of the 1 that suits both',
        "three requests of which two compete",
        node_with(pool_of(*gpus("a", "b"), device("t4", attributes={"root": "t4"}))),
        [
            claim(
                request("x", f'{ATTRIBUTES}.root == "t4"'),
                request("a", f'{ATTRIBUTES}.root == "a"'),
                request("b", f'{ATTRIBUTES}.root == "a"'),
            )
        ],
    ),
    Row(
        "2 of 2 devices: wanted for claim one; requests a of claim one and b of claim two need 3 devices of the 2 that suit both",
        "two claims for the same device",
        TWO,
        [claim(request("a", count=2), name="one"), claim(request("b"), name="two")],
    ),
    Row(
        "2 of 2 devices: wanted for a claim in another namespace; requests b of claim two and 1 of claims in other namespaces need 3 devices of the 2 that suit both",
        "claims of two namespaces for the same device",
        TWO,
        [
            claim(request("a", count=2), name="secret", namespace="secret-team"),
            claim(request("b"), name="two"),
        ],
    ),
    Row(
        "request r/a: 1 of 2 devices: taken; 1 would do, 3 are needed; request r/b: 2 of 2 devices: does not satisfy false",
        "each alternative for a reason of its own",
        TWO,
        [claim(first_of("r", alternative("a", count=3), alternative("b", "false")))],
        [OTHERS],
    ),
    Row(
        "claim default/claim-0, request b: adding 3 devices exceeds the claim limit of 32, with 30 already accounted for",
        "more than a claim can hold, whatever is chosen",
        MANY,
        [claim(request("a", count=30), request("b", count=3))],
    ),
    Row(
        "request b/x: 40 of 40 devices: does not satisfy false; request b/y: a claim can hold 32 devices at most",
        "more than a claim can hold with the alternative that suits",
        MANY,
        [
            claim(
                request("a", count=30),
                first_of("b", alternative("x", "false", count=2), alternative("y", count=3)),
            )
        ],
    ),
    Row(
        "2 would do, 3 are needed",
        "a selector that cannot be evaluated, on a node that is out for another reason",
        TWO,
        [claim(request("a", count=3), request("b", f"{ATTRIBUTES}.nothing == 1"))],
    ),
    Row("the node has no devices", "a node without devices", node_with(), [claim(request())]),
    Row(
        "the node has no devices; pool gpu.example.com/node-1 is incomplete: 1 of 2 slices of generation 1",
        "an incomplete pool",
        UNFINISHED,
        [claim(request())],
    ),
    Row(
        "the node has no devices; pool gpu.example.com/node-1 is invalid: duplicate device name gpu-0",
        "an invalid pool",
        BROKEN,
        [claim(request())],
    ),
    Row(
        '1 of 1 device: model is "[31mred line"; wanted is device.attributes["gpu.example.com"].model == "x\\n"',
        "hostile texts",
        node_with(pool_of(device(attributes={"model": "\x1b[31mred\nline\u202e"}))),
        [claim(request("r", f'{ATTRIBUTES}.model == "x\\n"'))],
    ),
)


def rules(row: Row) -> Rules:
    return Rules(
        features=row.features,
        policies=tuple(compiled(one) for one in row.policies),
        keeps_configurations_apart=True,
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_summary(row: Row) -> None:
    wanted = asked(row.claims, row.classes, row.features)

    found = explained(row.node, wanted, gathered(row.held, row.features), rules(row))

    text = summary(found, len(row.node.devices))
    assert row.want == text
    assert "secret" not in text


def shortage(devices: int, detail: str, reason: Reason = Reason.SELECTOR) -> Shortage:
    refusal = Refusal(reason=reason, detail=detail)
    return Shortage(claim="default/claim-0", request="r", refusal=refusal, devices=devices)


def test_a_summary_is_bounded_and_tells_how_much_is_left_out() -> None:
    text = summary([shortage(1, f"{n}" + "ä" * 100) for n in range(30)], 30)

    assert text.endswith("; 26 more reasons")
    assert len(text.encode()) <= MAX_SUMMARY


def test_a_summary_leaves_out_devices_before_what_is_lacking() -> None:
    lacking = shortage(0, "3 are needed", Reason.TOO_FEW)
    devices = [shortage(1, f"way {number}") for number in range(9)]

    assert summary([*devices, lacking], 9, most=64) == (
        "1 of 9 devices: way 0; 1: way 1; 3 are needed; 7 more reasons"
    )


def test_a_summary_without_a_detail_tells_the_reason() -> None:
    assert summary([shortage(2, "", Reason.TAKEN)], 2) == "2 of 2 devices: taken"


def told(*selected: Device, selector: str) -> str:
    only = node_with(pool_of(*selected))
    wanted = asked([claim(request("r", selector))], classes(), Features())
    return summary(explained(only, wanted, gathered((), Features()), Rules()), len(selected))


def test_of_more_than_five_details_of_one_reason_it_is_told_what_they_have_in_common() -> None:
    listed = [device(f"gpu-{n}", attributes={"index": n}) for n in range(9)]

    assert (
        told(*listed, selector=f"{ATTRIBUTES}.index == 9") == "9 of 9 devices: index is ..., not 9"
    )
    assert told(*listed[:5], selector=f"{ATTRIBUTES}.index == 9").count("; ") == 4


def test_details_without_anything_in_common_are_counted_beyond_five() -> None:
    listed = [device(f"gpu-{n}", attributes={f"a{n}": n}) for n in range(9)]
    selector = " && ".join(f"{ATTRIBUTES}.?a{n}.orValue(-1) == -1" for n in range(9))

    text = told(*listed, selector=selector)

    assert text.startswith("1 of 9 devices: a0 is 0, not -1; 1: a1 is 1, not -1; ")
    assert text.endswith("; 4: selector, 4 other ways")


def test_what_fits_needs_no_words() -> None:
    wanted = asked([claim(request())], classes(), Features())

    assert explained(TWO, wanted, gathered((), Features()), Rules()) == ()


def cluster(*sizes: int) -> Cluster:
    """Nodes with so many devices."""
    names = [f"node-{number}" for number in range(len(sizes))]
    return Cluster(
        slices=[
            slice_of(*devices(*(f"gpu-{n}" for n in range(size))), pool=name)
            for name, size in zip(names, sizes, strict=True)
        ],
        nodes=[node(name) for name in names],
        claims=(),
        classes=classes(),
        rules=Rules(),
    )


def test_a_cluster_tells_how_many_nodes_say_what() -> None:
    many = cluster(1, 2, 2, 2)
    wanted = many.ask([claim(request(count=4))])

    found = cluster_summary(many, wanted, many.verdicts(wanted))

    assert found.text() == "3 nodes: 2 would do, 4 are needed; 1 node: 1 would do, 4 are needed"
    assert found.groups[0].nodes == ("node-1", "node-2", "node-3")


def test_nodes_of_different_classes_that_say_the_same_are_told_once() -> None:
    many = cluster(1, 1)
    many.allocate(allocated(result(pool="node-0"), name="other"))
    many.allocate(allocated(result(share="s", pool="node-1"), name="more"))
    wanted = many.ask([claim(request("r", "false"))])

    found = cluster_summary(many, wanted, many.verdicts(wanted))

    assert found.text() == "2 nodes: 1 of 1 device: does not satisfy false"


def test_a_cluster_of_many_classes_tells_how_many_are_not_looked_at() -> None:
    many = cluster(1, 2, 3, 3, 4)
    wanted = many.ask([claim(request(count=5))])

    found = cluster_summary(many, wanted, many.verdicts(wanted), classes=2)

    assert found.text() == (
        "2 nodes: 3 would do, 5 are needed; 1 node: 1 would do, 5 are needed; "
        "2 nodes in 2 further states not looked at"
    )


def test_nodes_that_fit_are_left_out_of_a_cluster() -> None:
    many = cluster(1, 2)
    wanted = many.ask([claim(request(count=2))])

    found = cluster_summary(many, wanted, many.verdicts(wanted))

    assert found.text() == "1 node: 1 would do, 2 are needed"


def test_a_search_that_gave_up_says_so() -> None:
    many = cluster(4)
    wanted = many.ask([claim(request("a", count=2), request("b", count=2))])

    verdicts = many.verdicts(wanted, budget=Budget(steps=1))

    assert cluster_summary(many, wanted, verdicts).text() == (
        "1 node: gave up after 1 steps; no contradiction was found among 1 claims with 2 requests "
        "on 4 devices"
    )


def mixed() -> Cluster:
    """Two nodes that no verdict tells apart: one has small devices, the other another model."""
    return Cluster(
        slices=[
            slice_of(
                device(attributes={"model": "A100"}, capacity={"memory": "16Gi"}), pool="node-0"
            ),
            slice_of(
                device(attributes={"model": "T4"}, capacity={"memory": "80Gi"}), pool="node-1"
            ),
        ],
        nodes=[node("node-0"), node("node-1")],
        claims=(),
        classes=classes(device_class("gpu", f'{ATTRIBUTES}.model == "A100"')),
        rules=Rules(),
    )


def test_nodes_of_one_class_that_refuse_for_different_reasons_are_told_apart() -> None:
    two = mixed()
    wanted = two.ask([claim(request("r", LARGE))])
    verdicts = two.verdicts(wanted)

    found = cluster_summary(two, wanted, verdicts)

    assert len(verdicts.classes) == 1
    assert found.text() == (
        "1 node: 1 of 1 device: memory 16Gi below 40Gi; "
        '1 node: 1 of 1 device: model is "T4", not "A100"'
    )
