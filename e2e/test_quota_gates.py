"""Pods with devices that a DeviceQuota limits and kube-scheduler places: they wait behind a gate.

The policies stay for the whole file, since one whose parameter is a Lease must not be created again.
"""

import http.client
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from admission.quota_gates import HOLDER_POLICY
from e2e.access import Access, Object, stream
from e2e.chart import template as chart
from e2e.cluster import Cluster
from e2e.drawbridge import CONTROLLER, ROOT, WEBHOOK, Drawbridge, command_of, rendered
from e2e.gated import (
    DEVICES,
    DRIVER,
    GATE,
    GATES,
    OLD_KEY,
    Team,
    UsageRecord,
    condition,
    gates_of,
    is_gated,
    team_in,
)
from e2e.groups import CLUSTER as POD_GROUPS
from e2e.groups import member, pod_group
from e2e.interposer import Interposer, Outcome
from e2e.inventory import HAMI, hami_class, hami_gpus, kwok_node
from e2e.killed_mid_write import Moment, Order
from e2e.objects import container, pod, priority_class
from e2e.older_kubernetes import MINOR, needs
from e2e.small_inventory import asking, claim, template
from e2e.users import EDITOR, PODS_ONLY, add_user
from e2e.writes import QUOTA_WRITES
from kube.names import SCHEDULER_NAME, TRANSLATE_LABEL
from testing.documents import api_object, resource_quota
from testing.ports import free_ports

CREATORS: Final = 50
ROUNDS: Final = int(os.environ.get("DRAWBRIDGE_E2E_QUOTA_ROUNDS", "20"))
"""Times that the last unit is released and raced for again; each takes about a second."""
AWAY_S: Final = 60.0 if ROUNDS > 20 else 2.0
"""The time without controllers."""
PRIORITY: Final = "quota-important"
POD_GROUPS_SINCE: Final = 37
MAPPED_KEY: Final = f"deviceclass.resource.kubernetes.io/{DRIVER}"

pytestmark = [
    needs(36, "MutatingAdmissionPolicy of admissionregistration.k8s.io/v1"),
    # Not shared with other stories: the policies are about every pod.
    pytest.mark.parametrize(
        "cluster",
        [{"client_qps": 400, **(POD_GROUPS if MINOR >= POD_GROUPS_SINCE else {})}],
        indirect=True,
        scope="package",
    ),
]


@pytest.fixture(scope="module")
def gated(cluster: Access, drawbridge: Drawbridge) -> Iterator[Drawbridge]:
    """The policies, and a node with eight devices."""
    with gates_of(cluster):
        yield drawbridge


@pytest.fixture
def team(cluster: Access, namespace: str, gated: Drawbridge) -> Iterator[Team]:
    with team_in(cluster, namespace) as team:
        yield team


# --- stories --------------------------------------------------------------------------------------


def test_a_pod_above_the_budget_waits_until_it_is_raised(team: Team, cluster: Access) -> None:
    team.limit(1)
    team.wait_enforced()
    team.create("first")
    cluster.wait_running("first", team.namespace)
    team.create("second")

    (message,) = team.wait_events("second")
    assert message == (
        f"DeviceQuota {team.namespace}, limit devices: 1 device needed, 0 of 1 device left; "
        f"namespace {team.namespace} has 1 device"
    )
    assert team.free() == ["first"]
    usage = {
        "used": "1",
        "waiting": "1",
        "namespaces": [{"namespace": team.namespace, "used": "1", "waiting": "1"}],
    }
    stored = cluster.wait_for(
        "devicequotas",
        team.namespace,
        until=lambda stored: stored["status"].get("limits") == [{"name": "devices"} | usage],
    )
    assert stored["status"]["summary"] == "0 of 1 devices left"

    team.limit(2)

    cluster.wait_running("second", team.namespace)


def test_a_released_device_goes_to_the_pod_that_waits(team: Team, cluster: Access) -> None:
    team.limit(1)
    team.wait_enforced()
    team.create("first", "second")
    (winner,) = team.wait_free(1)
    cluster.wait_running(winner, team.namespace)

    cluster.kubectl("delete", "pod", winner, "-n", team.namespace)

    (other,) = {"first", "second"} - {winner}
    cluster.wait_running(other, team.namespace)


