"""A group has all its devices or none, with any process killed while the claims of groups are written.

Sidecar, scheduler, both, and the API server are killed at different steps of the commits of two groups. What
happened is read in the API server's audit log, by code that has nothing of ours: before its first complete
commit a group has devices for none of its pods, or for all, outside the window of a commit, which is measured.
Nor has it a part of them while the volume of one of its pods is not there yet.
`DRAWBRIDGE_E2E_GROUP_ROUNDS=200` does it so often.
"""

import os
import random
import signal
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from e2e import groups, inventory
from e2e.access import PATIENCE, Object, stream
from e2e.audit import conflicts, dated_claims, log_length
from e2e.bridge import Bridge, bridged, doubly_held
from e2e.cluster import Cluster
from e2e.groups import member, pod_group
from e2e.inventory import EXAMPLE
from e2e.objects import claim_template, pod
from e2e.owned import AUDITED
from sidecar.commit.group_barrier import WAIT_S
from testing.documents import api_object
from testing.long_runs import beginning_with

CLUSTER: Final[dict[str, Any]] = {**groups.CLUSTER, **AUDITED}
ROUNDS: Final = int(os.environ.get("DRAWBRIDGE_E2E_GROUP_ROUNDS", "10"))
TIMEOUT_S: Final = 120.0
GROUPS: Final = ("first", "second")
PODS: Final = 12
"""The number of pods of each group, with a device each: with few pods most kills come when all is written."""
NODES: Final = 9
"""Enough for three rounds, since a round does not wait for the end of the pods of the one before."""
GPUS: Final = 8
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""The annotation with which the scheduler has a volume provided."""
VICTIMS: Final = (
    *("sidecar", "scheduler", "kube-apiserver", "both", "scheduler"),
    *("kube-apiserver", "sidecar", "scheduler", "kube-apiserver", "scheduler"),
)
"""A round with a new leader takes 22 s, since the Lease of the one before has to end; others take 2 to 10 s."""
SLOW_S: Final = WAIT_S + 5.0
"""The time for a volume, longer than pods wait for a further one of their group."""
WINDOW_S: Final = PATIENCE * 22.0
"""The longest time that a group may have a part of its devices.

