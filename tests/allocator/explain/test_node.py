"""The words for claims that do not fit: one row per kind of shortage."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from allocator.cluster.cluster import Cluster
from allocator.compatibility.compile import compile_policy
from allocator.explain.node import explain_node
from allocator.explain.summary import MAX_SUMMARY, summarize, summarize_cluster
from allocator.model.devices import NodeDevices
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason, RejectionReason, Shortage
from allocator.model.plan import Budget
from allocator.model.pools import node_devices
from allocator.model.requests import resolve_requests
from allocator.model.slice_index import build_index
from allocator.model.usage import gather_usage
from allocator.search.attempt import AllocatorOptions
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import Device, DeviceClass, ResourceClaim
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    alternative,
    amount,
    applied_configuration,
    claim,
    classes,
    configured_configuration,
    consumes,
    counter_set,
    device,
    device_class,
    devices,
    distinct,
    first_of,
    labelled_node_selector,
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
    """The explanation of claims on a node.

    Attributes:
        held: Claims that hold devices already.
    """

    want: str
    name: str
    node: NodeDevices
    claims: Sequence[ResourceClaim]
    allocated: Sequence[ResourceClaim] = ()
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
UNFINISHED = node_devices(
    build_index([slice_of(device(), name="one", count=2)], Features()), node()
)
BROKEN = node_devices(build_index([slice_of(device(), device(), name="one")], Features()), node())
OTHERS = allocated_claim(result("gpu-0"), name="secret", namespace="secret-team")
ROWS: tuple[Row, ...] = (
    Row(
        "1/1 devices in use",
        "every device is allocated",
        node_with(pool_of(device())),
        [claim(request())],
        [OTHERS],
    ),
    Row(
        "1/2 devices in use; only 1 suitable device, 2 requested",
        "some are allocated, and the rest is not enough",
        TWO,
        [claim(request(count=2))],
        [OTHERS],
    ),
    Row(
        "only 2 suitable devices, 3 requested",
        "one more is wanted than there is",
        TWO,
        [claim(request(count=3))],
    ),
    Row(
        "2/2 devices have memory 16Gi (< 40Gi)",
        "too small for a selector",
        node_with(pool_of(*gpus("a", "a", memory="16Gi"))),
        [claim(request("r", LARGE))],
    ),
    Row(
        '3/6 devices have memory 16Gi (< 40Gi); 2/6 in use; 1/6 have model "T4" (!= "A100")',
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
        [OTHERS, allocated_claim(result("gpu-1"), name="mine")],
    ),
    Row(
        "2/2 devices have driver gpu.example.com (!= nic.example.com)",
        "a class that selects another driver",
        TWO,
        [claim(request())],
        classes=classes(device_class("gpu", 'device.driver == "nic.example.com"')),
    ),
    Row(
        "1/1 devices have untolerated taint ill=hot:NoSchedule",
        "a tainted device",
        node_with(pool_of(device(taints=(taint("ill", "hot"),)))),
        [claim(request())],
    ),
    Row(
        "1/1 devices for other nodes",
        "a device for other nodes",
        node_with(pool_of(device(selector=labelled_node_selector(zone="b")), per_device=True)),
        [claim(request())],
    ),
    Row(
        "1/1 devices have binding conditions (need feature gates DRADeviceBindingConditions and DRAResourceClaimDeviceStatus)",
        "binding conditions while their gate is off",
        node_with(pool_of(device(binding_conditions=("ready",)))),
        [claim(request())],
        features=Features(device_status=False),
    ),
    Row(
        "3/3 devices consume shared counters (needs feature gate DRAPartitionableDevices)",
        "partitions while their gate is off",
        CARD,
        [claim(request())],
        features=Features(partitionable_devices=False),
    ),
    Row(
        "1/1 devices have skipped node operations (the node does not declare DRAOptionalNodeOperations)",
        "a node that cannot skip node operations",
        node_with(pool_of(device(), skip_node_operations=("Prepare",))),
        [claim(request())],
        features=Features(optional_node_operations=True),
    ),
    Row(
        "1/1 devices have memory 40Gi (< 80Gi)",
        "an amount above what a dedicated device has",
        node_with(pool_of(*gpus("a"))),
        [claim(request(capacity={"memory": "80Gi"}))],
    ),
    Row(
        "2/2 devices have no capacity cores",
        "an amount that devices do not know",
        TWO,
        [claim(request(capacity={"cores": 5}))],
    ),
    Row(
        "1/1 devices allow memory up to 8Gi (9Gi needed)",
        "an amount above the largest of a policy",
        node_with(
            pool_of(device(capacity={"memory": amount("40Gi", min="1Gi", max="8Gi")}, shared=True))
        ),
        [claim(request(capacity={"memory": "9Gi"}))],
    ),
    Row(
        "1/1 devices allow memory up to 8Gi (9Gi needed)",
        "an amount above every valid value",
        node_with(
            pool_of(device(capacity={"memory": amount("40Gi", values=("1Gi", "8Gi"))}, shared=True))
        ),
        [claim(request(capacity={"memory": "9Gi"}))],
    ),
    Row(
        "1/1 devices have memory 10Gi of 40Gi left (< 20Gi)",
        "what is left of a shared device",
        SHARED,
        [claim(request(capacity={"memory": "20Gi"}))],
        [allocated_claim(result(share="s", consumed={"memory": "30Gi"}), namespace="secret-team")],
    ),
    Row(
        "1/1 devices have memory 10Gi of 40Gi left (< 40Gi)",
        "silence takes all of a shared device",
        SHARED,
        [claim(request())],
        [allocated_claim(result(share="s", consumed={"memory": "30Gi"}), namespace="secret-team")],
    ),
    Row(
        "2/3 devices in use; 1/3 need counter memory 20Gi (0 free in counter set set-0)",
        "counters that others exhaust",
        CARD,
        [claim(request())],
        [allocated_claim(result("half-0"), result("half-1"), namespace="secret-team")],
    ),
    Row(
        "1/3 devices need counter memory 20Gi (0 free in counter set set-0); only 2 of 3 suitable devices can be used together, 3 requested",
        "counters that the request itself exhausts",
        CARD,
        [claim(request(count=3))],
    ),
    Row(
        "1/3 devices need counter memory 20Gi (0 free in counter set set-0); all 3 matching devices requested, they cannot be used together",
        "all devices that do not go together",
        CARD,
        [claim(request(count=None))],
    ),
    Row(
        "1/2 devices in use; all 2 matching devices requested",
        "all devices of which one is taken",
        TWO,
        [claim(request(count=None))],
        [OTHERS],
    ),
    Row(
        "2/2 devices do not match selector false; no device matches",
        "all devices where none matches",
        TWO,
        [claim(request("r", "false", count=None))],
    ),
    Row(
        "1/2 devices have compatibility groups {mig} (devices in use on counter set set-0 have {mps} in common); 1/2 in use",
        "groups that exclude each other",
        node_with(
            pool_of(
                device("mig", consumes(memory="1Gi", groups=["mig"])),
                device("mps", consumes(memory="1Gi", groups=["mps"])),
                counters=[counter_set(memory="40Gi")],
            )
        ),
        [claim(request("r", f"{ATTRIBUTES}.?x.orValue(1) == 1", count=1))],
        [allocated_claim(result("mps"), namespace="secret-team")],
        features=Features(compatibility_groups=True),
    ),
    Row(
        "1/2 devices do not accept device mps (rule mig of DeviceCompatibilityPolicy policy; used by a claim in "
        "another namespace); 1/2 in use",
        "a policy that excludes the modes of others",
        node_with(
            pool_of(
                device("mig", consumes(memory="1Gi"), attributes={"mode": "MIG"}),
                device("mps", consumes(memory="1Gi"), attributes={"mode": "MPS"}),
                counters=[counter_set(memory="40Gi")],
            )
        ),
        [claim(request())],
        [allocated_claim(result("mps"), name="secret", namespace="secret-team")],
        policies=[
            policy(
                rule("mig", f'{ATTRIBUTES}.mode == "MIG"', only=f'{ATTRIBUTES}.mode == "MIG"'),
                rule("mps", f'{ATTRIBUTES}.mode == "MPS"', only=f'{ATTRIBUTES}.mode == "MPS"'),
            )
        ],
    ),
    Row(
        "1/1 devices have a co-tenant with a conflicting Config",
        "configurations that contradict",
        SHARED,
        [
            claim(
                request(capacity={"memory": "1Gi"}),
                config=[
                    configured_configuration(apiVersion="x/v1", kind="Config", interval="Long")
                ],
            )
        ],
        [
            allocated_claim(
                result(share="s", consumed={"memory": "1Gi"}),
                namespace="secret-team",
                config=[applied_configuration(apiVersion="x/v1", kind="Config", interval="Short")],
            )
        ],
    ),
    Row(
        "2/4 devices have gpu.example.com/root b (chosen devices have a); at most 2 suitable devices with the same gpu.example.com/root, 4 requested",
        "no value in common",
        FOUR,
        [claim(request(count=4), constraints=[match(ROOT)])],
    ),
    Row(
        "2/4 devices assigned to request a; 2/4 have gpu.example.com/root b (chosen devices have a); at most 2 suitable devices with the same gpu.example.com/root, 3 requested",
        "no value in common of two requests",
        FOUR,
        [claim(request("a", count=2), request("b"), constraints=[match(ROOT)])],
    ),
    Row(
        "1/4 devices have gpu.example.com/root a (as another chosen device), 1/4 have b (as another chosen device); suitable devices have only 2 distinct values of gpu.example.com/root, 3 requested",
        "not enough different values",
        FOUR,
        [claim(request(count=3), constraints=[distinct(ROOT)])],
    ),
    Row(
        "2/2 devices have no attribute gpu.example.com/root",
        "an attribute that no device has",
        TWO,
        [claim(request(), constraints=[match(ROOT)])],
    ),
    Row(
        "2/4 devices have gpu.example.com/root b (chosen devices have a), 1/4 have a (as another chosen device); only 1 suitable device can have the same gpu.example.com/root and different values of gpu.example.com/root, 2 requested",
        "two constraints that exclude each other",
        FOUR,
        [claim(request(count=2), constraints=[match(ROOT), distinct(ROOT)])],
    ),
    Row(
        "2/2 devices assigned to request a; only 2 suitable devices for requests a and b, 3 requested",
        "two requests for the same devices",
        TWO,
        [claim(request("a", count=2), request("b"))],
    ),
    Row(
        '2/4 devices have root "b" (!= "a"); 1/4 assigned to request a; only 4 suitable devices for requests a and b, 5 requested',
        "two requests for the same devices, of which one takes others, too",
        FOUR,
        [claim(request("a", count=3), request("b", f'{ATTRIBUTES}.root == "a"', count=2))],
    ),
    Row(
        '1/3 devices have root "b" (!= "a"), 1/3 have "t4" (!= "a"); 1/3 assigned to request a; only 1 suitable device for requests a and b, 2 requested',
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
        "2/2 devices assigned to claim one; only 2 suitable devices for requests a of claim one and b of claim two, 3 requested",
        "two claims for the same device",
        TWO,
        [claim(request("a", count=2), name="one"), claim(request("b"), name="two")],
    ),
    Row(
        "2/2 devices assigned to a claim in another namespace; only 2 suitable devices for requests b of claim two and 1 of claims in other namespaces, 3 requested",
        "claims of two namespaces for the same device",
        TWO,
        [
            claim(request("a", count=2), name="secret", namespace="secret-team"),
            claim(request("b"), name="two"),
        ],
    ),
    Row(
        "request r/a: 1/2 devices in use; only 1 suitable device, 3 requested; request r/b: 2/2 devices do not match selector false",
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
        "request b/x: 40/40 devices do not match selector false; request b/y: a claim can have at most 32 devices",
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
        "only 2 suitable devices, 3 requested",
        "a selector that cannot be evaluated, on a node that is out for another reason",
        TWO,
        [claim(request("a", count=3), request("b", f"{ATTRIBUTES}.nothing == 1"))],
    ),
    Row("the node has no devices", "a node without devices", node_with(), [claim(request())]),
    Row(
        "pool gpu.example.com/node-1 is incomplete: 1 of 2 slices of generation 1; the node has no other devices",
        "an incomplete pool",
        UNFINISHED,
        [claim(request())],
    ),
    Row(
        "pool gpu.example.com/node-1 is invalid: duplicate device name gpu-0; the node has no other devices",
        "an invalid pool",
        BROKEN,
        [claim(request())],
    ),
    Row(
        '1/1 devices have model "[31mred line" (selector: device.attributes["gpu.example.com"].model == "x\\n")',
        "hostile texts",
        node_with(pool_of(device(attributes={"model": "\x1b[31mred\nline\u202e"}))),
        [claim(request("r", f'{ATTRIBUTES}.model == "x\\n"'))],
    ),
)


def rules(row: Row) -> AllocatorOptions:
    return AllocatorOptions(
        features=row.features,
        policies=tuple(compile_policy(policy_) for policy_ in row.policies),
        uniform_config_drivers=frozenset({DRIVER}),
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_summary(row: Row) -> None:
    pending = resolve_requests(row.claims, row.classes, row.features)

    explanation = explain_node(
        row.node, pending, gather_usage(row.allocated, row.features), rules(row)
    )

    text = summarize(explanation, len(row.node.devices))
    assert row.want == text
    assert "secret" not in text


def shortage(devices: int, detail: str, reason: Reason = Reason.SELECTOR) -> Shortage:
    refusal = RejectionReason(reason=reason, subject=detail)
    return Shortage(claim="default/claim-0", request="r", rejection=refusal, devices=devices)


def test_a_summary_is_bounded_and_tells_how_much_is_left_out() -> None:
    text = summarize([shortage(1, f"{n}" + "ä" * 100) for n in range(30)], 30)

    assert text.endswith("; 26 more reasons")
    assert len(text.encode()) <= MAX_SUMMARY


def test_a_summary_leaves_out_devices_before_what_is_lacking() -> None:
    lacking = shortage(0, "3 are needed", Reason.TOO_FEW_DEVICES)
    devices = [shortage(1, f"way {number}") for number in range(9)]

    assert summarize([*devices, lacking], 9, most=64) == (
        "1/9 devices way 0; 1/9 way 1; 3 are needed; 7 more reasons"
    )


def test_a_summary_without_a_detail_tells_the_reason() -> None:
    assert summarize([shortage(2, "", Reason.ALLOCATED)], 2) == "2/2 devices allocated"


def selector_reason(*selected: Device, selector: str) -> str:
    only = node_with(pool_of(*selected))
    pending = resolve_requests([claim(request("r", selector))], classes(), Features())
    return summarize(
        explain_node(only, pending, gather_usage((), Features()), AllocatorOptions()), len(selected)
    )


def test_of_more_than_five_details_of_one_reason_it_is_told_what_they_have_in_common() -> None:
    listed_devices = [device(f"gpu-{n}", attributes={"index": n}) for n in range(9)]

    assert (
        selector_reason(*listed_devices, selector=f"{ATTRIBUTES}.index == 9")
        == "9/9 devices have index 0, 1, 2 and 6 more (!= 9)"
    )
    assert (
        selector_reason(*listed_devices[:5], selector=f"{ATTRIBUTES}.index == 9").count(", ") == 4
    )


def test_details_without_anything_in_common_are_counted_beyond_five() -> None:
    listed_devices = [device(f"gpu-{n}", attributes={f"a{n}": n}) for n in range(9)]
    selector = " && ".join(f"{ATTRIBUTES}.?a{n}.orValue(-1) == -1" for n in range(9))

    text = selector_reason(*listed_devices, selector=selector)

    assert text.startswith("1/9 devices have a0 0 (!= -1); 1/9 have a1 1 (!= -1); ")
    assert text.endswith("; 4/9 rejected for 4 other reasons")


def test_what_fits_needs_no_words() -> None:
    pending = resolve_requests([claim(request())], classes(), Features())

    assert explain_node(TWO, pending, gather_usage((), Features()), AllocatorOptions()) == ()


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
        options=AllocatorOptions(),
    )


def test_a_cluster_tells_how_many_nodes_say_what() -> None:
    many = cluster(1, 2, 2, 2)
    pending = many.resolve([claim(request(count=4))])

    summary = summarize_cluster(many, pending, many.verdicts(pending))

    assert (
        summary.text()
        == "3 nodes: only 2 suitable devices, 4 requested. 1 node: only 1 suitable device, 4 requested"
    )
    assert summary.groups[0].nodes == ("node-1", "node-2", "node-3")


def test_nodes_of_different_classes_that_say_the_same_are_reported_once() -> None:
    many = cluster(1, 1)
    many.allocate(allocated_claim(result(pool="node-0"), name="other"))
    many.allocate(allocated_claim(result(share="s", pool="node-1"), name="more"))
    pending = many.resolve([claim(request("r", "false"))])

    summary = summarize_cluster(many, pending, many.verdicts(pending))

    assert summary.text() == "2 nodes: 1/1 devices do not match selector false"


def test_a_cluster_of_many_classes_tells_how_many_are_not_looked_at() -> None:
    many = cluster(1, 2, 3, 3, 4)
    pending = many.resolve([claim(request(count=5))])

    summary = summarize_cluster(many, pending, many.verdicts(pending), classes=2)

    assert summary.text() == (
        "2 nodes: only 3 suitable devices, 5 requested. 1 node: only 1 suitable device, 5 requested. 2 nodes not explained (limit of 2 node classes)"
    )


def test_nodes_that_fit_are_left_out_of_a_cluster() -> None:
    many = cluster(1, 2)
    pending = many.resolve([claim(request(count=2))])

    summary = summarize_cluster(many, pending, many.verdicts(pending))

    assert summary.text() == "1 node: only 1 suitable device, 2 requested"


def test_a_search_that_gave_up_says_so() -> None:
    many = cluster(4)
    pending = many.resolve([claim(request("a", count=2), request("b", count=2))])

    verdicts = many.verdicts(pending, budget=Budget(steps=1))

    assert summarize_cluster(many, pending, verdicts).text() == (
        "1 node: the search budget of 1 steps is exhausted; no contradiction was found among 1 claims with 2 requests "
        "on 4 devices"
    )


def mixed_cluster() -> Cluster:
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
        options=AllocatorOptions(),
    )


def test_nodes_of_one_class_that_refuse_for_different_reasons_are_told_apart() -> None:
    two = mixed_cluster()
    pending = two.resolve([claim(request("r", LARGE))])
    verdicts = two.verdicts(pending)

    summary = summarize_cluster(two, pending, verdicts)

    assert len(verdicts.classes) == 1
    assert summary.text() == (
        '1 node: 1/1 devices have memory 16Gi (< 40Gi). 1 node: 1/1 devices have model "T4" (!= "A100")'
    )