@pytest.mark.parametrize("user", [PODS_ONLY, EDITOR])
def test_no_user_gets_around_the_gate(team: Team, cluster: Access, user: str) -> None:
    team.limit(0, OLD_KEY)
    team.wait_enforced()
    kubeconfig = add_user(cluster, team.namespace, user)

    def kubectl(*arguments: str, document: Object | None = None) -> tuple[int, str]:
        output = cluster.kubectl(
            *arguments,
            "-n",
            team.namespace,
            kubeconfig=kubeconfig,
            check=False,
            input=stream(document) if document is not None else None,
        )
        return output.returncode, output.stderr

    def create(document: Object) -> tuple[int, str]:
        return kubectl("create", "-f", "-", document=document)

    assert create(team.pod("pod"))[0] == 0
    patches = {
        "json": '[{"op": "remove", "path": "/spec/schedulingGates"}]',
        "merge": '{"spec": {"schedulingGates": null}}',
        "strategic": json.dumps({"spec": {"schedulingGates": [{"$patch": "delete", **GATE}]}}),
    }
    for kind, patch in patches.items():
        code, message = kubectl("patch", "pod", "pod", f"--type={kind}", "-p", patch)
        assert code, patch
        assert "is removed by Drawbridge" in message

    of_bridge: dict[str, Any] = {"schedulerName": SCHEDULER_NAME}
    for document in (
        team.pod("named", nodeName="gates-node"),
        pod("named", limits={OLD_KEY: 1}, nodeName="gates-node", **of_bridge),
    ):
        code, message = create(document)
        assert code
        assert "may not set spec.nodeName" in message
    code, message = kubectl(
        "create", "--raw", f"/api/v1/namespaces/{team.namespace}/pods/pod/binding", "-f", "-",
        document=api_object("Binding", "pod", target={"kind": "Node", "name": "gates-node"}),
    )  # fmt: skip
    assert code

    gates = [{"name": "example.com/own"}]
    others = [
        team.pod("own-gate", schedulingGates=gates),
        team.pod("opted-out", labels={TRANSLATE_LABEL: "false"}),
        team.pod("bridge", **of_bridge),
        team.pod("foreign", schedulerName="another-scheduler"),
        pod("by-key", limits={MAPPED_KEY: 1}),
        pod("by-init", initContainers=[container("init", limits={MAPPED_KEY: 1})]),
        pod("bridge-by-key", requests={OLD_KEY: 1}, limits={OLD_KEY: 1}, **of_bridge),
        pod("bridge-by-init", initContainers=[container("init", limits={OLD_KEY: 1})], **of_bridge),
        team.pod("bridge-by-both", limits={OLD_KEY: 1}, **of_bridge),
        team.pod("bridge-mapped", limits={MAPPED_KEY: 1}, **of_bridge),
    ]
    if user == EDITOR:
        administrative = claim(asking(DRIVER, adminAccess=True), "administrative")
        code, message = create(administrative)
        assert code
        assert "admin-access" in message
        assert create(claim(asking(DRIVER), "mine"))[0] == 0
        entry = {"name": "gpu", "resourceClaimName": "mine"}
        others.append(pod("by-name", resourceClaims=[entry]))
    for document in others:
        code, message = create(document)
        assert code == 0, message

    team.wait_events("by-key")
    claims = cluster.objects("resourceclaims", team.namespace)
    assert not [entry for entry in claims if entry.get("status", {}).get("allocation")]
    # Nobody schedules what names the bridge, which is not there.
    assert [name for name in team.free() if name != "bridge"] == []


