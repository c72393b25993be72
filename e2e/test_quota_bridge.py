"""DeviceQuotas of a driver that the bridge serves: no version of the claims has more than a tenant may."""

import http.client
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, Final

import pytest

from e2e.access import Access, Object, stream
from e2e.bridge import Bridge, bridged, doubly_held, is_waiting
from e2e.custom_kinds import wait_established
from e2e.inventory import EXAMPLE
from e2e.objects import claim_template, pod, priority_class
from kube.api.own_kinds import DEVICE_QUOTA
from testing import documents
from tools.custom_resources import definition

TIMEOUT_S: Final = 90.0
ROUNDS: Final = int(os.environ.get("DRAWBRIDGE_E2E_QUOTA_ROUNDS", "20"))
CREATORS: Final = 50
PRIORITY: Final = "quota-important"
TENANT: Final = "quota-tenant"
NAMESPACES: Final = 3

_numbers = count()


@pytest.fixture(scope="module", autouse=True)
def quota_kind(cluster: Access, installed_bridge: Bridge) -> Iterator[None]:
    crd = "devicequotas.drawbridge.internal"
    is_installed = cluster.find("crd", crd) is not None  # With Drawbridge, for other stories.
    cluster.apply([definition(DEVICE_QUOTA), priority_class(PRIORITY)])
    wait_established(cluster, crd)
    installed_bridge.stop("a")  # A sidecar that runs looks for new kinds now and then only.
    yield
    cluster.delete("priorityclass", PRIORITY)
    if not is_installed:
        cluster.delete("crd", crd)


@pytest.fixture
def tenant(cluster: Access) -> Iterator[list[str]]:
    """The namespaces of a tenant of its own, with a template for one device each.

    The first one's name is the tenant's.
    """
    tenant_name = f"{TENANT}-{os.getpid()}-{next(_numbers)}"
    names = [tenant_name, *(f"{tenant_name}-{number}" for number in range(1, NAMESPACES))]
    for name in names:
        cluster.apply(documents.namespace(name, {"tenant": tenant_name}))
    for name in names:
        cluster.wait_for("serviceaccounts", "default", name)
        create(cluster, name, claim_template("one", EXAMPLE))
    yield names
    for name in names:
        cluster.delete("namespace", name)


def create(cluster: Access, namespace: str, *objects: Object) -> None:
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(list(objects)))


@contextmanager
def quota(cluster: Access, tenant: Sequence[str], **limit: Any) -> Iterator[None]:
    """A limit of a tenant, while a block runs."""
    spec = {
        "namespaceSelector": {"matchLabels": {"tenant": tenant[0]}},
        "limits": [{"name": "limit", "driver": EXAMPLE, **limit}],
    }
    kind = {"apiVersion": DEVICE_QUOTA.api_version, "kind": DEVICE_QUOTA.kind}
    cluster.apply({**kind, "metadata": {"name": tenant[0]}, "spec": spec})
    try:
        yield
    finally:
        cluster.delete("devicequotas", tenant[0])


@contextmanager
def at_most(cluster: Access, namespaces: Sequence[str], most: int) -> Iterator[None]:
    """Check that claims of some namespaces have no more devices at any version while a block runs."""
    with ExitStack() as undo:
        listed, events = undo.enter_context(cluster.watching("resourceclaims"))
        yield
        seen = sorted(events, key=lambda event: _version(event["object"]))
    devices = {_uid(claim): _devices(claim) for claim in listed if _is_in(claim, namespaces)}
    largest = sum(devices.values())
    for event in seen:
        claim = event["object"]
        if _is_in(claim, namespaces):
            devices[_uid(claim)] = 0 if event["type"] == "DELETED" else _devices(claim)
            largest = max(largest, sum(devices.values()))
    assert 0 < largest <= most


def _is_in(claim: Object, namespaces: Sequence[str]) -> bool:
    return claim["metadata"]["namespace"] in namespaces


def _uid(claim: Object) -> str:
    return str(claim["metadata"]["uid"])


def _version(claim: Object) -> int:
    return int(claim["metadata"]["resourceVersion"])


def _devices(claim: Object) -> int:
    allocation = claim.get("status", {}).get("allocation") or {}
    return len(allocation.get("devices", {}).get("results") or ())


def bound(cluster: Access, namespaces: Sequence[str]) -> list[tuple[str, str]]:
    """Return the namespace and name of each pod that has a node and is not being deleted."""
    return [
        (namespace, stored["metadata"]["name"])
        for namespace in namespaces
        for stored in cluster.objects("pods", namespace)
        if "nodeName" in stored["spec"] and "deletionTimestamp" not in stored["metadata"]
    ]


def waits(cluster: Access, name: str, namespace: str) -> str:
    """Wait until a pod waits for devices; return the reason."""
    stored = cluster.wait_for("pods", name, namespace, until=is_waiting, timeout_s=TIMEOUT_S)
    return str(stored["status"]["conditions"][0]["message"])


def taker(name: str, nodes: list[str], **spec: Any) -> Object:
    return bridged(pod(name, claims={"gpu": "one"}, **spec), nodes)


