"""Kinds of shortage, one node, driver and class each, so that none is in another's way.

Each row is a node with its devices, a pod that has to go there, and the words that its event must
have. The rows are read by `test_validate_observer`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from e2e import inventory, objects
from testing.documents import api_object

Object = dict[str, Any]

LABEL: Final = "drawbridge.example.com/shortage"
GI: Final = 2**30


class Shortage(NamedTuple):
    """One kind.

    Attributes:
        name: The name of the kind, as a sentence.
        slug: The name of node, class and pod; the driver is `<slug>.example.com`.
        words: All of them are in the event.
        devices: The devices that the node publishes.
        claim: The spec's `devices` of the pod's claim; one device of the class where nothing is said.
        held: Claims of pods that run already, likewise.
        slices: Fields of each slice's spec.
        more: Further claims of the pod, likewise.
        pod: Fields of the pod's spec.
        node: Fields of the node's spec.
        extra: Further objects.
        since: The first minor version that has what is needed.
        needed: The gates of that version that it needs.
    """

    name: str
    slug: str
    words: Sequence[str]
    devices: Sequence[Object] = ()
    claim: Object | None = None
    held: Sequence[Object] = ()
    more: Sequence[Object] = ()
    slices: Mapping[str, Any] = {}
    pod: Mapping[str, Any] = {}
    node: Mapping[str, Any] = {}
    extra: Sequence[Object] = ()
    since: int = 34
    needed: str = ""

    @property
    def driver(self) -> str:
        """Of the node's devices."""
        return driver(self.slug)


# --- short forms ----------------------------------------------------------------------------------


def driver(slug: str) -> str:
    """The driver of a kind."""
    return f"{slug}.example.com"


def gpu(name: str = "gpu-0", *, memory: str = "", **attributes: str | int | bool) -> Object:
    """A device with plain attributes."""
    kinds = {str: "string", bool: "bool", int: "int"}
    device: Object = {"name": name}
    if attributes:
        device["attributes"] = {
            key: {kinds[type(value)]: value} for key, value in attributes.items()
        }
    if memory:
        device["capacity"] = {"memory": {"value": memory}}
    return device


def shared(name: str = "gpu-0", memory: str = "40Gi", **policy: Any) -> Object:
    """A device that is handed out in shares."""
    capacity = {"value": memory, "requestPolicy": policy} if policy else {"value": memory}
    return {"name": name, "allowMultipleAllocations": True, "capacity": {"memory": capacity}}


def partition(name: str, counter_set: str, memory: str) -> Object:
    """A device that takes memory of a counter set."""
    takes = {"counterSet": counter_set, "counters": {"memory": {"value": memory}}}
    return {"name": name, "consumesCounters": [takes]}


def asks(slug: str, name: str = "gpu", **fields: Any) -> Object:
    """A request of the kind's class."""
    return {"name": name, "exactly": {"deviceClassName": slug, **fields}}


def where(slug: str, expression: str, **fields: Any) -> Object:
    """A request with a selector; A and C stand for the driver's attributes and capacity."""
    domain = f'["{driver(slug)}"]'
    text = expression.replace("A.", f"device.attributes{domain}.")
    text = text.replace("C.", f"device.capacity{domain}.")
    return asks(slug, selectors=[{"cel": {"expression": text}}], **fields)


def requests(*entries: Object, **fields: Any) -> Object:
    """The `devices` of a claim."""
    return {"requests": list(entries), **fields}


def memory(amount: str) -> Object:
    """The capacity that a request takes of a share."""
    return {"requests": {"memory": amount}}


def same(slug: str, attribute: str, **fields: Any) -> Object:
    return {"matchAttribute": f"{driver(slug)}/{attribute}", **fields}


def _taint_rule(slug: str) -> Object:
    taint = {"key": "example.com/serviced", "value": "yes", "effect": "NoSchedule"}
    return api_object(
        "DeviceTaintRule", slug, spec={"deviceSelector": {"driver": driver(slug)}, "taint": taint}
    )


TAINT_RULES_SINCE: Final = 37
"""The first minor version that serves DeviceTaintRules of resource.k8s.io/v1."""
TWO: Final = (gpu("gpu-0"), gpu("gpu-1"))
ILL: Final = {"key": "example.com/ill", "effect": "NoSchedule"}
RANGE: Final[Mapping[str, Any]] = {
    "default": "1Gi",
    "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"},
}
VALUES: Final[Mapping[str, Any]] = {"default": "1Gi", "validValues": ["1Gi", "8Gi"]}
_WHOLE: Final = {"attributes": {"whole": {"bool": True}}}
COUNTERS: Final = [{"name": "card-0", "counters": {"memory": {"value": "40Gi"}}}]


