"""A dry run of preemption beside pods that are nominated for other nodes while their victims end."""

from collections.abc import Sequence

import pytest

from kube.api.core import Pod
from kube.api.resource import ResourceClaim, ResourceSlice
from sidecar.model.rejections import Code, Rejection
from sidecar.plan.decisions import find_nodes
from sidecar.plan.preemption import DryRunBudget, fits_with
from sidecar.plan.snapshot import Snapshot
from testing.allocation.builders import allocated_claim, claim, devices, request, result, slice_of
from testing.device_quotas import device_limit, quota
from testing.sidecar.snapshots import pod, snapshot, used_by

FIRST = pod("first", name="first", priority=100, nominated="node-1")
"""It needs one device, and others were evicted for it on node-1."""
SECOND = pod("second", name="second", priority=100)
"""It needs one device, too."""
ENDING = pod("of-ending", name="ending", nodeName="node-1", is_deleted=True)
VICTIM = pod("of-victim", name="victim", nodeName="node-2")


def using(pod_: Pod, *names: str) -> ResourceClaim:
    """The claim of a pod, with devices such as `node-1/gpu-0`."""
    results = [result(device, pool=pool) for pool, device in (name.split("/") for name in names)]
    claim_name = f"of-{pod_.metadata.name}"
    return used_by(allocated_claim(*results, name=claim_name), pod_.metadata.uid)


def with_budget(
    most: int, *claims: ResourceClaim, pods: Sequence[Pod] = (ENDING, VICTIM, FIRST)
) -> Snapshot:
    """Two nodes with four devices each, and a budget of so many."""
    gpus = devices(*(f"gpu-{number}" for number in range(4)))
    slices = [slice_of(*gpus, pool=name, node=name) for name in ("node-1", "node-2")]
    return _snapshot(slices, *claims, pods=pods, most=most)


def with_pool(
    names: str, *claims: ResourceClaim, pods: Sequence[Pod] = (ENDING, VICTIM, FIRST)
) -> Snapshot:
    """Two nodes that see the same devices."""
    slices = [slice_of(*devices(*names), all_nodes=True, pool="fabric")]
    return _snapshot(slices, *claims, pods=pods, most=None)


def _snapshot(
    slices: Sequence[ResourceSlice], *claims: ResourceClaim, pods: Sequence[Pod], most: int | None
) -> Snapshot:
    return snapshot(
        *claims,
        claim(request(), name="first"),
        claim(request(), name="second"),
        slices=slices,
        quotas=[] if most is None else [quota(device_limit(most))],
        pods=pods,
    )


def dry_run(
    cluster: Snapshot,
    *victims: Pod,
    beside: Sequence[Pod] = (),
    attempt: DryRunBudget | None = None,
) -> Code | None:
    """Return the code of the rejection of the second pod on node-2 without some pods; None if it fits."""
    outcome = fits_with(
        SECOND,
        "node-2",
        cluster,
        removed_pods=[victim.metadata.uid for victim in victims],
        added_pods=[added.metadata.uid for added in beside],
        dry_run=attempt or DryRunBudget(),
    )
    return outcome.code if isinstance(outcome, Rejection) else None


BOTH_IN_USE = [
    pytest.param(
        with_budget(2, using(ENDING, "node-1/gpu-0"), using(VICTIM, "node-2/gpu-0")),
        Code.EXCEEDS_DEVICE_QUOTA,
        id="a budget",
    ),
    pytest.param(
        with_pool("de", using(ENDING, "fabric/d"), using(VICTIM, "fabric/e")),
        Code.NO_DEVICES,
        id="a pool",
    ),
]
LARGE_VICTIM = [
    pytest.param(
        with_budget(
            3, using(ENDING, "node-1/gpu-0", "node-1/gpu-1"), using(VICTIM, "node-2/gpu-0")
        ),
        with_budget(3, using(VICTIM, "node-2/gpu-0"), pods=[VICTIM, FIRST]),
        Code.EXCEEDS_DEVICE_QUOTA,
        id="a budget",
    ),
    pytest.param(
        with_pool("def", using(ENDING, "fabric/d", "fabric/f"), using(VICTIM, "fabric/e")),
        with_pool("def", using(VICTIM, "fabric/e"), pods=[VICTIM, FIRST]),
        Code.NO_DEVICES,
        id="a pool",
    ),
]


@pytest.mark.parametrize(("cluster", "code"), BOTH_IN_USE)
def test_victims_of_several_pods_are_evicted_at_the_same_time(
    cluster: Snapshot, code: Code
) -> None:
    """The first pod gets the device of its own victim, and the second one that of a further victim."""
    attempt = DryRunBudget()

    assert dry_run(cluster, VICTIM, attempt=attempt) is None
    assert dry_run(cluster, attempt=attempt) is code, "its victim is not spared"


@pytest.mark.parametrize(("cluster", "later", "code"), LARGE_VICTIM)
def test_nobody_is_evicted_if_the_victims_of_a_nominated_pod_leave_enough_for_another(
    cluster: Snapshot, later: Snapshot, code: Code
) -> None:
    """The scheduler spares all victims on the node and nominates no pod for it: this one waits for the release."""
    attempt = DryRunBudget()

    assert dry_run(cluster, VICTIM, attempt=attempt) is None
    assert dry_run(cluster, attempt=attempt) is None, "its victim is spared"
    assert dry_run(cluster) is code, "without victims in an attempt, a place of now is meant"
    assert isinstance(find_nodes(SECOND, cluster), Rejection)
    assert not isinstance(find_nodes(SECOND, later), Rejection), (
        "it gets its place after the release"
    )


@pytest.mark.parametrize(
    ("cluster", "code"),
    [
        pytest.param(
            with_budget(
                2,
                using(pod(name="other"), "node-1/gpu-0"),
                using(VICTIM, "node-2/gpu-0"),
                pods=[pod("of-other", name="other", nodeName="node-1"), VICTIM, FIRST],
            ),
            Code.EXCEEDS_DEVICE_QUOTA,
            id="a budget",
        ),
        pytest.param(
            with_pool(
                "de",
                using(pod(name="other"), "fabric/d"),
                using(VICTIM, "fabric/e"),
                pods=[pod("of-other", name="other", nodeName="node-1"), VICTIM, FIRST],
            ),
            Code.NO_DEVICES,
            id="a pool",
        ),
    ],
)
def test_a_nominated_pod_that_nothing_ends_for_takes_what_a_further_victim_leaves(
    cluster: Snapshot, code: Code
) -> None:
    assert dry_run(cluster, VICTIM) is code


@pytest.mark.parametrize("node", ["node-2", "node-1"])
def test_a_more_important_pod_that_waits_for_the_victim_chooses_before_a_less_important_one(
    node: str,
) -> None:
    """It takes the device that is free and that of the victim, so that none is left for the second pod."""
    more_important = pod("two", name="important", priority=200, nominated=node)
    other = pod("of-other", name="other", nodeName="node-1")
    cluster = with_budget(
        3,
        using(other, "node-1/gpu-0"),
        using(VICTIM, "node-2/gpu-0"),
        claim(request(count=2), name="two"),
        pods=[other, VICTIM, FIRST, more_important],
    )
    beside = [more_important] if node == "node-2" else []

    assert dry_run(cluster, VICTIM, beside=beside) is Code.EXCEEDS_DEVICE_QUOTA
