"""Groups on the bridge: all pods that a group needs get their devices together, or none does.

Two nodes have eight GPUs each.
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from e2e import groups, inventory
from e2e.access import PATIENCE, Access, Object, stream
from e2e.bridge import Bridge, bridged, doubly_held
from e2e.cluster import Cluster
from e2e.groups import LABEL, member, pod_group
from e2e.inventory import EXAMPLE
from e2e.objects import (
    claim_template,
    disruption_budget,
    has_healthy_pods,
    named_claim,
    pod,
    priority_class,
)

pytestmark = [
    pytest.mark.parametrize("cluster", [groups.TOPOLOGY_CLUSTER], indirect=True),
    pytest.mark.usefixtures("nodes"),
]

TIMEOUT_S: Final = 60.0
PRIORITY: Final = "group-urgent"
GPUS: Final = 8
RACK: Final = "example.com/rack"
SHARING: Final = 300
"""Pods that share a claim; more than one claim can be reserved for singly."""
PARTS: Final = ("sidecar", "scheduler")
KILLS: Final = int(os.environ.get("DRAWBRIDGE_E2E_GROUP_KILLS", "2"))
"""The number of kills of a process in a commit, each time after another number of writes."""


@pytest.fixture(scope="module")
def nodes(cluster: Access) -> Iterator[list[str]]:
    """Two nodes with eight devices each."""
    cluster.apply(inventory.device_classes())
    names = cluster.add_nodes(
        inventory.kwok_nodes(2, prefix="group"),
        lambda node: inventory.example_gpus(node, gpus=GPUS),
    )
    yield names
    cluster.remove_nodes(names)


@pytest.fixture(autouse=True)
def idle(cluster: Access) -> None:
    """No device is in use: the pods of the story before are gone, and their claims."""
    cluster.wait_until(
        lambda: not cluster.objects("resourceclaims") and not cluster.objects("pods"),
        "the pods of other stories are gone",
        timeout_s=TIMEOUT_S,
    )


@pytest.fixture(scope="module")
def installed(cluster: Access) -> Iterator[Bridge]:
    # One write at a time, so that a commit can be interrupted between two of them.
    settings = {"maxWritesInFlight": 1}
    bridge = Bridge(
        cluster,
        drivers=(EXAMPLE,),
        settings=settings,
        scheduler_flags=groups.TOPOLOGY_SCHEDULER_FLAGS,
    )
    bridge.install()
    yield bridge
    bridge.uninstall()


@pytest.fixture
def group_bridge(installed: Bridge) -> Bridge:
    """The bridge with one replica at work."""
    installed.ensure()
    return installed


def apply(cluster: Access, namespace: str, objects: Sequence[Object]) -> None:
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(list(objects)))


def worker(name: str, group: str, template: str = "two", **spec: Any) -> Object:
    """Return a pod of a group with the devices of a template."""
    return member(bridged(pod(name, claims={"gpu": template}, **spec)), group)


def templates() -> list[Object]:
    """Return templates for one device, two, four, and eight."""
    counts = {"one": 1, "two": 2, "four": 4, "eight": GPUS}
    return [claim_template(name, EXAMPLE, count=count) for name, count in counts.items()]


def bound(cluster: Access, namespace: str, group: str) -> list[str]:
    """Return the pods of a group that have a node."""
    pods = cluster.objects("pods", namespace, selector=f"{LABEL}={group}")
    return [entry["metadata"]["name"] for entry in pods if entry["spec"].get("nodeName")]


def running(cluster: Access, namespace: str, group: str, count: int) -> None:
    """Wait until so many pods of a group run."""

    def are_running() -> bool:
        pods = cluster.objects("pods", namespace, selector=f"{LABEL}={group}")
        phases = [entry.get("status", {}).get("phase") for entry in pods]
        return phases.count("Running") == count

    cluster.wait_until(are_running, f"{count} pods of {group} run", timeout_s=TIMEOUT_S)


def wait_reason(cluster: Access, namespace: str, group: str, words: str) -> None:
    """Wait until a PodGroup tells in words the reason it is not scheduled; an answer may take several attempts."""

    def says_so(object_: Object) -> bool:
        conditions = object_.get("status", {}).get("conditions", ())
        return any(entry["status"] == "False" and words in entry["message"] for entry in conditions)

    cluster.wait_for("podgroups", group, namespace, until=says_so, timeout_s=TIMEOUT_S)


def present(cluster: Access, namespace: str) -> list[str]:
    """Return the pods that are not being deleted."""
    return [
        entry["metadata"]["name"]
        for entry in cluster.objects("pods", namespace)
        if "deletionTimestamp" not in entry["metadata"]
    ]


def allocated(cluster: Access, namespace: str) -> int:
    """Return the number of claims that have devices."""
    return sum(
        "allocation" in claim.get("status", {})
        for claim in cluster.objects("resourceclaims", namespace)
    )


def test_of_four_groups_two_run_whole_and_two_wait_whole(
    cluster: Access, group_bridge: Bridge, namespace: str
) -> None:
    names = [f"job-{number}" for number in range(4)]
    pods = [worker(f"{name}-{index}", name) for name in names for index in range(4)]
    apply(cluster, namespace, [*templates(), *(pod_group(name, 4) for name in names), *pods])

    def counts() -> list[int]:
        return sorted(len(bound(cluster, namespace, name)) for name in names)

    cluster.wait_until(lambda: counts() == [0, 0, 4, 4], "two run whole", timeout_s=TIMEOUT_S)
    waiting = [name for name in names if not bound(cluster, namespace, name)]
    for name in waiting:
        wait_reason(cluster, namespace, name, "0 of 4 pods fit, and 4 are needed")
    assert counts() == [0, 0, 4, 4]
    assert allocated(cluster, namespace) == 8
    assert [] == doubly_held(cluster)

    for name in set(names) - set(waiting):
        cluster.kubectl("delete", "pods", "-n", namespace, "-l", f"{LABEL}={name}", "--wait=false")
    for name in waiting:
        running(cluster, namespace, name, 4)
    assert [] == doubly_held(cluster)


def test_a_group_that_first_fit_turns_away_runs(
    cluster: Access, group_bridge: Bridge, nodes: list[str], namespace: str
) -> None:
    """One after the other, the small pod takes a device of the only node that has eight."""
    blocker = bridged(pod("blocker", claims={"gpu": "four"}), nodes[1:])
    apply(cluster, namespace, [*templates(), blocker])
    cluster.wait_running("blocker", namespace, timeout_s=TIMEOUT_S)

    pods = [worker("a-evaluator", "evaluation", "one"), worker("b-trainer", "evaluation", "eight")]
    apply(cluster, namespace, [pod_group("evaluation", 2), *pods])

    running(cluster, namespace, "evaluation", 2)
    placed = {
        entry["metadata"]["name"]: entry["spec"]["nodeName"]
        for entry in cluster.objects("pods", namespace, selector=f"{LABEL}=evaluation")
    }
    assert placed == {"a-evaluator": nodes[1], "b-trainer": nodes[0]}


def test_a_group_of_one_rack_stays_in_one_and_waits_for_one(
    cluster: Access, group_bridge: Bridge, nodes: list[str], namespace: str
) -> None:
    """kube-scheduler tries one rack after the other, and the bridge has chosen one before."""
    for name, rack in zip(nodes, ("a", "b"), strict=True):
        cluster.kubectl("label", "node", name, f"{RACK}={rack}")
    blocker = bridged(pod("blocker", claims={"gpu": "one"}), nodes[:1])
    apply(cluster, namespace, [*templates(), blocker])
    cluster.wait_running("blocker", namespace, timeout_s=TIMEOUT_S)

    whole = [worker(f"whole-{index}", "whole") for index in range(4)]
    apply(cluster, namespace, [pod_group("whole", 4, topology=RACK), *whole])

    running(cluster, namespace, "whole", 4)
    pods = cluster.objects("pods", namespace, selector=f"{LABEL}=whole")
    assert {nodes[1]} == {entry["spec"]["nodeName"] for entry in pods}

    # Seven devices are free, six of them in pairs, and one rack has them all.
    rest = [worker(f"rest-{index}", "rest") for index in range(4)]
    apply(cluster, namespace, [pod_group("rest", 4, topology=RACK), *rest])
    wait_reason(cluster, namespace, "rest", "3 of 4 pods fit, and 4 are needed")
    assert [] == bound(cluster, namespace, "rest")

    cluster.kubectl("delete", "pod", "-n", namespace, "whole-0", "--wait=false")
    cluster.kubectl("wait", "--for=delete", "pod/whole-0", "-n", namespace)
    wait_reason(cluster, namespace, "rest", "3 of 4 pods fit, and 4 are needed")
    cluster.kubectl("delete", "pod", "-n", namespace, "blocker", "--wait=false")
    running(cluster, namespace, "rest", 4)
    assert [] == doubly_held(cluster)
    for name in nodes:
        cluster.kubectl("label", "node", name, f"{RACK}-")


def test_a_launcher_without_claims_waits_with_its_workers_until_a_node_is_added(
    cluster: Access, group_bridge: Bridge, namespace: str
) -> None:
    launcher = member(bridged(pod("launcher")), "mpi")
    workers = [worker(f"worker-{index}", "mpi", "eight") for index in range(3)]
    apply(cluster, namespace, [*templates(), pod_group("mpi", 4), launcher, *workers])

    wait_reason(cluster, namespace, "mpi", "3 of 4 pods fit, and 4 are needed")
    assert bound(cluster, namespace, "mpi") == []
    assert allocated(cluster, namespace) == 0

    added = cluster.add_nodes(
        inventory.kwok_nodes(1, prefix="group-added"),
        lambda node: inventory.example_gpus(node, gpus=GPUS),
    )
    running(cluster, namespace, "mpi", 4)
    # The pods end on their nodes.
    cluster.kubectl("delete", "pods", "--all", "-n", namespace)
    cluster.remove_nodes(added)


def test_a_group_evicts_as_many_pods_as_it_needs_and_those_without_a_budget(
    cluster: Access, group_bridge: Bridge, nodes: list[str], namespace: str
) -> None:
    cluster.apply(priority_class(PRIORITY))
    low = [f"low-{number}" for number in range(GPUS)]
    singles = [
        bridged(pod(name, claims={"gpu": "two"}), [nodes[number % 2]])
        for number, name in enumerate(low)
    ]
    # Without a budget the last pod of each node, which ran for less, would be among the victims.
    guarded = low[-2:]
    for entry in singles[-2:]:
        entry["metadata"]["labels"] = {**entry["metadata"].get("labels", {}), "app": "guarded"}
    budget = disruption_budget("guarded", {"app": "guarded"}, len(guarded))
    apply(cluster, namespace, [*templates(), budget, *singles[:-2]])
    for name in low[:-2]:
        cluster.wait_running(name, namespace, timeout_s=TIMEOUT_S)
    time.sleep(1.0)  # Times of start are in seconds.
    apply(cluster, namespace, singles[-2:])
    for name in guarded:
        cluster.wait_running(name, namespace, timeout_s=TIMEOUT_S)
    cluster.wait_for(
        "poddisruptionbudgets", "guarded", namespace, until=has_healthy_pods, timeout_s=TIMEOUT_S
    )

    # It fits on no node, whoever is evicted.
    huge = [
        worker(f"huge-{index}", "huge", priorityClassName=PRIORITY) for index in range(GPUS + 1)
    ]
    apply(cluster, namespace, [pod_group("huge", GPUS + 1, priority_class=PRIORITY), *huge])
    wait_reason(cluster, namespace, "huge", "0 of 9 pods fit, and 9 are needed")
    assert set(low) <= set(present(cluster, namespace))
    cluster.kubectl("delete", "pods", "-n", namespace, "-l", f"{LABEL}=huge")

    urgent = [worker(f"urgent-{index}", "urgent", priorityClassName=PRIORITY) for index in range(3)]
    apply(cluster, namespace, [pod_group("urgent", 3, priority_class=PRIORITY), *urgent])

    running(cluster, namespace, "urgent", 3)
    remaining = set(low).intersection(present(cluster, namespace))
    assert len(remaining) == len(low) - 3
    assert set(guarded) <= remaining
    assert [] == doubly_held(cluster)
    cluster.delete("priorityclass", PRIORITY)


def test_a_group_gets_other_nodes_when_its_ports_are_in_use_on_one(
    cluster: Access, group_bridge: Bridge, nodes: list[str], namespace: str
) -> None:
    """The sidecar knows no ports: it puts both pods on one node, and the scheduler turns one down."""
    workers = [worker(f"worker-{index}", "ports", "one") for index in range(2)]
    for entry in workers:
        entry["spec"]["containers"][0]["ports"] = [{"containerPort": 8080, "hostPort": 8080}]
    apply(cluster, namespace, [*templates(), pod_group("ports", 2), *workers])

    running(cluster, namespace, "ports", 2)
    pods = cluster.objects("pods", namespace, selector=f"{LABEL}=ports")
    assert sorted(entry["spec"]["nodeName"] for entry in pods) == nodes


def test_pods_of_a_group_share_a_claim_and_one_beyond_the_minimum_waits_alone(
    cluster: Access, group_bridge: Bridge, namespace: str
) -> None:
    claim = named_claim("shared", EXAMPLE, count=GPUS)
    sharing = [worker(f"sharing-{index}", "job") for index in range(3)]
    for entry in sharing:
        entry["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "shared"}]
    others = [worker(f"other-{index}", "job", "four") for index in range(3)]
    apply(cluster, namespace, [*templates(), claim, pod_group("job", 5), *sharing, *others])

    running(cluster, namespace, "job", 5)
    names = {entry["metadata"]["name"] for entry in sharing}
    assert names < set(bound(cluster, namespace, "job"))
    stored = cluster.find("resourceclaims", "shared", namespace)
    assert stored is not None
    assert {entry["name"] for entry in stored["status"]["reservedFor"]} == names

    (alone,) = (
        entry["metadata"]["name"]
        for entry in cluster.objects("pods", namespace)
        if not entry["spec"].get("nodeName")
    )
    cluster.kubectl("delete", "pod", "-n", namespace, next(iter({"other-0", "other-1"} - {alone})))
    cluster.wait_running(alone, namespace, timeout_s=TIMEOUT_S)


def test_pods_share_the_claim_that_is_made_for_their_group(
    cluster: Access, group_bridge: Bridge, namespace: str
) -> None:
    group = pod_group("ring", SHARING)
    entry = {"name": "gpu", "resourceClaimTemplateName": "eight"}
    group["spec"]["resourceClaims"] = [entry]
    workers = [worker(f"worker-{index}", "ring", "eight") for index in range(SHARING)]
    apply(cluster, namespace, [*templates(), group, *workers])

    # So many pods keep a busy machine from the sidecar's Lease, too.
    wait_whole(cluster, group_bridge, namespace)
    (claim,) = cluster.objects("resourceclaims", namespace)
    (owner,) = claim["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("PodGroup", "ring")
    (consumer,) = claim["status"]["reservedFor"]
    assert (consumer["resource"], consumer["uid"]) == ("podgroups", owner["uid"])
    assert len({entry["spec"]["nodeName"] for entry in cluster.objects("pods", namespace)}) == 1


@pytest.mark.parametrize(
    ("part", "written"),
    [(PARTS[number % len(PARTS)], 1 + (3 + number) % GPUS) for number in range(KILLS)],
)
def test_a_process_that_is_killed_in_a_commit_leaves_no_part_of_a_group_bound(
    cluster: Access, group_bridge: Bridge, namespace: str, part: str, written: int
) -> None:
    with cluster.watching("pods") as (_, pods), cluster.watching("resourceclaims") as (_, claims):
        begin_commit(cluster, namespace, claims, written)
        group_bridge.child(part).signal(signal.SIGKILL)
        wait_whole(cluster, group_bridge, namespace)
        assert allocated(cluster, namespace) == GPUS
    assert [] == bound_too_early(claims, pods, GPUS)
    # The process beside the one that was killed may not have ended yet.
    group_bridge.stop()


def test_an_api_server_that_is_killed_in_a_commit_is_waited_for(
    own_cluster: Cluster, group_bridge: Bridge, namespace: str
) -> None:
    """No watch outlives it, so only the end is looked at."""
    with own_cluster.watching("resourceclaims") as (_, claims):
        begin_commit(own_cluster, namespace, claims, GPUS // 2)
    # The sidecar ends if the API server is away for longer than its Lease.
    own_cluster.restart("kube-apiserver")
    own_cluster.wait_until(
        lambda: own_cluster.kubectl("get", "--raw", "/readyz", check=False).stdout == "ok",
        "the API server answers",
        timeout_s=2 * TIMEOUT_S,
    )
    wait_whole(own_cluster, group_bridge, namespace)
    assert allocated(own_cluster, namespace) == GPUS
    group_bridge.stop()


def begin_commit(cluster: Access, namespace: str, claims: Sequence[Object], written: int) -> None:
    """Apply a group of eight pods, and return when the claims of some of them are written.

    Args:
        cluster: The cluster.
        namespace: The namespace of the group.
        claims: Watch events of claims.
        written: The number of these pods.
    """
    workers = [worker(f"worker-{index}", "job") for index in range(GPUS)]
    apply(cluster, namespace, [*templates(), pod_group("job", GPUS), *workers])
    deadline = time.monotonic() + PATIENCE * TIMEOUT_S
    while sum("allocation" in event["object"].get("status", {}) for event in claims) < written:
        assert time.monotonic() < deadline, f"{written} claims are not written"
        time.sleep(0.001)  # All of it takes less than a tenth of a second.


def wait_whole(cluster: Access, bridge: Bridge, namespace: str) -> None:
    """Wait until all pods of the group run, while processes that have ended are started again."""

    def all_run() -> bool:
        bridge.tend("a")
        stored = cluster.objects("pods", namespace)
        return all(entry.get("status", {}).get("phase") == "Running" for entry in stored)

    cluster.wait_until(all_run, "all pods of the group run", timeout_s=2 * TIMEOUT_S)
    assert [] == doubly_held(cluster)


def bound_too_early(claims: Sequence[Object], pods: Sequence[Object], min_count: int) -> list[str]:
    """Return the pods that were bound before as many claims as their group needs had devices.

    Args:
        claims: Watch events of claims.
        pods: The same of pods.
        min_count: The number of pods that the group needs.
    """
    early = []
    for pod_ in (event["object"] for event in pods):
        if not pod_["spec"].get("nodeName"):
            continue
        has_devices = {
            claim["metadata"]["name"]: "allocation" in claim.get("status", {})
            for claim in (event["object"] for event in claims)
            if version(claim) < version(pod_)
        }
        if sum(has_devices.values()) < min_count:
            early.append(pod_["metadata"]["name"])
    return sorted(set(early))


def version(object_: Object) -> int:
    return int(object_["metadata"]["resourceVersion"])
