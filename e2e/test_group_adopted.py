"""Gangs of other schedulers become PodGroups, and all pods of a group get one scheduler: against an API server.

The scheduler of the bridge does not run: nothing here is placed.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from allocator.declarations.adopted import adopted_name
from allocator.declarations.model import GroupName, GroupSystem
from e2e.access import Access, Object, stream
from e2e.drawbridge import CONTROLLER, Drawbridge, command_line
from e2e.groups import CLUSTER, member, pod_group
from e2e.objects import claim_template, pod, priority_class
from e2e.routed import routing_rules
from e2e.small_inventory import add_nodes, created, gpu
from kube.names import (
    DEFAULT_SCHEDULER_NAME,
    GANG_ANNOTATION,
    GROUP_SCHEDULER_ANNOTATION,
    MANAGED_LABEL,
    NAMESPACE,
    SCHEDULER_NAME,
)
from testing.documents import api_object

DRIVER: Final = "gangs.example.com"
TEAM: Final = "gangs"
WAIT_S: Final = 60.0
OF_ITS_OWN: Final[dict[str, Any]] = {**CLUSTER, "client_qps": 570}
"""The parameters of the cluster, since here pods of groups that tell no scheduler are denied."""
GANG: Final = "gang.scheduling.koordinator.sh/name"
MINIMUM: Final = "gang.scheduling.koordinator.sh/min-available"
RING: Final = adopted_name(GroupName(GroupSystem.KOORDINATOR, TEAM, "ring"))

pytestmark = pytest.mark.parametrize("cluster", [OF_ITS_OWN], indirect=True, scope="package")


@pytest.fixture(scope="module")
def owning(cluster: Access, drawbridge: Drawbridge) -> Iterator[Access]:
    """A node with devices of a driver that the bridge owns, and a namespace with a template of a claim."""
    nodes = add_nodes(cluster, DRIVER, {"gangs-0": [gpu("gpu-0", "40Gi"), gpu("gpu-1", "40Gi")]})
    template = claim_template("one", DRIVER)
    cluster.apply(
        [
            api_object("Namespace", TEAM),
            {**template, "metadata": {**template["metadata"], "namespace": TEAM}},
            priority_class("gangs-high", 1000),
        ]
    )
    owned = command_line(cluster, "bridge", "own", DRIVER, "--apply")
    assert owned.returncode == 0, owned.stderr
    cluster.wait_until(lambda: routing_rules(cluster), "pods are routed", timeout_s=WAIT_S)
    cluster.wait_for("serviceaccounts", "default", TEAM)
    cluster.wait_until(
        lambda: scheduler_of(cluster, pod("probe", claims={"gpu": "one"})) == SCHEDULER_NAME,
        "a pod of the driver is routed",
        timeout_s=WAIT_S,
    )
    yield cluster
    command_line(cluster, "bridge", "release", DRIVER, "--apply")
    cluster.kubectl("delete", "namespace", TEAM, "--wait=false")
    cluster.remove_nodes(nodes)


def test_a_gang_becomes_a_pod_group_of_the_bridge(owning: Access) -> None:
    code, words = created(owning, gang_pod("ring-0", "2", priorityClassName="gangs-high"), TEAM)
    assert (code, words) == (0, "")
    stored = owning.get("pods", "ring-0", TEAM)["spec"]
    assert stored["schedulingGroup"] == {"podGroupName": RING}
    assert stored["schedulerName"] == SCHEDULER_NAME

    group = owning.wait_for(KIND, RING, TEAM, timeout_s=WAIT_S)
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    assert (group["spec"]["priorityClassName"], group["spec"]["priority"]) == ("gangs-high", 1000)

    # The webhook hears of the PodGroup a moment later.
    owning.wait_until(
        lambda: "groupMinimumDiffers" in refusal(owning, gang_pod("ring-1", "3")),
        "a second pod that disagrees is denied",
        timeout_s=WAIT_S,
    )
    assert "needs 2; write one number on all of them" in refusal(owning, gang_pod("ring-1", "3"))
    assert "groupPriorityDiffers" in refusal(owning, gang_pod("ring-1", "2"))
    # The launcher, without claims, goes with its workers.
    launcher = {**gang_pod("launcher", "2", priorityClassName="gangs-high")}
    launcher["spec"] = {
        name: field for name, field in launcher["spec"].items() if name != "resourceClaims"
    }
    launcher["spec"]["containers"] = pod("launcher")["spec"]["containers"]
    assert created(owning, launcher, TEAM) == (0, "")
    stored = owning.get("pods", "launcher", TEAM)["spec"]
    assert stored["schedulingGroup"] == {"podGroupName": RING}
    assert stored["schedulerName"] == SCHEDULER_NAME


def test_a_stolen_token_creates_and_deletes_no_other_pod_groups(owning: Access) -> None:
    kubeconfig = owning.kubeconfig_for(NAMESPACE, CONTROLLER)
    theirs = pod_group("theirs", 1)
    owning.kubectl("create", "-n", TEAM, "-f", "-", input=stream([theirs]))
    managed = {**theirs, "metadata": {"name": "mine", "labels": {MANAGED_LABEL: "true"}}}
    for words, document in (
        (("create", "-f", "-"), stream([{**theirs, "metadata": {"name": "other"}}])),
        (("create", "-f", "-"), stream([managed])),
        (("delete", KIND, "theirs"), ""),
        (("annotate", KIND, "theirs", f"{GANG_ANNOTATION}=x"), ""),
    ):
        completed = owning.kubectl(
            *words, "-n", TEAM, input=document, check=False, kubeconfig=kubeconfig
        )
        assert completed.returncode != 0, words
        assert "orbidden" in completed.stderr, completed.stderr


def test_pods_of_a_pod_group_get_one_scheduler(owning: Access) -> None:
    worker, launcher = member(pod("w", claims={"gpu": "one"}), "own"), member(pod("l"), "own")
    assert scheduler_of(owning, worker) == SCHEDULER_NAME
    assert "does not exist yet" in refusal(owning, launcher)

    owning.kubectl("create", "-n", TEAM, "-f", "-", input=stream([pod_group("own", 2)]))
    owning.wait_until(
        lambda: "has neither claims nor annotation" in refusal(owning, launcher),
        "nothing tells the scheduler of the group",
        timeout_s=WAIT_S,
    )
    for scheduler in (SCHEDULER_NAME, DEFAULT_SCHEDULER_NAME):
        annotation = f"{GROUP_SCHEDULER_ANNOTATION}={scheduler}"
        owning.kubectl("annotate", "--overwrite", KIND, "own", annotation, "-n", TEAM)
        wait_routed(owning, launcher, scheduler)
    assert "groupSchedulerDiffers" in refusal(owning, worker)


def wait_routed(cluster: Access, document: Object, scheduler: str) -> None:
    """Wait until a pod would get a scheduler."""
    cluster.wait_until(
        lambda: scheduler_of(cluster, document) == scheduler,
        f"the pod would get {scheduler}",
        timeout_s=WAIT_S,
    )


KIND: Final = "podgroups.scheduling.k8s.io"


def gang_pod(name: str, minimum: str, **spec: Any) -> Object:
    """Return a pod of Koordinator's gang `ring` that takes one device."""
    annotations = {GANG: "ring", MINIMUM: minimum}
    return pod(name, claims={"gpu": "one"}, annotations=annotations, **spec)


def refusal(cluster: Access, document: Object) -> str:
    """Return the words that would deny a pod; empty if it would be admitted."""
    words = ("create", "--dry-run=server", "-n", TEAM, "-f", "-")
    completed = cluster.kubectl(*words, input=stream([document]), check=False)
    return completed.stderr if completed.returncode else ""


def scheduler_of(cluster: Access, document: Object) -> str:
    """Return the schedulerName that a pod would get; empty if it would be denied."""
    words = ("create", "--dry-run=server", "-n", TEAM, "-o", "json", "-f", "-")
    completed = cluster.kubectl(*words, input=stream([document]), check=False)
    if completed.returncode:
        return ""
    return str(json.loads(completed.stdout)["spec"]["schedulerName"])
