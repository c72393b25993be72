"""Hostile calls, one after the other for ever: any bytes that may come to the port."""

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import msgspec

from admission.webhook_configuration import (
    MUTATE_PATH,
    VALIDATE_OBJECTS_PATH,
    VALIDATE_WORKLOADS_PATH,
)
from kube.api.workloads import VALIDATED_KINDS, pod_path
from testing.builders import NAMESPACE, gpus, pod
from testing.documents import (
    EXAMPLE,
    Document,
    cel,
    claim,
    config,
    device_class,
    exactly,
    first,
    policy,
    sub,
)
from testing.feasibility_cases import example_request
from testing.fuzz.mutations import DEEP, KEYS, TEXTS, bent, devices_changed, forged_document, mutate
from testing.fuzz.objects import about, object_review
from testing.fuzz.reviews import Origin, applied_again, copied, review
from testing.rule_cases import pod as rules_pod

MEBIBYTE: Final = 2**20
LARGEST_BYTES: Final = 7 * MEBIBYTE - 4096
"""The largest body that is read, without the envelope."""
OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT", "create", "PATCH", "", "x" * 300)
SUBRESOURCES: Final = ("", "status", "status", "binding", "resize", "ephemeralcontainers", "é" * 99)
HEAD: Final = f"POST {MUTATE_PATH} HTTP/1.1\r\nHost: webhook\r\n"
JSON: Final = "Content-Type: application/json\r\n"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that somebody sends.

    Attributes:
        kind: The kind of the call, for people.
        is_http: Whether HTTP itself is right, so that 415 and 408 would be wrong.
        breaks_off: The caller goes away without waiting for an answer.
    """

    kind: str
    head: bytes
    body: bytes
    is_http: bool = True
    breaks_off: bool = False

    @property
    def bytes(self) -> bytes:
        """All that is sent."""
        return self.head + self.body


def post_call(body: bytes, kind: str, path: str = MUTATE_PATH) -> Call:
    """Return a body as the API server would send it."""
    to = HEAD.replace(MUTATE_PATH, path)
    head = f"{to}{JSON}Content-Length: {len(body)}\r\n\r\n".encode()
    return Call(kind=kind, head=head, body=body)


class Calls:
    """Draws calls; the same chance and origins give the same calls."""

    def __init__(self, chance: Random, origins: Sequence[Origin]) -> None:
        self._chance = chance
        self._origins = origins
        self._translated = [origin for origin in origins if origin.translated is not None]

    def __iter__(self) -> Iterator[Call]:
        """Yield calls for ever."""
        kinds: Mapping[Callable[[], Call], int] = {
            self._honest: 120,
            self._other_devices: 250,
            self._other_tree: 190,
            self._forged: 170,
            self._bent: 100,
            self._workload: 120,
            self._object: 160,
            self._odd_http: 48,
            self._large: 3,
        }
        while True:
            (draw,) = self._chance.choices(list(kinds), list(kinds.values()))
            yield draw()

    # --- reviews ----------------------------------------------------------------------------------

    def _honest(self) -> Call:
        return post_call(msgspec.json.encode(self._review()), "honest")

    def _other_devices(self) -> Call:
        document = copied(self._origin().legacy)
        devices_changed(document, self._chance)
        return post_call(msgspec.json.encode(review(document)), "other devices")

    def _other_tree(self) -> Call:
        document = copied(self._review())
        times = self._chance.choice((1, 1, 2, 3, 6))
        whole = self._chance.random() < 0.25
        mutate(
            document if whole else {"object": document["request"]["object"]}, self._chance, times
        )
        if not whole and self._chance.random() < 0.3:
            mutate({"old": document["request"]["oldObject"]}, self._chance, times)
        return post_call(msgspec.json.encode(document), "other tree")

    def _forged(self) -> Call:
        origin = self._chance.choice(self._translated)
        assert origin.translated is not None
        document = forged_document(origin.translated, self._chance)
        old = self._chance.choice((None, None, None, origin.translated, document))
        return post_call(msgspec.json.encode(review(document, old)), "forged")

    def _bent(self) -> Call:
        return post_call(bent(msgspec.json.encode(self._review()), self._chance), "bent")

    def _workload(self) -> Call:
        """Return a review of a workload, for the endpoint that validates."""
        chance = self._chance
        review_, old = self._validation(), self._validation()
        if chance.random() < 0.7:
            mutate({"object": review_["request"]["object"]}, chance, chance.choice((1, 1, 2, 4)))
        if chance.random() < 0.3:
            review_["request"] |= {"operation": "UPDATE", "oldObject": old["request"]["object"]}
        body = msgspec.json.encode(review_)
        body = bent(body, chance) if chance.random() < 0.1 else body
        return post_call(body, "workload", VALIDATE_WORKLOADS_PATH)

    def _object(self) -> Call:
        """Return a review of an object of DRA, or of a user of one."""
        body = msgspec.json.encode(object_review(self._chance, self._origins))
        body = bent(body, self._chance) if self._chance.random() < 0.1 else body
        return post_call(body, "object", VALIDATE_OBJECTS_PATH)

    def _validation(self) -> Document:
        """Return a review of a workload of some kind."""
        (api_version, kind), resource = self._chance.choice(list(VALIDATED_KINDS.items()))
        group, _, version = api_version.rpartition("/")
        origin = self._origin()
        document: Any = copied(
            self._chance.choice((origin.legacy, origin.translated or origin.legacy))
        )
        if self._chance.random() < 0.5:
            devices_changed(document, self._chance)
        for field in reversed(pod_path(api_version, kind) or ()):
            document = {field: document}
        owner = {"apiVersion": "v1", "kind": "A", "name": "a", "controller": True}
        owners = self._chance.choice(([], [], [owner]))
        document |= {"apiVersion": api_version, "kind": kind}
        document["metadata"] = {"name": "w", "ownerReferences": owners}
        return review(
            document,
            kind={"group": group, "version": version, "kind": kind},
            resource={"group": group, "version": version, "resource": resource},
        )

    def _origin(self) -> Origin:
        return self._chance.choice(self._origins)

    def _review(self) -> Document:
        """Return one of the reviews that a pod's life brings, and some that it does not."""
        chance = self._chance
        origin = self._origin()
        if origin.translated is None or chance.random() < 0.4:
            return review(origin.legacy, **self._request())
        if chance.random() < 0.3:
            return review(origin.translated, **self._request())
        document = chance.choice((applied_again(origin), origin.translated, origin.legacy))
        old = chance.choice((origin.translated, origin.translated, origin.legacy))
        return review(document, old, **self._request())

    def _request(self) -> Mapping[str, Any]:
        """Return fields of the request that are sometimes other than usual."""
        chance = self._chance
        if chance.random() < 0.7:
            return {}
        fields: Mapping[str, Callable[[], Any]] = {
            "operation": lambda: chance.choice(OPERATIONS),
            "subResource": lambda: chance.choice(SUBRESOURCES),
            "dryRun": lambda: chance.choice((True, None)),
            "namespace": lambda: chance.choice((*TEXTS, NAMESPACE)),
            "name": lambda: chance.choice(TEXTS),
            "uid": lambda: chance.choice(TEXTS),
            "userInfo": lambda: {"username": chance.choice(TEXTS)},
            "resource": lambda: {"resource": chance.choice(("pods", "nodes", ""))},
            "object": lambda: None,
        }
        return {name: fields[name]() for name in chance.sample(sorted(fields), 1)}

    # --- HTTP -------------------------------------------------------------------------------------

    def _odd_http(self) -> Call:
        chance = self._chance
        body = msgspec.json.encode(self._review())
        return chance.choice(ODDITIES)(body, chance)

    def _large(self) -> Call:
        size = self._chance.choice((MEBIBYTE, 3 * MEBIBYTE, LARGEST_BYTES))
        shape = self._chance.choice(sorted((*LARGE, *LARGE_OBJECTS)))
        body, path = _shaped(shape, size, self._chance)
        if self._chance.random() < 0.1:
            body += b" " * (7 * MEBIBYTE + 1 - len(body))
        return post_call(body, f"large: {shape}, {len(body)} bytes", path)


