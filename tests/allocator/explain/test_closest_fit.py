"""The smallest change that would fit: one row per kind of change, and the smaller of two."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from allocator.cluster.cluster import Cluster
from allocator.explain.change import ClosestFit
from allocator.explain.closest_fit import closest_fit_now, closest_fit_when_idle, find_closest_fit
from allocator.model.devices import NodeDevices
from allocator.model.feature_gates import Features
from allocator.model.plan import Plan
from allocator.model.requests import resolve_requests
from allocator.model.usage import Usage, gather_usage
from allocator.search.attempt import AllocatorOptions
from allocator.search.search import allocate
from kube.api.resource import Device, DeviceClass, DeviceRequest, ResourceClaim
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    alternative,
    amount,
    claim,
    classes,
    consumes,
    counter_set,
    device,
    device_class,
    devices,
    distinct,
    first_of,
    match,
    node,
    node_with,
    pool_of,
    request,
    result,
    slice_of,
    taint,
)

ATTRIBUTES = f'device.attributes["{DRIVER}"]'
CAPACITY = f'device.capacity["{DRIVER}"]'
LARGE = f'{CAPACITY}.memory.compareTo(quantity("40Gi")) >= 0'
SMALLER = f"write 16Gi for 40Gi in selector {LARGE}"
ROOT = f"{DRIVER}/root"
PCIE = "resource.kubernetes.io/pcieRoot"
NUMA = "resource.kubernetes.io/numaNode"
GPU = classes()


def gpus(*roots: str, memory: str = "16Gi") -> list[Device]:
    """Devices with an attribute `root` each."""
    return [
        device(f"gpu-{n}", attributes={"root": root, "index": n}, capacity={"memory": memory})
        for n, root in enumerate(roots)
    ]


def on_roots(*places: tuple[str, int]) -> list[Device]:
    """Devices with a PCIe root and a NUMA node each."""
    return [
        device(f"gpu-{n}", attributes={PCIE: root, NUMA: numa})
        for n, (root, numa) in enumerate(places)
    ]


class Row(NamedTuple):
    """The claims that would fit instead.

    Attributes:
        want: The expected words without the node; empty for nothing.
        held: Claims that hold devices already.
    """

    want: str
    name: str
    node: NodeDevices
    claims: Sequence[ResourceClaim]
    allocated: Sequence[ResourceClaim] = ()
    classes: Mapping[str, DeviceClass] = GPU


TWO = node_with(pool_of(*devices("gpu-0", "gpu-1")))
FOUR = node_with(pool_of(*gpus("a", "a", "b", "b")))
PARENTS = node_with(
    pool_of(
        *(
            device(f"part-{n}", attributes={"parentRoot": root})
            for n, root in enumerate(("a", "a", "b"))
        )
    )
)


def shared(**policy: Any) -> NodeDevices:
    """A node with one device of 40Gi that can be shared."""
    return node_with(
        pool_of(device("gpu-0", capacity={"memory": amount("40Gi", **policy)}, shared=True))
    )


def sharing(**amounts: str) -> list[DeviceRequest]:
    """A request for memory by name."""
    return [request(name, capacity={"memory": memory}) for name, memory in amounts.items()]


STEPS = shared(default="40Gi", min="2Gi", step="4Gi")
VALUES = shared(default="1Gi", values=("1Gi", "8Gi", "40Gi"))
HALVES = node_with(
    pool_of(
        *(device(f"half-{n}", consumes(memory="20Gi")) for n in range(3)),
        counters=[counter_set(memory="40Gi")],
    )
)
ILL = taint("ill", "hot")
OTHERS = allocated_claim(result("gpu-0"), name="other")
THIRTY = allocated_claim(result(share="s", consumed={"memory": "30Gi"}), name="other")
ROWS: tuple[Row, ...] = (
    Row(
        "unchanged",
        "what fits needs no change",
        TWO,
        [claim(request())],
    ),
    Row("request 2 devices", "one device less", TWO, [claim(request(count=3))]),
    Row("request 3 devices", "as many as others leave", FOUR, [claim(request(count=4))], [OTHERS]),
    Row(
        "request 2 devices",
        "no more than a node has together",
        HALVES,
        [claim(request(count=3))],
    ),
    Row(
        "request 1 device with allocationMode ExactCount",
        "a number instead of all",
        TWO,
        [claim(request(count=None))],
        [OTHERS],
    ),
    Row(
        "request 2 devices with allocationMode ExactCount",
        "a number instead of all that go together",
        HALVES,
        [claim(request(count=None))],
    ),
    Row(
        "request memory 15Gi in request b",
        "what another request leaves of a shared device",
        shared(),
        [claim(*sharing(a="25Gi", b="30Gi"))],
    ),
    Row(
        "request memory 14Gi in request b",
        "what another request leaves, in steps",
        STEPS,
        [claim(*sharing(a="25Gi", b="30Gi"))],
    ),
    Row(
        "request memory 11Gi in request c",
        "what two other requests leave of a shared device",
        shared(),
        [claim(*sharing(a="14Gi", b="15Gi", c="17Gi"))],
    ),
    Row(
        "request memory 3Gi in request b",
        "what another request leaves beside what is in use",
        shared(),
        [claim(*sharing(a="7Gi", b="8Gi"))],
        [THIRTY],
    ),
    Row(
        "request memory 10Gi",
        "what is left of a shared device",
        shared(),
        [claim(request(capacity={"memory": "20Gi"}))],
        [THIRTY],
    ),
    Row(
        "request memory 10Gi",
        "a step of what is left",
        STEPS,
        [claim(request(capacity={"memory": "20Gi"}))],
        [allocated_claim(result(share="s", consumed={"memory": "28Gi"}))],
    ),
    Row(
        "request memory 8Gi",
        "a valid value of what is left",
        VALUES,
        [claim(request(capacity={"memory": "20Gi"}))],
        [THIRTY],
    ),
    Row(
        "request memory 8Gi",
        "no more than the largest of a policy",
        shared(default="1Gi", min="1Gi", max="8Gi"),
        [claim(request(capacity={"memory": "9Gi"}))],
    ),
    Row(
        "request memory 24Gi",
        "the largest device that there is",
        node_with(
            pool_of(device(capacity={"memory": "16Gi"}), device("b", capacity={"memory": "24Gi"}))
        ),
        [claim(request(capacity={"memory": "40Gi"}))],
    ),
    Row(
        "drop the request for cores 5",
        "an amount that devices do not know",
        TWO,
        [claim(request(capacity={"cores": 5}))],
    ),
    Row(
        "request memory 10Gi",
        "an amount where silence takes everything",
        shared(),
        [claim(request())],
        [THIRTY],
    ),
    Row(
        "request memory 20Gi in request b",
        "a half each",
        shared(),
        [
            claim(
                request("a", capacity={"memory": "20Gi"}), request("b", capacity={"memory": "40Gi"})
            )
        ],
    ),
    Row(
        "let the claim tolerate taint ill=hot:NoSchedule",
        "a taint",
        node_with(pool_of(device(taints=(ILL,)))),
        [claim(request())],
    ),
    Row(
        "let the claim tolerate taint ill=hot:NoSchedule and old:NoSchedule",
        "two taints of one device",
        node_with(pool_of(device(taints=(ILL, taint("old"))))),
        [claim(request())],
    ),
    Row(
        "let the claim tolerate taint new:NoSchedule",
        "the device with fewer taints",
        node_with(pool_of(device(taints=(ILL, taint("old"))), device("b", taints=(taint("new"),)))),
        [claim(request())],
    ),
    Row(
        "let the claim tolerate taint new:NoSchedule",
        "rather a taint that keeps away than one that evicts",
        node_with(
            pool_of(
                device(taints=(taint("bad", effect="NoExecute"),)),
                device("b", taints=(taint("new"),)),
            )
        ),
        [claim(request())],
    ),
    Row(
        "drop matchAttribute gpu.example.com/root of all requests (constraints[0])",
        "a constraint",
        FOUR,
        [claim(request("a"), request("b"), request("c"), constraints=[match(ROOT)])],
    ),
    Row(
        "drop matchAttribute gpu.example.com/root of requests a and c (constraints[1])",
        "one of two constraints, by its requests and its place",
        node_with(pool_of(*gpus("a", "b", "b"))),
        [
            claim(
                request("a", f'{ATTRIBUTES}.root == "a"'),
                request("b", f'{ATTRIBUTES}.root == "b"'),
                request("c", f'{ATTRIBUTES}.root == "b"'),
                constraints=[match(ROOT, "b", "c"), match(ROOT, "a", "c")],
            )
        ],
    ),
    Row(
        "drop distinctAttribute gpu.example.com/root of all requests (constraints[0])",
        "different values that there are not",
        node_with(pool_of(*gpus("a", "a"))),
        [claim(request("a"), request("b"), constraints=[distinct(ROOT)])],
    ),
    Row(
        "write matchAttribute gpu.example.com/parentRoot for gpu.example.com/root of all requests (constraints[0])",
        "a similar attribute that devices have instead of the one of a constraint",
        PARENTS,
        [claim(request("a"), request("b"), constraints=[match(ROOT)])],
    ),
    Row(
        "write matchAttribute other.example.com/root for gpu.example.com/root of all requests (constraints[0])",
        "rather an attribute of the same name in another domain",
        node_with(
            pool_of(
                *(
                    device(
                        f"gpu-{n}",
                        attributes={"parentRoot": "a", "other.example.com/root": "a"},
                    )
                    for n in range(2)
                )
            )
        ),
        [claim(request("a"), request("b"), constraints=[match(ROOT)])],
    ),
    Row(
        "write distinctAttribute gpu.example.com/parentRoot for gpu.example.com/root of all requests (constraints[0])",
        "a similar attribute with different values",
        PARENTS,
        [claim(request("a"), request("b"), constraints=[distinct(ROOT)])],
    ),
    Row(
        "drop matchAttribute gpu.example.com/root of all requests (constraints[0])",
        "no similar attribute of which devices have different values",
        PARENTS,
        [claim(request("a"), request("b"), request("c"), constraints=[match(ROOT)])],
    ),
    Row(
        "drop matchAttribute gpu.example.com/model of all requests (constraints[0])",
        "no attribute whose name is not similar",
        PARENTS,
        [claim(request("a"), request("b"), constraints=[match("gpu.example.com/model")])],
    ),
    Row(
        f"write matchAttribute {NUMA} for {PCIE} of all requests (constraints[0])",
        "rather one NUMA node than no constraint",
        node_with(pool_of(*on_roots(("a", 0), ("b", 0), ("c", 1)))),
        [claim(request("a"), request("b"), constraints=[match(PCIE)])],
    ),
    Row(
        f"drop matchAttribute {PCIE} of all requests (constraints[0])",
        "no NUMA node with devices enough",
        node_with(pool_of(*on_roots(("a", 0), ("b", 1), ("c", 2)))),
        [claim(request("a"), request("b"), constraints=[match(PCIE)])],
    ),
    Row(
        "request 4 devices",
        "no constraint of a request that is not there",
        FOUR,
        [claim(request(count=5), constraints=[match(ROOT, "other")])],
    ),
    Row(
        "request 2 devices",
        "rather fewer devices than no constraint",
        FOUR,
        [claim(request(count=3), constraints=[match(ROOT)])],
    ),
    Row(
        "request 2 devices",
        "rather half of the devices than no constraint",
        node_with(pool_of(*gpus("a", "a", "b", "b"))),
        [claim(request(count=4), constraints=[match(ROOT)])],
    ),
    Row(
        "drop matchAttribute gpu.example.com/root (constraints[0])",
        "rather no constraint than one device of four",
        node_with(pool_of(*gpus("a", "b", "c", "d"))),
        [claim(request(count=4), constraints=[match(ROOT)])],
    ),
    Row(SMALLER, "the bound of a selector", FOUR, [claim(request("r", LARGE))]),
    Row(
        SMALLER,
        "the bound of a selector among conditions",
        FOUR,
        [claim(request("r", f'{ATTRIBUTES}.root == "a" && ({LARGE})'))],
    ),
    Row(
        f"write 3 for 9 in selector {ATTRIBUTES}.index >= 9",
        "the bound of an attribute",
        FOUR,
        [claim(request("r", f"{ATTRIBUTES}.index >= 9"))],
    ),
    Row(
        'drop selector device.attributes["gpu.example.com"].root == "c"',
        "a condition",
        FOUR,
        [claim(request("r", f'{ATTRIBUTES}.root == "c" && {ATTRIBUTES}.index > 2'))],
    ),
    Row(
        'drop selector device.attributes["gpu.example.com"].root == "c"',
        "one condition of those in parentheses",
        FOUR,
        [
            claim(
                request(
                    "r",
                    f'({ATTRIBUTES}.index > 2 || false) && {ATTRIBUTES}.root == "c" && (true || false)',
                )
            )
        ],
    ),
    Row(
        f"write 3 for 7 in selector {ATTRIBUTES}.index == 7",
        "the nearest number",
        FOUR,
        [claim(request("r", f"{ATTRIBUTES}.index == 7"))],
    ),
    Row(
        f'write "A100-80" for "a100" in selector {ATTRIBUTES}.root == "a100"',
        "a part of a published text",
        node_with(pool_of(*gpus("A100-80", "H100-80"))),
        [claim(request("r", f'{ATTRIBUTES}.root == "a100"'))],
    ),
    Row(
        f"write '3g.40gb' for '4g.40gb' in selector {ATTRIBUTES}.root == '4g.40gb'",
        "of similar texts the one with the same end",
        node_with(pool_of(*gpus("4g.20gb", "3g.40gb"))),
        [claim(request("r", f"{ATTRIBUTES}.root == '4g.40gb'"))],
    ),
    Row(
        f"write '2g.20gb' for '1g.12gb' in selector {ATTRIBUTES}.root == '1g.12gb'",
        "of similar texts the smallest that is at least as large",
        node_with(pool_of(*gpus("1g.10gb", "3g.40gb", "2g.20gb"))),
        [claim(request("r", f"{ATTRIBUTES}.root == '1g.12gb'"))],
    ),
    Row(
        f"write '1g.10gb' for '1g.12gb' in selector {ATTRIBUTES}.root == '1g.12gb'",
        "a smaller text where none is as large",
        node_with(pool_of(*gpus("1g.5gb", "1g.10gb"))),
        [claim(request("r", f"{ATTRIBUTES}.root == '1g.12gb'"))],
    ),
    Row(
        f'write "GPU-aaab" for "GPU-aaaa" in selector {ATTRIBUTES}.root == "GPU-aaaa"',
        "a similar text for one of a device that is in use",
        node_with(pool_of(*gpus("GPU-aaaa", "GPU-aaab"))),
        [claim(request("r", f'{ATTRIBUTES}.root == "GPU-aaaa"'))],
        [OTHERS],
    ),
    Row(
        f"write 39Gi for 40Gi in selector {LARGE}, request 2 devices",
        "of two changes the least of both together",
        node_with(
            pool_of(
                *gpus("a", "b", memory="39Gi"),
                device("tiny-0", capacity={"memory": "1Gi"}),
                device("tiny-1", capacity={"memory": "1Gi"}),
            )
        ),
        [claim(request("r", LARGE, count=5))],
    ),
    Row("drop selector false", "the only condition", FOUR, [claim(request("r", "false"))]),
    Row(
        "request 2 devices in request r/y",
        "an alternative",
        TWO,
        [claim(first_of("r", alternative("x", count=4), alternative("y", count=3)))],
    ),
    Row(
        "request 1 device in request a, drop selector false in request b",
        "two requests at once",
        TWO,
        [claim(request("a", count=2), request("b", "false"))],
    ),
    Row(
        f"request 4 devices, {SMALLER}",
        "two changes of one request",
        FOUR,
        [claim(request("r", LARGE, count=5))],
    ),
    Row(
        f'request 4 devices, {SMALLER}, drop selector {ATTRIBUTES}.root == "c"',
        "three changes",
        FOUR,
        [claim(request("r", f'{LARGE} && {ATTRIBUTES}.root == "c"', count=5))],
    ),
    Row(
        "request 1 device in claim default/two",
        "a request of one of two claims",
        TWO,
        [claim(request(), name="one"), claim(request(count=2), name="two")],
    ),
    Row(
        "request 1 device",
        "an amount that only some devices know",
        node_with(pool_of(device(), device("b", capacity={"memory": "1Gi"}))),
        [claim(request(count=2, capacity={"memory": "1Gi"}))],
    ),
    Row(
        "request memory 1Gi",
        "rather less of something than none of it",
        node_with(pool_of(device(), device("b", capacity={"memory": "1Gi"}))),
        [claim(request(capacity={"memory": "2Gi"}))],
    ),
    Row(
        "",
        "nothing helps where all is taken",
        node_with(pool_of(device())),
        [claim(request())],
        [OTHERS],
    ),
    Row(
        "",
        "a class stays as it is",
        TWO,
        [claim(request())],
        classes=classes(device_class("gpu", "false")),
    ),
    Row(
        "", "a claim that can be evaluated nowhere", TWO, [claim(request(device_class_name="gone"))]
    ),
    Row(
        "",
        "two requests for the only device",
        node_with(pool_of(device())),
        [claim(request("a"), request("b"))],
    ),
    Row("", "a node without devices", node_with(), [claim(request())]),
)


def missed_closest_fit(row: Row) -> ClosestFit | None:
    return find_closest_fit(
        [row.node],
        row.claims,
        lambda claims: resolve_requests(claims, row.classes, Features()),
        gather_usage(row.allocated, Features()),
        AllocatorOptions(),
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_closest_fit(row: Row) -> None:
    closest_fit = missed_closest_fit(row)

    text = closest_fit.summary if closest_fit is not None else ""
    assert row.want == text.removesuffix(" (node-1)")


@pytest.mark.parametrize("row", [row for row in ROWS if row.want], ids=lambda row: row.name)
def test_the_closest_fit_fits(row: Row) -> None:
    closest_fit = missed_closest_fit(row)

    assert closest_fit is not None
    pending = resolve_requests(closest_fit.claims, row.classes, Features())
    outcome = allocate(
        row.node, pending, gather_usage(row.allocated, Features()), AllocatorOptions()
    )
    assert isinstance(outcome, Plan)


def test_the_alternative_is_an_equal_change_to_another_request() -> None:
    def nodes_of(*profiles: Sequence[str]) -> list[NodeDevices]:
        return [
            node_with(pool_of(*gpus(*names), pool=f"node-{n}"), name=f"node-{n}")
            for n, names in enumerate(profiles)
        ]

    def change(before: str, after: str) -> str:
        return f"write '{after}' for '{before}' in selector {ATTRIBUTES}.root == '{before}'"

    claim_ = claim(
        request("small", f"{ATTRIBUTES}.root == '1g.5gb'"),
        request("large", f"{ATTRIBUTES}.root == '3g.20gb'"),
    )

    def fix(nodes: Sequence[NodeDevices]) -> str:
        closest_fit = find_closest_fit(
            nodes,
            [claim_],
            lambda claims: resolve_requests(claims, GPU, Features()),
            Usage(),
            AllocatorOptions(),
        )
        return closest_fit.fix if closest_fit is not None else ""

    small = f"{change('1g.5gb', '1g.10gb')} in request small"
    large = f"{change('3g.20gb', '3g.40gb')} in request large"
    both = nodes_of(["1g.5gb", "3g.40gb"], ["1g.10gb", "3g.20gb"])
    assert f"{small} to fit node node-1, or {large} to fit node node-0" == fix(both)
    assert f"{large} to fit node node-0" == fix(both[:1])
    assert f"{small} to fit node node-1" == fix(both[1:])


def test_a_constraint_may_be_dropped_instead_of_smaller_requests() -> None:
    claims = [claim(request(count=4), constraints=[match(ROOT), distinct("gpu.example.com/index")])]

    closest_fit = missed_closest_fit(Row("", "", FOUR, claims))

    assert closest_fit is not None
    assert closest_fit.fix == (
        "request 2 devices to fit node node-1, "
        "or drop matchAttribute gpu.example.com/root (constraints[0]) to fit node node-1"
    )
    assert closest_fit.drops_constraint_instead


def test_a_constraint_may_be_dropped_instead_of_other_devices() -> None:
    devices = (("1g.5gb", "x"), ("3g.40gb", "y"), ("3g.20gb", "x"))
    apart = node_with(
        pool_of(
            *(
                device(root, attributes={"root": root, "card": card, "index": n})
                for n, (root, card) in enumerate(devices)
            )
        )
    )
    claims = [
        claim(
            request("small", f"{ATTRIBUTES}.root == '1g.5gb'"),
            request("large", f"{ATTRIBUTES}.root == '3g.40gb'"),
            constraints=[match("gpu.example.com/card")],
        )
    ]

    closest_fit = missed_closest_fit(Row("", "", apart, claims))

    assert closest_fit is not None
    assert closest_fit.fix.endswith(
        "in request large to fit node node-1, or drop matchAttribute gpu.example.com/card of all requests "
        "(constraints[0]) to fit node node-1"
    )


def test_a_change_that_would_end_the_attempt_elsewhere_is_no_change() -> None:
    here = node_with(pool_of(device(attributes={"model": "T4"})))
    there = node_with(pool_of(device(), pool="node-2"), name="node-2")
    claim_ = claim(
        request("r", f'has({ATTRIBUTES}.model) && {ATTRIBUTES}.model == "A100" && false', "true")
    )

    closest_fit = find_closest_fit(
        [here, there],
        [claim_],
        lambda ones: resolve_requests(ones, GPU, Features()),
        Usage(),
        AllocatorOptions(),
    )

    assert closest_fit is None or all("has(" not in change.detail for change in closest_fit.changes)


def test_an_answer_costs_no_more_than_it_may() -> None:
    row = ROWS[1]

    closest_fit = find_closest_fit(
        [row.node],
        row.claims,
        lambda claims: resolve_requests(claims, GPU, Features()),
        Usage(),
        AllocatorOptions(),
        searches=1,
    )

    assert closest_fit is None


def test_the_words_of_many_changes_are_bounded() -> None:
    many = [claim(request("r", "false", count=2), name=f"claim-{n}") for n in range(6)]

    closest_fit = find_closest_fit(
        [node_with(pool_of(*devices(*(f"gpu-{n}" for n in range(6)))))],
        many,
        lambda claims: resolve_requests(claims, GPU, Features()),
        Usage(),
        AllocatorOptions(),
        searches=10_000,
    )

    assert closest_fit is not None
    assert len(closest_fit.changes) == 12
    assert closest_fit.fix.endswith(", 8 more changes to fit node node-1")


# --- clusters -------------------------------------------------------------------------------------


def cluster(*sizes: int, held_claims: Sequence[ResourceClaim] = ()) -> Cluster:
    """Nodes node-0, node-1 and so on with so many devices."""
    names = [f"node-{number}" for number in range(len(sizes))]
    return Cluster(
        slices=[
            slice_of(*devices(*(f"gpu-{n}" for n in range(size))), pool=name)
            for name, size in zip(names, sizes, strict=True)
        ],
        nodes=[node(name) for name in names],
        claims=held_claims,
        classes=GPU,
        options=AllocatorOptions(),
    )


BUSY = allocated_claim(
    result("gpu-0", pool="node-1"),
    result("gpu-1", pool="node-1"),
    result("gpu-0", pool="node-0"),
)


def test_now_counts_what_is_held() -> None:
    closest_fit = closest_fit_now(cluster(2, 4, held_claims=[BUSY]), [claim(request(count=5))])

    assert closest_fit is not None
    assert closest_fit.fix == "request 2 devices to fit node node-1"


def test_an_emptied_cluster_counts_nothing_that_is_held() -> None:
    closest_fit = closest_fit_when_idle(
        cluster(2, 4, held_claims=[BUSY]), [claim(request(count=5))]
    )

    assert closest_fit is not None
    assert closest_fit.fix == "request 4 devices to fit node node-1"


def test_an_emptied_cluster_may_need_no_change() -> None:
    closest_fit = closest_fit_when_idle(
        cluster(2, 4, held_claims=[BUSY]), [claim(request(count=4))]
    )

    assert closest_fit is not None
    assert closest_fit.fix == "fits node node-1 unchanged"


def test_claims_that_can_be_evaluated_nowhere_have_no_closest_fit() -> None:
    claim_ = claim(request(device_class_name="gone"))

    assert closest_fit_now(cluster(1), [claim_]) is None


def test_a_node_that_a_change_helps_is_found_behind_one_of_its_class_that_it_does_not() -> None:
    two = Cluster(
        slices=[
            slice_of(
                device(attributes={"model": "T4"}, capacity={"memory": "80Gi"}), pool="node-0"
            ),
            slice_of(
                device(attributes={"model": "A100"}, capacity={"memory": "16Gi"}), pool="node-1"
            ),
        ],
        nodes=[node("node-0"), node("node-1")],
        claims=(),
        classes=classes(device_class("gpu", f'{ATTRIBUTES}.model == "A100"')),
        options=AllocatorOptions(),
    )

    closest_fit = closest_fit_now(two, [claim(request("r", LARGE))])

    assert closest_fit is not None
    assert closest_fit.fix == f"{SMALLER} to fit node node-1"