def test_a_copy_of_a_pod_that_was_let_through_waits(team: Team, cluster: Access) -> None:
    team.limit(1)
    team.wait_enforced()
    team.create("first")
    stored = cluster.wait_running("first", team.namespace)
    copied = {
        **stored,
        "metadata": {"name": "copy", "labels": stored["metadata"].get("labels", {})},
        "spec": {**stored["spec"], "nodeName": ""},
    }

    status, answer = team.post(copied)
    with_node = team.post({**copied, "spec": stored["spec"]})

    assert status == http.client.CREATED, answer
    assert is_gated(answer)
    assert with_node[0] == http.client.FORBIDDEN
    assert "may not set spec.nodeName" in with_node[1]["message"]
    team.wait_events("copy")
    assert team.free() == ["first"]

    # A container that is added later has no devices, whoever adds it.
    path = f"{cluster.kind('pods').path(team.namespace, 'first')}/ephemeralcontainers"
    for resources in ({"limits": {MAPPED_KEY: 1}}, {"claims": [{"name": "gpu"}]}):
        later = {**container("later"), "resources": resources}
        status, body = cluster.request(
            "PATCH",
            path,
            {"spec": {"ephemeralContainers": [later]}},
            content_type="application/strategic-merge-patch+json",
        )
        assert status == http.client.UNPROCESSABLE_ENTITY, body
        assert b"ephemeralContainers[0].resources" in body


@pytest.mark.parametrize(
    "limits",
    [
        {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000},
        {"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory": "3Gi"},
        {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 3000},
    ],
    ids=["hami", "koordinator", "volcano"],
)
def test_the_keys_of_no_vocabulary_get_around_the_gate(
    team: Team, cluster: Access, limits: Mapping[str, str | int]
) -> None:
    """The webhook turns the keys into claims; the gate comes with either."""
    node = "gates-hami"
    cluster.apply(hami_class())
    added = cluster.add_nodes([kwok_node(node)], lambda name: hami_gpus(name, gpus=1))
    memory = {"name": "memory", "driver": HAMI, "capacity": "memory", "max": "1Gi"}
    team.limit(1, limits=[memory])
    team.wait_enforced()
    try:
        status, answer = team.post(pod("by-key", limits=limits))
        assert status == http.client.CREATED, answer
        assert is_gated(answer)
        assert answer["spec"]["resourceClaims"]
        (message,) = team.wait_events("by-key")
        assert "limit memory" in message
        assert team.free() == []
        claims = cluster.objects("resourceclaims", team.namespace)
        assert not [entry for entry in claims if entry.get("status", {}).get("allocation")]
    finally:
        cluster.remove_nodes(added)


def test_pods_that_come_while_all_of_ours_is_down_wait(
    team: Team, cluster: Access, gated: Drawbridge
) -> None:
    team.limit(1)
    team.wait_enforced()
    processes = (CONTROLLER, WEBHOOK)
    for name in processes:
        gated.stop(name)
    try:
        team.create("first", "second")
        # Pods with keys are for the webhook, which does not answer; either way none is without the gate.
        for document in (
            pod("by-key", limits={MAPPED_KEY: 1}),
            team.pod("opted-out", labels={TRANSLATE_LABEL: "false"}),
        ):
            status, answer = team.post(document)
            assert status >= http.client.BAD_REQUEST or is_gated(answer)
        time.sleep(2)
        assert team.free() == []
    finally:
        for name in processes:
            gated.start(name)
        gated.wait_ready()

    (winner,) = team.wait_free(1)
    cluster.wait_running(winner, team.namespace)


def test_pods_wait_while_the_api_server_and_the_controllers_are_away(
    team: Team, cluster: Access, gated: Drawbridge
) -> None:
    """A unit that is released meanwhile goes to one pod, and to no other."""
    if not isinstance(cluster, Cluster):
        pytest.skip("needs an API server of its own")
    team.limit(1)
    team.wait_enforced()
    with UsageRecord(team) as record:
        team.create("first")
        cluster.wait_running("first", team.namespace)
        gated.stop(CONTROLLER)
        team.create("second", "third")
        team.delete("first")
        time.sleep(AWAY_S)
        assert not {"second", "third"} & set(team.free())
    assert record.most_at_a_time() == 1
    cluster.restart_api_server()
    with UsageRecord(team, begins_empty=False) as record:
        gated.start(CONTROLLER)
        gated.wait_ready()
        (winner,) = team.wait_free(1)
        cluster.wait_running(winner, team.namespace)
        assert record.most_at_a_time() == 1
    team.wait_gates()


