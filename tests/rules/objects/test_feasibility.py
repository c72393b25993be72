"""Infeasible claims, claims that do not fit now, and the evidence that makes them errors."""

from typing import Any, NamedTuple

import msgspec
import pytest

from findings.finding import Finding
from kube.names import ENFORCEMENT_LABEL
from kube.quantity import Quantity
from rules.context.context import Context
from rules.feasibility.enforcement import Enforcement, EnforcementSettings
from rules.feasibility.high_water_mark import DriverStock, HighWaterMark
from testing.documents import EXAMPLE, Document, claim, exactly, resource_slice
from testing.feasibility_cases import (
    BUSY,
    CLUSTER,
    EXTENDED,
    INFEASIBLE,
    IS_LARGE,
    IS_SHARED,
    MODES,
    NODE_A,
    PENDING,
    PODS,
    SAME_ROOT,
    WITH_CLAIMS,
    Case,
    allocated_claim,
    claim_entry,
    cluster_context,
    example_request,
    gpu,
    memory,
    template_entry,
)
from testing.rule_cases import NAMESPACE, finding_lines, findings_of, pod

# --- what is told ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case", INFEASIBLE, ids=lambda case: case.name)
def test_infeasible(case: Case) -> None:
    assert case.expected_findings == finding_lines(case.document, case.context)


def test_the_fix_comes_before_the_reasons_of_each_group_of_nodes() -> None:
    finding = only(claim(example_request(capacity=memory("100Gi"))))

    message = 'memory 100Gi is more than the 80Gi of the largest device of class "gpu.example.com"'
    reasons = (
        "1 node: 1/1 devices allow memory up to 37Gi (100Gi needed)",
        "1 node: 2/4 devices have memory 40Gi (< 100Gi), 2/4 have 80Gi (< 100Gi)",
    )
    fix = "request memory 80Gi to fit node node-a"
    assert (finding.message, finding.fix, finding.reasons) == (message, fix, reasons)
    assert finding.advice == f"{message}; {fix} ({reasons[0]}. {reasons[1]})"


def test_the_message_has_the_rounded_amount() -> None:
    finding = only(claim(example_request(IS_SHARED, capacity=memory("39Gi"))))

    assert (
        "memory 39Gi, which is rounded up to 40Gi, is outside the requestPolicy" in finding.message
    )
    assert finding.fix == "request memory 37Gi to fit node node-b"


def test_long_selectors_get_no_closest_fit_and_too_long_ones_no_evaluation() -> None:
    padded = f'device.driver == "{EXAMPLE}"' + " " * 5000

    (finding,) = findings_of(claim(example_request(padded, count=5)), CLUSTER)
    assert (finding.code, finding.fix) == ("exceedsLargestNode", "")
    assert "warning notEvaluated spec.devices" in finding_lines(
        claim(example_request(padded, padded, padded)), CLUSTER
    )


def only(document: Document, context: Context = CLUSTER) -> Finding:
    (finding,) = findings_of(document, context)
    return finding


# --- pods and workloads ---------------------------------------------------------------------------


@pytest.mark.parametrize("case", PODS, ids=lambda case: case.name)
def test_pods(case: Case) -> None:
    assert case.expected_findings == finding_lines(case.document, case.context)


@pytest.mark.parametrize("case", EXTENDED, ids=lambda case: case.name)
def test_extended_resources(case: Case) -> None:
    assert case.expected_findings == finding_lines(case.document, case.context)


def test_the_finding_of_a_pod_has_the_path_within_its_claim() -> None:
    assert only(pod(template_entry("five")), WITH_CLAIMS).message.startswith(
        "requests[0].exactly.count: count 5 is more than the 4 "
    )


# --- evidence -------------------------------------------------------------------------------------

MANY = claim(example_request(count=5))
_INCOMPLETE: Document = {
    **NODE_A,
    "spec": {**NODE_A["spec"], "pool": {**NODE_A["spec"]["pool"], "resourceSliceCount": 2}},
}
_TWICE = resource_slice(gpu("gpu-0"), gpu("gpu-0"), name="twice", nodeName="node-b",
                        pool={"name": "node-b", "generation": 1, "resourceSliceCount": 1})  # fmt: skip
_ELSEWHERE = resource_slice(gpu("gpu-9"), name="gone", nodeName="gone",
                            pool={"name": "gone", "generation": 1, "resourceSliceCount": 1})  # fmt: skip