@pytest.mark.usefixtures("bridge")
def test_creators_race_for_the_last_unit(
    cluster: Access, tenant: list[str], nodes: list[str]
) -> None:
    """The winner is deleted again and again, while others come."""
    pods = cluster.kind("pods")

    def add(number: int) -> None:
        path = pods.path(tenant[number % NAMESPACES])
        status, answer = cluster.request("POST", path, taker(f"creator-{number}", nodes))
        assert status == http.client.CREATED, answer

    def delete(namespace: str, name: str) -> None:
        status, answer = cluster.request("DELETE", pods.path(namespace, name))
        assert status == http.client.OK, answer

    with (
        quota(cluster, tenant, devices={}, max="1"),
        at_most(cluster, tenant, 1),
        ThreadPoolExecutor(CREATORS) as creators,
    ):
        list(creators.map(add, range(CREATORS)))
        before: list[tuple[str, str]] = []
        for number in range(ROUNDS):
            cluster.wait_until(
                lambda before=before: (
                    len(bound(cluster, tenant)) == 1  # type: ignore[misc]
                    and bound(cluster, tenant) != before
                ),
                "one creator has the unit",
                timeout_s=TIMEOUT_S,
            )
            before = bound(cluster, tenant)
            ((namespace, name),) = before
            release = creators.submit(delete, namespace, name)
            creators.submit(add, CREATORS + number).result()
            release.result()
    assert [] == doubly_held(cluster)


@pytest.mark.usefixtures("bridge")
def test_an_alternative_that_is_smaller_leaves_room_for_another_pod(
    cluster: Access, tenant: list[str], nodes: list[str]
) -> None:
    alternatives = [
        {"name": f"of-{number}", "deviceClassName": EXAMPLE, "count": number} for number in (2, 1)
    ]
    either = claim_template("either", EXAMPLE)
    either["spec"]["spec"]["devices"]["requests"] = [
        {"name": "gpu", "firstAvailable": alternatives}
    ]

    def eager(name: str) -> Object:
        return bridged(pod(name, claims={"gpu": "either"}), nodes)

    with quota(cluster, tenant, capacity="memory", max="320Gi"), at_most(cluster, tenant, 4):
        create(cluster, tenant[0], either, eager("first"))
        cluster.wait_running("first", tenant[0], timeout_s=TIMEOUT_S)
        # In the worst case it takes two, so that one would be left; as it settles, it takes one.
        create(cluster, tenant[1], taker("small", nodes))
        cluster.wait_running("small", tenant[1], timeout_s=TIMEOUT_S)
        create(cluster, tenant[0], eager("second"))
        cluster.wait_running("second", tenant[0], timeout_s=TIMEOUT_S)

        create(cluster, tenant[1], taker("late", nodes))
        assert "80Gi of memory needed, 0 of 320Gi of memory" in waits(cluster, "late", tenant[1])


@pytest.mark.usefixtures("bridge")
def test_namespaces_of_a_tenant_share_until_one_is_relabelled(
    cluster: Access, tenant: list[str], nodes: list[str]
) -> None:
    with quota(cluster, tenant, devices={}, max="2"), at_most(cluster, tenant, 3):
        for name in tenant[:2]:
            create(cluster, name, taker("a", nodes))
            cluster.wait_running("a", name, timeout_s=TIMEOUT_S)
        create(cluster, tenant[2], taker("a", nodes))
        assert "1 device needed, 0 of 2 devices left" in waits(cluster, "a", tenant[2])

        cluster.kubectl("label", "namespace", tenant[0], "tenant-")

        cluster.wait_running("a", tenant[2], timeout_s=TIMEOUT_S)
        cluster.kubectl("label", "namespace", tenant[0], f"tenant={tenant[0]}")
        create(cluster, tenant[1], taker("late", nodes))
        waits(cluster, "late", tenant[1])
        assert {(name, "a") for name in tenant} == set(bound(cluster, tenant)), "nobody is evicted"


@pytest.mark.usefixtures("bridge")
def test_a_claim_of_ten_pods_is_charged_once(
    cluster: Access, tenant: list[str], nodes: list[str]
) -> None:
    namespace = tenant[0]
    template = claim_template("shared", EXAMPLE)
    claim = {**template, "kind": "ResourceClaim", "spec": template["spec"]["spec"]}
    names = [f"sharer-{number}" for number in range(10)]
    sharers = [bridged(pod(name), nodes) for name in names]
    for sharer in sharers:
        sharer["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "shared"}]

    with quota(cluster, tenant, devices={}, max="1"), at_most(cluster, tenant, 1):
        create(cluster, namespace, claim, *sharers)
        for name in names:
            cluster.wait_running(name, namespace, timeout_s=TIMEOUT_S)
        create(cluster, namespace, taker("other", nodes))
        waits(cluster, "other", namespace)


@pytest.mark.usefixtures("bridge")
def test_a_victim_of_the_tenant_frees_its_budget(
    cluster: Access, tenant: list[str], namespace: str, nodes: list[str]
) -> None:
    create(cluster, namespace, claim_template("one", EXAMPLE), taker("bystander", nodes))
    cluster.wait_running("bystander", namespace, timeout_s=TIMEOUT_S)
    with quota(cluster, tenant, devices={}, max="1"), at_most(cluster, tenant, 1):
        create(cluster, tenant[0], taker("low", nodes))
        cluster.wait_running("low", tenant[0], timeout_s=TIMEOUT_S)

        create(cluster, tenant[1], taker("high", nodes, priorityClassName=PRIORITY))

        cluster.wait_running("high", tenant[1], timeout_s=TIMEOUT_S)
        assert [(tenant[1], "high")] == bound(cluster, tenant)
        assert [(namespace, "bystander")] == bound(cluster, [namespace])
