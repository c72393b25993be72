"""A DeviceQuota of a driver that the bridge owns, with the bridge killed around its decisions.

A sidecar is killed when it has decided, and nothing of it is written, or when the first claim is; the API server
is restarted meanwhile; and nobody is there for a while. The controllers never run: the bridge decides alone.
What happened is read in the API server's audit log, by code that has nothing of ours: at no version of the
claims has the tenant more devices than it may. `DRAWBRIDGE_E2E_QUOTA_ROUNDS=500` kills 41 times.
"""

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from e2e import inventory
from e2e.access import PATIENCE, Object
from e2e.audit import conflicts, log_length, stored_claims
from e2e.bridge import Bridge, bridged, doubly_held, is_waiting
from e2e.custom_kinds import wait_established
from e2e.inventory import EXAMPLE
from e2e.owned import AUDITED, SHORT_LEASE, TEAM, Owned, taker
from kube.api.own_kinds import DEVICE_QUOTA
from testing.long_runs import beginning_with
from tools.custom_resources import definition

TIMEOUT_S: Final = 120.0
ROUNDS: Final = int(os.environ.get("DRAWBRIDGE_E2E_QUOTA_ROUNDS", "20"))
KILLS: Final = max(2, ROUNDS // 12)
AWAY_S: Final = 60.0 if KILLS > len(("decided", "written")) else 1.0
"""The time without a bridge."""
MOST: Final = 2
PODS: Final = 4
REPLICA: Final = "hasty"
"""The replica with a short Lease."""

_numbers = itertools.count(1)

pytestmark = pytest.mark.parametrize("cluster", [AUDITED], indirect=True)


@pytest.fixture(scope="module")
def stage(owned_bridge: Owned) -> Iterator[Owned]:
    """More devices than the tenant may have, a quota, and the bridge with one replica at work."""
    cluster = owned_bridge.cluster
    owned_bridge.bridge.stop("a")
    nodes = cluster.add_nodes(
        inventory.kwok_nodes(2, prefix="killed"),
        lambda node: inventory.example_gpus(node, gpus=PODS),
    )
    crd = "devicequotas.drawbridge.internal"
    cluster.apply(definition(DEVICE_QUOTA))
    wait_established(cluster, crd)
    limit = {"name": "devices", "driver": EXAMPLE, "devices": {}, "max": MOST}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": TEAM}}
    cluster.apply(
        {
            "apiVersion": DEVICE_QUOTA.api_version,
            "kind": DEVICE_QUOTA.kind,
            "metadata": {"name": TEAM},
            "spec": {"namespaceSelector": selector, "limits": [limit]},
        }
    )
    owned_bridge.command("bridge", "own", EXAMPLE, "--apply")
    bridge = Bridge(cluster, drivers=(), settings=SHORT_LEASE)
    bridge.start(REPLICA)
    bridge.wait_working(REPLICA)
    yield Owned(cluster, bridge)
    bridge.wait_working(REPLICA)
    owned_bridge.clear()
    bridge.stop(REPLICA)
    cluster.delete("crd", crd)
    cluster.remove_nodes(nodes)


@pytest.mark.parametrize("number", beginning_with(1, range(KILLS)))
def test_a_sidecar_is_killed_around_a_decision(stage: Owned, number: int) -> None:
    """Every other time the API server is restarted before there is another sidecar."""
    began = log_length(stage.cluster)
    happened = _has_decided(stage) if number % 2 else _has_written(stage, began)
    names = apply_pods(stage)
    _wait_briefly(happened, "the bridge has decided")

    sidecar = stage.bridge.child("sidecar", REPLICA)
    sidecar.signal(signal.SIGKILL)
    sidecar.wait(TIMEOUT_S)
    if number % 4 < 2:
        restart_api_server(stage)

    wait_within_budget(stage, names)
    (first, *_) = running(stage)
    stage.cluster.kubectl("delete", "pod", first, "-n", TEAM, "--wait=false")
    wait_within_budget(stage, [name for name in names if name != first])
    check(stage, began)
    stage.clear()


def test_nobody_is_there_for_a_while(stage: Owned) -> None:
    """A device that is released meanwhile goes to one pod, and to no other."""
    began = log_length(stage.cluster)
    names = apply_pods(stage)
    wait_within_budget(stage, names)
    stage.bridge.stop(REPLICA)
    (first, *_) = running(stage)
    stage.cluster.kubectl("delete", "pod", first, "-n", TEAM, "--wait=false")
    names = [*(name for name in names if name != first), *apply_pods(stage)]
    time.sleep(AWAY_S)
    assert len(running(stage)) < MOST

    stage.bridge.wait_working(REPLICA)
    wait_within_budget(stage, names)
    check(stage, began)
    stage.clear()


def restart_api_server(stage: Owned) -> None:
    """Kill the API server, and wait for the next one; processes of ours may have ended beside it."""
    stage.cluster.restart("kube-apiserver")
    stage.cluster.wait_until(
        lambda: stage.cluster.kubectl("get", "--raw", "/readyz", check=False).stdout == "ok",
        "the API server answers",
        timeout_s=TIMEOUT_S,
    )


def apply_pods(stage: Owned) -> list[str]:
    """Apply pods that want a device each, and return their names."""
    names = [f"killed-{next(_numbers)}" for _ in range(PODS)]
    stage.apply(*(bridged(taker(name)) for name in names))
    return names


def _has_decided(stage: Owned) -> Callable[[], bool]:
    """Return a check for a further pod with nodes."""
    before = stage.bridge.calls("prefilter", "fits", REPLICA)
    return lambda: stage.bridge.calls("prefilter", "fits", REPLICA) > before


def _has_written(stage: Owned, began: int) -> Callable[[], bool]:
    """Return a check for a claim written with devices, since a place in the log."""
    return lambda: any(map(_devices, stored_claims(stage.cluster, began)))


def _wait_briefly(happened: Callable[[], bool], what: str) -> None:
    """Wait for a moment that passes soon, without a pause between two looks."""
    deadline = time.monotonic() + PATIENCE * TIMEOUT_S
    while not happened():
        assert time.monotonic() < deadline, what


def running(stage: Owned) -> list[str]:
    """Return the pods that run, sorted."""
    return sorted(
        stored["metadata"]["name"]
        for stored in stage.cluster.objects("pods", TEAM)
        if stored["status"].get("phase") == "Running"
        and "deletionTimestamp" not in stored["metadata"]
    )


def wait_within_budget(stage: Owned, names: list[str]) -> None:
    """Wait until as many pods run as the tenant may have, and all others wait for its quota."""

    def is_settled() -> bool:
        stage.bridge.tend(REPLICA)
        others = [
            stored
            for stored in stage.cluster.objects("pods", TEAM)
            if stored["metadata"]["name"] in names and "nodeName" not in stored["spec"]
        ]
        return (
            len(running(stage)) == MOST
            and len(others) == len(names) - MOST
            and all(map(_waits_for_quota, others))
        )

    stage.cluster.wait_until(
        is_settled, f"{MOST} pods run and the others wait", timeout_s=TIMEOUT_S
    )


def _waits_for_quota(pod: Object) -> bool:
    return is_waiting(pod) and any(
        "of 2 devices left" in condition.get("message", "")
        for condition in pod["status"]["conditions"]
    )


def check(stage: Owned, began: int) -> None:
    """Check in the audit log that the tenant never had more devices than it may, and each device one claim."""
    # A write whose client was killed before the answer may have none in the log.
    claims = [*stored_claims(stage.cluster, began), *stage.cluster.objects("resourceclaims", TEAM)]
    devices: dict[str, int] = {}
    largest = 0
    for claim in sorted(claims, key=_version):
        devices[claim["metadata"]["uid"]] = _devices(claim)
        largest = max(largest, sum(devices.values()))
    assert largest == MOST
    assert [] == conflicts(claims)
    assert [] == doubly_held(stage.cluster)


def _version(claim: Object) -> int:
    return int(claim["metadata"]["resourceVersion"])


def _devices(claim: Object) -> int:
    allocation = claim.get("status", {}).get("allocation") or {}
    return len(allocation.get("devices", {}).get("results") or ())