SHORTAGES: Final = (
    Shortage("nothing is published", "nothing", ["1 node: no device of class nothing"]),
    Shortage("the class does not exist", "noclass", ["nowhere"], TWO, requests(asks("nowhere"))),
    Shortage("fewer devices than asked for", "few", ["3"], TWO, requests(asks("few", count=3))),
    Shortage("all devices are held", "taken", ["1/1 devices in use"], [gpu()], held=[requests(asks("taken"))]),
    Shortage("some are held", "busy", ["in use"], TWO, requests(asks("busy", count=2)), [requests(asks("busy"))]),
    Shortage("another model", "model", ["model"], [gpu(model="T4")], requests(where("model", 'A.model == "A100"'))),
    Shortage("one of several models", "models", ["model"], [gpu(model="T4")],
             requests(where("models", 'A.model in ["A100", "H100"]'))),
    Shortage("too little memory", "small", ["16Gi", "40Gi"], [gpu(memory="16Gi")],
             requests(where("small", 'C.memory.compareTo(quantity("40Gi")) >= 0'))),
    Shortage("two kinds of device, each lacking something else", "each", ["model", "16Gi"],
             [gpu("gpu-0", model="T4", memory="80Gi"), gpu("gpu-1", model="A100", memory="16Gi")],
             requests(where("each", 'A.model == "A100" && C.memory.compareTo(quantity("40Gi")) >= 0'))),
    Shortage("a number is too small", "number", ["cores"], [gpu(cores=8)], requests(where("number", "A.cores >= 16"))),
    Shortage("an attribute that nobody publishes", "absent", ["color"], TWO,
             requests(where("absent", 'A.color == "red"'))),
    Shortage("another driver's devices", "foreign", ["driver"], TWO,
             requests(where("foreign", 'device.driver == "other.example.com"'))),
    Shortage("a capacity that nobody publishes", "nocapacity", ["tokens"], [shared()],
             requests(asks("nocapacity", capacity={"requests": {"tokens": "1"}}))),
    Shortage("a share above the largest", "above", ["8Gi"], [shared(memory="40Gi", **RANGE)],
             requests(asks("above", capacity=memory("9Gi")))),
    Shortage("a share above each valid one", "values", ["8Gi"], [shared(memory="40Gi", **VALUES)],
             requests(asks("values", capacity=memory("9Gi")))),
    Shortage("too little is left to share", "shares", ["memory"], [shared(memory="8Gi", **RANGE)],
             requests(asks("shares", capacity=memory("6Gi"))), [requests(asks("shares", capacity=memory("4Gi")))]),
    Shortage("the hardware under a partition is in use", "counters", ["memory"],
             [partition("half", "card-0", "20Gi"), {**partition("whole", "card-0", "40Gi"), **_WHOLE}],
             requests(where("counters", "A.?whole.orValue(false)")),
             [requests(where("counters", "!A.?whole.orValue(false)"))],
             since=35, needed="counters in slices of their own"),
    Shortage("a device is tainted", "ill", ["example.com/ill"], [{**gpu(), "taints": [ILL]}]),
    Shortage("a rule taints devices", "serviced", ["example.com/serviced"], [gpu()], extra=[_taint_rule("serviced")],
             since=TAINT_RULES_SINCE, needed="DeviceTaintRule of resource.k8s.io/v1"),
    Shortage("no two devices are alike", "alike", ["root"], [gpu("gpu-0", root="a"), gpu("gpu-1", root="b")],
             requests(asks("alike", count=2), constraints=[same("alike", "root")])),
    Shortage("requests cannot be near each other", "near", ["root"],
             [gpu("gpu-0", root="a", kind="gpu"), gpu("nic-0", root="b", kind="nic")],
             requests(where("near", 'A.kind == "gpu"'), {**where("near", 'A.kind == "nic"'), "name": "nic"},
                      constraints=[same("near", "root", requests=["gpu", "nic"])])),
    Shortage("no device has what must be the same", "noroot", ["root"], TWO,
             requests(asks("noroot", count=2), constraints=[same("noroot", "root")])),
    Shortage("no two devices differ", "differ", ["root"], [gpu("gpu-0", root="a"), gpu("gpu-1", root="a")],
             requests(asks("differ", count=2),
                      constraints=[{"distinctAttribute": f"{driver('differ')}/root"}]),
             since=35, needed="a comparison of values for distinctAttribute"),
    Shortage("all are wanted, one is held", "all", ["in use"], TWO, requests(asks("all", allocationMode="All")),
             [requests(asks("all"))]),
    Shortage("all are wanted, none matches", "none", ["model"], [gpu(model="T4")],
             requests(where("none", 'A.model == "A100"', allocationMode="All"))),
    Shortage("a pool is half published", "half", ["incomplete"], TWO, slices={"resourceSliceCount": 2},
             since=35, needed="a scheduler that leaves out incomplete pools"),
    Shortage("none of the alternatives", "first", ["gpu/large", "gpu/small"], [gpu(memory="8Gi")],
             requests({"name": "gpu", "firstAvailable": [
                 {"name": "large", "deviceClassName": "first", "count": 4},
                 {"name": "small", "deviceClassName": "first", "count": 2}]})),
    Shortage("two requests want one device", "compete", ["requests"], [gpu()],
             requests(asks("compete", "a"), asks("compete", "b"))),
    Shortage("two claims want one device", "claims", ["claim"], [gpu()], more=[requests(asks("claims"))]),
    Shortage("the node has a taint", "tainted", ["Devices are free on node lack-tainted, but untolerated taint example.com/mine=yes:NoSchedule"], [gpu()],
             node={"taints": [{"key": "example.com/mine", "value": "yes", "effect": "NoSchedule"}]}),
    Shortage("the node is cordoned", "cordoned", ["Devices are free on node lack-cordoned, but node is unschedulable"], [gpu()],
             node={"unschedulable": True}),
    Shortage("no node has the label", "label", ["nodeSelector requires example.com/zone=mars"], [gpu()],
             pod={"nodeSelector": {"example.com/zone": "mars"}}),
    Shortage("the affinity selects other nodes", "affinity", ["required node affinity needs example.com/zone In [mars]"], [gpu()],
             pod={"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                 "nodeSelectorTerms": [{"matchExpressions": [
                     {"key": "example.com/zone", "operator": "In", "values": ["mars"]}]}]}}}}),
    Shortage("the devices are for other nodes", "elsewhere", ["1 node: no device of class elsewhere"], [gpu()],
             slices={"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
                 {"key": "example.com/rack", "operator": "In", "values": ["7"]}]}]}}),
    Shortage("the claim does not exist", "noclaim", ["ResourceClaim "], [gpu()],
             pod={"resourceClaims": [{"name": "gpu", "resourceClaimName": "forgotten"}]}),
    Shortage("the template does not exist", "notemplate", ["ResourceClaimTemplate "], [gpu()],
             pod={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "forgotten"}]}),
    Shortage("an extended resource of a class", "extended", ["in use"], [gpu()], requests(), [requests(asks("extended"))]),
)  # fmt: skip


