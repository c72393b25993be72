"""Mutations of honest reviews: of their trees, their bytes, and the request annotation.

A tree is plain JSON in which `msgspec.Raw` stands for text that no honest encoder writes. Chance is
an argument, so that a seed gives the same mutations again.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import msgspec

from kube.names import REQUEST_ANNOTATION
from testing.builders import profiles
from testing.documents import Document
from testing.fuzz.reviews import copied
from translation.compiling.claims import Claim
from translation.reading.arbiter import VOCABULARIES
from translation.record.derive import derive
from translation.record.record import RecordError, decode_record

DEPTH: Final = 2000


def raw(text: bytes) -> msgspec.Raw:
    """Return text that stands in a tree as it is."""
    return msgspec.Raw(text)


TEXTS: Final = (
    "",
    " ",
    "-",
    ".",
    "a/b",
    "nvidia.com/",
    "nvidia.com/gpu",
    "nvidia.com/mig-",
    "nvidia.com/mig-9g.999gb+" + "me" * 40,
    "hami.io/\x1b[2J",
    "~0~1/",
    "/spec/containers/-",
    "..",
    "%s{0}${x}{{.}}",
    '"] || true || ["',
    "\\",
    "\x00",
    "\n\r\t\x0b",
    "\x85\u2028\u2029",
    "\u202egnp.exe",
    "\ufeff",
    "é" * 300,
    "\U0001f4a3" * 70,
    "a" * 64,
    "x" * 5000,
    "null",
    "true",
    "__proto__",
    "__class__",
    "default-scheduler",
    "volcano",
    "system:serviceaccount:kube-system:job-controller",
    "1e308",
    "\u0661\u0662",
    "Always",
    "mutex",
    "mps",
    "mig",
)
LIKELY_AMOUNTS: Final = (
    "0",
    "1",
    "2",
    "-1",
    "1.5",
    "500m",
    "33",
    "50",
    "100",
    "101",
    "3000",
    "8Gi",
)
AMOUNTS: Final = (
    *LIKELY_AMOUNTS,
    *["1e3", "1e128", "1e129", "-1e128", "1e-128", "9223372036854775807", "9223372036854775808"],
    *["1n", "0.0000000001", "Mi", "1Ki1", "+-1", "0x10", "1_000", "Infinity", "NaN"],
    *("9" * 128, "9" * 129, " 1", "1 ", "\u0661"),
)
NUMBERS: Final = (
    *(0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 0.5, -0.0, 1e308, 5e-324),
    raw(b"1e999"),
    raw(b"-1e999"),
    raw(b"1E400"),
    raw(b"9" * 400),
    raw(b"9" * 5000),
    raw(b"0." + b"1" * 3000),
    raw(b"1e-99999"),
)
NOT_JSON: Final = (
    raw(b'"\\ud800"'),
    raw(b'"\\udc00\\ud800"'),
    raw(b'"\\u12"'),
    raw(b'"\\x41"'),
    raw(b'"\xff\xfe"'),
    raw(b'"\xc0\x80"'),
    raw(b'"\xed\xa0\x80"'),
    raw(b'"a\nb"'),
    raw(b"NaN"),
    raw(b"-Infinity"),
    raw(b"01"),
    raw(b"+1"),
    raw(b".5"),
    raw(b"'a'"),
    raw(b"[1,]"),
    raw(b"{,}"),
    raw(b"nul"),
    raw(b"\xef\xbb\xbf1"),
)
DEEP: Final = (
    raw(b"[" * DEPTH + b"]" * DEPTH),
    raw(b'{"a":' * DEPTH + b"1" + b"}" * DEPTH),
    raw(b"[" * DEPTH),
    raw(b"[" * 900 + b"]" * 900),
)
SHAPES: Final[tuple[Any, ...]] = (None, True, False, [], {}, ["a"], [0], {"": ""}, [None], "", 0)
KEYS: Final = (
    *sorted({key for vocabulary in VOCABULARIES.values() for key in vocabulary.keys}),
    *sorted(
        {p + "1g.5gb" for vocabulary in VOCABULARIES.values() for p in vocabulary.key_prefixes}
    ),
)
ADDED: Final = (
    *KEYS,
    *("nvidia.com/mig-7g.80gb", "nvidia.com/mig-1g.10gb.me", "nvidia.com/mig-\x00"),
    *("nvidia.com/" + "m" * 500, "rdma/" + "r" * 500, "cpu", "", "a~b/c"),
)
STEERING: Final = (
    *sorted({name for vocabulary in VOCABULARIES.values() for name in vocabulary.annotations}),
    "kubernetes.io/config.mirror",
)
SELECTOR: Final = {
    "matchLabels": {"a": "b", "gpu.nvidia.com/model": "A100"},
    "matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}],
}
HINT: Final = {
    "selector": SELECTOR,
    "vfSelector": SELECTOR,
    "allocateStrategy": "ApplyForAll",
    "requiredTopologyScope": "PCIe",
    "exclusivePolicy": "PCIeLevel",
}
WISHES: Final = (
    {"gpu": HINT, "rdma": HINT, "fpga": HINT},
    {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"},
    {"allocatePolicy": "Restricted", "ringBusBandwidth": "100Gi"},
    {"nvidia.com/gpu": "koordinator.sh/gpu"},
)
"""Annotations that hold JSON."""


# --- trees ----------------------------------------------------------------------------------------


def value(chance: Random) -> Any:
    """Return a value that hardly has the right form."""
    (pool,) = chance.choices(
        (SHAPES, TEXTS, AMOUNTS, NUMBERS, NOT_JSON, DEEP), (30, 25, 20, 15, 8, 2)
    )
    return copy.copy(chance.choice(pool))


def places_in(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each object or list with each of its keys or indexes."""
    waiting = [tree]
    while waiting:
        parent = waiting.pop()
        keys = parent if isinstance(parent, dict) else range(len(parent))
        for key in keys:
            yield parent, key
            if isinstance(parent[key], (dict, list)):
                waiting.append(parent[key])


