"""DeviceQuotas of owned drivers: each node's own plan is charged, and victims of the tenant free its budget."""

from collections.abc import Sequence
from itertools import combinations, product
from random import Random

import pytest

from kube.api.core import Pod
from kube.api.device_quota import Budget, DeviceQuota, QuotaEnforcement, QuotaLimit
from kube.api.resource import DeviceRequest, ResourceClaim, ResourceSlice
from quotas.device_quotas import affordable_nodes
from sidecar.groups.waking import find_placeable
from sidecar.model.protocol import Verdict
from sidecar.model.rejections import Code, Rejection
from sidecar.plan.decisions import Fits, NoDevicesNeeded, Outcome, find_nodes
from sidecar.plan.placement import Placement, place
from sidecar.plan.preemption import DryRunBudget, fits_with
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.waking import WaitingPod
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    alternative,
    claim,
    consumes,
    counter_set,
    device,
    device_class,
    devices,
    first_of,
    node,
    request,
    result,
    slice_of,
)
from testing.device_quotas import capacity_limit, claim_limit, counter_limit, device_limit, quota
from testing.sidecar.snapshots import pod, snapshot, used_by

SMALL = device("small", capacity={"memory": "40Gi"})
LARGE = device("large", capacity={"memory": "80Gi"})
LABEL = {"team": "a"}


def on(name: str, *published: object) -> ResourceSlice:
    return slice_of(*published, pool=name, node=name)  # type: ignore[arg-type]


CARDS = (on("node-1", LARGE), on("node-2", SMALL))
"""An 80Gi card, and a 40Gi card on the other node; without selectors both nodes are one class."""


def names(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, Fits), outcome
    return [node_.name for node_ in outcome.nodes]


def rejected(outcome: Outcome | Placement) -> Rejection:
    assert isinstance(outcome, Rejection), outcome
    return outcome


def placed(outcome: Placement | Rejection) -> list[str]:
    assert isinstance(outcome, Placement), outcome
    return [
        result_.device
        for _, allocation in outcome.allocations
        for result_ in allocation.devices.results or ()
    ]


def cluster(
    *limits: QuotaLimit,
    requests: Sequence[DeviceRequest] = (request(),),
    held: Sequence[ResourceClaim] = (),
    slices: Sequence[ResourceSlice] = CARDS,
    pods: Sequence[Pod] = (),
    quotas: Sequence[DeviceQuota] = (),
    **namespaces: dict[str, str],
) -> Snapshot:
    """The claim `gpu` waits, and others are allocated."""
    return snapshot(
        claim(*requests, name="gpu"),
        *held,
        slices=slices,
        pods=pods,
        quotas=quotas or [quota(*limits)],
        namespaces={"default": LABEL, **namespaces},
    )


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        pytest.param("80Gi", ["node-1", "node-2"], id="all of it is left"),
        pytest.param("79Gi", ["node-2"], id="the larger card is too large"),
        pytest.param("40Gi", ["node-2"], id="exactly the smaller one"),
    ],
)
def test_a_node_fits_if_its_own_plan_does(most: str, expected: list[str]) -> None:
    assert expected == names(find_nodes(pod("gpu"), cluster(capacity_limit("memory", most))))


def test_a_pod_that_no_node_is_cheap_enough_for_is_told_what_is_left() -> None:
    rejection = rejected(find_nodes(pod("gpu"), cluster(capacity_limit("memory", "39Gi"))))

    assert (rejection.verdict, rejection.code) == (
        Verdict.UNRESOLVABLE,
        Code.EXCEEDS_DEVICE_QUOTA,
    )
    assert rejection.message == (
        "DeviceQuota team, limit memory: 40Gi of memory needed, 39Gi of 39Gi of memory left"
    )


def test_a_node_is_searched_again_for_a_plan_within_the_budget() -> None:
    """The first plan takes the large card, as the first one."""
    both = (on("node-1", LARGE, SMALL), on("node-2"))
    tight = cluster(capacity_limit("memory", "40Gi"), slices=both)

    assert ["node-1"] == names(find_nodes(pod("gpu"), tight))
    assert ["small"] == placed(place(pod("gpu"), "node-1", tight))


