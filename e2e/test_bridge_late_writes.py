"""Writes of the sidecar that arrive late, get lost, or are made without an answer.

A proxy stands between one sidecar and the API server. What became of the claims is read in the audit
log.
"""

import signal
from collections.abc import Iterator, Sequence
from typing import Final

import pytest

from e2e import inventory
from e2e.access import Access, Object
from e2e.audit import conflicts, log_length, stored_claims
from e2e.bridge import NEVER_FLUSHED, Bridge, bridged, doubly_held, is_waiting
from e2e.interposer import Interposer, Outcome
from e2e.inventory import EXAMPLE
from e2e.objects import priority_class
from e2e.owned import AUDITED, TEAM, Owned, taker

TIMEOUT_S: Final = 120.0
PRIORITY: Final = "late-important"
PODS: Final = 4

pytestmark = pytest.mark.parametrize("cluster", [AUDITED], indirect=True)


@pytest.fixture
def proxy(owned_bridge: Owned) -> Iterator[Interposer]:
    """The proxy before the sidecar of replica `behind`, the active one; the node has `PODS` devices."""
    cluster, bridge = owned_bridge.cluster, owned_bridge.bridge
    nodes = cluster.add_nodes(
        inventory.kwok_nodes(1, prefix="late"),
        lambda node: inventory.example_gpus(node, gpus=PODS),
    )
    cluster.apply(priority_class(PRIORITY))
    owned_bridge.command("bridge", "own", EXAMPLE, "--apply")
    with Interposer(cluster) as interposer:
        bridge.stop("a")
        interposer.redirect(bridge.replica("behind").folder / "sidecar.kubeconfig")
        bridge.wait_working("behind")
        yield interposer
        interposer.decide(lambda _path: Outcome.PASS)
        for part in {"sidecar-behind", "scheduler-behind"} & cluster.children.keys():
            cluster.children[part].signal(signal.SIGCONT)
        bridge.ensure()
    owned_bridge.clear()
    cluster.delete("priorityclass", PRIORITY)
    cluster.remove_nodes(nodes)


def test_a_write_that_arrives_after_the_lease_has_passed_on_is_refused(
    owned_bridge: Owned, proxy: Interposer
) -> None:
    """The claim's version is still the one that the write was decided on: only the fence can."""
    cluster, bridge = owned_bridge.cluster, owned_bridge.bridge
    began = log_length(cluster)
    proxy.decide(lambda path: Outcome.HOLD if path.endswith("/status") else Outcome.PASS)
    early = [f"early-{number}" for number in range(PODS)]
    owned_bridge.apply(*(bridged(taker(name)) for name in early))
    cluster.wait_until(
        lambda: len(proxy.held()) >= PODS, "an allocation of each pod is held", timeout_s=TIMEOUT_S
    )
    _freeze(bridge, "behind")
    late = [f"late-{number}" for number in range(PODS)]
    owned_bridge.apply(*(bridged(taker(name, priorityClassName=PRIORITY)) for name in late))
    bridge.start("next")
    bridge.wait_working("next")
    owned_bridge.running(*late)
    for name in early:
        cluster.wait_for("pods", name, TEAM, until=is_waiting, timeout_s=TIMEOUT_S)

    writes = proxy.release()

    assert len(writes) >= PODS
    assert [] == [write for write in writes if write.status < 400]
    assert {422, 403} & {write.status for write in writes}, "the fence refused none"
    for part in ("sidecar", "scheduler"):
        bridge.child(part, "behind").signal(signal.SIGCONT)
    cluster.wait_until(
        lambda: (
            bridge.child("sidecar", "behind").exit_status is not None
            and bridge.child("scheduler", "behind").exit_status is not None
        ),
        "the replica that was held ends",
        timeout_s=TIMEOUT_S,
    )
    assert [] == doubly_held(cluster)
    assert [] == conflicts(stored_claims(cluster, began))


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome.LOSE,
        pytest.param(Outcome.MUTE, marks=pytest.mark.long),
        pytest.param(Outcome.HOLD, marks=pytest.mark.long),
    ],
    ids=lambda outcome: outcome.value,
)
def test_a_write_without_an_answer_gives_no_device_twice(
    owned_bridge: Owned, proxy: Interposer, outcome: Outcome
) -> None:
    """It may have been made, may never be, or may be made while the next one is under way."""
    cluster = owned_bridge.cluster
    began, met = log_length(cluster), set[str]()

    def first_of_each(path: str) -> Outcome:
        """Let something happen to the first write of each claim's status."""
        if not path.endswith("/status") or path in met:
            return Outcome.PASS
        met.add(path)
        return outcome

    proxy.decide(first_of_each)
    names = [f"{outcome.value}-{number}" for number in range(PODS)]
    owned_bridge.apply(*(bridged(taker(name)) for name in names))
    cluster.wait_until(
        lambda: proxy.counts[outcome] >= PODS,
        "a write of each claim got no answer",
        timeout_s=TIMEOUT_S,
    )
    if outcome is Outcome.HOLD:
        proxy.release()

    owned_bridge.running(*names)
    assert 'result="unknown"} 0.0' not in owned_bridge.bridge.metrics("behind")
    assert [] == doubly_held(cluster)
    assert [] == conflicts(stored_claims(cluster, began))


