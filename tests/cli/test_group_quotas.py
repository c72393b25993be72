"""Groups of the bridge within a DeviceQuota in `simulate` and `why`: the answers are those of the bridge."""

import json
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from kube.names import SCHEDULER_NAME
from testing.allocation.quota_groups import (
    NETWORK,
    Card,
    Case,
    Wanted,
    most_members,
    random_case,
)
from testing.command import drawbridge
from testing.documents import Document, api_object

DRIVER: Final = "gpu.example.com"
KEY: Final = "example.com/old-gpu"
TENANT: Final = {"kubernetes.io/metadata.name": "default"}


def node(name: str, *sizes: str) -> list[Document]:
    """A node with a GPU of each size of memory, in Gi."""
    devices = [
        {"name": f"gpu-{number}", "capacity": {"memory": {"value": f"{size}Gi"}}}
        for number, size in enumerate(sizes)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    return [api_object("Node", name), api_object("ResourceSlice", name, spec=spec)]


def cluster(*nodes: list[Document], memory: int) -> list[Document]:
    """Nodes, and a DeviceQuota on memory, in Gi, that the bridge enforces."""
    limit = {
        "name": "memory",
        "driver": DRIVER,
        "capacity": "memory",
        "max": f"{memory}Gi",
    }
    spec = {"namespaceSelector": {"matchLabels": TENANT}, "limits": [limit]}
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    return [
        *(document for documents in nodes for document in documents),
        api_object("DeviceClass", DRIVER, spec={"selectors": [selector]}),
        api_object("Namespace", "default", labels=TENANT),
        api_object("AllocatorOwnership", "default", spec={"drivers": [{"name": DRIVER}]}),
        api_object("DeviceQuota", "team", api_version="drawbridge.internal/v1alpha1", spec=spec),
        template("one", 1),
    ]


def template(name: str, count: int) -> Document:
    exactly = {"deviceClassName": DRIVER, "count": count}
    devices = {"requests": [{"name": "gpus", "exactly": exactly}]}
    return api_object("ResourceClaimTemplate", name, "default", spec={"spec": {"devices": devices}})


def pod(name: str, group: str = "") -> Document:
    entry = {"name": "gpus", "resourceClaimTemplateName": "one"}
    spec: Document = {
        "schedulerName": SCHEDULER_NAME,
        "resourceClaims": [entry],
        "containers": [{"name": "main", "image": "a", "resources": {"claims": [{"name": "gpus"}]}}],
    }
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return api_object("Pod", name, "default", spec=spec)


def gang(name: str, pods: int, *, needs: int = 0) -> list[Document]:
    group = api_object(
        "PodGroup",
        name,
        "default",
        api_version="scheduling.k8s.io/v1beta1",
        spec={"schedulingPolicy": {"gang": {"minCount": needs or pods}}},
    )
    return [group, *(pod(f"{name}-{number}", name) for number in range(pods))]


def simulated(*objects: Document) -> Any:
    result = drawbridge("simulate", "-f", "-", "-o", "json", stdin=dump_yaml(objects))
    assert result.exit_code in {0, 1}, result.output
    return json.loads(result.stdout)


def places(answer: Any) -> dict[str, str | None]:
    return {placed["name"]: placed.get("node") for placed in answer["pods"]}


def test_a_group_is_placed_where_its_devices_keep_within_the_quota() -> None:
    """Each pod may have a small device, as the least that it can have, and both get the large ones by preference."""
    nodes = [node("a", "80", "80"), node("b", "40", "40")]

    answer = simulated(*cluster(*nodes, memory=80), *gang("ring", 2))

    assert places(answer) == {"ring-0": "b", "ring-1": "b"}


def test_a_group_is_not_placed_where_no_placement_keeps_within_the_quota() -> None:
    """The pods were judged one by one by the least that each can have, so both were placed above the quota."""
    nodes = [node("a", "80"), node("b", "40")]

    answer = simulated(*cluster(*nodes, memory=119), *gang("ring", 2))

    assert places(answer) == {"ring-0": None, "ring-1": None}
    (group,) = answer["groups"]
    assert group["code"] == "quota"
    assert group["reason"] == (
        "PodGroup default/ring needs 2 pods, and no placement keeps within what is left: DeviceQuota team, limit "
        "memory: 120Gi of memory needed, 119Gi of 119Gi of memory left; request less, or raise the quota"
    )


def test_a_group_without_a_place_uses_no_quota() -> None:
    nodes = [node("a", "40", "40")]

    answer = simulated(*cluster(*nodes, memory=80), *gang("ring", 3), pod("x"), pod("y"))

    assert places(answer) == {
        **{f"ring-{number}": None for number in range(3)},
        "x": "a",
        "y": "a",
    }


def test_a_group_is_charged_for_the_devices_that_it_gets() -> None:
    """The least that its pods can have would leave enough for a further one."""
    nodes = [node("a", "80", "80"), node("b", "40")]

    answer = simulated(*cluster(*nodes, memory=160), *gang("ring", 2), pod("x"))

    assert places(answer) == {"ring-0": "a", "ring-1": "a", "x": None}
    assert [entry["name"] for entry in answer["pods"] if entry.get("waits")] == ["x"]


def test_a_pod_of_the_bridge_without_a_place_uses_no_quota() -> None:
    nodes = [node("a", "40")]
    first, second = pod("first"), pod("second")
    first["spec"]["nodeSelector"] = {"no": "node"}

    answer = simulated(*cluster(*nodes, memory=40), first, second)

    assert places(answer) == {"first": None, "second": "a"}


def test_pods_beyond_the_minimum_are_placed_within_the_quota() -> None:
    nodes = [node("a", "40", "40", "40")]

    answer = simulated(*cluster(*nodes, memory=80), *gang("ring", 3, needs=2))

    assert sorted(filter(None, places(answer).values())) == ["a", "a"]
    assert answer["groups"][0]["placed"] == 2


def test_why_has_the_answer_of_simulate_about_a_pending_group() -> None:
    nodes = [node("a", "80"), node("b", "40")]
    objects = [*cluster(*nodes, memory=119), *gang("ring", 2)]

    for arguments in (
        ("why", "pod", "ring-0", "-f", "-"),
        ("why", "pod", "ring-0", "--snapshot", "-"),
    ):
        result = drawbridge(*arguments, stdin=dump_yaml(objects))
        assert result.exit_code == 0, result.output
        text = " ".join(result.stdout.split())
        assert "no placement keeps within what is left: DeviceQuota team" in text, arguments


def test_pods_of_other_schedulers_wait_for_each_other() -> None:
    """Two of three keep within the quota, and the gates let none of them through without the third."""
    objects = cluster(node("a", "40", "40", "40"), memory=80)
    objects = [entry for entry in objects if entry["kind"] != "AllocatorOwnership"]
    members = [*gang("ring", 3), pod("x"), pod("y")]
    for member in members[1:]:
        del member["spec"]["schedulerName"]

    answer = simulated(*objects, *members)

    assert places(answer) == {
        **{f"ring-{number}": None for number in range(3)},
        "x": "a",
        "y": "a",
    }


# --- single pods, as the bridge places them -------------------------------------------------------


def test_a_pod_is_placed_where_its_device_keeps_within_the_quota() -> None:
    """The first node has a device that is too large."""
    nodes = [node("a", "80"), node("b", "40")]

    assert places(simulated(*cluster(*nodes, memory=40), pod("x"))) == {"x": "b"}


def test_a_pod_gets_the_device_of_a_node_that_keeps_within_the_quota() -> None:
    """The first device of the node is too large."""
    answer = simulated(*cluster(node("a", "80", "40"), memory=40), pod("x"))

    (claim,) = answer["claims"]
    assert [entry["device"] for entry in claim["allocation"]["devices"]["results"]] == ["gpu-1"]


def test_a_pod_is_charged_for_the_device_that_it_gets() -> None:
    """It was charged with the least, so the second pod was placed above the quota."""
    answer = simulated(*cluster(node("a", "80", "80", "40"), memory=120), *map(pod, "xyz"))

    assert places(answer) == {"x": "a", "y": "a", "z": None}
    devices = [
        entry["device"]
        for claim in answer["claims"]
        if "allocation" in claim
        for entry in claim["allocation"]["devices"]["results"]
    ]
    assert devices == ["gpu-0", "gpu-2"]


def test_a_pod_waits_while_all_free_devices_are_too_large() -> None:
    """The small device, the least that it can have, is in use."""
    nodes = [node("a", "40"), node("b", "80")]
    objects = cluster(*nodes, memory=100)

    answer = simulated(*objects, pod("x"), pod("y"))

    assert places(answer) == {"x": "a", "y": None}
    (waiting,) = (entry for entry in answer["pods"] if entry.get("waits"))
    assert waiting["reason"] == (
        "spec.resourceClaims: DeviceQuota team, limit memory: 80Gi of memory needed, 60Gi of 100Gi of memory left; "
        "wait until other pods of the tenant end, request less, or raise the DeviceQuota [deviceQuotaFull]"
    )


@pytest.mark.parametrize("small", ["a", "z"])
def test_nodes_are_searched_within_the_quota_best_first(small: str) -> None:
    """As on the bridge 128 of them are; they were any, and one beyond counted as too expensive."""
    others = [node(f"n{number:03}", "80", "81") for number in range(130)]

    answer = simulated(*cluster(*others, node(small, "80", "40"), memory=40), pod("x"))

    (placed,) = answer["pods"]
    assert placed.get("node") == ("a" if small == "a" else None)
    assert placed.get("reason") == (
        None if small == "a" else "the search for devices within the DeviceQuotas was cut off"
    )


def test_why_names_the_quota_that_all_free_devices_exceed() -> None:
    objects = [*cluster(node("a", "40"), node("b", "80"), memory=100), pod("x"), pod("y")]
    (used,) = json.loads(
        drawbridge("simulate", "-f", "-", "-o", "json", stdin=dump_yaml(objects)).stdout
    )["claims"][:1]
    assert used["node"] == "a"
    claim = api_object(
        "ResourceClaim",
        "used",
        "default",
        spec=template("one", 1)["spec"]["spec"],
        status={"allocation": used["allocation"]},
    )

    result = drawbridge(
        "why", "pod", "y", "--snapshot", "-", stdin=dump_yaml([*objects[:-2], claim, pod("y")])
    )

    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "80Gi of memory needed, 60Gi of 100Gi of memory left" in text
    assert "a node has the devices, but too little is" in text


# --- keys of device plugins -----------------------------------------------------------------------


def cluster_with_keys(*nodes: list[Document], keys: int) -> list[Document]:
    """Nodes, and a DeviceQuota on a key of a device plugin beside the memory that the bridge enforces."""
    objects = cluster(*nodes, memory=1000)
    quota = next(entry for entry in objects if entry["kind"] == "DeviceQuota")
    limit = {"name": "keys", "driver": "plugin.example.com", "devices": {}, "max": str(keys)}
    quota["spec"]["limits"].append(limit | {"legacyKeys": [{"name": KEY}]})
    return objects


def with_key(member: Document) -> Document:
    member["spec"]["containers"][0]["resources"]["limits"] = {KEY: "1"}
    return member


def test_members_of_the_bridge_with_keys_wait_for_each_other() -> None:
    """The gates let a group through together; keys of groups of the bridge were charged to nothing."""
    group, *members = gang("ring", 2)
    objects = [group, *map(with_key, members), with_key(pod("x"))]
    nodes = [node("a", "40", "40", "40")]

    answer = simulated(*cluster_with_keys(*nodes, keys=1), *objects)
    assert places(answer) == {"ring-0": None, "ring-1": None, "x": "a"}
    assert [entry["name"] for entry in answer["pods"] if entry.get("waits")] == ["ring-1"]

    answer = simulated(*cluster_with_keys(*nodes, keys=2), *objects)
    assert places(answer) == {"ring-0": "a", "ring-1": "a", "x": None}


def test_members_of_the_bridge_beyond_the_minimum_are_charged_for_their_keys_once() -> None:
    group, *members = gang("ring", 3, needs=2)
    nodes = [node("a", "40", "40", "40")]

    answer = simulated(*cluster_with_keys(*nodes, keys=3), group, *map(with_key, members))

    assert sorted(filter(None, places(answer).values())) == ["a", "a", "a"]


def test_the_keys_of_a_pod_of_the_bridge_without_a_place_stay_promised() -> None:
    """It has lost its gate, and no gate is put back."""
    first, second, third = with_key(pod("first")), with_key(pod("second")), pod("third")
    first["spec"]["nodeSelector"] = {"no": "node"}

    objects = cluster_with_keys(node("a", "40"), keys=1)
    answer = simulated(*objects, first, second, third)

    assert places(answer) == {"first": None, "second": None, "third": "a"}


def test_the_keys_of_a_pod_whose_claims_wait_for_the_quota_stay_promised() -> None:
    """The gate lets it through for its keys, and then it waits for the bridge."""
    objects = cluster_with_keys(node("a", "40", "40"), keys=1)
    quota = next(entry for entry in objects if entry["kind"] == "DeviceQuota")
    quota["spec"]["limits"][0]["max"] = "40Gi"
    third = with_key(pod("third"))
    del third["spec"]["resourceClaims"], third["spec"]["containers"][0]["resources"]["claims"]

    answer = simulated(*objects, pod("first"), with_key(pod("second")), third)

    assert places(answer) == {"first": "a", "second": None, "third": None}


# --- the same as trying all placements ------------------------------------------------------------


def objects_of(case: Case) -> list[Document]:
    """The cluster of a random group, with the group."""
    slices = [
        slice_of(pool, [card for card in case.cards if card.pool == pool])
        for pool in dict.fromkeys(card.pool for card in case.cards)
    ]
    memory, cores, devices = case.limits
    limits = [
        {"name": "memory", "driver": DRIVER, "capacity": "memory", "max": str(memory)},
        {"name": "cores", "driver": DRIVER, "capacity": "cores", "max": str(cores)},
        {"name": "devices", "driver": DRIVER, "devices": {}, "max": str(devices)},
    ]
    world = cluster([api_object("Node", name) for name in case.nodes], slices, memory=0)
    quota = next(entry for entry in world if entry["kind"] == "DeviceQuota")
    quota["spec"]["limits"] = limits
    group, *members = gang("ring", len(case.pods), needs=case.needs)
    for member, claims in zip(members, case.pods, strict=True):
        member["spec"]["resourceClaims"] = [
            {"name": wanted.name, "resourceClaimName": wanted.name} for wanted in claims
        ]
        member["spec"]["containers"][0]["resources"] = {}
    wanted_claims = {wanted.name: wanted for claims in case.pods for wanted in claims}
    return [*world, *map(claim_of, wanted_claims.values()), group, *members]


def slice_of(pool: str, cards: list[Card]) -> Document:
    devices = [
        {
            "name": card.name,
            "attributes": {"model": {"string": card.model}},
            "capacity": {
                "memory": {"value": str(card.memory)},
                "cores": {"value": str(card.cores)},
            },
        }
        for card in cards
    ]
    place = {"allNodes": True} if pool == NETWORK else {"nodeName": pool}
    named_pool = {"name": pool, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": named_pool, "devices": devices, **place}
    return api_object("ResourceSlice", pool, spec=spec)


def claim_of(wanted: Wanted) -> Document:
    exactly: Document = {"deviceClassName": DRIVER, "count": wanted.devices}
    if wanted.model:
        expression = f'device.attributes["{DRIVER}"].model == "{wanted.model}"'
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
    return api_object("ResourceClaim", wanted.name, "default", spec={"devices": devices})


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_a_group_is_placed_exactly_where_some_placement_keeps_within_the_quota(first: int) -> None:
    """As the bridge decides, in `tests/sidecar/groups/test_quota.py`."""
    fits = 0
    for seed in range(first, first + 30):
        case = random_case(seed)
        answer = simulated(*objects_of(case))
        is_placed = sum(place is not None for place in places(answer).values()) >= case.needs

        assert is_placed == (most_members(case) >= case.needs), (seed, answer["groups"])
        fits += is_placed

    assert 3 < fits < 27