def test_a_pod_that_got_less_than_its_worst_case_lets_another_through(
    team: Team, cluster: Access, workshop: str
) -> None:
    """Of two devices or one it gets one, since only one is left."""
    all_but_one = {**template(asking(DRIVER, count=DEVICES - 1)), "metadata": {"name": "most"}}
    alternatives = [
        {"name": f"of-{number}", "deviceClassName": DRIVER, "count": number} for number in (2, 1)
    ]
    either = template({"devices": {"requests": [{"name": "gpu", "firstAvailable": alternatives}]}})
    either["metadata"]["name"] = "either"
    cluster.kubectl(
        *("apply", "-n", workshop, "-f", "-"),
        input=stream([all_but_one, pod("most", claims={"gpu": "most"})]),
    )
    cluster.wait_running("most", workshop)
    cluster.kubectl("apply", "-n", team.namespace, "-f", "-", input=stream(either))
    team.limit(2)
    team.wait_enforced()
    try:
        with UsageRecord(team) as record:
            status, answer = team.post(pod("either", claims={"gpu": "either"}))
            assert status == http.client.CREATED, answer
            cluster.wait_running("either", team.namespace)

            team.create("other")
            team.wait_free(2)
            team.create("late")
            (message,) = team.wait_events("late")
            assert "1 device needed, 0 of 2 devices left" in message
            cluster.kubectl("delete", "pod", "most", "-n", workshop)
            cluster.wait_running("other", team.namespace)
            assert record.most_at_a_time() == 2
    finally:
        cluster.kubectl("delete", "pod", "most", "-n", workshop, "--ignore-not-found")


def test_a_claim_of_ten_pods_is_charged_once(team: Team, cluster: Access) -> None:
    team.limit(1)
    team.wait_enforced()
    entry = {"name": "gpu", "resourceClaimName": "shared"}
    names = [f"sharer-{number}" for number in range(10)]
    assert team.post(claim(asking(DRIVER), "shared"))[0] == http.client.CREATED
    for name in names:
        status, answer = team.post(pod(name, resourceClaims=[entry]))
        assert status == http.client.CREATED, answer
    for name in names:
        cluster.wait_running(name, team.namespace)

    team.create("other")

    (message,) = team.wait_events("other")
    assert "1 device needed, 0 of 1 device left" in message
    cluster.wait_for(
        "devicequotas",
        team.namespace,
        until=lambda stored: stored["status"]["limits"][0].get("used") == "1",
    )


def test_namespaces_of_a_tenant_share_until_one_is_relabelled(
    team: Team, cluster: Access, workshop: str
) -> None:
    """A third namespace has the rest of the two; one that leaves the tenant takes its usage along."""
    tenant, third = team.namespace, f"{team.namespace}-third"
    namespace = api_object("Namespace", third)
    cluster.apply(namespace)
    cluster.wait_for("serviceaccounts", "default", third)
    others = [Team(cluster, name) for name in (workshop, third)]
    for other in others:
        wanted = template(asking(DRIVER), "wanted")
        cluster.kubectl("apply", "-n", other.namespace, "-f", "-", input=stream(wanted))
    teams = [team, *others]
    for part in teams:
        cluster.kubectl("label", "namespace", part.namespace, f"tenant={tenant}")
    team.limit(2, namespaceSelector={"matchLabels": {"tenant": tenant}})
    for part in teams:
        part.wait_gates()
    try:
        for part in teams[:2]:
            part.create("a")
            cluster.wait_running("a", part.namespace)
        teams[2].create("a")
        (message,) = teams[2].wait_events("a")
        assert "1 device needed, 0 of 2 devices left" in message

        cluster.kubectl("label", "namespace", workshop, "tenant-")

        cluster.wait_running("a", third)
        cluster.wait_running("a", workshop)
        cluster.kubectl("label", "namespace", workshop, f"tenant={tenant}")
        teams[2].create("late")
        teams[2].wait_events("late")
        assert [part.free() for part in teams] == [["a"]] * 3, "nobody is evicted"
    finally:
        cluster.kubectl("label", "namespace", workshop, "tenant-")
        cluster.kubectl("delete", "pod", "a", "-n", workshop, "--ignore-not-found")
        cluster.delete("namespace", third)


