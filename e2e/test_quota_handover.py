"""The bridge takes a driver with a DeviceQuota from the gates, and gives it back: no version has too much.

The stories follow each other: a fence that is deleted and created again keeps an old parameter.
"""

import http.client
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from e2e.access import Access, Object
from e2e.bridge import Bridge, is_waiting
from e2e.drawbridge import Drawbridge, command_line
from e2e.gated import DRIVER, OLD_KEY, Team, UsageRecord, gates_of, is_gated, team_in
from e2e.objects import pod
from e2e.older_kubernetes import needs
from e2e.routed import routing_rules
from kube.names import SCHEDULER_NAME

CLUSTER: Final[dict[str, Any]] = {"client_qps": 400}
LIMIT: Final = 2
TEAM: Final = "quota-handover"
TIMEOUT_S: Final = 120.0
NOWHERE: Final = {"nodeSelector": {"example.com/nowhere": "true"}}
FULL: Final = "1 device needed, 0 of 2 devices left"

pytestmark = [
    needs(36, "MutatingAdmissionPolicy of admissionregistration.k8s.io/v1"),
    # Not shared with other stories: the policies are about every pod.
    pytest.mark.parametrize("cluster", [CLUSTER], indirect=True, scope="package"),
]


@pytest.fixture(scope="module")
def team(cluster: Access, drawbridge: Drawbridge) -> Iterator[Team]:
    """A team with two of eight devices, gates for its pods, and a bridge that owns no driver yet."""
    bridge = Bridge(cluster, drivers=())
    bridge.install()
    bridge.ensure()
    cluster.kubectl("create", "namespace", TEAM)
    cluster.wait_for("serviceaccounts", "default", TEAM)
    with gates_of(cluster), team_in(cluster, TEAM) as made:
        made.limit(LIMIT)
        made.wait_enforced()
        yield made
    bridge.uninstall()
    cluster.delete("namespace", TEAM)


def command(cluster: Access, verb: str) -> None:
    """Give the driver to the bridge, or take it from it."""
    completed = command_line(cluster, "bridge", verb, DRIVER, "--apply")
    assert completed.returncode == 0, completed.stderr


def wait_message(team: Team, name: str, text: str) -> None:
    """Wait until an event of a pod that waits behind the gate has a text."""
    team.cluster.wait_until(
        lambda: any(text in message for message in team.wait_events(name)),
        f"pod {name} is told: {text}",
        timeout_s=TIMEOUT_S,
    )


def wait_for_bridge(cluster: Access, name: str) -> None:
    """Wait until the bridge has turned a pod away, since nothing is left to its tenant."""

    def is_told(stored: Object) -> bool:
        return is_waiting(stored) and FULL in stored["status"]["conditions"][0]["message"]

    cluster.wait_for("pods", name, TEAM, until=is_told, timeout_s=TIMEOUT_S)


def admitted(team: Team, **spec: Any) -> tuple[str, bool]:
    """Return the scheduler that a new pod would get, and True if it would be gated."""
    status, answer = team.post(team.pod("new", **spec), dry_run=True)
    assert status == http.client.CREATED, answer
    return answer["spec"]["schedulerName"], is_gated(answer)


def test_the_bridge_counts_what_the_gates_have_promised(team: Team, cluster: Access) -> None:
    with UsageRecord(team) as record:
        # Let through, and placed nowhere, so that one unit is promised.
        team.create("promised", **NOWHERE)
        team.wait_free(1)
        team.create("leaver")
        cluster.wait_running("leaver", TEAM, timeout_s=TIMEOUT_S)
        team.create("late")
        wait_message(team, "late", FULL)

        command(cluster, "own")
        team.create("first", schedulerName=SCHEDULER_NAME)
        wait_for_bridge(cluster, "first")
        team.delete("leaver")
        cluster.wait_running("first", TEAM, timeout_s=TIMEOUT_S)
        team.create("second", schedulerName=SCHEDULER_NAME)
        wait_for_bridge(cluster, "second")

        # The policy adds the gate before the webhook gives a pod to the bridge.
        cluster.wait_until(lambda: routing_rules(cluster), "pods are routed", timeout_s=TIMEOUT_S)
        assert admitted(team) == (SCHEDULER_NAME, False)
        assert admitted(team, limits={OLD_KEY: "1"}) == (SCHEDULER_NAME, True)
        assert admitted(team, schedulerName="theirs") == ("theirs", True)

        # Nobody would give it devices now, and all such pods would get some later.
        wait_message(team, "late", "the bridge allocates the devices")
        assert not {"late"} & set(team.free())
        assert record.most_at_a_time() == LIMIT


def test_the_gates_count_what_the_bridge_gave(team: Team, cluster: Access) -> None:
    with UsageRecord(team, begins_empty=False) as record:
        command(cluster, "release")
        # A pod of the same size comes after it, and would be let through if there were room.
        team.create("later")
        wait_message(team, "later", FULL)
        assert sorted(team.free()) == ["first", "promised", "second"]

        team.delete("promised")
        cluster.wait_running("late", TEAM, timeout_s=TIMEOUT_S)
        assert sorted(team.free()) == ["first", "late", "second"]
        assert record.most_at_a_time() == LIMIT


@pytest.mark.usefixtures("team")
def test_pods_of_the_bridge_wait_for_keys_of_a_device_plugin(
    cluster: Access, namespace: str
) -> None:
    """They had no gate, and the bridge decides about claims alone: all of them ran."""
    offer = json.dumps({"status": {"allocatable": {OLD_KEY: "8"}, "capacity": {OLD_KEY: "8"}}})
    cluster.kubectl(
        "patch", "node", "gates-node", "--subresource=status", "--type=merge", "-p", offer
    )
    with team_in(cluster, namespace) as users, UsageRecord(users) as record:
        users.limit(1, OLD_KEY)
        users.wait_enforced()

        def with_key(name: str, **spec: Any) -> Object:
            return pod(name, limits={OLD_KEY: "1"}, schedulerName=SCHEDULER_NAME, **spec)

        users.add(with_key("first"))
        cluster.wait_running("first", namespace, timeout_s=TIMEOUT_S)
        users.add(with_key("second"))
        (message,) = users.wait_events("second")
        assert message.startswith(
            f"DeviceQuota {namespace}, limit devices: 1 device needed, 0 of 1 device left"
        )
        status, answer = users.post(with_key("named", nodeName="gates-node"))
        assert status == http.client.FORBIDDEN
        assert "may not set spec.nodeName" in answer["message"]

        users.delete("first")
        cluster.wait_running("second", namespace, timeout_s=TIMEOUT_S)
        assert record.most_at_a_time() == 1
