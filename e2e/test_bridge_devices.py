"""Every kind of request that the bridge allocates: several and shared claims, shares, partitions."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pytest

from e2e import inventory
from e2e.access import Access, Object, stream
from e2e.bridge import bridged, doubly_held, is_waiting
from e2e.objects import claim_template, container, pod
from e2e.translated import devices
from kube.names import DEFAULT_SCHEDULER_NAME, STRATEGY_ANNOTATION
from testing.documents import api_object

TIMEOUT_S: Final = 90.0
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"

pytestmark = pytest.mark.usefixtures("bridge")


def spec_of(requests: Mapping[str, Any], *, same: str = "") -> Object:
    """A claim's spec: name of each request to its exact content, `same` in an attribute."""
    exactly = [{"name": name, "exactly": dict(fields)} for name, fields in requests.items()]
    constraints = [{"requests": list(requests), "matchAttribute": same}] if same else []
    return {"devices": {"requests": exactly, "constraints": constraints}}


def template(name: str, requests: Mapping[str, Any], *, same: str = "") -> Object:
    return api_object("ResourceClaimTemplate", name, spec={"spec": spec_of(requests, same=same)})


def apply(cluster: Access, namespace: str, *objects: Object) -> None:
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects))


def run(cluster: Access, namespace: str, *names: str) -> list[Object]:
    return [cluster.wait_running(name, namespace, timeout_s=TIMEOUT_S) for name in names]


def test_a_pod_with_several_claims_and_an_init_container(
    cluster: Access, namespace: str, nodes: list[str]
) -> None:
    user = bridged(pod("user", claims={"one": "single", "two": "pair"}), nodes)
    user["spec"]["initContainers"] = [container("prepare", claims=[{"name": "two"}])]
    apply(
        cluster,
        namespace,
        claim_template("single", inventory.EXAMPLE),
        claim_template("pair", inventory.EXAMPLE, count=2),
        user,
    )

    (running,) = run(cluster, namespace, "user")

    allocated = devices(running, cluster.objects("resourceclaims", namespace))
    assert len(set(allocated["main"])) == 3
    assert {running["spec"]["nodeName"]} == {device.pool for device in allocated["main"]}
    assert set(allocated["prepare"]) < set(allocated["main"])