def test_equal_nodes_with_other_cards_free_are_searched_one_by_one() -> None:
    held = [
        allocated_claim(result("small", pool="node-1"), name="a"),
        allocated_claim(result("large", pool="node-2"), name="b"),
    ]
    both = [on(name, LARGE, SMALL) for name in ("node-1", "node-2")]
    # 120Gi are in use.
    tight = cluster(capacity_limit("memory", "160Gi"), slices=both, held=held)

    assert ["node-2"] == names(find_nodes(pod("gpu"), tight))


def test_the_next_alternative_is_taken() -> None:
    either = first_of("gpu", alternative("two", count=2), alternative("one", count=1))
    pairs = [on(name, *devices("gpu-0", "gpu-1")) for name in ("node-1", "node-2")]
    tight = cluster(device_limit(1), requests=[either], slices=pairs)

    assert ["node-1", "node-2"] == names(find_nodes(pod("gpu"), tight))
    assert ["gpu-0"] == placed(place(pod("gpu"), "node-1", tight))


def test_shares_count_what_they_consume() -> None:
    """30Gi and 30Gi are too much; 30Gi and then 20Gi are not."""
    shared = device("gpu-0", shared=True, capacity={"memory": "80Gi"})
    sizes = [alternative(f"of-{size}", capacity={"memory": f"{size}Gi"}) for size in (30, 20)]
    tight = cluster(
        capacity_limit("memory", "50Gi"),
        requests=[first_of("a", *sizes), first_of("b", *sizes)],
        slices=(on("node-1", shared), on("node-2")),
    )

    placement = place(pod("gpu"), "node-1", tight)

    assert isinstance(placement, Placement)
    ((_, allocation),) = placement.allocations
    assert ["a/of-30", "b/of-20"] == [
        result_.request for result_ in allocation.devices.results or ()
    ]


def test_a_claim_counts_once_whatever_it_has() -> None:
    two = request(count=2)
    pairs = [on(name, *devices("gpu-0", "gpu-1")) for name in ("node-1", "node-2")]

    assert isinstance(
        find_nodes(pod("gpu"), cluster(claim_limit(1), requests=[two], slices=pairs)), Fits
    )
    beside = cluster(claim_limit(1), held=[claim(request(), name="more")], slices=pairs)
    assert rejected(find_nodes(pod("gpu", "more"), beside)).code is Code.EXCEEDS_DEVICE_QUOTA


def test_a_smaller_partition_is_taken_for_a_counter() -> None:
    partitions = [device(f"of-{slices}", consumes("card", slices=slices)) for slices in (4, 2)]
    card = counter_set("card", slices=7)
    tight = cluster(
        counter_limit("slices", 3),
        slices=(
            slice_of(*partitions, pool="node-1", node="node-1", count=2),
            slice_of(name="counters", pool="node-1", node="node-1", count=2, counters=[card]),
            on("node-2"),
        ),
    )

    assert ["of-2"] == placed(place(pod("gpu"), "node-1", tight))


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        pytest.param(
            capacity_limit("memory", "200Gi", per_request="30Gi"),
            "DeviceQuota team, limit memory: 40Gi of memory for a request, at most 30Gi of memory allowed",
            id="a request",
        ),
        pytest.param(
            capacity_limit("memory", "200Gi", per_device="30Gi"),
            "DeviceQuota team, limit memory: 40Gi of memory for a device, at most 30Gi of memory allowed",
            id="a device",
        ),
    ],
)
def test_a_cap_is_final(limit: QuotaLimit, message: str) -> None:
    low = pod("held", name="low", priority=0, nodeName="node-1")
    held = used_by(allocated_claim(result("large", pool="node-1"), name="held"), "uid-low")
    capped = cluster(limit, held=[held], pods=[low])

    rejection = rejected(find_nodes(pod("gpu", priority=10), capped))

    assert (rejection.verdict, rejection.code) == (
        Verdict.UNRESOLVABLE,
        Code.EXCEEDS_PER_REQUEST_QUOTA,
    )
    assert rejection.message == message


