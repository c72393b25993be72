"""The namespaces that get no further devices for held ones, and the words of the status."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from kube.api.core import Node, NodeSpec, Taint
from kube.api.meta import ObjectMeta
from kube.api.ownership import MAX_HELD_BACK, AllocatorOwnership, HeldBackClaim, HeldBackDevice
from kube.api.resource import CounterSet, DeviceCounterConsumption, ResourceSlice
from sidecar.ownership.fence import Fence, FenceState
from sidecar.ownership.held_back import count_devices, exhausted_namespaces
from sidecar.ownership.ownership_status import Report, ownership_status
from sidecar.state.held_parts import HeldParts
from testing.allocation.builders import DRIVER, device, devices, slice_of

PARTITION = DeviceCounterConsumption(counter_set="card", counters={})


def held(namespace: str, *names: str, pod: str = "a", node: str = "node-1") -> HeldBackClaim:
    return HeldBackClaim(
        claim_uid=f"uid-{pod}",
        namespace=namespace,
        pod=pod,
        pod_uid=f"uid-{pod}",
        node=node,
        until="2026-11-21T00:05:00Z",
        devices=tuple(HeldBackDevice(driver=DRIVER, pool="node-1", device=name) for name in names),
    )


def node(name: str, *taints: str) -> Node:
    spec = NodeSpec(taints=tuple(Taint(key=key, effect="NoExecute") for key in taints))
    return Node(metadata=ObjectMeta(name=name), spec=spec)


NODES = {
    "node-1": node("node-1"),
    "lost": node("lost", "node.kubernetes.io/unreachable"),
}
GPUS = tuple(f"gpu-{number}" for number in range(100))


def whole(count: int) -> tuple[ResourceSlice, ...]:
    return (slice_of(*devices(*GPUS[:count]), node="node-1", pool="node-1"),)


PARTITIONED = (
    slice_of(
        *(device(name, PARTITION) for name in GPUS[:28]),
        node="node-1",
        pool="node-1",
        counters=tuple(CounterSet(name=f"card-{card}", counters={}) for card in range(4)),
    ),
)


@pytest.mark.parametrize(
    ("want", "held_claims", "slices"),
    [
        pytest.param(set(), [], whole(4), id="nothing is held back"),
        pytest.param({"evil"}, [held("evil", "gpu-0")], whole(1), id="one of one"),
        pytest.param({"evil"}, [held("evil", "gpu-0")], whole(4), id="a fourth"),
        pytest.param(set(), [held("evil", "gpu-0")], whole(8), id="less than a fourth"),
        pytest.param({"evil"}, [held("evil", *GPUS[:8])], whole(100), id="as many as are set"),
        pytest.param(set(), [held("evil", *GPUS[:7])], whole(100), id="fewer than are set"),
        pytest.param(
            {"evil"},
            [held("evil", "gpu-0"), held("evil", "gpu-1", pod="b"), held("honest", "gpu-2")],
            whole(8),
            id="each namespace for itself",
        ),
        pytest.param(
            set(),
            [held("evil", "gpu-0"), held("evil", "gpu-0", pod="b")],
            whole(8),
            id="two pods of one claim",
        ),
        pytest.param(
            {"evil"},
            [held("evil", "gpu-0", pod=f"{number}") for number in range(256)],
            whole(100),
            id="256 shares of one device",
        ),
        pytest.param(
            set(),
            [held("evil", "gpu-0", pod=f"{number}") for number in range(255)],
            whole(100),
            id="255 shares of one device",
        ),
        pytest.param(
            set(),
            [
                replace(held("evil", "gpu-0", pod=f"{number}"), claim_uid="a")
                for number in range(256)
            ],
            whole(100),
            id="256 pods of one claim",
        ),
        pytest.param(set(), [held("evil", "gpu-0", node="lost")], whole(4), id="a lost node"),
        pytest.param(
            set(), [held("evil", "gpu-0", node="gone")], whole(4), id="a node that is gone"
        ),
        pytest.param({"evil"}, [held("evil", "gpu-0")], PARTITIONED, id="28 partitions of 4 cards"),
        pytest.param(set(), [held("evil", "gpu-0")], (), id="a driver that publishes nothing"),
    ],
)
def test_namespaces_whose_pods_wait(
    want: set[str], held_claims: Sequence[HeldBackClaim], slices: Sequence[ResourceSlice]
) -> None:
    parts = HeldParts()
    for held_claim in held_claims:
        parts.put(held_claim)

    assert want == exhausted_namespaces(
        parts.shares.items(), count_devices(slices), NODES, most_devices=8
    )


def test_the_status_has_a_share_for_each_namespace() -> None:
    """A namespace with many pods that were deleted by force displaces no other's from the status."""
    flood = [
        replace(held("evil", "gpu-0", pod=f"pod-{number}"), until="2026-11-21T00:09:00Z")
        for number in range(2 * MAX_HELD_BACK)
    ]
    others = [held("honest", "gpu-1", pod="b"), held("team", "gpu-2", pod="c")]
    report = Report("a", "", Fence(state=FenceState.MISSING), {}, [*others, *flood])

    status = ownership_status(AllocatorOwnership(), report, datetime(2026, 11, 21, tzinfo=UTC))

    reported = status.held_back or ()
    assert len(reported) == MAX_HELD_BACK
    assert [claim for claim in reported if claim.namespace != "evil"] == others
    assert list(reported) == sorted(reported, key=lambda claim: (claim.until, claim.claim_uid))
