"""Groups of pods that one namespace sends against the bridge, beside honest pods of another.

Honest pods have nodes of their own, so that they wait for the scheduler and never for devices. Bounds are far above the
measured times, and below the minutes of the same attacks without the defences.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any, Final

import pytest

from e2e import groups, inventory
from e2e.access import PATIENCE, Object, stream
from e2e.bridge import Bridge, bridged, doubly_held, is_considered
from e2e.bystanders import Attacker, clear, seconds_until_bound, unharmed
from e2e.cluster import Cluster
from e2e.groups import LABEL, member, pod_group
from e2e.inventory import EXAMPLE
from e2e.objects import claim_template, pod, priority_class
from e2e.users import EDITOR, PODS_ONLY, add_user

OF_ITS_OWN: Final[dict[str, Any]] = {**groups.CLUSTER, "client_qps": 620}
TEAM: Final = "group-team"
ATTACKED_FROM: Final = "group-attacker"
URGENT: Final = "group-attacks-urgent"
GPUS: Final = 8
PART: Final = "example.com/part"
FEW: Final = "few"
MANY: Final = "many"
HONEST: Final = "honest"
PARTS: Final = {FEW: 6, MANY: 50, HONEST: 2}
"""The number of nodes of each part of the cluster."""
WITHIN_S: Final = PATIENCE * 60.0
"""The time for an honest pod beside an attack."""
TIMEOUT_S: Final = 120.0
LONG_TIMEOUT_S: Final = 420.0
"""The time for a large group that preempts; on a busy machine it rests for three minutes after an attempt."""

pytestmark = pytest.mark.parametrize("cluster", [OF_ITS_OWN], indirect=True)


class Stage:
    """Nodes in parts, honest pods on one of them, and attackers of another namespace."""

    def __init__(self, cluster: Cluster, bridge: Bridge) -> None:
        self.cluster = cluster
        self.bridge = bridge
        self.pods_only = Attacker(cluster, ATTACKED_FROM, PODS_ONLY)
        self.editor = Attacker(cluster, ATTACKED_FROM, EDITOR)

    @contextmanager
    def bystanders(self) -> Iterator[None]:
        """Create honest pods one after the other while a block runs and once after it; each is bound in time."""
        took_s: list[float] = []
        ended = Event()

        def bind_next() -> None:
            bystander = taker(f"bystander-{len(took_s)}", part=HONEST)
            took_s.append(seconds_until_bound(self.cluster, TEAM, bystander))
            self.cluster.delete("pod", bystander["metadata"]["name"], TEAM)

        def bind_all() -> None:
            while not ended.wait(0.1):
                bind_next()
            bind_next()

        with unharmed(self.bridge), ThreadPoolExecutor(1) as thread:
            running = thread.submit(bind_all)
            try:
                yield
            finally:
                ended.set()
            running.result()
        print(f"{len(took_s)} honest pods were bound after {max(took_s):.1f} s at most")
        assert max(took_s) < WITHIN_S

    def send(self, group: str, pods: Sequence[Object], *, priority: str = "") -> None:
        """Create a group that needs all of its pods, as an attacker."""
        self.editor.create_all([pod_group(group, len(pods), priority_class=priority)])
        self.editor.create_all([member(entry, group) for entry in pods])

    def wait_considered(self, group: str, count: int) -> None:
        """Wait until the scheduler has said of so many of an attacker's pods that they fit nowhere."""
        self.cluster.wait_until(
            lambda: sum(map(is_considered, self._members(ATTACKED_FROM, group))) >= count,
            f"{count} pods of {group} wait",
            timeout_s=TIMEOUT_S,
        )

    def running(self, namespace: str, group: str) -> int:
        """Return the number of pods of a group that run."""
        stored = self._members(namespace, group)
        phases = [entry.get("status", {}).get("phase") for entry in stored]
        return phases.count("Running")

    def wait_running(
        self, namespace: str, group: str, count: int, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.cluster.wait_until(
            lambda: self.running(namespace, group) >= count,
            f"{count} pods of {group} run",
            timeout_s=timeout_s,
        )

    def _members(self, namespace: str, group: str) -> list[Object]:
        return self.cluster.objects("pods", namespace, selector=f"{LABEL}={group}")

    def clear(self) -> None:
        clear(self.cluster, (TEAM, ATTACKED_FROM), timeout_s=TIMEOUT_S)


def taker(name: str, template: str = "one", *, part: str, **more: Any) -> Object:
    """Return a pod of the bridge with the devices of a template, on a part of the nodes."""
    return bridged(pod(name, claims={"gpu": template}, nodeSelector={PART: part}, **more))


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[Stage]:
    cluster.apply([*inventory.device_classes(), priority_class(URGENT)])
    nodes = [
        (part, node)
        for part, count in PARTS.items()
        for node in inventory.kwok_nodes(count, prefix=f"attacked-{part}")
    ]
    for part, node in nodes:
        node["metadata"]["labels"][PART] = part
    names = cluster.add_nodes(
        [node for _, node in nodes], lambda name: inventory.example_gpus(name, gpus=GPUS)
    )
    bridge = Bridge(cluster, drivers=(EXAMPLE,), scheduler_flags=groups.SCHEDULER_FLAGS)
    bridge.install()
    templates = [claim_template(name, EXAMPLE, count=n) for name, n in (("one", 1), ("nine", 9))]
    for namespace in (TEAM, ATTACKED_FROM):
        cluster.kubectl("create", "namespace", namespace)
        cluster.wait_for("serviceaccounts", "default", namespace)
        cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(templates))
    for user in (PODS_ONLY, EDITOR):
        add_user(cluster, ATTACKED_FROM, user)
    yield Stage(cluster, bridge)
    bridge.uninstall()
    cluster.remove_nodes(names)