def test_an_alternative_within_the_cap_waits_for_a_release() -> None:
    either = first_of("gpu", alternative("two", count=2), alternative("one", count=1))
    held = allocated_claim(result("gpu-0", pool="node-1"), name="held")
    full = cluster(
        device_limit(1, per_request="1"),
        requests=[either],
        held=[used_by(held, "uid-low")],
        slices=[on(name, *devices("gpu-0", "gpu-1")) for name in ("node-1", "node-2")],
        pods=[pod("held", name="low", nodeName="node-1")],
    )

    rejection = rejected(find_nodes(pod("gpu", priority=10), full))

    assert (rejection.verdict, rejection.code) == (
        Verdict.UNSCHEDULABLE,
        Code.EXCEEDS_DEVICE_QUOTA,
    )
    assert rejection.message == (
        "DeviceQuota team, limit devices: 1 device needed, 0 of 1 device left"
    )
    assert placed(dry_run(10, full, "uid-low")) == ["gpu-0"]


def test_a_device_within_the_cap_is_taken() -> None:
    capped = cluster(
        capacity_limit("memory", "200Gi", per_device="40Gi"),
        slices=(on("node-1", LARGE, SMALL), on("node-2")),
    )

    assert ["small"] == placed(place(pod("gpu"), "node-1", capped))


def test_a_shared_claim_is_charged_once() -> None:
    held = used_by(allocated_claim(result("small", pool="node-2"), name="shared"), "uid-other")
    full = cluster(claim_limit(1), held=[held])

    assert isinstance(find_nodes(pod("shared"), full), Fits)
    assert rejected(find_nodes(pod("gpu"), full)).code is Code.EXCEEDS_DEVICE_QUOTA


def test_audit_keeps_nobody_back() -> None:
    reported = cluster(quotas=[quota(device_limit(0), enforcement=QuotaEnforcement.AUDIT)])

    assert ["node-1", "node-2"] == names(find_nodes(pod("gpu"), reported))


def test_limits_of_drivers_that_are_not_owned_are_decided_elsewhere() -> None:
    other = cluster(device_limit(0, driver="nic.example.com"))

    assert ["node-1", "node-2"] == names(find_nodes(pod("gpu"), other))


def test_all_quotas_hold() -> None:
    quotas = [quota(device_limit(9), name="wide"), quota(device_limit(0), name="narrow")]

    rejection = rejected(find_nodes(pod("gpu"), cluster(quotas=quotas)))

    assert rejection.message.startswith("DeviceQuota narrow, limit devices: 1 device needed")


def test_a_pod_of_an_unknown_namespace_is_tried_again() -> None:
    limited = snapshot(claim(request(), name="gpu"), quotas=[quota(device_limit(9))], namespaces={})

    rejection = rejected(find_nodes(pod("gpu"), limited))

    assert (rejection.verdict, rejection.code) == (Verdict.ERROR, Code.NAMESPACE_UNKNOWN)
    without_claims = pod()
    assert isinstance(find_nodes(without_claims, limited), NoDevicesNeeded)


def test_nodes_that_are_not_searched_do_not_fit_and_may_fit_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(affordable_nodes, "MAX_OWN_SEARCHES", 1)
    nodes = [f"node-{number}" for number in range(3)]
    mixed = snapshot(
        claim(request(), name="gpu"),
        nodes=list(map(node, nodes)),
        slices=[on(name, LARGE, SMALL) for name in nodes],
        quotas=[quota(capacity_limit("memory", "40Gi"))],
    )

    outcome = find_nodes(pod("gpu"), mixed)

    assert ["node-0"] == names(outcome)
    assert isinstance(outcome, Fits)
    assert not outcome.complete


@pytest.mark.parametrize("seed", range(60))
def test_a_node_fits_if_some_choice_of_devices_keeps_within_the_budget(seed: int) -> None:
    """The oracle tries all of them."""
    random = Random(seed)
    sizes = [random.choice((10, 20, 40, 80)) for _ in range(random.randint(1, 5))]
    counts = [
        [random.randint(1, 2) for _ in range(random.randint(1, 2))]
        for _ in range(random.randint(1, 2))
    ]
    most, largest = random.choice((30, 60, 100)), random.choice((20, 80))
    everything = cluster(
        capacity_limit("memory", f"{most}Gi", per_device=f"{largest}Gi"),
        requests=[
            first_of(
                f"r{place_}",
                *(
                    alternative(f"a{number}", count=count)
                    for number, count in enumerate(of_request)
                ),
            )
            for place_, of_request in enumerate(counts)
        ],
        slices=(
            on(
                "node-1",
                *(
                    device(f"gpu-{number}", capacity={"memory": f"{size}Gi"})
                    for number, size in enumerate(sizes)
                ),
            ),
            on("node-2"),
        ),
    )

    is_possible = any(
        sum(chosen) <= most and max(chosen) <= largest
        for count in map(sum, product(*counts))
        for chosen in combinations(sizes, count)
    )

    assert isinstance(find_nodes(pod("gpu"), everything), Fits) is is_possible
    assert isinstance(place(pod("gpu"), "node-1", everything), Placement) is is_possible


