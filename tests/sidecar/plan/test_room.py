"""The nodes of an answer if FragmentationAware knows the resources left on nodes."""

from typing import Any

from msgspec.structs import replace

from allocator.cluster.preference import start_of
from allocator.cluster.ranking import Limits
from allocator.cluster.verdicts import NodePlans
from allocator.nodes.headroom import Headroom
from allocator.nodes.node_changes import NodeChanges
from allocator.strategies.fragmentation_aware import FragmentationAware
from allocator.strategies.pod_kinds import DeviceDemand, PodKind
from kube.cel.scope import Meter, evaluating
from kube.names import STRATEGY_ANNOTATION
from sidecar.model.protocol import MAX_NODES, HeadroomChanges, NodeHeadroom, ResourceRequests
from sidecar.plan.decisions import Fits, find_nodes
from sidecar.plan.room import LossOrders, Room
from sidecar.plan.snapshot import Snapshot
from sidecar.state.pod_room import PodRoom
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    alternative,
    claim,
    device,
    first_of,
    node,
    request,
    result,
    slice_of,
)
from testing.sidecar.snapshots import pod, snapshot


def model(name: str) -> str:
    return f'device.attributes["{DRIVER}"].model == "{name}"'


def test_an_earlier_alternative_outweighs_what_the_usual_pods_lose() -> None:
    """On `later` nobody loses a device: the CPU that is left is enough for no usual pod."""
    either = first_of("r", alternative("large", model("A100")), alternative("small", model("T4")))
    names = {"later": "T4", "first": "A100"}
    cluster = snapshot(
        claim(request(), name="usual"),
        claim(either, name="gpu"),
        nodes=[node(name) for name in names],
        slices=[
            slice_of(device("gpu-0", attributes={"model": kind}), pool=name, node=name)
            for name, kind in names.items()
        ],
    )
    known = PodRoom()
    known.learn(pod("usual"), cluster, requests=ResourceRequests(cpu_milli=8000), at_s=0.0)
    left = {"later": 1000, "first": 64_000}
    known.take(
        HeadroomChanges(
            number=1,
            nodes=tuple(
                NodeHeadroom(name=name, cpu_milli=cpu_milli, memory=0, pods=1)
                for name, cpu_milli in left.items()
            ),
        )
    )
    asking = pod("gpu", name="b")
    metadata = replace(asking.metadata, annotations={STRATEGY_ANNOTATION: "FragmentationAware"})

    answer = find_nodes(
        replace(asking, metadata=metadata),
        replace(cluster, room=known.view(cluster.cluster)),
        requests=ResourceRequests(cpu_milli=1000),
    )

    assert isinstance(answer, Fits)
    assert [(entry.name, entry.score) for entry in answer.nodes] == [("first", 100), ("later", 99)]


