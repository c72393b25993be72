"""Claims, pods and clusters for verdicts about the inventory: infeasible claims, and pending ones."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from allocator.cluster.cluster import Cluster
from allocator.compatibility.compile import compile_policy
from allocator.model.feature_gates import Features
from allocator.search.attempt import AllocatorOptions
from kube.api.core import Node
from kube.api.meta import ObjectMeta, convert
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import ResourceClaim, ResourceSlice
from rules.context.context import Context
from rules.context.inventory import Inventory
from rules.feasibility.idle_cluster import IdleCluster
from testing.documents import (
    EXAMPLE,
    Document,
    attributes,
    cel,
    claim,
    device,
    exactly,
    first,
    policy,
    resource_slice,
    sub,
    template,
)
from testing.rule_cases import NAMESPACE, pod
from testing.rule_contexts import CLASSES

REQUESTS = "spec.devices.requests"
EXACT = f"{REQUESTS}[0].exactly"
_FIRST = f"{REQUESTS}[0].firstAvailable"
SAME_ROOT = {"matchAttribute": f"{EXAMPLE}/root"}
IS_LARGE = f'device.attributes["{EXAMPLE}"].model == "large"'
IS_SHARED = "device.allowMultipleAllocations == true"
_HUGE = f'device.attributes["{EXAMPLE}"].model == "huge"'
_FIT = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("100Gi")) >= 0'


def gpu(name: str, memory: str = "40Gi", **values: Any) -> Document:
    attributes_ = attributes(model="small", root=name[-1]) | attributes(**values) if values else {}
    return device(name, capacity={"memory": {"value": memory}}, **attributes_)


SHARED: Document = {
    "name": "shared",
    "allowMultipleAllocations": True,
    "capacity": {
        "memory": {
            "value": "40Gi",
            "requestPolicy": {
                "default": "1Gi",
                "validRange": {"min": "1Gi", "step": "3Gi", "max": "37Gi"},
            },
        }
    },
    **attributes(model="shared", root="s"),
}
NODE_A = resource_slice(
    gpu("gpu-0", model="small", root="x"),
    gpu("gpu-1", "80Gi", model="large", root="x"),
    gpu("gpu-2", "80Gi", model="large", root="y"),
    gpu("gpu-3", model="small", root="y"),
)
NODE_B = resource_slice(
    SHARED,
    name="node-b",
    nodeName="node-b",
    pool={"name": "node-b", "generation": 1, "resourceSliceCount": 1},
)


def cluster_context(
    *slices: Document,
    policies: tuple[Document, ...] = (),
    features: Features = Features(),  # noqa: B008 - a frozen value
    current_claims: tuple[Document, ...] = (),
    nodes: tuple[str, ...] = ("node-a", "node-b"),
    **more: Any,
) -> Context:
    """A cluster with slices and the classes of the tables, with its allocations and idle."""
    typed_slices = [convert(slice_, ResourceSlice) for slice_ in slices]
    there = [Node(metadata=ObjectMeta(name=name)) for name in nodes]
    classes = {class_.metadata.name: class_ for class_ in CLASSES}
    typed_policies = tuple(convert(policy, DeviceCompatibilityPolicy) for policy in policies)
    rules = AllocatorOptions(features=features, policies=tuple(map(compile_policy, typed_policies)))
    fields: dict[str, Any] = {
        "classes": classes,
        "inventory": Inventory(typed_slices),
        "policies": typed_policies,
        "features": features,
        "idle_cluster": IdleCluster(slices=typed_slices, nodes=there, classes=classes, rules=rules),
        "current_cluster": Cluster(
            slices=typed_slices,
            nodes=there,
            claims=[convert(claim_, ResourceClaim) for claim_ in current_claims],
            classes=classes,
            options=rules,
        ),
        "applied_together": True,
    }
    return Context(**fields | more)


def example_request(*expressions: str, name: str = "gpu", **fields: Any) -> Document:
    selectors = (
        {"selectors": [cel(expression) for expression in expressions]} if expressions else {}
    )
    return exactly(name, deviceClassName=EXAMPLE, **selectors, **fields)


def memory(amount: str) -> Document:
    return {"requests": {"memory": amount}}


def allocated_claim(*names: str) -> Document:
    """A claim with allocated devices of the first node."""
    results = [
        {"request": "gpu", "driver": EXAMPLE, "pool": "node-a", "device": name} for name in names
    ]
    return {
        **claim(example_request(count=len(names))),
        "metadata": {"name": "holder", "namespace": "team-b"},
        "status": {"allocation": {"devices": {"results": results}}},
    }


CLUSTER = cluster_context(NODE_A, NODE_B)
MODES = (
    policy(
        {
            "name": "large-alone",
            "selectors": [cel(IS_LARGE)],
            "compatibleOnlyWith": cel(IS_LARGE),
        },
        {"name": "others", "selectors": [cel("true")], "compatibleOnlyWith": cel("true")},
    ),
)
MODES[0]["spec"] |= {"scope": "Pool"}


class Case(NamedTuple):
    name: str
    document: Document
    expected_findings: tuple[str, ...] = ()
    context: Context = CLUSTER


INFEASIBLE = (
    Case("all devices of a node", claim(example_request(count=4))),
    Case(
        "a count above every node",
        claim(example_request(count=5)),
        (f"error exceedsLargestNode {EXACT}.count",),
    ),
    Case(
        "a count of a model above every node",
        claim(example_request(IS_LARGE, count=3)),
        (f"error exceedsLargestNode {EXACT}.count",),
    ),
    Case(
        "a count of a template",
        template(example_request(count=5)),
        (f"error exceedsLargestNode spec.{EXACT}.count",),
    ),
    Case("the largest amount", claim(example_request(capacity=memory("80Gi")))),
    Case(
        "an amount above the largest device",
        claim(example_request(capacity=memory("100Gi"))),
        (f"error exceedsLargestDevice {EXACT}.capacity.requests[memory]",),
    ),
    Case(
        "an amount above the largest device of a model",
        claim(example_request('device.attributes["gpu.example.com"].model == "small"', capacity=memory("50Gi"))),
        (f"error exceedsLargestDevice {EXACT}.capacity.requests[memory]",),
    ),
    Case(
        "an amount in a selector that no device matches",
        claim(example_request(_FIT)),
        (f"warning selectorMatchesNothing {EXACT}.selectors",),
    ),
    Case(
        "a count of devices with an amount above every node",
        claim(example_request(count=3, capacity=memory("50Gi"))),
        (f"error exceedsLargestNode {EXACT}.count",),
    ),
    Case("an amount that is rounded up within the policy", claim(example_request(IS_SHARED, capacity=memory("36Gi")))),
    Case(
        "an amount that is rounded up beyond the policy",
        claim(example_request(IS_SHARED, capacity=memory("39Gi"))),
        (f"error outsideRequestPolicy {EXACT}.capacity.requests[memory]",),
    ),
    Case("two devices of one root", claim(example_request(count=2), constraints=[SAME_ROOT])),
    Case(
        "three devices of one root",
        claim(example_request(count=3), constraints=[SAME_ROOT]),
        ("error unsatisfiableConstraint spec.devices.constraints[0]",),
    ),
    Case(
        "constraints that are unsatisfiable only together",
        claim(example_request(count=3), constraints=[SAME_ROOT, {"distinctAttribute": f"{EXAMPLE}/root"}]),
        ("error unsatisfiableConstraint spec.devices.constraints",),
    ),
    Case(
        "two requests that are infeasible only together",
        claim(example_request(count=3), example_request(name="more", count=2)),
        (f"error jointlyInfeasible {REQUESTS}",),
    ),
    Case(
        "two infeasible requests of one claim",
        claim(example_request(count=5), example_request(name="more", capacity=memory("100Gi"))),
        (
            f"error exceedsLargestDevice {REQUESTS}[1].exactly.capacity.requests[memory]",
            f"error exceedsLargestNode {EXACT}.count",
        ),
    ),
    Case(
        "compatible modes",
        claim(example_request(IS_LARGE, count=2)),
        (),
        cluster_context(NODE_A, policies=MODES),
    ),
    Case(
        "incompatible modes",
        claim(example_request(IS_LARGE), example_request(f"!({IS_LARGE})", name="small")),
        (f"error incompatibleModes {REQUESTS}",),
        cluster_context(NODE_A, policies=MODES),
    ),
    Case(
        "alternatives with a feasible one",
        claim(first(sub("many", deviceClassName=EXAMPLE, count=9), sub("one", deviceClassName=EXAMPLE))),
    ),
    Case(
        "alternatives without a feasible one",
        claim(
            first(
                sub("many", deviceClassName=EXAMPLE, count=9),
                sub("large", deviceClassName=EXAMPLE, capacity=memory("100Gi")),
            )
        ),
        (
            f"error exceedsLargestDevice {_FIRST}[1].capacity.requests[memory]",
            f"error exceedsLargestNode {_FIRST}[0].count",
        ),
    ),
    Case(
        "alternatives with an unpublished one",
        claim(
            first(
                sub("many", deviceClassName=EXAMPLE, count=9),
                sub("huge", deviceClassName=EXAMPLE, selectors=[cel(_HUGE)]),
            )
        ),
        (f"warning exceedsLargestNode {_FIRST}[0].count",),
    ),
    Case(
        "an allocated claim",
        {**claim(example_request(count=5)), "status": {"allocation": {"devices": {}}}},
    ),
    Case("too many requests", claim(*[example_request(name=f"r{i}") for i in range(33)]), ("error tooManyRequests spec.devices.requests", "error tooManyDevices spec.devices.requests")),
    Case(
        "devices for a missing node",
        claim(example_request(IS_LARGE)),
        (f"warning noUsableDevice {EXACT}",),
        cluster_context(
            resource_slice(
                {**gpu("gpu-0", model="small", root="x"), "nodeName": "node-a"},
                {**gpu("gpu-1", model="large", root="x"), "nodeName": "other"},
                perDeviceNodeSelection=True,
            )
        ),
    ),
    Case("a missing class", claim(exactly(deviceClassName="x.example.com", count=9))),
    Case("an unknown inventory", claim(example_request(count=5)), (), Context()),
)  # fmt: skip


def devices_by_name(**documents: Document) -> Mapping[tuple[str, str], Any]:
    return {
        (NAMESPACE, name): convert(document, ResourceClaim).spec.devices
        for name, document in documents.items()
    }


CLAIMS: dict[str, Any] = {
    "claims": devices_by_name(
        three=claim(example_request(count=3)), five=claim(example_request(count=5))
    ),
    "templates": devices_by_name(
        two=claim(example_request(count=2)), five=claim(example_request(count=5))
    ),
}
WITH_CLAIMS = cluster_context(NODE_A, NODE_B, **CLAIMS)
_BY_NAME = "spec.resourceClaims[0].resourceClaimName"
_BY_TEMPLATE = "spec.resourceClaims[0].resourceClaimTemplateName"


def claim_entry(name: str) -> Document:
    return {"name": f"use-{name}", "resourceClaimName": name}


def template_entry(name: str, entry: str = "made") -> Document:
    return {"name": entry, "resourceClaimTemplateName": name}


PODS = (
    Case("a feasible claim", pod(claim_entry("three")), (), WITH_CLAIMS),
    Case(
        "an infeasible claim",
        pod(claim_entry("five")),
        (f"error exceedsLargestNode {_BY_NAME}",),
        WITH_CLAIMS,
    ),
    Case(
        "an infeasible template",
        pod(template_entry("five")),
        (f"error exceedsLargestNode {_BY_TEMPLATE}",),
        WITH_CLAIMS,
    ),
    Case(
        "two claims that are infeasible only together",
        pod(claim_entry("three"), template_entry("two")),
        ("error jointlyInfeasible spec.resourceClaims",),
        WITH_CLAIMS,
    ),
    Case(
        "one template twice",
        pod(template_entry("two", "a"), template_entry("two", "b")),
        (),
        WITH_CLAIMS,
    ),
    Case(
        "one template three times",
        pod(template_entry("two", "a"), template_entry("two", "b"), template_entry("two", "c")),
        ("error jointlyInfeasible spec.resourceClaims",),
        WITH_CLAIMS,
    ),
    Case(
        "one claim twice",
        pod(claim_entry("three"), {**claim_entry("three"), "name": "b"}),
        (),
        WITH_CLAIMS,
    ),
    Case("an unknown claim", pod(claim_entry("other")), (), WITH_CLAIMS),
    Case(
        "an allocated claim",
        pod(claim_entry("five")),
        (),
        cluster_context(
            NODE_A, NODE_B, **CLAIMS, allocated_claims={(NAMESPACE, "five"): frozenset({EXAMPLE})}
        ),
    ),
    Case(
        "a scheduled pod",
        {
            **pod(claim_entry("five")),
            "spec": {**pod(claim_entry("five"))["spec"], "nodeName": "node-a"},
        },
        (),
        WITH_CLAIMS,
    ),
)
MAPPED: dict[str, Any] = {"extended_resources": {"example.com/gpu": EXAMPLE}}
_TOO_MANY = pod(limits={"example.com/gpu": "5"})


def with_nodes(allocatable: Mapping[str, str] | None) -> Context:
    """Two nodes; the second has these allocatable resources."""
    empty = convert({"metadata": {"name": "node-a"}, "status": {"allocatable": {"cpu": "1"}}}, Node)
    status = {} if allocatable is None else {"allocatable": allocatable}
    node = convert({"metadata": {"name": "node-b"}, "status": status}, Node)
    there = cluster_context(NODE_A, **MAPPED)
    assert there.idle_cluster is not None
    there.idle_cluster.replace_node("node-a", empty)
    there.idle_cluster.replace_node("node-b", node)
    return there


_LIMIT = "spec.containers[0].resources.limits[example.com/gpu]"
EXTENDED = (
    Case("a feasible number", pod(limits={"example.com/gpu": "4"}), (), with_nodes({})),
    Case(
        "more than a node has",
        _TOO_MANY,
        (f"error exceedsLargestNode {_LIMIT}",),
        with_nodes({}),
    ),
    Case("a node with a device plugin", _TOO_MANY, (), with_nodes({"example.com/gpu": "8"})),
    Case(
        "more than a device plugin and the class have on one node",
        _TOO_MANY,
        (f"warning exceedsLargestNode {_LIMIT}",),
        with_nodes({"example.com/gpu": "3"}),
    ),
    Case(
        "a device plugin without devices",
        _TOO_MANY,
        (f"error exceedsLargestNode {_LIMIT}",),
        with_nodes({"example.com/gpu": "0"}),
    ),
    Case("a node without status.allocatable", _TOO_MANY, (), with_nodes(None)),
    Case(
        "another scheduler",
        {**_TOO_MANY, "spec": {**_TOO_MANY["spec"], "schedulerName": "other"}},
        (),
        with_nodes({}),
    ),
    Case("an unmapped resource", pod(limits={"example.com/nic": "5"}), (), with_nodes({})),
)
BUSY = cluster_context(NODE_A, NODE_B, current_claims=(allocated_claim("gpu-0", "gpu-1", "gpu-2"),))
_TAINTED = resource_slice(
    *[
        device | {"taints": [{"key": "ill", "effect": "NoSchedule"}]}
        for device in NODE_A["spec"]["devices"]
    ]
)
PENDING = (
    Case("free devices", claim(example_request()), (), BUSY),
    Case("devices in use", claim(example_request(count=2)), ("warning doesNotFitNow spec.devices",), BUSY),
    Case(
        "devices in use, of a template",
        template(example_request(count=2)),
        ("warning doesNotFitNow spec.spec.devices",),
        BUSY,
    ),
    Case(
        "an infeasible claim is reported once",
        claim(example_request(count=5)),
        (f"error exceedsLargestNode {EXACT}.count",),
        BUSY,
    ),
    Case(
        "tainted devices",
        claim(example_request()),
        ("warning doesNotFitNow spec.devices",),
        cluster_context(_TAINTED),
    ),
    Case("tolerated devices", claim(example_request(tolerations=[{"operator": "Exists"}])), (), cluster_context(_TAINTED)),
    Case(
        "claims of a pod",
        pod(template_entry("two")),
        (f"warning doesNotFitNow {_BY_TEMPLATE}",),
        cluster_context(NODE_A, NODE_B, **CLAIMS, current_claims=(allocated_claim("gpu-0", "gpu-1", "gpu-2"),)),
    ),
)  # fmt: skip
