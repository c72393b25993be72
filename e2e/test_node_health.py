"""Devices that fail and recover, and the view of readers of slices meanwhile."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from driver.faults.prepare_failures import BOUND
from driver.node.files import TEMPORARY
from driver.plan.cdi import spec_file_name
from e2e.access import Access, Object
from e2e.node.claims import (
    claim,
    deployment,
    held_deployment,
    named,
    pod_with,
    request,
    template,
)
from e2e.node.driver import CDI, DRIVER, NodeDriver, Pools
from e2e.node.node import Node
from e2e.node.pods import (
    TIMEOUT_S,
    apply,
    delete_pods,
    environment,
    held_pod,
    let_go,
    results,
    sync,
    wait_refused,
)

NIC = f"nic.{DRIVER}"
UNHEALTHY = "drawbridge.internal/unhealthy"


def running_pod(cluster: Access, namespace: str, *, other_than: str = "") -> str:
    """The pod of the deployment that runs."""
    names: list[str] = []

    def is_there() -> bool:
        names[:] = [
            pod["metadata"]["name"]
            for pod in cluster.objects("pods", namespace, selector="app=app")
            if pod["status"]["phase"] == "Running"
            and "deletionTimestamp" not in pod["metadata"]
            and pod["metadata"]["name"] != other_than
        ]
        return bool(names)

    cluster.wait_until(is_there, "a pod of the deployment runs", timeout_s=TIMEOUT_S)
    return names[0]


def nic_of(cluster: Access, namespace: str, pod: str) -> str:
    values = set(environment(cluster, namespace, pod).values())
    (uuid,) = values & {"uuid-of-eth0", "uuid-of-eth1"}
    return uuid.removeprefix("uuid-of-")


def test_pods_of_a_device_that_fails_move_to_another(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    apply(
        cluster,
        namespace,
        template("nic", request("nic", NIC)),
        deployment(real_node.name, "nic"),
    )
    first = running_pod(cluster, namespace)
    failing = nic_of(cluster, namespace, first)

    driver.report_fault(failing, "lost", "it has fallen off the bus")

    second = running_pod(cluster, namespace, other_than=first)
    assert {failing, nic_of(cluster, namespace, second)} == {"eth0", "eth1"}
    assert {failing: [UNHEALTHY]} == driver.taints()

    driver.end_fault(failing)
    cluster.wait_until(lambda: not driver.taints(), "the device has recovered")
    cluster.kubectl("delete", "deployment", "-n", namespace, "app")
    cluster.wait_until(driver.is_clean, "nothing is prepared", timeout_s=TIMEOUT_S)


def test_a_device_that_cannot_be_prepared_is_tainted_after_some_attempts(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    """Else a Deployment would loop there: when a pod gives up, its device is free for the next one."""
    nic = template("nic", request("nic", NIC))
    apply(cluster, namespace, nic, held_deployment(real_node.name, "nic"))
    first = held_pod(cluster, namespace)["metadata"]["name"]
    (claim_,) = cluster.objects("resourceclaims", namespace)
    with unwritable_spec(driver, claim_["metadata"]["uid"]):
        let_go(cluster, namespace, first)
        wait_refused(cluster, namespace, first, "the driver cannot do it now")
        (result,) = results(cluster, namespace, claim_["metadata"]["name"])
        failing = result["device"]

        def is_tainted() -> bool:
            sync(cluster, namespace, first)
            return [UNHEALTHY] == driver.taints().get(failing)

        cluster.wait_until(is_tainted, "the device is tainted", timeout_s=3 * TIMEOUT_S)
        outcome = '{method="NodePrepareResources",outcome="node"}'
        assert driver.metric("drawbridge_driver_claims_total", outcome) >= BOUND
        cluster.kubectl("delete", "pod", "-n", namespace, first)
    cluster.wait_until(driver.is_clean, "nothing is prepared", timeout_s=TIMEOUT_S)

    second = held_pod(cluster, namespace)["metadata"]["name"]
    let_go(cluster, namespace, second)
    assert {failing, nic_of(cluster, namespace, second)} == {"eth0", "eth1"}

    cluster.kubectl("delete", "deployment", "-n", namespace, "app")
    cluster.wait_until(driver.is_clean, "nothing is prepared", timeout_s=TIMEOUT_S)
    driver.stop()  # What it has counted ends with it.
    driver.start()
    driver.wait_ready()
    cluster.wait_until(lambda: not driver.taints(), "the device is healthy", timeout_s=TIMEOUT_S)


@contextmanager
def unwritable_spec(driver: NodeDriver, uid: str) -> Iterator[None]:
    """Have the CDI spec of a claim fail to be written; it stands for any cause on the node."""
    obstacle = driver.node.path(f"{CDI}/{spec_file_name(DRIVER, uid)}{TEMPORARY}")
    obstacle.mkdir(parents=True)
    try:
        yield
    finally:
        obstacle.rmdir()


def test_a_fault_that_evicts_nobody_is_in_the_status_of_the_pod(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    only = request("nic", NIC, where=named("uuid-of-eth0"))
    apply(cluster, namespace, claim("nic", only), pod_with(real_node.name, "pod", ["nic"]))
    environment(cluster, namespace, "pod")

    driver.report_fault("eth0", "linkDown", "the cable is out")

    def is_unhealthy(pod: Object) -> bool:
        return any(
            (health["health"], health.get("message")) == ("Unhealthy", "linkDown: the cable is out")
            for status in pod["status"]["containerStatuses"]
            for entry in status.get("allocatedResourcesStatus") or ()
            for health in entry.get("resources") or ()
        )

    cluster.wait_for("pods", "pod", namespace, until=is_unhealthy, timeout_s=TIMEOUT_S)
    assert "deletionTimestamp" not in cluster.get("pods", "pod", namespace)["metadata"]
    driver.end_fault("eth0")
    cluster.wait_until(lambda: not driver.taints(), "the device has recovered")
    delete_pods(cluster, namespace, driver, "pod")


# --- readers of slices ----------------------------------------------------------------------------


def many_nics(version: int) -> Pools:
    """A pool of three slices with devices that all tell a version."""
    devices = [
        {"name": f"eth{number}", "attributes": {"type": "nic", "version": version}}
        for number in range(150)
    ]
    return ({"name": "nics", "devices": devices},)


def whole_pool(slices: list[Object]) -> list[Object]:
    """The devices of the pool as a scheduler takes them; none while it is not whole."""
    pools = [slice_["spec"]["pool"] for slice_ in slices]
    newest = max((pool["generation"] for pool in pools), default=0)
    current = [slice_ for slice_ in slices if slice_["spec"]["pool"]["generation"] == newest]
    if not current or len(current) != current[0]["spec"]["pool"]["resourceSliceCount"]:
        return []
    return [device for slice_ in current for device in slice_["spec"].get("devices") or ()]


@contextmanager
def reading(driver: NodeDriver) -> Iterator[list[set[int]]]:
    """Read slices all the time; yields the versions that each whole pool had."""
    versions: list[set[int]] = []
    event = threading.Event()

    def read() -> None:
        while not event.is_set():
            slices = [
                slice_
                for slice_ in driver.slices()
                if slice_["spec"]["pool"]["name"].endswith("/nics")
            ]
            devices = whole_pool(slices)
            if devices and "version" in devices[0]["attributes"]:
                assert len(devices) == len({device["name"] for device in devices})
                versions.append({device["attributes"]["version"]["int"] for device in devices})

    reader = threading.Thread(target=read, name="reader")
    reader.start()
    try:
        yield versions
    finally:
        event.set()
        reader.join()


def test_a_reader_never_takes_a_mixture_for_a_whole_pool(
    cluster: Access, driver: NodeDriver
) -> None:
    def is_read(version: int) -> bool:
        return bool(reading_) and reading_[-1] == {version}

    with reading(driver) as reading_:
        for version in range(1, 5):
            driver.declare(many_nics(version))
            cluster.wait_until(partial(is_read, version), f"version {version} is read")

    assert {1} == {len(versions) for versions in reading_}, "two versions in one pool"
    assert {1, 2, 3, 4} == {version for versions in reading_ for version in versions}
