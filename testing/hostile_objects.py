"""Objects that are stored with everything the API server lets through: long, deep, many, odd."""

from collections.abc import Iterator
from typing import Any, Final

from testing.documents import Document, api_object

HAMI: Final = "hami-core-gpu.project-hami.io"
DRA: Final = "resource.k8s.io/v1"
DRIVER: Final = "hostile.example.com"
CLASS: Final = "hostile"
NODE: Final = "hostile-node"
TERMINAL: Final = "\x1b[2J\x1b]0;owned\x07\u202egnp\u2066\x9b31m\n::error::\r\n" + "A" * 200
"""Clears a terminal, names its window, turns text around, begins a command of CI."""
SCREAM: Final = {"story": TERMINAL, "long": "x" * 100_000}
PATTERN: Final = r"(?i)(\\pL|.){0,700}c"
BEYOND_INT64: Final = "99999999999999999999999"
LONG_NAME: Final = ".".join(["a" * 63] * 3 + ["b" * 61])
MANY: Final = 10_000
DEPTH: Final = 800


def cluster_objects() -> Iterator[Document]:
    """Yield objects without a namespace."""
    yield api_object("Node", NODE, annotations=SCREAM)
    yield device_class(CLASS, [f'device.driver == "{DRIVER}"'])
    yield device_class("hostile-bombs", bombs(), config=deep(DEPTH))
    yield device_class(LONG_NAME, ["true"])
    for number in range(10):
        yield published(f"hostile-{number}", DRIVER, number)
    yield published("hostile-hami", HAMI, 0, typed_wrongly=True)
    yield api_object(
        "DeviceTaintRule",
        "hostile",
        annotations=SCREAM,
        spec={
            "deviceSelector": {"driver": DRIVER},
            "taint": {"key": "hostile.example.com/a", "value": "b", "effect": "NoSchedule"},
        },
    )
    yield policy("hostile", [f'device.attributes["{DRIVER}"].text.matches("{PATTERN}")', *bombs()])
    yield policy("hostile-nothing", ["true"] * 16)
    yield policy(LONG_NAME, ["false"])


def ownership() -> Document:
    """Return an ownership of as many drivers as one may have, all of them unknown."""
    names = [f"{'a' * 55}{number:02}.b" for number in range(64)]
    return api_object(
        "AllocatorOwnership",
        "default",
        annotations=SCREAM,
        spec={
            "drivers": [
                {"name": name, **({"pools": hostile_pools()} if number < 4 else {})}
                for number, name in enumerate(names)
            ]
        },
    )


def hostile_pools() -> list[Document]:
    """Return as many pools of nodes as a driver may have, each as costly to compare as possible."""
    values = [f"v{number}" for number in range(64)]
    expressions = [
        {"key": f"example.com/k{number}", "operator": "NotIn", "values": values}
        for number in range(16)
    ]
    return [
        {
            "name": f"pool-{number}",
            "nodeSelector": {"matchExpressions": expressions, "matchLabels": {"no": "where"}},
            "defaultStrategy": "BestFit",
        }
        for number in range(16)
    ]


def namespaced_objects() -> Iterator[Document]:
    """Yield objects of a namespace."""
    many = {f"count/hostiles{number}.example.com": "1" for number in range(MANY)}
    yield quota("many", many)
    yield quota("huge", {"requests.example.com/gpu": BEYOND_INT64, "requests.nvidia.com/a": "9E"})
    yield limit_range("many", {f"example.com/k{number}": "1" for number in range(2000)})
    yield api_object(
        "ConfigMap",
        "many",
        annotations=SCREAM,
        data={f"key-{number}": TERMINAL for number in range(2000)},
    )
    for name, spec in claim_specs().items():
        head = {"metadata": {"name": name, "annotations": SCREAM}, "apiVersion": DRA}
        yield {**head, "kind": "ResourceClaim", "spec": spec}
        yield {**head, "kind": "ResourceClaimTemplate", "spec": {"spec": spec}}
        yield waiting_pod(name)
    # The last one: it gives every further pod an amount that the API server refuses.
    yield limit_range("huge", {"nvidia.com/gpux": BEYOND_INT64})


def waiting_pod(template: str) -> Document:
    """Return a pod with a claim of a template."""
    claims = [{"name": "device", "resourceClaimTemplateName": template}]
    container = {"name": "main", "image": "registry.internal/app:1"}
    return api_object(
        "Pod",
        f"waits-{template[:40]}",
        annotations=SCREAM,
        spec={"containers": [container], "resourceClaims": claims},
    )


