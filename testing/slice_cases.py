"""ResourceSlices that kube-apiserver 1.37.1 accepts or rejects: one table for rules and for a server.

tests/rules/data/slices.json has the verdicts of a real API server, which e2e/test_validate_slices.py
records and compares.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from testing.documents import Document, api_object, device, resource_slice

VERDICTS: Final = Path(__file__).parent.parent / "tests" / "rules" / "data" / "slices.json"
GATES: Final = (
    "DRADeviceCompatibilityGroups",
    "DRAFractionalCapacityRange",
    "DRAListTypeAttributes",
    "DRAOptionalNodeOperations",
)
"""Feature gates that change the validation of slices, off by default."""


class SliceCase(NamedTuple):
    """Attributes: gated: Validated with the feature gates of `GATES`."""

    name: str
    document: Document
    is_gated: bool = False


class Verdict(msgspec.Struct, frozen=True):
    """The verdict of an API server; the fields that it rejects, sorted."""

    accepted: bool
    fields: tuple[str, ...] = ()


def recorded_verdicts() -> dict[str, Verdict]:
    """Return the recorded verdicts by name of the case."""
    return msgspec.json.decode(VERDICTS.read_bytes(), type=dict[str, Verdict])


def record_verdicts(verdicts: Mapping[str, Verdict]) -> None:
    """Write verdicts beside those of other cases."""
    recorded = recorded_verdicts() if VERDICTS.exists() else {}
    names = [case.name for case in SLICES]
    all_verdicts = {
        name: verdict for name, verdict in (recorded | dict(verdicts)).items() if name in names
    }
    in_order = {name: all_verdicts[name] for name in sorted(all_verdicts, key=names.index)}
    VERDICTS.write_bytes(msgspec.json.format(msgspec.json.encode(in_order), indent=1) + b"\n")


def shared(policy: Any, value: str = "8", **fields: Any) -> Document:
    """A slice with a shared device, and the request policy of its only capacity."""
    capacity = {"memory": {"value": value, "requestPolicy": policy}}
    return resource_slice(device(allowMultipleAllocations=True, capacity=capacity, **fields))


def range_policy(default: str = "2", **bounds: str) -> Document:
    return {"default": default, "validRange": bounds}


def value_policy(*values: str, default: str | None = None) -> Document:
    return {"validValues": list(values)} | ({} if default is None else {"default": default})


def attribute(name: str = "model", **value: Any) -> Document:
    return resource_slice(device(attributes={name: value or {"int": 1}}))


def capacity(name: str) -> Document:
    return resource_slice(device(capacity={name: {"value": "1"}}))


def counter_set(name: str = "set", *counters: str) -> Document:
    return {"name": name, "counters": {counter: {"value": "1"} for counter in counters or ("m",)}}


def counters(*sets: Document) -> Document:
    return resource_slice(sharedCounters=list(sets))


def consuming(*sets: Document, count: int = 1) -> Document:
    consumptions = [
        {"counterSet": counter_set["name"], "counters": counter_set["counters"]}
        | {key: value for key, value in counter_set.items() if key == "compatibilityGroups"}
        for counter_set in sets
    ]
    return resource_slice(
        *(device(f"gpu-{number}", consumesCounters=consumptions) for number in range(count))
    )


def grouped_document(*groups: str) -> Document:
    return consuming({**counter_set(), "compatibilityGroups": list(groups)})


def tainted_document(count: int = 1, **taint: str) -> Document:
    taint = {"key": "example.com/ill", "effect": "NoSchedule", **taint}
    return resource_slice(device(taints=[taint] * count))


def devices(number: int, **fields: Any) -> Document:
    return resource_slice(*(device(f"gpu-{index}", **fields) for index in range(number)))


def on_nodes(*terms: Any) -> Document:
    return resource_slice(device(), nodeSelector={"nodeSelectorTerms": list(terms)})


def expression(operator: str = "In", *values: str, key: str = "zone") -> Document:
    requirement = {"key": key, "operator": operator} | ({"values": list(values)} if values else {})
    return {"matchExpressions": [requirement]}


def node_field(key: str, operator: str, *values: str) -> Document:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


def per_device(**fields: Any) -> Document:
    return resource_slice(device(**fields), perDeviceNodeSelection=True)


def with_spec(**fields: Any) -> Document:
    """A slice with other fields; None removes a field."""
    document = resource_slice(device())
    spec = {**document["spec"], **fields}
    return {**document, "spec": {name: value for name, value in spec.items() if value is not None}}


def in_pool(**fields: Any) -> Document:
    return with_spec(pool={"name": "node-a", "generation": 1, "resourceSliceCount": 1} | fields)


def binding(conditions: list[str] | None, failures: list[str] | None) -> Document:
    fields = {"bindingConditions": conditions, "bindingFailureConditions": failures}
    return resource_slice({**device(), **{key: value for key, value in fields.items() if value}})


def named_document(name: str) -> Document:
    return {**resource_slice(device()), "metadata": {"name": name}}


_LONG: Final = "a" * 64
_UNSORTED: Final = "4"
_BINDING: Final = "example.com/attached"
_FAILURE: Final = "example.com/failed"
_MANY: Final = [f"example.com/c{number}" for number in range(5)]
_ELEVEN: Final = [str(number) for number in range(1, 12)]

NAMES: Final = (
    SliceCase("a slice", resource_slice(device())),
    SliceCase("no devices", with_spec(devices=None)),
    SliceCase("an empty list of devices", with_spec(devices=[])),
    SliceCase("a name of a slice with upper case", named_document("Node-A")),
    SliceCase("a name of a slice with dots", named_document("node-a.gpu.example.com")),
    SliceCase("a device with dots", resource_slice(device("gpu-0-mig-1g.5gb-0"))),
    SliceCase("a device with upper case", resource_slice(device("GPU-0"))),
    SliceCase("a device with an underscore", resource_slice(device("gpu_0"))),
    SliceCase("a device without a name", resource_slice(device(""))),
    SliceCase("a device of 63 characters", resource_slice(device(_LONG[:63]))),
    SliceCase("a device of 64 characters", resource_slice(device(_LONG))),
    SliceCase("a device that ends with a dash", resource_slice(device("gpu-"))),
    SliceCase("two devices of one name", resource_slice(device(), device())),
    SliceCase("a driver with upper case", with_spec(driver="GPU.example.com")),
    SliceCase("a driver with an underscore", with_spec(driver="gpu_driver")),
    SliceCase("a driver of 64 characters", with_spec(driver=_LONG)),
    SliceCase("no driver", with_spec(driver="")),
    SliceCase("a pool with slashes", in_pool(name="rack-1/node-a")),
    SliceCase("a pool with an empty part", in_pool(name="rack-1//node-a")),
    SliceCase("a pool with upper case", in_pool(name="Node-A")),
    SliceCase("a pool without a name", in_pool(name="")),
    SliceCase("a node with an underscore", with_spec(nodeName="node_a")),
    SliceCase("an attribute with a domain", attribute("gpu.example.com/model")),
    SliceCase("an attribute with upper case", attribute("productName")),
    SliceCase("an attribute with a dash", attribute("product-name")),
    SliceCase("an attribute that begins with a digit", attribute("1g")),
    SliceCase("an attribute of 33 characters", attribute("a" * 33)),
    SliceCase("an attribute with an empty domain", attribute("/model")),
    SliceCase("an attribute with an empty name", attribute("gpu.example.com/")),
    SliceCase("an attribute with a bad domain", attribute("gpu_example/model")),
    SliceCase("an attribute with several slashes", attribute("a.example.com/b/c")),
    SliceCase("a capacity with a dash", capacity("gpu-memory")),
    SliceCase("a capacity with a domain", capacity("gpu.example.com/memory")),
)

VALUES: Final = (
    SliceCase("an attribute without a value", resource_slice(device(attributes={"model": {}}))),
    SliceCase("an attribute with two values", attribute(int=1, string="a")),
    SliceCase("a string of 64 bytes", attribute(string=_LONG)),
    SliceCase("a string of 65 bytes", attribute(string=_LONG + "a")),
    SliceCase("a string of 33 umlauts", attribute(string="ä" * 33)),
    SliceCase("a version", attribute(version="1.2.3-rc.1+build")),
    SliceCase("a version with a v", attribute(version="v1.2.3")),
    SliceCase("a version of two numbers", attribute(version="1.2")),
    SliceCase("a version with a leading zero", attribute(version="01.2.3")),
    SliceCase("a list without its gate", attribute(ints=[1])),
    SliceCase("a list", attribute(ints=[1]), is_gated=True),
    SliceCase("an empty list", attribute(ints=[]), is_gated=True),
    SliceCase("a list beside a value", attribute(ints=[1], int=1), is_gated=True),
    SliceCase("a list with a long string", attribute(strings=[_LONG + "a"]), is_gated=True),
    SliceCase("a list with a bad version", attribute(versions=["1.2.3", "x"]), is_gated=True),
    SliceCase("49 values", attribute(ints=list(range(49))), is_gated=True),
    SliceCase(
        "32 attributes and capacities",
        resource_slice(
            device(
                attributes={f"a{number}": {"int": 1} for number in range(16)},
                capacity={f"c{number}": {"value": "1"} for number in range(16)},
            )
        ),
    ),
    SliceCase(
        "33 attributes and capacities",
        resource_slice(
            device(
                attributes={f"a{number}": {"int": 1} for number in range(17)},
                capacity={f"c{number}": {"value": "1"} for number in range(16)},
            )
        ),
    ),
    SliceCase("128 devices", devices(128)),
    SliceCase("129 devices", devices(129)),
    SliceCase("64 tainted devices", devices(64, taints=[{"key": "k", "effect": "NoSchedule"}])),
    SliceCase("65 tainted devices", devices(65, taints=[{"key": "k", "effect": "NoSchedule"}])),
    SliceCase("65 devices that consume counters", consuming(counter_set(), count=65)),
    SliceCase("65 devices with lists", devices(65, attributes={"a": {"ints": [1]}}), is_gated=True),
    SliceCase("a taint without an effect", tainted_document(effect="")),
    SliceCase("a taint of effect None", tainted_document(effect="None")),
    SliceCase("a taint of an unknown effect", tainted_document(effect="PreferNoSchedule")),
    SliceCase("a taint without a key", tainted_document(key="")),
    SliceCase("a taint with a bad key", tainted_document(key="example.com/not/a/key")),
    SliceCase("a taint with a bad value", tainted_document(value="not a value")),
    SliceCase("16 taints", tainted_document(16)),
    SliceCase("17 taints", tainted_document(17)),
    SliceCase("an amount that is negative", resource_slice(device(capacity={"m": {"value": "-1"}}))),
)  # fmt: skip

PLACES: Final = (
    SliceCase("no node selection", with_spec(nodeName=None)),
    SliceCase("two node selections", with_spec(allNodes=True)),
    SliceCase("an empty node name", with_spec(nodeName="")),
    SliceCase("all nodes, false", with_spec(nodeName=None, allNodes=False)),
    SliceCase("a node name beside all nodes, false", with_spec(allNodes=False)),
    SliceCase("per-device node selection, false", with_spec(perDeviceNodeSelection=False)),
    SliceCase("a node selector", on_nodes(expression("In", "a"))),
    SliceCase("a node selector without a term", on_nodes()),
    SliceCase("a node selector of two terms", on_nodes(expression("In", "a"), expression("In", "b"))),
    SliceCase("a node selector with an empty term", on_nodes({})),
    SliceCase("operator In without values", on_nodes(expression("In"))),
    SliceCase("operator Exists with values", on_nodes(expression("Exists", "a"))),
    SliceCase("operator Gt with an integer", on_nodes(expression("Gt", "5"))),
    SliceCase("operator Gt with a text", on_nodes(expression("Gt", "five"))),
    SliceCase("operator Gt with two values", on_nodes(expression("Gt", "5", "6"))),
    SliceCase("an unknown operator", on_nodes(expression("Near", "a"))),
    SliceCase("a bad label key", on_nodes(expression("Exists", key="not a key"))),
    SliceCase("a bad label value", on_nodes(expression("In", "not a value"))),
    SliceCase("a node field", on_nodes(node_field("metadata.name", "In", "node-a"))),
    SliceCase("an unknown node field", on_nodes(node_field("spec.taints", "In", "node-a"))),
    SliceCase("a node field with two values", on_nodes(node_field("metadata.name", "In", "a", "b"))),
    SliceCase("a node field that exists", on_nodes(node_field("metadata.name", "Exists"))),
    SliceCase("a device of one node", per_device(nodeName="node-a")),
    SliceCase("a device of no node", per_device()),
    SliceCase("a device of two node selections", per_device(nodeName="node-a", allNodes=True)),
    SliceCase("a device with an empty node name", per_device(nodeName="")),
    SliceCase("a device of all nodes, false", per_device(allNodes=False)),
    SliceCase("a device with a bad node selector", per_device(nodeSelector={"nodeSelectorTerms": []})),
    SliceCase("a device with a node in a slice of one node", resource_slice(device(nodeName="node-a"))),
    SliceCase("no number of slices", with_spec(pool={"name": "node-a", "generation": 1})),
    SliceCase("no slices", in_pool(resourceSliceCount=0)),
    SliceCase("a negative generation", in_pool(generation=-1)),
    SliceCase("generation 0", in_pool(generation=0)),
)  # fmt: skip

COUNTERS: Final = (
    SliceCase("counters", counters(counter_set())),
    SliceCase(
        "counters beside devices",
        resource_slice(device(), sharedCounters=[counter_set()]),
    ),
    SliceCase("an empty list of counters beside devices", with_spec(sharedCounters=[])),
    SliceCase("8 counter sets", counters(*(counter_set(f"s{number}") for number in range(8)))),
    SliceCase("9 counter sets", counters(*(counter_set(f"s{number}") for number in range(9)))),
    SliceCase("two counter sets of one name", counters(counter_set(), counter_set())),
    SliceCase("a counter set without a name", counters(counter_set(""))),
    SliceCase("a counter set with dots", counters(counter_set("gpu.0"))),
    SliceCase("a counter set without counters", counters({"name": "set"})),
    SliceCase("a counter with upper case", counters(counter_set("set", "Memory"))),
    SliceCase("32 counters", counters(counter_set("set", *(f"c{n}" for n in range(32))))),
    SliceCase("33 counters", counters(counter_set("set", *(f"c{n}" for n in range(33))))),
    SliceCase("a device that consumes counters", consuming(counter_set())),
    SliceCase("a device that consumes of two sets", consuming(counter_set("a"), counter_set("b"))),
    SliceCase(
        "a device that consumes of three sets",
        consuming(counter_set("a"), counter_set("b"), counter_set("c")),
    ),
    SliceCase("a device that consumes twice of a set", consuming(counter_set(), counter_set())),
    SliceCase("consumption without counters", consuming({"name": "set", "counters": {}})),
    SliceCase("consumption of a bad set", consuming(counter_set("Set"))),
    SliceCase("consumption of a bad counter", consuming(counter_set("set", "a.b"))),
    SliceCase("33 consumed counters", consuming(counter_set("set", *(f"c{n}" for n in range(33))))),
    SliceCase("bad groups without their gate", grouped_document("A", "b", "c")),
    SliceCase("two groups", grouped_document("a", "b"), is_gated=True),
    SliceCase("three groups", grouped_document("a", "b", "c"), is_gated=True),
    SliceCase("a group twice", grouped_document("a", "a"), is_gated=True),
    SliceCase("a group with upper case", grouped_document("MIG"), is_gated=True),
    SliceCase("binding conditions", binding([_BINDING], [_FAILURE])),
    SliceCase("a binding condition without a failure", binding([_BINDING], None)),
    SliceCase("a failure without a binding condition", binding(None, [_FAILURE])),
    SliceCase("one condition for both", binding([_BINDING], [_BINDING])),
    SliceCase("a binding condition twice", binding([_BINDING, _BINDING], [_FAILURE])),
    SliceCase("five binding conditions", binding(_MANY, [_FAILURE])),
    SliceCase("a bad binding condition", binding(["not a key"], [_FAILURE])),
    SliceCase("a skipped preparation", with_spec(skipNodeOperations=["NodePrepareResources"])),
    SliceCase(
        "a skipped preparation, with its gate",
        with_spec(skipNodeOperations=["NodePrepareResources"]),
        is_gated=True,
    ),
    SliceCase("all operations skipped", with_spec(skipNodeOperations=["*"]), is_gated=True),
    SliceCase("an unknown operation", with_spec(skipNodeOperations=["Sleep"]), is_gated=True),
    SliceCase("an operation twice", with_spec(skipNodeOperations=["*", "*"]), is_gated=True),
)

REQUEST_POLICIES: Final = (
    SliceCase("a range", shared(range_policy(min="1", step="1", max="8"))),
    SliceCase("values", shared(value_policy("1", "2", "8", default="2"))),
    SliceCase("a default alone", shared({"default": "2"})),
    SliceCase("an empty policy", shared({})),
    SliceCase("a default above the capacity, alone", shared({"default": "9"})),
    SliceCase(
        "a policy of a device that is not shared",
        resource_slice(
            device(capacity={"m": {"value": "8", "requestPolicy": range_policy(min="1")}})
        ),
    ),
    SliceCase(
        "an empty policy of a device that is not shared",
        resource_slice(device(capacity={"m": {"value": "8", "requestPolicy": {}}})),
    ),
    SliceCase(
        "values and a range", shared({**value_policy("2", default="2"), **range_policy(min="1")})
    ),
    SliceCase("an empty list of values beside a range", shared({"validValues": [], **range_policy(min="1")})),
    SliceCase("values without a default", shared(value_policy("1", "2"))),
    SliceCase("a range without a default", shared({"validRange": {"min": "1"}})),
    SliceCase("values that are not sorted", shared(value_policy("2", _UNSORTED, "3", default="2"))),
    SliceCase("a value above the capacity", shared(value_policy("2", "9", default="2"))),
    SliceCase("a default that is not a value", shared(value_policy("1", "2", default="3"))),
    SliceCase("a value twice", shared(value_policy("2", "2", default="2"))),
    SliceCase("two values of one integer", shared(value_policy("1500m", "2", default="2"))),
    SliceCase("two values of one integer, with its gate", shared(value_policy("1500m", "2", default="2")), is_gated=True),
    SliceCase("ten values", shared(value_policy(*_ELEVEN[:10], default="2"), "20")),
    SliceCase("eleven values", shared(value_policy(*_ELEVEN, default="2"), "20")),
    SliceCase("a range without min", shared(range_policy(max="8"))),
    SliceCase("min above the capacity", shared(range_policy("9", min="9"))),
    SliceCase("min above max", shared(range_policy("2", min="4", max="2"))),
    SliceCase("max above the capacity", shared(range_policy(min="1", max="9"))),
    SliceCase("a default below min", shared(range_policy("1", min="2"))),
    SliceCase("a default above max", shared(range_policy("5", min="1", max="4"))),
    SliceCase("a default above the capacity", shared(range_policy("9", min="1"))),
    SliceCase("a negative min", shared(range_policy(min="-1"))),
    SliceCase("a negative min with a step", shared(range_policy(min="-1", step="1"))),
    SliceCase("a step of 0", shared(range_policy(min="1", step="0"))),
    SliceCase("a negative step", shared(range_policy(min="1", step="-1"))),
    SliceCase("a step above the capacity", shared(range_policy("1", min="1", step="8"))),
    SliceCase("a default off step", shared(range_policy("2", min="1", step="2"))),
    SliceCase("max off step", shared(range_policy("3", min="1", step="2", max="8"))),
    SliceCase("a fraction that is rounded on step", shared(range_policy("1500m", min="1", step="1"))),
    SliceCase("a fraction off step, with its gate", shared(range_policy("1500m", min="1", step="1")), is_gated=True),
    SliceCase("fractions on step", shared(range_policy("1500m", min="1", step="500m")), is_gated=True),
    SliceCase("more than three decimal places", shared(range_policy("2", min="1500u", step="1")), is_gated=True),
    SliceCase("a capacity above int64 with a step", shared(range_policy("10E", min="1", step="1"), "100E")),
    SliceCase("a capacity above int64 without a step", shared(range_policy("10E", min="1"), "100E")),
)  # fmt: skip

SLICES: Final = (*NAMES, *VALUES, *PLACES, *COUNTERS, *REQUEST_POLICIES)


MIXED_LAYOUT: Final[Document] = api_object(
    "ResourceSlice",
    "mixed",
    spec={
        "driver": "gpu.example.com",
        "nodeName": "node-a",
        "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
        "sharedCounters": [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}],
        "devices": [
            {
                "name": "part-0",
                "consumesCounters": [
                    {"counterSet": "gpu-0", "counters": {"memory": {"value": "40Gi"}}}
                ],
            }
        ],
    },
)
"""Devices beside counters, as Kubernetes 1.34 has them, and later versions reject it."""
