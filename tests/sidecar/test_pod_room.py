"""The kinds of pods that the sidecar learns: the pods that count, by their selectors, and once each."""

from collections.abc import Sequence

from msgspec.structs import replace

from allocator.strategies.capacity_weights import CapacityWeights
from kube.api.core import Pod
from kube.api.meta import OwnerReference
from kube.api.resource import ResourceClaim
from kube.cel.scope import Meter, evaluating
from kube.quantity import Quantity
from sidecar.model.protocol import ResourceRequests
from sidecar.model.settings import UsualPod
from sidecar.plan.snapshot import Snapshot
from sidecar.state.pod_room import PodRoom
from testing.allocation.builders import claim, device_class, request
from testing.sidecar.snapshots import pod, snapshot

MODEL = 'device.attributes["gpu.example.com"].model == "A100"'
OWN = "device.driver != 'other.example.com'"


def learnt(known: PodRoom) -> dict[int, int]:
    return {kind.cpu_milli: kind.weight for kind in known.kinds}


def learn(known: PodRoom, pod_: Pod, cluster: Snapshot, cpus: int = 1) -> None:
    known.learn(pod_, cluster, requests=ResourceRequests(cpu_milli=cpus), at_s=0.0)


def cluster_of(*claims: ResourceClaim, pods: Sequence[Pod] = ()) -> Snapshot:
    return snapshot(*claims, classes=(device_class("gpu", OWN),), pods=pods)


def test_selectors_of_claims_do_not_count_for_the_usual_pods() -> None:
    """Each pod with ranked nodes would pay for evaluating them."""
    known = PodRoom()
    learn(known, pod("gpu"), cluster_of(claim(request("r", MODEL), name="gpu")))
    (kind,) = known.kinds
    assert [demand.selectors for demand in kind.demands] == [(OWN,)]


def test_a_pod_counts_once_however_often_it_is_tried() -> None:
    known, cluster = PodRoom(), cluster_of(claim(request(), name="gpu"))
    for _ in range(3):
        learn(known, pod("gpu", name="a"), cluster, 1)
    learn(known, pod("gpu", name="b"), cluster, 2)
    assert learnt(known) == {1: 500, 2: 500}


def test_the_pods_of_one_owner_count_together() -> None:
    known, cluster = PodRoom(), cluster_of(claim(request(), name="gpu"))
    owners = (OwnerReference(uid="job", controller=True),)
    for number in range(7):
        pod_ = pod("gpu", name=f"of-job-{number}")
        pod_ = replace(pod_, metadata=replace(pod_.metadata, owner_references=owners))
        learn(known, pod_, cluster, 1)
    other = pod("gpu", name="other")
    single = (OwnerReference(uid="another", controller=True),)
    other = replace(other, metadata=replace(other.metadata, owner_references=single))
    learn(known, other, cluster, 2)
    assert learnt(known) == {1: 500, 2: 500}


def test_what_cannot_be_resolved_counts_for_nothing() -> None:
    known = PodRoom()
    learn(known, pod("gpu"), snapshot(claim(request(), name="gpu"), classes=()))
    learn(known, pod("missing", name="b"), cluster_of())
    assert known.kinds == ()


def test_kinds_wait_for_their_selectors() -> None:
    """Expressions to be compiled first are no reason for a pod to wait."""
    known = PodRoom()
    fresh = device_class("gpu", "device.driver != 'nobody-compiled-this'")
    cluster = snapshot(claim(request(), name="gpu"), classes=(fresh,))
    with evaluating(meter=Meter(0)):
        learn(known, pod("gpu"), cluster)
    assert known.kinds == ()
    learn(known, pod("gpu", name="b"), cluster, 1)
    assert learnt(known) == {1: 1000}


def test_after_a_failover_the_latest_pods_in_the_cluster_count() -> None:
    pods = [
        replace(
            pod("gpu", name=f"p-{number}", resources={"requests": {"cpu": number % 2 + 1}}),
            metadata=replace(
                pod(name=f"p-{number}").metadata,
                creation_timestamp=f"2026-11-21T{number // 60:02}:{number % 60:02}:00Z",
            ),
        )
        for number in range(32)
    ]
    known = PodRoom()
    known.relearn(cluster_of(claim(request(), name="gpu"), pods=pods), now_s=0.0)
    # Later ones weigh a little more.
    assert set(learnt(known)) == {1000, 2000}


def test_weights_of_capacities_make_another_strategy_of_the_same_kinds() -> None:
    known, cluster = PodRoom(), cluster_of(claim(request(), name="gpu"))
    learn(known, pod("gpu"), cluster)
    weights = CapacityWeights((("gpu.example.com", (("memory", 2),)),))
    first, second = known.view(cluster.cluster), known.view(cluster.cluster, weights)
    assert first.strategy.kinds == second.strategy.kinds == known.kinds
    assert second.strategy.weights == weights
    assert second.orders is not first.orders


def test_kinds_of_the_settings_are_taken_and_none_is_learnt() -> None:
    usual = (
        UsualPod(device_class="gpu", cpu="500m", memory="1Gi", weight=3),
        UsualPod(device_class="gpu", count=2, capacity={"memory": "20Gi"}),
        UsualPod(device_class="later"),
    )
    known, cluster = PodRoom(usual), cluster_of(claim(request(), name="gpu"))

    learn(known, pod("gpu"), cluster, 7)
    without_later, first_hash = known.kinds, known.kinds_hash
    both = replace(cluster, classes={**cluster.classes, "later": device_class("later", MODEL)})
    known.relearn(both, 0.0)

    assert [(kind.cpu_milli, kind.memory, kind.weight) for kind in without_later] == [
        (500, 1 << 30, 600),
        (0, 0, 200),
    ]
    (shared,) = without_later[1].demands
    assert (shared.selectors, shared.count) == ((OWN,), 2)
    assert shared.amounts == (("memory", Quantity("20Gi")),)
    assert [demand.selectors for kind in known.kinds for demand in kind.demands][2:] == [(MODEL,)]
    assert len({"", first_hash, known.kinds_hash}) == 3