@pytest.fixture
def never_flushed(
    owned_bridge: Owned, proxy: Interposer, resources: Sequence[str]
) -> Iterator[Interposer]:
    """The proxy before sidecar and scheduler; the scheduler's timer tries no pod again by itself."""
    name = f"relisting-{'-'.join(resources)}"
    owned_bridge.bridge.stop("behind")
    bridge = Bridge(owned_bridge.cluster, drivers=(), scheduler_flags=(NEVER_FLUSHED,))
    for part in ("sidecar", "scheduler"):
        proxy.redirect(bridge.replica(name).folder / f"{part}.kubeconfig")
    bridge.wait_working(name)
    yield proxy
    bridge.stop(name)


@pytest.mark.parametrize(
    "resources",
    [
        pytest.param(("resourceclaims",), id="resourceclaims"),
        pytest.param(
            ("resourceclaims", "pods"), id="resourceclaims-and-pods", marks=pytest.mark.long
        ),
    ],
)
def test_a_relist_that_hides_a_release_leaves_nobody_asleep(
    owned_bridge: Owned, never_flushed: Interposer, resources: Sequence[str]
) -> None:
    """Neither sidecar nor scheduler sees devices given back: they list again when it is over.

    Where the ends of pods are missed, too, the sidecar takes them for deleted by force, and holds their
    devices back for half a minute.
    """
    cluster = owned_bridge.cluster
    first = [f"first-{number}-{len(resources)}" for number in range(PODS)]
    second = [f"second-{number}-{len(resources)}" for number in range(PODS)]
    owned_bridge.apply(*(bridged(taker(name)) for name in first))
    owned_bridge.running(*first)
    owned_bridge.apply(*(bridged(taker(name)) for name in second))
    for name in second:
        owned_bridge.waiting(name)

    never_flushed.withhold_watches(*resources)
    cluster.kubectl("delete", "pods", *first, "-n", TEAM, "--wait=false")
    cluster.wait_until(
        lambda: not _allocated(cluster), "all devices are given back", timeout_s=TIMEOUT_S
    )
    pods = {pod["metadata"]["name"]: pod for pod in cluster.objects("pods", TEAM)}
    assert [] == [name for name in second if "nodeName" in pods[name]["spec"]]
    never_flushed.expire_watches()

    for name in second:
        cluster.wait_running(name, TEAM, timeout_s=TIMEOUT_S)
    assert [] == doubly_held(cluster)


def _allocated(cluster: Access) -> list[Object]:
    claims = cluster.objects("resourceclaims", TEAM)
    return [claim for claim in claims if "allocation" in claim.get("status", {})]


def _freeze(bridge: Bridge, name: str) -> None:
    for part in ("scheduler", "sidecar"):
        bridge.child(part, name).signal(signal.SIGSTOP)