def test_creators_race_for_the_last_unit(team: Team, cluster: Access) -> None:
    team.limit(1)
    team.wait_enforced()
    with (
        UsageRecord(team) as record,
        cluster.watching("devicequotas") as (_, versions),
        ThreadPoolExecutor(CREATORS) as creators,
    ):
        list(creators.map(team.create, [f"pod-{number}" for number in range(CREATORS)]))
        (winner,) = team.wait_free(1)
        for number in range(ROUNDS):
            cluster.wait_running(winner, team.namespace)
            last = winner
            release = creators.submit(team.delete, last)
            creators.submit(team.create, f"late-{number}").result()
            release.result()
            cluster.wait_until(partial(team.has_another_free, last), "another is let through")
            (winner,) = team.wait_free(1)
            assert winner != last
        assert record.most_at_a_time() == 1
    assert max(_counted(team, versions)) == 1


def _counted(team: Team, versions: Sequence[Object]) -> Iterator[int]:
    """Yield the used and promised devices in the status of a team's quota, at each version of it."""
    for version in versions:
        quota = version["object"]
        if quota["metadata"]["name"] == team.namespace:
            for limit in quota.get("status", {}).get("limits", ()):
                yield int(limit.get("used", 0)) + int(limit.get("promised", 0))


def test_a_group_of_four_is_let_through_together_or_not_at_all(team: Team, cluster: Access) -> None:
    team.limit(4)
    team.wait_enforced()
    team.create("other")
    cluster.wait_running("other", team.namespace)
    gang = {
        "gang.scheduling.koordinator.sh/name": "gang",
        "gang.scheduling.koordinator.sh/min-available": "4",
    }

    # Three would fit beside the other pod, but the group needs four.
    names = [f"member-{number}" for number in range(4)]
    for name in names[:3]:
        team.add(team.pod(name, annotations=gang))
    time.sleep(2)
    assert team.free() == ["other"]
    team.add(team.pod(names[3], annotations=gang))
    (message,) = team.wait_events("member-0")
    assert "4 devices needed, 3 of 4 devices left" in message
    assert "4 pods of the group wait together" in message
    assert team.free() == ["other"]

    with UsageRecord(team, begins_empty=False) as record:
        cluster.kubectl("delete", "pod", "other", "-n", team.namespace)
        team.wait_free(4)
        assert record.most_at_a_time() <= 4
    assert sorted(team.free()) == names


@needs(POD_GROUPS_SINCE, "PodGroups of scheduling.k8s.io/v1beta1")
def test_a_group_waits_for_its_pod_group_and_for_as_many_pods_as_that_needs(
    team: Team, cluster: Access
) -> None:
    team.limit(4)
    team.wait_enforced()
    names = [f"member-{number}" for number in range(4)]
    with UsageRecord(team) as record:
        for name in names[:3]:
            team.add(member(team.pod(name), "ring"))
        (message,) = team.wait_events(names[0])
        assert message == (
            f"PodGroup {team.namespace}/ring does not exist; how many pods it needs is not known, so its pods "
            "wait until it is made"
        )
        cluster.kubectl(
            "create", "-n", team.namespace, "-f", "-", input=stream(pod_group("ring", 4))
        )
        # Three of the four would fit, and nobody else is there.
        cluster.wait_until(
            lambda: any("needs 4 pods, and has 3" in note for note in team.wait_events(names[0])),
            "the pod is told how many are missing",
            timeout_s=60,
        )
        assert team.free() == []
        assert record.most_at_a_time() == 0

        team.add(member(team.pod(names[3]), "ring"))
        for name in names:
            cluster.wait_running(name, team.namespace)
        assert record.most_at_a_time() <= 4


