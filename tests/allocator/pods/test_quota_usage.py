"""The usage of claims and pods in ResourceQuotas, sentence by sentence of upstream's evaluators."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.resource import DeviceClass, ResourceClaim
from kube.quantity import Quantity
from quotas.resource_quotas.usage import claim_usage, pod_usage, subtract_usage
from testing import documents
from testing.documents import Document

CLASS = "gpu.nvidia.com"
DEVICES = f"{CLASS}.deviceclass.resource.k8s.io/devices"
IMPLICIT = f"requests.deviceclass.resource.kubernetes.io/{CLASS}"
CLAIMS = "count/resourceclaims.resource.k8s.io"
OTHER = "mig.nvidia.com"


def counted(*requests: Document, mapped: str = "", counts_extended: bool = True) -> dict[str, str]:
    spec = {"extendedResourceName": mapped} if mapped else {}
    device_class = convert({"metadata": {"name": CLASS}, "spec": spec}, DeviceClass)
    claim = convert(documents.claim(*requests), ResourceClaim).spec.devices
    usage = claim_usage(claim, {CLASS: device_class}, counts_extended=counts_extended)
    return {name: str(amount) for name, amount in usage.items()}


def devices(number: int, name: str = CLASS) -> dict[str, str]:
    return {
        f"{name}.deviceclass.resource.k8s.io/devices": str(number),
        f"requests.deviceclass.resource.kubernetes.io/{name}": str(number),
    }


class Case(NamedTuple):
    name: str
    requests: tuple[Document, ...]
    counted: Mapping[str, str]


CASES = (
    Case("no request", (), {}),
    Case("one device where no count is given", (documents.exactly(),), devices(1)),
    Case("as many as the count", (documents.exactly(count=3),), devices(3)),
    Case(
        "as many as an allocation may have for all devices of a node",
        (documents.exactly(allocationMode="All"),),
        devices(32),
    ),
    Case(
        "nothing for a mode that is unknown",
        (documents.exactly(allocationMode="Half", count=3),),
        {DEVICES: "0"},
    ),
    Case(
        "the sum of requests",
        (documents.exactly(count=2), documents.exactly("more", count=3)),
        devices(5),
    ),
    Case(
        "the largest alternative of a class",
        (
            documents.first(
                documents.sub("a", count=2),
                documents.sub("b", count=4),
                documents.sub("c", count=1),
            ),
        ),
        devices(4),
    ),
    Case(
        "an alternative of each class",
        (
            documents.first(
                documents.sub("a", count=2), {**documents.sub("b"), "deviceClassName": OTHER}
            ),
        ),
        {**devices(2), **devices(1, OTHER)},
    ),
    Case(
        "all devices as the largest alternative",
        (documents.first(documents.sub("a", count=2), documents.sub("b", allocationMode="All")),),
        devices(32),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_claim_counts(case: Case) -> None:
    assert counted(*case.requests) == {CLAIMS: "1", **case.counted}


def test_a_claim_counts_the_extended_resource_that_its_class_maps() -> None:
    assert counted(documents.exactly(count=2), mapped="nvidia.com/gpu") == {
        CLAIMS: "1",
        **devices(2),
        "requests.nvidia.com/gpu": "2",
    }


def test_a_claim_counts_no_extended_resource_where_the_version_does_not() -> None:
    usage = counted(documents.exactly(count=2), mapped="nvidia.com/gpu", counts_extended=False)

    assert usage == {CLAIMS: "1", DEVICES: "2"}


def container(amount: int, section: str = "limits", **fields: Any) -> Document:
    return {"name": "c", "resources": {section: {"nvidia.com/gpu": amount, "cpu": 1}}, **fields}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [container(1), container(2, "requests")]}, 3),
        ({"containers": [container(1)], "initContainers": [container(4)]}, 4),
        ({"containers": [container(3)], "initContainers": [container(2)]}, 3),
        (
            {
                "containers": [container(1)],
                "initContainers": [container(2, restartPolicy="Always")],
            },
            3,
        ),
        (
            {
                "containers": [container(1)],
                "initContainers": [container(2, restartPolicy="Always"), container(3)],
            },
            5,
        ),
    ],
    ids=[
        "the sum of its containers",
        "a larger init container",
        "a smaller init container",
        "a sidecar",
        "an init container beside a sidecar",
    ],
)
def test_a_pod_counts(spec: Document, expected: int) -> None:
    assert pod_usage(convert({"spec": spec}, Pod)) == {
        "requests.nvidia.com/gpu": Quantity(expected)
    }


def test_a_pod_counts_no_resources_of_kubernetes() -> None:
    limits = {"cpu": 1, "hugepages-2Mi": "2Mi", "attachable.kubernetes.io/x": 1}

    assert not pod_usage(
        convert({"spec": {"containers": [{"resources": {"limits": limits}}]}}, Pod)
    )


def test_what_is_counted_already_is_not_counted_again() -> None:
    usage = {"a": Quantity(3), "b": Quantity(1)}

    assert subtract_usage(usage, {"a": Quantity(1), "b": Quantity(2)}) == {
        "a": Quantity(2),
        "b": Quantity(0),
    }
