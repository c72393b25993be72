"""Pools of nodes of an owned driver: at no version has a node more claims than its pool allows."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from e2e.access import Access, Object, stream
from e2e.bridge import Bridge, bridged, doubly_held, is_waiting
from e2e.custom_kinds import wait_established
from e2e.inventory import EXAMPLE
from e2e.objects import claim_template, pod
from kube.api.own_kinds import ALLOCATOR_OWNERSHIP
from tools.custom_resources import definition

TIMEOUT_S: Final = 60.0
LABEL: Final = "example.com/pool"
PODS: Final = 6


def node_pool(name: str, **settings: Any) -> Object:
    return {"name": name, "nodeSelector": {"matchLabels": {LABEL: name}}, **settings}


POOLS: Final = (
    node_pool("small", maxConsumersPerNode=1),
    node_pool("large", maxConsumersPerNode=3),
)


def ownership(*pools: Mapping[str, Any]) -> Object:
    return {
        "apiVersion": ALLOCATOR_OWNERSHIP.api_version,
        "kind": ALLOCATOR_OWNERSHIP.kind,
        "metadata": {"name": "default"},
        "spec": {"drivers": [{"name": EXAMPLE, "pools": list(pools)}]},
    }


@pytest.fixture
def pools(cluster: Access, installed_bridge: Bridge, nodes: list[str]) -> Iterator[dict[str, str]]:
    """Pool to its node, in force."""
    by_pool = dict(zip(("small", "large"), nodes, strict=True))
    for name, node in by_pool.items():
        cluster.kubectl("label", "node", node, f"{LABEL}={name}")
    cluster.apply([definition(ALLOCATOR_OWNERSHIP)])
    wait_established(cluster, "allocatorownerships.drawbridge.internal")
    cluster.apply(ownership(*POOLS))
    installed_bridge.stop("a")  # A sidecar that runs looks for new kinds now and then only.
    installed_bridge.ensure()

    def is_in_force(stored: Object) -> bool:
        (driver,) = stored.get("status", {}).get("drivers") or [{}]
        return len(driver.get("pools", ())) == len(POOLS)

    cluster.wait_for("allocatorownerships", "default", until=is_in_force, timeout_s=TIMEOUT_S)
    yield by_pool
    installed_bridge.leave()  # Stories of other files take the Lease for themselves.
    cluster.delete("allocatorownerships", "default")


def most_on_nodes(listed: list[Object], events: list[Object]) -> Mapping[str, int]:
    """Return the largest number of devices that claims have of each node at any version."""
    holders: dict[str, list[str]] = {claim["metadata"]["uid"]: nodes_of(claim) for claim in listed}
    most: Counter[str] = Counter(node for held in holders.values() for node in held)
    for event in sorted(
        events, key=lambda event: int(event["object"]["metadata"]["resourceVersion"])
    ):
        claim = event["object"]
        is_gone = event["type"] == "DELETED"
        holders[claim["metadata"]["uid"]] = [] if is_gone else nodes_of(claim)
        most |= Counter(node for held in holders.values() for node in held)
    return most


def nodes_of(claim: Object) -> list[str]:
    allocation = claim.get("status", {}).get("allocation") or {}
    results = allocation.get("devices", {}).get("results") or ()
    return [result["pool"] for result in results if result["driver"] == EXAMPLE]


def test_pods_wait_above_the_limit_of_a_pool_and_follow_when_one_ends(
    cluster: Access, namespace: str, pools: Mapping[str, str]
) -> None:
    takers = [
        bridged(pod(f"taker-{number}", claims={"gpu": "one"}), list(pools.values()))
        for number in range(PODS)
    ]
    create = ("apply", "-n", namespace, "-f", "-")

    def running() -> dict[str, str]:
        return {
            stored["metadata"]["name"]: stored["spec"]["nodeName"]
            for stored in cluster.objects("pods", namespace)
            if "nodeName" in stored["spec"] and "deletionTimestamp" not in stored["metadata"]
        }

    def waiting() -> list[str]:
        return [
            stored["metadata"]["name"]
            for stored in cluster.objects("pods", namespace)
            if "nodeName" not in stored["spec"] and is_waiting(stored)
        ]

    with cluster.watching("resourceclaims") as (listed, events):
        cluster.kubectl(*create, input=stream([claim_template("one", EXAMPLE), *takers]))
        cluster.wait_until(
            lambda: len(running()) == 4 and len(waiting()) == PODS - 4,
            "four pods run, and the others wait",
            timeout_s=TIMEOUT_S,
        )
        assert Counter(running().values()) == {pools["small"]: 1, pools["large"]: 3}

        (alone,) = (name for name, node in running().items() if node == pools["small"])
        cluster.kubectl("delete", "pod", alone, "-n", namespace, "--wait=false")
        cluster.wait_until(
            lambda: list(running().values()).count(pools["small"]) == 1,
            "a pod that waited is on the small node",
            timeout_s=TIMEOUT_S,
        )
        # The last one has a place as soon as the node is in another pool.
        cluster.kubectl("label", "node", pools["small"], f"{LABEL}=large", "--overwrite")
        cluster.wait_until(lambda: len(running()) == PODS - 1, "all pods run", timeout_s=TIMEOUT_S)
    most = most_on_nodes(listed, events)
    assert (most[pools["small"]], most[pools["large"]]) == (2, 3)
    assert [] == doubly_held(cluster)


def test_the_api_server_names_the_faults_of_pools(
    cluster: Access, pools: Mapping[str, str]
) -> None:
    assert pools
    broken = {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}
    patch = ownership(
        node_pool("a", maxConsumersPerNode=-1),
        {"name": "b", "nodeSelector": broken, "defaultStrategy": ""},
    )
    words = ("patch", "allocatorownership", "default", "--type=merge", "-p", json.dumps(patch))

    refused = cluster.kubectl(*words, check=False).stderr

    place = "spec.drivers[0].pools"
    assert f"{place}[0].maxConsumersPerNode" in refused
    assert f"{place}[1].defaultStrategy" in refused

    broken_alone = ownership({"name": "b", "nodeSelector": broken})
    words = (*words[:-1], json.dumps(broken_alone))
    refused = cluster.kubectl(*words, check=False).stderr
    assert "In and NotIn need values, Exists and DoesNotExist have none" in refused

    twice = ownership(node_pool("a"), node_pool("a"))
    refused = cluster.kubectl(*words[:-1], json.dumps(twice), check=False).stderr
    assert 'Duplicate value: {"name":"a"}' in refused.replace("\\", "")
