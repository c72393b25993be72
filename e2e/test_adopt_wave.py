"""`drawbridge wave` on a real control plane: killed in every step, and called again, it ends alike.

HAMi's device plugin and scheduler and its DRA driver are played by `HamiStandIn`; the scripts, kubectl, the
webhook and its controllers are real.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from clusterstate.wave_record import WAVE_RECORD
from e2e import inventory
from e2e.access import Access, Object
from e2e.cluster import Cluster
from e2e.conftest import IMPATIENT
from e2e.drawbridge import ROOT, command_line, install_drawbridge, merged
from e2e.hami_scheduler import exchanged_annotations
from e2e.objects import deployment, pod
from e2e.stand_in import StandIn
from e2e.vendors import HAMI_LABEL, hami_driver
from kube.names import NAMESPACE, REQUEST_ANNOTATION, TRANSLATE_LABEL
from testing.documents import api_object

NODES: Final = ("wave-0", "wave-1", "wave-2")
GPUS: Final = 2
SPLIT: Final = 10
GPU: Final = "nvidia.com/gpu"
SCHEDULER: Final = "hami-scheduler"
TEAM: Final = "wave-team"
MODEL: Final = inventory.A100_40GB
TIMEOUT_S: Final = 120.0
MOST_CALLS: Final = 60
OF_ITS_OWN: Final[dict[str, Any]] = {"client_qps": 510}
SETTINGS: Final = merged(IMPATIENT, {"translation": {"mode": "OptIn"}})


class HamiStandIn(StandIn):
    """Offers or publishes the devices of nodes as their labels say, and binds HAMi's pods."""

    def __init__(self, cluster: Access) -> None:
        super().__init__("hami")
        self._cluster = cluster
        self._shown: dict[str, tuple[str, bool]] = {}

    def _turn(self) -> None:
        open_nodes = []
        for name in NODES:
            node = self._list(f"/api/v1/nodes?fieldSelector=metadata.name%3D{name}")[0]
            labels = node["metadata"]["labels"]
            serves = labels.get("gpu") == "on"
            self._show(name, str(GPUS * SPLIT) if serves else "0", labels)
            if serves and not node["spec"].get("unschedulable"):
                open_nodes.append(name)
        pending = quote(f"spec.schedulerName={SCHEDULER},spec.nodeName=", safe="")
        for waiting in self._list(f"/api/v1/pods?fieldSelector={pending}"):
            metadata = waiting["metadata"]
            if open_nodes and "deletionTimestamp" not in metadata:
                path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding"
                target = {"apiVersion": "v1", "kind": "Node", "name": open_nodes[0]}
                body = {"metadata": {"name": metadata["name"]}, "target": target}
                self._cluster.request("POST", path, {"apiVersion": "v1", "kind": "Binding", **body})

    def _show(self, name: str, amount: str, labels: Mapping[str, str]) -> None:
        """Have a node offer shares by its device plugin, or publish devices by its DRA driver."""
        key, value = HAMI_LABEL
        wanted = amount, labels.get(key) == value
        if self._shown.get(name) == wanted:
            return
        room = {"allocatable": {GPU: amount}, "capacity": {GPU: amount}}
        merge = "application/merge-patch+json"
        path = f"/api/v1/nodes/{name}/status"
        self._cluster.request("PATCH", path, {"status": room}, content_type=merge)
        exchanged = exchanged_annotations(
            hami_node(name), is_left=amount == "0", moment=time.gmtime()
        )
        marked = {"metadata": {"annotations": exchanged}}
        self._cluster.request("PATCH", f"/api/v1/nodes/{name}", marked, content_type=merge)
        slices = "/apis/resource.k8s.io/v1/resourceslices"
        for published in inventory.hami_gpus(name, gpus=GPUS, model=MODEL):
            if wanted[1]:
                self._cluster.request("POST", slices, published)
            else:
                self._cluster.request("DELETE", f"{slices}/{published['metadata']['name']}")
        self._shown[name] = wanted

    def _list(self, path: str) -> list[Object]:
        items: list[Object] = json.loads(self._cluster.raw(path))["items"]
        return items


def hami_node(name: str) -> Object:
    """Return a node with GPUs that HAMi has registered."""
    registered = [
        {
            "id": inventory.gpu_uuid(name, minor),
            "count": SPLIT,
            "devmem": MODEL.memory_mib,
            "devcore": 100,
            "type": MODEL.product_name,
            "health": True,
        }
        for minor in range(GPUS)
    ]
    node = inventory.kwok_node(name)
    node["metadata"]["labels"] |= {"gpu": "on", "nvidia.com/cuda.driver-version.major": "580"}
    node["metadata"]["annotations"] |= {"hami.io/node-nvidia-register": json.dumps(registered)}
    room = {**node["status"]["allocatable"], GPU: str(GPUS * SPLIT)}
    node["status"] = {"capacity": room, "allocatable": room}
    return node


def team() -> list[Object]:
    """Return two workloads with a pod each that requests a share of HAMi; no controller replaces the second one."""
    template = pod("pod", limits={GPU: 1, "nvidia.com/gpumem": 4000}, schedulerName=SCHEDULER)
    replaced = deployment("web", template)
    deleted = deployment("cache", template)
    deleted["kind"] = "StatefulSet"
    deleted["spec"] |= {"serviceName": "cache", "updateStrategy": {"type": "OnDelete"}}
    for manifest in (replaced, deleted):
        manifest["metadata"]["namespace"] = TEAM
    return [replaced, deleted]


