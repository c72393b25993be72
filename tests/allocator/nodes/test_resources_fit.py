"""NodeResourcesFit and its scores, row by row.

Source of the rows: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/noderesources, tables of
fit_test.go, least_allocated_test.go, most_allocated_test.go and balanced_allocation_test.go;
k8s.io/component-helpers v0.37.1, resource/helpers_test.go.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.nodes.amounts import ResourceAmounts
from allocator.nodes.pod_requests import PodRequest, pod_request
from allocator.nodes.resource_scores import balanced_allocation, least_allocated, most_allocated
from allocator.nodes.resources_fit import has_resources, insufficient_resources, most_equal_pods
from testing.allocation.resources import GPU, request, resources
from testing.builders import container, pod, pod_view


def init(name: str, always: bool = False, **amounts: Any) -> dict[str, Any]:
    """Return an init container, or a sidecar."""
    fields = {"restartPolicy": "Always"} if always else {}
    return container(name, amounts, **fields)


class RequestCase(NamedTuple):
    name: str
    want: ResourceAmounts
    pod: Mapping[str, Any]


REQUEST_CASES = (
    RequestCase("a pod that requests nothing", ResourceAmounts(), pod(container())),
    RequestCase(
        "containers add up",
        ResourceAmounts(cpu_milli=1500, memory=300),
        pod(
            container(amounts={"cpu": "1", "memory": "100"}),
            container(amounts={"cpu": "500m", "memory": "200"}),
        ),
    ),
    RequestCase(
        "the largest init container counts where it exceeds the containers",
        ResourceAmounts(cpu_milli=3000, memory=100),
        pod(
            container(amounts={"cpu": "1", "memory": "100"}),
            init=[init("first", cpu="3", memory="50"), init("second", cpu="2")],
        ),
    ),
    RequestCase(
        "a sidecar counts beside the containers",
        ResourceAmounts(cpu_milli=3000),
        pod(container(amounts={"cpu": "1"}), init=[init("proxy", always=True, cpu="2")]),
    ),
    RequestCase(
        "an init container runs beside the sidecars before it only",
        ResourceAmounts(cpu_milli=6000),
        pod(
            container(amounts={"cpu": "1"}),
            init=[
                init("early", cpu="5"),
                init("proxy", always=True, cpu="2"),
                init("late", cpu="4"),
            ],
        ),
    ),
    RequestCase(
        "overhead comes on top, also of an init container",
        ResourceAmounts(cpu_milli=2250, memory=64),
        pod(
            container(amounts={"cpu": "1"}),
            init=[init("first", cpu="2")],
            overhead={"cpu": "250m", "memory": "64"},
        ),
    ),
    RequestCase(
        "requests of the pod as a whole replace those of its containers, for the names that are supported",
        ResourceAmounts(cpu_milli=4000, memory=100, scalars={GPU: 2, "hugepages-2Mi": 8}),
        pod(
            container(amounts={"cpu": "1", "memory": "100", GPU: "2"}),
            resources={"requests": {"cpu": "4", "hugepages-2Mi": "8", GPU: "9"}},
        ),
    ),
    RequestCase(
        "storage, huge pages, volumes and extended resources are counted, other names are not",
        ResourceAmounts(
            ephemeral_storage=10,
            scalars={"hugepages-1Gi": 2, "attachable-volumes-csi": 1, "kubernetes.io/x": 4, GPU: 1},
        ),
        pod(
            container(
                amounts={
                    "ephemeral-storage": "10",
                    "hugepages-1Gi": "2",
                    "attachable-volumes-csi": "1",
                    "kubernetes.io/x": "4",
                    GPU: "1",
                    "storage": "5",
                    "requests.example.com/x": "1",
                }
            )
        ),
    ),
    RequestCase(
        "fractions are rounded up",
        ResourceAmounts(cpu_milli=1, memory=2),
        pod(container(amounts={"cpu": "100u", "memory": "1500m"})),
    ),
)


@pytest.mark.parametrize("case", REQUEST_CASES, ids=lambda case: case.name)
def test_pod_request(case: RequestCase) -> None:
    assert pod_request(pod_view(case.pod)).amounts == case.want


def test_scores_count_defaults_for_containers_without_requests() -> None:
    bare = request({}, {"cpu": "1"})
    assert (bare.scored_cpu_milli, bare.scored_memory) == (1100, 400 * 2**20)
    assert (bare.placed_cpu_milli, bare.placed_memory) == (1100, 400 * 2**20)


def test_a_placed_pod_with_pod_level_requests_counts_without_the_defaults() -> None:
    levelled = request({}, resources={"requests": {"cpu": "2"}})
    assert (levelled.scored_cpu_milli, levelled.scored_memory) == (2000, 200 * 2**20)
    assert (levelled.placed_cpu_milli, levelled.placed_memory) == (2000, 200 * 2**20)
    whole = request({}, resources={"requests": {"cpu": "2", "memory": "0"}})
    assert (whole.placed_cpu_milli, whole.placed_memory) == (2000, 0)


NODE = {"cpu": "10m", "memory": 20, "ephemeral-storage": 20, GPU: 5, "hugepages-2Mi": 5}


class FitCase(NamedTuple):
    name: str
    want: tuple[str, ...]
    asks: Mapping[str, Any]
    used: Mapping[str, Any] = {}
    node: Mapping[str, Any] | None = NODE
    from_claims: frozenset[str] = frozenset()


FIT_CASES = (
    FitCase("no resources requested always fits", (), {}, {"cpu": "10m", "memory": 20}),
    FitCase(
        "too many resources fail",
        ("Insufficient cpu", "Insufficient memory"),
        {"cpu": "1m", "memory": 1},
        {"cpu": "10m", "memory": 20},
    ),
    FitCase("only cpu is short", ("Insufficient cpu",), {"cpu": "3m", "memory": 1}, {"cpu": "8m"}),
    FitCase("an equal edge fits", (), {"cpu": "5m", "memory": 1}, {"cpu": "5m", "memory": 19}),
    FitCase(
        "a resource that is not requested does not count, even if more of it is used than there is",
        (),
        {"memory": 1},
        {"cpu": "11m", "memory": 0},
    ),
    FitCase(
        "ephemeral storage is short",
        ("Insufficient ephemeral-storage",),
        {"ephemeral-storage": 10},
        {"ephemeral-storage": 11},
    ),
    FitCase("an extended resource fits", (), {GPU: 3}, {GPU: 2}),
    FitCase("an extended resource is short", (f"Insufficient {GPU}",), {GPU: 3}, {GPU: 3}),
    FitCase("an unknown extended resource is short", ("Insufficient a.io/b",), {"a.io/b": 1}),
    FitCase("0 of an unknown extended resource fits", (), {"a.io/b": 0}),
    FitCase(
        "an extended resource that a DeviceClass serves is not counted",
        (),
        {"a.io/b": 1},
        from_claims=frozenset({"a.io/b"}),
    ),
    FitCase(
        "it is counted on a node that has it from a device plugin",
        (f"Insufficient {GPU}",),
        {GPU: 6},
        from_claims=frozenset({GPU}),
    ),
    FitCase("huge pages are short", ("Insufficient hugepages-2Mi",), {"hugepages-2Mi": 6}),
    FitCase(
        "a node whose pods are all taken", ("Too many pods",), {}, {}, dict(NODE) | {"pods": 1}
    ),
    FitCase("a node without allocatable has no limits", (), {"cpu": 999, "a.io/b": 7}, node=None),
)


@pytest.mark.parametrize("case", FIT_CASES, ids=lambda case: case.name)
def test_insufficient_resources(case: FitCase) -> None:
    asks, node = request(case.asks), resources(case.node, [request(case.used)])
    reasons = insufficient_resources(asks, node, case.from_claims)
    assert tuple(reason.message for reason in reasons) == case.want
    assert has_resources(asks, node, case.from_claims) == (not case.want)


def test_a_request_above_all_that_a_node_has_is_unresolvable() -> None:
    too_large, too_much = (request({"cpu": cpu}) for cpu in ("11m", "5m"))
    node = resources(NODE, [request({"cpu": "8m"})])
    assert [reason.is_unresolvable for reason in insufficient_resources(too_large, node)] == [True]
    assert [reason.is_unresolvable for reason in insufficient_resources(too_much, node)] == [False]


class ScoreCase(NamedTuple):
    name: str
    want: tuple[int, int, int]
    """The scores LeastAllocated, MostAllocated and BalancedAllocation."""
    asks: Mapping[str, Any]
    cpu: int
    memory: int
    used: tuple[Mapping[str, Any], ...] = ()


NOTHING = {"cpu": 0, "memory": 0}
FIVE = {"cpu": 3, "memory": 5000}

SCORE_CASES = (
    ScoreCase("a small node", (37, 62, 68), FIVE, 4, 10000),
    ScoreCase("a larger node", (50, 50, 75), FIVE, 6, 10000),
    ScoreCase(
        "pods without requests are not scored for their balance",
        (70, 30, 0),
        NOTHING,
        10,
        20000,
        ({"cpu": 6, "memory": 0},),
    ),
    ScoreCase("CPU alone is in use", (57, 42, 73), FIVE, 10, 20000, ({"cpu": 3, "memory": 0},)),
    ScoreCase("both are in use", (45, 55, 74), FIVE, 10, 20000, (FIVE,)),
    ScoreCase("much memory", (60, 40, 70), FIVE, 10, 50000, (FIVE,)),
    ScoreCase(
        "more is requested than there is", (25, 75, 69), {"cpu": 3, "memory": 0}, 4, 10000, (FIVE,)
    ),
    ScoreCase(
        "the balance gets as good as it can",
        (0, 100, 100),
        {"cpu": 0, "memory": 5000},
        3,
        5000,
        ({"cpu": 3, "memory": 0},),
    ),
    ScoreCase("and as bad", (50, 50, 50), {"cpu": 0, "memory": 5000}, 3, 5000),
    ScoreCase("a node without memory", (50, 50, 75), {"cpu": 2, "memory": 0}, 4, 0),
    ScoreCase("a node without either", (0, 0, 75), {"cpu": 2, "memory": 0}, 0, 0),
)


@pytest.mark.parametrize("case", SCORE_CASES, ids=lambda case: case.name)
def test_scores(case: ScoreCase) -> None:
    asks = request(case.asks)
    node = resources({"cpu": case.cpu, "memory": case.memory}, [request(use) for use in case.used])
    scores = (
        least_allocated(asks, node),
        most_allocated(asks, node),
        balanced_allocation(asks, node),
    )
    assert scores == case.want


def test_a_node_without_limits_gets_the_same_scores_whatever_runs_on_it() -> None:
    asks = request({"cpu": 3})
    for node in (resources(None), resources(None, [asks])):
        scores = least_allocated(asks, node), most_allocated(asks, node)
        assert (*scores, balanced_allocation(asks, node)) == (0, 0, 75)


def test_a_pod_that_leaves_changes_nothing() -> None:
    asks = request({"cpu": 3, GPU: 2}, overhead={"memory": "5"})
    before = resources(NODE, [request({"cpu": 1, GPU: 1})])
    assert before.with_pod(asks).without_pod(asks) == before


_amounts = st.integers(0, 6)


def _pod_of(cpu: int, memory: int, storage: int, gpus: int) -> PodRequest:
    return request(
        {"cpu": cpu, "memory": memory, "ephemeral-storage": storage, GPU: gpus}
        if gpus
        else {"cpu": cpu}
    )


@given(
    size=st.tuples(_amounts, _amounts, _amounts, _amounts, _amounts),
    used=st.tuples(_amounts, _amounts, _amounts, _amounts),
    asked=st.tuples(_amounts, _amounts, _amounts, _amounts),
    limit=_amounts,
    from_claims=st.sampled_from(((), (GPU,))),
)
def test_equal_pods_that_fit_one_after_the_other_are_counted_at_once(
    size: tuple[int, ...],
    used: tuple[int, int, int, int],
    asked: tuple[int, int, int, int],
    limit: int,
    from_claims: Sequence[str],
) -> None:
    names = ("cpu", "memory", "ephemeral-storage", GPU, "pods")
    node = resources(dict(zip(names, size, strict=True)), [_pod_of(*used)])
    pod_ = _pod_of(*asked)

    count, left = 0, node
    while count < limit and has_resources(pod_, left, from_claims):
        count, left = count + 1, left.with_pod(pod_)

    assert most_equal_pods(pod_, node, limit, from_claims) == count
    assert node.with_pods(pod_, count) == left


@pytest.mark.parametrize("amount", ["1e30", "10e399", "9" * 200, "9223372036854775808"])
def test_pods_with_more_than_64_bits_hold_up_no_others(amount: str) -> None:
    """kube-scheduler places them as pods that request nothing (v1.37.1, tried)."""
    placed = request({"cpu": amount, "memory": amount, GPU: amount})

    node = resources({"cpu": 2, "memory": "4Gi", GPU: 1}, [placed])

    assert has_resources(request({"cpu": 2, "memory": "4Gi", GPU: 1}), node)
    assert (placed.scored_cpu_milli, placed.scored_memory) == (0, 0)