Where a leader is killed the next one begins when its Lease has ended (15 s), waits for its writes (4 s), starts
and takes back: 21.5 s at most of 40 rounds were measured. A busy machine may take `PATIENCE` times as long.
"""

pytestmark = pytest.mark.parametrize("cluster", [CLUSTER], indirect=True)


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[Bridge]:
    cluster.apply(inventory.device_classes())
    nodes = cluster.add_nodes(
        inventory.kwok_nodes(NODES, prefix="commit"),
        lambda node: inventory.example_gpus(node, gpus=GPUS),
    )
    # One write at a time, so that a commit can be interrupted between two of them.
    settings = {"maxWritesInFlight": 1}
    bridge = Bridge(
        cluster, drivers=(EXAMPLE,), settings=settings, scheduler_flags=groups.SCHEDULER_FLAGS
    )
    bridge.install()
    yield bridge
    bridge.uninstall()
    cluster.remove_nodes(nodes)


@pytest.fixture
def group_bridge(installed: Bridge) -> Bridge:
    """The bridge with one replica at work."""
    installed.ensure()
    return installed


@pytest.mark.parametrize("number", beginning_with(10, range(ROUNDS)))
def test_a_group_has_all_its_devices_or_none_whoever_is_killed(
    cluster: Cluster, group_bridge: Bridge, namespace: str, number: int
) -> None:
    victim, written = VICTIMS[number % len(VICTIMS)], random.Random(number).randrange(2 * PODS)
    began = log_length(cluster)
    workers = [
        member(bridged(pod(f"{group}-{index}", claims={"gpu": "one"})), group)
        for group in GROUPS
        for index in range(PODS)
    ]
    objects = [
        claim_template("one", EXAMPLE),
        *(pod_group(group, PODS) for group in GROUPS),
        *workers,
    ]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects))
    deadline = time.monotonic() + PATIENCE * TIMEOUT_S
    while allocations(claim for _, claim in of_namespace(cluster, began, namespace)) < written:
        assert time.monotonic() < deadline, f"{written} claims are not written"
        group_bridge.tend("a")  # Whoever lost the other in the round before ends by itself.
    kill(cluster, group_bridge, victim)

    def is_over() -> bool:
        group_bridge.tend("a")
        return all_run(cluster, namespace)

    cluster.wait_until(is_over, "all run", timeout_s=TIMEOUT_S)
    # A write whose client was killed before the answer has no answer in the log: the claims as they are now have it.
    now = datetime.now(UTC)
    stored = [(now, claim) for claim in cluster.objects("resourceclaims", namespace)]
    assert [] == doubly_held(cluster)
    assert [] == conflicts(claim for _, claim in [*dated_claims(cluster, began), *stored])
    dated = [*of_namespace(cluster, began, namespace), *stored]
    for group in GROUPS:
        windows_s, is_complete = windows(dated, group)
        print(f"{victim} after {written} writes, {group}: {windows_s} s")
        assert is_complete
        assert max(windows_s, default=0.0) < WINDOW_S


def test_a_pod_whose_volume_takes_long_is_bound_with_its_group(
    cluster: Cluster, group_bridge: Bridge, namespace: str
) -> None:
    """Somebody provides the volume after a while, as an external provisioner does; the others wait for it."""
    given_up = group_bridge.calls("prebind", "unschedulable")
    cluster.apply(
        api_object(
            "StorageClass",
            "slow",
            provisioner="slow.example.com",
            volumeBindingMode="WaitForFirstConsumer",
            api_version="storage.k8s.io/v1",
        )
    )
    of_volume = {"accessModes": ["ReadWriteOnce"], "storageClassName": "slow"}
    requested = {**of_volume, "resources": {"requests": {"storage": "1Gi"}}}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    objects = [
        claim_template("one", EXAMPLE),
        api_object("PersistentVolumeClaim", "data", namespace, spec=requested),
        pod_group("slow", PODS),
        member(bridged(pod("slow-0", claims={"gpu": "one"}, volumes=volumes)), "slow"),
        *(
            member(bridged(pod(f"slow-{index}", claims={"gpu": "one"})), "slow")
            for index in range(1, PODS)
        ),
    ]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects))
    claim = cluster.wait_for(
        "persistentvolumeclaims",
        "data",
        namespace,
        until=lambda claim: SELECTED_NODE in claim["metadata"].get("annotations", {}),
        timeout_s=TIMEOUT_S,
    )
    time.sleep(SLOW_S)
    assert not allocations(cluster.objects("resourceclaims", namespace))

    reference = {"namespace": namespace, "name": "data", "uid": claim["metadata"]["uid"]}
    provided = {**of_volume, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"}}
    volume = api_object("PersistentVolume", namespace, spec={**provided, "claimRef": reference})
    cluster.apply(volume)
    cluster.wait_until(lambda: all_run(cluster, namespace), "all run", timeout_s=TIMEOUT_S)

    assert allocations(cluster.objects("resourceclaims", namespace)) == PODS
    assert group_bridge.calls("prebind", "unschedulable") <= given_up
    cluster.kubectl("delete", "--wait=false", "persistentvolume", namespace)
    cluster.kubectl("delete", "storageclass", "slow")


def all_run(cluster: Cluster, namespace: str) -> bool:
    stored = cluster.objects("pods", namespace)
    return all(entry.get("status", {}).get("phase") == "Running" for entry in stored)


def kill(cluster: Cluster, bridge: Bridge, victim: str) -> None:
    if victim == "kube-apiserver":
        cluster.restart(victim)
        cluster.wait_until(
            lambda: cluster.kubectl("get", "--raw", "/readyz", check=False).stdout == "ok",
            "the API server answers",
            timeout_s=TIMEOUT_S,
        )
        return
    for part in ("scheduler", "sidecar") if victim == "both" else (victim,):
        bridge.child(part).signal(signal.SIGKILL)
        bridge.child(part).wait(TIMEOUT_S)


def of_namespace(cluster: Cluster, began: int, namespace: str) -> list[tuple[datetime, Object]]:
    """Return the times of stored claims of a namespace, with the claims, from a place of the audit log on."""
    dated = dated_claims(cluster, began)
    return [(at, claim) for at, claim in dated if claim["metadata"]["namespace"] == namespace]


def allocations(claims: Iterable[Object]) -> int:
    """Return the number of allocated claims, of claims as they were stored."""
    has_devices = {claim["metadata"]["uid"]: bool(allocation(claim)) for claim in claims}
    return sum(has_devices.values())


def allocation(claim: Object) -> Object:
    return dict(claim.get("status", {}).get("allocation") or {})


def windows(dated: Iterable[tuple[datetime, Object]], group: str) -> tuple[list[float], bool]:
    """Return the times that a group had devices for a part of its pods, and True if it had all at last.

    Args:
        dated: Claims as they were stored, of one pod each, which owns it.
    """
    has_devices: dict[str, bool] = {}
    windows_s: list[float] = []
    began: datetime | None = None
    for at, claim in dated:
        owner = claim["metadata"].get("ownerReferences", [{}])[0].get("name", "")
        if not owner.startswith(f"{group}-"):
            continue
        has_devices[owner] = bool(allocation(claim))
        count = sum(has_devices.values())
        if 0 < count < PODS and began is None:
            began = at
        elif count in {0, PODS} and began is not None:
            windows_s.append((at - began).total_seconds())
            began = None
        if count == PODS:
            return windows_s, True
    return windows_s, False