@needs(POD_GROUPS_SINCE, "claims of PodGroups")
def test_pods_that_share_a_claim_of_their_group_are_charged_once(
    team: Team, cluster: Access
) -> None:
    team.limit(1)
    team.wait_enforced()
    names = ["member-0", "member-1"]
    pods = [member(team.pod(name), "ring") for name in names]
    group = pod_group("ring", 2, claims=pods[0]["spec"]["resourceClaims"])
    with UsageRecord(team) as record:
        cluster.kubectl("create", "-n", team.namespace, "-f", "-", input=stream(group))
        for entry in pods:
            team.add(entry)
        for name in names:
            cluster.wait_running(name, team.namespace)
        team.create("other")
        (message,) = team.wait_events("other")
        assert "1 device needed, 0 of 1 device left" in message
        assert record.most_at_a_time() == 1


def test_the_alert_comes_once_and_goes_once(team: Team, cluster: Access) -> None:
    """A pod is promised, then uses its devices: the sum stays, and so does the alert."""
    team.limit(2)
    team.wait_enforced()
    with cluster.watching("devicequotas") as (_, events):
        team.create("first", "second")
        for name in ("first", "second"):
            cluster.wait_running(name, team.namespace)
        _wait_alert(team, "True")
        cluster.kubectl("delete", "pod", "first", "-n", team.namespace)
        _wait_alert(team, "False")
        states = [
            condition(event["object"], "AlertThresholdReached")
            for event in list(events)
            if event["object"]["metadata"]["name"] == team.namespace
        ]

    changes = [state for state, _ in itertools.groupby(filter(None, states))]
    assert changes in (["False", "True", "False"], ["True", "False"])


def _wait_alert(team: Team, status: str) -> None:
    team.cluster.wait_for(
        "devicequotas",
        team.namespace,
        until=lambda stored: condition(stored, "AlertThresholdReached") == status,
    )


def test_pods_with_keys_and_claims_share_one_budget_while_a_namespace_moves(
    team: Team, cluster: Access
) -> None:
    """The old ResourceQuota counts keys; once the DeviceQuota counts both, its line goes, as a wave does it."""
    offer = json.dumps({"status": {"allocatable": {OLD_KEY: "8"}, "capacity": {OLD_KEY: "8"}}})
    cluster.kubectl(
        "patch", "node", "gates-node", "--subresource=status", "--type=merge", "-p", offer
    )
    with_old_key = partial(pod, limits={OLD_KEY: "1"})
    line = f"requests.{OLD_KEY}"
    quota = resource_quota({line: "2"}, name="old", namespace=team.namespace)
    cluster.apply(quota)
    with UsageRecord(team) as record:
        team.limit(2, OLD_KEY)
        team.wait_enforced()

        def old_pod(name: str) -> None:
            status, answer = team.post(with_old_key(name))
            assert status == http.client.CREATED, answer
            assert is_gated(answer)

        old_pod("old-1")
        old_pod("old-2")
        for name in ("old-1", "old-2"):
            cluster.wait_running(name, team.namespace)
        team.create("new-1")
        (message,) = team.wait_events("new-1")
        assert "1 device needed, 0 of 2 devices left" in message

        cluster.kubectl(
            "wait", f"devicequota/{team.namespace}", "--for=condition=Enforced", "--timeout=180s"
        )
        removal = json.dumps({"spec": {"hard": {line: None}}})
        words = ("patch", "resourcequota", "old", "-n", team.namespace, "--type=merge", "-p")
        cluster.kubectl(*words, removal)
        # The API server counts by a status of the ResourceQuota that its controller writes later.
        cluster.wait_until(
            lambda: team.post(with_old_key("old-3"), dry_run=True)[0] == http.client.CREATED,
            "the old line counts no more",
        )
        old_pod("old-3")
        team.wait_events("old-3")

        cluster.kubectl("delete", "pod", "old-1", "-n", team.namespace)
        cluster.wait_running("new-1", team.namespace)
        cluster.kubectl("delete", "pod", "old-2", "-n", team.namespace)
        cluster.wait_running("old-3", team.namespace)
        stored = cluster.wait_for(
            "devicequotas",
            team.namespace,
            until=lambda stored: stored["status"]["limits"][0].get("used") == "2",
        )
        assert stored["status"]["summary"] == "0 of 2 devices left"
        assert record.most_at_a_time() == 2


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_leader_that_is_killed_at_a_removal(
    team: Team, cluster: Access, gated: Drawbridge, moment: Moment
) -> None:
    team.limit(2)
    team.wait_enforced()
    order = cluster.directory / "quota.order"
    command = (sys.executable, "-m", "e2e.killed_mid_write", "controllers", str(order))
    gated.stop(CONTROLLER)
    gated.start(CONTROLLER, command=command)
    try:
        with UsageRecord(team) as record:
            (write,) = QUOTA_WRITES
            _arm(order, Order(write=write, moment=moment))
            team.create("a", "b", "c", "d")
            cluster.wait_until(lambda: not order.exists(), "the leader has died")
            for name in team.wait_free(2):
                cluster.wait_running(name, team.namespace)
            assert record.most_at_a_time() == 2
    finally:
        order.unlink(missing_ok=True)
        gated.stop(CONTROLLER)
        gated.start(CONTROLLER)


