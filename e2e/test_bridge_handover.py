"""Drivers go to the bridge and back, with pods in every state, behind the fence of the cluster.

The stories follow each other on one control plane of their own: a fence that is deleted and created
again keeps an old parameter, so it is created once. Others may give devices of the driver before it is
owned, in-tree and a scheduler with our own binary are refused while it is, and what waits when the bridge
is lost is bound by a stock kube-scheduler.
"""

import http.client
import json
import signal
from collections.abc import Iterator
from typing import Final

import pytest

from admission.fence import OPEN_PATCH
from e2e import inventory
from e2e.access import Access, Object, stream
from e2e.binaries import binaries, scheduler
from e2e.bridge import Bridge, bridged, doubly_held
from e2e.inventory import EXAMPLE
from e2e.objects import claim_template, pod
from e2e.owned import AUDITED, TEAM, TIMEOUT_S, Owned, another_scheduler, taker
from kube.names import BRIDGE_ACCOUNT, FENCE, IN_USE_TAINT, NAMESPACE, SCHEDULER_NAME

DRIVER: Final = EXAMPLE
DEVICES: Final = 8
OTHERS: Final = "owned-others"
pytestmark = pytest.mark.parametrize("cluster", [AUDITED], indirect=True)


def serving(status: Object) -> dict[str, str]:
    """Return the reason of the condition Serving: of the whole under an empty name, and of drivers."""
    conditions = {"": status.get("conditions", [])}
    conditions |= {driver["name"]: driver["conditions"] for driver in status.get("drivers", [])}
    return {
        name: conditions_[0]["reason"] for name, conditions_ in conditions.items() if conditions_
    }