def largest(chance: Random) -> Iterator[Call]:
    """Yield a body of every large shape, each as large as any will be."""
    for shape in sorted((*LARGE, *LARGE_OBJECTS)):
        body, path = _shaped(shape, LARGEST_BYTES, chance)
        yield post_call(body, shape, path)


def _shaped(shape: str, size: int, chance: Random) -> tuple[bytes, str]:
    """Return a body of a large shape, and its path."""
    shapes, path = (
        (LARGE, MUTATE_PATH) if shape in LARGE else (LARGE_OBJECTS, VALIDATE_OBJECTS_PATH)
    )
    return msgspec.json.encode(shapes[shape](size, chance)), path


def _http(kind: str, headers: str, body: bytes, **fields: bool) -> Call:
    return Call(kind=kind, head=f"{HEAD}{headers}\r\n".encode(), body=body, is_http=False, **fields)


def _other_type(body: bytes, chance: Random) -> Call:
    odd = chance.choice(
        (
            "Content-Type: text/plain\r\n",
            "Content-Type: application/json; charset=utf-16\r\n",
            "Content-Type: application/JSON;;;=\r\n",
            f"Content-Type: application/json{';' * 8000}\r\n",
            "Content-Type: multipart/form-data; boundary=x\r\n",
            "Content-Type: application/x-www-form-urlencoded\r\n",
            "Content-Type: \r\n",
            "Content-Type: application/json\r\nContent-Type: text/plain\r\n",
            f"Content-Type: {'a' * 4000}\r\n",
            "",
        )
    )
    return _http("another type", f"{odd}Content-Length: {len(body)}\r\n", body)


