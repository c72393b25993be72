"""Jobs for twice the devices that there are: half of them run whole, half wait whole and go on.

Every Job is a group of as many pods as there are Jobs. The nodes have devices for half of the Jobs, and kube-scheduler
places the same objects afterwards, with the same gates. `DRAWBRIDGE_E2E_GROUP_JOBS=8` plays it with eight Jobs of eight
pods with eight devices each, on eight nodes.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest

from e2e import groups, inventory
from e2e.access import Access, Object, stream
from e2e.bridge import Bridge, bridged, doubly_held
from e2e.cluster import Cluster
from e2e.groups import LABEL, member, pod_group
from e2e.inventory import EXAMPLE
from e2e.objects import claim_template, pod

pytestmark = pytest.mark.parametrize("cluster", [groups.CLUSTER], indirect=True)

JOBS: Final = int(os.environ.get("DRAWBRIDGE_E2E_GROUP_JOBS", "4"))
"""The number of Jobs, of the pods of each, of the devices of each pod, and of the nodes."""
RUN: Final = JOBS // 2
NAMES: Final = [f"job-{number}" for number in range(JOBS)]
TIMEOUT_S: Final = 120.0


@pytest.fixture
def job_bridge(cluster: Access) -> Iterator[Bridge]:
    cluster.apply(inventory.device_classes())
    nodes = cluster.add_nodes(
        inventory.kwok_nodes(JOBS, prefix="jobs"),
        lambda node: inventory.example_gpus(node, gpus=RUN * JOBS),
    )
    bridge = Bridge(cluster, drivers=(EXAMPLE,), scheduler_flags=groups.SCHEDULER_FLAGS)
    bridge.install()
    bridge.ensure()
    yield bridge
    bridge.uninstall()
    cluster.remove_nodes(nodes)


def objects(schedule: Callable[[Object], Object]) -> list[Object]:
    """Return the Jobs' groups and pods, the first pod of each before the second of any."""
    template = claim_template("devices", EXAMPLE, count=JOBS)
    pods = [
        member(schedule(pod(f"{name}-{index}", claims={"gpu": "devices"})), name)
        for index in range(JOBS)
        for name in NAMES
    ]
    return [template, *(pod_group(name, JOBS) for name in NAMES), *pods]


def bound(pods: Sequence[Object]) -> Counter[str]:
    """Return the number of pods of each Job that have a node."""
    counts = Counter(dict.fromkeys(NAMES, 0))
    counts.update(
        entry["metadata"]["labels"][LABEL] for entry in pods if entry["spec"].get("nodeName")
    )
    return counts


def test_half_of_the_jobs_run_whole_and_half_wait_whole_and_go_on(
    own_cluster: Cluster, job_bridge: Bridge, namespace: str
) -> None:
    cluster = own_cluster

    def counts() -> Counter[str]:
        return bound(cluster.objects("pods", namespace))

    def apply(schedule: Callable[[Object], Object]) -> None:
        cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects(schedule)))

    def says_how_many_fit(group: Object) -> bool:
        conditions = group.get("status", {}).get("conditions", ())
        return any(f"0 of {JOBS} pods fit" in entry["message"] for entry in conditions)

    apply(bridged)
    half = sorted([0, JOBS] * RUN)
    cluster.wait_until(
        lambda: sorted(counts().values()) == half, "half run whole", timeout_s=TIMEOUT_S
    )
    waiting = [name for name, count in counts().items() if not count]
    for name in waiting:
        cluster.wait_for("podgroups", name, namespace, until=says_how_many_fit, timeout_s=TIMEOUT_S)
    assert sorted(counts().values()) == half
    claims = cluster.objects("resourceclaims", namespace)
    assert sum("allocation" in claim.get("status", {}) for claim in claims) == RUN * JOBS
    assert [] == doubly_held(cluster)

    running = sorted(set(NAMES) - set(waiting))
    for name in running:
        cluster.kubectl("delete", "pods", "-n", namespace, "-l", f"{LABEL}={name}", "--wait=false")
    cluster.wait_until(
        lambda: all(counts()[name] == JOBS for name in waiting),
        "those that waited run whole",
        timeout_s=TIMEOUT_S,
    )
    assert [] == doubly_held(cluster)

    # The same objects, and kube-scheduler alone.
    cluster.kubectl("delete", "pods,podgroups", "--all", "-n", namespace)
    cluster.wait_until(
        lambda: not cluster.objects("resourceclaims"), "no device is in use", timeout_s=TIMEOUT_S
    )
    job_bridge.stop()
    apply(lambda entry: entry)
    for name in NAMES:
        cluster.wait_for("podgroups", name, namespace, until=is_decided, timeout_s=TIMEOUT_S)
    theirs = counts()
    whole = sum(count == JOBS for count in theirs.values())
    print(
        f"kube-scheduler: {whole} of {JOBS} Jobs run whole, {dict(theirs)} pods; the bridge: {RUN}"
    )


def is_decided(group: Object) -> bool:
    """Return True if the scheduler has tried a group."""
    conditions = group.get("status", {}).get("conditions", ())
    return any(condition["type"] == "PodGroupInitiallyScheduled" for condition in conditions)