@pytest.fixture(scope="module")
def stage(owned_bridge: Owned) -> Iterator[Owned]:
    """Two nodes with four devices each, and the bridge that comes to own their driver."""
    cluster = owned_bridge.cluster
    nodes = cluster.add_nodes(
        inventory.kwok_nodes(2, prefix="handover"),
        lambda node: inventory.example_gpus(node, gpus=DEVICES // 2),
    )
    yield owned_bridge
    owned_bridge.clear()
    cluster.remove_nodes(nodes)


def test_a_sidecar_with_other_feature_gates_is_not_ready_and_names_them(stage: Owned) -> None:
    other = Bridge(
        stage.cluster, drivers=(), settings={"featureGates": {"DRAConsumableCapacity": False}}
    )
    child = other.start_part("sidecar", "gates")
    try:
        stage.cluster.wait_until(
            lambda: "DRAConsumableCapacity is off here and on there" in child.log.read_text(),
            "the gate is named",
            timeout_s=TIMEOUT_S,
        )
        assert _readiness(other.replica("gates").probes) == "not ready"
    finally:
        child.stop()
        stage.cluster.children.pop("sidecar-gates")


def _readiness(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().read().decode()
    except OSError:
        return ""
    finally:
        connection.close()


def test_pods_that_wait_are_bound_once_their_driver_is_owned(stage: Owned) -> None:
    """With pods of the other scheduler that run, and that wait."""
    stage.apply(taker("before-0"), taker("before-1"))
    stage.running("before-0", "before-1")
    stage.bridge.ensure()
    stage.apply(*(bridged(taker(f"early-{number}")) for number in range(2)))
    assert "driver that this scheduler does not own" in stage.waiting("early-0")

    stage.command("bridge", "own", DRIVER, "--apply")

    stage.running("early-0", "early-1")
    stage.cluster.wait_until(
        lambda: serving(stage.status()) == {"": "Serving", DRIVER: "Serving"},
        "the status says who serves",
        timeout_s=TIMEOUT_S,
    )
    (shown,) = stage.cluster.kubectl("get", "aown", "--no-headers").stdout.splitlines()
    assert shown.split()[:2] == ["default", DRIVER]
    assert shown.split()[3] == "True"
    assert (
        stage.status()["holder"]
        == stage.cluster.get("lease", "drawbridge-bridge", NAMESPACE)["spec"]["holderIdentity"]
    )
    # What ran before runs on, and its devices count.
    stage.apply(*(bridged(taker(f"late-{number}")) for number in range(DEVICES - 4)))
    stage.running(*(f"late-{number}" for number in range(DEVICES - 4)), "before-0", "before-1")
    assert [] == doubly_held(stage.cluster)
    stage.clear()


def test_in_tree_and_another_profile_of_our_binary_are_refused(stage: Owned) -> None:
    """By the fence: for the second one, the account gets every right that a scheduler has."""
    rule = {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceclaims", "resourceclaims/binding", "resourceclaims/status"],
        "verbs": ["get", "list", "watch", "patch", "update"],
    }
    metadata = {"name": "bridge-handover-intruder"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **metadata}
    account = {"kind": "ServiceAccount", "name": BRIDGE_ACCOUNT, "namespace": NAMESPACE}
    api_version = "rbac.authorization.k8s.io/v1"
    stage.cluster.apply(
        [
            {
                "apiVersion": api_version,
                "kind": "ClusterRole",
                "metadata": metadata,
                "rules": [rule],
            },
            {
                "apiVersion": api_version,
                "kind": "ClusterRoleBinding",
                "metadata": metadata,
                "roleRef": {key: role[key] for key in ("apiGroup", "kind", "name")},
                "subjects": [account],
            },
        ]
    )
    credentials = stage.cluster.kubeconfig_for(NAMESPACE, BRIDGE_ACCOUNT)
    with another_scheduler(stage.cluster, scheduler(), "intruder", credentials):
        stage.apply(taker("in-tree"), taker("intruder", schedulerName="intruder"))
        for name, words in (
            ("in-tree", "only its bridge may write it"),
            ("intruder", "the writer does not hold the Lease of the bridge"),
        ):
            _wait_event(stage.cluster, name, words)
    claims = stage.cluster.objects("resourceclaims", TEAM)
    assert not any("allocation" in claim.get("status", {}) for claim in claims)
    stage.cluster.kubectl("delete", "clusterrolebinding", "bridge-handover-intruder")
    stage.cluster.kubectl("delete", "clusterrole", "bridge-handover-intruder")
    stage.clear()


def _wait_event(cluster: Access, name: str, words: str) -> None:
    cluster.wait_until(
        lambda: words in _events_of(cluster, name), f"{name} is refused", timeout_s=TIMEOUT_S
    )


def _events_of(cluster: Access, name: str) -> str:
    return " ".join(
        str(event.get("message", event.get("note", "")))
        for event in cluster.objects("events", TEAM)
        if (event.get("involvedObject") or event.get("regarding") or {}).get("name") == name
    )


def test_devices_of_a_pod_that_is_deleted_by_force_are_held_back(stage: Owned) -> None:
    """Also by the next leader, until the driver's taint goes away."""
    stage.bridge.ensure()
    names = [f"full-{number}" for number in range(DEVICES)]
    stage.apply(*(bridged(taker(name)) for name in names))
    stage.running(*names)
    victim = stage.cluster.get("pods", names[0], TEAM)["metadata"]["uid"]
    claims = stage.cluster.objects("resourceclaims", TEAM)
    (result,) = (
        claim["status"]["allocation"]["devices"]["results"][0]
        for claim in claims
        if claim.get("status", {}).get("reservedFor", [{}])[0].get("uid") == victim
    )

    stage.cluster.kubectl("delete", "pod", names[0], "-n", TEAM, "--force", "--grace-period=0")
    stage.apply(bridged(taker("next")))
    stage.cluster.wait_until(
        lambda: [entry["podUID"] for entry in stage.status().get("heldBack", ())] == [victim],
        "its device is held back",
        timeout_s=TIMEOUT_S,
    )
    assert "no free devices" in stage.waiting("next") or "no node has" in stage.waiting("next")
    explanation = stage.command("why", "pod", "next", "-n", TEAM, "--live")
    assert f"{result['pool']}/{result['device']}" in explanation
    assert "deleted by force" in explanation

    for part in ("scheduler", "sidecar"):
        stage.bridge.child(part).signal(signal.SIGKILL)
    holder = stage.status()["holder"]
    stage.bridge.wait_working("a")
    stage.cluster.wait_until(
        lambda: stage.status()["holder"] != holder, "another one leads", timeout_s=TIMEOUT_S
    )
    assert [victim] == [entry["podUID"] for entry in stage.status()["heldBack"]]
    assert "Pending" == stage.cluster.get("pods", "next", TEAM)["status"]["phase"]

    _taint(stage.cluster, result, {"key": IN_USE_TAINT, "effect": "NoSchedule"})
    stage.cluster.wait_until(
        lambda: stage.bridge.calls("prefilter") > 0, "it goes on", timeout_s=TIMEOUT_S
    )
    _taint(stage.cluster, result)

    stage.running("next")
    stage.cluster.wait_until(
        lambda: not stage.status().get("heldBack"), "nothing is held back", timeout_s=TIMEOUT_S
    )
    assert [] == doubly_held(stage.cluster)
    stage.clear()


@pytest.mark.long
def test_a_loop_of_forced_deletions_leaves_devices_to_other_namespaces(stage: Owned) -> None:
    """A namespace has at most a fourth of the devices held back; then its own pods wait."""
    cluster = stage.cluster
    stage.bridge.ensure()
    count = DEVICES // 4
    for number in range(count + 1):
        name = f"loop-{number}"
        stage.apply(bridged(taker(name)))
        stored = cluster.wait_for("pods", name, TEAM, until=_is_decided, timeout_s=TIMEOUT_S)
        assert (number < count) == ("nodeName" in stored["spec"])
        if number < count:
            cluster.kubectl("delete", "pod", name, "-n", TEAM, "--force", "--grace-period=0")
    cluster.wait_until(
        lambda: len(stage.status().get("heldBack", ())) == count,
        "its devices are held back",
        timeout_s=TIMEOUT_S,
    )

    cluster.kubectl("create", "namespace", OTHERS)
    others = [f"other-{number}" for number in range(DEVICES - count)]
    objects = [claim_template("one", DRIVER), *(bridged(taker(name)) for name in others)]
    cluster.kubectl("apply", "-n", OTHERS, "-f", "-", input=stream(objects))

    for name in others:
        cluster.wait_running(name, OTHERS, timeout_s=TIMEOUT_S)
    assert [] == doubly_held(cluster)
    for entry in stage.status()["heldBack"]:
        (device,) = entry["devices"]
        _taint(cluster, device, {"key": IN_USE_TAINT, "effect": "NoSchedule"})
        _taint(cluster, device)
    stage.running(f"loop-{count}")
    cluster.kubectl("delete", "namespace", OTHERS)
    stage.clear()


def _is_decided(stored: Object) -> bool:
    """Return True if a pod has a node, or waits since devices are held back."""
    conditions = stored.get("status", {}).get("conditions", [])
    is_refused = any("held back" in condition.get("message", "") for condition in conditions)
    return is_refused or "nodeName" in stored["spec"]


def _taint(cluster: Access, result: Object, *taints: Object) -> None:
    """Publish a device with these taints, as its driver does."""
    (published,) = (
        slice_
        for slice_ in cluster.objects("resourceslices")
        if (slice_["spec"]["driver"], slice_["spec"]["pool"]["name"])
        == (result["driver"], result["pool"])
    )
    for device in published["spec"]["devices"]:
        if device["name"] == result["device"]:
            device["taints"] = list(taints)
    patch = json.dumps({"spec": {"devices": published["spec"]["devices"]}})
    name = published["metadata"]["name"]
    cluster.kubectl("patch", "resourceslice", name, "--type=merge", "-p", patch)


def test_a_stock_scheduler_binds_what_waits_when_the_bridge_is_lost(stage: Owned) -> None:
    """The rescue: nothing is created again, and running pods run on."""
    stage.bridge.ensure()
    stage.apply(bridged(taker("runs-0")), bridged(taker("runs-1")))
    stage.running("runs-0", "runs-1")
    for part in ("scheduler", "sidecar"):
        stage.bridge.child(part).signal(signal.SIGKILL)
    stage.apply(bridged(taker("waits-0")), bridged(taker("waits-1")))
    before = stage.uids()
    with another_scheduler(
        stage.cluster, binaries().kube_scheduler, SCHEDULER_NAME, stage.cluster.kubeconfig
    ):
        _wait_event(stage.cluster, "waits-0", "only its bridge may write it")
        words = ("patch", "validatingadmissionpolicy", FENCE, "--type=merge", "-p")
        stage.cluster.kubectl(*words, json.dumps(OPEN_PATCH))

        stage.running("waits-0", "waits-1", "runs-0", "runs-1")
    assert before == stage.uids()
    assert [] == doubly_held(stage.cluster)


@pytest.mark.long
def test_a_bridge_that_comes_back_gives_nothing_while_the_fence_is_open(stage: Owned) -> None:
    stage.bridge.ensure()
    stage.apply(bridged(taker("after-rescue")))

    stage.cluster.wait_until(
        lambda: serving(stage.status()) == {"": "FenceOpen", DRIVER: "FenceOpen"},
        "the status says that the fence is open",
        timeout_s=TIMEOUT_S,
    )
    assert "driver that this scheduler does not own" in stage.waiting("after-rescue")
    stage.command("bridge", "own", DRIVER, "--apply")
    stage.running("after-rescue")


def test_the_bridge_gives_nothing_while_a_part_of_the_fence_is_gone(stage: Owned) -> None:
    stage.bridge.ensure()
    stage.command("bridge", "own", DRIVER, "--apply")

    stage.cluster.kubectl("delete", "validatingadmissionpolicybinding", FENCE)

    stage.cluster.wait_until(
        lambda: serving(stage.status()) == {"": "FenceIncomplete", DRIVER: "FenceIncomplete"},
        "the status says that a part is gone",
        timeout_s=TIMEOUT_S,
    )
    stage.apply(bridged(taker("unfenced")))
    assert "driver that this scheduler does not own" in stage.waiting("unfenced")
    stage.command("bridge", "own", DRIVER, "--apply")
    stage.running("unfenced")


def test_a_released_driver_is_in_trees_again_while_its_pods_run_on(stage: Owned) -> None:
    stage.apply(bridged(taker("held")))
    stage.running("held")
    before = stage.uids()

    stage.command("bridge", "release", DRIVER, "--apply")

    # While the last device is free.
    stage.apply(bridged(taker("too-late")))
    assert "driver that this scheduler does not own" in stage.waiting("too-late")
    stage.apply(taker("in-tree-again"))
    stage.running("in-tree-again")
    # The bridge binds what waits for a claim that is allocated.
    (claim,) = (
        claim["metadata"]["name"]
        for claim in stage.cluster.objects("resourceclaims", TEAM)
        if claim["metadata"]["name"].startswith("held-")
    )
    entry = {"name": "gpu", "resourceClaimName": claim}
    stage.apply(bridged(pod("sharing", resourceClaims=[entry])))
    stage.running("sharing")
    stage.running("held")
    assert before.items() <= stage.uids().items()
    assert [] == doubly_held(stage.cluster)
    assert stage.command("verify", "--live")