def _other_length(body: bytes, chance: Random) -> Call:
    length = chance.choice(("-1", "+5", "0", "7", "1e3", "0x10", "", "9" * 30, "5, 5", "५"))
    extra_header = chance.choice(("", f"Content-Length: {len(body)}\r\n"))
    return _http("another length", f"{JSON}Content-Length: {length}\r\n{extra_header}", body)


def _too_long(body: bytes, chance: Random) -> Call:
    missing = chance.choice((1, 1000))
    return _http("a body that stops", f"{JSON}Content-Length: {len(body) + missing}\r\n", body)


def _broken_off(body: bytes, chance: Random) -> Call:
    part = body[: chance.randrange(len(body))]
    headers = f"{JSON}Content-Length: {len(body)}\r\n"
    return _http("broken off", headers, part, breaks_off=True)


def _compressed_call(body: bytes, chance: Random) -> Call:
    name, compressed = chance.choice(
        (
            ("gzip", gzip.compress(body, mtime=0)),
            ("gzip", gzip.compress(b" " * 10 * MEBIBYTE, mtime=0)),
            ("deflate", zlib.compress(body)),
            ("gzip", body),
            ("br", body),
            ("identity", body),
        )
    )
    headers = f"{JSON}Content-Encoding: {name}\r\nContent-Length: {len(compressed)}\r\n"
    return _http("compressed", headers, compressed)