def test_a_limit_of_another_driver_costs_no_search_of_single_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plan of the class takes none of its devices, so it is the plan of all nodes."""
    monkeypatch.setattr(affordable_nodes, "MAX_OWN_SEARCHES", 0)
    nic = "nic.example.com"
    slices = [
        slice_of(
            device("nic-0", capacity={"memory": f"{size}Gi"}), driver=nic, pool=name, node=name
        )
        for name, size in (("node-1", 1), ("node-2", 2))
    ]
    other = snapshot(
        claim(request(), name="gpu"),
        slices=[*(on(name, SMALL) for name in ("node-1", "node-2")), *slices],
        classes=[device_class("gpu", f'device.driver == "{DRIVER}"')],
        drivers=(DRIVER, nic),
        quotas=[
            quota(capacity_limit("memory", "40Gi"), capacity_limit("memory", 0, "nics", driver=nic))
        ],
    )

    assert ["node-1", "node-2"] == names(find_nodes(pod("gpu"), other))


AMPLE: dict[str, tuple[str | int, str | int]] = {
    "memory": ("80Gi", "79Gi"),
    "two of them": ("160Gi", "159Gi"),
    "per request": ("160Gi", "159Gi"),
    "per device": ("80Gi", "79Gi"),
    "all devices": (32, 31),
    "all claims": (1, 0),
    "the largest alternative": (2, 1),
}
"""Requests, each with the least amount that is enough for any devices, and an amount that is not."""


def limit_for(case: str, amount: str | int) -> QuotaLimit:
    match case:
        case "per request":
            return capacity_limit("memory", "999Gi", per_request=str(amount))
        case "per device":
            return capacity_limit("memory", "999Gi", per_device=str(amount))
        case "all claims":
            return claim_limit(amount)
        case "all devices" | "the largest alternative":
            return device_limit(amount)
        case _:
            return capacity_limit("memory", amount)


@pytest.mark.parametrize("is_enough", [True, False])
@pytest.mark.parametrize("case", AMPLE)
def test_a_tenant_far_below_its_limits_is_charged_for_no_node(
    case: str, *, is_enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the shortcut each node is searched by itself, since its cards differ; here none may be."""
    monkeypatch.setattr(affordable_nodes, "MAX_OWN_SEARCHES", 0)
    requests = {
        "two of them": [request(count=2)],
        "per request": [request(count=2)],
        "all devices": [request(count=None)],
        "the largest alternative": [
            first_of("gpu", alternative("two", count=2), alternative("one", count=1))
        ],
    }.get(case, [request()])
    # A node's own plan is known to be within the budget only where its cards are charged alike.
    mixed = [on(name, LARGE, SMALL) for name in ("node-1", "node-2")]
    other = capacity_limit("memory", "9999Gi", "mixed")
    enough, too_little = AMPLE[case]
    limit = limit_for(case, enough if is_enough else too_little)

    outcome = find_nodes(pod("gpu"), cluster(limit, other, requests=requests, slices=mixed))

    assert isinstance(outcome, Fits) is is_enough


def test_a_closed_limit_is_never_far_away() -> None:
    closed = device_limit(99, where="device.attributes[")

    assert rejected(find_nodes(pod("gpu"), cluster(closed))).code is Code.EXCEEDS_DEVICE_QUOTA


# --- preemption -----------------------------------------------------------------------------------


def tenants(priority: int, *, namespace: str) -> Snapshot:
    """One of the two devices on node-1 is used by `low`, and its tenant has no further one."""
    low = pod("held", name="low", priority=priority, namespace=namespace, nodeName="node-1")
    held = allocated_claim(result("gpu-0", pool="node-1"), name="held", namespace=namespace)
    pairs = [on(name, *devices("gpu-0", "gpu-1")) for name in ("node-1", "node-2")]
    return cluster(
        quotas=[quota(device_limit(1 if namespace != "other" else 0), labels=LABEL)],
        held=[used_by(held, "uid-low")],
        slices=pairs,
        pods=[low],
        same=LABEL,
        other={},
    )