def mutate(tree: Any, chance: Random, times: int) -> None:
    """Change a tree in place, a few times."""
    for _ in range(times):
        places = list(places_in(tree))
        if not places:
            return
        parent, key = chance.choice(places)
        chance.choice(CHANGES)(parent, key, chance, places)


Places = Sequence[tuple[Any, Any]]


def _replace(parent: Any, key: Any, chance: Random, _places: Places) -> None:
    parent[key] = value(chance)


def _remove(parent: Any, key: Any, _chance: Random, _places: Places) -> None:
    del parent[key]


def _repeat(parent: Any, key: Any, chance: Random, _places: Places) -> None:
    if isinstance(parent, list):
        parent[key:key] = [parent[key]] * chance.choice((1, 1, 2, 40))
    else:
        parent[key] = [parent[key]]


def _rename(parent: Any, key: Any, chance: Random, _places: Places) -> None:
    if isinstance(parent, dict):
        parent[chance.choice((*TEXTS, *ADDED))] = parent.pop(key)


def _add(parent: Any, key: Any, chance: Random, _places: Places) -> None:
    if isinstance(parent, dict):
        parent[chance.choice((*TEXTS, *ADDED, *STEERING, REQUEST_ANNOTATION))] = value(chance)
    else:
        parent.insert(key, value(chance))


def _graft(parent: Any, key: Any, chance: Random, places: Places) -> None:
    other, place = chance.choice(places)
    with_copy = other[place]
    parent[key] = copied(with_copy) if not _holds_raw(with_copy) else None


def _double_key(parent: Any, key: Any, chance: Random, _places: Places) -> None:
    """Write an object with one of its keys twice."""
    object_ = parent[key]
    if not isinstance(object_, dict) or not object_ or _holds_raw(object_):
        return
    again = chance.choice(list(object_))
    other = value(chance)
    pairs = [*object_.items(), (again, other)]
    chance.shuffle(pairs)
    parent[key] = raw(
        b"{"
        + b",".join(msgspec.json.encode(name) + b":" + msgspec.json.encode(v) for name, v in pairs)
        + b"}"
    )


def _holds_raw(tree: Any) -> bool:
    if isinstance(tree, (dict, list)):
        return any(isinstance(parent[key], msgspec.Raw) for parent, key in places_in(tree))
    return isinstance(tree, msgspec.Raw)


def _cross(_parent: Any, _key: Any, chance: Random, places: Places) -> None:
    """Put a device key with some amount into some resources."""
    sections = [
        parent[key] for parent, key in places if key in ("limits", "requests") and parent[key]
    ]
    if sections and isinstance(section := chance.choice(sections), dict):
        section[chance.choice(ADDED)] = chance.choice(AMOUNTS)


