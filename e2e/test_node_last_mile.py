"""From kubectl to a device inside a real container, and back to a clean node."""

from collections.abc import Iterable
from typing import Any, cast

import grpc

from e2e.access import Access, Object
from e2e.drawbridge import Drawbridge
from e2e.node.claims import claim, configuration, named, pod_with, request, template
from e2e.node.driver import DRIVER, INVENTORY, NodeDriver, python
from e2e.node.node import Node, pod_on
from e2e.node.pods import (
    TIMEOUT_S,
    apply,
    delete_pods,
    device_nodes,
    environment,
    is_translated,
    results,
)
from kube.quantity import Quantity

POD_RESOURCES = "/var/lib/kubelet/pod-resources/kubelet.sock"


# --- one claim ------------------------------------------------------------------------------------


def test_a_claim_ends_as_environment_and_device_node_of_a_container(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    share = request(capacity={"memory": "10Gi", "cores": "25"}, where=named("uuid-of-gpu-1"))
    apply(
        cluster,
        namespace,
        claim("share", share),
        pod_with(real_node.name, "pod", ["share"]),
    )

    environment_ = environment(cluster, namespace, "pod")

    (result,) = results(cluster, namespace, "share")
    assert {
        "DRAWBRIDGE_DEVICE_GPU_1": "uuid-of-gpu-1",
        "DRAWBRIDGE_DEVICE_GPU_1_MEMORY": str(10 * 2**30),
        "DRAWBRIDGE_DEVICE_GPU_1_CORES": "25",
        "DRAWBRIDGE_DEVICE_GPU_1_SHARE": result["shareID"],
    } == environment_
    assert {"gpu-1"} == device_nodes(cluster, namespace, "pod")
    (record,) = driver.checkpoint().values()
    assert ("Completed", ["pod"]) == (record["state"], record["pods"])
    assert 1 == len(driver.specs())

    # What was reserved is what Kubernetes tells of the claim.
    task_result = cluster.wait_for(
        "resourceclaims", "share", namespace, until=lambda claim_: claim_["status"].get("devices")
    )
    (status,) = task_result["status"]["devices"]
    assert ("Ready", "True") == tuple(
        status["conditions"][0][field] for field in ("type", "status")
    )

    delete_pods(cluster, namespace, driver, "pod")
    assert [] == driver.specs()
    cluster.wait_for(
        "resourceclaims",
        "share",
        namespace,
        until=lambda claim_: "allocation" not in claim_.get("status", {}),
    )


def test_the_state_command_tells_what_is_prepared(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    apply(cluster, namespace, claim("c"), pod_with(real_node.name, "pod", ["c"]))
    cluster.wait_running("pod", namespace, timeout_s=TIMEOUT_S)

    words = python("-m", "driver", "state", "--kubeconfig", str(driver.kubeconfig()))
    file = real_node.folder / "driver.json"
    stdout = real_node.execute(*words, "--config", str(file)).stdout

    header, row = stdout.splitlines()
    assert header.split()[:4] == ["CLAIM", "STATE", "DEVICE", "REQUEST"]
    assert f"{namespace}/c  Completed  {real_node.name}/gpu-0  gpu" in row
    assert row.endswith("pod   yes  allocated")
    delete_pods(cluster, namespace, driver, "pod")


def test_the_metrics_and_the_kubelet_tell_which_pod_has_which_device(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    apply(cluster, namespace, claim("c"), pod_with(real_node.name, "pod", ["c"]))
    cluster.wait_running("pod", namespace, timeout_s=TIMEOUT_S)

    _, metrics = driver.probe("/metrics")

    (sample,) = (
        line
        for line in metrics.splitlines()
        if line.startswith("drawbridge_driver_device_prepared{")
    )
    for label in (f'namespace="{namespace}"', 'claim="c"', 'device="gpu-0"', 'pods="pod"'):
        assert label in sample

    # PodResources, as monitoring agents ask it; its answer names what it is about in plain text.
    with grpc.insecure_channel(f"unix://{real_node.path(POD_RESOURCES)}") as channel:
        ask = cast(Any, channel.unary_unary("/v1.PodResourcesLister/List"))
        answer = bytes(ask(b"", timeout=60))
    for text in ("pod", namespace, DRIVER, real_node.name, "gpu-0"):
        assert text.encode() in answer
    delete_pods(cluster, namespace, driver, "pod")


# --- a legacy pod ---------------------------------------------------------------------------------


def test_a_legacy_pod_gets_its_fraction(
    cluster: Access,
    namespace: str,
    real_node: Node,
    driver: NodeDriver,
    drawbridge: Drawbridge,
) -> None:
    """A HAMi fraction, through webhook, template, scheduler, kubelet, driver and CDI."""
    pod = pod_on(real_node.name, "legacy", "env")
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    pod["spec"]["containers"][0]["resources"] = {"limits": limits}

    with drawbridge.configured({"translation": {"profiles": {"hami": DRIVER}}}):
        cluster.wait_until(lambda: is_translated(cluster, namespace, pod), "the profile is known")
        apply(cluster, namespace, pod)
        environment_ = environment(cluster, namespace, "legacy")

        (device,) = {name for name in environment_ if name.count("_") == 3}
        assert str(3000 * 2**20) == environment_[f"{device}_MEMORY"]
        assert "30" == environment_[f"{device}_CORES"]
        (node,) = device_nodes(cluster, namespace, "legacy")
        assert f"uuid-of-{node}" == environment_[device]
        (object_,) = cluster.objects("resourceclaims", namespace)
        (result,) = object_["status"]["allocation"]["devices"]["results"]
        assert (DRIVER, node) == (result["driver"], result["device"])
        assert Quantity("3000Mi") == Quantity(result["consumedCapacity"]["memory"])

        delete_pods(cluster, namespace, driver, "legacy")
        cluster.wait_until(
            lambda: not cluster.objects("resourceclaims", namespace), "its claim is gone"
        )


# --- more than one claim, request, container or pod -----------------------------------------------


def test_a_gpu_and_a_nic_under_one_root(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    root = {"matchAttribute": "resource.kubernetes.io/pcieRoot"}
    claim_ = claim(
        "pair",
        request("gpu", where=named("uuid-of-gpu-1"), capacity={"memory": "1Gi"}),
        request("nic", f"nic.{DRIVER}"),
        constraints=[root],
    )
    apply(cluster, namespace, claim_, pod_with(real_node.name, "pod", ["pair"]))

    environment_ = environment(cluster, namespace, "pod")

    assert "uuid-of-eth1" == environment_["DRAWBRIDGE_DEVICE_ETH1"]
    assert "uuid-of-gpu-1" == environment_["DRAWBRIDGE_DEVICE_GPU_1"]
    task_result = cluster.wait_for(
        "resourceclaims", "pair", namespace, until=lambda claim_: claim_["status"].get("devices")
    )
    networks = [device.get("networkData") for device in task_result["status"]["devices"]]
    assert {"interfaceName": "eth1", "ips": ["192.0.2.5/24"]} in networks
    delete_pods(cluster, namespace, driver, "pod")


def test_parts_of_a_card_are_in_use_together_and_the_card_is_not(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    parts = claim(
        "parts",
        {
            **request("part", f"mig.{DRIVER}"),
            "exactly": {"deviceClassName": f"mig.{DRIVER}", "count": 2},
        },
    )
    apply(cluster, namespace, parts, pod_with(real_node.name, "pod", ["parts"]))

    environment_ = environment(cluster, namespace, "pod")

    assert {"uuid-of-part-0", "uuid-of-part-1"} == {
        value for name, value in environment_.items() if not name.endswith("_MEMORY")
    }
    delete_pods(cluster, namespace, driver, "pod")


def test_two_fractions_on_one_device(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    half = request(where=named("uuid-of-gpu-0"), capacity={"memory": "40Gi", "cores": "50"})
    shares = []
    # One after the other: for a moment kube-scheduler counts what a claim consumes twice, once as in flight and
    # once as stored (GatherAllocatedState), and a pod turned away then waits five minutes for its next attempt.
    for name in ("a", "b"):
        apply(cluster, namespace, claim(name, half), pod_with(real_node.name, name, [name]))
        shares.append(environment(cluster, namespace, name)["DRAWBRIDGE_DEVICE_GPU_0_SHARE"])

    assert 2 == len(set(shares))
    assert 2 == len(driver.checkpoint())
    cluster.kubectl("delete", "pod", "-n", namespace, "a")
    cluster.wait_until(lambda: len(driver.specs()) == 1, "the first is released")
    delete_pods(cluster, namespace, driver, "b")


def test_containers_get_the_devices_of_their_own_requests(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    claim_ = claim(
        "both",
        request("left", where=named("uuid-of-gpu-0")),
        request("right", where=named("uuid-of-gpu-1")),
    )
    pod = pod_with(real_node.name, "pod", ["both"], requests={"both": "left"})
    (container,) = pod["spec"]["containers"]
    right = {**container, "name": "right", "resources": _uses("both", "right")}
    first = {
        **container,
        "name": "first",
        "args": ["env", "once"],
        "resources": _uses("both", "right"),
    }
    pod["spec"] |= {"containers": [container, right], "initContainers": [first]}
    apply(cluster, namespace, claim_, pod)

    assert "uuid-of-gpu-0" == environment(cluster, namespace, "pod").get("DRAWBRIDGE_DEVICE_GPU_0")
    assert {"gpu-0"} == device_nodes(cluster, namespace, "pod")
    assert {"gpu-1"} == device_nodes(cluster, namespace, "pod", "right")
    # The init container shared what the app container has now.
    early = environment(cluster, namespace, "pod", "first")
    assert environment(cluster, namespace, "pod", "right") == early
    assert "DRAWBRIDGE_DEVICE_GPU_1" in early
    delete_pods(cluster, namespace, driver, "pod")


def _uses(name: str, request_name: str) -> dict[str, Any]:
    return {"claims": [{"name": name, "request": request_name}]}


def test_a_claim_that_two_pods_share(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    apply(
        cluster,
        namespace,
        claim("shared"),
        *(pod_with(real_node.name, name, ["shared"]) for name in ("a", "b")),
    )

    assert environment(cluster, namespace, "a") == environment(cluster, namespace, "b")

    cluster.kubectl("delete", "pod", "-n", namespace, "a")
    cluster.wait_gone("pods", "a", namespace)
    assert 1 == len(driver.specs()), "the second pod still has it"
    delete_pods(cluster, namespace, driver, "b")


def test_admin_access_beside_the_tenant(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    cluster.kubectl("label", "ns", namespace, "resource.kubernetes.io/admin-access=true")
    nic = request("nic", f"nic.{DRIVER}", where=named("uuid-of-eth0"))
    watch = request("watch", f"nic.{DRIVER}", where=named("uuid-of-eth0"), adminAccess=True)
    apply(cluster, namespace, claim("tenant", nic), pod_with(real_node.name, "tenant", ["tenant"]))
    cluster.wait_running("tenant", namespace, timeout_s=TIMEOUT_S)

    apply(
        cluster,
        namespace,
        claim("monitor", watch),
        pod_with(real_node.name, "monitor", ["monitor"]),
    )

    environment_ = environment(cluster, namespace, "monitor")
    assert "true" == environment_["DRAWBRIDGE_DEVICE_ETH0_ADMIN"]
    delete_pods(cluster, namespace, driver, "tenant", "monitor")


def test_an_alternative_with_configuration_on_its_parent(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    alternatives: Iterable[Object] = (
        {"name": "huge", "deviceClassName": DRIVER, "count": 9},
        {"name": "small", "deviceClassName": DRIVER, "capacity": {"requests": {"memory": "1Gi"}}},
    )
    template_ = template(
        "either",
        {"name": "gpu", "firstAvailable": list(alternatives)},
        config=[configuration("gpu", sharing={"timeSlice": "Long"})],
    )
    pod = pod_with(real_node.name, "pod", ["gpu"])
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "either"}]
    apply(cluster, namespace, template_, pod)

    environment_ = environment(cluster, namespace, "pod")

    assert "Long" == environment_["DRAWBRIDGE_DEVICE_GPU_0_TIME_SLICE"]
    assert str(2**30) == environment_["DRAWBRIDGE_DEVICE_GPU_0_MEMORY"]
    delete_pods(cluster, namespace, driver, "pod")


def test_ten_cpus_of_each_of_two_numa_nodes(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    driver.declare((*INVENTORY, {"name": "cpus", "devices": [numa_node(0), numa_node(1)]}))
    cluster.wait_until(lambda: "cpu-numa-1" in driver.published(), "the CPUs are published")
    ten = {"capacity": {"cpus": "10"}}
    claim_ = claim(
        "cpus",
        request("left", f"cpu.{DRIVER}", **ten),
        request("right", f"cpu.{DRIVER}", **ten),
        constraints=[{"distinctAttribute": "resource.kubernetes.io/numaNode"}],
    )
    apply(cluster, namespace, claim_, pod_with(real_node.name, "pod", ["cpus"]))

    environment_ = environment(cluster, namespace, "pod")

    assert {"10"} == {
        environment_[f"DRAWBRIDGE_DEVICE_CPU_NUMA_{number}_CPUS"] for number in (0, 1)
    }
    delete_pods(cluster, namespace, driver, "pod")


def numa_node(number: int) -> Object:
    """A declared NUMA node of 16 CPUs."""
    return {
        "name": f"cpu-numa-{number}",
        "shared": True,
        "attributes": {"type": "cpu", "resource.kubernetes.io/numaNode": number},
        "capacity": {"cpus": {"value": 16, "default": 0, "min": 0, "step": 1}},
    }