def dry_run(priority: int, everything: Snapshot, *without: str) -> Placement | Rejection:
    return fits_with(
        pod("gpu", priority=priority),
        "node-1",
        everything,
        removed_pods=without,
        added_pods=(),
        dry_run=DryRunBudget(),
    )


@pytest.mark.parametrize("namespace", ["default", "same"])
def test_a_victim_of_the_tenant_frees_its_budget(namespace: str) -> None:
    everything = tenants(0, namespace=namespace)

    rejection = rejected(find_nodes(pod("gpu", priority=10), everything))

    assert (rejection.verdict, rejection.code) == (
        Verdict.UNSCHEDULABLE,
        Code.EXCEEDS_DEVICE_QUOTA,
    )
    assert rejected(dry_run(10, everything)).code is Code.EXCEEDS_DEVICE_QUOTA
    assert placed(dry_run(10, everything, "uid-low")) == ["gpu-0"]


def test_a_pod_of_another_tenant_is_no_victim() -> None:
    everything = tenants(0, namespace="other")

    assert rejected(find_nodes(pod("gpu", priority=10), everything)).verdict is Verdict.UNRESOLVABLE
    assert rejected(dry_run(10, everything, "uid-low")).code is Code.EXCEEDS_DEVICE_QUOTA


def test_nor_is_one_of_equal_priority() -> None:
    everything = tenants(10, namespace="same")

    assert rejected(find_nodes(pod("gpu", priority=10), everything)).verdict is Verdict.UNRESOLVABLE


def test_what_a_victim_frees_is_kept_for_the_pod_that_evicted_it() -> None:
    """A later pod of the tenant finds free devices, and one unit that is not for it."""
    pairs = [on(name, *devices("gpu-0", "gpu-1")) for name in ("node-1", "node-2")]
    rival = pod("other", name="rival", priority=10, nominated="node-1")
    everything = cluster(
        device_limit(1), held=[claim(request(), name="other")], slices=pairs, pods=[rival]
    )

    assert rejected(find_nodes(pod("gpu"), everything)).code is Code.EXCEEDS_DEVICE_QUOTA
    assert isinstance(find_nodes(pod("gpu", priority=20), everything), Fits)


# --- waking ---------------------------------------------------------------------------------------


def waiting(*namespaces: str) -> list[WaitingPod]:
    return [
        WaitingPod(pod(f"gpu-{number}", name=f"p-{number}", namespace=namespace), number)
        for number, namespace in enumerate(namespaces)
    ]


def woken(quotas: Sequence[DeviceQuota], *namespaces: str, free: int = 8) -> list[str]:
    pods = waiting(*namespaces)
    everything = snapshot(
        *(
            claim(request(), name=f"gpu-{entry.number}", namespace=entry.pod.metadata.namespace)
            for entry in pods
        ),
        nodes=[node("node-1"), node("node-2")],
        slices=[
            on(name, *devices(*(f"gpu-{number}" for number in range(free))))
            for name in ("node-1", "node-2")
        ],
        quotas=quotas,
        namespaces={"x": LABEL, "y": LABEL, "z": {}},
    )
    return [pod_.metadata.name for pod_ in find_placeable(pods, everything).pods]


def test_one_unit_wakes_one_pod_of_the_tenant() -> None:
    limited = [quota(device_limit(1), labels=LABEL)]

    assert ["p-0"] == woken(limited, "x", "x", "y", "x")
    assert ["p-0", "p-2"] == woken(limited, "x", "y", "z", "x")


def test_namespaces_with_amounts_of_their_own_wake_one_each() -> None:
    limited = [quota(device_limit(1), labels=LABEL, budget=Budget.PER_NAMESPACE)]

    assert ["p-0", "p-1"] == woken(limited, "x", "y", "x", "y")


def test_hundreds_of_waiting_pods_cost_one_look_at_the_nodes() -> None:
    pods = ["x"] * 200

    assert ["p-0"] == woken([quota(device_limit(1), labels=LABEL)], *pods, free=300)
