"""Prepared claims outlive restarts, a reboot, a broken checkpoint, a full disk, a lost server."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.access import Access, Object
from e2e.credentials import kubeconfig, write_secret
from e2e.link import Link
from e2e.node.claims import allocate_by_hand, claim, named, pod_with, request
from e2e.node.driver import DRIVER, INVENTORY, STATE, NodeDriver
from e2e.node.node import Node
from e2e.node.pods import (
    TIMEOUT_S,
    apply,
    containers,
    delete_pods,
    environment,
    sync,
    wait_refused,
)
from testing.long_runs import beginning_with

NIC = request("gpu", f"nic.{DRIVER}", where=named("uuid-of-eth0"))
OTHER = request("gpu", f"nic.{DRIVER}", where=named("uuid-of-eth1"))
STATE_UNKNOWN = "drawbridge.internal/state-unknown"
STAYS_S = 3.0


def restart(driver: NodeDriver) -> None:
    driver.stop()
    driver.start()
    driver.wait_ready()


@pytest.fixture
def tenant(cluster: Access, namespace: str, real_node: Node, driver: NodeDriver) -> str:
    """A running pod with a NIC of its own."""
    apply(cluster, namespace, claim("nic", NIC), pod_with(real_node.name, "tenant", ["nic"]))
    environment(cluster, namespace, "tenant")
    assert driver.specs()
    return "tenant"


def contents(driver: NodeDriver) -> list[Object]:
    """Return the published slices; a pool that the kubelet deleted begins with generation 1 again."""
    specs = [slice_["spec"] for slice_ in driver.slices()]
    return [{**spec, "pool": {**spec["pool"], "generation": None}} for spec in specs]


def versions(driver: NodeDriver) -> dict[str, str]:
    """Slice to its uid."""
    return {slice_["metadata"]["name"]: slice_["metadata"]["uid"] for slice_ in driver.slices()}


# --- restarts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "also_the_driver",
    beginning_with(1, [True, False]),
    ids=["kubelet and driver", "kubelet"],
)
def test_a_restart_disturbs_no_pod(
    cluster: Access, namespace: str, driver: NodeDriver, tenant: str, also_the_driver: bool
) -> None:
    node = driver.node
    before = containers(cluster, namespace, tenant), driver.specs(), driver.checkpoint()
    contents_, uids = contents(driver), versions(driver)

    if also_the_driver:
        driver.crash()
    node.restart_kubelet()
    if also_the_driver:
        driver.start()
    driver.wait_ready()

    # The kubelet has deleted all slices of its node; they come back as they were.
    cluster.wait_until(
        lambda: (
            (now := versions(driver)).keys() == uids.keys()
            and not set(now.values()) & set(uids.values())
        ),
        "the slices are there again",
    )
    assert contents_ == contents(driver)
    after = containers(cluster, namespace, tenant), driver.specs(), driver.checkpoint()
    assert before == after

    delete_pods(cluster, namespace, driver, tenant)


def test_a_pod_with_devices_ends_only_while_its_driver_is_there(
    cluster: Access, namespace: str, driver: NodeDriver, tenant: str
) -> None:
    """The order of a rollback: first the pods that a drain leaves, then their driver."""
    driver.stop()
    cluster.kubectl("delete", "pod", "-n", namespace, tenant, "--wait=false", "--grace-period=1")

    def has_ended(pod: Object) -> bool:
        states = [entry["state"] for entry in pod["status"]["containerStatuses"]]
        return all("terminated" in state for state in states)

    cluster.wait_for("pods", tenant, namespace, until=has_ended)
    time.sleep(STAYS_S)
    assert cluster.get("pods", tenant, namespace)["metadata"]["deletionTimestamp"]

    driver.start()
    driver.wait_ready()
    cluster.wait_gone("pods", tenant, namespace)


def test_a_reboot_begins_anew(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver, tenant: str
) -> None:
    before = containers(cluster, namespace, tenant)
    driver.stop()

    real_node.reboot()
    assert not driver.specs(), "/run is empty after a boot"
    driver.start()
    driver.wait_ready()

    cluster.wait_until(
        lambda: containers(cluster, namespace, tenant) != before,
        "the pod has a new container",
        timeout_s=TIMEOUT_S,
    )
    assert "uuid-of-eth0" == environment(cluster, namespace, tenant)["DRAWBRIDGE_DEVICE_ETH0"]
    assert ["Completed"] == [record["state"] for record in driver.checkpoint().values()]
    delete_pods(cluster, namespace, driver, tenant)


# --- the checkpoint -------------------------------------------------------------------------------


def change_version(file: Path, by: int) -> None:
    """Make a checkpoint one of another version; its first line is not under the checksum."""
    head, rest = file.read_text().split("\n", 1)
    document = json.loads(head)
    file.write_text(json.dumps({**document, "version": document["version"] + by}) + "\n" + rest)


def test_a_checkpoint_of_the_next_or_the_last_version_is_read(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver, tenant: str
) -> None:
    before = driver.checkpoint(), containers(cluster, namespace, tenant)
    for by in (-1, 1):
        driver.stop()
        change_version(real_node.path(f"{STATE}/checkpoint"), by)
        driver.start()
        driver.wait_ready()

        assert before == (driver.checkpoint(), containers(cluster, namespace, tenant))
        assert not driver.taints()
    delete_pods(cluster, namespace, driver, tenant)


def corrupt(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"eth0", b"eth1"))


def make_much_newer(file: Path) -> None:
    change_version(file, 2)


@pytest.mark.parametrize(
    "damage", beginning_with(1, [corrupt, make_much_newer]), ids=["damaged", "too new"]
)
def test_a_checkpoint_that_cannot_be_read_closes_the_node(
    cluster: Access,
    namespace: str,
    driver: NodeDriver,
    tenant: str,
    damage: Callable[[Path], None],
) -> None:
    node = driver.node
    before = containers(cluster, namespace, tenant)
    driver.stop()
    damage(node.path(f"{STATE}/checkpoint"))
    driver.start()
    driver.wait_ready()

    # No scheduler hands out its devices, and what was handed out already is refused.
    everything = {device["name"] for pool in INVENTORY for device in pool["devices"]}
    cluster.wait_until(
        lambda: driver.taints() == {name: [STATE_UNKNOWN] for name in everything},
        "all devices are tainted",
    )
    apply(cluster, namespace, claim("next", OTHER))
    allocate_by_hand(cluster, namespace, "next", node.name, "eth1", pool="nics")
    apply(cluster, namespace, pod_with(node.name, "next", ["next"]))
    wait_refused(cluster, namespace, "next", "nobody knows which devices are in use here")
    assert before == containers(cluster, namespace, tenant)

    # The node is drained, and a person removes the file.
    cluster.kubectl("delete", "pod", "-n", namespace, tenant, "next")
    (aside,) = node.path(STATE).glob("checkpoint.unreadable.*")
    aside.unlink()
    restart(driver)
    cluster.wait_until(lambda: not driver.taints() and driver.is_clean(), "all is well again")


# --- what fails meanwhile -------------------------------------------------------------------------


@pytest.fixture
def small_disk(real_node: Node, driver: NodeDriver) -> Iterator[Path]:
    """The driver with its state on a file system of 64 KiB."""
    folder = "/var/lib/small"
    mount = ("mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", folder)
    real_node.path(folder).mkdir()
    real_node.execute(*mount)
    driver.stop()
    driver.start(stateDirectory=folder)
    driver.wait_ready()
    yield real_node.path(folder)
    driver.stop()
    real_node.execute("umount", folder)


def test_a_full_disk_is_reported_and_leaves_nothing(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver, small_disk: Path
) -> None:
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(2**20))
    apply(cluster, namespace, claim("nic", NIC), pod_with(real_node.name, "pod", ["nic"]))

    wait_refused(cluster, namespace, "pod", "checkpoint: No space left on device")
    assert not driver.specs()

    # Nor does a driver lose its way that starts then, and has no checkpoint yet.
    driver.stop()
    (small_disk / "checkpoint").unlink()
    with suppress(OSError):
        (small_disk / "more").write_bytes(bytes(2**20))
    child = driver.start(stateDirectory="/var/lib/small")
    cluster.wait_until(
        lambda: "state.not_recovered" in child.log.read_text(), "it says what it waits for"
    )
    (small_disk / "more").unlink()
    filler.unlink()
    driver.wait_ready()
    sync(cluster, namespace, "pod")
    assert "uuid-of-eth0" == environment(cluster, namespace, "pod")["DRAWBRIDGE_DEVICE_ETH0"]
    cluster.kubectl("delete", "pod", "-n", namespace, "pod")
    cluster.wait_until(lambda: not driver.specs(), "nothing is prepared", timeout_s=TIMEOUT_S)


def test_a_device_that_vanishes(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver, tenant: str
) -> None:
    before = containers(cluster, namespace, tenant)
    rest = [pool for pool in INVENTORY if pool.get("name") != "nics"]
    driver.declare(rest)
    cluster.wait_until(lambda: "eth0" not in driver.published(), "it is no longer published")

    apply(cluster, namespace, claim("next", NIC))
    allocate_by_hand(cluster, namespace, "next", real_node.name, "eth1", pool="nics")
    apply(cluster, namespace, pod_with(real_node.name, "next", ["next"]))

    wait_refused(cluster, namespace, "next", "eth1 is not on this node")
    assert before == containers(cluster, namespace, tenant)
    delete_pods(cluster, namespace, driver, tenant, "next")


def test_a_broken_inventory_changes_nothing_and_is_reported(
    cluster: Access, driver: NodeDriver
) -> None:
    before = driver.slices()

    driver.declare([{"devices": [{"name": "gpu-0", "attribute": {}}]}])

    broken = "drawbridge_driver_inventory_broken"
    cluster.wait_until(lambda: driver.metric(broken) == 1, "the file is found broken")
    assert before == driver.slices()
    driver.declare(INVENTORY)
    cluster.wait_until(lambda: driver.metric(broken) == 0, "the file is good again")


def test_without_the_api_server_nothing_is_prepared(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    token = driver.token_of(real_node.name)
    with Link(cluster.entry()) as link:
        file = real_node.folder / "linked.kubeconfig"
        write_secret(file, kubeconfig(link.entry(), {"token": token}))
        driver.stop()
        driver.start(environment={"KUBECONFIG": str(file)})
        driver.wait_ready()
        link.cut()
        apply(cluster, namespace, claim("nic", NIC), pod_with(real_node.name, "pod", ["nic"]))

        wait_refused(cluster, namespace, "pod", "the claim cannot be read")
        assert driver.is_clean()

        link.mend()
        sync(cluster, namespace, "pod")
        environment(cluster, namespace, "pod")
        # It needs no API server to release what it has prepared.
        link.cut()
        delete_pods(cluster, namespace, driver, "pod")
        driver.stop()