@pytest.fixture
def stage(installed: Stage) -> Iterator[Stage]:
    """The bridge with one replica, and no pods."""
    installed.bridge.ensure()
    yield installed
    installed.clear()


@pytest.mark.parametrize("count", [6, pytest.param(45, marks=pytest.mark.long)])
def test_a_group_of_pods_with_a_megabyte_each_delays_others_by_seconds(
    stage: Stage, count: int
) -> None:
    """The API server alone takes seconds for such pods; nothing of them is sent to the sidecar."""

    def long_pod(number: int) -> Object:
        made = taker(f"long-{number}", "nine", part=MANY)
        made["spec"]["containers"][0]["env"] = [{"name": "A", "value": "<" * 1_000_000}]
        return made

    with stage.bystanders():
        stage.send("long", [long_pod(number) for number in range(count)])
        stage.wait_considered("long", count)


@pytest.mark.parametrize(
    ("waiting", "count"),
    [
        pytest.param(2, 40, id="few"),
        pytest.param(3, 400, marks=pytest.mark.long, id="more-than-connections"),
    ],
)
def test_groups_that_wait_for_a_volume_hold_up_no_pods_and_groups_of_others(
    stage: Stage, waiting: int, count: int
) -> None:
    stage.cluster.apply(
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "never"},
         "provisioner": "never.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
    )  # fmt: skip
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "never"}}]
    requested = {"accessModes": ["ReadWriteOnce"], "storageClassName": "never",
                 "resources": {"requests": {"storage": "1Gi"}}}  # fmt: skip
    volume = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "never"},
              "spec": requested}  # fmt: skip
    stage.editor.create_all([volume])

    with stage.bystanders():
        for number in range(waiting):
            group = f"waiting-{number}"
            late = taker(f"{group}-late", part=MANY, volumes=volumes)
            others = [bridged(pod(f"{group}-{other}")) for other in range(1, count)]
            stage.send(group, [late, *others])
        stage.cluster.wait_until(
            lambda: stage.bridge.calls("prebind", "wait") >= waiting,
            "pods wait for their group",
            timeout_s=TIMEOUT_S,
        )
        honest = [member(taker(f"ring-{number}", part=HONEST), "ring") for number in range(4)]
        objects = [pod_group("ring", len(honest)), *honest]
        stage.cluster.kubectl("apply", "-n", TEAM, "-f", "-", input=stream(objects))
        stage.wait_running(TEAM, "ring", len(honest))

    for number in range(waiting):
        assert stage.running(ATTACKED_FROM, f"waiting-{number}") == 0
    stage.editor.delete("persistentvolumeclaims", "never")


@pytest.mark.parametrize(
    ("part", "count", "timeout_s"),
    [
        pytest.param(FEW, 32, TIMEOUT_S, id="few"),
        pytest.param(MANY, 64, TIMEOUT_S, marks=pytest.mark.long, id="64"),
        pytest.param(MANY, 256, LONG_TIMEOUT_S, marks=pytest.mark.long, id="256"),
    ],
)
def test_a_large_group_evicts_as_many_pods_as_it_needs(
    stage: Stage, part: str, count: int, timeout_s: float
) -> None:
    victims = fill(stage, part)

    with stage.bystanders():
        stage.send("urgent", urgent_pods(part, count), priority=URGENT)
        stage.wait_running(ATTACKED_FROM, "urgent", count, timeout_s)

    assert victims - stage.running(ATTACKED_FROM, "low") == count
    assert [] == doubly_held(stage.cluster)