def labelled_context(value: str, **more: Any) -> Context:
    return cluster_context(NODE_A, namespaces={NAMESPACE: {ENFORCEMENT_LABEL: value}}, **more)


def with_high_water_mark(**most: Any) -> Context:
    stock = DriverStock(**{"nodes": 1, "devices": 4, "on_one_node": 4} | most)
    return cluster_context(
        NODE_A, high_water_mark=HighWaterMark(classes={EXAMPLE: {EXAMPLE: stock}})
    )


class Evidence(NamedTuple):
    """A reason a verdict is only a warning.

    Attributes:
        reason: The end of the message; empty for an error.
    """

    name: str
    reason: str
    context: Context


EVIDENCE = (
    Evidence("a complete inventory", "", cluster_context(NODE_A)),
    Evidence("an incomplete pool", f"pool node-a is incomplete: 1 of 2 slices of generation 1, driver {EXAMPLE}", cluster_context(_INCOMPLETE)),
    Evidence(
        "an invalid pool",
        f"pool node-b is invalid: duplicate device name gpu-0, driver {EXAMPLE}",
        cluster_context(NODE_A, _TWICE),
    ),
    Evidence(
        "slices of a missing node",
        f"pool gone is for nodes that do not exist, driver {EXAMPLE}",
        cluster_context(NODE_A, _ELSEWHERE),
    ),
    Evidence("an inventory at its high-water mark", "", with_high_water_mark()),
    Evidence(
        "fewer nodes than the high-water mark",
        f"class {EXAMPLE} had 2 nodes with devices of {EXAMPLE} and has 1 now",
        with_high_water_mark(nodes=2),
    ),
    Evidence(
        "fewer devices than the high-water mark",
        f"class {EXAMPLE} had 8 devices of {EXAMPLE} and has 4 now",
        with_high_water_mark(devices=8),
    ),
    Evidence(
        "smaller nodes than the high-water mark",
        f"class {EXAMPLE} had 8 devices of {EXAMPLE} on one node and has 4 now",
        with_high_water_mark(on_one_node=8),
    ),
    Evidence(
        "smaller devices than the high-water mark",
        f"class {EXAMPLE} had a device of {EXAMPLE} with memory 96Gi",
        with_high_water_mark(capacity={"memory": Quantity("96Gi")}),
    ),
    Evidence("an autoscaler", "Karpenter may add nodes", cluster_context(NODE_A, autoscalers={"Karpenter"})),
    Evidence("a namespace that denies", "", labelled_context("deny")),
    Evidence("a namespace that warns", "the namespace is labelled to warn", labelled_context("warn")),
    Evidence(
        "a cluster that warns",
        "the cluster is configured to warn",
        cluster_context(NODE_A, enforcement=EnforcementSettings(cluster=Enforcement.WARN)),
    ),
    Evidence(
        "a cluster that warns, and a namespace that denies",
        "",
        labelled_context("deny", enforcement=EnforcementSettings(cluster=Enforcement.WARN)),
    ),
    Evidence(
        "a driver that warns, and a namespace that denies",
        f"driver {EXAMPLE} is configured to warn",
        labelled_context("deny", enforcement=EnforcementSettings(drivers={EXAMPLE: Enforcement.WARN})),
    ),
    Evidence(
        "another driver that warns",
        "",
        cluster_context(NODE_A, enforcement=EnforcementSettings(drivers={"x.example.com": Enforcement.WARN})),
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", EVIDENCE, ids=lambda case: case.name)
def test_a_denial_needs_evidence(case: Evidence) -> None:
    finding = only(MANY, case.context)

    assert case.reason == finding.message.partition("; only a warning, since ")[2]
    assert [reason[:8] for reason in finding.reasons] == ["1 node: "] * len(finding.reasons) != []
    assert finding.severity == ("warning" if case.reason else "error")


@pytest.mark.parametrize("configured_document", [{"cluster": "off"}, {"drivers": {EXAMPLE: "off"}}])
def test_enforcement_off_reports_nothing(configured_document: dict[str, Any]) -> None:
    context = cluster_context(
        NODE_A, enforcement=msgspec.convert(configured_document, EnforcementSettings)
    )

    assert finding_lines(MANY, context) == ()


def test_an_unpublished_capacity_is_an_error_only_with_evidence() -> None:
    document = claim(example_request(capacity={"requests": {"cores": "1"}}))

    assert only(document, cluster_context(NODE_A)).severity == "error"
    assert only(document, cluster_context(NODE_A, autoscalers={"Karpenter"})).message.endswith(
        'have a capacity "cores"; only a warning, since Karpenter may add nodes'
    )


def test_a_pod_of_a_controller_gets_warnings_only() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "controller": True}
    document = pod(template_entry("five"))
    document["metadata"] |= {"ownerReferences": [owner]}

    finding = only(document, WITH_CLAIMS)

    assert finding.severity == "warning"
    assert finding.message.endswith("only a warning, since a controller created it")


def test_a_driver_without_slices_gets_warnings_only() -> None:
    document = claim(exactly(deviceClassName="nobody.example.com", count=99))

    assert not [
        finding
        for finding in findings_of(document, CLUSTER)
        if finding.code == "exceedsLargestNode"
    ]


def test_a_search_above_its_budget_is_reported_as_not_evaluated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rules.feasibility.bounded_search.MAX_STEPS", 0)
    context = cluster_context(NODE_A)

    assert finding_lines(claim(example_request(count=3), constraints=[SAME_ROOT]), context) == (
        "warning notEvaluated spec.devices",
    )


def test_a_closest_fit_names_the_claim_not_the_entry_of_the_pod() -> None:
    finding = only(
        pod({**claim_entry("three"), "name": "gpus"}, template_entry("two")), WITH_CLAIMS
    )

    assert "claim team-a/three" in finding.fix
    assert "gpus" not in finding.fix


def test_all_devices_of_incompatible_modes() -> None:
    finding = only(
        claim(example_request(count=None, allocationMode="All")),
        cluster_context(NODE_A, policies=MODES),
    )

    assert finding.code == "noUsableDevice"
    assert finding.message.startswith(
        f"no node can allocate all of its selected devices of {EXAMPLE}"
    )


# --- now ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", PENDING, ids=lambda case: case.name)
def test_pending(case: Case) -> None:
    assert case.expected_findings == finding_lines(case.document, case.context)


def test_the_fix_is_what_would_fit_now() -> None:
    finding = only(claim(example_request(count=2)), BUSY)

    assert finding.fix == "request 1 device to fit node node-a"
    assert any("3/4 devices in use" in reason for reason in finding.reasons)


# --- many nodes -----------------------------------------------------------------------------------

MANY_NODES = tuple(f"node-{number}" for number in range(7))


def equal_nodes(**more: Any) -> Context:
    """Seven equal nodes, each with one device of its own pool."""
    slices = [
        resource_slice(
            gpu("gpu-0"),
            name=name,
            nodeName=name,
            pool={"name": name, "generation": 1, "resourceSliceCount": 1},
        )
        for name in MANY_NODES
    ]
    return cluster_context(*slices, nodes=MANY_NODES, **more)


def test_equal_nodes_are_counted_together() -> None:
    finding = only(claim(example_request(count=2)), equal_nodes())

    assert finding.reasons == ("7 nodes: only 1 suitable device, 2 requested",)


def test_equal_nodes_in_use_are_counted_together() -> None:
    results = [
        {"request": "gpu", "driver": EXAMPLE, "pool": name, "device": "gpu-0"}
        for name in MANY_NODES
    ]
    holder = {
        **allocated_claim("gpu-0"),
        "status": {"allocation": {"devices": {"results": results}}},
    }

    finding = only(claim(example_request()), equal_nodes(current_claims=(holder,)))

    assert finding.reasons == ("7 nodes: 1/1 devices in use",)


def test_the_message_names_the_policy_that_decides() -> None:
    apart = cluster_context(NODE_A, policies=MODES)
    aligned = claim(
        example_request(IS_LARGE),
        example_request(f"!({IS_LARGE})", name="small"),
        constraints=[SAME_ROOT],
    )
    by_pool = MODES[0] | {
        "spec": MODES[0]["spec"] | {"scope": "Physical", "physicalAttributes": ["root"]}
    }

    message = only(claim(*aligned["spec"]["devices"]["requests"]), apart).message
    constrained = only(aligned, cluster_context(NODE_A, policies=(by_pool,)))

    assert message.endswith("compatible modes under DeviceCompatibilityPolicy validated")
    assert constrained.message == (
        "no node can ever satisfy the constraints under DeviceCompatibilityPolicy validated"
    )
    assert "drop matchAttribute" in constrained.fix


def test_the_message_names_no_policy_that_does_not_decide() -> None:
    elsewhere = claim(example_request(count=3), constraints=[SAME_ROOT])

    message = only(elsewhere, cluster_context(NODE_A, policies=MODES)).message

    assert "DeviceCompatibilityPolicy" not in message
