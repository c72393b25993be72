"""What can never fit, what does not fit now, and when that is an error."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import pytest

from allocator.cluster import Cluster
from allocator.core.model import Features
from allocator.core.problem import Rules
from allocator.core.rules import compiled
from kube.api.core import Node
from kube.api.meta import ObjectMeta, view
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import ResourceClaim, ResourceSlice
from kube.product import ENFORCEMENT_LABEL
from kube.quantity import Quantity
from tests.webhook.rules.cases import (
    EXAMPLE,
    NAMESPACE,
    Document,
    attributes,
    cel,
    claim,
    device,
    exactly,
    first,
    found,
    pod,
    policy,
    resource_slice,
    sub,
    template,
    told,
)
from tests.webhook.rules.contexts import CLASSES
from webhook.findings import Finding
from webhook.rules.context import Context
from webhook.rules.emptied import Emptied
from webhook.rules.enforcement import Configured, Enforcement
from webhook.rules.inventory import Inventory
from webhook.rules.mark import Mark, Seen

_REQUESTS = "spec.devices.requests"
_EXACT = f"{_REQUESTS}[0].exactly"
_FIRST = f"{_REQUESTS}[0].firstAvailable"
_ROOT = {"matchAttribute": f"{EXAMPLE}/root"}
_IS_LARGE = f'device.attributes["{EXAMPLE}"].model == "large"'
_IS_SHARED = "device.allowMultipleAllocations == true"
_HUGE = f'device.attributes["{EXAMPLE}"].model == "huge"'
_FIT = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("100Gi")) >= 0'


def gpu(name: str, memory: str = "40Gi", **values: Any) -> Document:
    found = attributes(model="small", root=name[-1]) | attributes(**values) if values else {}
    return device(name, capacity={"memory": {"value": memory}}, **found)


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


def place(
    *slices: Document,
    policies: tuple[Document, ...] = (),
    held: tuple[Document, ...] = (),
    nodes: tuple[str, ...] = ("node-a", "node-b"),
    **more: Any,
) -> Context:
    """A cluster with these slices and the classes of the tables, seen as it is and emptied."""
    published = [view(each, ResourceSlice) for each in slices]
    there = [Node(metadata=ObjectMeta(name=name)) for name in nodes]
    classes = {one.metadata.name: one for one in CLASSES}
    named = tuple(view(each, DeviceCompatibilityPolicy) for each in policies)
    rules = Rules(features=Features(), policies=tuple(map(compiled, named)))
    fields: dict[str, Any] = {
        "classes": classes,
        "inventory": Inventory(published),
        "policies": named,
        "emptied": Emptied(slices=published, nodes=there, classes=classes, rules=rules),
        "present": Cluster(
            slices=published,
            nodes=there,
            claims=[view(each, ResourceClaim) for each in held],
            classes=classes,
            rules=rules,
        ),
        "is_settled": True,
    }
    return Context(**fields | more)


def asking(*expressions: str, name: str = "gpu", **fields: Any) -> Document:
    selectors = {"selectors": [cel(each) for each in expressions]} if expressions else {}
    return exactly(name, deviceClassName=EXAMPLE, **selectors, **fields)


def memory(amount: str) -> Document:
    return {"requests": {"memory": amount}}


def taken(*names: str) -> Document:
    """A claim that has devices of the first node."""
    results = [
        {"request": "gpu", "driver": EXAMPLE, "pool": "node-a", "device": name} for name in names
    ]
    return {
        **claim(asking(count=len(names))),
        "metadata": {"name": "holder", "namespace": "team-b"},
        "status": {"allocation": {"devices": {"results": results}}},
    }


CLUSTER = place(NODE_A, NODE_B)
MODES = (
    policy(
        {
            "name": "large-alone",
            "selectors": [cel(_IS_LARGE)],
            "compatibleOnlyWith": cel(_IS_LARGE),
        },
        {"name": "others", "selectors": [cel("true")], "compatibleOnlyWith": cel("true")},
    ),
)
MODES[0]["spec"] |= {"scope": "Pool"}


# --- what is told ---------------------------------------------------------------------------------


class Case(NamedTuple):
    name: str
    document: Document
    told: tuple[str, ...] = ()
    there: Context = CLUSTER


NEVER = (
    Case("all devices of a node", claim(asking(count=4))),
    Case(
        "a count that no node has",
        claim(asking(count=5)),
        (f"error moreThanAnyNode {_EXACT}.count",),
    ),
    Case(
        "a count of a model that no node has so often",
        claim(asking(_IS_LARGE, count=3)),
        (f"error moreThanAnyNode {_EXACT}.count",),
    ),
    Case(
        "a count of a template",
        template(asking(count=5)),
        (f"error moreThanAnyNode spec.{_EXACT}.count",),
    ),
    Case("the largest amount", claim(asking(capacity=memory("80Gi")))),
    Case(
        "an amount above the largest device",
        claim(asking(capacity=memory("100Gi"))),
        (f"error moreThanAnyDevice {_EXACT}.capacity.requests[memory]",),
    ),
    Case(
        "an amount above the largest device of a model",
        claim(asking('device.attributes["gpu.example.com"].model == "small"', capacity=memory("50Gi"))),
        (f"error moreThanAnyDevice {_EXACT}.capacity.requests[memory]",),
    ),
    Case(
        "an amount in a selector that no device satisfies",
        claim(asking(_FIT)),
        (f"warning selectorMatchesNothing {_EXACT}.selectors",),
    ),
    Case(
        "as many devices of an amount as no node has",
        claim(asking(count=3, capacity=memory("50Gi"))),
        (f"error moreThanAnyNode {_EXACT}.count",),
    ),
    Case("an amount that is rounded up within the policy", claim(asking(_IS_SHARED, capacity=memory("36Gi")))),
    Case(
        "an amount that is rounded up beyond the policy",
        claim(asking(_IS_SHARED, capacity=memory("39Gi"))),
        (f"error outsideRequestPolicy {_EXACT}.capacity.requests[memory]",),
    ),
    Case("two devices of one root", claim(asking(count=2), constraints=[_ROOT])),
    Case(
        "three devices of one root",
        claim(asking(count=3), constraints=[_ROOT]),
        ("error constraintNeverMet spec.devices.constraints[0]",),
    ),
    Case(
        "constraints that only together cannot be met",
        claim(asking(count=3), constraints=[_ROOT, {"distinctAttribute": f"{EXAMPLE}/root"}]),
        ("error constraintNeverMet spec.devices.constraints",),
    ),
    Case(
        "two requests that no node can meet together",
        claim(asking(count=3), asking(name="more", count=2)),
        (f"error neverTogether {_REQUESTS}",),
    ),
    Case(
        "two faults of one claim",
        claim(asking(count=5), asking(name="more", capacity=memory("100Gi"))),
        (
            f"error moreThanAnyDevice {_REQUESTS}[1].exactly.capacity.requests[memory]",
            f"error moreThanAnyNode {_EXACT}.count",
        ),
    ),
    Case(
        "modes that go together",
        claim(asking(_IS_LARGE, count=2)),
        (),
        place(NODE_A, policies=MODES),
    ),
    Case(
        "modes that exclude each other",
        claim(asking(_IS_LARGE), asking(f"!({_IS_LARGE})", name="small")),
        (f"error modesExclude {_REQUESTS}",),
        place(NODE_A, policies=MODES),
    ),
    Case(
        "alternatives of which one fits",
        claim(first(sub("many", deviceClassName=EXAMPLE, count=9), sub("one", deviceClassName=EXAMPLE))),
    ),
    Case(
        "alternatives of which none fits",
        claim(
            first(
                sub("many", deviceClassName=EXAMPLE, count=9),
                sub("large", deviceClassName=EXAMPLE, capacity=memory("100Gi")),
            )
        ),
        (
            f"error moreThanAnyDevice {_FIRST}[1].capacity.requests[memory]",
            f"error moreThanAnyNode {_FIRST}[0].count",
        ),
    ),
    Case(
        "alternatives of which one may come",
        claim(
            first(
                sub("many", deviceClassName=EXAMPLE, count=9),
                sub("huge", deviceClassName=EXAMPLE, selectors=[cel(_HUGE)]),
            )
        ),
        (f"warning moreThanAnyNode {_FIRST}[0].count",),
    ),
    Case(
        "a claim that has its devices",
        {**claim(asking(count=5)), "status": {"allocation": {"devices": {}}}},
    ),
    Case("more requests than a claim may have", claim(*[asking(name=f"r{i}") for i in range(33)]), ("error tooManyRequests spec.devices.requests", "error tooManyDevices spec.devices.requests")),
    Case(
        "devices for a node that is not here",
        claim(asking(_IS_LARGE)),
        (f"warning neverUsable {_EXACT}",),
        place(
            resource_slice(
                {**gpu("gpu-0", model="small", root="x"), "nodeName": "node-a"},
                {**gpu("gpu-1", model="large", root="x"), "nodeName": "other"},
                perDeviceNodeSelection=True,
            )
        ),
    ),
    Case("a class that is not there", claim(exactly(deviceClassName="x.example.com", count=9))),
    Case("nothing is known of the inventory", claim(asking(count=5)), (), Context()),
)  # fmt: skip


@pytest.mark.parametrize("case", NEVER, ids=lambda case: case.name)
def test_never(case: Case) -> None:
    assert case.told == told(case.document, case.there)


def test_the_message_names_the_reason_of_each_device_and_the_fix_what_would_fit() -> None:
    finding = only(claim(asking(capacity=memory("100Gi"))))

    assert finding.message == (
        'memory 100Gi is more than the 80Gi of the largest device of class "gpu.example.com"'
        " (1 node: 1 of 1 device: memory 100Gi above the maximum 37Gi;"
        " 1 node: 2 of 4 devices: memory 40Gi below 100Gi; 2: memory 80Gi below 100Gi)"
    )
    assert finding.fix == "memory 80Gi instead of 100Gi would fit node node-a"


def test_the_message_says_what_an_amount_is_rounded_to() -> None:
    finding = only(claim(asking(_IS_SHARED, capacity=memory("39Gi"))))

    assert "memory 39Gi, which is rounded up to 40Gi, is outside the policy" in finding.message
    assert finding.fix == "memory 37Gi instead of 39Gi would fit node node-b"


def test_what_would_take_too_long_is_told() -> None:
    padded = f'device.driver == "{EXAMPLE}"' + " " * 5000

    (finding,) = found(claim(asking(padded, count=5)), CLUSTER)
    assert (finding.code, finding.fix) == ("moreThanAnyNode", "")
    assert "warning notJudged spec.devices" in told(claim(asking(padded, padded, padded)), CLUSTER)


def only(document: Document, there: Context = CLUSTER) -> Finding:
    (finding,) = found(document, there)
    return finding


# --- pods and workloads ---------------------------------------------------------------------------


def asked_by(**documents: Document) -> Mapping[tuple[str, str], Any]:
    return {
        (NAMESPACE, name): view(each, ResourceClaim).spec.devices
        for name, each in documents.items()
    }


CLAIMS: dict[str, Any] = {
    "claims": asked_by(three=claim(asking(count=3)), five=claim(asking(count=5))),
    "templates": asked_by(two=claim(asking(count=2)), five=claim(asking(count=5))),
}
WITH_CLAIMS = place(NODE_A, NODE_B, **CLAIMS)
_BY_NAME = "spec.resourceClaims[0].resourceClaimName"
_BY_TEMPLATE = "spec.resourceClaims[0].resourceClaimTemplateName"


def using(name: str) -> Document:
    return {"name": f"use-{name}", "resourceClaimName": name}


def making(name: str, entry: str = "made") -> Document:
    return {"name": entry, "resourceClaimTemplateName": name}


PODS = (
    Case("a claim that fits", pod(using("three")), (), WITH_CLAIMS),
    Case(
        "a claim that never fits",
        pod(using("five")),
        (f"error moreThanAnyNode {_BY_NAME}",),
        WITH_CLAIMS,
    ),
    Case(
        "a template that never fits",
        pod(making("five")),
        (f"error moreThanAnyNode {_BY_TEMPLATE}",),
        WITH_CLAIMS,
    ),
    Case(
        "claims of which each fits, and both never",
        pod(using("three"), making("two")),
        ("error neverTogether spec.resourceClaims",),
        WITH_CLAIMS,
    ),
    Case(
        "one template twice",
        pod(making("two", "a"), making("two", "b")),
        (),
        WITH_CLAIMS,
    ),
    Case(
        "one template three times",
        pod(making("two", "a"), making("two", "b"), making("two", "c")),
        ("error neverTogether spec.resourceClaims",),
        WITH_CLAIMS,
    ),
    Case("one claim twice", pod(using("three"), {**using("three"), "name": "b"}), (), WITH_CLAIMS),
    Case("a claim that is not known", pod(using("other")), (), WITH_CLAIMS),
    Case(
        "a claim that has its devices",
        pod(using("five")),
        (),
        place(NODE_A, NODE_B, **CLAIMS, allocated=frozenset({(NAMESPACE, "five")})),
    ),
    Case(
        "a pod that has its node",
        {**pod(using("five")), "spec": {**pod(using("five"))["spec"], "nodeName": "node-a"}},
        (),
        WITH_CLAIMS,
    ),
)


@pytest.mark.parametrize("case", PODS, ids=lambda case: case.name)
def test_pods(case: Case) -> None:
    assert case.told == told(case.document, case.there)


MAPPED: dict[str, Any] = {"extended_resources": {"example.com/gpu": EXAMPLE}}
_TOO_MANY = pod(limits={"example.com/gpu": "5"})


def with_nodes(allocatable: Mapping[str, str] | None) -> Context:
    """Nodes of which the second tells what it offers besides devices."""
    empty = view({"metadata": {"name": "node-a"}, "status": {"allocatable": {"cpu": "1"}}}, Node)
    status = {} if allocatable is None else {"allocatable": allocatable}
    node = view({"metadata": {"name": "node-b"}, "status": status}, Node)
    there = place(NODE_A, **MAPPED)
    assert there.emptied is not None
    there.emptied.replace_node("node-a", empty)
    there.emptied.replace_node("node-b", node)
    return there


EXTENDED = (
    Case("as many as a node has", pod(limits={"example.com/gpu": "4"}), (), with_nodes({})),
    Case(
        "more than a node has",
        _TOO_MANY,
        ("error moreThanAnyNode spec.containers",),
        with_nodes({}),
    ),
    Case(
        "a node that offers some by a plugin", _TOO_MANY, (), with_nodes({"example.com/gpu": "8"})
    ),
    Case(
        "a plugin that has gone",
        _TOO_MANY,
        ("error moreThanAnyNode spec.containers",),
        with_nodes({"example.com/gpu": "0"}),
    ),
    Case("a node that does not tell", _TOO_MANY, (), with_nodes(None)),
    Case(
        "another scheduler",
        {**_TOO_MANY, "spec": {**_TOO_MANY["spec"], "schedulerName": "other"}},
        (),
        with_nodes({}),
    ),
    Case("a resource that no class maps", pod(limits={"example.com/nic": "5"}), (), with_nodes({})),
)


@pytest.mark.parametrize("case", EXTENDED, ids=lambda case: case.name)
def test_extended_resources(case: Case) -> None:
    assert case.told == told(case.document, case.there)


def test_a_pod_says_where_in_its_claim_the_reason_is() -> None:
    assert only(pod(making("five")), WITH_CLAIMS).message.startswith(
        "requests[0].exactly.count: count 5 is more than the 4 "
    )


# --- when it is an error --------------------------------------------------------------------------

MANY = claim(asking(count=5))
_INCOMPLETE: Document = {
    **NODE_A,
    "spec": {**NODE_A["spec"], "pool": {**NODE_A["spec"]["pool"], "resourceSliceCount": 2}},
}
_TWICE = resource_slice(gpu("gpu-0"), gpu("gpu-0"), name="twice", nodeName="node-b",
                        pool={"name": "node-b", "generation": 1, "resourceSliceCount": 1})  # fmt: skip
_ELSEWHERE = resource_slice(gpu("gpu-9"), name="gone", nodeName="gone",
                            pool={"name": "gone", "generation": 1, "resourceSliceCount": 1})  # fmt: skip


def labelled(value: str, **more: Any) -> Context:
    return place(NODE_A, namespaces={NAMESPACE: {ENFORCEMENT_LABEL: value}}, **more)


def once(**most: Any) -> Context:
    seen = Seen(**{"nodes": 1, "devices": 4, "on_one_node": 4} | most)
    return place(NODE_A, mark=Mark(classes={EXAMPLE: {EXAMPLE: seen}}))


class Doubt(NamedTuple):
    """Attributes: why: The end of the message; empty for an error."""

    name: str
    why: str
    there: Context


DOUBTS = (
    Doubt("an inventory that is proof", "", place(NODE_A)),
    Doubt("an incomplete pool", f"pool node-a of driver {EXAMPLE} is incomplete", place(_INCOMPLETE)),
    Doubt(
        "a pool at odds with itself",
        f"pool node-b of driver {EXAMPLE} is invalid: duplicate device name gpu-0",
        place(NODE_A, _TWICE),
    ),
    Doubt(
        "slices of a node that is not here",
        f"pool gone of driver {EXAMPLE} is for nodes that are not here",
        place(NODE_A, _ELSEWHERE),
    ),
    Doubt("as much as there ever was", "", once()),
    Doubt(
        "fewer nodes than there were",
        f"class {EXAMPLE} had 2 nodes with devices of {EXAMPLE} and has 1 now",
        once(nodes=2),
    ),
    Doubt(
        "fewer devices than there were",
        f"class {EXAMPLE} had 8 devices of {EXAMPLE} and has 4 now",
        once(devices=8),
    ),
    Doubt(
        "smaller nodes than there were",
        f"class {EXAMPLE} had 8 devices of {EXAMPLE} on one node and has 4 now",
        once(on_one_node=8),
    ),
    Doubt(
        "smaller devices than there were",
        f"class {EXAMPLE} had a device of {EXAMPLE} with memory 96Gi",
        once(capacity={"memory": Quantity("96Gi")}),
    ),
    Doubt("an autoscaler", "Karpenter may add nodes", place(NODE_A, growers={"Karpenter"})),
    Doubt("a namespace that denies", "", labelled("deny")),
    Doubt("a namespace that warns", "the namespace wants to be warned", labelled("warn")),
    Doubt(
        "a cluster that warns",
        "the cluster is configured to warn",
        place(NODE_A, configured=Configured(cluster=Enforcement.WARN)),
    ),
    Doubt(
        "a cluster that warns, and a namespace that denies",
        "",
        labelled("deny", configured=Configured(cluster=Enforcement.WARN)),
    ),
    Doubt(
        "a driver that warns, and a namespace that denies",
        f"driver {EXAMPLE} is configured to warn",
        labelled("deny", configured=Configured(drivers={EXAMPLE: Enforcement.WARN})),
    ),
    Doubt(
        "another driver that warns",
        "",
        place(NODE_A, configured=Configured(drivers={"x.example.com": Enforcement.WARN})),
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", DOUBTS, ids=lambda case: case.name)
def test_a_denial_needs_proof(case: Doubt) -> None:
    finding = only(MANY, case.there)

    said, _, details = finding.message.partition(" (")
    assert case.why == said.partition("; only a warning, since ")[2]
    assert details.startswith("1 node: ")
    assert finding.severity == ("warning" if case.why else "error")


@pytest.mark.parametrize("configured", [{"cluster": "off"}, {"drivers": {EXAMPLE: "off"}}])
def test_nothing_is_said_where_that_is_configured(configured: dict[str, Any]) -> None:
    there = place(NODE_A, configured=msgspec.convert(configured, Configured))

    assert told(MANY, there) == ()


def test_a_capacity_that_nobody_publishes_is_an_error_only_with_proof() -> None:
    document = claim(asking(capacity={"requests": {"cores": "1"}}))

    assert only(document, place(NODE_A)).severity == "error"
    assert only(document, place(NODE_A, growers={"Karpenter"})).message.endswith(
        'publishes a capacity "cores"; only a warning, since Karpenter may add nodes'
    )


def test_what_a_controller_made_is_only_warned_of() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "controller": True}
    document = pod(making("five"))
    document["metadata"] |= {"ownerReferences": [owner]}

    finding = only(document, WITH_CLAIMS)

    assert finding.severity == "warning"
    assert finding.message.endswith("only a warning, since a controller made it")


def test_a_driver_without_slices_is_only_warned_of() -> None:
    document = claim(exactly(deviceClassName="nobody.example.com", count=99))

    assert not [one for one in found(document, CLUSTER) if one.code == "moreThanAnyNode"]


def test_a_search_without_an_end_is_told_and_not_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.rules.room.MAX_STEPS", 0)
    there = place(NODE_A)

    assert told(claim(asking(count=3), constraints=[_ROOT]), there) == (
        "warning notJudged spec.devices",
    )


def test_what_is_told_of_a_claim_names_the_claim_and_not_the_pods_name_for_it() -> None:
    finding = only(pod({**using("three"), "name": "gpus"}, making("two")), WITH_CLAIMS)

    assert "claim team-a/three" in finding.fix
    assert "gpus" not in finding.fix


def test_all_of_devices_that_do_not_go_together() -> None:
    finding = only(claim(asking(count=None, allocationMode="All")), place(NODE_A, policies=MODES))

    assert finding.code == "neverUsable"
    assert finding.message.startswith(f"no node can give all of its selected devices of {EXAMPLE}")


# --- now ------------------------------------------------------------------------------------------

BUSY = place(NODE_A, NODE_B, held=(taken("gpu-0", "gpu-1", "gpu-2"),))
_TAINTED = resource_slice(
    *[
        each | {"taints": [{"key": "ill", "effect": "NoSchedule"}]}
        for each in NODE_A["spec"]["devices"]
    ]
)
NOW = (
    Case("what is free", claim(asking()), (), BUSY),
    Case("what is in use", claim(asking(count=2)), ("warning doesNotFitNow spec.devices",), BUSY),
    Case(
        "what is in use, of a template",
        template(asking(count=2)),
        ("warning doesNotFitNow spec.spec.devices",),
        BUSY,
    ),
    Case(
        "what could never be is not told twice",
        claim(asking(count=5)),
        (f"error moreThanAnyNode {_EXACT}.count",),
        BUSY,
    ),
    Case(
        "what is tainted",
        claim(asking()),
        ("warning doesNotFitNow spec.devices",),
        place(_TAINTED),
    ),
    Case("what is tainted and tolerated", claim(asking(tolerations=[{"operator": "Exists"}])), (), place(_TAINTED)),
    Case(
        "claims of a pod",
        pod(making("two")),
        (f"warning doesNotFitNow {_BY_TEMPLATE}",),
        place(NODE_A, NODE_B, **CLAIMS, held=(taken("gpu-0", "gpu-1", "gpu-2"),)),
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", NOW, ids=lambda case: case.name)
def test_now(case: Case) -> None:
    assert case.told == told(case.document, case.there)


def test_what_would_fit_now_is_the_fix() -> None:
    finding = only(claim(asking(count=2)), BUSY)

    assert finding.fix == "count 1 instead of 2 would fit node node-a"
    assert "3 of 4 devices: taken" in finding.message


# --- many nodes -----------------------------------------------------------------------------------

MANY_NODES = tuple(f"node-{number}" for number in range(7))


def crowd(**more: Any) -> Context:
    """As many nodes that are alike, each with one device of its own pool."""
    slices = [
        resource_slice(
            gpu("gpu-0"),
            name=name,
            nodeName=name,
            pool={"name": name, "generation": 1, "resourceSliceCount": 1},
        )
        for name in MANY_NODES
    ]
    return place(*slices, nodes=MANY_NODES, **more)


def test_nodes_that_are_alike_are_counted_together() -> None:
    finding = only(claim(asking(count=2)), crowd())

    assert "(7 nodes: 1 would do, 2 are needed)" in finding.message


def test_nodes_that_are_alike_are_counted_together_as_they_are_used() -> None:
    held = [
        {"request": "gpu", "driver": EXAMPLE, "pool": name, "device": "gpu-0"}
        for name in MANY_NODES
    ]
    holder = {**taken("gpu-0"), "status": {"allocation": {"devices": {"results": held}}}}

    finding = only(claim(asking()), crowd(held=(holder,)))

    assert finding.message.endswith("(7 nodes: 1 of 1 device: taken)")