class WaveStory:
    """A cluster with a plan, and the calls of a person."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.plan = folder / "plan"

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call `drawbridge wave` to its end."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=10 * TIMEOUT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(self, *arguments: str, account: str = "ada") -> subprocess.Popen[str]:
        """Start `drawbridge wave`."""
        return subprocess.Popen(
            [sys.executable, "-m", "cli", "wave", *arguments, "--plan", self.plan],
            cwd=ROOT,
            env={**self.cluster.environment(), "LOGNAME": account},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def position(self) -> tuple[str, ...]:
        """Return direction, wave and step of the ConfigMap; nothing before there is one."""
        found = self.cluster.objects("configmaps", NAMESPACE)
        data = [entry["data"] for entry in found if entry["metadata"]["name"] == WAVE_RECORD]
        return tuple(data[0][key] for key in ("direction", "wave", "step")) if data else ()

    def finish_with_kills(self, *arguments: str) -> int:
        """Call it until it ends by itself; each call is killed when it begins a new step.

        Returns:
            How many calls were killed.
        """
        seen = {self.position()}
        for kills in range(MOST_CALLS):
            process = self.start(*arguments)
            while process.poll() is None and self.position() in seen:
                time.sleep(0.05)
            if process.poll() is not None:
                out, err = process.communicate()
                assert process.returncode == 0, out + err
                return kills
            seen.add(self.position())
            # Its script goes on, and the next call waits for it.
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
        raise AssertionError(f"it does not end: {self.position()}")

    def wait_for_pods(self, *, with_claims: bool) -> None:
        """Wait until both pods run, translated or as they were."""

        def is_right() -> bool:
            pods = [
                entry
                for entry in self.cluster.objects("pods", TEAM)
                if "deletionTimestamp" not in entry["metadata"]
            ]
            states = {
                (
                    entry["status"].get("phase"),
                    REQUEST_ANNOTATION in entry["metadata"].get("annotations", {}),
                )
                for entry in pods
            }
            return len(pods) == 2 and states == {("Running", with_claims)}

        self.cluster.wait_until(is_right, "both pods run", timeout_s=TIMEOUT_S)

    def nodes(self) -> dict[str, tuple[object, ...]]:
        """Return the fields of each node that a switch changes."""
        return {
            entry["metadata"]["name"]: (
                entry["metadata"]["labels"].get("gpu"),
                entry["metadata"]["labels"].get(HAMI_LABEL[0]),
                entry["spec"].get("unschedulable", False),
                entry["status"]["allocatable"][GPU],
            )
            for entry in self.cluster.objects("nodes")
            if entry["metadata"]["name"] in NODES
        }


@pytest.fixture
def story(cluster: Cluster, tmp_path: Path) -> WaveStory:
    """A cluster of HAMi with Drawbridge installed and nothing opted in."""
    install_drawbridge(
        cluster, manifests=ROOT / "manifests" / "overlays" / "opt-in", settings=SETTINGS
    )
    cluster.apply([api_object("Namespace", TEAM)])
    cluster.add_nodes([hami_node(name) for name in NODES])
    cluster.wait_for("serviceaccounts", "default", TEAM, timeout_s=TIMEOUT_S)
    cluster.apply(team())
    return WaveStory(cluster, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("cluster", [OF_ITS_OWN], indirect=True)
def test_killed_in_every_step_a_plan_ends_and_goes_back(story: WaveStory, tmp_path: Path) -> None:
    cluster = story.cluster
    with HamiStandIn(cluster):
        story.wait_for_pods(with_claims=False)
        before = story.nodes()
        taken = tmp_path / "cluster.json.gz"
        for words in (
            ("snapshot", "-o", taken),
            (
                "plan",
                "--snapshot",
                taken,
                "--wave-nodes",
                "2",
                "--spare-nodes",
                "0",
                "-o",
                story.plan,
            ),
        ):
            made = command_line(cluster, *words)
            assert made.returncode == 0, made.stdout + made.stderr
        cluster.apply(hami_driver())

        assert story.finish_with_kills("next", "--yes") >= 10
        other = story.start("next", "--yes", account="bob")
        assert "another operator has the migration" in other.communicate()[1]
        assert other.returncode == 2
        assert story.call("next", "--yes").returncode == 0
        assert_all_is_switched(story)

        assert story.call("back", "--yes").returncode == 0
        assert story.finish_with_kills("back", "--yes") >= 5
        assert story.nodes() == before
        labels = cluster.wait_for("namespaces", TEAM)["metadata"]["labels"]
        assert TRANSLATE_LABEL not in labels
        story.wait_for_pods(with_claims=False)


def assert_all_is_switched(story: WaveStory) -> None:
    """Every node publishes devices and takes pods, and the pods have claims."""
    value = HAMI_LABEL[1]
    assert story.nodes() == dict.fromkeys(NODES, ("off", value, False, "0"))
    story.wait_for_pods(with_claims=True)
    shown = story.call("status", "-o", "json")
    assert shown.returncode == 0, shown.stderr
    report = json.loads(shown.stdout)
    assert report["progress"] == "wave 2 of 2, 3 of 3 nodes, 2 of 2 workloads"
    assert report["next"] == []
    status = command_line(story.cluster, "status", "-o", "json")
    checks = {check["name"]: check["message"] for check in json.loads(status.stdout)["checks"]}
    assert checks["migration"].startswith("wave 2 of 2, 3 of 3 nodes")