def claim_specs() -> dict[str, Any]:
    """Return name to spec of claims."""
    named = {f"r{number}": number for number in range(32)}
    return {
        "plain": {"devices": {"requests": [request("r", CLASS)]}},
        "bombs": {"devices": {"requests": [request("r", CLASS, bombs())]}},
        "regex": {
            "devices": {
                "requests": [
                    request(
                        "r", CLASS, [f'device.attributes["{DRIVER}"].text.matches("{PATTERN}")']
                    )
                ]
            }
        },
        "many": {
            "devices": {
                "requests": [request(name, CLASS, ["true"] * 32) for name in named],
                "constraints": [{"matchAttribute": f"{DRIVER}/text"}] * 32,
                "config": [configuration(deep(DEPTH)) for _ in range(8)],
            }
        },
        "beyond": {
            "devices": {
                "requests": [
                    request(
                        "r", CLASS, count=2**63 - 1, capacity={"requests": {"memory": BEYOND_INT64}}
                    )
                ]
            }
        },
        LONG_NAME: {"devices": {"requests": [request("r", LONG_NAME)]}},
    }


def request(
    name: str, device_class_: str, selectors: list[str] | None = None, **more: Any
) -> Document:
    """Return a request of a claim."""
    listed = [{"cel": {"expression": expression}} for expression in selectors or ()]
    return {
        "name": name,
        "exactly": {"deviceClassName": device_class_, "selectors": listed, **more},
    }


def bombs() -> list[str]:
    """Return expressions at the bounds of depth, length and cost."""
    text = f'device.attributes["{DRIVER}"].text'
    return [
        "!" * 200 + "true",
        "(" * 90 + "true" + ")" * 90,
        " || ".join(f'device.driver == "{number}"' for number in range(150)),
        f'{text}.replace("a", "aaaaaaaaaa").replace("a", "aaaaaaaaaa").size() > 0',
        "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3].all(c, a + b + c > 0)))",
        f'{text} == "{"é" * 500}"',
        'device.attributes["no.example.com"].nothing == 1',
        f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{BEYOND_INT64}")) > 0',
    ]


def deep(depth: int) -> Any:
    """Return JSON that nests, as deep as the encoder of this process can write."""
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def configuration(parameters: Any) -> Document:
    """Return a configuration with parameters of a driver that is known."""
    return {"opaque": {"driver": HAMI, "parameters": parameters}}


def device_class(name: str, selectors: list[str], config: Any = None) -> Document:
    """Return a DeviceClass."""
    spec: Document = {"selectors": [{"cel": {"expression": selector}} for selector in selectors]}
    if config is not None:
        spec["config"] = [configuration(config)]
    return api_object("DeviceClass", name, annotations=SCREAM, spec=spec)


def published(name: str, driver: str, number: int, *, typed_wrongly: bool = False) -> Document:
    """Return a ResourceSlice as full as one may be."""
    text = {"string": (f"a{number}" + TERMINAL).encode()[:64].decode(errors="ignore")}
    attributes: Document = {f"text{index}": text for index in range(14)} | {
        "text": text,
        "number": {"int": 2**63 - 1},
    }
    if typed_wrongly:
        attributes = {"productName": {"int": -(2**63)}, "uuid": {"bool": True}, "type": {"int": 0}}
    devices = [
        {
            "name": f"d{index}",
            "attributes": attributes,
            "capacity": {"memory": {"value": BEYOND_INT64}, "cores": {"value": "1e3"}},
        }
        for index in range(128)
    ]
    pool = {"name": name, "generation": 2**63 - 1, "resourceSliceCount": 2**31}
    return api_object(
        "ResourceSlice",
        name,
        annotations=SCREAM,
        spec={"driver": driver, "nodeName": NODE, "pool": pool, "devices": devices},
    )


def policy(name: str, selectors: list[str]) -> Document:
    """Return a DeviceCompatibilityPolicy."""
    rules = [
        {
            "name": f"rule-{number}",
            "selectors": [{"cel": {"expression": expression}}],
            "compatibleOnlyWith": {"cel": {"expression": expression}},
        }
        for number, expression in enumerate(selectors)
    ]
    return api_object(
        "DeviceCompatibilityPolicy",
        name,
        annotations=SCREAM,
        spec={"driver": DRIVER, "rules": rules},
    )


def quota(name: str, hard: dict[str, str]) -> Document:
    """Return a ResourceQuota."""
    return api_object("ResourceQuota", name, annotations=SCREAM, spec={"hard": hard})


def limit_range(name: str, maxima: dict[str, str]) -> Document:
    """Return a LimitRange."""
    limits = [{"type": "Container", "max": maxima, "default": maxima, "defaultRequest": maxima}]
    return api_object("LimitRange", name, annotations=SCREAM, spec={"limits": limits})
