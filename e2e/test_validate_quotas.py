"""ResourceQuotas of device classes: `drawbridge check` counts and says the same as the API server.

No story needs nodes or a webhook: admission of quotas is the API server's own.
"""

import http.client
from collections.abc import Iterator
from typing import Final

import pytest

from e2e.access import Access, Object, stream
from e2e.drawbridge import command_line
from e2e.objects import pod
from e2e.older_kubernetes import needs
from e2e.small_inventory import asking, claim, created, posted
from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.resource import DeviceClass, ResourceClaim
from kube.quantity import Quantity
from quotas.resource_quotas.usage import claim_usage, pod_usage
from testing.documents import class_of_driver, first, resource_quota, sub

CLASS: Final = "quota.validate.example.com"
RESOURCE: Final = "validate.example.com/quota"
DEVICES: Final = f"{CLASS}.deviceclass.resource.k8s.io/devices"
HARD: Final = {DEVICES: "4", f"requests.{RESOURCE}": "5"}
DEVICE_CLASS: Final[Object] = class_of_driver(CLASS, extendedResourceName=RESOURCE)


def alternatives(*counts: int) -> Object:
    """The spec of a claim with alternatives of these counts."""
    ways = (sub(f"way-{n}", deviceClassName=CLASS, count=n) for n in counts)
    return {"devices": {"requests": [first(*ways)]}}


def two_requests(first_count: int, second_count: int) -> Object:
    """The spec of a claim with two requests."""
    exactly = {"deviceClassName": CLASS}
    return {
        "devices": {
            "requests": [
                {"name": "one", "exactly": {**exactly, "count": first_count}},
                {"name": "other", "exactly": {**exactly, "count": second_count}},
            ]
        }
    }


OBJECTS: Final = (
    claim(asking(CLASS), "one"),
    claim(asking(CLASS, count=4), "all-that-is-left"),
    claim(asking(CLASS, count=5), "one-too-many"),
    claim(asking(CLASS, allocationMode="All"), "all-of-a-node"),
    claim(two_requests(2, 2), "two-requests"),
    claim(two_requests(2, 3), "two-requests-too-many"),
    claim(alternatives(1, 4, 2), "alternatives"),
    claim(alternatives(1, 5), "one-alternative-too-many"),
    pod("five", limits={RESOURCE: "5"}),
    pod("six", limits={RESOURCE: "6"}),
)


@pytest.fixture
def quota(cluster: Access, namespace: str) -> Iterator[str]:
    """A quota of the class and its extended resource; its namespace."""
    cluster.apply(DEVICE_CLASS)
    cluster.apply(resource_quota(HARD, name="devices", namespace=namespace))
    _wait_used(cluster, namespace, {DEVICES: "0", f"requests.{RESOURCE}": "0"})
    cluster.wait_until(
        lambda: "status unknown" not in posted(cluster, OBJECTS[0], namespace)[1],
        "admission knows it, too",
    )
    yield namespace
    cluster.kubectl("delete", "deviceclass", CLASS, "--wait=false")


def _wait_used(cluster: Access, namespace: str, used: Object) -> None:
    cluster.wait_for(
        "resourcequotas",
        "devices",
        namespace,
        until=lambda stored: stored.get("status", {}).get("used") == used,
    )


def test_objects_are_counted_as_the_api_server_does(cluster: Access, quota: str) -> None:
    rejected = []
    for document in OBJECTS:
        code, message = posted(cluster, document, quota)
        if code != http.client.CREATED:
            assert "exceeded quota: devices" in message, message
            rejected.append(_name(document))

    assert rejected == [_name(document) for document in OBJECTS if _exceeds(document)]
    assert {"one-too-many", "all-of-a-node", "one-alternative-too-many", "six"} <= {*rejected}
    assert len(rejected) < len(OBJECTS)


def _name(document: Object) -> str:
    return str(document["metadata"]["name"])


def _exceeds(document: Object) -> bool:
    if document["kind"] == "Pod":
        usage = pod_usage(convert(document, Pod))
    else:
        device_class = convert(DEVICE_CLASS, DeviceClass)
        usage = claim_usage(convert(document, ResourceClaim).spec.devices, {CLASS: device_class})
    return any(
        resource in HARD and amount > Quantity(HARD[resource]) for resource, amount in usage.items()
    )


@needs(35, "quotas of extended resources that count claims")
def test_what_is_used_is_what_claims_and_pods_count(cluster: Access, quota: str) -> None:
    device_class = convert(DEVICE_CLASS, DeviceClass)
    claim_ = claim(alternatives(1, 3, 2), "alternatives")
    using = pod("two", limits={RESOURCE: "2"})
    claim_usage_ = claim_usage(convert(claim_, ResourceClaim).spec.devices, {CLASS: device_class})
    by_pod = pod_usage(convert(using, Pod))[f"requests.{RESOURCE}"]

    assert created(cluster, claim_, quota)[0] == 0
    assert created(cluster, using, quota)[0] == 0

    used = claim_usage_[f"requests.{RESOURCE}"] + by_pod
    _wait_used(
        cluster, quota, {DEVICES: str(claim_usage_[DEVICES]), f"requests.{RESOURCE}": str(used)}
    )
    command_line_ = command_line(
        cluster,
        "check",
        "--live",
        "-n",
        quota,
        "-f",
        "-",
        input=stream(claim(asking(CLASS, count=2))),
    )
    assert "requested 2, used 3, hard 4" in command_line_.stdout
