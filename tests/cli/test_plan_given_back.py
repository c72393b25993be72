"""The scripts of `drawbridge plan`: a node is given back once its DRA driver has left it."""

import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import namespace
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.plan import Objects, planned, run_script, script

NVIDIA: Final = "gpu.nvidia.com"
OFFER: Final = (
    r"get node gpu-0 --ignore-not-found --output=jsonpath={.status.allocatable.nvidia\.com/gpu}"
)
LABEL: Final = "nvidia.com/dra-kubelet-plugin"
_KUBECTL: Final = r"""#!/bin/sh
# The file has a line for each question for slices that is answered with one.
echo "$@" >> "@FOLDER@/calls"
case "$1 $2" in
  "get resourceslices.resource.k8s.io")
    if [ -s "@FOLDER@/left" ]; then
      sed -i 1d "@FOLDER@/left"
      echo resourceslice.resource.k8s.io/gpu-0-abc
    fi
    ;;
  "get node/"*) echo "$2" ;;
  "get node") echo "$OFFERED" ;;
esac
"""


def give_back(
    tmp_path: Path, slices: int, *, seconds: int, offered: str = "4"
) -> tuple[int, list[str], str]:
    """Return the status of the drain of a rollback, the calls of kubectl, and standard error.

    Args:
        slices: The number of times that the driver has slices when it is asked.
        seconds: The time that it has to leave, and the plugin to offer devices.
        offered: The number of devices that the plugin offers.
    """
    objects = [plugin_node("gpu-0"), plugin_node("gpu-1"), namespace("team")]
    planned(tmp_path, [*objects, *workload("web", {GPU: "1"}, ["gpu-1"])], "--wave-nodes", 1)
    shared = tmp_path / "plan" / "cluster.sh"
    text = shared.read_text()
    for name, value in (("leave", 600), ("offer", 600), ("fewer", 60)):
        text = text.replace(f"{name}_seconds={value}", f"{name}_seconds={seconds}")
    shared.write_text(text)
    for name, text in (
        ("kubectl", _KUBECTL.replace("@FOLDER@", str(tmp_path))),
        ("sleep", "#!/bin/sh\n"),
    ):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "left").write_text("one\n" * slices)
    ran = subprocess.run(
        [tmp_path / "plan" / "wave-1" / "rollback.sh", "--step", "drain/gpu-0"],
        env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "OFFERED": offered},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, (tmp_path / "calls").read_text().splitlines(), ran.stderr


def test_a_node_is_given_back_when_its_driver_has_left(tmp_path: Path) -> None:
    """The plugin offered the devices again while the driver published them still, so they were there twice."""
    status, calls, told = give_back(tmp_path, 2, seconds=600)

    assert (0, "") == (status, told)
    asked = [
        f"get resourceslices.resource.k8s.io --field-selector=spec.nodeName=gpu-0,spec.driver={NVIDIA} --output=name"
    ] * 3
    assert asked == [call for call in calls if "resourceslices" in call]
    *_, last = calls
    assert last == OFFER, calls


def test_a_driver_that_does_not_leave_stops_the_way_back(tmp_path: Path) -> None:
    status, calls, told = give_back(tmp_path, 2, seconds=0)

    assert 1 == status
    assert OFFER not in calls
    assert (
        f"{NVIDIA} still publishes devices of gpu-0 (resourceslice.resource.k8s.io/gpu-0-abc), and the device plugin "
        "offers the same ones: see that its pod has left the node, and delete the slices if it has"
    ) in told
    assert f"stopped at: wait until {NVIDIA} has left gpu-0" in told


def test_nobody_waits_for_a_driver_that_stays(tmp_path: Path) -> None:
    """A node that had its label before the wave has it again."""
    objects = [
        plugin_node("gpu-0", 4, **{LABEL: "true"}),
        plugin_node("gpu-1"),
        *(namespace("team"), *workload("web", {GPU: "1"}, ["gpu-1"])),
    ]

    planned(tmp_path, objects, "--wave-nodes", 1)

    text = script(tmp_path, "rollback", 1)
    assert f"{LABEL}=true" in text
    assert "wait_for_slices" not in text


# --- what its device plugin offers ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("offered", "seconds", "status"),
    [("4", 600, 0), ("5", 600, 0), ("3", 0, 0), ("1k", 0, 0), ("0", 0, 1)],
    ids=["as planned", "more", "fewer for a minute", "an amount with a unit", "none"],
)
def test_a_node_is_back_with_the_devices_that_are_healthy(
    tmp_path: Path, offered: str, seconds: int, status: int
) -> None:
    """One that was unhealthy when the plan was made, or is now, left the node cordoned for good."""
    result, calls, told = give_back(tmp_path, 0, seconds=seconds, offered=offered)

    assert status == result, told
    assert OFFER in calls
    if status:
        assert "gpu-0 offers no nvidia.com/gpu: see that its device plugin runs there" in told
        assert "stopped at: wait for nvidia.com/gpu of gpu-0" in told


