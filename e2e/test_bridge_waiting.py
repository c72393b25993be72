"""Pods that wait for devices cost nothing until one is released that helps them."""

import os
import time
from collections.abc import Iterator, Sequence
from typing import Final

import pytest

from e2e.access import Access, stream
from e2e.bridge import NEVER_FLUSHED, Bridge, bridged, doubly_held, is_waiting
from e2e.inventory import EXAMPLE
from e2e.objects import claim_template, pod

TIMEOUT_S: Final = 240.0
REPLICA: Final = "waiting"
DEVICES: Final = 8
WAITING: Final = int(os.environ.get("DRAWBRIDGE_E2E_WAITING", "40"))
RELEASES: Final = max(1, WAITING // 10)
QUIET_S: Final = 2.0
SPARE_CALLS: Final = 2
"""The further calls for each release: a pod that is woken beside the one that takes the device."""


@pytest.fixture
def never_flushed(cluster: Access, installed_bridge: Bridge) -> Iterator[Bridge]:
    """The bridge with a scheduler that does not try each waiting pod once a minute."""
    for name in ("a", "b"):
        installed_bridge.stop(name)
    bridge = Bridge(cluster, drivers=[EXAMPLE], scheduler_flags=(NEVER_FLUSHED,))
    bridge.start(REPLICA)
    bridge.wait_working(REPLICA)
    yield bridge
    bridge.stop(REPLICA)


def test_a_release_costs_calls_for_few_of_many_that_wait(
    cluster: Access, never_flushed: Bridge, namespace: str, nodes: list[str]
) -> None:
    names = [f"pod-{number:03d}" for number in range(DEVICES + WAITING)]
    templates = [claim_template("one", EXAMPLE)]
    pods = [bridged(pod(name, claims={"gpu": "one"}), nodes) for name in names]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream([*templates, *pods]))
    cluster.wait_until(
        lambda: (
            len(_names(cluster, namespace, waiting=False)) == DEVICES
            and len(_names(cluster, namespace, waiting=True)) == WAITING
        ),
        f"{WAITING} of {len(names)} pods wait",
        timeout_s=TIMEOUT_S,
    )
    cluster.wait_until(
        lambda: _is_quiet(never_flushed), "no pod is tried again", timeout_s=TIMEOUT_S
    )
    calls = never_flushed.calls("prefilter", name=REPLICA)
    versions = _versions(cluster, namespace)

    for _ in range(RELEASES):
        running = _names(cluster, namespace, waiting=False)
        cluster.kubectl("delete", "pod", running[0], "-n", namespace, "--wait=false")
        cluster.wait_gone("pods", running[0], namespace, timeout_s=TIMEOUT_S)
        cluster.wait_until(
            lambda: len(_names(cluster, namespace, waiting=False)) == DEVICES,
            "a waiting pod got the device",
            timeout_s=TIMEOUT_S,
        )

    assert never_flushed.calls("prefilter", name=REPLICA) - calls <= RELEASES * SPARE_CALLS
    assert [] == doubly_held(cluster)
    still = _names(cluster, namespace, waiting=True)
    after = _versions(cluster, namespace)
    assert WAITING - RELEASES == len(still)
    # A write of a pod's status would have changed its version.
    assert {name: versions[name] for name in still} == {name: after[name] for name in still}


def _is_quiet(bridge: Bridge) -> bool:
    """Return True if no pod was tried for a while."""
    before = bridge.calls("prefilter", name=REPLICA)
    time.sleep(QUIET_S)
    return bridge.calls("prefilter", name=REPLICA) == before


def _names(cluster: Access, namespace: str, *, waiting: bool) -> Sequence[str]:
    """Return the pods that wait, or those that are bound."""
    return [
        stored["metadata"]["name"]
        for stored in cluster.objects("pods", namespace)
        if "deletionTimestamp" not in stored["metadata"]
        and (is_waiting(stored) if waiting else "nodeName" in stored["spec"])
    ]


def _versions(cluster: Access, namespace: str) -> dict[str, str]:
    return {
        stored["metadata"]["name"]: stored["metadata"]["resourceVersion"]
        for stored in cluster.objects("pods", namespace)
    }
