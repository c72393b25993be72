"""Each rule on a history that keeps it, and on one that breaks it."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from e2e.checker.check import check, report
from e2e.checker.rules import Allowance
from testing.histories import GPU, History, gpu, mig

MIG_3G: Final = "nvidia.com/mig-3g.40gb"
LEAVING: Final = {"deletionTimestamp": "2026-11-24T00:00:00Z"}
NEVER: Final = {"restartPolicy": "Never"}


def broken(history: History, **allowance: Any) -> list[tuple[str, str]]:
    """The rules that a history breaks, with the objects."""
    findings = check(history.events, Allowance(**allowance))
    print(report(findings))
    return [(finding.rule, finding.object) for finding in findings]


# --- no unfinished pod is killed ------------------------------------------------------------------


def training(**spec: Any) -> tuple[History, Any]:
    """A node, and a Job with a pod that runs on it."""
    history = History()
    history.node("n", {GPU: "1"})
    return history, history.workload("Job", "train", {GPU: 1}, **{"backoffLimit": 0, **spec})


def test_a_job_that_a_drain_kills_is_reported_with_its_failure() -> None:
    """A3: a wave drained a node under a Job with backoffLimit 0, so that it failed for good."""
    history, job = training()
    history.pod("train-1", job, "n", limits={GPU: 1}, **NEVER)
    history.node("n", {GPU: "1"}, unschedulable=True)
    killed = history.pod("train-1", job, "n", metadata=LEAVING, limits={GPU: 1}, **NEVER)
    history.delete("pods", killed)
    failed = {**job, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    history.put("jobs", failed)
    history.node("n", {GPU: "1"})

    assert [("killed", "a/train-1"), ("killed", "a/train")] == broken(history)
    assert [] == broken(history, kills=("a/train*",))
    # Whose node has died fails with it.
    assert [] == broken(history, dead_nodes=("n",))


def test_a_pod_that_has_ended_may_go() -> None:
    history, job = training()
    history.pod("train-1", job, "n", limits={GPU: 1}, **NEVER)
    ended = history.pod("train-1", job, "n", "Succeeded", **NEVER)
    history.delete("pods", ended)

    assert [] == broken(history)


def test_a_pod_that_is_deleted_by_force_is_reported() -> None:
    history, job = training()
    pod = history.pod("train-1", job, "n", limits={GPU: 1}, **NEVER)
    history.delete("pods", pod)

    assert [("killed", "a/train-1")] == broken(history)
    assert [] == broken(history, dead_nodes=("n",))


def test_a_job_that_ignores_disruptions_may_be_evicted() -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    history, job = training(podFailurePolicy={"rules": [rule]})
    pod = history.pod("train-1", job, "n", limits={GPU: 1}, **NEVER)
    history.delete("pods", pod)

    assert [] == broken(history)


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ({}, []),
        ({"karpenter.sh/do-not-disrupt": "true"}, [("killed", "a/web-1")]),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, [("killed", "a/web-1")]),
    ],
)
def test_a_pod_that_restarts_may_move_unless_it_asks_to_stay(
    notes: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    history = History()
    history.node("n")
    web = history.workload("ReplicaSet", "web", {})
    pod = history.pod("web-1", web, "n", metadata={"annotations": notes})
    history.delete("pods", pod)

    assert expected == broken(history)


# --- every pod has the device size that it asked for ----------------------------------------------


def divided() -> tuple[History, Any]:
    """A node with a small and a large MIG device, and a workload that asks for the large one."""
    history = History()
    history.node("n")
    history.slice("n", [mig("small", "1g.5gb", "4864Mi"), mig("large", "3g.40gb", "40192Mi")])
    return history, history.workload("ReplicaSet", "infer", {MIG_3G: 1})


def test_a_pod_with_a_smaller_mig_device_is_reported() -> None:
    """A1: a class of all MIG devices was mapped to mig-3g.40gb, and the pod got a 1g.5gb."""
    history, infer = divided()
    history.claim("c", "n", "small", pod="infer-1")
    history.pod("infer-1", infer, "n", claims=["c"])

    assert [("size", "a/infer-1")] == broken(history)


def test_a_pod_with_the_mig_device_that_it_asked_for_is_right() -> None:
    history, infer = divided()
    history.claim("c", "n", "large", pod="infer-1")
    history.pod("infer-1", infer, "n", claims=["c"])

    assert [] == broken(history)


def test_a_pod_without_any_device_is_reported() -> None:
    """Kubernetes leaves a resource name to a class that maps it, and nobody allocates."""
    history = History()
    history.node("n", {GPU: "0"})
    web = history.workload("ReplicaSet", "web", {GPU: 1})
    history.pod("web-1", web, "n", limits={GPU: 1})

    assert [("size", "a/web-1")] == broken(history)


def test_a_pod_that_keeps_its_device_of_the_plugin_beside_the_driver_is_reported() -> None:
    """A drain leaves pods of DaemonSets, and the driver gives their devices to others."""
    history = History()
    history.node("n", {GPU: "2"})
    agent = history.workload("DaemonSet", "agent", {GPU: 1})
    history.pod("agent-1", agent, "n", limits={GPU: 1})
    history.slice("n", [gpu("g0"), gpu("g1")])

    assert ("size", "a/agent-1") in broken(history)


def test_a_pod_may_keep_it_until_its_node_is_open_again() -> None:
    history = History()
    history.node("n", {GPU: "2"}, unschedulable=True)
    agent = history.workload("DaemonSet", "agent", {GPU: 1})
    history.pod("agent-1", agent, "n", limits={GPU: 1})
    history.slice("n", [gpu("g0"), gpu("g1")])

    assert ("size", "a/agent-1") not in broken(history)

    history.node("n", {GPU: "0"})
    assert ("size", "a/agent-1") in broken(history)


def test_a_device_of_two_claims_is_reported() -> None:
    history, infer = divided()
    for name in ("infer-1", "infer-2"):
        history.claim(name, "n", "large", pod=name)
        history.pod(name, infer, "n", claims=[name])

    assert [("size", "a/infer-2")] == broken(history)


EIGHT_GIB: Final = {GPU: 1, "nvidia.com/gpumem": 8192}


def shares(*amounts: str, limits: Mapping[str, object] = EIGHT_GIB) -> History:
    """A device of 40 GiB, and pods that asked for 8192 MiB each and have these amounts."""
    history = History()
    history.node("n")
    device = {"name": "g", "capacity": {"memory": {"value": "40Gi"}}}
    history.slice("n", [{**device, "allowMultipleAllocations": True}])
    serve = history.workload("ReplicaSet", "serve", limits)
    for number, amount in enumerate(amounts):
        claim = history.claim(f"c{number}", "n", "g", pod=f"serve-{number}")
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        result["consumedCapacity"] = {"memory": amount}
        history.pod(f"serve-{number}", serve, "n", claims=[f"c{number}"])
    return history


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        (("8Gi", "8Gi"), []),
        (("4Gi",), [("size", "a/serve-0")]),
        (("40Gi",), [("size", "a/serve-0")]),
        (("16Gi", "16Gi", "16Gi"), [("size", "a/c2")]),
    ],
)
def test_a_share_is_neither_smaller_nor_far_larger_and_fits_its_device(
    amounts: tuple[str, ...], expected: list[tuple[str, str]]
) -> None:
    assert expected == broken(shares(*amounts))


@pytest.mark.parametrize(
    ("amount", "expected"),
    [("10Gi", []), ("9Gi", [("size", "a/serve-0")]), ("40Gi", [("size", "a/serve-0")])],
)
def test_a_percentage_of_memory_is_a_share_of_its_device(
    amount: str, expected: list[tuple[str, str]]
) -> None:
    """A quarter of a GPU was read as a whole one."""
    assert expected == broken(shares(amount, limits={GPU: 1, "nvidia.com/gpumem-percentage": 25}))


@pytest.mark.parametrize(("amount", "expected"), [("40Gi", []), ("39Gi", [("size", "a/serve-0")])])
def test_all_of_a_shared_device_is_a_whole_one(
    amount: str, expected: list[tuple[str, str]]
) -> None:
    """The example of HAMi broke a rule: its driver gives all of one device for a whole GPU."""
    assert expected == broken(shares(amount, limits={GPU: 1}))


def test_mebibytes_count_where_a_percentage_stands_beside_them() -> None:
    both = {**EIGHT_GIB, "nvidia.com/gpumem-percentage": 100}

    assert [] == broken(shares("8Gi", limits=both))


def test_a_percentage_of_memory_is_had_from_the_plugin_of_hami() -> None:
    history = History()
    registered = history.node("n", {GPU: "10"})
    registered["metadata"]["annotations"] = {"hami.io/node-nvidia-register": "[]"}
    history.put("nodes", registered)
    limits = {GPU: 1, "nvidia.com/gpumem-percentage": 25}
    serve = history.workload("ReplicaSet", "serve", limits)
    history.pod("serve-0", serve, "n", limits=limits)

    assert [] == broken(history)


@pytest.mark.parametrize(("scheduler", "names"), [("hami-scheduler", []), ("", ["a/serve-0"])])
def test_a_whole_card_of_hami_is_had_from_its_own_scheduler(
    scheduler: str, names: list[str]
) -> None:
    history = History()
    registered = history.node("n", {GPU: "10"})
    registered["metadata"]["annotations"] = {"hami.io/node-nvidia-register": "[]"}
    history.put("nodes", registered)
    serve = history.workload("ReplicaSet", "serve", {GPU: 1})
    history.pod("serve-0", serve, "n", limits={GPU: 1}, schedulerName=scheduler)

    assert names == [name for _, name in broken(history)]
    # It said that the plugin offers none of that kind, beside a node with ten.
    texts = [finding.text for finding in check(history.events, Allowance())]
    assert all(text.endswith("offers shares of HAMi under that name") for text in texts)


# --- no tenant above its quota --------------------------------------------------------------------


def tenant(pods: int, *, seconds: float) -> History:
    """A team with a quota of two, one pod with a key, and pods with claims."""
    history = History()
    history.node("n", {GPU: "8"})
    history.node("m")
    history.slice("m", [gpu(f"g{number}") for number in range(8)])
    history.quota("gpus", {f"requests.{GPU}": "2"})
    # What a migration adds, beside the line that was there: two more, by another API.
    line = f"{GPU_CLASS}.deviceclass.resource.k8s.io/devices"
    history.quota("gpus", {f"requests.{GPU}": "2", line: "2"})
    web = history.workload("ReplicaSet", "web", {GPU: 1})
    history.pod("key", web, "n", limits={GPU: 1})
    for number in range(pods):
        history.claim(f"c{number}", "m", f"g{number}", pod=f"web-{number}")
        history.pod(f"web-{number}", web, "m", claims=[f"c{number}"])
    history.at = seconds
    history.node("m")
    return history


GPU_CLASS: Final = "gpu.nvidia.com"


def test_a_tenant_whose_quota_was_doubled_is_reported() -> None:
    """B2: keys and claims had a line each with the amount meant for both together."""
    assert [("quota", "a")] == broken(tenant(2, seconds=60))


def test_a_tenant_within_its_quota_is_right_by_whichever_api() -> None:
    assert [] == broken(tenant(1, seconds=60))


def test_a_moment_above_is_the_count_of_kubernetes_being_late() -> None:
    assert [] == broken(tenant(2, seconds=10))


# --- one budget for both sides of a migration -----------------------------------------------------

GATES: Final = [{"name": "drawbridge.internal/quota"}]


def moving(most: str = "2") -> tuple[History, Any]:
    """A team with a quota of keys and claims, a pod with the key and one with a claim."""
    history = History()
    history.node("n", {GPU: "8"})
    history.node("m")
    history.slice("m", [gpu(f"g{number}") for number in range(8)])
    history.device_quota(most, GPU)
    web = history.workload("ReplicaSet", "web", {GPU: 1})
    history.pod("key", web, "n", limits={GPU: 1})
    history.claim("c0", "m", "g0", pod="web-0")
    history.pod("web-0", web, "m", claims=["c0"])
    return history, web


def test_a_pod_that_is_let_through_above_the_budget_is_told_at_once() -> None:
    """The old line and a line for claims held in full beside each other."""
    history, web = moving()
    history.pod("web-1", web, "m")
    history.pod("web-1", web, "m", metadata=LEAVING)
    history.delete("pods", history.pod("web-1", web, "m", metadata=LEAVING))

    assert [("budget", "budget")] == broken(history)


def test_a_claim_counts_until_it_is_released_though_its_pod_has_gone() -> None:
    history, web = moving()
    history.delete("pods", history.pod("web-0", web, "m", claims=["c0"]))
    history.pod("web-1", web, "m")
    released = history.claim("c0", "m", pod="web-0")
    history.delete("resourceclaims", released)

    assert [("budget", "budget")] == broken(history)


def test_a_pod_that_waits_behind_the_gate_has_nothing() -> None:
    history, web = moving()
    history.pod("web-1", web, phase="Pending", schedulingGates=GATES)
    history.at = 60
    history.delete("pods", history.pod("key", web, "n", limits={GPU: 1}))
    history.claim("c1", "m", "g1", pod="web-1")
    history.pod("web-1", web, "m", claims=["c1"])

    assert [] == broken(history)


def test_a_pod_that_waits_while_half_of_the_budget_is_left_is_reported() -> None:
    """Only claims counted in one line, and only keys in the other, each with a half."""
    history, web = moving("4")
    history.pod("web-1", web, phase="Pending", schedulingGates=GATES)
    for history.at in (20, 40):
        history.pod("web-1", web, phase="Pending", schedulingGates=GATES)
    history.delete("pods", history.pod("web-1", web, phase="Pending", schedulingGates=GATES))

    assert [("budget", "a/web-1")] == broken(history)
    assert [] == broken(history, gate_s=60)


def test_an_excess_of_a_quota_that_was_lowered_is_no_finding_until_it_grows() -> None:
    history, web = moving()
    history.device_quota("1", GPU)

    assert [] == broken(history)

    history.pod("key-1", web, "n", limits={GPU: 1})
    assert [("budget", "budget")] == broken(history)


# --- no idle device that a waiting pod could use --------------------------------------------------


def waiting(seconds: float, **node: Any) -> History:
    """A pod that waits for a GPU, and a node of DRA with one that nobody has."""
    history = History()
    history.node("n", **node)
    history.slice("n", [gpu("g")])
    web = history.workload("ReplicaSet", "web", {GPU: 1})
    history.pod("web-1", web, phase="Pending", limits={GPU: 1})
    for history.at in (seconds / 2, seconds):
        history.node("n", **node)
    history.claim("c", "n", "g", pod="web-1")
    history.pod("web-1", web, "n", claims=["c"])
    return history


def test_a_device_on_the_side_where_no_pod_is_let_is_idle() -> None:
    """A2: nodes were converted, and no namespace was opted in."""
    assert [("idle", "a/web-1")] == broken(waiting(121))


@pytest.mark.parametrize(
    ("history", "allowance"),
    [
        (waiting(119), {}),
        (waiting(200, unschedulable=True), {}),
        (waiting(200, taints=[{"key": "k", "effect": "NoSchedule"}]), {}),
        (waiting(200), {"head_room": 1}),
    ],
    ids=["not for long", "cordoned", "tainted", "head-room"],
)
def test_a_device_may_be_idle(history: History, allowance: dict[str, int]) -> None:
    assert "idle" not in [rule for rule, _ in broken(history, **allowance)]


@pytest.mark.parametrize(
    ("room", "other", "expected"),
    [
        ({"cpu": "4"}, "1500m", [("idle", "a/web-1")]),
        ({"cpu": "4"}, "2001m", []),
        ({"cpu": "1900m"}, "0", []),
        ({"memory": "1Gi"}, "0", []),
    ],
    ids=["enough CPU", "CPU of another pod", "a small node", "memory"],
)
def test_a_device_that_a_pod_could_not_use_for_lack_of_cpu_is_not_idle(
    room: dict[str, str], other: str, expected: list[tuple[str, str]]
) -> None:
    history = History()
    history.node("n", {GPU: "1", **room})
    web = history.workload("ReplicaSet", "web", {GPU: 1})
    history.pod("other", web, "n", limits={"cpu": other})
    history.pod("web-1", web, phase="Pending", limits={GPU: 1, "cpu": "2", "memory": "2Gi"})
    history.at += 121
    history.node("n", {GPU: "1", **room})

    assert expected == [found for found in broken(history) if found[0] == "idle"]


def test_a_device_of_another_size_is_not_idle() -> None:
    history = History()
    history.node("n")
    history.slice("n", [mig("small", "1g.5gb", "4864Mi")])
    infer = history.workload("ReplicaSet", "infer", {MIG_3G: 1})
    pod = history.pod("infer-1", infer, phase="Pending", limits={MIG_3G: 1})
    history.at = 200
    history.node("n")
    history.delete("pods", pod)

    assert [] == broken(history)


# --- nothing left behind --------------------------------------------------------------------------


def test_what_is_left_behind_is_reported() -> None:
    history = History()
    history.node("n")
    history.node("n", unschedulable=True)
    note = {"karpenter.sh/do-not-disrupt": "true"}
    history.put("nodes", {"metadata": {"name": "m"}, "spec": {}})
    history.put("nodes", {"metadata": {"name": "m", "annotations": note}, "spec": {}})
    history.slice("gone", [gpu("g")])
    history.claim("c", "gone", "g", pod="ended")
    history.workload("Deployment", "web", {}, replicas=2)
    history.put("resourceclaimtemplates", {"metadata": {"name": "t", "namespace": "a"}})
    history.at = 301
    history.node("n", unschedulable=True)

    assert ["m", "n", "gone", "a/c", "a/t", "a/web"] == [name for _, name in broken(history)]


def test_what_was_so_at_first_is_not_left_behind() -> None:
    history = History()
    history.node("n", unschedulable=True)

    assert [] == broken(history)


def listed(history: History) -> None:
    """Turn everything so far into the state before the record."""
    history.events = [event._replace(type="LISTED") for event in history.events]


def replica_set(history: History, deployment: Any, name: str) -> Any:
    """A ReplicaSet of a Deployment."""
    owner = {"kind": "Deployment", "name": "web", "controller": True}
    entry = history.workload("ReplicaSet", name, {})
    owners = [{**owner, "uid": deployment["metadata"]["uid"]}]
    return history.put(
        "replicasets", {**entry, "metadata": {**entry["metadata"], "ownerReferences": owners}}
    )


def test_what_waited_at_first_is_not_left_behind() -> None:
    """A plan was told guilty of pods that had waited before its first script."""
    history = History()
    web = history.workload("Deployment", "web", {}, replicas=2)
    old = replica_set(history, web, "web-1")
    history.put("deployments", {**web, "status": {"readyReplicas": 1}})
    waiting = history.pod("web-1-a", old, phase="Pending")
    listed(history)
    # The label of its namespace is the rollout that replaces it.
    new = replica_set(history, web, "web-2")
    history.delete("pods", waiting)
    history.pod("web-2-a", new, phase="Pending")

    assert [] == broken(history)

    history.pod("web-2-b", new, phase="Pending")
    history.put("deployments", {**web, "status": {}})

    assert [("left", "a/web-2-b"), ("left", "a/web")] == broken(history)


def test_a_pod_without_a_node_at_the_end_of_a_wave_is_reported_once() -> None:
    """A plan moved a running pod in its simulation only, and a later wave served it."""
    history = History()
    web = history.workload("Deployment", "web", {}, replicas=2)
    owner = replica_set(history, web, "web-1")
    history.pod("web-1-a", owner, phase="Pending")
    running = history.pod("web-1-b", owner, "n")
    listed(history)
    history.at = 1.0
    history.delete("pods", running)
    history.pod("web-1-c", owner, phase="Pending")
    history.at = 5.0
    history.pod("web-1-c", owner, "n")

    def found_at(*wave_ends: float) -> list[tuple[str, float, str]]:
        findings = check(history.events, Allowance(), wave_ends)
        return [(entry.rule, entry.at, entry.object) for entry in findings]

    assert [] == found_at(0.5, 6.0)
    assert [("waits", 3.0, "a/web-1-c")] == found_at(3.0, 4.0, 6.0)
