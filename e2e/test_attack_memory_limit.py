"""Ten costly pods in a second from a user with the right to create pods, in the memory of the manifests."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from e2e.access import Access
from e2e.drawbridge import WEBHOOK, Drawbridge
from e2e.hostile_pods import costly_pods, forged_pod
from e2e.load import Load
from e2e.memory_cgroup import MemoryCgroup, memory_cgroup
from e2e.objects import pod
from e2e.probes import watched_probes
from e2e.users import PODS_ONLY, add_user

pytestmark = pytest.mark.usefixtures("fleet")

MEBIBYTE: Final = 2**20
ATTACK_S: Final = 40.0
PER_SECOND: Final = 10
HONEST_PER_SECOND: Final = 5
HONEST: Final = pod("honest", limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000})


@contextmanager
def confined(cluster: Access, drawbridge: Drawbridge) -> Iterator[MemoryCgroup]:
    """Have the webhook run in a cgroup with the limit of its manifest."""
    with memory_cgroup(drawbridge.memory_limit(WEBHOOK)) as group:
        try:
            _restart(cluster, drawbridge, group)
            yield group
        finally:
            drawbridge.stop(WEBHOOK)
            drawbridge.start(WEBHOOK)
            drawbridge.wait_ready()


def _restart(cluster: Access, drawbridge: Drawbridge, group: MemoryCgroup) -> None:
    drawbridge.stop(WEBHOOK)
    record = drawbridge.start(WEBHOOK).record
    assert record is not None
    group.add(record.pid)
    drawbridge.wait_ready()
    assert not group.is_empty()
    assert cluster.children[WEBHOOK].exit_status is None


@contextmanager
def watched_memory(group: MemoryCgroup) -> Iterator[list[int]]:
    """Measure the memory of a cgroup until the end of the block."""
    sizes: list[int] = []
    event = threading.Event()

    def measure() -> None:
        while not event.wait(0.2):
            sizes.append(group.anonymous_bytes())

    thread = threading.Thread(target=measure)
    thread.start()
    try:
        yield sizes
    finally:
        event.set()
        thread.join()


@pytest.mark.long
def test_ten_costly_pods_a_second_delay_nobody_and_fit_into_the_memory_limit(
    cluster: Access, drawbridge: Drawbridge, namespace: str, workshop: str
) -> None:
    add_user(cluster, namespace, PODS_ONLY)
    attacker = f"system:serviceaccount:{namespace}:{PODS_ONLY}"
    bad = [forged_pod(cluster, workshop, HONEST, containers=200), *costly_pods()]

    with (
        confined(cluster, drawbridge) as group,
        watched_memory(group) as sizes,
        watched_probes(drawbridge, ("/livez", "/readyz")) as problems,
        Load(cluster, namespace, *bad, user=attacker, per_second=PER_SECOND) as attack,
        Load(cluster, workshop, HONEST, per_second=HONEST_PER_SECOND) as honest,
    ):
        time.sleep(ATTACK_S)
        kills, is_alive = group.kills(), cluster.children[WEBHOOK].exit_status is None

    print(honest.describe_event("costly pods"), f"; at most {max(sizes) / MEBIBYTE:.0f} MiB")
    print(attack.describe_event("the attacker's"))
    assert len(attack.created) > ATTACK_S
    assert len(honest.created) > ATTACK_S
    assert honest.failures == []
    assert problems == []
    assert (kills, is_alive) == (0, True)
    assert max(sizes) < drawbridge.memory_limit(WEBHOOK)
