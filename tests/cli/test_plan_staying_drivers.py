"""The way back of a wave for pods with claims for devices of drivers that stay on its nodes."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

from testing.documents import namespace
from testing.migration import SHARE, hami_node, plugin_node, workload
from testing.plan import planned, run_script, script

DRIVER: Final = "hami-core-gpu.project-hami.io"
VENDOR: Final = DRIVER.partition(".")[2]
STAYING: Final = "team dra.net web-7f-1"
"""A line for a device of a pod, as the shared script asks for those of claims."""
WEB: Final = "Deployment/team/web"


def _rolled_back(tmp_path: Path, claims: str, step: str) -> subprocess.CompletedProcess[str]:
    """Run a step of the way back with a pod with claims on hami-0, of a labelled namespace."""
    nodes = [hami_node(name) for name in ("hami-0", "hami-1")]
    objects = [*nodes, namespace("other"), *workload("a", SHARE, ["hami-0"], namespace="other")]
    plan = planned(tmp_path, objects, "--wave-nodes", 1)
    (number,) = (
        wave["wave"]
        for wave in plan["waves"]
        if [node for node in wave["nodes"] if node["name"] == "hami-0"]
    )
    assert f"\ndriver_leaves {DRIVER}\n" in script(tmp_path, "rollback", number)
    answers = f"""case "$*" in
  *"get resourceclaims"*) echo "{claims}" ;;
  *spec.nodeName=hami-0,status*) ;;
  *--all-namespaces*) echo "web-7f-1 ReplicaSet/web-7f team hami-0 translated - 7f True" ;;
  *"get namespace/team "*) printf true ;;
  *"get pods --namespace=team "*) echo "web-7f-1 ReplicaSet/web-7f claims True" ;;
  *jsonpath=*allocatable*) echo 20 ;;
esac"""
    return run_script(
        *(tmp_path, f"wave-{number}/rollback.sh", {"kubectl": answers}), [f"--step={step}"]
    )


@pytest.mark.parametrize(
    ("claims", "is_asked"),
    [
        (STAYING, False),
        (f"{STAYING}\nteam {DRIVER} web-7f-2", False),
        (f"{STAYING}\nteam {DRIVER} web-7f-1", True),
        (f"team {DRIVER} web-7f-1\n{STAYING}", True),
        (f"team other.{VENDOR} web-7f-1", False),
        (f"team {VENDOR}.net web-7f-1", False),
        (f"{STAYING}1\nother dra.net web-7f-1", True),
        (f"{STAYING} web-7f-2", True),
        ("", True),
    ],
    ids=[
        *("other", "of others", "both", "first", "vendor", "another vendor"),
        *("not the pod", "odd", "unknown"),
    ],
)
def test_pods_with_devices_of_other_drivers_find_them_again(
    tmp_path: Path, claims: str, *, is_asked: bool
) -> None:
    """They were said to wait for ever for devices of a network that stay on the nodes."""
    ran = _rolled_back(tmp_path, claims, "begin")

    assert is_asked is (ran.returncode == 1), ran.stderr
    assert is_asked is (f"{WEB} has pods with claims" in ran.stderr)
    assert 1 == (tmp_path / "calls").read_text().count("kubectl get resourceclaims")


def test_a_driver_takes_those_of_its_pods_with_it_and_no_others_of_its_vendor(
    tmp_path: Path,
) -> None:
    """A wave of `gpu.intel.com` asked about pods with devices of `qat.intel.com`."""
    planned(tmp_path, [plugin_node("gpu-0"), plugin_node("gpu-1")])

    lines = script(tmp_path, "rollback").splitlines()
    assert ["gpu.nvidia.com", "compute-domain.nvidia.com"] == [
        line.split()[1] for line in lines if line.startswith("driver_leaves ")
    ]


@pytest.mark.parametrize("claims", [STAYING, ""])
def test_the_last_step_waits_for_no_pods_with_devices_of_other_drivers(
    tmp_path: Path, claims: str
) -> None:
    """It stopped after half an hour for such a pod."""
    ran = _rolled_back(tmp_path, claims, "drain/hami-0")

    assert 0 == ran.returncode, ran.stderr
    noted = f"drawbridge.internal/evicted={WEB}=1\n" in (tmp_path / "calls").read_text()
    assert noted is (claims == "")
