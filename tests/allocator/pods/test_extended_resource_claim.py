"""The claim that the scheduler makes for extended resources, sentence by sentence of KEP-5004."""

from typing import Any, NamedTuple

import pytest

from allocator.pods.extended_resource_claim import (
    device_plugin_resources,
    extended_resource_claim,
    mapped_resources,
    unavailable_resources,
)
from kube.api.core import Node, Pod
from kube.api.meta import convert
from testing.documents import Document

GPU, NIC = "example.com/gpu", "example.com/nic"
CLASSES = {GPU: "gpu", NIC: "nic"}


def container(sidecar: bool = False, **amounts: Any) -> Document:
    limits = {f"example.com/{name}" if "_" not in name else name: n for name, n in amounts.items()}
    restart = {"restartPolicy": "Always"} if sidecar else {}
    return {"name": "c", "resources": {"limits": limits}, **restart}


def pod(*containers: Document, init: tuple[Document, ...] = ()) -> Pod:
    spec = {"containers": list(containers), "initContainers": list(init)}
    return convert({"metadata": {"name": "pod", "namespace": "team"}, "spec": spec}, Pod)


class Case(NamedTuple):
    name: str
    want: list[str]
    pod: Pod


CASES = (
    Case("one request per container", ["container-0-request-0 gpu 2", "container-1-request-0 gpu 1"],
         pod(container(gpu=2), container(gpu=1))),
    Case("and per resource, numbered by name", ["container-0-request-0 gpu 1", "container-0-request-1 nic 2"],
         pod(container(nic=2, gpu=1))),
    Case("a resource that no class maps counts when they are numbered", ["container-0-request-1 gpu 1"],
         pod(container(gpu=1, fpga=1))),
    Case("an init container uses what later containers get", ["container-1-request-0 gpu 2"],
         pod(container(gpu=2), init=(container(gpu=1),))),
    Case("what it needs beyond that is asked for", ["container-0-request-0 gpu 1", "container-1-request-0 gpu 2"],
         pod(container(gpu=2), init=(container(gpu=3),))),
    Case("of several init containers the greediest counts",
         ["container-1-request-0 gpu 2", "container-2-request-0 gpu 1"],
         pod(container(gpu=1), init=(container(gpu=2), container(gpu=3)))),
    Case("a sidecar keeps what it has", ["container-0-request-0 gpu 1", "container-1-request-0 gpu 2"],
         pod(container(gpu=2), init=(container(sidecar=True, gpu=1),))),
    Case("an init container before a sidecar uses that one's devices, too",
         ["container-1-request-0 gpu 1", "container-2-request-0 gpu 2"],
         pod(container(gpu=2), init=(container(gpu=3), container(sidecar=True, gpu=1)))),
    Case("nought is nothing", [], pod(container(gpu=0))),
    Case("requests are sorted as texts",
         [f"container-{number}-request-0 gpu 1" for number in (0, 1, 10, *range(2, 10))],
         pod(*[container(gpu=1)] * 11)),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_extended_resource_claim(case: Case) -> None:
    claim_ = extended_resource_claim(case.pod, mapped_resources(case.pod, CLASSES), CLASSES)

    assert case.want == [
        f"{request.name} {request.exactly.device_class_name} {request.exactly.count}"
        for request in claim_.spec.devices.requests or ()
        if request.exactly is not None
    ]
    assert (claim_.metadata.namespace, claim_.metadata.name) == ("team", "pod-extended-resources")


def test_only_what_is_left_to_claims_is_asked_for() -> None:
    claim_ = extended_resource_claim(pod(container(gpu=1, nic=1)), {NIC}, CLASSES)

    assert [request.name for request in claim_.spec.devices.requests or ()] == [
        "container-0-request-1"
    ]


def node(allocatable: Document | None) -> Node:
    status = {} if allocatable is None else {"allocatable": allocatable}
    return convert({"metadata": {"name": "node-1"}, "status": status}, Node)


def test_what_a_device_plugin_offers() -> None:
    assert device_plugin_resources(node({GPU: 8, NIC: 0})) == {GPU}


@pytest.mark.parametrize(
    ("want", "allocatable"),
    [
        ((GPU,), {"cpu": 8}),
        ((), {GPU: 0}),
        ((), None),
    ],
)
def test_what_nobody_provides(want: tuple[str, ...], allocatable: Document | None) -> None:
    pod_ = pod(container(gpu=1, nic=1, x_y=1))

    assert want == unavailable_resources(pod_, node(allocatable), {NIC: "nic"})