@pytest.mark.long
def test_a_late_write_of_a_frozen_leader_is_denied(
    team: Team, cluster: Access, gated: Drawbridge
) -> None:
    """It lets a pod through that the next leader does not: only the policy with the Lease can tell."""
    team.limit(1)
    team.wait_enforced()
    cluster.apply(priority_class(PRIORITY))
    gated.stop(CONTROLLER)
    kubeconfig = cluster.directory / "frozen.kubeconfig"
    kubeconfig.unlink(missing_ok=True)
    shutil.copy(cluster.kubeconfig_for(gated.namespace, CONTROLLER), kubeconfig)
    probes, metrics = map(str, free_ports(2))
    environment = {
        "KUBECONFIG": str(kubeconfig),
        "DRAWBRIDGE_PROBE_PORT": probes,
        "DRAWBRIDGE_METRICS_PORT": metrics,
    }
    with Interposer(cluster, "pods") as proxy, ExitStack() as undo:
        undo.callback(gated.start, CONTROLLER)
        proxy.redirect(kubeconfig)
        proxy.decide(lambda _path: Outcome.HOLD)
        frozen = gated.start(CONTROLLER, replica="frozen", environment=environment)
        undo.callback(gated.stop, "frozen")
        undo.callback(frozen.signal, signal.SIGCONT)
        team.create("early")
        cluster.wait_until(proxy.held, "a removal is held")
        frozen.signal(signal.SIGSTOP)
        team.create("late", priorityClassName=PRIORITY)
        undo.pop_all()
        gated.start(CONTROLLER)
        try:
            assert team.wait_free(1) == ["late"]

            writes = proxy.release()
        finally:
            frozen.signal(signal.SIGCONT)
            gated.stop("frozen")

    assert writes
    assert not [write for write in writes if write.status < http.client.BAD_REQUEST]
    assert team.free() == ["late"]
    cluster.delete("priorityclass", PRIORITY)


def _arm(path: Path, order: Order) -> None:
    partial = path.with_suffix(".partial")
    partial.write_bytes(msgspec.json.encode(order))
    partial.rename(path)


def test_the_kind_stays_while_the_policies_read_it(cluster: Access, gated: Drawbridge) -> None:
    output = cluster.kubectl("delete", "crd", "devicequotas.drawbridge.internal", check=False)

    assert output.returncode
    assert "delete them first" in output.stderr


def test_the_controllers_may_remove_the_gate_of_a_pod_and_nothing_else(
    team: Team, cluster: Access, gated: Drawbridge
) -> None:
    team.limit(0)
    team.wait_enforced()
    team.create("pod")
    path = cluster.kind("pods").path(team.namespace, "pod")
    denied: dict[str, Object] = {
        "of a pod only the scheduling gate": {"metadata": {"labels": {"a": "b"}}},
        "only the scheduling gate": {"spec": {"activeDeadlineSeconds": 5}},
        "does not hold the Lease": {"spec": {"schedulingGates": None}},
    }
    for message, patch in denied.items():
        status, answer = cluster.request(
            "PATCH",
            path,
            patch,
            content_type="application/merge-patch+json",
            user=f"system:serviceaccount:{gated.namespace}:{CONTROLLER}",
        )
        assert status == http.client.FORBIDDEN, patch
        assert message in answer.decode()


