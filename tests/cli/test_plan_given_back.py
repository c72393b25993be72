"""The scripts of `drawbridge plan`: a node is given back once its DRA driver has left it."""

import os
import subprocess
from pathlib import Path
from typing import Final

from testing.documents import namespace
from testing.migration import GPU, plugin_node, workload
from testing.plan import planned, script

NVIDIA: Final = "gpu.nvidia.com"
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
esac
"""


def give_back(tmp_path: Path, slices: int, *, seconds: int) -> tuple[int, list[str], str]:
    """Return the status of the drain of a rollback, the calls of kubectl, and standard error.

    Args:
        slices: The number of times that the driver has slices when it is asked.
        seconds: The time that it has to leave.
    """
    objects = [plugin_node("gpu-0"), plugin_node("gpu-1"), namespace("team")]
    planned(tmp_path, [*objects, *workload("web", {GPU: "1"}, ["gpu-1"])], "--wave-nodes", 1)
    shared = tmp_path / "plan" / "cluster.sh"
    shared.write_text(shared.read_text().replace("leave_seconds=600", f"leave_seconds={seconds}"))
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
        env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
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
    assert last.startswith("wait node/gpu-0 "), calls


def test_a_driver_that_does_not_leave_stops_the_way_back(tmp_path: Path) -> None:
    status, calls, told = give_back(tmp_path, 2, seconds=0)

    assert 1 == status
    assert not any(call.startswith("wait node/gpu-0 ") for call in calls)
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