CHANGES: Final[Sequence[Callable[[Any, Any, Random, Places], None]]] = (
    *(_replace, _replace, _replace, _remove, _repeat, _rename, _add, _graft, _double_key),
    *(_cross, _cross),
)


def devices_changed(pod: Document, chance: Random) -> None:
    """Ask for other devices, so that a review goes deep into the translation."""
    for field in ("initContainers", "containers"):
        for container in pod["spec"].get(field) or ():
            if chance.random() < 0.6:
                _redraw(container, chance)
    annotations = pod.setdefault("metadata", {}).get("annotations") or {}
    if chance.random() < 0.5:
        text = _wish(chance) if chance.random() < 0.5 else chance.choice((*TEXTS, "A100,GPU-0"))
        pod["metadata"]["annotations"] = {**annotations, chance.choice(STEERING): text}


def _wish(chance: Random) -> str:
    """Return JSON as an annotation has it, with mistakes."""
    document = copied(chance.choice(WISHES))
    mutate(document, chance, chance.choice((0, 1, 3)))
    text = msgspec.json.encode(document)
    return (bent(text, chance) if chance.random() < 0.1 else text).decode(errors="replace")


def _redraw(container: Any, chance: Random) -> None:
    likely = chance.random() < 0.6
    amounts = {
        key: chance.choice(LIKELY_AMOUNTS if likely else AMOUNTS)
        for key in chance.sample(KEYS if likely else ADDED, chance.randint(1, 3))
    }
    container["resources"] = {**(container.get("resources") or {}), "limits": amounts}
    if likely:
        container["resources"]["requests"] = dict(amounts)


# --- bytes ----------------------------------------------------------------------------------------


def bent(body: bytes, chance: Random) -> bytes:
    """Return the body after an accident."""
    return chance.choice(ACCIDENTS)(body, chance)


def _flipped(body: bytes, chance: Random) -> bytes:
    bytes_ = bytearray(body)
    for _ in range(chance.choice((1, 1, 1, 2, 8, 100))):
        bytes_[chance.randrange(len(bytes_))] ^= 1 << chance.randrange(8)
    return bytes(bytes_)


def _cut(body: bytes, chance: Random) -> bytes:
    return body[: chance.randrange(len(body))]


def _shortened(body: bytes, chance: Random) -> bytes:
    start = chance.randrange(len(body))
    return body[:start] + body[start + chance.randint(1, 50) :]


def _doubled(body: bytes, chance: Random) -> bytes:
    start = chance.randrange(len(body))
    stop = start + chance.randint(1, 200)
    return body[:stop] + body[start:]


def _put(body: bytes, chance: Random) -> bytes:
    odd = (
        b"\x00",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"[" * DEPTH,
        b'"',
        b"\\u",
        b"}",
        b"/**/",
    )
    place = chance.choice((0, len(body), chance.randrange(len(body))))
    return body[:place] + chance.choice(odd) + body[place:]


def _noise(_body: bytes, chance: Random) -> bytes:
    return chance.randbytes(chance.choice((0, 1, 2, 30, 1000)))


ACCIDENTS: Final = (_flipped, _flipped, _flipped, _cut, _shortened, _doubled, _put, _noise)


# --- the request annotation -----------------------------------------------------------------------


def forged_document(pod_: Document, chance: Random) -> Document:
    """Return a translated pod with an annotation that says something else.

    Mostly the pod uses just what the annotation derives, as a forger who read our code would have it.
    """
    pod: Document = copied(pod_)
    annotations = pod["metadata"]["annotations"]
    request = msgspec.json.decode(annotations[REQUEST_ANNOTATION])
    for _ in range(chance.choice((1, 1, 2, 4))):
        chance.choice(FORGERIES)(request, chance)
    text = msgspec.json.encode(request)
    if chance.random() < 0.05:
        text = bent(text, chance)
    annotations[REQUEST_ANNOTATION] = text.decode(errors="replace")
    if chance.random() < 0.8:
        _use(pod, _derived_claims(annotations[REQUEST_ANNOTATION]), chance)
    if chance.random() < 0.5:
        _add_keys(pod, request, chance)
    return pod


def _derived_claims(text: str) -> Sequence[Claim]:
    try:
        return derive(decode_record(text), profiles()).claims
    except RecordError:
        return ()