@pytest.mark.long
def test_the_hook_of_the_chart_unlocks_pods_with_its_own_account(
    team: Team, cluster: Access, gated: Drawbridge
) -> None:
    team.limit(0)
    team.wait_enforced()
    team.create("first", "second")
    gated.stop(CONTROLLER)
    flags = ("--set", "quotaGates.enabled=true", "--show-only", "templates/uninstall.yaml")
    hook = chart(*flags, namespace=gated.namespace)
    (job,) = (document for document in hook if document["kind"] == "Job")
    rights = [document for document in hook if document is not job]
    cluster.apply(rights)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    account = job["spec"]["template"]["spec"]["serviceAccountName"]
    kubeconfig = cluster.kubeconfig_for(gated.namespace, account)
    user = f"system:serviceaccount:{gated.namespace}:{account}"
    label = {"metadata": {"labels": {"a": "b"}}}
    path = cluster.kind("pods").path(team.namespace, "first")
    merge = "application/merge-patch+json"
    cluster.wait_until(
        lambda: (
            b"only the scheduling gate"
            in cluster.request("PATCH", path, label, content_type=merge, user=user)[1]
        ),
        "the policy of the account is in force",
    )

    command = (*command_of(container), "--kubeconfig", str(kubeconfig))
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    assert sorted(team.free()) == ["first", "second"]
    cluster.wait_running("first", team.namespace)
    team.create("third")
    assert "third" in team.free()
    # Nothing else is the account's: what it may not do by its role, and by its policy.
    for verb, resource in {"get": "pods", "delete": "pods", "create": "pods"}.items():
        words = ("auth", "can-i", verb, resource, "-A")
        assert cluster.kubectl(*words, kubeconfig=kubeconfig, check=False).returncode, verb
    gated.start(CONTROLLER)
    # The policy that reads the Lease has stayed.
    cluster.apply(rendered(cluster, GATES))
    cluster.kubectl("delete", "-f", "-", input=stream(rights))


def test_without_the_policies_no_pod_stays_locked(
    team: Team, cluster: Access, gated: Drawbridge
) -> None:
    """The controllers unlock pods once the policies are gone; without controllers, kubectl alone does."""
    team.limit(0)
    team.wait_enforced()
    team.create("by-controllers")
    team.wait_events("by-controllers")
    cluster.kubectl("delete", "-k", str(GATES), "--ignore-not-found")
    cluster.wait_running("by-controllers", team.namespace)
    cluster.wait_for(
        "devicequotas",
        team.namespace,
        until=lambda stored: condition(stored, "Enforced") == "False",
    )


def test_kubectl_alone_unlocks_pods(team: Team, cluster: Access, gated: Drawbridge) -> None:
    team.limit(0)
    # Without the policy that reads the Lease, which must not be created again.
    cluster.apply(
        [
            document
            for document in rendered(cluster, GATES)
            if document["metadata"]["name"] != HOLDER_POLICY
        ]
    )
    gated.stop(CONTROLLER)
    probe = team.pod("probe")

    def adds_gates() -> bool:
        status, answer = team.post(probe, dry_run=True)
        # Of two policies one may be in force before the other, and denies the pod.
        return status == http.client.CREATED and is_gated(answer)

    cluster.wait_until(adds_gates, "the policies are in force")
    team.create("first", "second")
    assert team.free() == []

    text = (ROOT / "docs" / "quota-gates.md").read_text()
    (block,) = (
        code for code in re.findall(r"```text\n(.*?)```", text, re.DOTALL) if "while" in code
    )
    script = block.replace("kubectl", str(cluster.kubectl_binary))
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=cluster.environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert sorted(team.free()) == ["first", "second"]
    gated.start(CONTROLLER)