@pytest.mark.parametrize(
    ("part", "count"),
    [pytest.param(FEW, 49, id="few"), pytest.param(MANY, 512, marks=pytest.mark.long, id="512")],
)
def test_a_group_that_would_fit_nowhere_evicts_nobody(stage: Stage, part: str, count: int) -> None:
    """It needs more devices than there are, with all pods evicted."""
    victims = fill(stage, part)

    with stage.bystanders():
        stage.send("urgent", urgent_pods(part, count), priority=URGENT)
        stage.wait_considered("urgent", count)

    assert stage.running(ATTACKED_FROM, "low") == victims


@pytest.mark.long
def test_several_groups_of_hundreds_that_preempt_delay_others_by_seconds(stage: Stage) -> None:
    """On a slow machine nobody is evicted in time, and the namespace rests; else no more than they need."""
    victims, devices, plain = fill(stage, MANY), 100, 300

    with stage.bystanders():
        for group in ("first", "second"):
            more = [
                bridged(pod(f"{group}-plain-{number}", priorityClassName=URGENT))
                for number in range(plain)
            ]
            stage.send(group, [*urgent_pods(MANY, devices, group), *more], priority=URGENT)
        for group in ("first", "second"):
            stage.cluster.wait_for(
                "podgroups",
                group,
                ATTACKED_FROM,
                until=lambda stored: bool(stored.get("status", {}).get("conditions")),
                timeout_s=TIMEOUT_S,
            )

    assert victims - stage.running(ATTACKED_FROM, "low") <= 2 * devices


@pytest.mark.parametrize(
    ("part", "count"),
    [pytest.param(FEW, 64, id="few"), pytest.param(MANY, 512, marks=pytest.mark.long, id="512")],
)
def test_a_group_whose_pods_all_differ_delays_others_by_seconds(
    stage: Stage, part: str, count: int
) -> None:
    pods = [
        taker(f"kind-{number}", part=part, requests={"cpu": f"{1 + number}m"})
        for number in range(count)
    ]

    with stage.bystanders():
        stage.send("kinds", pods)
        stage.wait_considered("kinds", count)


@pytest.mark.parametrize("never_tried", ["gated", "deleted"])
def test_nothing_is_kept_for_pods_with_a_forged_nomination(stage: Stage, never_tried: str) -> None:
    """Writers of the status of pods name nodes in those that the scheduler never tries."""
    names = [f"forged-{number}" for number in range(PARTS[HONEST] * GPUS)]
    for number, name in enumerate(names):
        forged = taker(name, part=HONEST, priorityClassName=URGENT)
        forged["spec"]["schedulingGates"] = [{"name": "example.com/never"}]
        if never_tried == "deleted":
            forged["metadata"]["finalizers"] = ["example.com/never"]
        node = f"attacked-{HONEST}-{number // GPUS}"
        stage.pods_only.create_all([forged])
        nomination = {"status": {"nominatedNodeName": node}}
        stage.pods_only.patch("pods", name, nomination, subresource="status")
        if never_tried == "deleted":
            stage.pods_only.delete("pods", name)
    stored = stage.cluster.objects("pods", ATTACKED_FROM)
    assert len(names) == sum("nominatedNodeName" in entry["status"] for entry in stored)

    honest = [member(taker(f"honest-{number}", part=HONEST), "all") for number in range(len(names))]
    for entry in honest:
        del entry["spec"]["schedulingGroup"]
    stage.cluster.kubectl("apply", "-n", TEAM, "-f", "-", input=stream(honest))
    stage.wait_running(TEAM, "all", len(names))

    for name in names:
        stage.pods_only.patch("pods", name, {"metadata": {"finalizers": None}})


def fill(stage: Stage, part: str) -> int:
    """Have pods of the attacker use all devices of a part, and return their number."""
    count = PARTS[part] * GPUS
    pods = [member(taker(f"low-{number}", part=part), "low") for number in range(count)]
    for entry in pods:
        del entry["spec"]["schedulingGroup"]
    stage.editor.create_all(pods)
    stage.wait_running(ATTACKED_FROM, "low", count)
    return count


def urgent_pods(part: str, count: int, prefix: str = "urgent") -> list[Object]:
    """Return pods that outrank others, with a device each."""
    names = (f"{prefix}-{number}" for number in range(count))
    return [taker(name, part=part, priorityClassName=URGENT) for name in names]
