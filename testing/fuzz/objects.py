"""Objects of DRA and their users: honest ones to begin with, hostile ones made of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any, Final

from kube.api.policy import API_VERSION as POLICY_VERSION
from kube.api.workloads import VALIDATED_KINDS, pod_path
from kube.manifests.reader import read_paths
from testing.documents import EXAMPLE, NVIDIA, Document, cel
from testing.feasibility_cases import (
    EXTENDED,
    INFEASIBLE,
    PENDING,
    PODS,
    claim_entry,
    example_request,
    template_entry,
)
from testing.fuzz.mutations import AMOUNTS, LIKELY_AMOUNTS, TEXTS, mutate, places_in
from testing.fuzz.reviews import EXAMPLES, Origin, copied, review
from testing.rule_cases import ALL, NAMESPACE, pod

RESOURCES: Final[Mapping[tuple[str, str], str]] = {
    ("resource.k8s.io/v1", "DeviceClass"): "deviceclasses",
    ("resource.k8s.io/v1", "ResourceClaim"): "resourceclaims",
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): "resourceclaimtemplates",
    ("resource.k8s.io/v1", "ResourceSlice"): "deviceclasses",
    (POLICY_VERSION, "DeviceCompatibilityPolicy"): "devicecompatibilitypolicies",
    (POLICY_VERSION, "DeviceQuota"): "devicequotas",
    ("v1", "Pod"): "pods",
    **VALIDATED_KINDS,
}
"""The kinds that are validated, with their names in URLs. A slice can only come under a false name."""

# --- what is asked about --------------------------------------------------------------------------


@cache
def _honest() -> Sequence[Document]:
    """Return an object of every row of the tables, and of every example."""
    rows = [row.document for row in ALL]
    rows += [row.document for row in (*INFEASIBLE, *PENDING, *PODS, *EXTENDED)]
    files = read_paths([str(EXAMPLES)])
    documents = [*rows, *(file.document for file in files)]
    documents += [pod(claim_entry(name)) for name in ("three", "five", "held")]
    documents += [
        pod(template_entry("two", "a"), template_entry("five", "b")),
        pod(template_entry("two"), claim_entry("three")),
    ]
    return [
        document
        for document in documents
        if (document["apiVersion"], document["kind"]) in RESOURCES
    ]


@cache
def _by_kind() -> Mapping[str, Sequence[Document]]:
    kinds = sorted({document["kind"] for document in _honest()})
    return {
        kind: [document for document in _honest() if document["kind"] == kind] for kind in kinds
    }


_WEIGHTS: Final = {"ResourceClaim": 12, "ResourceClaimTemplate": 4, "DeviceClass": 4, "Pod": 4}
"""The weights of the kinds that are validated for more than their pods; 1 for others."""


def object_review(chance: Random, origins: Sequence[Origin]) -> Document:
    """Return a review of an object, mostly hostile."""
    document, old = _draw_object(chance, origins), None
    if chance.random() < 0.8:
        for _ in range(chance.choice((1, 1, 2, 4))):
            _change_request(document, chance)
    if chance.random() < 0.2:
        old = copied(_draw_object(chance, origins)) if chance.random() < 0.5 else copied(document)
    review_ = about(document, old)
    if chance.random() < 0.5:
        mutate({"object": review_["request"]["object"]}, chance, chance.choice((1, 1, 2, 4)))
    if old is not None and chance.random() < 0.5:
        mutate({"old": old}, chance, 1)
    if chance.random() < 0.05:
        mutate(review_, chance, 1)
    return review_


def about(document: Document, old: Document | None = None) -> Document:
    """Return an honest review of an object."""
    version, kind = document["apiVersion"], document["kind"]
    group, _, number = version.rpartition("/")
    return review(
        document,
        old,
        name="validated",
        namespace=NAMESPACE,
        kind={"group": group, "version": number, "kind": kind},
        resource={"group": group, "version": number, "resource": RESOURCES[version, kind]},
    )


def _draw_object(chance: Random, origins: Sequence[Origin]) -> Document:
    documents_by_kind = _by_kind()
    (kind,) = chance.choices(
        list(documents_by_kind), [_WEIGHTS.get(kind_, 1) for kind_ in documents_by_kind]
    )
    document: Document = copied(chance.choice(documents_by_kind[kind]))
    if kind == "Pod" and chance.random() < 0.3:
        origin = chance.choice(origins)
        document = copied(origin.translated or origin.legacy)
    if kind == "Pod" and chance.random() < 0.3:
        return _workload(document, chance)
    return {**document, "apiVersion": document.get("apiVersion", "v1"), "kind": kind}


def _workload(document: Any, chance: Random) -> Document:
    version, kind = chance.choice(list(VALIDATED_KINDS))
    for field in reversed(pod_path(version, kind) or ()):
        document = {field: document}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, **document}


# --- what is done to it ---------------------------------------------------------------------------

_ATTRIBUTE: Final = f'device.attributes["{EXAMPLE}"].model'
_TEN: Final = "[" + ",".join("0123456789") + "]"


def _looping(depth: int) -> str:
    """Return loops in each other."""
    names = [f"v{number}" for number in range(depth)]
    inside = " + ".join(names) + " >= 0"
    return "".join(f"{_TEN}.all({name}, " for name in names) + inside + ")" * depth


EXPRESSIONS: Final = (
    *("true", "false", "", " ", "1", "null", "device", "{}", "[]", "device.driver", "!true"),
    f'device.driver == "{EXAMPLE}"',
    f'device.driver != "{EXAMPLE}"',
    f'{_ATTRIBUTE} == "large"',
    f'{_ATTRIBUTE} == "none"',
    f"{_ATTRIBUTE} > 1",
    f"{_ATTRIBUTE}.string == 'a'",
    f'device.capacity["{EXAMPLE}"].memory.compareTo(quantity("100Gi")) >= 0',
    f'device.capacity["{EXAMPLE}"].memory.isGreaterThan(quantity("{"9" * 5000}"))',
    f'semver("{"9" * 3000}.0.0").isGreaterThan(semver("1.0.0"))',
    f'{_ATTRIBUTE}.matches("(a+)+$")',
    f'{_ATTRIBUTE}.matches("{"(.*)" * 500}x")',
    f'{_ATTRIBUTE}.matches("(((a{{1000}}){{1000}}){{1000}})")',
    '"' + "a" * 5000 + '".matches("(a|a)*b")',
    '"aaaa"' + '.replace("a", "aaaaaaaaaa")' * 12 + ".size() > 1",
    '["a"]' + ".map(x, x + x)" * 60 + ".size() > 0",
    '"' + "a," * 3000 + '".split(",").size() > 1',
    '"%s".format(["' + "b" * 4000 + '"]) == "c"',
    *map(_looping, (1, 2, 3, 4, 6, 30)),
    "(" * 300 + "true" + ")" * 300,
    "(" * 5000,
    "!" * 5001 + "true",
    "-" * 5000 + "1 < 0",
    "1" + " + 1" * 2500 + " > 0",
    "true" + " && true" * 1000,
    "true" + " ? true : false" * 600,
    "[" * 2000 + "]" * 2000 + " == []",
    "{" * 500,
    "9" * 5000 + " > 0",
    "1 / 0 > 0",
    "9223372036854775807 + 1 > 0",
    "-9223372036854775808 / -1 > 0",
    "0x" + "f" * 5000 + " > 0",
    "1e" + "9" * 100 + " > 0.0",
    'duration("' + "9" * 300 + 'h") > duration("1s")',
    'timestamp("9999-99-99T00:00:00Z") > timestamp("0000-00-00T00:00:00Z")',
    'url("http://[::1").getHost() == ""',
    'ip("::ffff:1.2.3.4").family() == 4',
    'b"\\xff" == b""',
    '"\\ud800" == ""',
    "device.attributes[device.driver][device.driver] == 1",
    'device.attributes["\x1b[2J"].a',
    "device.attributes.all(d, device.attributes[d].all(a, true))",
    "\u202e\u2028true",
    "true // \x1b[2J\n",
    "__result__ == 1",
    "@result",
    "`a`",
    "a" * 10240,
    "a" * 10241,
    '"' + "é" * 5119 + '" == ""',
    "cel.bind(x, " * 100 + "true" + ", x)" * 100,
    "optional.of(1).hasValue()",
    "has(device.attributes)",
    "dyn(1) == dyn('a')",
)
"""Selectors: honest ones, and such as are dear, deep, long, or none."""

PARAMETERS: Final[tuple[Any, ...]] = (
    *(None, {}, [], "", 1, {"apiVersion": 1, "kind": []}),
    {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": 1}},
    {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": {
            "strategy": "MPS",
            "mpsConfig": {
                "defaultActiveThreadPercentage": 2**70,
                "defaultPinnedDeviceMemoryLimit": "9" * 3000 + "Gi",
                "defaultPerDevicePinnedMemoryLimit": {"\x1b": "1e999", "0": "-1", "9" * 99: "1"},
            },
        },
    },
    {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "MigDeviceConfig", "x" * 5000: 1},
    {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "\x1b[2J"},
)
COUNTS: Final = (0, 1, 2, 3, 5, 8, 31, 32, 33, 100, -1, 2**31, 2**63 - 1, 2**63, None)
NAMES: Final = (
    *(EXAMPLE, NVIDIA, "mig.nvidia.com", "any.nvidia.com", "nobody.example.com"),
    *("three", "five", "two", "held", "gpu", "gpu/a", "", "x" * 5000, "\x1b[2J", "a/b/c"),
)


def _requests(value: Any, chance: Random) -> Any:
    """Return the requests of a claim with more of them, names of requests, or amounts."""
    if isinstance(value, dict):
        return {**value, chance.choice(TEXTS): chance.choice(AMOUNTS)}
    if not isinstance(value, list):
        return value
    more = [example_request(name=f"r{number}", count=chance.choice((1, 2))) for number in range(3)]
    return [*value, *more] * chance.choice((1, 1, 2, 9))


def _one_of(values: Sequence[Any]) -> Callable[[Any, Random], Any]:
    return lambda _value, chance: copied(chance.choice(values))


LIKELY: Final[Mapping[str, Callable[[Any, Random], Any]]] = {
    **dict.fromkeys(("name", "deviceClassName", "driver"), _one_of(NAMES)),
    **dict.fromkeys(("resourceClaimName", "resourceClaimTemplateName"), _one_of(NAMES)),
    "expression": _one_of(EXPRESSIONS),
    "count": _one_of(COUNTS),
    "allocationMode": _one_of(("All", "ExactCount", "all", "")),
    "adminAccess": _one_of((True, False, None)),
    "parameters": _one_of(PARAMETERS),
    "memory": _one_of((*LIKELY_AMOUNTS, *AMOUNTS)),
    "requests": _requests,
    "extendedResourceName": _one_of(TEXTS),
}
"""Name of a field to what draws another value of its kind."""


def _change_request(document: Document, chance: Random) -> None:
    """Ask for something else of the same kind, so that a review goes deep into the rules."""
    chance.choice((_field, _field, _field, _selector, _constraint, _config, _tolerations))(
        document, chance
    )


def _field(document: Document, chance: Random) -> None:
    likely_places = [
        cluster_context for cluster_context in places_in(document) if cluster_context[1] in LIKELY
    ]
    if likely_places:
        parent, key = chance.choice(likely_places)
        parent[key] = LIKELY[key](parent[key], chance)


def _selector(document: Document, chance: Random) -> None:
    for request in _requests_in(document):
        expressions = chance.choices(EXPRESSIONS, k=chance.choice((1, 1, 2, 5, 33)))
        request["selectors"] = [cel(expression) for expression in expressions]


def _constraint(document: Document, chance: Random) -> None:
    for devices in _devices(document):
        attribute = chance.choice((f"{EXAMPLE}/root", f"{EXAMPLE}/model", *TEXTS))
        field = chance.choice(("matchAttribute", "distinctAttribute"))
        constraint = {field: attribute, "requests": chance.choice((None, [], ["gpu"], list(NAMES)))}
        devices["constraints"] = [constraint] * chance.choice((1, 1, 2, 40))


def _config(document: Document, chance: Random) -> None:
    for devices in _devices(document):
        driver = chance.choice((EXAMPLE, NVIDIA, *TEXTS))
        opaque = {"driver": driver, "parameters": copied(chance.choice(PARAMETERS))}
        devices["config"] = [{"opaque": opaque}] * chance.choice((1, 1, 2, 40))


def _tolerations(document: Document, chance: Random) -> None:
    for request in _requests_in(document):
        toleration = {
            "key": chance.choice((*TEXTS, "ill")),
            "operator": chance.choice(("Exists", "Equal", "", "x" * 300)),
            "effect": chance.choice(("NoSchedule", "None", "", "\x1b")),
        }
        request["tolerations"] = [toleration] * chance.choice((1, 2, 16, 17, 100))


def _devices(document: Document) -> Iterator[Any]:
    for parent, key in list(places_in(document)):
        if key == "devices" and isinstance(parent[key], dict):
            yield parent[key]


def _requests_in(document: Document) -> Iterator[Any]:
    for parent, key in list(places_in(document)):
        if isinstance(parent[key], dict) and "deviceClassName" in parent[key]:
            yield parent[key]
    if document["kind"] == "DeviceClass" and isinstance(document.get("spec"), dict):
        yield document["spec"]