def _use(pod: Document, claims: Sequence[Claim], chance: Random) -> None:
    """Make the pod use claims, under names of all kinds."""
    entries: list[Any] = []
    for claim in claims:
        label = chance.choice((claim.label, claim.label, claim.label, "", "nic", None, "x" * 300))
        name = {} if label is None else {"name": label}
        entries.append({**name, "resourceClaimTemplateName": claim.template})
        for field in ("initContainers", "containers"):
            for container in pod["spec"].get(field) or ():
                used = [use for use in claim.uses if use.container == container.get("name")]
                uses = [{**name, "request": use.request} for use in used]
                resources = container.setdefault("resources", {}) or {}
                claims_kept = [] if chance.random() < 0.5 else list(resources.get("claims") or ())
                container["resources"] = {**resources, "claims": [*claims_kept, *uses]}
    if chance.random() < 0.7:
        entries = [*(pod["spec"].get("resourceClaims") or ()), *entries]
    pod["spec"]["resourceClaims"] = entries


def _add_keys(pod: Document, request: Any, chance: Random) -> None:
    """Let the containers ask the legacy way again, for the recorded devices or for more."""
    original_limits = _recorded(request)
    for field in ("initContainers", "containers"):
        for container in pod["spec"].get(field) or ():
            limits = dict(original_limits.get(container.get("name"), {}))
            if chance.random() < 0.4:
                limits[chance.choice(ADDED)] = chance.choice(LIKELY_AMOUNTS)
            if limits and chance.random() < 0.7:
                resources = container.get("resources") or {}
                container["resources"] = {**resources, "limits": limits, "requests": dict(limits)}


def _recorded(request: Any) -> Mapping[str, Mapping[str, str]]:
    limits_by_container = {}
    containers = request.get("containers") if isinstance(request, dict) else None
    for container in containers if isinstance(containers, list) else ():
        if isinstance(container, dict) and isinstance(container.get("limits"), dict):
            name = container.get("name")
            limits_by_container[name if isinstance(name, str) else ""] = container["limits"]
    return limits_by_container


def _forge_tree(request: Any, chance: Random) -> None:
    mutate(request, chance, 1)


def _forge_amount(request: Any, chance: Random) -> None:
    for limits in _recorded(request).values():
        if isinstance(limits, dict) and chance.random() < 0.5:
            limits[chance.choice((*limits, *ADDED))] = chance.choice(AMOUNTS)


def _forge_facts(request: Any, chance: Random) -> None:
    size = {"size": chance.choice(AMOUNTS), "min": chance.choice(AMOUNTS)}
    fact = {
        "sizes": [size] * chance.choice((0, 1, 3, 64, 65)),
        "shared": chance.random() < 0.5,
        "defaultIsPart": chance.random() < 0.5,
        "replicas": chance.sample((0, 1, 4, 2**31, -1, 2**70), 2),
    }
    fact_names = chance.sample(sorted(fact), chance.randint(1, 4))
    for used in _objects(request, "profiles"):
        used["facts"] = {
            chance.choice(("gpu", "mig", "nic", "fpga")): {name: fact[name] for name in fact_names}
        }


def _forge_profiles(request: Any, chance: Random) -> None:
    profile = chance.choice(list(profiles().values()))
    forged_profile = {
        "vocabulary": chance.choice((*sorted(VOCABULARIES), "none")),
        "name": profile.driver,
        "hash": profile.content_hash,
    }
    if isinstance(request.get("profiles"), list):
        request["profiles"].insert(0, forged_profile)


def _forge_containers(request: Any, chance: Random) -> None:
    containers = list(_objects(request, "containers"))
    if containers:
        copied_from = chance.choice(containers)
        name = chance.choice((copied_from.get("name"), "main", *TEXTS))
        container_ = {**copied_from, "name": name}
        request["containers"] += [container_] * chance.choice((1, 1, 2, 40, 300))


def _objects(request: Any, field: str) -> Iterator[dict[str, Any]]:
    value = request.get(field)
    yield from (
        (element for element in value if isinstance(element, dict))
        if isinstance(value, list)
        else ()
    )


FORGERIES: Final = (
    *(_forge_tree, _forge_tree, _forge_amount, _forge_amount, _forge_facts, _forge_profiles),
    _forge_containers,
)