# --- DaemonSets with pods that no taint keeps away ------------------------------------------------

MIG: Final = "nvidia.com/mig-1g.10gb"
STOP: Final = "stop_at_tolerant "
"""The call of the function, not the text of it."""


def with_slice_monitor() -> Objects:
    """A node with the same DaemonSet, with a slice of a GPU under a name without a DeviceClass."""
    node, *others = with_monitor("gpu-0")
    node["status"]["allocatable"][MIG] = "7"
    for entry in others[1:]:
        spec = entry["spec"].get("template", entry)["spec"]
        spec["containers"][0]["resources"]["limits"] = {MIG: "1"}
    return [node, *others]


def with_monitor(node: str, *nodes: str) -> list[dict[str, Any]]:
    """Nodes with a pod of the same DaemonSet each: with a GPU on nodes of NVIDIA's plugin, with a share on those of HAMi."""
    names = [node, *nodes]
    is_hami = node.startswith("hami")
    monitor = workload("monitor", SHARE if is_hami else {GPU: "1"}, names, kind="DaemonSet")
    monitor[0]["spec"]["selector"] = {"matchLabels": {"app": "monitor"}}
    monitor[0]["status"] = {"desiredNumberScheduled": len(names)}
    return [*map(hami_node if is_hami else plugin_node, names), namespace("team"), *monitor]


@pytest.mark.parametrize(
    ("objects", "wave_nodes", "stops"),
    [
        (with_monitor("gpu-0"), 2, [True]),
        (with_monitor("hami-0", "hami-1"), 2, [False]),
        (with_monitor("hami-0", "hami-1"), 1, [False, True]),
        ([plugin_node("gpu-0", 4, **{LABEL: "true"}), *with_monitor("gpu-0")[1:]], 2, [False]),
        (with_slice_monitor(), 2, [False]),
    ],
    ids=[
        *("plugin kept away", "plugin back before", "claims still", "driver stays"),
        "keys that wait for the plugin",
    ],
)
def test_the_way_back_looks_for_pods_that_would_get_devices_of_the_driver(
    tmp_path: Path, objects: Objects, wave_nodes: int, stops: list[bool]
) -> None:
    planned(tmp_path, objects, "--wave-nodes", wave_nodes)

    texts = [script(tmp_path, "rollback", number) for number in range(1, len(stops) + 1)]
    assert stops == [STOP in text for text in texts]
    for text in texts:
        begin = text.partition("if step begin; then\n")[2].partition("\nfi\n")[0]
        assert (STOP in begin) is (STOP in text)


@pytest.mark.parametrize(
    ("pods", "node", "stops"),
    [("monitor-0 ", "node/gpu-0", True), ("", "node/gpu-0", False), ("monitor-0 ", "", False)],
    ids=["tolerant pods", "no such pods", "without the driver"],
)
def test_the_way_back_stops_before_it_changes_anything(
    tmp_path: Path, pods: str, node: str, *, stops: bool
) -> None:
    """The next pod got a device of the driver, and the kubelet could not end it once that had left."""
    planned(tmp_path, with_monitor("gpu-0"))
    labelled = f"*--selector={LABEL}=true*"
    answers = f"""case "$*" in
  "get nodes "{labelled}) echo {node} ;;
  *.spec.tolerations*) printf %s "{pods}" ;;
esac"""

    ran = run_script(tmp_path, "wave-1/rollback.sh", {"kubectl": answers})

    calls = (tmp_path / "calls").read_text()
    asked = "kubectl get pods --namespace=team --selector=app=monitor --field-selector=spec.nodeName=gpu-0 "
    assert bool(node) is (asked in calls.partition("kubectl cordon")[0])
    assert stops is ("cordon" not in calls and "label" not in calls and "taint" not in calls)
    stop = (
        "DaemonSet/team/monitor tolerates the taint drawbridge.internal/given-back (monitor-0): its next pod on gpu-0 "
        f"would get devices of {NVIDIA}, and could not end once that has left the node. Keep its pods from the nodes of "
        "this wave by a node affinity of its template (kubernetes.io/hostname NotIn) until rollback.sh has ended. First "
        "change its updateStrategy, or its pods on all other nodes are created again, too, with claims where its namespace "
        "is opted in: kubectl patch daemonset monitor --namespace=team --type=merge "
        """--patch='{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}'\n"""
        "stopped at: look for pods of DaemonSet/team/monitor on gpu-0\n"
    )
    assert stops is (stop in ran.stderr)