# --- objects --------------------------------------------------------------------------------------


def inventory_of(shortage: Shortage) -> Iterator[Object]:
    """The class and the slices of a kind, and its other objects."""
    expression = f'device.driver == "{shortage.driver}"'
    spec: Object = {"selectors": [{"cel": {"expression": expression}}]}
    if shortage.slug == "extended":
        spec["extendedResourceName"] = "example.com/extended"
    yield api_object("DeviceClass", shortage.slug, spec=spec)
    yield from shortage.extra
    if not shortage.devices:
        return
    (resource_slice,) = inventory.resource_slices(
        shortage.driver, node_name(shortage), shortage.devices
    )
    over = dict(shortage.slices)
    resource_slice["spec"]["pool"] |= {"resourceSliceCount": over.pop("resourceSliceCount", 1)}
    if "nodeSelector" in over:
        del resource_slice["spec"]["nodeName"]
    resource_slice["spec"] |= over
    if shortage.slug == "counters":
        counted = inventory.resource_slices(shortage.driver, node_name(shortage), [])[0]
        counted["metadata"]["name"] += "-counters"
        counted["spec"] |= {"sharedCounters": COUNTERS}
        del counted["spec"]["devices"]
        for slice_ in (resource_slice, counted):
            slice_["spec"]["pool"]["resourceSliceCount"] = 2
        yield counted
    yield resource_slice


def node_of(shortage: Shortage) -> Object:
    """The node of a kind."""
    node = inventory.kwok_node(node_name(shortage))
    node["metadata"]["labels"][LABEL] = shortage.slug
    return {**node, "spec": dict(shortage.node)} if shortage.node else node


def node_name(shortage: Shortage) -> str:
    """Of the node of a kind."""
    return f"lack-{shortage.slug}"


def holders_of(shortage: Shortage) -> Iterator[Object]:
    """Pods that hold devices of a kind, with their templates."""
    for number, devices in enumerate(shortage.held):
        name = f"holder-{shortage.slug}-{number}"
        yield _template(name, devices)
        yield objects.pod(name, claims={"gpu": name}, nodeSelector={LABEL: shortage.slug})


def waiting_of(shortage: Shortage) -> Iterator[Object]:
    """The pod of a kind that finds no place, with its templates."""
    claims: dict[str, str] = {}
    limits: dict[str, str | int] = {}
    if shortage.slug == "extended":
        limits = {"example.com/extended": 1}
    else:
        claim = shortage.claim or requests(asks(shortage.slug))
        for number, devices in enumerate((claim, *shortage.more)):
            name = f"{shortage.slug}-{number}"
            claims["gpu" if not number else f"gpu-{number}"] = name
            yield _template(name, devices)
    spec = {"nodeSelector": {LABEL: shortage.slug}, **shortage.pod}
    yield objects.pod(shortage.slug, claims=claims, limits=limits, **spec)


def _template(name: str, devices: Object) -> Object:
    return api_object("ResourceClaimTemplate", name, spec={"spec": {"devices": devices}})