def test_two_pods_share_a_claim(cluster: Access, namespace: str, nodes: list[str]) -> None:
    shared = api_object(
        "ResourceClaim", "shared", spec=spec_of({"gpu": {"deviceClassName": inventory.EXAMPLE}})
    )
    users = [bridged(pod(name), nodes) for name in ("first", "second")]
    for user in users:
        user["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "shared"}]
        user["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    apply(cluster, namespace, shared, *users)

    first, second = run(cluster, namespace, "first", "second")

    claim = cluster.get("resourceclaims", "shared", namespace)
    consumers = {consumer["uid"] for consumer in claim["status"]["reservedFor"]}
    assert {first["metadata"]["uid"], second["metadata"]["uid"]} == consumers
    assert first["spec"]["nodeName"] == second["spec"]["nodeName"]


@pytest.fixture
def node(cluster: Access, namespace: str) -> Iterator[str]:
    """One node with GPUs of NVIDIA, NICs, and GPUs in shares, and their classes."""
    name = f"{namespace}-node"
    cluster.apply([*inventory.device_classes(), *inventory.nic_classes()])
    added = cluster.add_nodes(
        [inventory.kwok_node(name)],
        lambda node: [
            *inventory.nvidia_gpus(node, gpus=4),
            *inventory.dranet_nics(node, nics=2),
            *inventory.hami_gpus(node, gpus=2),
            *halves(node),
        ],
    )
    yield name
    cluster.remove_nodes(added)


def halves(node: str) -> list[Object]:
    """A GPU of a further driver, as a whole or as two halves that count on one memory."""
    memory = {"memory": {"value": "80Gi"}}
    half = {"memory": {"value": "40Gi"}}
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    sizes = {"whole": memory, "half-0": half, "half-1": half}
    parts: Sequence[tuple[str, Object]] = (
        ("counters", {"sharedCounters": [{"name": "gpu", "counters": memory}]}),
        (
            "devices",
            {
                "devices": [
                    {
                        "name": name,
                        "capacity": size,
                        "consumesCounters": [{"counterSet": "gpu", "counters": size}],
                    }
                    for name, size in sizes.items()
                ]
            },
        ),
    )
    return [
        api_object(
            "ResourceSlice",
            f"{node}-parts-{name}",
            spec={"driver": inventory.EXAMPLE, "nodeName": node, "pool": pool, **content},
        )
        for name, content in parts
    ]


def test_a_selector_that_fails_on_devices_of_other_nodes_is_no_error(
    cluster: Access, namespace: str, nodes: list[str], node: str
) -> None:
    """The node's parts lack the attribute, and kube-scheduler never searches a node that is ruled out."""
    expression = f'device.attributes["{inventory.EXAMPLE}"].model == "LATEST-GPU-MODEL"'
    fields = {
        "deviceClassName": inventory.EXAMPLE,
        "selectors": [{"cel": {"expression": expression}}],
    }
    document = pod("user", claims={"gpu": "by-model"})
    ours = bridged(document, nodes)
    in_tree = bridged({**document, "metadata": {"name": "in-tree"}}, nodes)
    in_tree["spec"]["schedulerName"] = DEFAULT_SCHEDULER_NAME
    everywhere = bridged({**document, "metadata": {"name": "everywhere"}})
    apply(cluster, namespace, template("by-model", {"gpu": fields}), ours, everywhere)
    run(cluster, namespace, "user")
    # One after the other: nothing keeps two schedulers of one driver apart here.
    apply(cluster, namespace, in_tree)
    run(cluster, namespace, "in-tree")

    waiting = cluster.wait_for(
        "pods", "everywhere", namespace, until=is_waiting, timeout_s=TIMEOUT_S
    )
    (condition,) = waiting["status"]["conditions"]
    assert f"on device {inventory.EXAMPLE}/{node}/" in condition["message"]
    assert "CEL runtime error: no such key: model" in condition["message"]
    # Else it takes a device of the next story's nodes as soon as this node is gone.
    cluster.kubectl("delete", "pod", "everywhere", "-n", namespace)


def test_a_gpu_and_a_nic_are_under_one_pcie_root(
    cluster: Access, namespace: str, node: str
) -> None:
    both = {"gpu": {"deviceClassName": inventory.NVIDIA}, "nic": {"deviceClassName": "dranet"}}
    names = ["rank-0", "rank-1"]
    apply(
        cluster,
        namespace,
        template("rank", both, same=PCIE_ROOT),
        *(bridged(pod(name, claims={"rank": "rank"}), [node]) for name in names),
    )

    roots = {
        (resource_slice["spec"]["driver"], device["name"]): device["attributes"][PCIE_ROOT][
            "string"
        ]
        for resource_slice in cluster.objects("resourceslices")
        if resource_slice["spec"].get("nodeName") == node
        for device in resource_slice["spec"].get("devices", ())
        if PCIE_ROOT in device.get("attributes", {})
    }
    for running in run(cluster, namespace, *names):
        claims = cluster.objects("resourceclaims", namespace)
        allocated = devices(running, claims)["main"]
        assert {inventory.NVIDIA, inventory.DRANET} == {device.driver for device in allocated}
        assert len({roots[device.driver, device.device] for device in allocated}) == 1
    assert [] == doubly_held(cluster)


def test_shares_of_a_device_add_up_to_what_it_has(
    cluster: Access, namespace: str, node: str
) -> None:
    share = {"deviceClassName": inventory.HAMI, "capacity": {"requests": {"cores": "60"}}}
    names = ["share-0", "share-1", "share-2"]
    apply(
        cluster,
        namespace,
        template("share", {"gpu": share}),
        *(bridged(pod(name, claims={"gpu": "share"}), [node]) for name in names),
    )
    cluster.wait_until(
        lambda: len(_running(cluster, namespace)) == 2, "two shares fit", timeout_s=TIMEOUT_S
    )
    (waiting,) = set(names) - set(_running(cluster, namespace))

    cluster.wait_for("pods", waiting, namespace, until=is_waiting, timeout_s=TIMEOUT_S)

    results = [
        result
        for claim in cluster.objects("resourceclaims", namespace)
        for result in claim.get("status", {})
        .get("allocation", {})
        .get("devices", {})
        .get("results", ())
    ]
    assert len({result["device"] for result in results}) == 2
    assert all(result["consumedCapacity"]["cores"] == "60" for result in results)


def test_partitions_count_on_one_memory(cluster: Access, namespace: str, node: str) -> None:
    expression = f"device.capacity['{inventory.EXAMPLE}'].memory.compareTo(quantity('40Gi')) == 0"
    half = {
        "deviceClassName": inventory.EXAMPLE,
        "selectors": [{"cel": {"expression": expression}}],
    }
    apply(
        cluster,
        namespace,
        template("half", {"gpu": half}),
        claim_template("any", inventory.EXAMPLE),
        bridged(pod("half", claims={"gpu": "half"}), [node]),
    )
    run(cluster, namespace, "half")
    apply(
        cluster,
        namespace,
        *(bridged(pod(name, claims={"gpu": "any"}), [node]) for name in ("any-0", "any-1")),
    )

    # The other half, and neither the whole nor a third one.
    cluster.wait_until(
        lambda: len(_running(cluster, namespace)) == 2, "one more runs", timeout_s=TIMEOUT_S
    )
    (waiting,) = {"any-0", "any-1"} - set(_running(cluster, namespace))
    cluster.wait_for("pods", waiting, namespace, until=is_waiting, timeout_s=TIMEOUT_S)
    assert ["half-0", "half-1"] == sorted(
        result["device"]
        for claim in cluster.objects("resourceclaims", namespace)
        for result in claim.get("status", {})
        .get("allocation", {})
        .get("devices", {})
        .get("results", ())
    )


@pytest.mark.parametrize(
    ("strategy", "nodes_in_use"),
    [
        ("CompactFirst", [4]),
        ("BestFit", [4]),
        ("NodeCompactDeviceLowLoad", [4]),
        ("LowLoadFirst", [2, 2]),
    ],
)
def test_a_strategy_decides_on_nodes_though_the_scheduler_prefers_empty_ones(
    cluster: Access, namespace: str, nodes: list[str], strategy: str, nodes_in_use: list[int]
) -> None:
    apply(cluster, namespace, claim_template("one", inventory.EXAMPLE))
    placed: Counter[str] = Counter()
    for number in range(4):
        name = f"pod-{number}"
        chosen = {STRATEGY_ANNOTATION: strategy}
        # Much of a node's CPU, so that NodeResourcesFit would take the other one.
        waiting = pod(name, claims={"gpu": "one"}, limits={"cpu": "20"}, annotations=chosen)
        apply(cluster, namespace, bridged(waiting, nodes))
        (running,) = run(cluster, namespace, name)
        placed[running["spec"]["nodeName"]] += 1

    assert nodes_in_use == sorted(placed.values())


def test_a_pod_whose_best_node_lacks_cpu_goes_to_another(
    cluster: Access, namespace: str, nodes: list[str]
) -> None:
    chosen = {STRATEGY_ANNOTATION: "CompactFirst"}
    apply(cluster, namespace, claim_template("one", inventory.EXAMPLE))
    used = set()
    for number in range(2):
        name = f"pod-{number}"
        waiting = pod(name, claims={"gpu": "one"}, limits={"cpu": "100"}, annotations=chosen)
        apply(cluster, namespace, bridged(waiting, nodes))
        (running,) = run(cluster, namespace, name)
        used.add(running["spec"]["nodeName"])

    assert set(nodes) == used


def test_an_extended_resource_of_a_class_is_refused_with_the_reason(
    cluster: Access, namespace: str, nodes: list[str]
) -> None:
    resource = inventory.NVIDIA_EXTENDED_RESOURCE
    apply(cluster, namespace, bridged(pod("legacy", limits={resource: 1}), nodes))

    legacy = cluster.wait_for("pods", "legacy", namespace, until=is_waiting, timeout_s=TIMEOUT_S)

    (condition,) = legacy["status"]["conditions"]
    assert resource in condition["message"]


def _running(cluster: Access, namespace: str) -> list[str]:
    return [
        pod_["metadata"]["name"]
        for pod_ in cluster.objects("pods", namespace)
        if pod_["status"].get("phase") == "Running"
    ]
