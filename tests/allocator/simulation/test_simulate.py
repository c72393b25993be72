"""The places of pods and claims: their order, usage, and the words for those without a place."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pytest

from allocator.cluster.cluster import Cluster
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason, RejectionReason, Shortage
from allocator.search.attempt import AllocatorOptions
from allocator.simulation import node_choice
from allocator.simulation.model import SimulationInput, SimulationOptions, SimulationResult
from allocator.simulation.simulate import simulate_in_order, simulate_together
from allocator.strategies import registry
from allocator.strategies.strategy import Strategy
from kube.api.core import Node, Pod
from kube.api.meta import ObjectMeta, convert
from kube.api.resource import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
    ResourceSlice,
)
from kube.names import STRATEGY_ANNOTATION
from testing.allocation.builders import (
    allocated_claim,
    claim,
    device,
    device_class,
    devices,
    labelled_node_selector,
    node,
    request,
    result,
    slice_of,
)
from testing.allocation.cases import held_claim
from testing.counting import counted_calls

GPU = "nvidia.com/gpu"


def pod(name: str = "pod", *uses: str, annotations: Any = None, **spec: Any) -> Pod:
    """A pod that uses claims by name, or templates: `=template`."""
    entries = [
        {"name": "gpu", "resourceClaimTemplateName": use[1:]}
        if use.startswith("=")
        else {"name": use, "resourceClaimName": use}
        for use in uses
    ]
    status = spec.pop("status", {})
    metadata = {"name": name, "namespace": "default", "annotations": annotations or {}}
    document = {"metadata": metadata, "spec": {"resourceClaims": entries, **spec}}
    return convert({**document, "status": status}, Pod)


def template(name: str, *requests: Any) -> ResourceClaimTemplate:
    return ResourceClaimTemplate(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=ResourceClaimTemplateSpec(spec=claim(*requests).spec),
    )


def two_nodes(**first: Any) -> tuple[ResourceSlice, ...]:
    return (
        slice_of(*devices("gpu-0", "gpu-1", **first), pool="node-1"),
        slice_of(*devices("gpu-0", "gpu-1"), pool="node-2"),
    )


def simulated_result(
    *,
    pods: Sequence[Pod] = (),
    claims: Sequence[ResourceClaim] = (),
    held: Sequence[ResourceClaim] = (),
    templates: Sequence[ResourceClaimTemplate] = (),
    slices: Sequence[ResourceSlice] | None = None,
    nodes: Sequence[Node] = (node("node-1"), node("node-2")),
    classes: Sequence[DeviceClass] = (device_class(),),
    extended: Iterable[str] = (),
    on: str | None = None,
    **how: Any,
) -> SimulationResult:
    known_device_classes = {class_.metadata.name: class_ for class_ in classes}
    everything = (*claims, *held)
    cluster = Cluster(
        slices=two_nodes() if slices is None else slices,
        nodes=nodes,
        claims=everything,
        classes=known_device_classes,
        options=AllocatorOptions(features=Features()),
    )
    question = SimulationInput(
        pods=tuple(pods),
        claims=tuple(claims),
        known={
            (first_claim.metadata.namespace, first_claim.metadata.name): first_claim
            for first_claim in everything
        },
        templates={
            (template_.metadata.namespace, template_.metadata.name): template_
            for template_ in templates
        },
        classes=known_device_classes,
        extended_resources=dict.fromkeys(extended, "gpu"),
    )
    ways = SimulationOptions(**how)
    if on is None:
        return simulate_in_order(cluster, question, ways)
    return simulate_together(cluster, question, ways, on)


def placements(answer: SimulationResult) -> list[str]:
    """Return the node of each pod, and the devices of each claim: `pod: node-1`, `claim: node-1 gpu-0`."""
    lines = [f"{pod_.name}: {pod_.node}" for pod_ in answer.pods]
    for claim_ in answer.claims:
        results = claim_.allocation.devices.results or () if claim_.allocation else ()
        lines.append(
            " ".join([f"{claim_.name}: {claim_.node}", *(result_.device for result_ in results)])
        )
    return lines


def reasons(answer: SimulationResult) -> dict[str, list[str]]:
    return {
        node_.name: [f"{reason.code}: {reason.message}" for reason in node_.reasons]
        for node_ in answer.nodes
    }


def named_claim(name: str, *requests: Any) -> ResourceClaim:
    return claim(*(requests or (request(),)), name=name)


# --- who goes where -------------------------------------------------------------------------------


class Case(NamedTuple):
    name: str
    want: list[str]
    fields: dict[str, Any]


CASES = (
    Case("nothing asked, nothing placed", [], {}),
    Case(
        "a claim goes to the first node by name",
        ["a: node-1 gpu-0"],
        {"claims": [named_claim("a")]},
    ),
    Case(
        "what one claim gets, the next does not",
        ["a: node-1 gpu-0", "b: node-1 gpu-1", "c: node-2 gpu-0"],
        {"claims": [named_claim("a"), named_claim("b"), named_claim("c")]},
    ),
    Case(
        "what claims of the cluster hold is gone",
        ["a: node-2 gpu-0 gpu-1"],
        {
            "claims": [named_claim("a", request(count=2))],
            "held": [held_claim("gpu-1", "node-1")],
        },
    ),
    Case(
        "pods come before claims",
        ["pod: node-1", "b: node-1 gpu-0 gpu-1", "a: node-2 gpu-0"],
        {
            "claims": [named_claim("a"), named_claim("b", request(count=2))],
            "pods": [pod("pod", "b")],
        },
    ),
    Case(
        "a claim of a template is called after its pod",
        ["pod: node-1", "pod-gpu: node-1 gpu-0"],
        {"pods": [pod("pod", "=one")], "templates": [template("one", request())]},
    ),
    Case(
        "or as the pod's status says",
        ["pod: node-1", "pod-gpu-x7k2p: node-1 gpu-0"],
        {
            "pods": [
                pod(
                    "pod",
                    "=one",
                    status={
                        "resourceClaimStatuses": [
                            {"name": "gpu", "resourceClaimName": "pod-gpu-x7k2p"}
                        ]
                    },
                )
            ],
            "templates": [template("one", request())],
        },
    ),
    Case(
        "a status without a claim's name says that none is needed",
        ["pod: node-1"],
        {"pods": [pod("pod", "=gone", status={"resourceClaimStatuses": [{"name": "gpu"}]})]},
    ),
    Case(
        "all claims of a pod are on its node",
        ["pod: node-2", "b: node-2 gpu-0", "c: node-2 gpu-1", "a: node-1 gpu-0"],
        {
            "claims": [named_claim("a"), named_claim("b"), named_claim("c")],
            "pods": [pod("pod", "b", "c")],
            "held": [held_claim("gpu-1", "node-1")],
        },
    ),
    Case(
        "a claim that pods share is allocated once and keeps them together",
        ["one: node-1", "two: node-1", "a: node-1 gpu-0"],
        {"claims": [named_claim("a")], "pods": [pod("one", "a"), pod("two", "a")]},
    ),
    Case(
        "an allocated claim decides where the pod goes, and is not placed",
        ["pod: node-2", "b: node-2 gpu-1"],
        {
            "claims": [named_claim("b")],
            "pods": [pod("pod", "a", "b")],
            "held": [held_claim("gpu-0", "node-2", name="a")],
        },
    ),
    Case(
        "a pod without claims needs a node all the same",
        ["pod: node-2"],
        {
            "pods": [pod("pod", nodeSelector={"zone": "b"})],
            "nodes": [node("node-1"), node("node-2", zone="b")],
        },
    ),
    Case(
        "devices for all nodes pin nobody",
        ["a: None net-0"],
        {
            "claims": [named_claim("a")],
            "slices": [slice_of(device("net-0"), pool="net", all_nodes=True)],
        },
    ),
    Case(
        "nor do devices for nodes with a label",
        ["a: None net-0"],
        {
            "claims": [named_claim("a")],
            "slices": [
                slice_of(device("net-0"), pool="net", selector=labelled_node_selector(zone="a"))
            ],
            "nodes": [node("node-1", zone="a")],
        },
    ),
    Case(
        "a claim without requests is allocated nothing, anywhere",
        ["a: None"],
        {"claims": [claim(name="a")]},
    ),
    Case(
        "a mapped extended resource gets a claim of its own",
        ["pod: node-1", "pod-extended-resources: node-1 gpu-0 gpu-1"],
        {
            "pods": [pod("pod", containers=[{"name": "c", "resources": {"limits": {GPU: 2}}}])],
            "extended": [GPU],
        },
    ),
    Case(
        "unless the node's device plugin offers it",
        ["pod: plugin"],
        {
            "pods": [pod("pod", containers=[{"name": "c", "resources": {"limits": {GPU: 2}}}])],
            "extended": [GPU],
            "nodes": [
                convert({"metadata": {"name": "plugin"}, "status": {"allocatable": {GPU: 8}}}, Node)
            ],
        },
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_by_one(case: Case) -> None:
    answer = simulated_result(**case.fields)

    assert case.want == placements(answer)
    assert answer.all_placed
    assert (answer.nodes, answer.error, answer.failures) == ((), None, ())


# --- who has no place -----------------------------------------------------------------------------

TOO_FEW = "tooFewDevices: claim default/a, request req-0: only 2 suitable devices, 3 requested"


class Failed(NamedTuple):
    name: str
    want: dict[str, list[str]]
    fields: dict[str, Any]


FAILED = (
    Failed(
        "a claim that fits no node",
        {"node-1": [TOO_FEW], "node-2": [TOO_FEW]},
        {"claims": [named_claim("a", request(count=3))]},
    ),
    Failed(
        "nodes tell of the last that failed",
        {"node-1": ["claimNotFound: ResourceClaim default/gone not found"]},
        {
            "pods": [pod("one", nodeSelector={"a": "b"}), pod("two", "gone")],
            "nodes": [node("node-1")],
        },
    ),
    Failed(
        "a template that is not there",
        {"node-1": ["templateNotFound: ResourceClaimTemplate default/gone not found"]},
        {"pods": [pod("one", "=gone")], "nodes": [node("node-1")]},
    ),
    Failed(
        "a pod that a node does not take",
        {"node-1": ["nodeNotEligible: nodeSelector requires zone=b"]},
        {"pods": [pod("one", nodeSelector={"zone": "b"})], "nodes": [node("node-1", zone="a")]},
    ),
    Failed(
        "a claim that is allocated elsewhere",
        {
            "node-1": ["nodeNotEligible: claim default/a is allocated on node node-3"],
            "node-2": ["nodeNotEligible: claim default/a is allocated on node node-3"],
        },
        {
            "pods": [pod("one", "a")],
            "held": [held_claim("gpu-0", "node-3", name="a")],
        },
    ),
    Failed(
        "an extended resource that nobody has",
        {
            "node-1": [
                "nodeNotEligible: no example.com/fpga on the node, and no DeviceClass maps it"
            ]
        },
        {
            "pods": [
                pod(
                    "one",
                    containers=[{"name": "c", "resources": {"limits": {"example.com/fpga": 1}}}],
                )
            ],
            "nodes": [
                convert({"metadata": {"name": "node-1"}, "status": {"allocatable": {}}}, Node)
            ],
        },
    ),
)


@pytest.mark.parametrize("case", FAILED, ids=lambda case: case.name)
def test_failures(case: Failed) -> None:
    answer = simulated_result(**case.fields)

    assert case.want == reasons(answer)
    assert not answer.all_placed
    assert answer.error is None


def test_a_failed_pod_keeps_none_of_its_claims_and_the_rest_goes_on() -> None:
    answer = simulated_result(
        pods=[pod("big", "a", "b"), pod("small", "c")],
        claims=[
            named_claim("a"),
            named_claim("b", request(count=2)),
            named_claim("c", request(count=2)),
        ],
    )

    assert placements(answer) == [
        "big: None", "small: node-1", "a: None", "b: None", "c: node-1 gpu-0 gpu-1"
    ]  # fmt: skip
    assert [failure.title for failure in answer.failures] == ["Pod default/big"]
    assert [group.nodes for group in (answer.failures[0].groups or ())] == [("node-1", "node-2")]


def test_a_claim_of_a_failed_pod_is_not_tried_alone() -> None:
    answer = simulated_result(
        pods=[pod("pod", "a", nodeSelector={"zone": "b"})], claims=[named_claim("a")]
    )

    assert placements(answer) == ["pod: None", "a: None"]


def test_a_run_that_is_stopped_has_what_was_tried() -> None:
    tried_claim: list[int] = []

    answer = simulated_result(
        pods=[pod("first", "a"), pod("second", "b")],
        claims=[named_claim("a"), named_claim("b")],
        progress=tried_claim.append,
        stops=lambda: bool(tried_claim),
    )

    assert placements(answer) == ["first: node-1", "a: node-1 gpu-0"]


def test_a_missing_class_is_an_error_and_the_others_go_on() -> None:
    claim_ = claim(request(device_class_name="lost"), name="lost")

    answer = simulated_result(claims=[claim_, named_claim("a")])

    assert answer.error is not None
    assert "could not retrieve device class lost" in answer.error
    assert placements(answer) == ["lost: None", "a: node-1 gpu-0"]
    assert [node_.fits for node_ in answer.nodes] == [False, False]


BROKEN_ON_1 = (
    slice_of(device("gpu-0", attributes={"model": 1}), pool="node-1"),
    slice_of(device("gpu-0", attributes={"model": "A"}), pool="node-2"),
)
BROKEN_ON_2 = (
    slice_of(device("gpu-0", attributes={"model": "A"}), pool="node-1"),
    slice_of(device("gpu-0", attributes={"model": 1}), pool="node-2"),
)
IS_A = 'device.attributes["gpu.example.com"].model.lowerAscii() == "a"'


def test_who_goes_by_name_does_not_meet_the_error_of_a_later_node() -> None:
    first = simulated_result(claims=[named_claim("a", request("req-0", IS_A))], slices=BROKEN_ON_2)
    second = simulated_result(claims=[named_claim("a", request("req-0", IS_A))], slices=BROKEN_ON_1)

    assert (placements(first), first.error) == (["a: node-1 gpu-0"], None)
    assert placements(second) == ["a: None"]
    assert second.error is not None


def test_whoever_compares_nodes_meets_every_error() -> None:
    answer = simulated_result(
        claims=[named_claim("a", request("req-0", IS_A))],
        slices=BROKEN_ON_2,
        strategy=_strategy("CompactFirst"),
    )

    assert answer.error is not None


def test_reasons_of_devices_come_from_whoever_explains() -> None:
    rejection_reason = RejectionReason(reason=Reason.ALLOCATED, subject="in use by a claim")
    shortage = Shortage(claim="default/a", request="req-0", rejection=rejection_reason, devices=2)

    answer = simulated_result(
        claims=[named_claim("a", request(count=3))],
        explain=lambda node, requested, usage, rules: (shortage,),
    )

    assert [(reason.code, reason.message, reason.count) for reason in answer.nodes[0].reasons] == [
        ("allocated", "claim default/a, request req-0: 2/2 devices in use by a claim", 2)
    ]


# --- strategies -----------------------------------------------------------------------------------


def _strategy(name: str) -> Strategy:
    return next(strategy for strategy in registry.ALL if strategy.name == name)


HALF_FULL = [held_claim("gpu-0", "node-2")]


class Chosen(NamedTuple):
    name: str
    want: str
    fields: dict[str, Any]


CHOSEN = (
    Chosen("the default takes the first node", "node-1", {}),
    Chosen("packing takes the fullest", "node-2", {"strategy": _strategy("CompactFirst")}),
    Chosen(
        "the pod says so",
        "node-2",
        {"pods": [pod("pod", "a", annotations={STRATEGY_ANNOTATION: "CompactFirst"})]},
    ),
    Chosen(
        "the call beats the pod",
        "node-1",
        {
            "pods": [pod("pod", "a", annotations={STRATEGY_ANNOTATION: "CompactFirst"})],
            "strategy": _strategy("LowLoadFirst"),
        },
    ),
    Chosen(
        "the class says so",
        "node-2",
        {
            "classes": [
                DeviceClass(
                    metadata=ObjectMeta(
                        name="gpu", annotations={STRATEGY_ANNOTATION: "CompactFirst"}
                    )
                )
            ]
        },
    ),
)


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.name)
def test_strategies(case: Chosen) -> None:
    answer = simulated_result(**{"claims": [named_claim("a")], "held": HALF_FULL, **case.fields})

    assert case.want == answer.claims[0].node


def test_a_strategy_that_does_not_exist_is_noted_and_the_default_decides() -> None:
    pod_ = pod("pod", "a", annotations={STRATEGY_ANNOTATION: "Best"})

    answer = simulated_result(claims=[named_claim("a")], pods=[pod_])

    assert placements(answer) == ["pod: node-1", "a: node-1 gpu-0"]
    assert list(answer.notes) == [
        (
            'Pod default/pod: metadata.annotations[drawbridge.internal/strategy]: "Best" is not '
            "a strategy, so FirstFit is used; use one of FirstFit, CompactFirst, LowLoadFirst,"
            " NodeCompactDeviceLowLoad, TopologyPacked, BestFit, FragmentationAware"
        )
    ]


# --- together -------------------------------------------------------------------------------------


def test_together_all_claims_go_to_one_node_and_it_says_so() -> None:
    answer = simulated_result(claims=[named_claim("a"), named_claim("b")], on="node-2")

    assert placements(answer) == ["a: node-2 gpu-0", "b: node-2 gpu-1"]
    assert [(node_.name, node_.fits, node_.score) for node_ in answer.nodes] == [
        ("node-2", True, 0)
    ]


def test_together_is_all_or_nothing() -> None:
    answer = simulated_result(
        pods=[pod("pod", "a")],
        claims=[named_claim("b", request(count=2)), named_claim("a")],
        on="node-1",
    )

    assert placements(answer) == ["pod: None", "a: None", "b: None"]
    assert [(node_.name, node_.fits) for node_ in answer.nodes] == [("node-1", False)]
    assert not answer.all_placed


def test_together_pods_come_first() -> None:
    answer = simulated_result(
        pods=[pod("pod", "b")], claims=[named_claim("a"), named_claim("b")], on="node-1"
    )

    assert placements(answer) == ["pod: node-1", "b: node-1 gpu-0", "a: node-1 gpu-1"]


def test_together_a_pod_that_the_node_does_not_take_stops_all() -> None:
    answer = simulated_result(
        pods=[pod("pod", "a", nodeSelector={"zone": "b"})], claims=[named_claim("a")], on="node-1"
    )

    assert placements(answer) == ["pod: None", "a: None"]
    assert reasons(answer) == {"node-1": ["nodeNotEligible: nodeSelector requires zone=b"]}


def test_together_the_strategy_of_the_first_pod_chooses_devices() -> None:
    pod_ = pod("pod", "a", annotations={STRATEGY_ANNOTATION: "CompactFirst"})
    shared = [slice_of(*devices("gpu-0", "gpu-1", shared=True, capacity={"memory": "80Gi"}))]
    used = result("gpu-1", share="s", consumed={"memory": "40Gi"})

    answer = simulated_result(
        pods=[pod_],
        claims=[named_claim("a", request(capacity={"memory": "10Gi"}))],
        held=[allocated_claim(used, name="held")],
        slices=shared,
        nodes=[node()],
        on="node-1",
    )

    assert placements(answer) == ["pod: node-1", "a: node-1 gpu-1"]


def test_together_an_error_is_reported() -> None:
    claim_ = claim(request(device_class_name="lost"), name="lost")

    answer = simulated_result(claims=[claim_], on="node-1")

    assert answer.error is not None
    assert [(node_.name, node_.fits) for node_ in answer.nodes] == [("node-1", False)]


# --- shares ---------------------------------------------------------------------------------------


def test_share_ids_are_the_same_in_every_run_and_differ_within_one() -> None:
    slices = [slice_of(device("gpu-0", shared=True, capacity={"memory": "80Gi"}))]
    claims = [named_claim(name, request(capacity={"memory": "10Gi"})) for name in ("a", "b")]

    runs = [simulated_result(claims=claims, slices=slices, nodes=[node()]) for _ in range(2)]

    ids = [
        [claim_.allocation.devices.results[0].share_id for claim_ in run.claims if claim_.allocation
         and claim_.allocation.devices.results]
        for run in runs
    ]  # fmt: skip
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2


def test_the_request_stays_as_it_is() -> None:
    requested = named_claim("a")

    simulated_result(claims=[requested])

    assert requested == named_claim("a")
    assert requested.status is None


# --- many nodes -----------------------------------------------------------------------------------


def test_nodes_that_are_alike_are_not_compared_one_by_one() -> None:
    """With 5,000 nodes each pod took 2 ms, though nothing but the name told them apart."""
    work = []
    for number in (3, 30):
        names = [f"node-{index:02}" for index in reversed(range(number))]
        slices = [slice_of(device("gpu-0"), pool=name) for name in names]
        with counted_calls() as calls:
            answer = simulated_result(
                claims=[named_claim("a")], slices=slices, nodes=[node(name) for name in names]
            )
        assert ["node-00"] == [placed.node for placed in answer.claims]
        work.append(sum(calls[code] for code in calls if code.co_filename == node_choice.__file__))

    assert work[0] == work[1]