def test_other_strategies_take_cpu_into_account_in_two_steps() -> None:
    """A usual pod has a GPU and 8 cores; one of 12 cores takes the places of two if CPU is short.

    `short` is the fullest node, and so the best of CompactFirst, as long as CPU does not count.
    """
    gpus = {"empty": 4, "half": 4, "short": 4}
    in_use = {"half": 2, "short": 3}
    cluster = snapshot(
        claim(request(), name="gpu"),
        *(
            allocated_claim(result(f"gpu-{number}", pool=name), name=f"{name}-{number}")
            for name, count in in_use.items()
            for number in range(count)
        ),
        nodes=[node(name) for name in gpus],
        slices=[
            slice_of(*(device(f"gpu-{number}") for number in range(count)), pool=name, node=name)
            for name, count in gpus.items()
        ],
    )
    usual = FragmentationAware(
        (PodKind(demands=(DeviceDemand(),), cpu_milli=8000), PodKind(demands=(DeviceDemand(),)))
    )
    asking = pod("gpu", name="b")
    metadata = replace(asking.metadata, annotations={STRATEGY_ANNOTATION: "CompactFirst"})
    asking = replace(asking, metadata=metadata)

    def answer(cores: dict[str, int]) -> list[tuple[str, int]]:
        left = {name: Headroom(cpu_milli=1000 * count) for name, count in cores.items()}
        orders = LossOrders(usual, cluster.cluster, left, NodeChanges())
        room = Room(headroom=left, strategy=usual, orders=orders)
        nodes = find_nodes(
            asking, replace(cluster, room=room), requests=ResourceRequests(cpu_milli=12_000)
        )
        assert isinstance(nodes, Fits)
        return [(entry.name, entry.score) for entry in nodes.nodes]

    # Everywhere two places are lost: one of each kind.
    assert answer({"empty": 64, "half": 64, "short": 64}) == [
        ("short", 100),
        ("half", 51 + 75 * 49 // 100),
        ("empty", 51 + 25 * 49 // 100),
    ]
    # 16 cores are enough for both GPUs of `half`, and the 4 that are left for none of them.
    assert answer({"empty": 64, "half": 16, "short": 64}) == [
        ("short", 100),
        ("empty", 51 + 25 * 49 // 100),
        ("half", 75 // 2),
    ]


def test_nodes_with_room_come_first_for_a_pod_whose_claim_is_allocated() -> None:
    """It may be used on all nodes; more of them lack CPU than there are in an answer."""
    names = [f"node-{number:03}" for number in range(MAX_NODES + 20)]
    held = allocated_claim(result("gpu-0", pool=names[0]), name="gpu")
    cluster = snapshot(held, nodes=[node(name) for name in names])
    left = {name: Headroom(cpu_milli=64 if name == names[-1] else 0) for name in names}
    cluster = replace(cluster, room=Room(headroom=left))

    answer = find_nodes(pod("gpu"), cluster, requests=ResourceRequests(cpu_milli=1))

    assert isinstance(answer, Fits)
    assert [entry.name for entry in answer.nodes] == [names[-1], *names[: MAX_NODES - 1]]
    assert answer.complete
    blind = find_nodes(pod("gpu"), cluster)
    assert isinstance(blind, Fits)
    assert [entry.name for entry in blind.nodes] == names[:MAX_NODES]
    assert not blind.complete


def test_a_node_whose_loss_is_not_known_comes_after_those_whose_is_and_is_not_left_out() -> None:
    """The selectors of the usual pods are not evaluated on its devices yet."""
    usual = PodKind(demands=(DeviceDemand(selectors=(model("nobody-asked-before"),)),))
    strategy = FragmentationAware((usual,))
    slices = [
        slice_of(device("gpu-0", attributes={"model": name}), pool=name, node=name)
        for name in ("node-1", "node-2")
    ]
    cluster = snapshot(claim(request(), name="gpu"), slices=slices).cluster
    pending = cluster.resolve([claim(request(), name="gpu")])
    left = {"node-1": Headroom(), "node-2": Headroom()}
    orders = LossOrders(strategy, cluster, left, NodeChanges())
    plans = cluster.node_plans(pending)

    with evaluating(meter=Meter(0)):
        unrated = list(orders.order(plans, 0, 0))
    rated = list(orders.order(plans, 0, 0))

    assert [name for name, _ in unrated] == [name for name, _ in rated] == ["node-1", "node-2"]


class CountingOrders(LossOrders):
    """Orders that count the nodes that they rate."""

    rated = 0

    def _loss(self, *args: Any, **amounts: Any) -> int | None:
        self.rated += 1
        return super()._loss(*args, **amounts)


def test_nodes_whose_verdict_is_not_known_are_not_rated_with_every_answer() -> None:
    names = [f"node-{number:02}" for number in range(40)]
    slices = [slice_of(device("gpu-0"), pool=name, node=name) for name in names]
    cluster = snapshot(nodes=[node(name) for name in names], slices=slices).cluster
    usual = FragmentationAware((PodKind(demands=(DeviceDemand(),)),))
    left = {name: Headroom(cpu_milli=1000) for name in names}
    plans = cluster.node_plans(cluster.resolve([claim(request())]))
    # The nodes are assigned to classes over several answers.
    class_of = {name: plans.class_of[name] for name in names[:10]}
    growing_plans = NodePlans(class_of=class_of, verdicts=plans.verdicts)
    orders = CountingOrders(usual, cluster, left, NodeChanges())

    assert {name for name, _ in orders.order(growing_plans, 0, 0)} == set(names[:10])
    orders.rated = 0
    assert {name for name, _ in orders.order(growing_plans, 0, 0)} == set(names[:10])
    assert orders.rated == 0

    class_of.update(plans.class_of)
    at_once = LossOrders(usual, cluster, left, NodeChanges())
    assert list(orders.order(growing_plans, 0, 0)) == list(at_once.order(plans, 0, 0))
    assert orders.rated == 30


def many_models() -> Snapshot:
    """Nodes that are all of another class; every third has no device for the claim."""
    names = [f"node-{number:03}" for number in range(3 * MAX_NODES)]
    return snapshot(
        claim(request("r", f'device.attributes["{DRIVER}"].model != "none"'), name="gpu"),
        nodes=[node(name) for name in names],
        slices=[
            slice_of(
                device("gpu-0", attributes={"model": name if number % 3 else "none"}),
                pool=name,
                node=name,
            )
            for number, name in enumerate(names)
        ],
    )


def test_the_nodes_of_first_fit_depend_on_no_cache() -> None:
    """They are the first hundred from a node on, with any verdicts about them and others known."""
    fresh, warm = many_models(), many_models()
    find_nodes(pod("gpu", name="other"), warm)
    every_node = find_nodes(pod("gpu", name="p"), many_models(), all_nodes=True)
    requests = ResourceRequests(cpu_milli=1)
    shorts = {f"node-{number:03}": Headroom(cpu_milli=0) for number in range(0, 300, 7)}

    answers = [
        find_nodes(pod("gpu", name="p"), replace(cluster, room=Room(headroom=left)), requests=known)
        for left, known in (({}, None), (shorts, requests))
        for cluster in (fresh, warm)
    ]

    assert isinstance(every_node, Fits)
    fitting = [entry.name for entry in every_node.nodes]
    start = start_of("default/p", fresh.cluster.names)
    in_turn = [name for name in fitting if name >= start] + [
        name for name in fitting if name < start
    ]
    with_room = [name for name in in_turn if name not in shorts]
    want = [sorted(names[:MAX_NODES]) for names in (in_turn, in_turn, with_room, with_room)]
    assert [
        [entry.name for entry in answer.nodes] for answer in answers if isinstance(answer, Fits)
    ] == want


def test_first_fit_finds_the_nodes_without_room_where_no_other_fits() -> None:
    """The resources left on nodes may be others by now."""
    cluster = many_models()
    shorts = {name: Headroom(cpu_milli=0) for name in cluster.cluster.names}
    few = Limits(nodes=MAX_NODES, searches=MAX_NODES, steps=1000)
    answer = find_nodes(
        pod("gpu", name="p"),
        replace(cluster, room=Room(headroom=shorts)),
        requests=ResourceRequests(cpu_milli=1),
        limits=few,
    )
    assert isinstance(answer, Fits)
    assert answer.nodes
