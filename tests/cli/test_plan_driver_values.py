"""`drawbridge plan`: the values that the charts of DRA drivers need for the nodes, and the check of their tolerations."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import namespace
from testing.migration import SHARE, daemon_set, hami_node, plugin_node, workload
from testing.plan import planned, prepare

HAMI: Final = "hami-core-gpu.project-hami.io"
LABEL: Final = "drawbridge.internal/dra-driver"
SELECTOR: Final = (
    rf"'--set-string=kubeletPlugin.nodeSelector.drawbridge\.internal/dra-driver={HAMI}'"
)
REGISTRY: Final = [{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}]
OF_TEAM: Final = {"key": "team", "value": "hpc", "effect": "NoSchedule"}
OF_VENDOR: Final = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
CORDONED: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
PREFERRED: Final = {"key": "old", "effect": "PreferNoSchedule"}
TEAM: Final = {"key": "team", "operator": "Equal", "value": "hpc", "effect": "NoSchedule"}
VENDOR: Final = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def tainted(node: dict[str, Any], *taints: dict[str, str]) -> dict[str, Any]:
    return {**node, "spec": {"taints": list(taints)}}


@pytest.mark.parametrize(
    ("taints", "tolerations"),
    [
        ([], None),
        ([OF_VENDOR, CORDONED, PREFERRED], None),
        ([OF_VENDOR, OF_TEAM], [VENDOR, TEAM]),
        ([{**OF_TEAM, "effect": "NoExecute"}], [VENDOR, {**TEAM, "effect": "NoExecute"}]),
    ],
)
def test_nvidias_driver_tolerates_the_taints_of_planned_nodes(
    tmp_path: Path, taints: list[dict[str, str]], tolerations: list[dict[str, str]] | None
) -> None:
    planned(tmp_path, [tainted(plugin_node("gpu-0"), *taints), daemon_set("nvidia-device-plugin")])

    text = json.dumps(tolerations, separators=(",", ":"))
    flag = f"'--set-json=kubeletPlugin.tolerations={text}'"
    assert (flag in prepare(tmp_path)) is (tolerations is not None)
    assert ("kubeletPlugin.tolerations" in prepare(tmp_path)) is (tolerations is not None)


@pytest.mark.parametrize("value", ["true", "pre-installed", None])
def test_hamis_driver_finds_the_libraries_of_the_operators_driver(
    tmp_path: Path, value: str | None
) -> None:
    node = tainted(hami_node("hami-0"), OF_TEAM)
    if value is not None:
        node["metadata"]["labels"]["nvidia.com/gpu.deploy.driver"] = value

    planned(tmp_path, [node])

    root = "--set=nvidiaDriverRoot=/run/nvidia/driver " if value == "true" else ""
    tolerations = (
        f"'--set-json=kubeletPlugin.tolerations={json.dumps([TEAM], separators=(',', ':'))}'"
    )
    assert f"#   {root}{tolerations} {SELECTOR}\n" in prepare(tmp_path)


@pytest.mark.parametrize(
    ("tolerations", "is_missing"),
    [
        ([], True),
        ([VENDOR], True),
        ([{**TEAM, "value": "ml"}], True),
        ([TEAM], False),
        ([{"operator": "Exists"}], False),
    ],
)
def test_a_driver_that_does_not_tolerate_a_taint_stops_the_wave(
    tmp_path: Path, tolerations: list[dict[str, str]], *, is_missing: bool
) -> None:
    driver = daemon_set(
        "hami-dra-driver",
        nodeSelector={LABEL: HAMI},
        volumes=REGISTRY,
        tolerations=tolerations,
    )
    objects = [
        *(tainted(hami_node("hami-0"), OF_TEAM), tainted(hami_node("hami-1"), OF_TEAM)),
        *(namespace("team"), driver),
        *workload("web", SHARE, ["hami-0"], tolerations=[TEAM]),
    ]
    plan = planned(tmp_path, objects, "--wave-nodes", 1)
    (node,) = plan["waves"][0]["nodes"]
    snapshot = tmp_path / "now.yaml"
    snapshot.write_text(dump_yaml(objects))

    wave = tmp_path / "plan" / "wave-1"
    result = drawbridge("verify", "--snapshot", snapshot, "--wave", wave, "--before")

    text = " ".join(result.stdout.split())
    assert is_missing is (
        "failed DaemonSet/kube-system/hami-dra-driver its pods do not tolerate the taints of "
        f"{node['name']}, so the driver would not come there: add {json.dumps(TEAM)} to its tolerations"
        in text
    )
    assert int(is_missing) == result.exit_code, result.stdout