def _chunked_call(body: bytes, chance: Random) -> Call:
    size = chance.choice((1, 100, 70_000))
    parts = [body[start : start + size] for start in range(0, min(len(body), 200 * size), size)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    if chance.random() < 0.4:
        chunks = bent(chunks, chance)
    return _http("chunked", f"{JSON}Transfer-Encoding: chunked\r\n", chunks)


def _other_header(body: bytes, chance: Random) -> Call:
    odd = chance.choice(
        (
            "Expect: 100-continue\r\n",
            "Expect: miracles\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Connection: close\r\n",
            "Connection: upgrade\r\nUpgrade: websocket\r\n",
            "X-A: \x00\r\n",
            "X A: b\r\n",
            "Authorization: Bearer x\r\n",
            "Cookie: " + "a=b;" * 500 + "\r\n",
            "X-Long: " + "a" * 9000 + "\r\n",
            "X-Many: a\r\n" * 300,
            " folded\r\n",
            ": empty\r\n",
        )
    )
    return _http("another header", f"{JSON}Content-Length: {len(body)}\r\n{odd}", body)


def _other_line(body: bytes, chance: Random) -> Call:
    line = chance.choice(
        (
            "POST /mutate HTTP/9.9",
            "POST /mutate",
            "post /mutate HTTP/1.1",
            "POST http://[::1/mutate HTTP/1.1",
            f"POST /mutate?{'a' * 9000} HTTP/1.1",
            "POST /mutate\x00 HTTP/1.1",
            "\x16\x03\x01 /mutate HTTP/1.1",
            "PRI * HTTP/2.0",
        )
    )
    head = f"{line}\r\nHost: a\r\n{JSON}Content-Length: {len(body)}\r\n\r\n".encode()
    return Call(kind="another request line", head=head, body=body, is_http=False)


def _bent_http(body: bytes, chance: Random) -> Call:
    call = post_call(body, "bent HTTP")
    return Call(kind=call.kind, head=bent(call.head, chance), body=body, is_http=False)


ODDITIES: Final = (
    *(
        _other_type,
        _other_length,
        _compressed_call,
        _chunked_call,
        _other_header,
        _other_line,
        _bent_http,
    ),
    *(_too_long, _broken_off),
)
"""Ways to get HTTP itself wrong, or odd."""


# --- large bodies ---------------------------------------------------------------------------------


def _fill(size: int, build: Callable[[int], Any]) -> list[Any]:
    size_of_one = len(msgspec.json.encode(build(10**6))) + 1
    return [build(number) for number in range(size // size_of_one)]


def _many_containers(size: int, chance: Random) -> Any:
    key = chance.choice(KEYS)
    return review(pod(*_fill(size, lambda n: _asking_document(str(n), key))))


def _many_init_containers(size: int, _chance: Random) -> Any:
    init = _fill(
        size, lambda n: {**_asking_document(str(n), "nvidia.com/gpu"), "restartPolicy": "Always"}
    )
    return review(pod(gpus(1), init=init))


def _asking_document(name: str, key: str) -> Document:
    return {"name": name, "resources": {"limits": {key: "1"}}}


def _many_keys(size: int, _chance: Random) -> Any:
    names = _fill(size, lambda n: f"nvidia.com/mig-{n}g.5gb1234")
    return review(pod({"name": "a", "resources": {"limits": dict.fromkeys(names, "1")}}))


def _many_other_keys(size: int, _chance: Random) -> Any:
    names = _fill(size // 2, lambda n: f"nvidai.com/gpu{n}")
    other = {"name": "b", "resources": {"limits": dict.fromkeys(names, "1")}}
    return review(pod(gpus(1), other))


def _many_labels_of_nodes(size: int, _chance: Random) -> Any:
    labels = dict.fromkeys(_fill(size, lambda n: f"nvidia.com/gpu.{n}"), "x")
    return review(pod(gpus(1), nodeSelector=labels))


def _many_claims(size: int, _chance: Random) -> Any:
    claims = _fill(size, lambda n: {"name": str(n), "resourceClaimTemplateName": "a"})
    return review(pod(gpus(1), resourceClaims=claims))


def _many_variables(size: int, _chance: Random) -> Any:
    variables = _fill(size, lambda n: {"name": str(n), "value": "a"})
    return review(pod(gpus(1, mem=100, priority=1, fields={"env": variables})))


def _many_annotations(size: int, _chance: Random) -> Any:
    annotations = dict.fromkeys(_fill(size, lambda n: f"example.com/{n}"), "b")
    return review(pod(gpus(1, mem=1), annotations=annotations))


def _long_annotation(size: int, chance: Random) -> Any:
    item = chance.choice(("a,", '"', "\x00", "é", ",", "[", '{"translationVersion":1},'))
    text = item * (size // len(msgspec.json.encode(item)))
    name = chance.choice(("nvidia.com/use-gputype", "drawbridge.internal/request"))
    return review(pod(gpus(1, mem=1), annotations={name: text}))


def _long_key(size: int, _chance: Random) -> Any:
    return review(
        pod({"name": "a", "resources": {"limits": {"nvidia.com/mig-" + "a" * size: "1"}}})
    )


def _long_amount(size: int, _chance: Random) -> Any:
    return review(pod({"name": "a", "resources": {"limits": {"nvidia.com/gpu": "1" * size}}}))


def _long_name(size: int, _chance: Random) -> Any:
    return review(pod(gpus(1, name="n" * size)), name="é")


def _many_brackets(size: int, _chance: Random) -> Any:
    return review(pod(gpus(1), volumes=[{}] * (size // 3)))


def _deep_pairs(size: int, _chance: Random) -> Any:
    deep = DEEP[3]
    return review(pod(gpus(1), volumes=[deep] * (size // 2000)))


def _two_pods(size: int, _chance: Random) -> Any:
    document = pod(*_fill(size // 2, lambda n: _asking_document(str(n), "nvidia.com/gpu")))
    return review(document, document)


def _many_requests(size: int, _chance: Random) -> Any:
    return about(claim(*_fill(size, lambda n: example_request(name=str(n)))))


def _many_selectors(size: int, chance: Random) -> Any:
    pattern = chance.choice(("{} > -1", f'device.driver == "{EXAMPLE}" && {{}} > -1'))
    selectors = _fill(size, lambda n: cel(pattern.format(n)))
    requests = chance.choice((1, 8, 32))
    part = len(selectors) // requests
    spread = [selectors[start : start + part] for start in range(0, part * requests, part)]
    return about(
        claim(
            *[
                {**example_request(name=str(n)), "exactly": _selecting(s)}
                for n, s in enumerate(spread)
            ]
        )
    )


def _selecting(selectors: list[Any]) -> Document:
    return {"deviceClassName": EXAMPLE, "selectors": selectors}


def _many_links(size: int, _chance: Random) -> Any:
    return about(claim(example_request(" && ".join(_fill(size, lambda n: f"{n} > -1")))))


def _many_alternatives(size: int, _chance: Random) -> Any:
    return about(claim(first(*_fill(size, lambda n: sub(str(n), deviceClassName=EXAMPLE)))))


def _many_amounts(size: int, _chance: Random) -> Any:
    names = _fill(size // 2, lambda n: f"capacity-{n}")
    return about(claim(example_request(capacity={"requests": dict.fromkeys(names, "1")})))


def _many_tolerations(size: int, _chance: Random) -> Any:
    tolerations = _fill(size, lambda n: {"key": str(n), "value": "v"})
    return about(claim(example_request(tolerations=tolerations)))


def _many_constraints(size: int, _chance: Random) -> Any:
    names = _fill(size // 32, str)
    constraint = {"matchAttribute": f"{EXAMPLE}/root", "requests": names}
    return about(claim(example_request(), example_request(name="b"), constraints=[constraint] * 32))


def _many_parameters(size: int, _chance: Random) -> Any:
    parameters = dict.fromkeys(_fill(size // 32, str), "v")
    return about(claim(exactly(), config=[config(parameters)] * 32))


def _many_unknown_fields(size: int, _chance: Random) -> Any:
    names = _fill(size // 2, lambda n: f"field-{n}")
    return about(claim({**example_request(), **dict.fromkeys(names, 1)}))


def _many_selectors_of_a_class(size: int, _chance: Random) -> Any:
    return about(device_class(*_fill(size // 2, lambda n: f"device.driver != '{n}'")))


def _many_rules(size: int, _chance: Random) -> Any:
    rule = {"groups": ["a"], "compatibleOnlyWith": {"cel": {"expression": "device.driver == 'a'"}}}
    return about(policy(*_fill(size, lambda n: {"name": str(n), **rule})))


def _many_entries(size: int, _chance: Random) -> Any:
    entries = _fill(size, lambda n: {"name": str(n), "resourceClaimTemplateName": "two"})
    return about(rules_pod(*entries))


def _many_uses(size: int, _chance: Random) -> Any:
    uses = _fill(size, lambda n: {"name": str(n), "request": str(n)})
    return about(rules_pod({"name": "a", "resourceClaimName": "three"}, uses=tuple(uses)))


def _many_extended_resources(size: int, _chance: Random) -> Any:
    names = _fill(size // 2, lambda n: f"example.com/gpu-{n}")
    return about(rules_pod(limits=dict.fromkeys(names, "1")))


def _many_keys_of_init_containers(size: int, chance: Random) -> Any:
    policy = chance.choice(({}, {"restartPolicy": "Always"}))
    init = _fill(size, lambda n: {**_asking_document(str(n), f"example.com/gpu-{n}"), **policy})
    return about(pod({"name": "main"}, init=init))


def _many_misspelt_keys(size: int, _chance: Random) -> Any:
    return about(pod(*_fill(size, lambda n: _asking_document(str(n), "nvidia.com/gpumm"))))


def _many_claims_of_one_template(size: int, _chance: Random) -> Any:
    claims = _fill(size, lambda n: {"name": str(n), "resourceClaimTemplateName": "five"})
    return about(pod({"name": "main"}, resourceClaims=claims))


def _long_names(size: int, _chance: Random) -> Any:
    return about(claim(*[example_request(name="n" * (size // 30)) for _ in range(30)]))


LARGE_OBJECTS: Final[Mapping[str, Callable[[int, Random], Any]]] = {
    maker.__name__.strip("_").replace("_", " "): maker
    for maker in (
        *(_many_requests, _many_selectors, _many_links, _many_alternatives, _many_amounts),
        *(_many_tolerations, _many_constraints, _many_parameters, _many_unknown_fields),
        *(_many_selectors_of_a_class, _many_rules, _many_entries, _many_uses),
        *(_many_extended_resources, _many_keys_of_init_containers, _many_misspelt_keys),
        *(_many_claims_of_one_template, _long_names),
    )
}
"""The same of objects of DRA and what uses them."""

LARGE: Final[Mapping[str, Callable[[int, Random], Any]]] = {
    maker.__name__.strip("_").replace("_", " "): maker
    for maker in (
        *(_many_containers, _many_init_containers, _many_keys, _many_claims, _many_variables),
        *(_many_other_keys, _many_labels_of_nodes),
        *(_many_annotations, _long_annotation, _long_key, _long_amount, _long_name),
        *(_many_brackets, _deep_pairs, _two_pods),
    )
}
"""Shapes of bodies that are as large as is read."""
